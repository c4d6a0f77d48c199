//! The chromedriver process.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// It says where it listens by then.
const STARTED_WITHIN: Duration = Duration::from_secs(30);

/// A running chromedriver; it ends with this.
pub(crate) struct Driver {
    _child: Child,
    port: u16,
}

impl Driver {
    /// Starts it on a port of its own choice.
    pub(crate) async fn start() -> Result<Self> {
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot run chromedriver: `cargo xtask setup` installs it")?;
        let stdout = child.stdout.take().context("chromedriver has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let port = timeout(STARTED_WITHIN, async {
            while let Some(line) = lines.next_line().await.context("read chromedriver's output")? {
                // "ChromeDriver was started successfully on port 12345."
                let port = line.split_once("successfully on port ").map(|(_, port)| port);
                if let Some(port) = port {
                    let port = port.trim_end_matches('.').parse();
                    return port.with_context(|| format!("no port in {line:?}"));
                }
            }
            bail!("chromedriver ended before it listened")
        })
        .await
        .with_context(|| format!("chromedriver does not listen after {STARTED_WITHIN:?}"))??;
        // Its pipe must not fill up.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { _child: child, port })
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
