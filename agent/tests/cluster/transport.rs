//! TLS, the token and compression, as a real API server has them.

use std::{
    io::Write as _,
    sync::{Arc, Mutex},
};

use flate2::{Compression, write::GzEncoder};
use rollrace::engine::ClusterChange;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use crate::{agent::Agent, objects::slice};

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tls");

fn acceptor() -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(format!("{TLS}/server.pem")).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(format!("{TLS}/server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// The head of the next request; `None` at the end of the connection.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Streams no lists, compresses what it lists, and forbids watches.
fn answer(head: &str) -> (&'static str, &'static str, Vec<u8>) {
    let status = |code: u16| {
        json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"}).to_string()
    };
    if head.contains("sendInitialEvents") {
        return ("422 Unprocessable Entity", "", status(422).into_bytes());
    }
    if head.contains("watch=true") {
        return ("403 Forbidden", "", status(403).into_bytes());
    }
    let items: Vec<Value> =
        if head.contains("endpointslices") { vec![slice("a", "5")] } else { Vec::new() };
    let list = json!({"kind": "List", "apiVersion": "v1", "items": items,
        "metadata": {"resourceVersion": "9"}});
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(list.to_string().as_bytes()).unwrap();
    ("200 OK", "Content-Encoding: gzip\r\n", gzip.finish().unwrap())
}

#[tokio::test]
async fn the_agent_speaks_tls_shows_its_token_and_reads_compressed_lists() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let (log, acceptor) = (heads.clone(), acceptor());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (log, acceptor) = (log.clone(), acceptor.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                while let Some(head) = head(&mut stream).await {
                    let (status, header, body) = answer(&head);
                    log.lock().unwrap().push(head);
                    let length = body.len();
                    let reply = format!(
                        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{header}\
                         Content-Length: {length}\r\n\r\n"
                    );
                    stream.write_all(reply.as_bytes()).await.unwrap();
                    stream.write_all(&body).await.unwrap();
                }
            });
        }
    });
    let cluster = json!({"server": format!("https://{address}"),
        "certificate-authority": format!("{TLS}/ca.pem")});
    let mut agent = Agent::start_with(address, &cluster, &json!({"token": "of-the-agent"})).await;
    let seen = agent.until(|c| matches!(c, ClusterChange::SlicesListed(_))).await;
    assert!(seen.iter().any(|c| matches!(c, ClusterChange::Slice(f) if &*f.name == "a")));
    for head in &*heads.lock().unwrap() {
        let head = head.to_lowercase();
        assert!(head.contains("authorization: bearer of-the-agent"), "{head}");
        assert!(head.contains("user-agent: rollrace/"), "{head}");
    }
}
