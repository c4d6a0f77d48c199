//! A client of the server, under a name of its own.

use anyhow::Context;
use kube::config::AuthInfo;

/// A kube-rs client that is known to the server as `user` (its bearer token).
pub fn client(server_url: &str, user: &str) -> anyhow::Result<kube::Client> {
    let url = server_url.parse().with_context(|| {
        format!(
            "cannot read the API server's address {server_url:?}: give it as http://ADDRESS:PORT"
        )
    })?;
    let mut config = kube::Config::new(url);
    // The callers try again themselves, by their own rules; the client would hide a 503 or 504 for
    // minutes.
    config.default_retry = false;
    config.auth_info = AuthInfo { token: Some(user.to_owned().into()), ..AuthInfo::default() };
    kube::Client::try_from(config)
        .with_context(|| format!("cannot make a Kubernetes client for {user} at {server_url}"))
}
