//! What people on call may do, and the way through the server to a pod.

use axum::body::{Body, to_bytes};
use axum::http::Request;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use rollrace_deploy::role::Role;
use serde_json::json;
use tokio::net::TcpListener;

use super::{Options, create, pod, pods, server};
use crate::api::client;

/// A pod that answers with what it was asked.
async fn answering() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let echo = async |request: Request<Body>| request.uri().to_string();
    let router = axum::Router::new().fallback(echo);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(port)
}

#[tokio::test]
async fn a_pod_is_asked_through_the_server_by_those_who_may() -> anyhow::Result<()> {
    let (handle, lab) = server(Options::default()).await?;
    create(&lab, pod("a", "n1")).await?;
    let status = Patch::Merge(json!({"status": {"podIP": "127.0.0.1"}}));
    pods(&lab).patch_status("a", &PatchParams::default(), &status).await?;
    let port = answering().await?;
    for (namespace, may) in [("shop", true), ("rollrace", false)] {
        handle.bind_role("viewer", Role::viewer(namespace)?);
        let viewer = client(&handle.url(), "viewer")?;
        let path = format!("/api/v1/namespaces/shop/pods/a:{port}/proxy/api/v1/status?x=1");
        let answer = viewer.send(Request::get(path).body(kube::client::Body::empty())?).await?;
        let code = answer.status().as_u16();
        let body = to_bytes(Body::new(answer.into_body()), 1 << 20).await?;
        assert_eq!(code, if may { 200 } else { 403 }, "{namespace}");
        assert_eq!(&body[..] == b"/api/v1/status?x=1", may, "{namespace}");
        assert_eq!(pods(&viewer).list(&ListParams::default()).await.is_ok(), may, "{namespace}");
        assert!(pods(&viewer).get("a").await.is_err(), "the role does not grant it");
    }
    Ok(())
}

#[tokio::test]
async fn everybody_may_ask_what_they_may() -> anyhow::Result<()> {
    let (handle, lab) = server(Options::default()).await?;
    handle.bind_role("viewer", Role::viewer("rollrace")?);
    let viewer = client(&handle.url(), "viewer")?;
    for (client, verb, resource, subresource, allowed) in [
        (&viewer, "list", "pods", None, true),
        (&viewer, "get", "pods", Some("proxy"), true),
        (&viewer, "get", "pods", None, false),
        (&viewer, "list", "nodes", None, false),
        (&lab, "list", "nodes", None, true),
    ] {
        let review = serde_json::from_value(json!({"spec": {"resourceAttributes": {
            "namespace": "rollrace", "verb": verb, "resource": resource,
            "subresource": subresource}}}))?;
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let said = answer.status.is_some_and(|status| status.allowed);
        assert_eq!(said, allowed, "{verb} {resource} {subresource:?}");
    }
    Ok(())
}
