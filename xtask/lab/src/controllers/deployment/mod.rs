//! stub
/// stub
pub async fn run(_server: String, shutdown: tokio_util::sync::CancellationToken) -> anyhow::Result<()> { shutdown.cancelled().await; Ok(()) }
