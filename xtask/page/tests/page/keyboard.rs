//! Everything without a pointer.

use anyhow::Result;
use rollrace_page::Scheme;

use crate::{opened, served::Served};

const DOWN: char = '\u{e015}';
const ENTER: char = '\u{e007}';
const ESCAPE: char = '\u{e00c}';
const TAB: char = '\u{e004}';

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn the_list_is_walked_a_rollout_opened_and_left_with_the_keyboard_alone() -> Result<()> {
    let served = Served::node("n1", None).await;
    let browser = opened::list(&served, 1_360, Scheme::Light).await?;
    browser.press(&[DOWN]).await?;
    let on_it = "return document.activeElement.matches('table.list a[data-key]')";
    browser.until("the focus on the rollout", on_it).await?;
    let outline = "return getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.text(outline).await?, "solid", "the focus can be seen");
    browser.press(&[ENTER]).await?;
    browser.until("the rollout", "return !!document.querySelector('.picture .lane')").await?;
    browser.press(&[ESCAPE]).await?;
    browser.until("the list", "return !!document.querySelector('table.list')").await?;
    browser.until("the focus where it was", on_it).await?;
    browser.close().await
}

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn tab_reaches_each_control_of_a_rollout() -> Result<()> {
    let served = Served::node("n1", None).await;
    let browser = opened::list(&served, 1_360, Scheme::Light).await?;
    browser.press(&[DOWN, ENTER]).await?;
    browser.until("the rollout", "return !!document.querySelector('.picture .lane')").await?;
    let mut reached = Vec::new();
    for _ in 0..14 {
        browser.press(&[TAB]).await?;
        let what =
            "const at = document.activeElement; return at.dataset.key ?? at.id ?? at.tagName";
        reached.push(browser.text(what).await?);
    }
    for control in [
        "back",
        "zoom-race",
        "zoom-failures",
        "convergence summary",
        "failures summary",
        "pods summary",
    ] {
        assert!(reached.iter().any(|key| key == control), "{control} in {reached:?}");
    }
    browser.close().await
}

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn what_is_focused_and_open_stays_so_while_the_page_asks_again() -> Result<()> {
    let served = Served::node("n1", Some(1.0)).await;
    let browser = opened::list(&served, 1_360, Scheme::Light).await?;
    browser.press(&[DOWN, ENTER]).await?;
    let running = "return !!document.querySelector('.pods summary')";
    browser.until("the rollout", running).await?;
    browser.ask("document.querySelector('.pods summary').focus(); document.querySelector('.pods details').open = true; window.before = document.querySelector('.pods table')").await?;
    browser
        .until(
            "the table is drawn anew",
            "return document.querySelector('.pods table') !== window.before",
        )
        .await?;
    let kept = "return document.querySelector('.pods details').open && document.activeElement.dataset.key === 'pods summary'";
    assert!(browser.ask(kept).await? == true);
    browser.close().await
}
