//! Questions of the engine on their way to the API server's side: a full channel delays them.

use std::collections::VecDeque;

use tokio::sync::mpsc::{Sender, error::TrySendError};

use crate::engine::Request;

/// The most questions that wait for room in the channel.
const WAITING: usize = 20_000;

/// Questions that wait for room.
pub struct Outbox {
    channel: Sender<Request>,
    waiting: VecDeque<Request>,
    /// Questions dropped: they are asked again if they still matter.
    pub dropped: u64,
}

impl Outbox {
    /// Nothing waits.
    pub fn new(channel: Sender<Request>) -> Self {
        Self { channel, waiting: VecDeque::new(), dropped: 0 }
    }

    /// Sends these, after those that wait.
    pub fn send(&mut self, requests: Vec<Request>) {
        for request in requests {
            // Who is to be followed is said once, and so is an Event; of these there are no more than
            // can be followed, or asked for at a time.
            let once = matches!(
                request,
                Request::Follow { .. } | Request::Unfollow { .. } | Request::Event(_)
            );
            if once || self.waiting.len() < WAITING {
                self.waiting.push_back(request);
            } else {
                self.dropped += 1;
            }
        }
        while let Some(request) = self.waiting.pop_front() {
            match self.channel.try_send(request) {
                Ok(()) => {}
                Err(TrySendError::Full(request)) => {
                    self.waiting.push_front(request);
                    break;
                }
                // The other side has ended, and so will this.
                Err(TrySendError::Closed(_)) => self.dropped += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::model::WorkloadKey;

    fn node(number: usize) -> Request {
        Request::Node { name: format!("n{number}").into() }
    }

    fn follow() -> Request {
        let workload = WorkloadKey {
            namespace: "shop".into(),
            kind: "Deployment".into(),
            name: "api".into(),
            uid: "uid-api".into(),
        };
        Request::Follow { workload, api_version: "apps/v1".into(), since: "1".into() }
    }

    #[test]
    fn what_finds_no_room_waits_in_order() {
        let (channel, mut received) = mpsc::channel(2);
        let mut outbox = Outbox::new(channel);
        outbox.send((0..5).map(node).collect());
        let mut got = Vec::new();
        while let Ok(request) = received.try_recv() {
            got.push(request);
            outbox.send(Vec::new());
        }
        assert_eq!(got, (0..5).map(node).collect::<Vec<_>>());
        assert_eq!(outbox.dropped, 0);
    }

    #[test]
    fn past_the_bound_questions_are_dropped_and_counted_and_what_is_said_once_is_not() {
        let (channel, _received) = mpsc::channel(1);
        let mut outbox = Outbox::new(channel);
        outbox.send((0..WAITING + 4).map(node).collect());
        outbox.send(vec![follow()]);
        assert_eq!((outbox.waiting.len(), outbox.dropped), (WAITING, 4));
        assert_eq!(outbox.waiting.back(), Some(&follow()));
    }
}
