//! Which owner made a pod of this name: what remains when the pod is gone.

/// Kubernetes' `names.SimpleNameGenerator`: names have at most 63 characters, 5 of them random.
const BASE_LENGTH: usize = 58;
const SUFFIX_LENGTH: usize = 5;
/// `k8s.io/apimachinery/pkg/util/rand`: no vowels and no look-alikes.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Whether `generateName` could have made `pod` for the `ReplicaSet` or `DaemonSet` `owner`.
pub(super) fn generated_for(owner: &str, pod: &str) -> bool {
    let base = format!("{owner}-");
    let base = base.get(..BASE_LENGTH).unwrap_or(&base);
    pod.strip_prefix(base).is_some_and(|suffix| {
        suffix.len() == SUFFIX_LENGTH && suffix.bytes().all(|c| SUFFIX_ALPHABET.contains(&c))
    })
}

/// Whether `pod` is one of the `StatefulSet` `owner`: its name and an ordinal.
pub(super) fn ordinal_of(owner: &str, pod: &str) -> bool {
    pod.strip_prefix(owner).and_then(|rest| rest.strip_prefix('-')).is_some_and(|ordinal| {
        ordinal.parse::<u32>().is_ok_and(|number| number.to_string() == ordinal)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_told_by_the_name_its_replica_set_gave_it() {
        assert!(generated_for("api-5d5c65d9df", "api-5d5c65d9df-nb6gb"));
        assert!(!generated_for("api", "api-5d5c65d9df-nb6gb"));
        assert!(!generated_for("api-5d5c65d9df", "api-5d5c65d9df-nb6ga"), "no vowels");
        assert!(!generated_for("api-5d5c65d9df", "api-5d5c65d9df-nb6g"));
        assert!(!generated_for("api-5d5c65d9df", "api-5d5c65d9df"));
    }

    #[test]
    fn a_long_name_is_cut_before_the_suffix() {
        let owner = "a".repeat(60);
        let pod = format!("{}{}", "a".repeat(58), "bcdfg");
        assert!(generated_for(&owner, &pod));
        let exact = "b".repeat(57);
        assert!(generated_for(&exact, &format!("{exact}-bcdfg")));
    }

    #[test]
    fn a_name_of_many_bytes_is_no_panic() {
        assert!(!generated_for(&"é".repeat(40), "é"));
    }

    #[test]
    fn an_ordinal_is_a_number_as_kubernetes_writes_it() {
        assert!(ordinal_of("db", "db-0") && ordinal_of("db-1", "db-1-12"));
        assert!(
            !ordinal_of("db", "db-1-12") && !ordinal_of("db", "db-01") && !ordinal_of("db", "db-")
        );
    }
}
