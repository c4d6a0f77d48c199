//! The way to the API server: `--kubeconfig`, else `KUBECONFIG`, else the pod's service account.

use std::path::{Path, PathBuf};

use kube::{
    Client, Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::transport;

/// Why there is no client. Nothing has been sent yet: an unreachable server is no such error.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {file}: {}; {remedy}", chain(source))]
    Kubeconfig {
        /// File or files, as given.
        file: String,
        /// What to do.
        remedy: &'static str,
        /// Cause.
        source: KubeconfigError,
    },
    /// Neither a kubeconfig is named nor is this a pod.
    #[error(
        "cannot find the API server: no --kubeconfig, KUBECONFIG is not set, and this is no pod \
         with a service account ({source}); name a kubeconfig, e.g. --kubeconfig ~/.kube/config"
    )]
    Nowhere {
        /// Why the in-cluster configuration cannot be read.
        source: InClusterError,
    },
    /// The configuration was read, but no client can be made of it.
    #[error(
        "cannot make a client of {from}: {source}; check its certificates, keys and server URL"
    )]
    Client {
        /// Where the configuration came from.
        from: String,
        /// Cause.
        source: Box<kube::Error>,
    },
}

/// An error with its causes, of which many say their own cause already.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn remedy(error: &KubeconfigError) -> &'static str {
    match error {
        KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath => {
            "check the path and that the agent may read it"
        }
        KubeconfigError::Parse(_) => "correct its YAML",
        KubeconfigError::CurrentContextNotSet
        | KubeconfigError::LoadContext(_)
        | KubeconfigError::LoadClusterOfContext(_) => {
            "set current-context to a context that it defines (kubectl config use-context)"
        }
        KubeconfigError::MissingClusterUrl | KubeconfigError::ParseClusterUrl(_) => {
            "set clusters[].cluster.server to the API server's URL"
        }
        KubeconfigError::LoadCertificateAuthority(_)
        | KubeconfigError::LoadClientCertificate(_)
        | KubeconfigError::LoadClientKey(_)
        | KubeconfigError::ParseCertificates(_) => {
            "check that the certificate and key it names are there and are PEM"
        }
        _ => "compare it with one that kubectl accepts",
    }
}

/// Makes a client; sends nothing.
///
/// `~/.kube/config` is read only where it is named: an agent that silently took whatever cluster
/// the user last worked with would report on the wrong one.
///
/// # Errors
/// [`ConnectError`] names the file and what to do.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let (mut config, from) = match kubeconfig {
        Some(path) => from_file(path).await?,
        None => match std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
            Some(value) => from_env(&value.to_string_lossy()).await?,
            None => in_cluster()?,
        },
    };
    let agent = concat!("rollrace/", env!("CARGO_PKG_VERSION"));
    if let (Ok(name), Ok(value)) = ("user-agent".parse(), agent.parse()) {
        config.headers.push((name, value));
    }
    // The watches and look-ups retry by themselves, and count what they retry.
    config.default_retry = false;
    tracing::info!(server = %config.cluster_url, %from, "API server");
    transport::client(config)
        .map_err(|source| ConnectError::Client { from, source: Box::new(source) })
}

async fn from_file(path: &Path) -> Result<(Config, String), ConnectError> {
    let file = path.display().to_string();
    let error = kubeconfig_error(&file);
    let read = Kubeconfig::read_from(path).map_err(&error)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(read, &options).await.map_err(&error)?;
    Ok((config, format!("the kubeconfig {file}")))
}

async fn from_env(value: &str) -> Result<(Config, String), ConnectError> {
    let files: Vec<PathBuf> = std::env::split_paths(value).collect();
    let files = files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let file = format!("{files} (from KUBECONFIG)");
    let error = kubeconfig_error(&file);
    let read = Kubeconfig::from_env().map_err(&error)?.unwrap_or_default();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(read, &options).await.map_err(&error)?;
    Ok((config, format!("the kubeconfig {file}")))
}

fn kubeconfig_error(file: &str) -> impl Fn(KubeconfigError) -> ConnectError + use<'_> {
    move |source| ConnectError::Kubeconfig {
        file: file.to_owned(),
        remedy: remedy(&source),
        source,
    }
}

fn in_cluster() -> Result<(Config, String), ConnectError> {
    let config = Config::incluster().map_err(|source| ConnectError::Nowhere { source })?;
    Ok((config, "the pod's service account".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kubeconfig in a directory of its own, removed at the end.
    struct Written(PathBuf);

    impl Written {
        fn new(name: &str, content: &str) -> Self {
            let path = std::env::temp_dir().join(format!("rollrace-{}-{name}", std::process::id()));
            std::fs::write(&path, content).unwrap();
            Self(path)
        }
    }

    impl Drop for Written {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    const GOOD: &str = "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
        clusters: [{name: lab, cluster: {server: 'http://127.0.0.1:6443'}}]\n\
        users: [{name: lab, user: {}}]\n\
        contexts: [{name: lab, context: {cluster: lab, user: lab}}]\n";

    async fn message(name: &str, content: &str) -> String {
        let file = Written::new(name, content);
        let error = connect(Some(&file.0)).await.err().expect("an error");
        let text = format!("{:#}", anyhow::Error::new(error));
        assert!(text.contains(&file.0.display().to_string()), "no file in {text:?}");
        text
    }

    #[tokio::test]
    async fn a_good_kubeconfig_makes_a_client() {
        let file = Written::new("good", GOOD);
        assert!(connect(Some(&file.0)).await.is_ok());
    }

    #[tokio::test]
    async fn a_bad_kubeconfig_is_named_with_what_to_do() {
        let unknown = GOOD.replace("current-context: lab", "current-context: x");
        let text = message("context", &unknown).await;
        assert!(text.contains("kubectl config use-context"), "{text}");
        let text = message("yaml", "clusters: [").await;
        assert!(text.contains("correct its YAML"), "{text}");
        let key = "{client-certificate: /nonexistent/c.pem, client-key: /nonexistent/k.pem}";
        let text = message(
            "key",
            &GOOD.replace("user: {}", &format!("user: {key}")).replace("http:", "https:"),
        )
        .await;
        assert!(text.contains("/nonexistent/"), "{text}");
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_said_to_be() {
        let error = connect(Some(Path::new("/nonexistent/kubeconfig"))).await.err().unwrap();
        let text = error.to_string();
        assert!(
            text.contains("/nonexistent/kubeconfig") && text.contains("check the path"),
            "{text}"
        );
    }
}
