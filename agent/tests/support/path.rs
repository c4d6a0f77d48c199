//! The way to a server, which a test can cut.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// A forwarder on an address of its own.
pub struct Path {
    /// Where it listens.
    pub address: SocketAddr,
    server: SocketAddr,
    forwarding: Option<JoinHandle<()>>,
    accepted: Arc<AtomicUsize>,
}

impl Path {
    /// Open to a server.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut path = Self { address, server, forwarding: None, accepted: Arc::default() };
        path.forward(listener, true);
        path
    }

    fn forward(&mut self, listener: TcpListener, answers: bool) {
        let (server, accepted) = (self.server, self.accepted.clone());
        self.forwarding = Some(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                accepted.fetch_add(1, SeqCst);
                connections.spawn(async move {
                    if !answers {
                        std::future::pending::<()>().await;
                    }
                    if let Ok(mut far) = TcpStream::connect(server).await {
                        // Either end may close as it likes.
                        let _ended = copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        }));
    }

    /// Cuts every connection; new ones are refused.
    pub async fn cut(&mut self) {
        if let Some(forwarding) = self.forwarding.take() {
            forwarding.abort();
            let _cancelled = forwarding.await;
        }
    }

    /// Open again.
    pub async fn restore(&mut self) {
        self.cut().await;
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.forward(listener, true);
    }

    /// New connections are taken, and nothing is ever answered.
    pub async fn stall(&mut self) {
        self.cut().await;
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.forward(listener, false);
    }

    /// Connections taken so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(SeqCst)
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        if let Some(forwarding) = &self.forwarding {
            forwarding.abort();
        }
    }
}
