//! A rollout while it runs.

use anyhow::Result;
use rollrace_page::{Browser, Scheme};

use crate::served::{Served, expected, failed, picture};

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn a_rollout_appears_runs_and_completes_without_a_reload() -> Result<()> {
    let served = Served::node("n1", Some(1.0)).await;
    let browser = Browser::open(1_360, Scheme::Dark).await?;
    browser.go(&served.url()).await?;
    browser
        .until("that there is none yet", "return document.body.innerText.includes('No rollout')")
        .await?;
    browser.until("it runs", "return !!document.querySelector('.state.running')").await?;
    browser.ask("document.querySelector('table.list a').click()").await?;
    browser
        .until("now, as a line", "return !!document.querySelector('.picture .line.now')")
        .await?;
    browser.picture(&picture("rollout-live-dark"), 1_360).await?;
    browser
        .until(
            "completion, as a line",
            "return !!document.querySelector('.picture .line.complete')",
        )
        .await?;
    let all = failed(&expected("n1"));
    let counted =
        format!("return document.querySelector('.figures dd strong').textContent === '{all}'");
    browser.until("all failures", &counted).await?;
    browser.close().await
}

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn a_hidden_tab_asks_nothing_and_asks_at_once_when_it_is_seen_again() -> Result<()> {
    let served = Served::node("n1", Some(0.1)).await;
    let browser = Browser::open(1_360, Scheme::Light).await?;
    browser.go(&served.url()).await?;
    browser.until("an answer", "return document.getElementById('live').textContent !== ''").await?;
    let asked = "return performance.getEntriesByType('resource').filter(entry => entry.name.includes('/api/')).length";
    browser.until("two rounds", &format!("{asked} >= 4")).await?;
    let hide = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }}); document.dispatchEvent(new Event('visibilitychange'))"
        )
    };
    browser.ask(&hide(true)).await?;
    // A round may just be under way.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let before = browser.number(asked).await?;
    // That nothing happens can only be waited for: longer than the two seconds of its rounds.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(browser.number(asked).await?, before);
    browser.ask(&hide(false)).await?;
    browser.until("another round", &format!("{asked} > {before}")).await?;
    browser.close().await
}
