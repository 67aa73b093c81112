//! The little of X.509 that webpki does not say: enough DER to find a certificate's parts.

/// One DER element: tag, content, and what follows it.
pub(super) struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    /// Tag, length and content.
    pub whole: &'a [u8],
    pub rest: &'a [u8],
}

/// Reads one element; `None` if the bytes are not DER with a tag of one byte and a length of at most four.
pub(super) fn read(bytes: &[u8]) -> Option<Element<'_>> {
    let (&tag, after) = bytes.split_first()?;
    let (&first, mut after) = after.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 || after.len() < count {
            return None;
        }
        length = after[..count].iter().fold(0, |n, &byte| n << 8 | usize::from(byte));
        after = &after[count..];
    }
    if after.len() < length {
        return None;
    }
    let header = bytes.len() - after.len();
    Some(Element { tag, content: &after[..length], whole: &bytes[..header + length], rest: &after[length..] })
}

/// Reads one element that must have this tag.
pub(super) fn expect(bytes: &[u8], tag: u8) -> Option<Element<'_>> {
    read(bytes).filter(|element| element.tag == tag)
}

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const OID: u8 = 0x06;

/// A hash function that can stand in tls-server-end-point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

// Object identifiers as DER has them, without tag and length.
const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a];
const SIGNATURES: &[(&[u8], Hash)] = &[
    // md5WithRSAEncryption, sha1WithRSAEncryption, ecdsa-with-SHA1: RFC 5929 says SHA-256 for these.
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01], Hash::Sha256),
    // sha256/384/512WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c], Hash::Sha384),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d], Hash::Sha512),
    // ecdsa-with-SHA256/384/512
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02], Hash::Sha256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03], Hash::Sha384),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04], Hash::Sha512),
    // id-sha256/384/512, as RSASSA-PSS names them in its parameters.
    (&[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01], Hash::Sha256),
    (&[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02], Hash::Sha384),
    (&[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03], Hash::Sha512),
];

/// The hash function of the signature on a certificate (RFC 5280, signatureAlgorithm).
pub(super) fn signature_hash(certificate: &[u8]) -> Option<Hash> {
    let outer = expect(certificate, SEQUENCE)?;
    let tbs = expect(outer.content, SEQUENCE)?;
    let algorithm = expect(tbs.rest, SEQUENCE)?;
    let oid = expect(algorithm.content, OID)?;
    if oid.content != RSA_PSS {
        return hash_of(oid.content);
    }
    // RSASSA-PSS-params: [0] hashAlgorithm, SHA-1 where it is left out.
    let parameters = expect(oid.rest, SEQUENCE)?;
    match expect(parameters.content, 0xa0) {
        None => Some(Hash::Sha256),
        Some(tagged) => hash_of(expect(expect(tagged.content, SEQUENCE)?.content, OID)?.content),
    }
}

fn hash_of(oid: &[u8]) -> Option<Hash> {
    SIGNATURES.iter().find(|(known, _)| *known == oid).map(|(_, hash)| *hash)
}
