//! The narrowest type that holds every sampled value as it is.
//!
//! "As it is" is stricter than "the server's input function takes it": a leading zero, a plus sign, an
//! unusual date order or a one-sided `t` may be an identifier or a code and stays text.

use crate::ndjson::is_json_container;
use inrush_core::BaseType;
use std::net::IpAddr;

/// Digits beyond which a number is taken for an identifier.
const MAX_DIGITS: usize = 38;
/// Significant digits a double keeps.
const DOUBLE_DIGITS: usize = 15;
/// Exponents beyond which even numeric makes no sense.
const MAX_EXPONENT: i32 = 1000;

/// Forms a value can have; a column has the forms all its values share.
mod form {
    pub const BOOL_WORD: u32 = 1;
    pub const BOOL_LETTER: u32 = 1 << 1;
    pub const INT4: u32 = 1 << 2;
    pub const INT8: u32 = 1 << 3;
    pub const NUMERIC: u32 = 1 << 4;
    pub const FLOAT8: u32 = 1 << 5;
    pub const DATE: u32 = 1 << 6;
    pub const TIMESTAMP: u32 = 1 << 7;
    pub const TIMESTAMPTZ: u32 = 1 << 8;
    pub const TIME: u32 = 1 << 9;
    pub const UUID: u32 = 1 << 10;
    pub const JSON: u32 = 1 << 11;
    pub const INET: u32 = 1 << 12;
}

/// What was seen of one column.
#[derive(Debug, Clone)]
pub(super) struct Evidence {
    forms: u32,
    /// A number with an exponent, or one of the words for no number at all.
    scientific: bool,
    /// `t` and `f`: one of them alone is rather a code.
    letters: [bool; 2],
    pub(super) values: usize,
    pub(super) nulls: usize,
}

impl Default for Evidence {
    fn default() -> Self {
        Evidence { forms: u32::MAX, scientific: false, letters: [false; 2], values: 0, nulls: 0 }
    }
}

impl Evidence {
    /// Takes one more value of the column into account.
    pub(super) fn see(&mut self, value: Option<&[u8]>) {
        let Some(value) = value else {
            self.nulls += 1;
            return;
        };
        self.values += 1;
        if self.forms == 0 {
            return;
        }
        let (forms, scientific) = std::str::from_utf8(value).map_or((0, false), forms_of);
        self.forms &= forms;
        self.scientific |= scientific;
        self.letters[0] |= value.eq_ignore_ascii_case(b"t");
        self.letters[1] |= value.eq_ignore_ascii_case(b"f");
    }

    /// The narrowest type all values have; text where none was seen.
    pub(super) fn narrowest(&self) -> BaseType {
        let has = |form: u32| self.forms & form != 0;
        match () {
            () if self.values == 0 => BaseType::Text,
            () if has(form::BOOL_WORD) || has(form::BOOL_LETTER) && self.letters == [true; 2] => {
                BaseType::Bool
            }
            () if self.scientific && has(form::FLOAT8) => BaseType::Float8,
            () if has(form::INT4) => BaseType::Int4,
            () if has(form::INT8) => BaseType::Int8,
            () if has(form::NUMERIC) => BaseType::Numeric,
            () if has(form::DATE) => BaseType::Date,
            () if has(form::TIMESTAMP) => BaseType::Timestamp,
            () if has(form::TIMESTAMPTZ) => BaseType::Timestamptz,
            () if has(form::TIME) => BaseType::Time,
            () if has(form::UUID) => BaseType::Uuid,
            () if has(form::JSON) => BaseType::Json,
            () if has(form::INET) => BaseType::Inet,
            () => BaseType::Text,
        }
    }

    /// Whether the column is anything but text.
    pub(super) fn is_typed(&self) -> bool {
        self.narrowest() != BaseType::Text
    }
}

/// Whether a single value has any form but text: then it is hardly a column's name.
pub(super) fn looks_like_data(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|value| forms_of(value).0 & !form::BOOL_LETTER != 0)
}

/// The forms of a value, and whether it is a number in scientific form.
fn forms_of(value: &str) -> (u32, bool) {
    let Some(first) = value.bytes().next() else { return (0, false) };
    match value.len() {
        1 if matches!(first, b't' | b'f') => return (form::BOOL_LETTER, false),
        4 | 5 if value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false") => {
            return (form::BOOL_WORD, false);
        }
        _ => {}
    }
    if matches!(value, "NaN" | "Infinity" | "-Infinity") {
        return (form::FLOAT8 | form::NUMERIC, true);
    }
    if let Some(number) = number(value) {
        return number;
    }
    let forms = match first {
        b'{' | b'[' if is_json_container(value.as_bytes()) => form::JSON,
        b'0'..=b'9' if moment(value) != 0 => moment(value),
        _ if is_uuid(value) => form::UUID,
        _ if is_inet(value) => form::INET,
        _ => 0,
    };
    (forms, false)
}

/// The forms of a decimal number.
fn number(value: &str) -> Option<(u32, bool)> {
    let unsigned = value.strip_prefix('-').unwrap_or(value);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    let well_formed = digits(whole)
        && !leading_zero
        && fraction.is_none_or(|f| !f.is_empty() && digits(f))
        && !(whole.is_empty() && fraction.is_none())
        && exponent.is_none_or(|e| {
            let e = e.strip_prefix(['+', '-']).unwrap_or(e);
            !e.is_empty() && e.len() <= 4 && digits(e)
        });
    let length = whole.len() + fraction.map_or(0, str::len);
    if !well_formed || length > MAX_DIGITS || value == "-0" {
        return None;
    }
    let mut forms = form::NUMERIC;
    if exponent.is_some_and(|e| e.parse::<i32>().is_ok_and(|e| e.abs() > MAX_EXPONENT)) {
        forms = 0;
    }
    if fraction.is_none() && exponent.is_none() {
        forms |= if value.parse::<i32>().is_ok() { form::INT4 } else { 0 };
        forms |= if value.parse::<i64>().is_ok() { form::INT8 } else { 0 };
    }
    let significant = mantissa.bytes().filter(u8::is_ascii_digit).skip_while(|&b| b == b'0').count();
    // float8in refuses what overflows, and what becomes zero without being it; what is denormal loses digits.
    let in_range = value.parse::<f64>().is_ok_and(|f| f.is_normal() || significant == 0);
    if in_range && significant <= DOUBLE_DIGITS {
        forms |= form::FLOAT8;
    }
    (forms != 0).then_some((forms, exponent.is_some()))
}

/// The forms of an ISO 8601 date, time or both.
fn moment(value: &str) -> u32 {
    let bytes = value.as_bytes();
    if time(value).is_some_and(str::is_empty) {
        return form::TIME;
    }
    if !value.is_char_boundary(10) || value.len() < 10 || !date(&bytes[..10]) {
        return 0;
    }
    if value.len() == 10 {
        // A date is a moment too: a column of both is one of moments.
        return form::DATE | form::TIMESTAMP;
    }
    let Some(rest) = value[10..].strip_prefix(['T', ' ']) else { return 0 };
    match time(rest) {
        Some("") => form::TIMESTAMP,
        Some(zone) if is_zone(zone) => form::TIMESTAMPTZ,
        _ => 0,
    }
}

fn two(bytes: &[u8]) -> Option<u32> {
    match bytes {
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Some(u32::from(a - b'0') * 10 + u32::from(b - b'0')),
        _ => None,
    }
}

/// `YYYY-MM-DD` of a day that exists.
fn date(bytes: &[u8]) -> bool {
    let (Some(century), Some(year), Some(month), Some(day)) =
        (two(&bytes[..2]), two(&bytes[2..4]), two(&bytes[5..7]), two(&bytes[8..]))
    else {
        return false;
    };
    let year = century * 100 + year;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        1..=12 => 31,
        _ => 0,
    };
    bytes[4] == b'-' && bytes[7] == b'-' && year > 0 && (1..=days).contains(&day)
}

/// `HH:MM`, `HH:MM:SS` or `HH:MM:SS.fraction` at the start of `text`; what stands behind it. Digits beyond
/// the microsecond must be zeros: the server would round them away.
fn time(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let part = |at: usize, below: u32| {
        let ok = bytes.get(at..at + 2).and_then(two).is_some_and(|n| n < below);
        ok.then_some(())
    };
    part(0, 24)?;
    if bytes.get(2) != Some(&b':') {
        return None;
    }
    part(3, 60)?;
    if bytes.get(5) != Some(&b':') {
        return text.get(5..);
    }
    part(6, 60)?;
    let Some(fraction) = text.get(8..)?.strip_prefix('.') else { return text.get(8..) };
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    let kept = (1..=9).contains(&digits) && fraction.bytes().take(digits).skip(6).all(|b| b == b'0');
    if kept { fraction.get(digits..) } else { None }
}

/// `Z`, `+HH`, `+HHMM` or `+HH:MM`; a zone by name or abbreviation depends on the server's tables.
fn is_zone(zone: &str) -> bool {
    if zone == "Z" {
        return true;
    }
    let Some(offset) = zone.strip_prefix(['+', '-']) else { return false };
    let digits: Vec<u8> = match offset.as_bytes() {
        [h, i, b':', m, n] => vec![*h, *i, *m, *n],
        other => other.to_vec(),
    };
    let ok =
        |range: std::ops::Range<usize>, below| digits.get(range).and_then(two).is_some_and(|n| n < below);
    // 15:59:59 is the most the server takes (MAX_TZDISP_HOUR).
    matches!(digits.len(), 2 | 4) && ok(0..2, 16) && (digits.len() == 2 || ok(2..4, 60))
}

fn is_uuid(value: &str) -> bool {
    value.len() == 36
        && value.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

/// An address, perhaps with the length of its network. What has colons and dots is left to who asks for inet.
fn is_inet(value: &str) -> bool {
    let (address, bits) = match value.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (value, None),
    };
    if address.contains(':') && address.contains('.') {
        return false;
    }
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let most = if address.is_ipv4() { 32 } else { 128 };
    bits.is_none_or(|b| (b == "0" || !b.starts_with(['0', '+'])) && b.parse::<u32>().is_ok_and(|n| n <= most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> BaseType {
        let mut evidence = Evidence::default();
        for value in values {
            evidence.see(Some(value.as_bytes()));
        }
        evidence.narrowest()
    }

    #[test]
    fn values_in_their_plain_form_are_typed() {
        use BaseType::*;
        let cases: &[(&[&str], BaseType)] = &[
            (&["true", "FALSE"], Bool),
            (&["t", "f"], Bool),
            (&["0", "-1", "2147483647"], Int4),
            (&["0", "2147483648"], Int8),
            (&["1", "9223372036854775808"], Numeric),
            (&["1", "1.50", ".5"], Numeric),
            (&["1.5", "1e-3"], Float8),
            (&["1.5", "NaN"], Float8),
            (&["1.2345678901234567890", "1e5"], Numeric),
            (&["1e400", "1"], Numeric),
            (&["1522e-320", "1"], Numeric),
            (&["2024-02-29", "0001-01-01"], Date),
            (&["2024-01-01", "2024-01-01 00:00:00"], Timestamp),
            (&["2024-01-01T23:59:59.123456", "2024-01-01 10:00", "2024-01-01 10:00:00.123456000"], Timestamp),
            (&["2024-01-01T00:00:00Z", "2024-01-01 00:00:00+05:30", "2024-01-01 00:00:00-08"], Timestamptz),
            (&["00:00", "23:59:59.5"], Time),
            (&["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], Uuid),
            (&["{\"a\":1}", "[]"], Json),
            (&["10.0.0.1", "::1", "10.0.0.0/8"], Inet),
            (&["::1", "::10.0.0.1/8"], Text),
        ];
        for (values, ty) in cases {
            assert_eq!(of(values), *ty, "{values:?}");
        }
    }

    #[test]
    fn everything_doubtful_stays_text() {
        for values in [
            &["007"][..],
            &["-07"],
            &["+1"],
            &["1,5"],
            &["1 000"],
            &["1."],
            &["-0"],
            &[" 1"],
            &["0x10"],
            &["1_000"],
            &["t"],
            &["f", "f"],
            &["yes", "no"],
            &["1", "true"],
            &["1e99999"],
            &["1e400", "NaN", "x"],
            &["123456789012345678901234567890123456789"],
            &["2023-02-29"],
            &["2024-13-01"],
            &["01/02/2024"],
            &["2024-1-1"],
            &["0000-01-01"],
            &["24:00"],
            &["2024-01-01T00:00:00 CET"],
            &["2024-01-01 00:00:00", "2024-01-01 00:00:00Z"],
            &["2024-01-01 00:00:00.123456789"],
            &["12:60"],
            &["2024-01-01ä"],
            &["{1,2}"],
            &["[1"],
            &["10.0.0.256"],
            &["010.0.0.1"],
            &["10.0.0.1/33"],
            &[""],
            &["1", ""],
        ] {
            assert_eq!(of(values), BaseType::Text, "{values:?}");
        }
    }

    #[test]
    fn nulls_do_not_count_as_values() {
        let mut evidence = Evidence::default();
        evidence.see(None);
        assert_eq!(evidence.narrowest(), BaseType::Text);
        evidence.see(Some(b"1"));
        evidence.see(None);
        assert_eq!((evidence.narrowest(), evidence.nulls), (BaseType::Int4, 2));
    }
}
