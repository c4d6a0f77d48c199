//! The six pod setups of the reference experiment, as pod templates.

use clap::ValueEnum;
use serde_json::{Value, json};

/// How a pod of the Deployment begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Setup {
    /// No readiness probe, exits at SIGTERM
    Naive,
    /// Readiness probe every second, exits at SIGTERM
    Readiness,
    /// Readiness probe; at SIGTERM stops accepting, finishes with `Connection: close`, exits
    Drain,
    /// Readiness probe; preStop sleeps 5 s, then exits at SIGTERM
    Prestop,
    /// Readiness probe; preStop sleeps 5 s, then drains
    PrestopDrain,
    /// Readiness probe; PID 1 ignores SIGTERM and is killed after 30 s
    Ignore,
}

impl Setup {
    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Readiness => "readiness",
            Self::Drain => "drain",
            Self::Prestop => "prestop",
            Self::PrestopDrain => "prestop-drain",
            Self::Ignore => "ignore",
        }
    }

    fn probes_readiness(self) -> bool {
        self != Self::Naive
    }

    fn sleeps_before_stop(self) -> bool {
        matches!(self, Self::Prestop | Self::PrestopDrain)
    }

    fn on_sigterm(self) -> &'static str {
        match self {
            Self::Naive | Self::Readiness | Self::Prestop => "exit",
            Self::Drain | Self::PrestopDrain => "drain",
            Self::Ignore => "ignore",
        }
    }

    /// The container list of the pod template at a version: another version is a new revision.
    pub fn containers(self, application: &str, version: &str) -> Value {
        let mut container = json!({
            "name": application,
            "image": image(application, version),
            "command": command(self.on_sigterm()),
            "env": [
                {"name": "APP", "value": application},
                {"name": "VERSION", "value": version},
            ],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        });
        if self.probes_readiness() {
            container["readinessProbe"] = json!({
                "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
                "periodSeconds": 1,
                "timeoutSeconds": 1,
                "successThreshold": 1,
                "failureThreshold": 3,
            });
        }
        if self.sleeps_before_stop() {
            container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 5}}});
        }
        json!([container])
    }

    /// What of the container changes with the version, to be merged into it.
    pub fn version(application: &str, version: &str) -> Value {
        json!({
            "name": application,
            "image": image(application, version),
            "env": [{"name": "VERSION", "value": version}],
        })
    }

    /// The container of an application that drains at SIGTERM, to be merged into it.
    pub fn drains(application: &str) -> Value {
        json!({"name": application, "command": command(Self::Drain.on_sigterm())})
    }

    /// The Deployment of an application in this setup.
    pub fn deployment(self, namespace: &str, application: &str, replicas: i32) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": application, "namespace": namespace, "labels": {"app": application}},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": application}},
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
                },
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "template": {
                    "metadata": {"labels": {"app": application}},
                    "spec": {
                        "terminationGracePeriodSeconds": 30,
                        "restartPolicy": "Always",
                        "containers": self.containers(application, "1"),
                    },
                },
            },
        })
    }
}

fn image(application: &str, version: &str) -> String {
    format!("registry.example/{application}:{version}")
}

fn command(on_sigterm: &str) -> Value {
    json!(["rollrace-lab", "server", "--on-sigterm", on_sigterm])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_changes_the_template_and_nothing_else() {
        let mut one = Setup::Prestop.containers("api", "1");
        let two = Setup::Prestop.containers("api", "2");
        assert_ne!(one, two);
        one[0]["env"][1]["value"] = json!("2");
        one[0]["image"] = json!("registry.example/api:2");
        assert_eq!(one, two);
    }

    #[test]
    fn only_naive_has_no_readiness_probe() {
        for setup in Setup::value_variants() {
            let probed = setup.containers("api", "1")[0].get("readinessProbe").is_some();
            assert_eq!(probed, *setup != Setup::Naive, "{}", setup.name());
        }
    }
}
