//! numeric (numeric.c, set_var_from_str and numeric_recv): base-10000 digits, weight of the first, sign,
//! scale shown. numeric_recv applies the column's type modifier with the same function as numeric_in.

use super::digits::{split_digits, trim};

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
/// NUMERIC_DSCALE_MAX
const MAX_SCALE: i64 = 0x3fff;
/// Well inside what the server takes (131072 digits before the point); longer numbers are left to it.
const MAX_DIGITS_BEFORE: i64 = 100_000;
/// Digits of an exponent that are read here.
const MAX_EXPONENT_DIGITS: usize = 5;

/// Appends the value: `[+-]digits[.digits][e[+-]digits]` or NaN. Infinity, hexadecimal and underscores are
/// left to the server.
pub(super) fn numeric(value: &[u8], out: &mut Vec<u8>) -> bool {
    let value = trim(value);
    match parse(value) {
        Some(decimal) => decimal.append(out),
        None if value.eq_ignore_ascii_case(b"NaN") => {
            header(0, 0, NAN, 0, out);
            true
        }
        None => false,
    }
}

/// Appends a number of columnar inputs: an integer of which so many digits stand behind the point. False
/// where scaling it to whole groups of digits could overflow; its text is no problem.
#[cfg(feature = "columnar")]
pub(crate) fn decimal(value: i128, scale: u8, out: &mut Vec<u8>) -> bool {
    let magnitude = value.unsigned_abs();
    // Whole groups behind the point: zeros are put there, which dscale leaves out again.
    let fill = (4 - scale % 4) % 4;
    let Some(mut rest) = magnitude.checked_mul([1, 10, 100, 1000][usize::from(fill)]) else { return false };
    // 2^128 has 39 digits, so ten groups. Least significant first.
    let mut groups = [0u16; 10];
    let mut count = 0;
    while rest > 0 {
        // Division of 64 bits is several times faster, and most numbers are small.
        match u64::try_from(rest) {
            Ok(small) => {
                groups[count] = (small % 10_000) as u16;
                rest = u128::from(small / 10_000);
            }
            Err(_) => {
                groups[count] = (rest % 10_000) as u16;
                rest /= 10_000;
            }
        }
        count += 1;
    }
    let behind = i64::from(scale.div_ceil(4));
    // Groups of zeros at the end are not kept (numeric.c, strip_var).
    let zeros = groups[..count].iter().take_while(|group| **group == 0).count();
    let weight = if count == 0 { 0 } else { count as i64 - 1 - behind };
    let sign = if value < 0 { NEGATIVE } else { 0 };
    header((count - zeros) as i64, weight, sign, scale.into(), out);
    for group in groups[zeros..count].iter().rev() {
        out.extend_from_slice(&group.to_be_bytes());
    }
    true
}

/// A number as written.
struct Decimal<'a> {
    negative: bool,
    before: &'a [u8],
    after: &'a [u8],
    exponent: i64,
}

fn parse(value: &[u8]) -> Option<Decimal<'_>> {
    let (negative, rest) = match value {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, value),
    };
    let (before, rest) = split_digits(rest);
    let (after, rest) = match rest {
        [b'.', rest @ ..] => split_digits(rest),
        _ => (&[][..], rest),
    };
    if before.is_empty() && after.is_empty() {
        return None;
    }
    let exponent = match rest {
        [] => 0,
        [b'e' | b'E', rest @ ..] => exponent(rest)?,
        _ => return None,
    };
    Some(Decimal { negative, before, after, exponent })
}

fn exponent(value: &[u8]) -> Option<i64> {
    let digits = match value {
        [b'-' | b'+', rest @ ..] => rest,
        _ => value,
    };
    if digits.len() > MAX_EXPONENT_DIGITS {
        return None;
    }
    let magnitude = super::digits::number(digits)?.cast_signed();
    Some(if value[0] == b'-' { -magnitude } else { magnitude })
}

impl Decimal<'_> {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        let scale = (self.after.len() as i64 - self.exponent).max(0);
        let (before, after, zeros) = self.significant();
        // Power of ten of the first significant digit.
        let power = before.len() as i64 - 1 - zeros + self.exponent;
        if scale > MAX_SCALE || power > MAX_DIGITS_BEFORE {
            return false;
        }
        if before.is_empty() && after.is_empty() {
            header(0, 0, 0, scale, out);
            return true;
        }
        let weight = power.div_euclid(4);
        // Digits of the first group, 1 to 4.
        let first = (power - weight * 4 + 1) as u32;
        let groups = 1 + (before.len() + after.len()).saturating_sub(first as usize).div_ceil(4);
        header(groups as i64, weight, if self.negative { NEGATIVE } else { 0 }, scale, out);

        let (mut group, mut missing) = (0u16, first);
        for digit in before.iter().chain(after) {
            group = group * 10 + u16::from(digit - b'0');
            missing -= 1;
            if missing == 0 {
                out.extend_from_slice(&group.to_be_bytes());
                (group, missing) = (0, 4);
            }
        }
        // A group that was begun is filled up with zeros.
        if missing < 4 {
            out.extend_from_slice(&(group * 10u16.pow(missing)).to_be_bytes());
        }
        true
    }

    /// The digits without zeros at both ends, and the number of zeros dropped after the point before the
    /// first digit. The exponent of the first digit is `before.len() - 1 - zeros`.
    fn significant(&self) -> (&[u8], &[u8], i64) {
        let start = self.before.iter().position(|d| *d != b'0').unwrap_or(self.before.len());
        let mut before = &self.before[start..];
        let end = self.after.iter().rposition(|d| *d != b'0').map_or(0, |last| last + 1);
        let mut after = &self.after[..end];
        let mut zeros = 0;
        if before.is_empty() {
            let start = after.iter().position(|d| *d != b'0').unwrap_or(after.len());
            after = &after[start..];
            zeros = start as i64;
        } else if after.is_empty() {
            let whole = before.len();
            let end = before.iter().rposition(|d| *d != b'0').map_or(0, |last| last + 1);
            before = &before[..end];
            // The length counts places, so dropped places are given back as negative zeros.
            zeros = end as i64 - whole as i64;
        }
        (before, after, zeros)
    }
}

/// ndigits, weight, sign, dscale. All fit: digits and scale are bounded by the limits above.
#[allow(clippy::cast_possible_truncation)]
fn header(groups: i64, weight: i64, sign: u16, scale: i64, out: &mut Vec<u8>) {
    let mut bytes = [0; 8];
    bytes[0..2].copy_from_slice(&(groups as i16).to_be_bytes());
    bytes[2..4].copy_from_slice(&(weight as i16).to_be_bytes());
    bytes[4..6].copy_from_slice(&sign.to_be_bytes());
    bytes[6..8].copy_from_slice(&(scale as i16).to_be_bytes());
    out.extend_from_slice(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ndigits, weight, sign, dscale and digits.
    fn encode(value: &str) -> Option<Vec<i32>> {
        let mut out = Vec::new();
        numeric(value.as_bytes(), &mut out)
            .then(|| out.as_chunks::<2>().0.iter().map(|b| i32::from(i16::from_be_bytes(*b))).collect())
    }

    #[cfg(feature = "columnar")]
    #[test]
    fn decimals_are_as_their_text() {
        for value in [0, 1, -1, 5, 10, 9_999, 10_000, 12_345_678, -100_000_000, i64::MAX.into(), 1i128 << 100]
        {
            for scale in 0..=38 {
                let (mut direct, mut parsed) = (Vec::new(), Vec::new());
                if !decimal(value, scale, &mut direct) {
                    assert!(value.unsigned_abs() > u128::MAX / 1000);
                    continue;
                }
                let scale = usize::from(scale);
                let digits = format!("{:0width$}", value.unsigned_abs(), width = scale + 1);
                let (before, after) = digits.split_at(digits.len() - scale);
                let text = format!("{}{before}.{after}", if value < 0 { "-" } else { "" });
                assert!(numeric(text.as_bytes(), &mut parsed));
                assert_eq!(direct, parsed, "{text}");
            }
        }
    }

    #[test]
    fn golden() {
        assert_eq!(encode("0"), Some(vec![0, 0, 0, 0]));
        assert_eq!(encode("-0.00"), Some(vec![0, 0, 0, 2]));
        assert_eq!(encode("1"), Some(vec![1, 0, 0, 0, 1]));
        assert_eq!(encode("-12345.678"), Some(vec![3, 1, 0x4000, 3, 1, 2345, 6780]));
        assert_eq!(encode("10000"), Some(vec![1, 1, 0, 0, 1]));
        assert_eq!(encode("1000"), Some(vec![1, 0, 0, 0, 1000]));
        assert_eq!(encode("0.0001"), Some(vec![1, -1, 0, 4, 1]));
        assert_eq!(encode("0.00001"), Some(vec![1, -2, 0, 5, 1000]));
        assert_eq!(encode("1.5e3"), Some(vec![1, 0, 0, 0, 1500]));
        assert_eq!(encode("1e-3"), Some(vec![1, -1, 0, 3, 10]));
        assert_eq!(encode("1e400"), Some(vec![1, 100, 0, 0, 1]));
        assert_eq!(encode("5."), Some(vec![1, 0, 0, 0, 5]));
        assert_eq!(encode(".50"), Some(vec![1, -1, 0, 2, 5000]));
        assert_eq!(encode(" nan "), Some(vec![0, 0, -0x4000, 0]));
        for odd in ["", ".", "-", "e5", "1e", "1e+", "1 2", "Infinity", "0x1", "1_0", "1e999999", "1.2.3"] {
            assert_eq!(encode(odd), None, "{odd}");
        }
    }
}
