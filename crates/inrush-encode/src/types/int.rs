//! smallint, integer, bigint (numutils.c, pg_strtoint16 and its sisters) and oid (oid.c, oidin).
//!
//! Encoded: spaces, an optional sign, decimal digits, spaces. Hexadecimal, octal, binary and underscores,
//! which PostgreSQL 16 reads and 15 refuses, are left to the server.

use super::digits;

/// Any integer that fits 64 bits; the narrower types check their range.
#[inline]
pub(super) fn int8(value: &[u8]) -> Option<i64> {
    let value = digits::trim(value);
    let (negative, digits) = match value {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, value),
    };
    let magnitude = match digits::number(digits) {
        Some(magnitude) => magnitude,
        None => digits::number(without_leading_zeros(digits)?)?,
    };
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Longer than 19 digits only because of zeros in front.
#[cold]
fn without_leading_zeros(digits: &[u8]) -> Option<&[u8]> {
    let at = digits.iter().position(|byte| *byte != b'0')?;
    (at > 0).then_some(&digits[at..])
}

#[inline]
pub(super) fn int4(value: &[u8]) -> Option<i32> {
    i32::try_from(int8(value)?).ok()
}

#[inline]
pub(super) fn int2(value: &[u8]) -> Option<i16> {
    i16::try_from(int8(value)?).ok()
}

/// Plain digits only: oidin wraps negative numbers around, which is not worth repeating, and a zero in front
/// means octal since PostgreSQL 16 (uint32in_subr) but not before.
#[inline]
pub(super) fn oid(value: &[u8]) -> Option<u32> {
    if value.len() > 1 && value[0] == b'0' {
        return None;
    }
    u32::try_from(digits::number(value)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_forms_and_limits() {
        assert_eq!(int8(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(int8(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(int8(b"9223372036854775808"), None);
        assert_eq!(int8(b"-9223372036854775809"), None);
        assert_eq!(int8(b"+0000000000000000000000000000042"), Some(42));
        assert_eq!(int4(b" \t\n\x0b\x0c\r7 "), Some(7));
        assert_eq!(int4(b"2147483648"), None);
        assert_eq!(int4(b"-2147483648"), Some(i32::MIN));
        assert_eq!(int2(b"-32768"), Some(i16::MIN));
        assert_eq!(int2(b"32768"), None);
        assert_eq!(oid(b"4294967295"), Some(u32::MAX));
        assert_eq!(oid(b"-1"), None);
        assert_eq!((oid(b"0"), oid(b"010")), (Some(0), None));
        for odd in ["", "-", "+", " ", "--1", "+-1", "1 1", "0x1", "1_0", "1.0", "1e1", "\u{a0}1"] {
            assert_eq!(int8(odd.as_bytes()), None, "{odd:?}");
        }
    }

    proptest! {
        #[test]
        fn as_the_standard_library(value: i64, zeros in 0usize..30) {
            prop_assert_eq!(int8(value.to_string().as_bytes()), Some(value));
            let padded = format!("{}{}{}", if value < 0 { "-" } else { "" }, "0".repeat(zeros), value.unsigned_abs());
            prop_assert_eq!(int8(padded.as_bytes()), Some(value));
        }

        #[test]
        fn whatever_it_reads_is_a_number(value in "[-+ ]{0,2}[0-9]{0,22}[ x]?") {
            prop_assert_eq!(int8(value.as_bytes()), value.trim().parse::<i64>().ok());
        }
    }
}
