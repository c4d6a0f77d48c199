//! Themes and narrow screens.

use anyhow::Result;
use rollrace_page::{Browser, Scheme};

use crate::{
    opened::{self, LISTED},
    served::{Served, expected, picture},
};

const GROUND: &str = "return getComputedStyle(document.body).backgroundColor";

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn it_is_dark_where_the_system_is_and_the_button_has_the_last_word() -> Result<()> {
    let served = Served::node("n1", None).await;
    let browser = opened::list(&served, 1_360, Scheme::Light).await?;
    let light = browser.text(GROUND).await?;
    browser.scheme(Scheme::Dark).await?;
    let dark = browser.text(GROUND).await?;
    assert_ne!(light, dark);
    browser.picture(&picture("list-dark"), 1_360).await?;
    browser.press(&['t']).await?;
    assert_eq!(
        browser.text("return document.getElementById('theme').textContent").await?,
        "Theme: light"
    );
    assert_eq!(browser.text(GROUND).await?, light);
    browser.go(&served.url()).await?;
    browser.until("a rollout", LISTED).await?;
    assert_eq!(browser.text(GROUND).await?, light, "it is remembered");
    browser.press(&['t']).await?;
    browser.scheme(Scheme::Light).await?;
    assert_eq!(browser.text(GROUND).await?, dark);
    browser.close().await
}

/// The contrast of each text with what is behind it, as WCAG 2 computes it; those below 4.5 : 1.
const FAINT: &str = r#"
const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const parse = (text) => text.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const faint = [];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !element.getClientRects().length) continue;
  const style = getComputedStyle(element);
  const ink = parse(element.namespaceURI.endsWith('svg') ? style.fill : style.color);
  const [a, b] = [light(ink), light(ground(element))].sort((x, y) => y - x);
  const contrast = (a + 0.05) / (b + 0.05);
  if (contrast < 4.5) faint.push(`${element.tagName}.${element.getAttribute('class')} "${element.textContent.trim().slice(0, 30)}" ${contrast.toFixed(2)}`);
}
return faint.join('\n');
"#;

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn text_can_be_read_in_both_themes() -> Result<()> {
    let served = Served::node("n1", None).await;
    for scheme in [Scheme::Light, Scheme::Dark] {
        let browser = opened::rollout(&served, &expected("n1").id, 1_360, scheme).await?;
        assert_eq!(browser.text(FAINT).await?, "", "{scheme:?}");
        browser.close().await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "opens a browser: cargo xtask test --only page"]
async fn on_a_narrow_screen_nothing_is_cut_off() -> Result<()> {
    let served = Served::node("n1", None).await;
    let browser = Browser::open(360, Scheme::Light).await?;
    let beyond = "return [...document.querySelectorAll('body *')].filter(element => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest('.scroll, thead') && !element.matches('.skip')).map(element => element.tagName + ' ' + element.textContent.slice(0, 40)).join('\\n')";
    let list = served.url();
    let rollout = format!("{list}#rollout={}", expected("n1").id);
    for (name, url, seen) in
        [("list", list, "table.list a"), ("rollout", rollout, ".picture .lane")]
    {
        browser.go(&url).await?;
        browser.until(name, &format!("return !!document.querySelector('{seen}')")).await?;
        assert_eq!(browser.text(beyond).await?, "", "{name}");
        assert_eq!(
            browser.number("return document.documentElement.scrollWidth").await?,
            360,
            "{name}"
        );
        browser.picture(&picture(&format!("{name}-narrow")), 360).await?;
    }
    let roles =
        "return document.querySelectorAll('[role=table] [role=row] [role=cell]').length > 0";
    browser.go(&served.url()).await?;
    browser.until("the list is still a table for who cannot see it", roles).await?;
    browser.close().await
}
