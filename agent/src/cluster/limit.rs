//! A token bucket: what the agent may ask of the API server beside its watches.

use std::time::Duration;

use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};

/// At most `burst` requests at once, and one more every `every`.
#[derive(Debug)]
pub(super) struct Bucket {
    every: Duration,
    burst: u32,
    /// When the next request would be due if requests came evenly (a "virtual scheduling" bucket).
    due: Mutex<Option<Instant>>,
}

impl Bucket {
    pub(super) fn new(every: Duration, burst: u32) -> Self {
        Self { every, burst, due: Mutex::default() }
    }

    /// Waits for a turn.
    pub(super) async fn take(&self) {
        let turn = {
            let mut due = self.due.lock().await;
            let now = Instant::now();
            let next = due.unwrap_or(now).max(now) + self.every;
            *due = Some(next);
            next.checked_sub(self.every * self.burst).filter(|turn| *turn > now)
        };
        if let Some(turn) = turn {
            sleep_until(turn).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_the_rest_wait_their_turn() {
        let bucket = Bucket::new(Duration::from_millis(100), 20);
        let start = Instant::now();
        for _ in 0..20 {
            bucket.take().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            bucket.take().await;
        }
        assert_eq!(start.elapsed().as_millis() / 100, 10);
    }
}
