//! UTF-8, as strictly as the server checks it.

use inrush_core::BadRecord;

/// Checks that `bytes` is valid UTF-8 without NUL, as the server demands of text
/// (mbutils.c, pg_verify_mbstr). The error is the offset of the first byte of what is refused.
pub fn check_utf8(bytes: &[u8]) -> Result<(), usize> {
    let plain = plain_ascii(bytes);
    let rest = &bytes[plain..];
    check_any(rest).map_err(|at| plain + at)
}

/// How many bytes at the front, in whole blocks, are ASCII without NUL. Most data is that to its end, and one
/// pass that looks for both is cheaper than one for each.
fn plain_ascii(bytes: &[u8]) -> usize {
    const BLOCK: usize = 4096;
    bytes.chunks(BLOCK).take_while(|block| is_plain(block)).map(<[u8]>::len).sum()
}

/// Whether all bytes are ASCII, and none is NUL.
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    // 0 wraps to 255; what is not ASCII stays above 126. A maximum is one vector instruction everywhere.
    bytes.iter().fold(0, |most, byte| byte.wrapping_sub(1).max(most)) < 127
}

fn check_any(bytes: &[u8]) -> Result<(), usize> {
    let valid = match simdutf8::basic::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        // The quick check does not know where; the other one is asked only about bad chunks.
        Err(_) => simdutf8::compat::from_utf8(bytes).err().map_or(bytes.len(), |error| error.valid_up_to()),
    };
    match memchr::memchr(0, &bytes[..valid]) {
        Some(nul) => Err(nul),
        None if valid < bytes.len() => Err(valid),
        None => Ok(()),
    }
}

/// The refusal of the record in which `bytes` is invalid at `offset`, in the server's words
/// (mbutils.c, report_invalid_encoding): SQLSTATE 22021 and as many bytes as the first of them announces,
/// also beyond the end of the record.
pub fn invalid_at(bytes: &[u8], offset: usize) -> BadRecord {
    let tail = &bytes[offset.min(bytes.len())..];
    let announced = match tail.first() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => 1,
    };
    let mut fact = String::from("invalid byte sequence for encoding \"UTF8\":");
    for byte in tail.iter().take(announced) {
        fact.push_str(&format!(" 0x{byte:02x}"));
    }
    BadRecord { sqlstate: "22021", fact, field: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_the_server_accepts() {
        for text in ["", "abc", "größe", "日本", "😀", "\u{7f}\u{10ffff}"] {
            assert_eq!(check_utf8(text.as_bytes()), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_fault_is_found_wherever_it_stands() {
        for at in [0, 1, 4095, 4096, 4097, 9000, 12_287] {
            for (fault, long) in [(&b"\0"[..], 1), (b"\xff", 1), (b"\xc3\x28", 2)] {
                let mut bytes = vec![b'x'; 12_288];
                let end = (at + long).min(bytes.len());
                bytes[at..end].copy_from_slice(&fault[..end - at]);
                assert_eq!(check_utf8(&bytes), Err(at), "{fault:?}");
            }
            let mut bytes = vec![b'x'; 12_288];
            bytes.splice(at..at, "ü".bytes());
            assert_eq!(check_utf8(&bytes), Ok(()), "{at}");
        }
    }

    #[test]
    fn names_the_first_bad_byte_and_what_follows() {
        let cases: &[(&[u8], usize, &str)] = &[
            (b"ab\xff", 2, "0xff"),
            (b"a\0b", 1, "0x00"),
            (b"\xc3(", 0, "0xc3 0x28"),
            (b"x\xe2\x82", 1, "0xe2 0x82"),
            (b"\xf0\x9f\x98\n...", 0, "0xf0 0x9f 0x98 0x0a"),
            // A surrogate and an overlong form.
            (b"\xed\xa0\x80", 0, "0xed 0xa0 0x80"),
            (b"\xc0\x80", 0, "0xc0 0x80"),
            // NUL in front of the other fault.
            (b"\0\xff", 0, "0x00"),
        ];
        for (bytes, offset, shown) in cases {
            assert_eq!(check_utf8(bytes), Err(*offset), "{bytes:?}");
            let bad = invalid_at(bytes, *offset);
            assert_eq!(bad.fact, format!("invalid byte sequence for encoding \"UTF8\": {shown}"));
            assert_eq!(bad.sqlstate, "22021");
        }
    }
}
