//! uuid (uuid.c, string_to_uuid): 32 hex digits, a hyphen allowed after each group of four, braces allowed.

use super::bytea::hex_pair;

pub(super) fn uuid(value: &[u8]) -> Option<[u8; 16]> {
    let value = match value {
        [b'{', inner @ .., b'}'] => inner,
        _ => value,
    };
    let mut bytes = [0; 16];
    match value.len() {
        36 => {
            // The canonical form: groups of 8, 4, 4, 4 and 12 digits.
            if [8, 13, 18, 23].iter().any(|at| value[*at] != b'-') {
                return None;
            }
            const AT: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
            for (byte, at) in bytes.iter_mut().zip(AT) {
                *byte = hex_pair(value[at], value[at + 1])?;
            }
        }
        32 => {
            for (byte, [high, low]) in bytes.iter_mut().zip(value.as_chunks::<2>().0) {
                *byte = hex_pair(*high, *low)?;
            }
        }
        _ => return None,
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let expected = Some([
            0xa0, 0xee, 0xbc, 0x99, 0x9c, 0x0b, 0x4e, 0xf8, 0xbb, 0x6d, 0x6b, 0xb9, 0xbd, 0x38, 0x0a, 0x11,
        ]);
        assert_eq!(uuid(b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), expected);
        assert_eq!(uuid(b"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"), expected);
        assert_eq!(uuid(b"{a0eebc999c0b4ef8bb6d6bb9bd380a11}"), expected);
        assert_eq!(uuid(b"a0eebc999c0b4ef8bb6d6bb9bd380a11"), expected);
        for odd in [
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
            "{a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "g0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1-",
            "",
            "{}",
        ] {
            assert_eq!(uuid(odd.as_bytes()), None, "{odd}");
        }
    }
}
