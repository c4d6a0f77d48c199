//! Runs the system's network tools, with errors that show what was asked of them.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs a tool with a text on its standard input; a failure carries the tool's own words.
pub async fn run_tool(mut command: Command, input: &str) -> Result<()> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let arguments: Vec<String> =
        command.as_std().get_args().map(|a| a.to_string_lossy().into_owned()).collect();
    let shown = format!("{name} {}", arguments.join(" "));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start `{shown}` (install {})", package_of(&name)))?;
    let mut stdin = child.stdin.take().context("the tool's standard input")?;
    let written = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.with_context(|| format!("wait for `{shown}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}): {}\n{input}", output.status, said.trim());
    }
    written.with_context(|| format!("write the input of `{shown}`"))
}

/// The Debian package that has a tool.
fn package_of(tool: &str) -> &'static str {
    match tool {
        "ip" => "iproute2",
        "nft" => "nftables",
        "conntrack" => "conntrack",
        _ => "iptables",
    }
}
