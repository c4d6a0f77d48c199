//! The objects that scenarios create.

use serde_json::{Value, json};

use crate::run::cluster::NAMESPACE;
use crate::setup::Setup;

/// A pod template of an application.
pub fn template(setup: Setup, application: &str, version: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": application}},
        "spec": {
            "terminationGracePeriodSeconds": 30,
            "restartPolicy": "Always",
            "containers": setup.containers(application, version),
        },
    })
}

/// A `StatefulSet`.
pub fn stateful_set(setup: Setup, application: &str, replicas: i32) -> Value {
    json!({
        "metadata": {"name": application, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "serviceName": application,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": application}},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": template(setup, application, "1"),
        },
    })
}

/// A `DaemonSet`.
pub fn daemon_set(setup: Setup, application: &str) -> Value {
    json!({
        "metadata": {"name": application, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"app": application}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": template(setup, application, "1"),
        },
    })
}
