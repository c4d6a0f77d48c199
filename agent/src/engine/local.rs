//! Which addresses are this node's pods: their clients are this node's to account for.

use std::{net::IpAddr, sync::Arc};

use super::{Outputs, State, Watch, verdicts};

/// Brings the set up to date with what is now known of a pod.
pub(super) fn observe(state: &mut State, uid: &str, out: &mut Outputs) {
    let Some(pod) = state.owners.pod_by_uid(uid) else { return };
    let facts = Arc::clone(&pod.facts);
    if facts.node.as_deref() != Some(&*state.config.node) || facts.host_network {
        return;
    }
    let lives = pod.gone.is_none() && !facts.finished;
    let mut came = false;
    for ip in facts.ips.iter().map(IpAddr::to_canonical) {
        if lives {
            // The address may have been another's, whose end has yet to be told.
            if state.local.insert(ip, facts.uid.clone()).is_none() {
                out.watch.push(Watch::Local(ip));
                came = true;
            }
        } else if state.local.get(&ip) == Some(&facts.uid) {
            state.local.remove(&ip);
            out.watch.push(Watch::NotLocal(ip));
        }
    }
    if came {
        verdicts::claim(state, out);
    }
}
