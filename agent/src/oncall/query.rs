//! What agents are asked to select, so that they send no more than is of interest.

use crate::oncall::workload::Wanted;

/// Query of `/api/v1/rollouts`.
pub fn rollouts(namespace: Option<&str>, workload: Option<&Wanted>) -> String {
    encode(&of_workload(namespace, workload))
}

/// Pairs that select a namespace and a workload.
pub fn of_workload(
    namespace: Option<&str>,
    workload: Option<&Wanted>,
) -> Vec<(&'static str, String)> {
    let mut pairs = Vec::new();
    if let Some(namespace) = namespace {
        pairs.push(("namespace", namespace.to_owned()));
    }
    if let Some(workload) = workload {
        pairs.push(("name", workload.name.clone()));
        if let Some(kind) = &workload.kind {
            pairs.push(("kind", kind.clone()));
        }
    }
    pairs
}

/// Pairs as a query; what is not plain is written in percent.
pub fn encode(pairs: &[(&str, String)]) -> String {
    let pairs = pairs.iter().map(|(key, value)| {
        let value: String = value
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                    char::from(byte).to_string()
                }
                byte => format!("%{byte:02X}"),
            })
            .collect();
        format!("{key}={value}")
    });
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_carries_any_name() {
        let wanted = "deploy/a&b".parse().unwrap();
        assert_eq!(
            rollouts(Some("shop"), Some(&wanted)),
            "namespace=shop&name=a%26b&kind=Deployment"
        );
        assert_eq!(rollouts(None, None), "");
    }
}
