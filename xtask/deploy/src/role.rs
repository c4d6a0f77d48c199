//! What a `ClusterRole` allows, as an API server's authorizer reads it.

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::deploy;

/// The objects of the agent's account, in `deploy/`.
pub const FILE: &str = "base/rbac.yaml";

/// rbac.authorization.k8s.io/v1 `PolicyRule`, as far as the shipped role uses it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// API groups; the core group is empty.
    pub api_groups: Vec<String>,
    /// Plurals, a subresource behind a slash.
    pub resources: Vec<String>,
    /// Verbs.
    pub verbs: Vec<String>,
}

/// The Role of people on call, in `deploy/`.
pub const VIEWER_FILE: &str = "base/viewer.yaml";

/// A `ClusterRole`, or a `Role` in its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Where it is bound; `None`: everywhere.
    pub namespace: Option<String>,
    /// Whatever one of them allows is allowed.
    pub rules: Vec<Rule>,
}

impl Role {
    /// The agent's, as it is shipped.
    ///
    /// # Errors
    /// If it cannot be read, or if there is not exactly one.
    pub fn shipped() -> anyhow::Result<Self> {
        Self::read(FILE, "ClusterRole", None)
    }

    /// That of people on call, as it is shipped, bound in the agents' namespace.
    ///
    /// # Errors
    /// If it cannot be read, or if there is not exactly one.
    pub fn viewer(namespace: &str) -> anyhow::Result<Self> {
        Self::read(VIEWER_FILE, "Role", Some(namespace.to_owned()))
    }

    fn read(file: &str, kind: &str, namespace: Option<String>) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Object {
            kind: String,
            #[serde(default)]
            rules: Vec<Rule>,
        }
        let path = deploy(file);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let objects: Vec<Object> = serde_saphyr::from_multiple(&text)
            .with_context(|| format!("cannot parse {}", path.display()))?;
        let mut roles = objects.into_iter().filter(|object| object.kind == kind);
        let role = roles.next().with_context(|| format!("{file} has no {kind}"))?;
        ensure!(roles.next().is_none(), "{file} has more than one {kind}");
        Ok(Self { namespace, rules: role.rules })
    }

    /// Whether it says anything about requests to this namespace.
    pub fn reaches(&self, namespace: &str) -> bool {
        self.namespace.as_ref().is_none_or(|own| own == namespace)
    }

    /// Whether a request may be made where it reaches: `resource` is `pods`, or `pods/status` for a subresource, which
    /// the right to the resource itself does not include.
    pub fn allows(&self, verb: &str, group: &str, resource: &str) -> bool {
        let has = |list: &[String], word: &str| list.iter().any(|own| own == word || own == "*");
        self.rules.iter().any(|rule| {
            has(&rule.verbs, verb) && has(&rule.api_groups, group) && has(&rule.resources, resource)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_role_allows_what_its_rules_name_and_nothing_beside() {
        let role = Role::shipped().expect("it can be read");
        assert!(role.allows("watch", "discovery.k8s.io", "endpointslices"));
        assert!(role.allows("get", "", "nodes"));
        for (verb, group, resource) in [
            ("list", "", "nodes"),
            ("watch", "", "endpointslices"),
            ("get", "", "secrets"),
            ("delete", "", "pods"),
            ("get", "", "pods/log"),
            ("patch", "apps", "deployments"),
        ] {
            assert!(!role.allows(verb, group, resource), "{verb} {group}/{resource}");
        }
        let every = role
            .rules
            .iter()
            .flat_map(|rule| rule.verbs.iter().chain(&rule.resources).chain(&rule.api_groups));
        assert!(every.clone().all(|word| !word.contains('*')), "nothing is granted wholesale");
    }
}
