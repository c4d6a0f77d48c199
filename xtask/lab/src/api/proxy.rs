//! `pods/NAME:PORT/proxy/…`: the server asks the pod, and hands its answer on.

use std::net::IpAddr;

use axum::body::Body;
use axum::http::{Response, StatusCode, header};

use super::failure::Failure;
use super::resource::Resource;
use super::{Server, object};
use crate::net::http_get;

/// What is asked of which pod.
pub struct Proxied<'a> {
    /// The pod's namespace.
    pub namespace: &'a str,
    /// Its name, and after a colon the port.
    pub pod: &'a str,
    /// The path, without a slash before it.
    pub path: &'a [&'a str],
    /// The query, with its `?`.
    pub query: &'a str,
}

/// Asks the pod.
pub async fn get(
    server: &Server,
    pods: &Resource,
    proxied: &Proxied<'_>,
) -> Result<Response<Body>, Failure> {
    let (name, port) = proxied.pod.split_once(':').unwrap_or((proxied.pod, "80"));
    let pod = server.read(|state| state.get(pods, proxied.namespace, name))?;
    let unavailable = |what: String| Failure::new(503, "ServiceUnavailable", what);
    let full_name = object::meta(&pod, "name").unwrap_or_default();
    let address = pod["status"]["podIP"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok());
    let address = address.zip(port.parse::<u16>().ok()).ok_or_else(|| {
        unavailable(format!("address not allowed: pod {full_name} has none, or no port {port}"))
    })?;
    let path = format!("/{}{}", proxied.path.join("/"), proxied.query);
    let answer = http_get(address.into(), &path)
        .await
        .map_err(|error| unavailable(format!("error trying to reach service: {error:#}")))?;
    let code = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = code;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}
