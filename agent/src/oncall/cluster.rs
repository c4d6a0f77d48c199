//! The way to the agents through a cluster: a kubeconfig and context as kubectl takes them, and the
//! agents' pods.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::fetch::Agent;
use crate::advise::facts::Missing;

/// Labels of the agents' pods, as `deploy/base` sets them.
pub const AGENT_LABELS: &str = "app.kubernetes.io/name=rollrace";
/// The port of `/api/v1/…`.
pub const AGENT_PORT: u16 = 9466;
/// Pods asked for in one piece.
const PAGE: u32 = 500;

/// Which cluster, and where in it.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Kubeconfig; without it `KUBECONFIG`, else `~/.kube/config`, else the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Context; without it the current one.
    pub context: Option<String>,
    /// The namespace that the agents run in.
    pub agents_namespace: String,
    /// Label selector of their pods.
    pub agents_labels: String,
}

/// A cluster that can be asked.
#[derive(Clone)]
pub struct Access {
    /// The client.
    pub client: Client,
    /// The context's namespace.
    pub namespace: String,
    /// The API server's URL.
    pub server: String,
}

/// Why the agents cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// No usable kubeconfig.
    #[error(
        "cannot use the kubeconfig: {0}; name one with --kubeconfig and --context, or ask agents directly with --agent URL"
    )]
    Kubeconfig(String),
    /// The pods cannot be listed.
    #[error("cannot list the agents' pods in namespace {namespace}: {why}; {remedy}")]
    Pods {
        /// Where.
        namespace: String,
        /// Why.
        why: String,
        /// What to do.
        remedy: String,
    },
}

impl Access {
    /// A client for the cluster; sends nothing.
    ///
    /// # Errors
    /// If there is no usable kubeconfig.
    pub async fn new(options: &ClusterOptions, timeout: Duration) -> Result<Self, AccessError> {
        let failed = |error: &dyn std::error::Error| AccessError::Kubeconfig(chain(error));
        let choice =
            KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match &options.kubeconfig {
            Some(path) => {
                let read = Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
                let config = Config::from_custom_kubeconfig(read, &choice).await;
                config.map_err(|error| failed(&error))?
            }
            None => match Config::from_kubeconfig(&choice).await {
                Ok(config) => config,
                // In a pod, as kubectl does.
                Err(error) => match Config::incluster() {
                    Ok(config) if options.context.is_none() => config,
                    _ => return Err(failed(&error)),
                },
            },
        };
        config.connect_timeout = Some(timeout);
        config.default_retry = false;
        let (namespace, server) =
            (config.default_namespace.clone(), config.cluster_url.to_string());
        let client = Client::try_from(config).map_err(|error| failed(&error))?;
        Ok(Self { client, namespace, server })
    }

    /// The agents, and those pods of them that cannot be asked.
    ///
    /// # Errors
    /// If the pods cannot be listed.
    pub async fn agents(
        &self,
        options: &ClusterOptions,
        timeout: Duration,
    ) -> Result<(Vec<Agent>, Vec<Missing>), AccessError> {
        let namespace = &options.agents_namespace;
        let failed = |why: String, remedy: String| AccessError::Pods {
            namespace: namespace.clone(),
            why,
            remedy,
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut params = ListParams::default().labels(&options.agents_labels).limit(PAGE);
        let (mut agents, mut missing) = (Vec::new(), Vec::new());
        loop {
            let listed = tokio::time::timeout(timeout, pods.list(&params)).await;
            let page = match listed {
                Ok(Ok(page)) => page,
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => {
                    return Err(failed(
                        status.message,
                        format!(
                            "you need list on pods and get on pods/proxy there: bind the Role of deploy/base (kubectl auth can-i list pods -n {namespace})"
                        ),
                    ));
                }
                Ok(Err(error)) => {
                    return Err(failed(
                        chain(&error),
                        format!("is {} the right cluster?", self.server),
                    ));
                }
                Err(_) => {
                    return Err(failed(
                        format!("{} did not answer within {} s", self.server, timeout.as_secs()),
                        "is it the right cluster, and can it be reached from here?".to_owned(),
                    ));
                }
            };
            for pod in page.items {
                self.sort(namespace, pod, &mut agents, &mut missing);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        if agents.is_empty() && missing.is_empty() {
            return Err(failed(
                format!("there are none with the labels {}", options.agents_labels),
                "install the agent (kubectl apply -k deploy/base), or name its namespace with --agents-namespace".to_owned(),
            ));
        }
        Ok((agents, missing))
    }

    fn sort(&self, namespace: &str, pod: Pod, agents: &mut Vec<Agent>, missing: &mut Vec<Missing>) {
        let name = pod.metadata.name.unwrap_or_default();
        let node = pod.spec.and_then(|spec| spec.node_name);
        let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
        if phase == "Running" {
            agents.push(Agent {
                client: self.client.clone(),
                path: format!("/api/v1/namespaces/{namespace}/pods/{name}:{AGENT_PORT}/proxy"),
                label: name,
                node,
                proxied: Some(namespace.to_owned()),
            });
        } else if !matches!(&*phase, "Succeeded" | "Failed") {
            let why = format!("its pod is {phase}; kubectl -n {namespace} describe pod {name}");
            missing.push(Missing { agent: name, node, why });
        }
    }
}

/// An error with its causes, fit for a terminal.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    super::answers::plain(&crate::cluster::chain(error))
}
