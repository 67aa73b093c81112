//! date, time, timetz, timestamp, timestamptz (date.c, timestamp.c, datetime.c).
//!
//! Encoded: `YYYY-MM-DD`, `HH:MM[:SS[.ffffff]]`, both joined by a space or `T`, numeric offsets and `Z`,
//! `infinity`. These read the same under every DateStyle. Leap seconds, 24:00:00, more than nine digits
//! of fraction, BC, years of other lengths, zone names and special words are left to the server.

use super::digits;

const USECS_PER_SEC: i64 = 1_000_000;
const USECS_PER_DAY: i64 = 86_400 * USECS_PER_SEC;

/// Days since 2000-01-01.
#[inline]
pub(super) fn date(value: &[u8]) -> Option<i32> {
    match value.try_into() {
        Ok(value) => calendar_date(value),
        Err(_) => infinite(value).map(|late| if late { i32::MAX } else { i32::MIN }),
    }
}

/// Microseconds since 2000-01-01 00:00:00. An offset is checked and then ignored, as timestamp_in does.
#[inline]
pub(super) fn timestamp(value: &[u8]) -> Option<i64> {
    match moment(value) {
        Some((local, _)) => Some(local),
        None => infinite(value).map(|late| if late { i64::MAX } else { i64::MIN }),
    }
}

/// Microseconds since 2000-01-01 00:00:00 UTC. Without an offset only if the session's TimeZone is UTC.
#[inline]
pub(super) fn timestamptz(value: &[u8], timezone_is_utc: bool) -> Option<i64> {
    match moment(value) {
        Some((local, Some(east))) => Some(local - i64::from(east) * USECS_PER_SEC),
        Some((local, None)) => timezone_is_utc.then_some(local),
        None => infinite(value).map(|late| if late { i64::MAX } else { i64::MIN }),
    }
}

/// Microseconds since midnight.
#[inline]
pub(super) fn time(value: &[u8]) -> Option<i64> {
    match clock(value)? {
        (time, []) => Some(time),
        _ => None,
    }
}

/// Microseconds since midnight and seconds west of UTC. Without an offset the server takes the session's
/// offset of today, so that is left to it.
#[inline]
pub(super) fn timetz(value: &[u8]) -> Option<(i64, i32)> {
    let (time, rest) = clock(value)?;
    Some((time, -offset(rest)??))
}

/// Rounds microseconds to so many digits behind the point, halves away from zero (date.c, AdjustTimeForTypmod;
/// timestamp.c, AdjustTimestampForTypmod). Infinities stay what they are.
#[inline]
pub(super) fn rounded(micros: i64, digits: Option<u8>) -> i64 {
    const UNITS: [i64; 6] = [1_000_000, 100_000, 10_000, 1_000, 100, 10];
    let unit = match digits {
        Some(digits) if micros != i64::MIN && micros != i64::MAX => UNITS.get(usize::from(digits)),
        _ => None,
    };
    match unit {
        // Times and timestamps are far enough from the ends of 64 bits.
        Some(unit) => (micros.saturating_add(micros.signum() * (unit / 2))) / unit * unit,
        None => micros,
    }
}

/// Local time, and seconds east of UTC if an offset is given.
#[inline]
fn moment(value: &[u8]) -> Option<(i64, Option<i32>)> {
    let (day, rest) = value.split_first_chunk::<10>()?;
    let midnight = i64::from(calendar_date(day)?) * USECS_PER_DAY;
    match rest {
        [b' ' | b'T', rest @ ..] => {
            let (time, rest) = clock(rest)?;
            Some((midnight + time, offset(rest)?))
        }
        [] => Some((midnight, None)),
        _ => None,
    }
}

/// Digits (or zero for the separators) of eight characters that have the shape of `like`, in which `0`
/// stands for any digit.
#[inline]
fn shaped(value: [u8; 8], like: [u8; 8]) -> Option<u64> {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // With the pattern taken away a digit is 0 to 9 and a separator 0. Adding what is missing to 128 sets a
    // byte's high bit if it is more than that.
    let slack = u64::from_le_bytes(like.map(|byte| if byte == b'0' { 0x76 } else { 0x7f }));
    let digits = u64::from_le_bytes(value) ^ u64::from_le_bytes(like);
    ((digits | digits.wrapping_add(slack)) & HIGH == 0).then_some(digits)
}

/// The two digits at byte `at`.
#[inline]
fn pair(digits: u64, at: u32) -> u32 {
    // No byte of the sum is over 99, so nothing carries; the mask makes the cast exact.
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    (pairs >> (8 * at) & 0xff) as u32
}

#[inline]
fn calendar_date(value: &[u8; 10]) -> Option<i32> {
    let [y1, y2, y3, y4, s1, m1, m2, s2, d1, d2] = *value;
    let head = shaped([y1, y2, y3, y4, s1, m1, m2, s2], *b"0000-00-")?;
    let tail = shaped([d1, d2, b'0', b'0', b'0', b'0', b'0', b'0'], *b"00000000")?;
    let year = pair(head, 0) * 100 + pair(head, 2);
    let (month, day) = (pair(head, 5), pair(tail, 0));
    if year == 0 || month.wrapping_sub(1) >= 12 || day.wrapping_sub(1) >= days_of_month(year, month) {
        return None;
    }
    Some(days_from_2000(year, month, day))
}

#[inline]
fn days_of_month(year: u32, month: u32) -> u32 {
    const DAYS: [u8; 13] = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    u32::from(DAYS[month as usize]) + u32::from(month == 2 && leap)
}

/// Days from 2000-01-01 in the proleptic Gregorian calendar; year 1 to 9999.
#[inline]
fn days_from_2000(year: u32, month: u32, day: u32) -> i32 {
    // Years that start in March have their leap day last, so that days before a month follow one line.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    // 2000-01-01 by the same formula; all below 2^22.
    days.cast_signed() - 730_425
}

/// `HH:MM[:SS[.f]]` at the start, in microseconds, and what follows.
#[inline]
fn clock(value: &[u8]) -> Option<(i64, &[u8])> {
    let (hms, rest) = match value.split_first_chunk::<8>() {
        Some((hms, rest)) if hms[5] == b':' => (shaped(*hms, *b"00:00:00")?, rest),
        _ => {
            let (hm, rest) = value.split_first_chunk::<5>()?;
            let [h1, h2, colon, m1, m2] = *hm;
            (shaped([h1, h2, colon, m1, m2, b':', b'0', b'0'], *b"00:00:00")?, rest)
        }
    };
    let (hour, minute, second) = (pair(hms, 0), pair(hms, 3), pair(hms, 6));
    if hour >= 24 || minute >= 60 || second >= 60 {
        return None;
    }
    let time = i64::from(hour * 3600 + minute * 60 + second) * USECS_PER_SEC;
    match rest {
        [b'.', rest @ ..] if value.get(5) == Some(&b':') => {
            let (fraction, rest) = fraction(rest)?;
            Some((time + fraction, rest))
        }
        _ => Some((time, rest)),
    }
}

/// One to nine digits after the point, in microseconds, and what follows.
#[inline]
pub(super) fn fraction(value: &[u8]) -> Option<(i64, &[u8])> {
    const SCALE: [i64; 7] = [0, 100_000, 10_000, 1_000, 100, 10, 1];
    // Nearly always the fraction is all that is left.
    if let (Some(scale), Some(number)) = (SCALE.get(value.len()), digits::number(value)) {
        return Some((number.cast_signed() * scale, &[]));
    }
    let (digits, rest) = digits::split_digits(value);
    match SCALE.get(digits.len()) {
        Some(scale) => Some((digits::number(digits)?.cast_signed() * scale, rest)),
        None => Some((nanoseconds(digits)?, rest)),
    }
}

/// Seven to nine digits after the point, rounded to microseconds in floating point as the server does
/// (datetime.c, ParseFractionalSecond). What rounds up to a whole second is left to it.
fn nanoseconds(digits: &[u8]) -> Option<i64> {
    let scale = match digits.len() {
        7 => 1e7,
        8 => 1e8,
        9 => 1e9,
        _ => return None,
    };
    // Both are exact, so the quotient is what strtod makes of the text.
    let seconds = digits::number(digits)? as f64 / scale;
    let micros = (seconds * 1e6).round_ties_even() as i64;
    (micros < USECS_PER_SEC).then_some(micros)
}

/// Seconds east of UTC: nothing, `Z`, `±HH`, `±HHMM`, `±HH:MM` or `±HH:MM:SS`, after at most one space
/// (datetime.c, DecodeTimezone).
#[inline]
fn offset(value: &[u8]) -> Option<Option<i32>> {
    let value = match value {
        [] => return Some(None),
        [b' ', rest @ ..] => rest,
        _ => value,
    };
    let two = |tens: u8, ones: u8| -> Option<i32> {
        let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
        (tens < 10 && ones < 10).then(|| i32::from(tens * 10 + ones))
    };
    let (sign, hour, minute, second) = match *value {
        [b'Z'] => return Some(Some(0)),
        [s @ (b'+' | b'-'), h1, h2] => (s, two(h1, h2)?, 0, 0),
        [s @ (b'+' | b'-'), h1, h2, m1, m2] => (s, two(h1, h2)?, two(m1, m2)?, 0),
        [s @ (b'+' | b'-'), h1, h2, b':', m1, m2] => (s, two(h1, h2)?, two(m1, m2)?, 0),
        [s @ (b'+' | b'-'), h1, h2, b':', m1, m2, b':', s1, s2] => {
            (s, two(h1, h2)?, two(m1, m2)?, two(s1, s2)?)
        }
        _ => return None,
    };
    // MAX_TZDISP_HOUR
    if hour > 15 || minute >= 60 || second >= 60 {
        return None;
    }
    let east = hour * 3600 + minute * 60 + second;
    Some(Some(if sign == b'-' { -east } else { east }))
}

/// Whether it is `infinity` (true) or `-infinity` (false).
#[cold]
fn infinite(value: &[u8]) -> Option<bool> {
    match value {
        b"infinity" => Some(true),
        b"-infinity" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates() {
        assert_eq!(date(b"2000-01-01"), Some(0));
        assert_eq!(date(b"1999-12-31"), Some(-1));
        assert_eq!(date(b"2024-02-29"), Some(8825));
        assert_eq!(date(b"0001-01-01"), Some(-730_119));
        assert_eq!(date(b"9999-12-31"), Some(2_921_939));
        assert_eq!(date(b"infinity"), Some(i32::MAX));
        for odd in
            ["2023-02-29", "1900-02-29", "0000-01-01", "2023-13-01", "2023-00-01", "2023-01-00", "today"]
        {
            assert_eq!(date(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn moments() {
        assert_eq!(timestamp(b"2000-01-01 00:00:01.5"), Some(1_500_000));
        assert_eq!(timestamp(b"2000-01-01T00:01"), Some(60_000_000));
        assert_eq!(timestamp(b"2000-01-01"), Some(0));
        assert_eq!(timestamp(b"2000-01-01 00:00:00+02"), Some(0));
        assert_eq!(timestamptz(b"2000-01-01 02:00:00+02", false), Some(0));
        assert_eq!(timestamptz(b"2000-01-01 00:00:00 -0130", false), Some(5_400_000_000));
        assert_eq!(timestamptz(b"2000-01-01 00:00:00", false), None);
        assert_eq!(timestamptz(b"2000-01-01 00:00:00", true), Some(0));
        assert_eq!(timestamptz(b"-infinity", false), Some(i64::MIN));
        assert_eq!(timetz(b"00:00:01+02:30"), Some((1_000_000, -9000)));
        assert_eq!(timetz(b"00:00:01"), None);
        assert_eq!(time(b"23:59:59.999999"), Some(USECS_PER_DAY - 1));
        for odd in [
            "24:00:00",
            "23:59:60",
            "23:60:00",
            "1:00:00",
            "00:00:00.",
            "00:00:00.9999999",
            "00:00:00.1234567890",
            "00:00.5",
            "00:00:00+01",
        ] {
            assert_eq!(time(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        assert_eq!(rounded(1_500_000, Some(0)), 2_000_000);
        assert_eq!(rounded(-1_500_000, Some(0)), -2_000_000);
        assert_eq!(rounded(-1_499_999, Some(0)), -1_000_000);
        assert_eq!(rounded(1_234_449, Some(3)), 1_234_000);
        assert_eq!(rounded(1_234_567, Some(6)), 1_234_567);
        assert_eq!(rounded(1_234_567, None), 1_234_567);
        assert_eq!(rounded(USECS_PER_DAY - 1, Some(5)), USECS_PER_DAY);
        assert_eq!((rounded(i64::MAX, Some(0)), rounded(i64::MIN, Some(0))), (i64::MAX, i64::MIN));
    }

    /// The judge: counts days one year and one month at a time.
    fn plain_days(year: u32, month: u32, day: u32) -> i32 {
        let leap = |y: u32| (y.is_multiple_of(4) && !y.is_multiple_of(100)) || y.is_multiple_of(400);
        let years: u32 = (1..year).map(|y| 365 + u32::from(leap(y))).sum();
        let months: u32 = (1..month)
            .map(|m| match m {
                2 => 28 + u32::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            })
            .sum();
        (years + months + day - 1).cast_signed() - 730_119
    }

    #[test]
    fn every_day_of_some_years() {
        for year in [1, 4, 100, 400, 1582, 1900, 1999, 2000, 2001, 2024, 2100, 9999] {
            let mut expected = plain_days(year, 1, 1);
            for month in 1..=12 {
                for day in 1..=31 {
                    let text = format!("{year:04}-{month:02}-{day:02}");
                    if let Some(days) = date(text.as_bytes()) {
                        assert_eq!(days, expected, "{text}");
                        expected += 1;
                    }
                }
            }
            assert_eq!(expected, plain_days(year + 1, 1, 1), "all days of {year}");
        }
    }

    /// The judge of one clock reading: digit by digit.
    fn plain_clock(text: &str) -> Option<i64> {
        let bytes = text.as_bytes();
        let two = |at: usize| -> Option<i64> {
            let pair = bytes.get(at..at + 2)?;
            pair.iter()
                .all(u8::is_ascii_digit)
                .then(|| i64::from(pair[0] - b'0') * 10 + i64::from(pair[1] - b'0'))
        };
        let (hour, minute, second) = (two(0)?, two(3)?, two(6)?);
        let fits = bytes.len() == 8 && bytes[2] == b':' && bytes[5] == b':';
        (fits && hour < 24 && minute < 60 && second < 60)
            .then_some((hour * 3600 + minute * 60 + second) * USECS_PER_SEC)
    }

    proptest! {
        #[test]
        fn any_eight_characters(text in "[0-9:]{2}[:0-9][0-9]{2}[:][0-9/]{2}") {
            prop_assert_eq!(time(text.as_bytes()), plain_clock(&text));
        }

        #[test]
        fn one_wrong_byte_is_found(h in 0..24, m in 0..60, s in 0..60, at in 0usize..8, byte in 0u8..128) {
            let mut bytes = format!("{h:02}:{m:02}:{s:02}").into_bytes();
            bytes[at] = byte;
            let text = String::from_utf8(bytes).expect("ASCII");
            prop_assert_eq!(time(text.as_bytes()), plain_clock(&text));
        }

        #[test]
        fn any_date(year in 1u32..10_000, month in 1u32..13, day in 1u32..32) {
            let text = format!("{year:04}-{month:02}-{day:02}");
            if let Some(days) = date(text.as_bytes()) {
                prop_assert_eq!(days, plain_days(year, month, day));
            } else {
                prop_assert!(day > 28);
            }
        }

        #[test]
        fn no_byte_string_panics(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (date(&value), timestamp(&value), timestamptz(&value, true), time(&value), timetz(&value));
        }
    }
}
