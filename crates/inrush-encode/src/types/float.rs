//! real and double precision (float.c, float4in_internal and float8in_internal): strtof and strtod, which
//! round correctly, as the standard library's parser does. Overflow, underflow, denormals (which some C
//! libraries report as out of range) and hexadecimal are left to the server.

use super::digits::{self, trim};

/// The NaN the server stores: quiet, positive, no payload.
const NAN4: u32 = 0x7fc0_0000;
const NAN8: u64 = 0x7ff8_0000_0000_0000;

/// The bits of a real.
pub(super) fn float4(value: &[u8]) -> Option<u32> {
    let value = trim(value);
    // 10^10 is the largest power of ten a real holds exactly, 2^24 the largest run of integers.
    if let Some((negative, digits, places)) = short(value, 1 << 24, 10) {
        let number = digits as f32 / POWERS[places] as f32;
        return Some(if negative { -number } else { number }.to_bits());
    }
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
    if let Some((negative, digits, places)) = short(value, 1 << 53, 19) {
        let number = digits as f64 / POWERS[places];
        return Some(if negative { -number } else { number }.to_bits());
    }
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

/// Powers of ten, all exact.
const POWERS: [f64; 20] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19,
];

/// Sign, all digits as one integer up to `most`, and the number of them after the point, if there is no
/// exponent and both are small enough. Then integer and power of ten are exact as floating-point numbers and
/// their quotient is rounded once: correctly (Clinger 1990).
#[inline]
fn short(value: &[u8], most: u64, most_places: usize) -> Option<(bool, u64, usize)> {
    let (negative, digits) = match value {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, value),
    };
    // Where 19 digits do not overflow, 18 and a point do not.
    if digits.len() > 19 {
        return None;
    }
    let (number, places) = match digits.iter().position(|byte| *byte == b'.') {
        None => (digits::number(digits)?, 0),
        Some(at) => {
            let after = &digits[at + 1..];
            let scale = POWERS_AS_INTEGERS.get(after.len())?;
            (digits::number(&digits[..at])? * scale + digits::number(after)?, after.len())
        }
    };
    (number <= most && places <= most_places).then_some((negative, number, places))
}

const POWERS_AS_INTEGERS: [u64; 19] = {
    let mut powers = [1; 19];
    let mut i = 1;
    while i < 19 {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

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
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn short_forms_as_the_standard_library(value in "-?[0-9]{1,12}(\\.[0-9]{1,12})?") {
            let expected: f64 = value.parse().expect("a number");
            prop_assert_eq!(float8(value.as_bytes()), Some(expected.to_bits()));
            let expected: f32 = value.parse().expect("a number");
            prop_assert_eq!(float4(value.as_bytes()), Some(expected.to_bits()));
        }

        #[test]
        fn every_double_as_written(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_normal());
            prop_assert_eq!(float8(format!("{number}").as_bytes()), Some(bits));
            prop_assert_eq!(float8(format!("{number:e}").as_bytes()), Some(bits));
        }
    }
}
