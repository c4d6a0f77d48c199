//! What can be turned while the server runs: delays, refusals, watches that are closed.

use std::collections::BTreeMap;
use std::time::Duration;

use rollrace_deploy::role::Role;

use super::access::Asked;

/// The state of all dials. Each is set for the users whose name begins with a prefix; the longest
/// prefix counts.
#[derive(Debug, Clone, Default)]
pub struct Dials {
    watch_delays: BTreeMap<String, Duration>,
    request_delays: BTreeMap<String, Duration>,
    denied: Vec<Denial>,
    roles: BTreeMap<String, Role>,
    closings: BTreeMap<String, u64>,
    forgotten: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Denial {
    user_prefix: String,
    verb: String,
    plural: String,
}

fn longest<'a, T>(dials: &'a BTreeMap<String, T>, user: &str) -> Option<&'a T> {
    dials
        .iter()
        .filter(|(prefix, _)| user.starts_with(prefix.as_str()))
        .max_by_key(|(p, _)| p.len())
        .map(|(_, v)| v)
}

impl Dials {
    /// How much later than the write a watch event reaches the user.
    pub fn watch_delay(&self, user: &str) -> Duration {
        longest(&self.watch_delays, user).copied().unwrap_or_default()
    }

    /// How long the user waits for the answer to any request.
    pub fn request_delay(&self, user: &str) -> Duration {
        longest(&self.request_delays, user).copied().unwrap_or_default()
    }

    /// Whether the user may do this; `*` stands for any verb or resource.
    pub fn allows(&self, user: &str, verb: &str, plural: &str) -> bool {
        let covers = |dial: &str, asked: &str| dial == "*" || dial == asked;
        !self.denied.iter().any(|d| {
            user.starts_with(&d.user_prefix) && covers(&d.verb, verb) && covers(&d.plural, plural)
        })
    }

    /// Whether the user's role covers this; users without a role may do everything.
    pub fn role_covers(&self, user: &str, verb: &str, asked: &Asked<'_>) -> bool {
        longest(&self.roles, user).is_none_or(|role| {
            role.reaches(asked.namespace) && role.allows(verb, asked.group, asked.resource)
        })
    }

    /// How often the user's watches were closed; a watch that sees it change ends.
    pub fn closings(&self, user: &str) -> u64 {
        self.closings
            .iter()
            .filter(|(prefix, _)| user.starts_with(prefix.as_str()))
            .map(|(_, count)| count)
            .sum()
    }

    /// The revision before which the history is gone for the user.
    pub fn forgotten(&self, user: &str) -> u64 {
        longest(&self.forgotten, user).copied().unwrap_or_default()
    }

    pub(super) fn forget(&mut self, user_prefix: &str, before: u64) {
        self.forgotten.insert(user_prefix.to_owned(), before);
    }

    pub(super) fn set_watch_delay(&mut self, user_prefix: &str, delay: Duration) {
        self.watch_delays.insert(user_prefix.to_owned(), delay);
    }

    pub(super) fn set_request_delay(&mut self, user_prefix: &str, delay: Duration) {
        self.request_delays.insert(user_prefix.to_owned(), delay);
    }

    pub(super) fn deny(&mut self, user_prefix: &str, verb: &str, plural: &str) {
        self.denied.push(Denial {
            user_prefix: user_prefix.into(),
            verb: verb.into(),
            plural: plural.into(),
        });
    }

    pub(super) fn bind(&mut self, user_prefix: &str, role: Role) {
        self.roles.insert(user_prefix.to_owned(), role);
    }

    pub(super) fn allow_all(&mut self, user_prefix: &str) {
        self.denied.retain(|denial| denial.user_prefix != user_prefix);
    }

    pub(super) fn close_watches(&mut self, user_prefix: &str) {
        *self.closings.entry(user_prefix.to_owned()).or_default() += 1;
    }
}
