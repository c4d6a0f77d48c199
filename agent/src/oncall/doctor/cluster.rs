//! The cluster: can the API server be reached, who may do what, is an agent on every node, of which
//! version, and did any lose something.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::Node,
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};

use super::{Check, Health};
use crate::{
    advise::count_of,
    oncall::{Access, Asked, ClusterOptions, Gathered, Source, cluster::chain, gather::gather},
};

/// What the CLI itself does, by verb, resource and subresource, and what each is for.
const RIGHTS: [(&str, &str, &str, &str); 2] =
    [("list", "pods", "", "to find the agents"), ("get", "pods", "proxy", "to ask them")];

/// Checks a cluster, or the agents that are named.
pub async fn cluster(source: &Source, timeout: Duration) -> (Vec<Check>, Option<Gathered>) {
    let mut checks = Vec::new();
    let mut nodes = None;
    if let Source::Cluster(options) = source {
        let access = match Access::new(options, timeout).await {
            Ok(access) => access,
            Err(error) => {
                checks.push(Check::not_ok(
                    Health::Broken,
                    "kubeconfig",
                    error.to_string(),
                    "nothing else can be checked",
                ));
                return (checks, None);
            }
        };
        let (version, reached) = reach(&access, timeout).await;
        checks.push(version);
        if !reached {
            return (checks, None);
        }
        checks.extend(rights(&access.client, options, timeout).await);
        nodes = all_nodes(&access.client, timeout).await;
    }
    let gathered = match gather(source, &Asked::default(), timeout).await {
        Ok(gathered) => gathered,
        Err(error) => {
            checks.push(Check::not_ok(Health::Broken, "agents", error.to_string(), "see above"));
            return (checks, None);
        }
    };
    checks.extend(agents(&gathered, nodes.as_ref()));
    (checks, Some(gathered))
}

async fn reach(access: &Access, timeout: Duration) -> (Check, bool) {
    let what = "API server";
    match tokio::time::timeout(timeout, access.client.apiserver_version()).await {
        Ok(Ok(version)) => {
            (Check::ok(what, format!("{} at {}", version.git_version, access.server)), true)
        }
        Ok(Err(error)) => {
            let found = format!("{}: {}", access.server, chain(&error));
            let remedy = "check the context, its server and credentials (kubectl version)";
            (Check::not_ok(Health::Broken, what, found, remedy), false)
        }
        Err(_) => {
            let found = format!("{} did not answer within {} s", access.server, timeout.as_secs());
            let remedy = "check the context, and whether it can be reached from here";
            (Check::not_ok(Health::Broken, what, found, remedy), false)
        }
    }
}

async fn rights(client: &Client, options: &ClusterOptions, timeout: Duration) -> Vec<Check> {
    let mut checks = Vec::new();
    for (verb, resource, subresource, why) in RIGHTS {
        let namespace = &options.agents_namespace;
        let path = match subresource {
            "" => resource.to_owned(),
            sub => format!("{resource}/{sub}"),
        };
        let what = format!("you may {verb} {path}");
        let attributes = ResourceAttributes {
            namespace: Some(namespace.clone()),
            verb: Some(verb.to_owned()),
            resource: Some(resource.to_owned()),
            subresource: Some(subresource.to_owned()).filter(|sub| !sub.is_empty()),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        let parameters = PostParams::default();
        let answer = tokio::time::timeout(timeout, reviews.create(&parameters, &review)).await;
        checks.push(match answer {
            Ok(Ok(answer)) if answer.status.as_ref().is_some_and(|status| status.allowed) => {
                Check::ok(what, format!("in {namespace}, {why}"))
            }
            Ok(Ok(_)) => Check::not_ok(
                Health::Broken,
                what,
                format!("not in {namespace}"),
                format!(
                    "it takes {verb} on {path} {why}: bind the viewer's Role of deploy/base to you"
                ),
            ),
            Ok(Err(error)) => Check::not_ok(
                Health::Unknown,
                what,
                chain(&error),
                "the server did not say (selfsubjectaccessreviews)",
            ),
            Err(_) => {
                Check::not_ok(Health::Unknown, what, "no answer in time", "try a longer --timeout")
            }
        });
    }
    checks
}

/// The cluster's nodes; `None` if this user may not list them.
async fn all_nodes(client: &Client, timeout: Duration) -> Option<BTreeSet<String>> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut params = ListParams::default().limit(500);
    let mut names = BTreeSet::new();
    loop {
        let page = tokio::time::timeout(timeout, nodes.list_metadata(&params)).await.ok()?.ok()?;
        names.extend(page.items.into_iter().filter_map(|node| node.metadata.name));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Some(names),
        }
    }
}

fn agents(gathered: &Gathered, nodes: Option<&BTreeSet<String>>) -> Vec<Check> {
    let mut checks = Vec::new();
    let answered = u64::try_from(gathered.answered.len()).unwrap_or(u64::MAX);
    for missing in &gathered.missing {
        checks.push(Check::not_ok(
            Health::Broken,
            format!("agent on {}", missing.covers()),
            missing.why.clone(),
            "what its node sees is in no report",
        ));
    }
    if gathered.missing.is_empty() {
        checks.push(Check::ok("agents", format!("{} answered", count_of(answered, "agent"))));
    }
    if let Some(nodes) = nodes {
        let covered: BTreeSet<&str> =
            gathered.answered.iter().map(|one| &*one.status.node).collect();
        let missing: BTreeSet<&str> =
            gathered.missing.iter().map(crate::advise::facts::Missing::covers).collect();
        for node in nodes {
            if !covered.contains(&**node) && !missing.contains(&**node) {
                checks.push(Check::not_ok(
                    Health::Broken,
                    format!("agent on {node}"),
                    "none runs there",
                    "the DaemonSet tolerates every taint; kubectl -n rollrace describe daemonset rollrace says why it has no pod there",
                ));
            }
        }
    } else if gathered.namespace.is_some() {
        checks.push(Check::not_ok(
            Health::Unknown,
            "an agent on every node",
            "you may not list nodes",
            "so a node without an agent shows only if pods of a rollout ran there",
        ));
    }
    for answered in &gathered.answered {
        checks.extend(agent(answered));
    }
    checks.extend(gathered.notes.iter().map(|note| {
        Check::not_ok(
            Health::Warning,
            "versions",
            note.clone(),
            "finish the upgrade, or use the CLI of the agents' version",
        )
    }));
    checks
}

/// What one agent complains about; nothing if it is well.
fn agent(answered: &crate::oncall::Answered) -> Vec<Check> {
    let status = &answered.status;
    let what = format!("agent on {}", status.node);
    let mut checks = Vec::new();
    if !status.ready {
        let found = format!("not ready: {}", status.not_ready.join("; "));
        checks.push(Check::not_ok(Health::Broken, &*what, found, "verdicts wait until it is"));
    }
    for right in &status.cluster.denied {
        checks.push(Check::not_ok(
            Health::Broken,
            &*what,
            format!("may not {} {}", right.verb, right.resource),
            format!("{}: grant it in the agent's ClusterRole (deploy/base/rbac.yaml)", right.costs),
        ));
    }
    if status.lost() > 0 {
        let lost: Vec<String> = status
            .losses
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        checks.push(Check::not_ok(
            Health::Warning,
            &*what,
            format!("lost since {}: {}", status.started, lost.join(", ")),
            "counts of those times are lower bounds; --ring-buffer and --max-attempts make room",
        ));
    }
    for lack in &status.lacks {
        checks.push(Check::not_ok(
            Health::Warning,
            &*what,
            format!("does without {}", lack.feature),
            format!("{} ({} has it)", lack.without, lack.since),
        ));
    }
    if status.coverage.since.is_none() {
        checks.push(Check::not_ok(
            Health::Warning,
            &*what,
            "covers nothing yet",
            "its probes are not attached or its watches have not listed everything",
        ));
    }
    checks
}
