//! Several agents as one page, as `rollrace ui` shows them.

use anyhow::Result;
use rollrace_page::{Browser, Scheme};

use crate::served::{NODES, Served, expected, failed, picture};

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn what_the_nodes_know_is_joined_and_one_that_does_not_answer_is_named() -> Result<()> {
    let mut agents = Vec::new();
    for node in NODES {
        agents.push(Served::node(node, None).await);
    }
    let gone = Served::node("n1", None).await;
    let mut addresses: Vec<_> = agents.iter().map(|agent| agent.address).collect();
    addresses.push(gone.address);
    let silent = gone.address.to_string();
    gone.stop().await;
    let ui = Served::many(&addresses).await;
    let browser = Browser::open(1_360, Scheme::Light).await?;
    browser.go(&ui.url()).await?;
    browser
        .until(
            "one rollout",
            "return document.querySelectorAll('table.list tbody tr').length === 1",
        )
        .await?;
    let reports = NODES.map(expected);
    let all: u64 = reports.iter().map(failed).sum();
    let told =
        browser.text("return document.querySelector('td[data-label=Failed]').innerText").await?;
    assert!(told.starts_with(&format!("{all} of ")), "{told}: {all}");
    let notes = browser.text("return document.getElementById('coverage').innerText").await?;
    assert!(notes.contains(&silent) && notes.contains("does not answer"), "{notes}");
    browser.ask("document.querySelector('table.list a').click()").await?;
    browser
        .until("a timeline", "return document.querySelectorAll('.picture .lane').length === 6")
        .await?;
    let rows = browser.number("return document.querySelectorAll('.settling .lane').length").await?;
    assert_eq!(rows, 2, "convergence, a row a node");
    let marks = "return [...document.querySelectorAll('.picture .lane .mark')].reduce((sum, mark) => sum + Number(mark.dataset.count), 0)";
    assert_eq!(u64::try_from(browser.number(marks).await?)?, all);
    let explained = browser.text("return document.querySelector('.explained').innerText").await?;
    assert!(explained.contains(&silent), "what is not known is said there, too: {explained}");
    browser.picture(&picture("many-agents"), 1_360).await?;
    browser.close().await
}
