//! real and double precision (float.c, float4in_internal and float8in_internal): strtof and strtod, which
//! round correctly, as the standard library's parser does. Overflow, underflow, denormals (which some C
//! libraries report as out of range) and hexadecimal are left to the server.

use super::digits::trim;

/// The NaN the server stores: quiet, positive, no payload.
const NAN4: u32 = 0x7fc0_0000;
const NAN8: u64 = 0x7ff8_0000_0000_0000;

/// The bits of a real.
pub(super) fn float4(value: &[u8]) -> Option<u32> {
    let value = trim(value);
    match decimal(value) {
        Some(text) => {
            let number: f32 = text.parse().ok()?;
            (number.is_normal() || is_zero(text)).then(|| number.to_bits())
        }
        None => Some(match special(value)? {
            Special::NaN => NAN4,
            Special::Infinity => f32::INFINITY.to_bits(),
            Special::MinusInfinity => f32::NEG_INFINITY.to_bits(),
        }),
    }
}

/// The bits of a double precision.
pub(super) fn float8(value: &[u8]) -> Option<u64> {
    let value = trim(value);
    match decimal(value) {
        Some(text) => {
            let number: f64 = text.parse().ok()?;
            (number.is_normal() || is_zero(text)).then(|| number.to_bits())
        }
        None => Some(match special(value)? {
            Special::NaN => NAN8,
            Special::Infinity => f64::INFINITY.to_bits(),
            Special::MinusInfinity => f64::NEG_INFINITY.to_bits(),
        }),
    }
}

/// The text if it has only the characters of a decimal number. What the parser then still refuses, such as
/// `1e` or `.`, the server refuses too.
#[inline]
fn decimal(value: &[u8]) -> Option<&str> {
    let plain = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e' | b'E');
    if value.iter().all(plain) { std::str::from_utf8(value).ok() } else { None }
}

/// Whether it is zero as written, not by underflow.
fn is_zero(text: &str) -> bool {
    text.bytes().take_while(|byte| !matches!(byte, b'e' | b'E')).all(|byte| !matches!(byte, b'1'..=b'9'))
}

enum Special {
    NaN,
    Infinity,
    MinusInfinity,
}

/// The spellings the server reads whatever the C library does.
#[cold]
fn special(value: &[u8]) -> Option<Special> {
    let is = |word: &str| value.eq_ignore_ascii_case(word.as_bytes());
    if is("NaN") {
        Some(Special::NaN)
    } else if is("Infinity") || is("+Infinity") || is("inf") || is("+inf") {
        Some(Special::Infinity)
    } else if is("-Infinity") || is("-inf") {
        Some(Special::MinusInfinity)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(float8(b"1.5"), Some(1.5f64.to_bits()));
        assert_eq!(float8(b" -0 "), Some((-0.0f64).to_bits()));
        assert_eq!(float8(b"0e999999"), Some(0));
        assert_eq!(float8(b"1.7976931348623157e308"), Some(f64::MAX.to_bits()));
        assert_eq!(float4(b"16777217"), Some(16_777_216f32.to_bits()));
        // Through a double this would round twice.
        assert_eq!(float4(b"1.00000017881393432617187499"), Some(0x3f80_0001));
        assert_eq!(float8(b"nan"), Some(NAN8));
        assert_eq!(float4(b"-inf"), Some(f32::NEG_INFINITY.to_bits()));
    }

    #[test]
    fn left_to_the_server() {
        for odd in ["", ".", "1e", "1e400", "-1e400", "1e-400", "5e-324", "0x10", "-nan", "1 2", "1_0", "1d"]
        {
            assert_eq!(float8(odd.as_bytes()), None, "{odd:?}");
        }
        for odd in ["1e39", "1e-46", "1e-40"] {
            assert_eq!(float4(odd.as_bytes()), None, "{odd:?}");
        }
    }
}
