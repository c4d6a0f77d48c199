//! A browser in which a view is there to be looked at.

use anyhow::Result;
use rollrace::model::RolloutId;
use rollrace_page::{Browser, Scheme};

use crate::served::Served;

/// A rollout's picture has its lanes.
pub const DRAWN: &str =
    "return document.querySelectorAll('.picture svg.timeline .lane').length > 0";
/// The list has its one rollout.
pub const LISTED: &str = "return document.querySelectorAll('table.list tbody tr').length === 1";

/// The list, with the one rollout that there is.
pub async fn list(served: &Served, width: u32, scheme: Scheme) -> Result<Browser> {
    let browser = Browser::open(width, scheme).await?;
    browser.go(&served.url()).await?;
    browser.until("a rollout", LISTED).await?;
    Ok(browser)
}

/// A rollout, with its timeline.
pub async fn rollout(
    served: &Served,
    id: &RolloutId,
    width: u32,
    scheme: Scheme,
) -> Result<Browser> {
    let browser = Browser::open(width, scheme).await?;
    browser.go(&format!("{}#rollout={id}", served.url())).await?;
    browser.until("a timeline", DRAWN).await?;
    Ok(browser)
}
