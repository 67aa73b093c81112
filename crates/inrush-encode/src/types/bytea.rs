//! bytea (varlena.c, byteain; encode.c, hex_decode): the hex form, and the escape form where it has nothing
//! to escape.

const BAD: u8 = 0xff;

/// Value of each hex digit.
const HEX: [u8; 256] = {
    let mut table = [BAD; 256];
    let mut i = 0;
    while i < 16 {
        table[b"0123456789abcdef"[i] as usize] = i as u8;
        table[b"0123456789ABCDEF"[i] as usize] = i as u8;
        i += 1;
    }
    table
};

/// The byte two hex digits stand for.
#[inline]
pub(super) fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let (high, low) = (HEX[high as usize], HEX[low as usize]);
    ((high | low) < 16).then_some(high << 4 | low)
}

/// Appends the bytes. Spaces between hex pairs, which hex_decode skips, are left to the server.
pub(super) fn bytea(value: &[u8], out: &mut Vec<u8>) -> bool {
    match value.strip_prefix(b"\\x") {
        Some(hex) => {
            let (pairs, rest) = hex.as_chunks::<2>();
            let start = out.len();
            let mut bad = !rest.is_empty();
            out.extend(pairs.iter().map(|[high, low]| {
                let (high, low) = (HEX[*high as usize], HEX[*low as usize]);
                bad |= (high | low) == BAD;
                high << 4 | low & 15
            }));
            debug_assert_eq!(out.len() - start, pairs.len());
            !bad
        }
        // Beyond ASCII the server's encoding decides which bytes arrive.
        None if value.is_ascii() && !value.iter().any(|byte| matches!(byte, b'\\' | 0)) => {
            out.extend_from_slice(value);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(value: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        bytea(value, &mut out).then_some(out)
    }

    #[test]
    fn hex_and_plain() {
        assert_eq!(encode(b"\\x00fFA9"), Some(vec![0, 0xff, 0xa9]));
        assert_eq!(encode(b"\\x"), Some(vec![]));
        assert_eq!(encode(b""), Some(vec![]));
        assert_eq!(encode(b"abc"), Some(b"abc".to_vec()));
        for odd in [
            &b"\\x0"[..],
            b"\\xg0",
            b"\\x0g",
            b"\\x00 00",
            b"\\000",
            b"a\\\\b",
            b"\\X00",
            b"\xc3\xa4",
            b"a\0",
        ] {
            assert_eq!(encode(odd), None, "{odd:?}");
        }
    }
}
