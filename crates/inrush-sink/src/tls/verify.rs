//! How far the server's certificate is checked.

use super::{broken, read_roots};
use crate::conninfo::{SslMode, Transport};
use inrush_core::Result;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Checks what sslmode asks for; a handshake's signature always, or channel binding would prove nothing.
#[derive(Debug)]
pub(super) struct Verifier {
    provider: Arc<CryptoProvider>,
    /// The chain is checked against these; without them it is not checked.
    chain: Option<Arc<WebPkiServerVerifier>>,
    check_name: bool,
}

impl Verifier {
    pub(super) fn new(transport: &Transport, provider: &Arc<CryptoProvider>) -> Result<Verifier> {
        let chain = match read_roots(&transport.files.roots)? {
            None => None,
            Some(roots) => {
                let mut store = RootCertStore::empty();
                store.add_parsable_certificates(roots);
                let mut builder =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider));
                if let Some(path) = &transport.files.crl {
                    let lists: Vec<_> = CertificateRevocationListDer::pem_file_iter(path)
                        .and_then(Iterator::collect)
                        .map_err(|e| {
                            broken(format!("revocation list {} cannot be read: {e}", path.display()))
                        })?;
                    builder = builder.with_crls(lists).enforce_revocation_expiration();
                }
                Some(builder.build().map_err(|e| broken(format!("root certificates cannot be used: {e}")))?)
            }
        };
        Ok(Verifier {
            provider: Arc::clone(provider),
            chain,
            check_name: transport.sslmode == SslMode::VerifyFull,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(leaf, intermediates, name, ocsp, now) {
            // webpki looks at the name last: everything else was in order.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.check_name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
