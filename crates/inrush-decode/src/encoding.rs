//! UTF-8, as strictly as the server checks it.

use inrush_core::BadRecord;

/// Checks that `bytes` is valid UTF-8 without NUL, as the server demands of text
/// (mbutils.c, pg_verify_mbstr). The error is the offset of the first byte of what is refused.
pub fn check_utf8(bytes: &[u8]) -> Result<(), usize> {
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
