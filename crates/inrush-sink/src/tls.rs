//! TLS as libpq does it (fe-secure-openssl.c), on rustls.

use crate::conninfo::{RootCertificates, SslMode, Transport};
use inrush_core::{Code, Error, Result};
use ring::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

mod verify;
mod x509;

/// A TLS connection.
pub(crate) type TlsSocket = tokio_rustls::client::TlsStream<TcpStream>;

/// The name by which a server was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PeerName {
    /// As the user wrote it: a host name or an address.
    Given(String),
    /// Only `hostaddr` was given.
    OnlyAddress(IpAddr),
}

/// Certificates and rules, read once, for any number of handshakes.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Arc<rustls::ClientConfig>,
    needs_name: bool,
}

impl Connector {
    /// Reads the files; `None` when TLS is switched off. Errors have code `connect`.
    pub(crate) fn new(transport: &Transport) -> Result<Option<Connector>> {
        if transport.sslmode == SslMode::Disable {
            return Ok(None);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions: Vec<_> = [(2, &rustls::version::TLS12), (3, &rustls::version::TLS13)]
            .into_iter()
            .filter(|(minor, _)| (transport.versions.0..=transport.versions.1).contains(minor))
            .map(|(_, version)| version)
            .collect();
        let verifier = verify::Verifier::new(transport, &provider)?;
        let key_provider = provider.key_provider;
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|e| broken(format!("TLS versions: {e}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &transport.files.client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = read_certificates(certificate)?;
                let key = key_provider
                    .load_private_key(read_key(key)?)
                    .map_err(|e| broken(format!("private key file {} cannot be used: {e}", key.display())))?;
                // Not with_client_auth_cert: it refuses version 1. The server judges whether the two belong together.
                let pair = rustls::sign::CertifiedKey::new(chain, key);
                builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(pair)))
            }
        };
        config.enable_sni = transport.sni;
        // Sent by libpq since 17; older servers take no notice.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Some(Connector { config: Arc::new(config), needs_name: transport.sslmode == SslMode::VerifyFull }))
    }

    /// Secures a connection.
    pub(crate) async fn handshake(&self, socket: TcpStream, name: &PeerName) -> io::Result<TlsSocket> {
        let name = match name {
            PeerName::OnlyAddress(_) if self.needs_name => {
                return Err(io::Error::other("a host name is needed to verify the server's certificate"));
            }
            PeerName::OnlyAddress(address) => ServerName::from(*address),
            PeerName::Given(name) => ServerName::try_from(name.clone())
                .map_err(|_| io::Error::other("the host name is not one a certificate can hold"))?,
        };
        TlsConnector::from(Arc::clone(&self.config)).connect(name, socket).await
    }
}

/// The hash of the server's certificate that SCRAM binds to (RFC 5929, tls-server-end-point): by the hash function
/// of the certificate's signature, SHA-256 in place of MD5 and SHA-1. `None` where that is not defined (Ed25519).
pub(crate) fn server_end_point(socket: &TlsSocket) -> Option<Vec<u8>> {
    let certificate = socket.get_ref().1.peer_certificates()?.first()?;
    let algorithm = match x509::signature_hash(certificate)? {
        x509::Hash::Sha256 => &digest::SHA256,
        x509::Hash::Sha384 => &digest::SHA384,
        x509::Hash::Sha512 => &digest::SHA512,
    };
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let list: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|e| broken(format!("certificate file {} cannot be read: {e}", path.display())))?;
    if list.is_empty() {
        return Err(broken(format!("certificate file {} holds no certificate", path.display())));
    }
    Ok(list)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let broken_key = |fact: String| {
        broken(format!("private key file {} {fact}", path.display()))
            .hint("The key must be PEM (PKCS#8, PKCS#1 or SEC1) and not encrypted.")
    };
    PrivateKeyDer::from_pem_file(path).map_err(|e| broken_key(format!("cannot be read: {e}")))
}

fn broken(fact: impl Into<String>) -> Error {
    Error::new(Code::Connect, fact)
}

/// The roots to trust; `None` checks nothing.
fn read_roots(roots: &RootCertificates) -> Result<Option<Vec<CertificateDer<'static>>>> {
    match roots {
        RootCertificates::None => Ok(None),
        RootCertificates::File(path) => read_certificates(path).map(Some),
        RootCertificates::System => {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                return Err(broken("the operating system has no trusted certificates to offer").hint(
                    "Install them (package ca-certificates on Debian) or name a file with sslrootcert.",
                ));
            }
            Ok(Some(found.certs))
        }
    }
}
