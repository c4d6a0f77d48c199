//! The throw-away certificate of the soak, and what both sides make of it.

use std::sync::Arc;

use anyhow::{Context, Result};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::ring};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const AUTHORITY: &[u8] = include_bytes!("../../../../agent/tests/data/tls/ca.pem");
const CERTIFICATE: &[u8] = include_bytes!("../../../../agent/tests/data/tls/server.pem");
const KEY: &[u8] = include_bytes!("../../../../agent/tests/data/tls/server.key");
/// What the certificate is for.
const NAME: &str = "127.0.0.1";

/// The server's side.
pub fn acceptor() -> Result<TlsAcceptor> {
    let chain = CertificateDer::pem_slice_iter(CERTIFICATE).collect::<Result<Vec<_>, _>>();
    let key = PrivateKeyDer::from_pem_slice(KEY).context("read the key")?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain.context("read the certificate")?, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The client's side, and whom it expects.
pub fn connector() -> Result<(TlsConnector, ServerName<'static>)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(AUTHORITY).context("read the authority")?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(NAME).context("name the server")?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}
