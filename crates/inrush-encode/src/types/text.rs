//! name (name.c) and jsonb (jsonb.c). The other text types go verbatim.

/// Whether namein would keep it whole. A longer one it truncates, and namerecv refuses. The limit counts
/// bytes in the server's encoding, where a character of several bytes may take up to twice as many.
pub(super) fn name_fits(value: &[u8]) -> bool {
    // NAMEDATALEN is 64 with the terminating zero.
    value.len() <= 63 && (value.len() <= 31 || value.is_ascii())
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
    fn jsonb_has_a_version() {
        let mut out = Vec::new();
        jsonb(b"{}", &mut out);
        assert_eq!(out, b"\x01{}");
    }
}
