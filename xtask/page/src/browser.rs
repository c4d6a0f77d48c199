//! One window: what it shows, and what it complains of.

use std::{future::Future, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use fantoccini::{
    Client, ClientBuilder,
    actions::{InputSource as _, KeyAction, KeyActions},
    error::CmdError,
    wd::WebDriverCompatibleCommand,
};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use url::Url;

use crate::driver::Driver;

/// What is to be seen is seen by then, also on a busy machine.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A picture is no higher than this.
const HIGHEST: u64 = 4_000;

/// What the system asks pages to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Light.
    Light,
    /// Dark.
    Dark,
}

/// A window of headless Chromium.
pub struct Browser {
    client: Client,
    _driver: Driver,
}

/// A command that the W3C does not know.
#[derive(Debug)]
struct Chromium(&'static str, Value);

impl WebDriverCompatibleCommand for Chromium {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.0))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.1.to_string()))
    }
}

impl Browser {
    /// A window of that width, with nothing in it.
    pub async fn open(width: u32, scheme: Scheme) -> Result<Self> {
        let driver = Driver::start().await?;
        // Nothing of the browser's own may call out or draw attention.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
        ];
        let capabilities = json!({
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(capabilities) = capabilities else { bail!("no capabilities") };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&driver.url())
            .await
            .context("cannot open a window of Chromium: `cargo xtask setup` installs it")?;
        let browser = Self { client, _driver: driver };
        browser.size(width, 900).await?;
        browser.scheme(scheme).await?;
        Ok(browser)
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Result<Value> {
        let body = json!({ "cmd": command, "params": parameters });
        let answer = self.client.issue_cmd(Chromium("goog/cdp/execute", body)).await;
        answer.with_context(|| format!("{command} failed"))
    }

    async fn size(&self, width: u32, height: u64) -> Result<()> {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await.map(drop)
    }

    /// The system asks for another look.
    pub async fn scheme(&self, scheme: Scheme) -> Result<()> {
        let value = match scheme {
            Scheme::Light => "light",
            Scheme::Dark => "dark",
        };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.devtools("Emulation.setEmulatedMedia", features).await.map(drop)
    }

    /// Goes to an address.
    pub async fn go(&self, url: &str) -> Result<()> {
        self.client.goto(url).await.with_context(|| format!("cannot go to {url}"))
    }

    /// What a script in the page returns.
    pub async fn ask(&self, script: &str) -> Result<Value> {
        let answer = self.client.execute(script, Vec::new()).await;
        answer.with_context(|| format!("the script failed: {script}"))
    }

    /// The same as text.
    pub async fn text(&self, script: &str) -> Result<String> {
        Ok(self.ask(script).await?.as_str().unwrap_or_default().to_owned())
    }

    /// The same as a number.
    pub async fn number(&self, script: &str) -> Result<i64> {
        let answer = self.ask(script).await?;
        answer.as_i64().with_context(|| format!("{script} is no number but {answer}"))
    }

    /// Waits until a script says true.
    pub async fn until(&self, what: &str, script: &str) -> Result<()> {
        self.until_true(what, || async { Ok(self.ask(script).await? == Value::Bool(true)) }).await
    }

    async fn until_true<F: Future<Output = Result<bool>>>(
        &self,
        what: &str,
        look: impl Fn() -> F,
    ) -> Result<()> {
        let deadline = Instant::now() + SEEN_WITHIN;
        while !look().await? {
            if Instant::now() >= deadline {
                let body = self.text("return document.body.innerText").await?;
                bail!("not seen within {SEEN_WITHIN:?}: {what}. The page says:\n{body}");
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Presses keys one after the other, wherever the focus is.
    pub async fn press(&self, keys: &[char]) -> Result<()> {
        let actions = keys.iter().fold(KeyActions::new("keyboard".to_owned()), |actions, key| {
            actions.then(KeyAction::Down { value: *key }).then(KeyAction::Up { value: *key })
        });
        self.client.perform_actions(actions).await.context("cannot press keys")
    }

    /// Writes a picture of the whole page.
    pub async fn picture(&self, path: &Path, width: u32) -> Result<()> {
        let height = self.number("return document.documentElement.scrollHeight").await?;
        let height = u64::try_from(height).unwrap_or(900).clamp(600, HIGHEST);
        self.size(width, height).await?;
        // What depends on the width is drawn anew with the next frame.
        self.client
            .execute_async(
                "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(true)))",
                Vec::new(),
            )
            .await
            .context("the page draws no frame")?;
        let picture = self.client.screenshot().await.context("cannot take a picture")?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        std::fs::write(path, picture)
            .with_context(|| format!("cannot write {}", path.display()))?;
        self.size(width, 900).await
    }

    /// What the console says since it was asked last, errors and warnings.
    pub async fn complaints(&self) -> Result<Vec<String>> {
        let body = json!({ "type": "browser" });
        let log: Result<Value, CmdError> = self.client.issue_cmd(Chromium("se/log", body)).await;
        let log = log.context("cannot read the console")?;
        let lines = log.as_array().cloned().unwrap_or_default();
        let told = lines.iter().filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG");
        Ok(told.map(|line| format!("{}: {}", line["level"], line["message"])).collect())
    }

    /// Closes the window; the console must be clean.
    pub async fn close(self) -> Result<()> {
        let complaints = self.complaints().await?;
        ensure!(complaints.is_empty(), "the console says:\n{}", complaints.join("\n"));
        self.client.close().await.context("cannot close the window")
    }
}
