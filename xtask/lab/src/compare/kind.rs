//! What a client can see of an agent's class.

use crate::app::failure::ClientClass;

/// The agent's classes, each with what the client may have seen. A client cannot tell a stale NAT
/// from a timeout, nor a rejection from a refusal; a rejection by dropping, and a neighbour that
/// fails late, are timeouts to it. Of a connection that its pod ended without a word a client sees the
/// end of the stream, or ECONNRESET: it depends on whether the kernel of the pod had unread bytes, and on
/// whether the client wrote once more before it looked. Nobody lost more or less by that.
const AGENT_KINDS: [(&str, &[ClientClass]); 8] = [
    ("refused", &[ClientClass::Refused]),
    ("timeout", &[ClientClass::Timeout]),
    ("stale_nat", &[ClientClass::Timeout, ClientClass::Unreachable]),
    ("unreachable", &[ClientClass::Unreachable, ClientClass::Timeout]),
    ("rejected", &[ClientClass::Refused, ClientClass::Timeout]),
    ("reset", &[ClientClass::Reset]),
    ("cut", &[ClientClass::Cut, ClientClass::Reset]),
    ("misdelivered", &[ClientClass::Misdelivered]),
];

/// What the client may have seen of an agent's class; nothing for a class that is unknown here.
pub fn client_kinds(class: &str) -> &'static [ClientClass] {
    AGENT_KINDS.iter().find(|(name, _)| *name == class).map_or(&[], |(_, kinds)| kinds)
}

/// The client's classes that are compared so far.
pub fn is_compared(class: ClientClass) -> bool {
    use ClientClass::{Cut, Refused, Reset, Timeout, Unreachable};
    matches!(class, Refused | Timeout | Unreachable | Reset | Cut)
}
