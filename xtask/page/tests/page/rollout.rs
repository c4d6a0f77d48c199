//! One rollout.

use anyhow::Result;
use rollrace_page::{Browser, Scheme};

use crate::{
    opened,
    served::{KEEPALIVE, Served, expected, failed, picture},
};

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn the_timeline_has_a_lane_for_each_pod_and_each_failure_is_in_a_mark() -> Result<()> {
    let served = Served::node("n1", None).await;
    let report = expected("n1");
    let browser = opened::rollout(&served, &report.id, 1_360, Scheme::Light).await?;
    for side in ["old", "new"] {
        let lanes = format!("return document.querySelectorAll('.picture .lane.{side}').length");
        assert_eq!(browser.number(&lanes).await?, 3, "{side}");
    }
    for (class, count) in &report.failures {
        let marks = format!(
            "return [...document.querySelectorAll('.picture .lane .mark.of-{class}')].reduce((sum, mark) => sum + Number(mark.dataset.count), 0)"
        );
        assert_eq!(u64::try_from(browser.number(&marks).await?)?, *count, "{class}");
    }
    for line in ["started", "complete", "gone", "tail"] {
        let drawn = format!("return document.querySelectorAll('.picture .line.{line}').length");
        assert_eq!(browser.number(&drawn).await?, 1, "{line}");
    }
    let label = browser
        .text("return document.querySelector('.picture svg.timeline').getAttribute('aria-label')")
        .await?;
    assert!(label.contains("6 pods") && label.contains("28 refused"), "{label}");
    browser.picture(&picture("rollout-light"), 1_360).await?;
    browser.close().await
}

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn what_was_not_measured_is_said_and_not_shown_as_zero() -> Result<()> {
    let served = Served::node("n1", None).await;
    let report = expected("n1");
    assert!(
        report.convergence.iter().any(|known| known.seconds.is_none()),
        "the recording has one"
    );
    let browser = opened::rollout(&served, &report.id, 1_360, Scheme::Light).await?;
    let figures = browser.text("return document.querySelector('.figures').innerText").await?;
    assert!(figures.contains("1 pod not measured"), "{figures}");
    let table =
        browser.text("return document.querySelector('.settling table').textContent").await?;
    assert!(table.contains("not measured"), "{table}");
    browser.close().await
}

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn every_failure_is_listed_with_its_evidence() -> Result<()> {
    let served = Served::node("n1", None).await;
    let report = expected("n1");
    let browser = opened::rollout(&served, &report.id, 1_360, Scheme::Dark).await?;
    browser
        .ask("for (const each of document.querySelectorAll('details')) each.open = true")
        .await?;
    let rows =
        browser.number("return document.querySelectorAll('.listed tbody tr').length").await?;
    assert_eq!(u64::try_from(rows)?, failed(&report));
    let without = "return [...document.querySelectorAll('.listed td.evidence')].filter(cell => cell.textContent === '').length";
    assert_eq!(browser.number(without).await?, 0);
    browser.picture(&picture("rollout-dark-open"), 1_360).await?;
    browser.close().await
}

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn it_is_explained_beside_the_picture_as_the_command_line_explains_it() -> Result<()> {
    let served = Served::node("n1", None).await;
    let report = expected("n1");
    let browser = opened::rollout(&served, &report.id, 1_360, Scheme::Light).await?;
    let explained = browser.text("return document.querySelector('.explained').innerText").await?;
    assert!(explained.contains("Why") && explained.contains("What does not help"), "{explained}");
    let beside = "const [picture, explained] = ['.picture', '.explained'].map(name => document.querySelector(name).getBoundingClientRect()); return explained.left >= picture.right && Math.abs(explained.top - picture.top) < 2";
    browser.until("it is beside the picture", beside).await?;
    browser.close().await
}

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn a_connection_that_was_cut_is_drawn_when_it_was_cut_and_the_patch_is_told() -> Result<()> {
    let served = Served::node(KEEPALIVE, None).await;
    let report = expected(KEEPALIVE);
    let browser = opened::rollout(&served, &report.id, 1_360, Scheme::Dark).await?;
    let marks = "return [...document.querySelectorAll('.picture .lane.old .mark.of-cut')].reduce((sum, mark) => sum + Number(mark.dataset.count), 0)";
    assert_eq!(browser.number(marks).await?, 15);
    // They had been open for long: drawn at their begin they would be before the rollout's.
    let early = "const begin = document.querySelector('.picture .line.started path').getBoundingClientRect().left; return [...document.querySelectorAll('.picture .mark.of-cut')].filter(mark => mark.getBoundingClientRect().right < begin).length";
    assert_eq!(browser.number(early).await?, 0);
    let explained = browser.text("return document.querySelector('.explained').innerText").await?;
    assert!(
        explained.contains("terminationGracePeriodSeconds") || explained.contains("preStop"),
        "{explained}"
    );
    let patch =
        browser.number("return document.querySelectorAll('.explained .verbatim').length").await?;
    assert!(patch > 3, "{explained}");
    let figures = browser.text("return document.querySelector('.figures').innerText").await?;
    for words in ["20: 15 open, 5 of 20 new", "shop/client 20", "Still at risk\nnothing"] {
        assert!(figures.contains(words), "{words}: {figures}");
    }
    browser.picture(&picture("keepalive-dark"), 1_360).await?;
    browser.close().await
}

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn a_rollout_that_is_not_known_any_more_is_said_to_be_so() -> Result<()> {
    let served = Served::node("n1", None).await;
    let browser = Browser::open(1_360, Scheme::Light).await?;
    browser.go(&format!("{}#rollout=gone%2Fgone%2F1", served.url())).await?;
    browser.until("that", "return document.body.innerText.includes('No such rollout')").await?;
    // Chromium itself tells of the answer "not found".
    browser.complaints().await?;
    browser.close().await
}
