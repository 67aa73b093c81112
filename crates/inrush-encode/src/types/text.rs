//! name (name.c) and jsonb (jsonb.c), and the lengths of varchar(n) and char(n) (varchar.c). To the receive
//! functions the other text types go verbatim.

/// Whether namein would keep it whole. A longer one it truncates, and namerecv refuses. The limit counts
/// bytes in the server's encoding, where a character of several bytes may take up to twice as many.
pub(super) fn name_fits(value: &[u8]) -> bool {
    // NAMEDATALEN is 64 with the terminating zero.
    value.len() <= 63 && (value.len() <= 31 || value.is_ascii())
}

/// The 64 bytes of a name; `None` where [`name_fits`] says no, and for zeros, which would end it early.
pub(super) fn stored_name(value: &[u8]) -> Option<[u8; 64]> {
    if !name_fits(value) || value.contains(&0) {
        return None;
    }
    let mut bytes = [0; 64];
    bytes[..value.len()].copy_from_slice(value);
    Some(bytes)
}

/// What varchar(n) stores: spaces beyond n characters are cut off (varchar_input). `None` if something else
/// would have to be, or if it is not UTF-8.
#[inline]
pub(super) fn within(value: &[u8], n: usize) -> Option<&[u8]> {
    if value.len() <= n { Some(value) } else { cut(value, n).map(|(kept, _)| kept) }
}

/// What char(n) stores, and the spaces to add (bpchar_input). `None` as for varchar(n).
#[inline]
pub(super) fn padded(value: &[u8], n: usize) -> Option<(&[u8], usize)> {
    if value.len() <= n && value.is_ascii() { Some((value, n - value.len())) } else { cut(value, n) }
}

/// The first n characters, and how many are missing.
fn cut(value: &[u8], n: usize) -> Option<(&[u8], usize)> {
    let text = std::str::from_utf8(value).ok()?;
    let mut count = 0;
    for (at, _) in text.char_indices() {
        if count == n {
            let (kept, rest) = value.split_at(at);
            return rest.iter().all(|byte| *byte == b' ').then_some((kept, 0));
        }
        count += 1;
    }
    Some((value, n - count))
}

/// The version byte of jsonb_recv, then the text as jsonb_in reads it.
pub(super) fn jsonb(value: &[u8], out: &mut Vec<u8>) {
    out.push(1);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_be_cut_are_not_encoded() {
        assert!(name_fits(&[b'a'; 63]));
        assert!(!name_fits(&[b'a'; 64]));
        assert!(name_fits("ä".repeat(15).as_bytes()));
        assert!(!name_fits("ä".repeat(16).as_bytes()));
    }

    #[test]
    fn only_spaces_are_cut_off() {
        assert_eq!(within("äöü".as_bytes(), 3), Some("äöü".as_bytes()));
        assert_eq!(within("äöü  ".as_bytes(), 4), Some("äöü ".as_bytes()));
        assert_eq!(within("äöüx".as_bytes(), 3), None);
        assert_eq!(within(b"ab \t", 2), None);
        assert_eq!(within(b"a\xff\xff", 1), None);
        assert_eq!(within(b"   ", 0), Some(&b""[..]));
        assert_eq!(padded(b"ab", 4), Some((&b"ab"[..], 2)));
        assert_eq!(padded("ä".as_bytes(), 3), Some(("ä".as_bytes(), 2)));
        assert_eq!(padded("ä  ".as_bytes(), 1), Some(("ä".as_bytes(), 0)));
        assert_eq!(padded(b"abc", 2), None);
        assert_eq!(padded(b"\xff", 2), None);
    }

    #[test]
    fn stored_names_end_in_zeros() {
        assert_eq!(
            stored_name(b"ab").map(|name| (name[..3].to_vec(), name[63])),
            Some((b"ab\0".to_vec(), 0))
        );
        assert_eq!(stored_name(b"a\0"), None);
        assert_eq!(stored_name(&[b'a'; 64]), None);
    }

    #[test]
    fn jsonb_has_a_version() {
        let mut out = Vec::new();
        jsonb(b"{}", &mut out);
        assert_eq!(out, b"\x01{}");
    }
}
