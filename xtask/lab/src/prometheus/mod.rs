//! A real Prometheus that scrapes the agents of a run as the shipped `PodMonitor` has it done, with the
//! shipped rules, and is asked every query of the shipped dashboards.

mod judge;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rollrace_deploy::rules::Rules;
use rollrace_deploy::scrape::{PodMonitor, Target};
use rollrace_deploy::tools::Tool;
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

pub use self::judge::Expected;
use crate::agent::Agent;
use crate::net::http_get;

/// Where it listens, in the lab's own namespace.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);
/// It scrapes and evaluates each second; by then it has seen what the agents say.
const SEEN_WITHIN: Duration = Duration::from_secs(20);
/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The process.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
}

impl Prometheus {
    /// Starts it; it keeps its files in the out directory.
    pub async fn start(agents: &[Agent], out: &Path) -> Result<Self> {
        let folder = out.join("prometheus");
        std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let target = |agent: &Agent| Target {
            address: agent.addresses().0.to_string(),
            node: agent.node().to_owned(),
        };
        let targets: Vec<Target> = agents.iter().map(target).collect();
        let (rules, config) = (folder.join("rules.json"), folder.join("prometheus.json"));
        let written = PodMonitor::shipped()?.prometheus(&targets, "rules.json")?;
        for (path, text) in [(&rules, Rules::shipped()?.file()?), (&config, written)] {
            std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
        }
        let log = folder.join("prometheus.log");
        let log = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let child = Command::new(Tool::Prometheus.path())
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={ADDRESS}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("start Prometheus: install it with `cargo xtask setup`")?;
        let mut prometheus = Self { child };
        prometheus.scrapes(agents.len()).await?;
        Ok(prometheus)
    }

    /// Waits until every agent has been scraped.
    async fn scrapes(&mut self, agents: usize) -> Result<()> {
        let deadline = Instant::now() + SEEN_WITHIN;
        loop {
            if let Some(status) = self.child.try_wait().context("look at Prometheus")? {
                bail!("Prometheus ended ({status}): see prometheus/prometheus.log");
            }
            if let Ok(found) = self.ask("count(rollrace_build_info)").await
                && value_of(&found) == Some(f64::from(u32::try_from(agents)?))
            {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("Prometheus has not scraped {agents} agents within {SEEN_WITHIN:?}");
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// What is wrong, in words, with what it makes of a run: of the queries, the figures and the
    /// alerts. It may take some seconds until it has seen everything.
    pub async fn objections(&self, expected: &Expected) -> Result<Vec<String>> {
        let deadline = Instant::now() + SEEN_WITHIN;
        loop {
            let objections = judge::objections(self, expected).await?;
            if objections.is_empty() || Instant::now() > deadline {
                return Ok(objections);
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// The series that a query selects.
    async fn ask(&self, query: &str) -> Result<Vec<Value>> {
        let answer = self.get(&format!("/api/v1/query?query={}", encoded(query))).await?;
        match answer["data"]["resultType"].as_str() {
            Some("vector" | "matrix") => {
                let series = answer["data"]["result"].as_array();
                Ok(series.cloned().unwrap_or_default())
            }
            Some("scalar") => Ok(vec![serde_json::json!({"value": answer["data"]["result"]})]),
            _ => bail!("{query}: {}", answer["error"]),
        }
    }

    /// Names of the alerts that fire.
    async fn firing(&self) -> Result<BTreeSet<String>> {
        let answer = self.get("/api/v1/alerts").await?;
        let alerts = answer["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        Ok(firing
            .filter_map(|alert| alert["labels"]["alertname"].as_str().map(str::to_owned))
            .collect())
    }

    /// What is wrong with a rule, as Prometheus itself tells.
    async fn sick_rules(&self) -> Result<Vec<String>> {
        let answer = self.get("/api/v1/rules").await?;
        let groups = answer["data"]["groups"].as_array().cloned().unwrap_or_default();
        let rules = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
        let sick = rules.filter(|rule| rule["health"] != "ok");
        Ok(sick.map(|rule| format!("rule {}: {}", rule["name"], rule["lastError"])).collect())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let answer = timeout(Duration::from_secs(10), http_get(ADDRESS, path))
            .await
            .with_context(|| format!("Prometheus does not answer {path}"))??;
        serde_json::from_str(&answer.body)
            .with_context(|| format!("Prometheus answered {path} with {}", answer.status))
    }
}

/// The value of a single series.
fn value_of(series: &[Value]) -> Option<f64> {
    match series {
        [only] => only["value"][1].as_str()?.parse().ok(),
        _ => None,
    }
}

/// As part of a URL's query.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut url, byte| {
        if byte.is_ascii_alphanumeric() {
            url.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
        url
    })
}
