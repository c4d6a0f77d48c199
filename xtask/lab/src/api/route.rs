//! From an HTTP request to its answer.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Server;
use super::access::{self, Asked};
use super::delete::{self, DeleteOptions, Deleted};
use super::discovery;
use super::failure::Failure;
use super::list;
use super::proxy::{self, Proxied};
use super::request::{Params, Target, user};
use super::resource::{self, Resource};
use super::usage::UsageKey;
use super::view::View;
use super::watch::Watch;
use super::write::{self, Part, PatchType};

/// The largest body that is read; a real server's limit is 3 MiB.
const BODY_LIMIT: usize = 3 << 20;

/// Answers one request.
pub async fn answer(
    server: Arc<Server>,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let answer = match segments[..] {
        ["readyz" | "livez" | "healthz", ..] => Ok(Response::new(Body::from("ok"))),
        ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"] => {
            review(&server, request).await
        }
        ["api", "v1", "namespaces", namespace, "pods", pod, "proxy", ref path @ ..] => {
            let query = request.uri().query().map_or_else(String::new, |query| format!("?{query}"));
            let asked = Proxied { namespace, pod, path, query: &query };
            proxied(&server, &asked, request.method(), request.headers()).await
        }
        ["version"] => json_response(StatusCode::OK, &discovery::version(&server.options.version)),
        ["api", version, ref rest @ ..] if !rest.is_empty() => {
            of_resource(&server, Target::parse("", version, rest), request).await
        }
        ["apis", group, version, ref rest @ ..] if !rest.is_empty() => {
            of_resource(&server, Target::parse(group, version, rest), request).await
        }
        _ => discovery::document(&segments)
            .ok_or_else(Failure::no_such_path)
            .and_then(|document| json_response(StatusCode::OK, &document)),
    };
    Ok(answer.unwrap_or_else(|failure| refused(&failure)))
}

fn refused(failure: &Failure) -> Response<Body> {
    let code = StatusCode::from_u16(failure.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_response(code, &failure.status()).unwrap_or_else(|_| Response::new(Body::empty()))
}

fn json_response(code: StatusCode, value: &Value) -> Result<Response<Body>, Failure> {
    Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(value.to_string()))
        .map_err(|error| {
            Failure::new(500, "InternalError", format!("cannot build the answer: {error}"))
        })
}

/// A request about a resource: counted, delayed, permitted, then done.
async fn of_resource(
    server: &Arc<Server>,
    target: Option<Target>,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let target = target.ok_or_else(Failure::no_such_path)?;
    let resource = target.find()?;
    let params = Params::parse(request.uri())?;
    let user = user(request.headers());
    let verb = verb(request.method(), &target, &params)?;
    let counted = match &target.subresource {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource.to_string(),
    };
    let usage = UsageKey { user, verb, resource: counted };
    let call = Call { server, resource, target: &target, params: &params, usage: &usage };
    let name = match &target.subresource {
        Some(subresource) => format!("{}/{subresource}", resource.plural),
        None => resource.plural.to_owned(),
    };
    let asked = Asked { namespace: call.namespace(), group: resource.group, resource: &name };
    permitted(server, &usage, resource, &asked, call.run(request)).await
}

/// Counts, delays, and does what is permitted.
async fn permitted(
    server: &Server,
    usage: &UsageKey,
    resource: &Resource,
    asked: &Asked<'_>,
    call: impl Future<Output = Result<Response<Body>, Failure>>,
) -> Result<Response<Body>, Failure> {
    server.usage.count(usage, |counters| counters.requests += 1);
    let delay = server.dials.borrow().request_delay(&usage.user);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let (covered, allowed) = {
        let dials = server.dials.borrow();
        (
            dials.role_covers(&usage.user, usage.verb, asked),
            dials.allows(&usage.user, usage.verb, resource.plural),
        )
    };
    if !covered {
        server.usage.count(usage, |counters| counters.overstepped += 1);
    }
    let answer = if covered && allowed {
        call.await
    } else {
        Err(Failure::forbidden(&usage.user, usage.verb, resource))
    };
    if answer.is_err() {
        server.usage.count(usage, |counters| counters.refused += 1);
    }
    answer
}

/// A request through the server to a pod.
async fn proxied(
    server: &Arc<Server>,
    proxied: &Proxied<'_>,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response<Body>, Failure> {
    let pods = resource::find("", "v1", "pods").ok_or_else(Failure::no_such_path)?;
    if method != Method::GET {
        return Err(Failure::method_not_allowed());
    }
    let user = user(headers);
    let usage = UsageKey { user, verb: "get", resource: "pods/proxy".to_owned() };
    let call = proxy::get(server, pods, proxied);
    let asked = Asked { namespace: proxied.namespace, group: "", resource: "pods/proxy" };
    permitted(server, &usage, pods, &asked, call).await
}

/// Whoever asks may know what they may do.
async fn review(server: &Arc<Server>, request: Request<Body>) -> Result<Response<Body>, Failure> {
    let user = user(request.headers());
    let body = read_body(request.into_body()).await?;
    let review = access::review(&server.dials.borrow(), &user, &body);
    json_response(StatusCode::CREATED, &review)
}

fn verb(method: &Method, target: &Target, params: &Params) -> Result<&'static str, Failure> {
    Ok(match (method.as_str(), target.name.is_some()) {
        ("GET", true) => "get",
        ("GET", false) if params.flag("watch") => "watch",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return Err(Failure::method_not_allowed()),
    })
}

/// A permitted request.
struct Call<'a> {
    server: &'a Arc<Server>,
    resource: &'static Resource,
    target: &'a Target,
    params: &'a Params,
    usage: &'a UsageKey,
}

impl Call<'_> {
    async fn run(&self, request: Request<Body>) -> Result<Response<Body>, Failure> {
        let (head, body) = request.into_parts();
        let view = View::from_accept(accept(&head.headers));
        let namespace = self.target.namespace.as_deref();
        match self.usage.verb {
            "watch" => {
                let watch = Watch::new(
                    self.server,
                    self.usage.clone(),
                    self.resource,
                    namespace,
                    self.params,
                    view,
                )?;
                let mut response = Response::new(Body::from_stream(watch.into_stream()));
                let json = header::HeaderValue::from_static("application/json");
                response.headers_mut().insert(header::CONTENT_TYPE, json);
                Ok(response)
            }
            "list" => {
                let list = self
                    .server
                    .read(|state| list::list(state, self.resource, namespace, self.params, view))?;
                self.respond(StatusCode::OK, &list)
            }
            "get" => {
                let object = self
                    .server
                    .read(|state| state.get(self.resource, self.namespace(), self.name()))?;
                self.respond(StatusCode::OK, &view.object(&object))
            }
            verb => {
                let body = read_body(body).await?;
                let patch_type = match verb {
                    "patch" => patch_type(&head.headers, self.resource)?,
                    _ => PatchType::Merge,
                };
                let (code, answer) = self.write(patch_type, &body)?;
                self.respond(code, &view.object(&answer))
            }
        }
    }

    fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or("")
    }

    fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or("")
    }

    fn write(&self, patch_type: PatchType, body: &Value) -> Result<(StatusCode, Value), Failure> {
        let now = Timestamp::now();
        let (resource, namespace, name) = (self.resource, self.namespace(), self.name());
        let part = match self.target.subresource.as_deref() {
            None => Part::Main,
            Some("status") if resource.status => Part::Status,
            Some("binding") if resource.plural == "pods" => {
                self.server
                    .write(|state| write::bind(state, resource, namespace, name, body, now))?;
                return Ok((StatusCode::CREATED, success(resource, name)));
            }
            Some("eviction") if resource.plural == "pods" => {
                let options = DeleteOptions::parse(&body["deleteOptions"], None, None)?;
                let user = &self.usage.user;
                self.server.write(|state| {
                    delete::evict(state, resource, namespace, name, &options, user, now)
                })?;
                return Ok((StatusCode::CREATED, success(resource, name)));
            }
            Some(_) => return Err(Failure::no_such_path()),
        };
        if resource.namespaced && namespace.is_empty() {
            return Err(Failure::method_not_allowed());
        }
        let written = self.server.write(|state| match self.usage.verb {
            "create" if name.is_empty() => {
                write::create(state, resource, namespace, body.clone(), now)
            }
            "update" => write::update(state, resource, namespace, name, part, body.clone()),
            "patch" => write::patch(state, resource, namespace, name, part, (patch_type, body)),
            "delete" => {
                let (grace, policy) =
                    (self.params.get("gracePeriodSeconds"), self.params.get("propagationPolicy"));
                let options = DeleteOptions::parse(body, grace, policy)?;
                let user = &self.usage.user;
                match delete::delete(state, resource, namespace, name, &options, user, now)? {
                    Deleted::Terminating(pod) => Ok(pod),
                    Deleted::Gone(last) if resource.plural == "pods" => Ok(last),
                    Deleted::Gone(_) => Ok(Arc::new(success(resource, name))),
                }
            }
            "deletecollection" => self.delete_collection(state, body, now),
            _ => Err(Failure::method_not_allowed()),
        })?;
        let code = if self.usage.verb == "create" { StatusCode::CREATED } else { StatusCode::OK };
        Ok((code, Value::clone(&written)))
    }

    fn delete_collection(
        &self,
        state: &mut super::store::State,
        body: &Value,
        now: Timestamp,
    ) -> Result<Arc<Value>, Failure> {
        let list =
            list::list(state, self.resource, Some(self.namespace()), self.params, View::Whole)?;
        let options = DeleteOptions::parse(body, self.params.get("gracePeriodSeconds"), None)?;
        for item in list["items"].as_array().into_iter().flatten() {
            let name = super::object::meta(item, "name").unwrap_or_default();
            delete::delete(
                state,
                self.resource,
                self.namespace(),
                name,
                &options,
                &self.usage.user,
                now,
            )?;
        }
        Ok(Arc::new(list))
    }

    fn respond(&self, code: StatusCode, value: &Value) -> Result<Response<Body>, Failure> {
        let text = value.to_string();
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        self.server.usage.count(self.usage, |counters| counters.bytes += bytes);
        Response::builder()
            .status(code)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(text))
            .map_err(|error| {
                Failure::new(500, "InternalError", format!("cannot build the answer: {error}"))
            })
    }
}

fn success(resource: &Resource, name: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": { "name": name, "group": resource.group, "kind": resource.plural },
    })
}

fn accept(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("")
}

fn patch_type(headers: &HeaderMap, resource: &Resource) -> Result<PatchType, Failure> {
    let sent =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    if sent.starts_with("application/merge-patch+json") {
        return Ok(PatchType::Merge);
    }
    // The server knows no merge keys of a custom resource.
    if sent.starts_with("application/strategic-merge-patch+json") && !resource.custom {
        return Ok(PatchType::Strategic);
    }
    let strategic = if resource.custom { "" } else { ", application/strategic-merge-patch+json" };
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: \
        application/merge-patch+json{strategic}; it was {sent:?}"
    );
    Err(Failure::new(415, "UnsupportedMediaType", message))
}

async fn read_body(body: Body) -> Result<Value, Failure> {
    let bytes = axum::body::to_bytes(body, BODY_LIMIT).await.map_err(|error| {
        Failure::new(413, "RequestEntityTooLarge", format!("cannot read the body: {error}"))
    })?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| Failure::bad_request(format!("the body is not JSON: {error}")))
}
