//! The protocol, as kube-rs's own client sees it over TCP.

mod access;
mod deletion;
mod lists;
mod watches;
mod writes;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Handle, Options, client, start};

/// Far longer than anything here takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

async fn server(options: Options) -> anyhow::Result<(Handle, Client)> {
    let handle = start(TcpListener::bind("127.0.0.1:0").await?, options);
    let client = client(&handle.url(), "test")?;
    Ok((handle, client))
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), "shop")
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": "api" } },
        "spec": { "nodeName": node, "containers": [{ "name": "app" }] },
    })
}

async fn create(client: &Client, object: Value) -> anyhow::Result<Pod> {
    Ok(pods(client).create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// The next item, or an error after [`PATIENCE`].
async fn next<T, E>(
    stream: &mut (impl futures::Stream<Item = Result<T, E>> + Unpin),
) -> anyhow::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    use futures::StreamExt;
    match tokio::time::timeout(PATIENCE, stream.next()).await {
        Ok(Some(item)) => Ok(item?),
        Ok(None) => anyhow::bail!("the stream ended"),
        Err(_) => anyhow::bail!("nothing came within {PATIENCE:?}"),
    }
}
