//! The loop of every controller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::{Action, Config, Controller, Error as ControllerError};
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// The pause before a write is tried again that lost against another writer.
const CONFLICT_PAUSE: Duration = Duration::from_millis(5);
/// The pause after any other failure.
const FAILURE_PAUSE: Duration = Duration::from_millis(200);

/// A reconciliation that failed; it is tried again.
#[derive(Debug)]
pub struct Failed(anyhow::Error);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Failed {}

impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Self {
        Self(error.into())
    }
}

impl From<serde_json::Error> for Failed {
    fn from(error: serde_json::Error) -> Self {
        Self(error.into())
    }
}

impl Failed {
    /// A failure without a source.
    pub fn because(what: impl fmt::Display) -> Self {
        Self(anyhow::anyhow!("{what}"))
    }

    fn is_conflict(&self) -> bool {
        matches!(self.0.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 409)
    }
}

/// What a reconciliation ends with.
pub type Reconciled = Result<Action, Failed>;

/// Whether an answer means that the object is already as it should be: created by an earlier try,
/// or gone.
pub fn ignore(result: Result<(), kube::Error>, code: u16) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == code => Ok(()),
        other => other,
    }
}

/// Runs a controller until the token is cancelled. Failures are logged and tried again.
pub async fn run<K, C, F>(
    name: &'static str,
    controller: Controller<K>,
    context: C,
    shutdown: CancellationToken,
    reconcile: impl Fn(Arc<K>, Arc<C>) -> F + Send + 'static,
) -> anyhow::Result<()>
where
    K: Clone + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: DeserializeOwned + fmt::Debug + Send + Sync + 'static,
    C: Send + Sync + 'static,
    F: Future<Output = Reconciled> + Send + 'static,
{
    let retry = move |object: Arc<K>, failed: &Failed, _: Arc<C>| {
        if failed.is_conflict() {
            return Action::requeue(CONFLICT_PAUSE);
        }
        let object = object.meta().name.clone().unwrap_or_default();
        tracing::warn!(controller = name, object, %failed, "a reconciliation failed; trying again");
        Action::requeue(FAILURE_PAUSE)
    };
    let mut reconciled = controller
        // One at a time: the lab has two cores, and a scheduler that runs twice at once picks one
        // node twice.
        .with_config(Config::default().concurrency(1))
        .run(reconcile, retry, Arc::new(context))
        .boxed();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            next = reconciled.next() => match next {
                // A failure was logged by `retry`; an object that is not found was deleted before
                // its turn.
                Some(Ok(_) | Err(ControllerError::ReconcilerFailed(..) | ControllerError::ObjectNotFound(_))) => {}
                Some(Err(ControllerError::QueueError(error))) => watch_failed(name, &error),
                Some(Err(error)) => tracing::warn!(controller = name, %error, "the controller's queue failed"),
                None => anyhow::bail!("the {name} controller's watches ended although nobody asked for it"),
            },
        }
    }
}

fn watch_failed(name: &'static str, error: &watcher::Error) {
    tracing::debug!(controller = name, %error, "a watch failed; it starts again");
}
