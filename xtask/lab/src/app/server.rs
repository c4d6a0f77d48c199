//! The server: HTTP/1.1 with keep-alive, which listens late, takes its time, and ends in one of
//! three ways at SIGTERM.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{SigHandler, Signal, signal};
use tokio::sync::watch;
use tokio::time::sleep;

use super::http::{Answer, converse, drained};
use super::listen;
use crate::cli::{OnSigterm, ServerArgs};

/// Runs the server until its end.
pub fn run(args: &ServerArgs) -> Result<ExitCode> {
    if args.on_sigterm == OnSigterm::Ignore {
        // SAFETY: ignoring a signal installs no code.
        unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }.context("ignore SIGTERM")?;
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the server's runtime")?
        .block_on(serve(args))?;
    Ok(ExitCode::SUCCESS)
}

/// What the server's output says when it listens; the time follows.
pub const LISTENING: &str = "listening since ";

async fn serve(args: &ServerArgs) -> Result<()> {
    let (_never, mut draining) = watch::channel(false);
    match args.on_sigterm {
        OnSigterm::Ignore => {}
        OnSigterm::Drain => draining = listen::until_sigterm()?,
        OnSigterm::Exit => {
            let mut sigterm = listen::until_sigterm()?;
            tokio::spawn(async move {
                drained(&mut sigterm).await;
                std::process::exit(0);
            });
        }
    }
    sleep(Duration::from_millis(args.listen_after)).await;
    let listener = listen::listen(args.port).await?;
    // For the lab: on a loaded machine the start takes longer than it should.
    println!("{LISTENING}{}", jiff::Timestamp::now());
    let body = serde_json::json!({"pod": args.pod, "application": args.application});
    let answer = Arc::new(Answer {
        body: body.to_string(),
        request_time: Duration::from_millis(args.request_time),
        idle: None,
    });
    let converse = |stream| {
        let (answer, draining) = (Arc::clone(&answer), draining.clone());
        async move { converse(stream, &answer, draining).await }
    };
    listen::serve(listener, draining.clone(), converse).await?;
    sleep(Duration::from_millis(args.exit_after)).await;
    Ok(())
}
