//! One failure as a line.

use super::{Style, Times};
use crate::{
    advise::facts::Address,
    oncall::{answers::Failure, workload::path},
};

/// `06:03:12+01:00 n1  refused  shop deployment/api revision 2 (old, during)  client → … `
pub fn failure_line(failure: &Failure, node: &str, times: &Times, style: Style) -> String {
    let workload = match &failure.workload {
        Some(workload) => path(&workload.kind, &workload.name),
        None if !failure.service.is_empty() => format!("service/{}", failure.service),
        None => "unknown workload".to_owned(),
    };
    let cause = match (&*failure.cause, &failure.revision) {
        ("rollout", Some(revision)) => {
            let side = failure.side.as_deref().unwrap_or("?");
            format!("rollout to {revision} ({side} pod, {})", failure.phase)
        }
        (cause, _) => cause.to_owned(),
    };
    let address = |address: Option<Address>| match address {
        Some(Address { address, port }) => std::net::SocketAddr::new(address, port).to_string(),
        None => "?".to_owned(),
    };
    let pod = if failure.pod.is_empty() { String::new() } else { format!(" ({})", failure.pod) };
    let client = match &*failure.client_workload {
        "" => address(failure.client),
        whose => format!("{whose} {}", address(failure.client)),
    };
    format!(
        "{} {node}  {}  {}/{workload}  {cause}  {}",
        times.clock(failure.first_syn),
        style.bad(&failure.class),
        failure.namespace,
        style.dim(&format!(
            "{client} → {} → {}{pod}",
            address(failure.original),
            address(failure.backend)
        )),
    )
}
