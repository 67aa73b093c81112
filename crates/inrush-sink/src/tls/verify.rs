//! How far the server's certificate is checked.

use super::x509::{self, Certificate};
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
///
/// webpki does the work. What OpenSSL, and so libpq, takes and webpki refuses is judged here: a server certificate that
/// is itself among the roots, one of version 1, and a host named only in the subject.
#[derive(Debug)]
pub(super) struct Verifier {
    provider: Arc<CryptoProvider>,
    /// The chain is checked against these; without them it is not checked.
    trusted: Option<Trusted>,
    check_name: bool,
}

#[derive(Debug)]
struct Trusted {
    webpki: Arc<WebPkiServerVerifier>,
    roots: Vec<CertificateDer<'static>>,
    /// With revocation lists only webpki's verdict counts: nothing else here reads them.
    with_crls: bool,
}

impl Verifier {
    pub(super) fn new(transport: &Transport, provider: &Arc<CryptoProvider>) -> Result<Verifier> {
        let trusted = match read_roots(&transport.files.roots)? {
            None => None,
            Some(roots) => {
                let mut store = RootCertStore::empty();
                store.add_parsable_certificates(roots.iter().cloned());
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
                let webpki =
                    builder.build().map_err(|e| broken(format!("root certificates cannot be used: {e}")))?;
                Some(Trusted { webpki, roots, with_crls: transport.files.crl.is_some() })
            }
        };
        Ok(Verifier {
            provider: Arc::clone(provider),
            trusted,
            check_name: transport.sslmode == SslMode::VerifyFull,
        })
    }

    /// Whether a certificate that webpki refuses as a server's is in order: it is one of the roots, or of version 1
    /// and signed by one of them; and valid now.
    fn trusted_otherwise(&self, trusted: &Trusted, leaf: &CertificateDer<'_>, now: UnixTime) -> bool {
        let Some(certificate) = Certificate::read(leaf).filter(|_| !trusted.with_crls) else { return false };
        let valid_now = |c: &Certificate<'_>| (c.validity.0..=c.validity.1).contains(&now.as_secs());
        valid_now(&certificate)
            && trusted.roots.iter().any(|root| {
                root.as_ref() == leaf.as_ref()
                    || certificate.is_v1
                        && Certificate::read(root).is_some_and(|root| {
                            root.subject == certificate.issuer
                                && valid_now(&root)
                                && self.signed_by(&certificate, &root)
                        })
            })
    }

    fn signed_by(&self, certificate: &Certificate<'_>, issuer: &Certificate<'_>) -> bool {
        self.provider.signature_verification_algorithms.all.iter().any(|algorithm| {
            algorithm.signature_alg_id().as_ref() == certificate.signature_algorithm
                && algorithm.public_key_alg_id().as_ref() == issuer.key_algorithm
                && algorithm.verify_signature(issuer.key, certificate.tbs, certificate.signature).is_ok()
        })
    }

    /// A handshake's signature by the key of a version 1 certificate, which webpki does not read.
    fn signed_with_v1_key(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> bool {
        let Some(certificate) = Certificate::read(certificate).filter(|c| c.is_v1) else { return false };
        let mapping = self.provider.signature_verification_algorithms.mapping;
        mapping.iter().filter(|(scheme, _)| *scheme == signature.scheme).flat_map(|(_, list)| *list).any(
            |algorithm| {
                algorithm.public_key_alg_id().as_ref() == certificate.key_algorithm
                    && algorithm.verify_signature(certificate.key, message, signature.signature()).is_ok()
            },
        )
    }
}

/// Whether the subject's common name is this host's, where no alternative name overrules it (fe-secure-openssl.c,
/// pgtls_verify_peer_name_matches_certificate_guts).
fn subject_names(leaf: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    Certificate::read(leaf).filter(|c| !c.has_alternative_names).is_some_and(|certificate| {
        certificate.common_name.is_some_and(|common| x509::names_host(common, &name.to_str()))
    })
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
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let refused = match trusted.webpki.verify_server_cert(leaf, intermediates, name, ocsp, now) {
            Ok(verified) => return Ok(verified),
            Err(refused) => refused,
        };
        // webpki looks at the name last: then everything else was in order.
        let chain_is_good = matches!(
            refused,
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            )
        );
        if !chain_is_good && !self.trusted_otherwise(trusted, leaf, now) {
            return Err(refused);
        }
        let name_is_good = || {
            subject_names(leaf, name)
                || !chain_is_good
                    && rustls::server::ParsedCertificate::try_from(leaf)
                        .is_ok_and(|parsed| rustls::client::verify_server_name(&parsed, name).is_ok())
        };
        if self.check_name && !name_is_good() {
            return Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForName));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms).or_else(|e| {
            let good = self.signed_with_v1_key(message, certificate, signature);
            if good { Ok(HandshakeSignatureValid::assertion()) } else { Err(e) }
        })
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms).or_else(|e| {
            // TLS 1.3 ties each scheme to one curve and has no PKCS#1 v1.5; what rustls offered is what was chosen from.
            let good = signature.scheme.as_str().is_some_and(|scheme| !scheme.starts_with("RSA_PKCS1"))
                && self.signed_with_v1_key(message, certificate, signature);
            if good { Ok(HandshakeSignatureValid::assertion()) } else { Err(e) }
        })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
