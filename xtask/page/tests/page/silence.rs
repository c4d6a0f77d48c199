//! What is shown when the agent does not answer.

use anyhow::Result;
use rollrace_page::{Browser, Scheme};

use crate::{
    opened::LISTED,
    served::{Served, picture},
};

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn what_is_shown_is_said_to_be_old_from_when_the_agent_does_not_answer() -> Result<()> {
    let served = Served::node("n1", Some(1.0)).await;
    let address = served.address;
    let browser = Browser::open(1_360, Scheme::Light).await?;
    browser.go(&served.url()).await?;
    browser
        .until("live", "return document.getElementById('live').textContent.includes('playing')")
        .await?;
    served.stop().await;
    browser
        .until(
            "the alarm",
            "return document.getElementById('alarm').innerText.includes('No answer since')",
        )
        .await?;
    let alarm = browser.text("return document.getElementById('alarm').innerText").await?;
    assert!(alarm.contains("What is below is from"), "{alarm}");
    assert_eq!(
        browser.text("return document.getElementById('live').textContent").await?,
        "no answer"
    );
    assert!(browser.ask("return document.body.classList.contains('old')").await? == true);
    browser.picture(&picture("no-answer"), 1_360).await?;
    let back = Served::node_at(address, "n1", None).await;
    browser.until("the alarm is over", "return document.getElementById('alarm').hidden").await?;
    browser.until("a rollout", LISTED).await?;
    // Chromium itself tells of the connections that were refused.
    browser.complaints().await?;
    back.stop().await;
    Ok(())
}
