//! Single requests beside the watches: rate-limited, counted, tried again where that can help.

use std::{collections::HashMap, fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
    core::{ApiResource, GroupVersion, GroupVersionKind, Status},
    runtime::watcher::DefaultBackoff,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};

use super::{
    connect::chain,
    limit::Bucket,
    object::{Facts, Object},
    stats::ClusterStats,
    watch::{resource_of, spell},
};

/// All look-ups of an agent together.
const EVERY: Duration = Duration::from_millis(100);
const BURST: u32 = 20;
/// One attempt may take this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// An API server that stays away this long gets an answer written without it.
const GIVE_UP: Duration = Duration::from_secs(300);
const PAGE: u32 = 500;
/// Kinds whose address has been looked up.
const KNOWN_KINDS: usize = 64;

/// Why a request has no answer: one line with verb, resource and code.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct Unanswered {
    text: String,
    /// HTTP code; 0 for no answer, or one that makes no sense.
    pub(super) code: u16,
}

/// Where the objects of an API version and kind are found.
type Kinds = HashMap<(Arc<str>, Arc<str>), ApiResource>;

/// The client for single requests.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) client: Client,
    stats: Arc<ClusterStats>,
    bucket: Arc<Bucket>,
    kinds: Arc<Mutex<Kinds>>,
}

impl Ask {
    pub(super) fn new(client: Client, stats: Arc<ClusterStats>) -> Self {
        let bucket = Arc::new(Bucket::new(EVERY, BURST));
        Self { client, stats, bucket, kinds: Arc::default() }
    }

    /// One object; `None` if there is none of that name.
    pub(super) async fn get<F: Facts>(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object<F>>, Unanswered> {
        let api: Api<Object<F>> = Api::namespaced_with(self.client.clone(), namespace, resource);
        // Told by its code: not everything that stands before an API server gives a reason.
        let object = match self.attempt("get", &spell(resource), || api.get(name)).await {
            Ok(object) => Some(object),
            Err(error) if error.code == 404 => None,
            Err(error) => return Err(error),
        };
        if let Some(object) = &object {
            self.stats.complain(&object.complaints);
        }
        Ok(object)
    }

    /// One object outside all namespaces; `None` if there is none of that name.
    pub(super) async fn get_cluster_wide<F: Facts>(
        &self,
        resource: &ApiResource,
        name: &str,
    ) -> Result<Option<Object<F>>, Unanswered> {
        let api: Api<Object<F>> = Api::all_with(self.client.clone(), resource);
        match self.attempt("get", &spell(resource), || api.get(name)).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All objects of a namespace that match; those that cannot be read are left out and counted.
    pub(super) async fn list<F: Facts>(
        &self,
        resource: &ApiResource,
        namespace: &str,
        labels: Option<&str>,
    ) -> Result<Vec<Arc<F>>, Unanswered> {
        let api: Api<Object<F>> = Api::namespaced_with(self.client.clone(), namespace, resource);
        let mut params = ListParams {
            label_selector: labels.map(Into::into),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        let mut all = Vec::new();
        loop {
            let page = self.attempt("list", &spell(resource), || api.list(&params)).await?;
            for object in page.items {
                self.stats.complain(&object.complaints);
                all.extend(object.facts);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(all),
            }
        }
    }

    /// Creates an object; `false` if there is one of that name already.
    pub(super) async fn create<K>(&self, namespace: &str, object: &K) -> Result<bool, Unanswered>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        let resource = spell(&resource_of::<K>());
        match self.attempt("create", &resource, || api.create(&params, object)).await {
            Ok(_) => Ok(true),
            Err(error) if error.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where the objects of a kind are found.
    pub(super) async fn resource(
        &self,
        api_version: &Arc<str>,
        kind: &Arc<str>,
    ) -> Result<ApiResource, Unanswered> {
        let key = (api_version.clone(), kind.clone());
        if let Some(known) = self.kinds.lock().await.get(&key) {
            return Ok(known.clone());
        }
        let version: GroupVersion = api_version.parse().map_err(|error| Unanswered {
            text: format!("cannot look up kind {kind}: {api_version:?} is no version: {error}"),
            code: 0,
        })?;
        let gvk = GroupVersionKind::gvk(&version.group, &version.version, kind);
        let discover = || async {
            kube::discovery::pinned_kind(&self.client, &gvk).await.map(|(resource, _)| resource)
        };
        let resource =
            match self.attempt("discover", &format!("kinds of {api_version}"), discover).await {
                Ok(resource) => resource,
                // Discovery may be forbidden; the plural of nearly every kind can be guessed.
                Err(error) => {
                    let guess = ApiResource::from_gvk(&gvk);
                    tracing::info!("{error}; taking {} for the resource of {kind}", spell(&guess));
                    guess
                }
            };
        let mut kinds = self.kinds.lock().await;
        if kinds.len() < KNOWN_KINDS {
            kinds.insert(key, resource.clone());
        }
        Ok(resource)
    }

    /// The server's own version.
    pub(super) async fn version(&self) -> Result<Arc<str>, Unanswered> {
        let ask = || self.client.apiserver_version();
        let version = self.attempt("discover", "the server's version", ask).await?;
        Ok(version.git_version.into())
    }

    /// Sends a request until it is answered; counted under its resource, of which there are few.
    async fn attempt<T, R>(
        &self,
        verb: &'static str,
        resource: &str,
        request: impl Fn() -> R,
    ) -> Result<T, Unanswered>
    where
        R: Future<Output = kube::Result<T>>,
    {
        let counted = if verb == "discover" { "discovery" } else { resource };
        let mut backoff = DefaultBackoff::default();
        let begun = Instant::now();
        loop {
            self.bucket.take().await;
            let mut is_ending = false;
            let (code, text) = match timeout(PATIENCE, request()).await {
                Ok(Ok(answer)) => {
                    self.stats.requested(verb, counted, 200);
                    return Ok(answer);
                }
                Ok(Err(kube::Error::Api(status))) => {
                    is_ending = is_of_ending_namespace(&status);
                    (status.code, status.message)
                }
                Ok(Err(error @ (kube::Error::Service(_) | kube::Error::HyperError(_)))) => {
                    (0, chain(&error))
                }
                // The answer, or the request, makes no sense: nor would the next.
                Ok(Err(error)) => {
                    self.stats.requested(verb, counted, 0);
                    let text = format!("cannot {verb} {resource}: {}", chain(&error));
                    return Err(Unanswered { text, code: 0 });
                }
                Err(_) => (0, format!("no answer within {} s", PATIENCE.as_secs())),
            };
            self.stats.requested(verb, counted, code);
            let remedy = match code {
                _ if is_ending => "",
                401 => ": check the agent's credentials",
                403 => ": grant it in the agent's ClusterRole",
                _ => "",
            };
            let text = format!("cannot {verb} {resource}: {code} {text}{remedy}");
            let is_denied = matches!(code, 401 | 403) && !is_ending;
            if is_denied && self.stats.denied(verb, counted, &text) {
                tracing::error!("denied: {text}");
            }
            let error = Unanswered { text, code };
            let transient = matches!(code, 0 | 408 | 429 | 500..);
            if !transient || begun.elapsed() >= GIVE_UP {
                return Err(error);
            }
            tracing::debug!("{error}: trying again");
            sleep(backoff.next().unwrap_or(PATIENCE)).await;
        }
    }
}

/// A namespace that is being deleted takes nothing new (403, as of a right that is missing).
fn is_of_ending_namespace(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
