//! numeric (numeric.c, set_var_from_str and numeric_recv): base-10000 digits, weight of the first, sign,
//! scale shown. numeric_recv applies the column's type modifier with the same function as numeric_in; for the
//! stored form (numeric.c, make_result and apply_typmod) it is applied here.

use super::digits::{split_digits, trim};

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
/// NUMERIC_DSCALE_MAX
const MAX_SCALE: i64 = 0x3fff;
/// Well inside what the server takes (131072 digits before the point); longer numbers are left to it.
const MAX_DIGITS_BEFORE: i64 = 100_000;
/// Digits of an exponent that are read here.
const MAX_EXPONENT_DIGITS: usize = 5;

/// How a number is laid out.
pub(crate) trait Layout {
    /// What stands before the digits. All fit 16 bits: digits and scale are bounded by the limits above.
    fn header(groups: i64, weight: i64, sign: u16, scale: i64, out: &mut Vec<u8>);
    /// Four decimal digits.
    fn group(digits: u16) -> [u8; 2];
}

/// As numeric_recv reads it: ndigits, weight, sign, dscale, digits; most significant byte first.
pub(crate) enum Received {}

/// As the heap has it (numeric.c, NumericData), without the varlena's header.
pub(crate) enum Stored {}

impl Layout for Received {
    #[allow(clippy::cast_possible_truncation)]
    fn header(groups: i64, weight: i64, sign: u16, scale: i64, out: &mut Vec<u8>) {
        let mut bytes = [0; 8];
        bytes[0..2].copy_from_slice(&(groups as i16).to_be_bytes());
        bytes[2..4].copy_from_slice(&(weight as i16).to_be_bytes());
        bytes[4..6].copy_from_slice(&sign.to_be_bytes());
        bytes[6..8].copy_from_slice(&(scale as i16).to_be_bytes());
        out.extend_from_slice(&bytes);
    }

    fn group(digits: u16) -> [u8; 2] {
        digits.to_be_bytes()
    }
}

impl Layout for Stored {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn header(_: i64, weight: i64, sign: u16, scale: i64, out: &mut Vec<u8>) {
        let (weight, scale) = (weight as i16, scale as u16);
        // NUMERIC_CAN_BE_SHORT
        if sign == NAN {
            out.extend_from_slice(&NAN.to_le_bytes());
        } else if scale <= 0x3f && (-64..=63).contains(&weight) {
            let negative = if sign == NEGATIVE { 0x2000 } else { 0 };
            // The lowest seven bits of two's complement are NUMERIC_SHORT_WEIGHT_SIGN_MASK and its six digits.
            let header = 0x8000 | negative | scale << 7 | (weight as u16 & 0x7f);
            out.extend_from_slice(&header.to_le_bytes());
        } else {
            out.extend_from_slice(&(sign | scale).to_le_bytes());
            out.extend_from_slice(&weight.to_le_bytes());
        }
    }

    fn group(digits: u16) -> [u8; 2] {
        digits.to_le_bytes()
    }
}

/// `numeric(precision, scale)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modifier {
    precision: i64,
    /// From -1000 to 1000.
    scale: i64,
}

impl Modifier {
    /// Of pg_attribute.atttypmod (numeric.c, make_numeric_typmod); `None` where any number is taken as it is.
    pub(crate) fn of(typmod: i32) -> Option<Modifier> {
        let bits = i64::from(typmod) - 4;
        (bits >= 0)
            .then_some(Modifier { precision: bits >> 16 & 0xffff, scale: ((bits & 0x7ff) ^ 1024) - 1024 })
    }

    /// Digits before the point.
    fn before(self) -> i64 {
        self.precision - self.scale
    }
}

/// Appends the value: `[+-]digits[.digits][e[+-]digits]` or NaN. Infinity, hexadecimal and underscores are
/// left to the server.
pub(super) fn numeric(value: &[u8], out: &mut Vec<u8>) -> bool {
    append::<Received>(value, None, out)
}

/// Appends the stored form, rounded to the column's scale. What does not fit the column is left to the server.
pub(super) fn stored(value: &[u8], modifier: Option<Modifier>, out: &mut Vec<u8>) -> bool {
    append::<Stored>(value, modifier, out)
}

// Measured (examples/encode_speed, 10 x numeric): inlining all of it here and below saves 3 ns a value.
#[inline(always)]
fn append<L: Layout>(value: &[u8], modifier: Option<Modifier>, out: &mut Vec<u8>) -> bool {
    let value = trim(value);
    match parse(value) {
        Some(decimal) => match modifier {
            None => decimal.append::<L>(decimal.scale(), out),
            Some(modifier) => decimal.append_rounded::<L>(modifier, out),
        },
        None if value.eq_ignore_ascii_case(b"NaN") => {
            L::header(0, 0, NAN, 0, out);
            true
        }
        None => false,
    }
}

/// Appends a number of columnar inputs: an integer of which so many digits stand behind the point. False
/// where scaling it to whole groups of digits could overflow; its text is no problem.
#[cfg(feature = "columnar")]
pub(crate) fn decimal(value: i128, scale: u8, out: &mut Vec<u8>) -> bool {
    append_decimal::<Received>(value, scale, scale.into(), out)
}

/// As [`decimal`], in the stored form. False also for what has to be rounded or does not fit the column.
#[cfg(feature = "columnar")]
pub(crate) fn stored_decimal(value: i128, scale: u8, modifier: Option<Modifier>, out: &mut Vec<u8>) -> bool {
    let shown = match modifier {
        None => i64::from(scale),
        Some(modifier) => {
            let power = value.unsigned_abs().checked_ilog10().map(|log| i64::from(log) - i64::from(scale));
            let fits = power.is_none_or(|power| power < modifier.before());
            if modifier.scale < scale.into() || !fits {
                return false;
            }
            modifier.scale
        }
    };
    append_decimal::<Stored>(value, scale, shown, out)
}

/// `shown` is the number of digits that are shown behind the point.
#[cfg(feature = "columnar")]
fn append_decimal<L: Layout>(value: i128, scale: u8, shown: i64, out: &mut Vec<u8>) -> bool {
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
    L::header((count - zeros) as i64, weight, sign, shown, out);
    for group in groups[zeros..count].iter().rev() {
        out.extend_from_slice(&L::group(*group));
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

#[inline(always)]
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

/// Digits that are rounded up here; with more the server does it.
const ROUNDED_DIGITS: usize = 80;

impl Decimal<'_> {
    /// Digits behind the point as written.
    fn scale(&self) -> i64 {
        (self.after.len() as i64 - self.exponent).max(0)
    }

    /// Rounds half away from zero to the column's scale (numeric.c, round_var) and appends what fits.
    #[inline(never)]
    fn append_rounded<L: Layout>(&self, modifier: Modifier, out: &mut Vec<u8>) -> bool {
        let (before, after) = (self.before.len() as i64, self.after.len() as i64);
        // How many of the digits are kept.
        let kept = before + self.exponent + modifier.scale;
        if kept >= before + after {
            return self.append_within::<L>(modifier, out);
        }
        let split = usize::try_from(kept).unwrap_or(0).min(self.before.len());
        let behind = usize::try_from(kept).unwrap_or(0) - split;
        let next = if kept < 0 {
            b'0'
        } else {
            *self.before[split..].iter().chain(&self.after[behind..]).next().unwrap_or(&b'0')
        };
        let (head, tail) = (&self.before[..split], &self.after[..behind]);
        if next < b'5' {
            let exponent =
                if tail.is_empty() { self.exponent + before - split as i64 } else { self.exponent };
            return Decimal { before: head, after: tail, exponent, ..*self }
                .append_within::<L>(modifier, out);
        }
        let count = head.len() + tail.len();
        let mut digits = [b'0'; ROUNDED_DIGITS + 1];
        let Some(kept) = digits.get_mut(..=count) else { return false };
        for (to, from) in kept[1..].iter_mut().zip(head.iter().chain(tail)) {
            *to = *from;
        }
        for digit in kept.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                break;
            }
            *digit = b'0';
        }
        let exponent = self.exponent + before - count as i64;
        Decimal { before: kept, after: &[], exponent, ..*self }.append_within::<L>(modifier, out)
    }

    /// Appends what needs no more rounding, if it is not too large (numeric.c, apply_typmod).
    fn append_within<L: Layout>(&self, modifier: Modifier, out: &mut Vec<u8>) -> bool {
        let (before, after, zeros) = self.significant();
        let power = before.len() as i64 - 1 - zeros + self.exponent;
        let is_zero = before.is_empty() && after.is_empty();
        (is_zero || power < modifier.before()) && self.append::<L>(modifier.scale.max(0), out)
    }

    /// Appends it with so many digits shown behind the point.
    #[inline(always)]
    fn append<L: Layout>(&self, scale: i64, out: &mut Vec<u8>) -> bool {
        let (before, after, zeros) = self.significant();
        // Power of ten of the first significant digit.
        let power = before.len() as i64 - 1 - zeros + self.exponent;
        if scale > MAX_SCALE || power > MAX_DIGITS_BEFORE {
            return false;
        }
        if before.is_empty() && after.is_empty() {
            L::header(0, 0, 0, scale, out);
            return true;
        }
        let weight = power.div_euclid(4);
        // Digits of the first group, 1 to 4.
        let first = (power - weight * 4 + 1) as u32;
        let groups = 1 + (before.len() + after.len()).saturating_sub(first as usize).div_ceil(4);
        L::header(groups as i64, weight, if self.negative { NEGATIVE } else { 0 }, scale, out);

        let (mut group, mut missing) = (0u16, first);
        for digit in before.iter().chain(after) {
            group = group * 10 + u16::from(digit - b'0');
            missing -= 1;
            if missing == 0 {
                out.extend_from_slice(&L::group(group));
                (group, missing) = (0, 4);
            }
        }
        // A group that was begun is filled up with zeros.
        if missing < 4 {
            out.extend_from_slice(&L::group(group * 10u16.pow(missing)));
        }
        true
    }

    /// The digits without zeros at both ends, and the number of zeros dropped after the point before the
    /// first digit. The exponent of the first digit is `before.len() - 1 - zeros`.
    #[inline(always)]
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

    /// The stored form in hexadecimal, most significant byte of each int2 first.
    fn stored_hex(value: &str, precision: i32, scale: i32) -> Option<String> {
        let modifier = Modifier::of((precision << 16 | scale & 0x7ff) + 4);
        let mut out = Vec::new();
        stored(value.as_bytes(), modifier, &mut out).then(|| {
            out.as_chunks::<2>().0.iter().map(|b| format!("{:04x}", u16::from_le_bytes(*b))).collect()
        })
    }

    #[test]
    fn modifiers() {
        assert_eq!(Modifier::of(-1), None);
        assert_eq!(Modifier::of((10 << 16 | 2) + 4), Some(Modifier { precision: 10, scale: 2 }));
        assert_eq!(Modifier::of((4 << 16 | 0x7fe) + 4), Some(Modifier { precision: 4, scale: -2 }));
    }

    #[test]
    fn stored_forms_are_rounded() {
        let stored_2 = |value| stored_hex(value, 6, 2);
        assert_eq!(stored_2("1.005").as_deref(), Some("810000010064"));
        assert_eq!(stored_2("-1.004").as_deref(), Some("a1000001"));
        assert_eq!(stored_2("9999.994").as_deref(), Some("8100270f26ac"));
        assert_eq!(stored_2("9999.995"), None, "five digits before the point");
        assert_eq!(stored_2("99.995").as_deref(), Some("81000064"));
        assert_eq!(stored_2("0.005").as_deref(), Some("817f0064"));
        assert_eq!(stored_2("-0.0049").as_deref(), Some("8100"));
        assert_eq!(stored_2("5e-3").as_deref(), Some("817f0064"));
        assert_eq!(stored_2("5e-4").as_deref(), Some("8100"));
        assert_eq!(stored_2("12e2").as_deref(), Some("810004b0"));
        assert_eq!(stored_2("1e4"), None);
        assert_eq!(stored_2("nan").as_deref(), Some("c000"));
        assert_eq!(stored_hex("150", 4, -2).as_deref(), Some("800000c8"));
        assert_eq!(stored_hex("49", 4, -2).as_deref(), Some("8000"));
        assert_eq!(stored_hex("50", 4, -2).as_deref(), Some("80000064"));
        assert_eq!(stored_hex("0.009995", 3, 5), None);
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
