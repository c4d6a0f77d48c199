//! Streams in one direction.

use std::io::Result;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{interval, timeout};

use crate::app::http::drained;

/// Between two lines of a feed.
const LINE_EVERY: Duration = Duration::from_millis(50);
/// Lines of a feed.
const LINES: std::ops::Range<u32> = 10..60;
/// A client that was told of the end takes at most so long to end as well.
const CLIENT_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Takes in what comes, and answers nothing. In a drain it closes its own half, and goes on taking in.
pub async fn swallow(mut stream: TcpStream, mut draining: watch::Receiver<bool>) -> Result<()> {
    let mut chunk = [0; 4096];
    loop {
        tokio::select! {
            read = stream.read(&mut chunk) => if read? == 0 { return Ok(()) },
            () = drained(&mut draining) => break,
        }
    }
    stream.shutdown().await?;
    let rest = async {
        while stream.read(&mut chunk).await? > 0 {}
        Ok(())
    };
    timeout(CLIENT_ENDS_WITHIN, rest).await?
}

/// Answers one request by line after line; the end of the stream is the end of the answer.
pub async fn feed(mut stream: TcpStream, mut draining: watch::Receiver<bool>) -> Result<()> {
    if stream.read(&mut [0; 64]).await? == 0 {
        return Ok(());
    }
    let mut ticks = interval(LINE_EVERY);
    for line in 0..fastrand::u32(LINES) {
        ticks.tick().await;
        stream.write_all(format!("line {line} of the feed\n").as_bytes()).await?;
        if *draining.borrow_and_update() {
            break;
        }
    }
    stream.shutdown().await
}
