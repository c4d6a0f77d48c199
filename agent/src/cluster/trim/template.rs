//! Pod template → [`TemplateFacts`].

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Container, LifecycleHandler, PodSpec, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::model::{
    ContainerFacts, DEFAULT_GRACE_SECONDS, PreStopFacts, ProbeFacts, TemplateFacts,
};

pub(super) fn template(spec: Option<&PodSpec>) -> Option<Arc<TemplateFacts>> {
    let spec = spec?;
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|init| init.restart_policy.as_deref() == Some("Always"));
    let containers = spec.containers.iter().map(|one| container(one, false));
    Some(Arc::new(TemplateFacts {
        grace_seconds: spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS),
        containers: containers.chain(sidecars.map(|one| container(one, true))).collect(),
        readiness_gates: spec.readiness_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
    }))
}

fn container(container: &Container, sidecar: bool) -> ContainerFacts {
    let ports = container.ports.iter().flatten();
    let pre_stop = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    ContainerFacts {
        name: container.name.as_str().into(),
        sidecar,
        ports: ports.filter_map(|port| u16::try_from(port.container_port).ok()).collect(),
        readiness: container.readiness_probe.as_ref().map(|one| probe(container, one)),
        pre_stop: pre_stop.map(hook),
    }
}

fn probe(container: &Container, probe: &Probe) -> ProbeFacts {
    let (how, port) = if let Some(get) = &probe.http_get {
        ("httpGet", Some(get.port.clone()))
    } else if let Some(socket) = &probe.tcp_socket {
        ("tcpSocket", Some(socket.port.clone()))
    } else if let Some(grpc) = &probe.grpc {
        ("grpc", Some(IntOrString::Int(grpc.port)))
    } else if probe.exec.is_some() {
        ("exec", None)
    } else {
        ("", None)
    };
    let number = |port| match port {
        IntOrString::Int(number) => Some(number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(&name));
            named.map(|port| port.container_port)
        }
    };
    ProbeFacts {
        how: how.into(),
        port: port.and_then(number).and_then(|number| u16::try_from(number).ok()),
        period_seconds: probe.period_seconds.unwrap_or(10),
        failure_threshold: probe.failure_threshold.unwrap_or(3),
    }
}

fn hook(handler: &LifecycleHandler) -> PreStopFacts {
    let (how, seconds) = if let Some(sleep) = &handler.sleep {
        ("sleep", Some(sleep.seconds))
    } else if let Some(exec) = &handler.exec {
        ("exec", slept(exec.command.as_deref().unwrap_or_default()))
    } else if handler.http_get.is_some() {
        ("httpGet", None)
    } else if handler.tcp_socket.is_some() {
        ("tcpSocket", None)
    } else {
        ("", None)
    };
    PreStopFacts { how: how.into(), seconds }
}

/// The seconds of a command that does nothing but sleep: `sleep 5`, or a shell told to.
fn slept(command: &[String]) -> Option<i64> {
    let script = match command {
        [program, seconds] if is(program, &["sleep"]) => return whole(seconds),
        [shell, flag, script] if is(shell, &["sh", "bash", "ash", "dash"]) && flag == "-c" => {
            script
        }
        _ => return None,
    };
    let mut words = script.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(program), Some(seconds), None) if is(program, &["sleep"]) => whole(seconds),
        _ => None,
    }
}

fn is(program: &str, names: &[&str]) -> bool {
    program.rsplit('/').next().is_some_and(|name| names.contains(&name))
}

fn whole(seconds: &str) -> Option<i64> {
    seconds.strip_suffix('s').unwrap_or(seconds).parse().ok().filter(|seconds| *seconds >= 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(container: &serde_json::Value) -> ContainerFacts {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [container]})).unwrap();
        template(Some(&spec)).unwrap().containers[0].clone()
    }

    #[test]
    fn of_a_pre_stop_command_only_the_seconds_that_it_sleeps_are_kept() {
        let seconds = |command: serde_json::Value| {
            let hook = json!({"preStop": {"exec": {"command": command}}});
            let hook = of(&json!({"name": "app", "lifecycle": hook})).pre_stop.unwrap();
            assert_eq!(&*hook.how, "exec");
            hook.seconds
        };
        assert_eq!(seconds(json!(["sleep", "5"])), Some(5));
        assert_eq!(seconds(json!(["/bin/sleep", "5s"])), Some(5));
        assert_eq!(seconds(json!(["/bin/sh", "-c", "sleep 15"])), Some(15));
        assert_eq!(seconds(json!(["/bin/sh", "-c", "nginx -s quit; sleep 15"])), None);
        assert_eq!(seconds(json!(["/drain", "--token", "secret"])), None);
        assert_eq!(seconds(json!([])), None);
        let sleep =
            of(&json!({"name": "app", "lifecycle": {"preStop": {"sleep": {"seconds": 7}}}}));
        assert_eq!(sleep.pre_stop.unwrap().seconds, Some(7));
    }

    #[test]
    fn a_probe_of_a_named_port_is_one_of_its_number() {
        let facts = of(&json!({
            "name": "app", "image": "i", "env": [{"name": "TOKEN", "value": "never read"}],
            "ports": [{"name": "web", "containerPort": 8080}],
            "readinessProbe": {"httpGet": {"port": "web", "path": "/never-read"}, "periodSeconds": 1},
        }));
        let probe = facts.readiness.as_ref().unwrap();
        assert_eq!((&*probe.how, probe.port), ("httpGet", Some(8080)));
        assert_eq!((probe.period_seconds, probe.failure_threshold), (1, 3));
        assert!(!serde_json::to_string(&facts).unwrap().contains("never"));
    }

    #[test]
    fn a_sidecar_is_told_from_an_init_container_that_ends() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [{"name": "app"}],
            "initContainers": [{"name": "setup"}, {"name": "mesh", "restartPolicy": "Always"}],
        }))
        .unwrap();
        let facts = template(Some(&spec)).unwrap();
        let names: Vec<_> = facts.containers.iter().map(|c| (&*c.name, c.sidecar)).collect();
        assert_eq!(names, [("app", false), ("mesh", true)]);
        assert_eq!(facts.grace_seconds, 30);
    }
}
