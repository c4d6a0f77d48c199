//! The list of rollouts.

use anyhow::Result;
use rollrace_page::{Browser, Scheme};

use crate::{
    opened,
    served::{Served, expected, failed, picture},
};

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn the_list_says_how_many_connections_a_rollout_broke_and_how() -> Result<()> {
    let served = Served::node("n1", None).await;
    let report = expected("n1");
    let browser = opened::list(&served, 1_360, Scheme::Light).await?;
    let cell = async |name: &str| {
        let script =
            format!("return document.querySelector('td[data-label=\"{name}\"]').innerText");
        browser.text(&script).await
    };
    let workload = cell("Workload").await?;
    assert!(workload.contains("shop/api") && workload.contains("Deployment"), "{workload}");
    assert_eq!(cell("Revision").await?, "1 → 2");
    let told = cell("Failed").await?;
    let attempts = report.attempts;
    assert!(told.starts_with(&format!("{} of ", failed(&report))), "{told}");
    assert!(told.replace(',', "").contains(&format!("of {attempts}")), "{told}: {attempts}");
    let classes = cell("Classes").await?.replace('\n', " ");
    for (class, count) in &report.failures {
        assert!(classes.contains(&format!("{class} {count}")), "{classes}: {class} {count}");
    }
    assert_eq!(cell("After completion").await?, report.after.to_string());
    // It was recorded without a look at the conntrack table: that is not "nothing".
    assert_eq!(cell("Still at risk").await?, "not measured");
    browser.picture(&picture("list-light"), 1_360).await?;
    browser.close().await
}

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn each_class_is_told_apart_by_its_shape_not_by_colour_alone() -> Result<()> {
    let served = Served::node("n1", None).await;
    let browser = Browser::open(1_360, Scheme::Light).await?;
    browser.go(&served.url()).await?;
    browser
        .until("classes", "return document.querySelectorAll('ul.classes li').length === 3")
        .await?;
    let shapes = "return new Set([...document.querySelectorAll('ul.classes .mark')].map(mark => mark.getAttribute('d'))).size";
    assert_eq!(browser.number(shapes).await?, 3);
    browser.close().await
}
