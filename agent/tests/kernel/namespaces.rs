//! Only the agent's own namespace counts.

use rollrace::engine::Watch;

use crate::support::{Dial, Ip, Node, Service, add_pod, at, bare_node};

#[test]
fn what_happens_on_another_node_of_the_same_kernel_is_not_seen() {
    for ip in [Ip::V4, Ip::V6] {
        let mut node = Node::new();
        let (service, backend) = (ip.service(), at(ip.pod(3), 8080));
        node.watcher.watch(&[Watch::Service(service), Watch::Endpoint(backend)]);
        let (other, _outside) = bare_node();
        let (client, _server) = (add_pod(&other, 2), add_pod(&other, 3));
        other.program(&Service::new(service, &[backend]));
        // A refusal, a rejection, and a refusal without DNAT.
        client.try_once(Dial::new(service)).0.unwrap_err();
        client.try_once(Dial::new(backend)).0.unwrap_err();
        other.program(&Service::new(service, &[]));
        client.try_once(Dial::for_millis(service, 200)).0.unwrap_err();
        assert_eq!(node.watcher.all(&node.namespace), []);
        assert_eq!(node.watcher.counts(service), (0, 0, 0));
        assert_eq!(node.watcher.counts(backend), (0, 0, 0));
    }
}
