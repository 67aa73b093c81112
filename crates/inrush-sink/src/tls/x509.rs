//! The little of X.509 that webpki does not say: enough DER to find a certificate's parts (RFC 5280).
//!
//! Needed because libpq takes certificates that webpki refuses: those of version 1, which the PostgreSQL manual's own
//! recipe makes with OpenSSL up to 3.1, and those that name the host only in the subject.

/// One DER element: tag, content, the whole of it, and what follows.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
    rest: &'a [u8],
}

/// Reads one element; `None` if the bytes are not DER with a tag of one byte and a length of at most four.
fn read(bytes: &[u8]) -> Option<Element<'_>> {
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
fn expect(bytes: &[u8], tag: u8) -> Option<Element<'_>> {
    read(bytes).filter(|element| element.tag == tag)
}

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// The parts of a certificate. Slices of DER; an algorithm is the content of its AlgorithmIdentifier, as
/// `rustls::pki_types::AlgorithmIdentifier` has it.
pub(super) struct Certificate<'a> {
    /// What the signature is over.
    pub tbs: &'a [u8],
    pub signature_algorithm: &'a [u8],
    pub signature: &'a [u8],
    /// Version 1 has no extensions, so nothing says whether it may sign others.
    pub is_v1: bool,
    pub issuer: &'a [u8],
    pub subject: &'a [u8],
    /// First and last second of validity, Unix time.
    pub validity: (u64, u64),
    pub key_algorithm: &'a [u8],
    pub key: &'a [u8],
    /// Whether a subjectAltName names a host or an address.
    pub has_alternative_names: bool,
    /// The subject's common name, if there is exactly one.
    pub common_name: Option<&'a str>,
}

impl<'a> Certificate<'a> {
    /// Takes a certificate apart; `None` if it is not well-formed.
    pub(super) fn read(der: &'a [u8]) -> Option<Certificate<'a>> {
        let outer = expect(der, SEQUENCE)?;
        let tbs = expect(outer.content, SEQUENCE)?;
        let signature_algorithm = expect(tbs.rest, SEQUENCE)?;
        let signature = bit_string(signature_algorithm.rest)?;

        let version = expect(tbs.content, 0xa0);
        let serial = expect(version.as_ref().map_or(tbs.content, |v| v.rest), INTEGER)?;
        let inner_algorithm = expect(serial.rest, SEQUENCE)?;
        let issuer = expect(inner_algorithm.rest, SEQUENCE)?;
        let validity = expect(issuer.rest, SEQUENCE)?;
        let not_before = read(validity.content)?;
        let not_after = read(not_before.rest)?;
        let subject = expect(validity.rest, SEQUENCE)?;
        let key_info = expect(subject.rest, SEQUENCE)?;
        let key_algorithm = expect(key_info.content, SEQUENCE)?;
        // The algorithm inside the signed part must be the one outside (RFC 5280, 4.1.1.2).
        if inner_algorithm.content != signature_algorithm.content {
            return None;
        }
        Some(Certificate {
            tbs: tbs.whole,
            signature_algorithm: signature_algorithm.content,
            signature,
            is_v1: version.is_none(),
            issuer: issuer.whole,
            subject: subject.whole,
            validity: (time(&not_before)?, time(&not_after)?),
            key_algorithm: key_algorithm.content,
            key: bit_string(key_algorithm.rest)?,
            has_alternative_names: has_alternative_names(key_info.rest)?,
            common_name: common_name(subject.content),
        })
    }
}

/// A bit string of whole bytes.
fn bit_string(bytes: &[u8]) -> Option<&[u8]> {
    match expect(bytes, BIT_STRING)?.content.split_first()? {
        (0, bits) => Some(bits),
        _ => None,
    }
}

/// Seconds since 1970 of a UTCTime or GeneralizedTime, which end in `Z` and have seconds in DER.
fn time(element: &Element<'_>) -> Option<u64> {
    let text = std::str::from_utf8(element.content).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (element.tag, text.len()) {
        (UTC_TIME, 12) => {
            let year: u64 = text[..2].parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
        }
        (GENERALIZED_TIME, 14) => (text[..4].parse().ok()?, &text[4..]),
        _ => return None,
    };
    let part = |i: usize| rest[2 * i..2 * i + 2].parse::<u64>().ok();
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    if !(1..=12).contains(&month) || day == 0 || year < 1970 {
        // Before 1970 is as good as 1970: nobody's clock is there.
        return (year < 1970).then_some(0);
    }
    // Days of the Gregorian calendar with the year starting in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Looks for subjectAltName (2.5.29.17) with a dNSName or iPAddress in what follows the key.
fn has_alternative_names(mut rest: &[u8]) -> Option<bool> {
    while !rest.is_empty() {
        let element = read(rest)?;
        rest = element.rest;
        if element.tag != 0xa3 {
            continue;
        }
        let mut list = expect(element.content, SEQUENCE)?.content;
        while !list.is_empty() {
            let extension = expect(list, SEQUENCE)?;
            list = extension.rest;
            let oid = expect(extension.content, OID)?;
            if oid.content != [0x55, 0x1d, 0x11] {
                continue;
            }
            // A boolean (critical) may stand between.
            let value = match read(oid.rest)? {
                value if value.tag == OCTET_STRING => value,
                critical => expect(critical.rest, OCTET_STRING)?,
            };
            let mut names = expect(value.content, SEQUENCE)?.content;
            while !names.is_empty() {
                let name = read(names)?;
                if name.tag == 0x82 || name.tag == 0x87 {
                    return Some(true);
                }
                names = name.rest;
            }
        }
    }
    Some(false)
}

/// The common name (2.5.4.3), unless there are several or it is not plain text.
fn common_name(mut names: &[u8]) -> Option<&str> {
    let mut found = None;
    while !names.is_empty() {
        let set = expect(names, SET)?;
        names = set.rest;
        let mut pairs = set.content;
        while !pairs.is_empty() {
            let pair = expect(pairs, SEQUENCE)?;
            pairs = pair.rest;
            let oid = expect(pair.content, OID)?;
            if oid.content == [0x55, 0x04, 0x03] {
                let text = std::str::from_utf8(read(oid.rest)?.content).ok()?;
                if found.replace(text).is_some() {
                    return None;
                }
            }
        }
    }
    // A NUL inside would let "good.example\0.evil.example" pass for "good.example" elsewhere.
    found.filter(|name| !name.contains('\0'))
}

/// Whether a name in a certificate stands for this host: equal but for case, or `*.` for exactly one label
/// (fe-secure-common.c, wildcard_certificate_match).
pub(super) fn names_host(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    match (pattern.strip_prefix('*'), host.find('.')) {
        (Some(suffix), Some(dot)) => {
            suffix.len() > 2
                && suffix.starts_with('.')
                && dot > 0
                && suffix.eq_ignore_ascii_case(&host[dot..])
        }
        _ => false,
    }
}

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

/// The hash function of a certificate's signature.
pub(super) fn signature_hash(certificate: &[u8]) -> Option<Hash> {
    let oid = expect(Certificate::read(certificate)?.signature_algorithm, OID)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times() {
        let of =
            |tag, text: &'static str| time(&Element { tag, content: text.as_bytes(), whole: &[], rest: &[] });
        assert_eq!(of(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(of(UTC_TIME, "240229123456Z"), Some(1_709_210_096));
        assert_eq!(of(GENERALIZED_TIME, "20500101000000Z"), Some(2_524_608_000));
        assert_eq!(of(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(of(UTC_TIME, "2402291234Z"), None);
        assert_eq!(of(UTC_TIME, "24022912345xZ"), None);
    }

    #[test]
    fn matches_wildcards_as_libpq_does() {
        for (pattern, host, matches) in [
            ("db.example.org", "DB.example.org", true),
            ("*.example.org", "db.example.org", true),
            ("*.example.org", "a.db.example.org", false),
            ("*.example.org", "example.org", false),
            ("*.example.org", ".example.org", false),
            ("*", "db", false),
            ("*.", "db.", false),
            ("d*.example.org", "db.example.org", false),
        ] {
            assert_eq!(names_host(pattern, host), matches, "{pattern} {host}");
        }
    }

    #[test]
    fn survives_damaged_certificates() {
        // A length beyond the end, an indefinite length, nothing, and every truncation of something well-formed.
        for bytes in [&[0x30, 0x05, 0x00][..], &[0x30, 0x80, 0, 0], &[], &[0x30, 0x85, 1, 1, 1, 1, 1]] {
            assert!(read(bytes).is_none());
        }
        let nested = [0x30, 0x06, 0x30, 0x04, 0x30, 0x02, 0x02, 0x00];
        for end in 0..=nested.len() {
            assert!(Certificate::read(&nested[..end]).is_none());
        }
    }
}
