//! TLS towards origins: one provider of cryptography, ALPN `http/1.1` only, no resumption, no early data, no client
//! certificate.

use std::sync::Arc;

use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::config::TlsRoots;
use super::error::TlsFault;

/// The configuration for a set of roots; `None` if they are no certificates.
pub(crate) fn client_config(roots: &TlsRoots) -> Option<Arc<ClientConfig>> {
    let mut store = RootCertStore::empty();
    match roots {
        TlsRoots::Public => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        TlsRoots::Der(certificates) => {
            for certificate in certificates {
                store.add(CertificateDer::from(certificate.clone())).ok()?;
            }
        }
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Some(Arc::new(config))
}

/// What a failed handshake means.
pub(crate) fn fault(error: &std::io::Error) -> TlsFault {
    use std::io::ErrorKind;
    use tokio_rustls::rustls::Error;
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented) => TlsFault::Certificate,
        Some(_) => TlsFault::Handshake,
        None => match error.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => TlsFault::Closed,
            _ => TlsFault::Handshake,
        },
    }
}
