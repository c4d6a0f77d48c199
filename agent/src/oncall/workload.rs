//! `KIND/NAME` as people write it, and what they may have meant.

use std::{fmt, str::FromStr};

use crate::advise::Figures;

/// Short and plural names of kinds, as kubectl takes them.
const KINDS: [(&str, &[&str]); 4] = [
    ("Deployment", &["deployment", "deployments", "deploy"]),
    ("StatefulSet", &["statefulset", "statefulsets", "sts"]),
    ("DaemonSet", &["daemonset", "daemonsets", "ds"]),
    ("Rollout", &["rollout", "rollouts", "ro"]),
];

/// At least so alike must a name be to be suggested (Jaro-Winkler).
const ALIKE: f64 = 0.75;
/// The most suggestions.
const SUGGESTIONS: usize = 3;

/// A workload that is asked for; a name alone is one of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Kind; `None`: any.
    pub kind: Option<String>,
    /// Name.
    pub name: String,
}

impl Wanted {
    /// Whether it is this one.
    pub fn is(&self, kind: &str, name: &str) -> bool {
        self.name == name
            && self.kind.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind))
    }

    /// What of all that is known comes near it, the nearest first.
    pub fn near<'a>(&self, known: impl Iterator<Item = &'a Figures>) -> Vec<String> {
        let mut near: Vec<(f64, String)> = known
            .map(|figures| {
                let alike = strsim::jaro_winkler(&self.name, &figures.name);
                (alike, format!("{} -n {}", path(&figures.kind, &figures.name), figures.namespace))
            })
            .filter(|(alike, _)| *alike >= ALIKE)
            .collect();
        near.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        near.dedup_by(|one, other| one.1 == other.1);
        near.into_iter().map(|(_, name)| name).take(SUGGESTIONS).collect()
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Some(kind) => f.write_str(&path(kind, &self.name)),
            None => f.write_str(&self.name),
        }
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (Some(kind), name),
            None => (None, text),
        };
        if name.is_empty() || name.contains('/') {
            return Err("not KIND/NAME, as deployment/api".to_owned());
        }
        let kind = match kind {
            None => None,
            Some("") => {
                return Err("a kind is missing before the /, as in deployment/api".to_owned());
            }
            Some(kind) => {
                let word = kind.split('.').next().unwrap_or(kind).to_lowercase();
                let known = KINDS.iter().find(|(_, names)| names.contains(&&*word));
                Some(known.map_or_else(|| kind.to_owned(), |(kind, _)| (*kind).to_owned()))
            }
        };
        Ok(Self { kind, name: name.to_owned() })
    }
}

/// `deployment/api`, as kubectl writes it.
pub fn path(kind: &str, name: &str) -> String {
    format!("{}/{name}", kind.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_understood_as_kubectl_does() {
        let kind = |text: &str| text.parse::<Wanted>().unwrap().kind;
        assert_eq!(kind("deploy/api").as_deref(), Some("Deployment"));
        assert_eq!(kind("deployments.apps/api").as_deref(), Some("Deployment"));
        assert_eq!(kind("STS/db").as_deref(), Some("StatefulSet"));
        assert_eq!(kind("api"), None);
        assert!("deployment/".parse::<Wanted>().is_err());
        assert!("/api".parse::<Wanted>().is_err());
        assert!("api".parse::<Wanted>().unwrap().is("Deployment", "api"));
        assert!(!"sts/api".parse::<Wanted>().unwrap().is("Deployment", "api"));
    }

    #[test]
    fn what_comes_near_is_suggested() {
        let known = |namespace: &str, name: &str| Figures {
            namespace: namespace.into(),
            kind: "Deployment".into(),
            name: name.into(),
            ..Figures::default()
        };
        let all = [
            known("shop", "api"),
            known("shop", "api"),
            known("shop", "checkout"),
            known("bank", "apis"),
        ];
        let near = "deploy/apx".parse::<Wanted>().unwrap().near(all.iter());
        assert_eq!(near[0], "deployment/api -n shop");
        assert!(!near.contains(&"deployment/checkout -n shop".to_owned()), "{near:?}");
    }
}
