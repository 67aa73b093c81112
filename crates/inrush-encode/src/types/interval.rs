//! interval (timestamp.c, interval_in; datetime.c, DecodeInterval): the forms `postgres` and ISO-like
//! programs write: numbers with units, and `[-]HH:MM:SS[.ffffff]`.

use super::{datetime, digits};
use crate::{IntervalStyle, Session};

/// What a session and a column make of an interval's text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    sign_per_field: bool,
}

/// INTERVAL_FULL_RANGE, in the high half of the type modifier.
const FULL_RANGE: i32 = 0x7fff;

impl Reading {
    /// `None` for columns restricted to some fields (`interval day to second`): the restriction changes
    /// how numbers without a unit are read.
    pub(super) fn new(typmod: i32, session: &Session) -> Option<Reading> {
        if typmod >= 0 && typmod >> 16 & 0xffff != FULL_RANGE {
            return None;
        }
        Some(Reading { sign_per_field: session.interval_style == IntervalStyle::SignPerField })
    }

    /// Microseconds, days, months, as interval_recv reads them.
    pub(super) fn interval(self, value: &[u8]) -> Option<[u8; 16]> {
        let span = self.span(value)?;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&span.micros.to_be_bytes());
        bytes[8..12].copy_from_slice(&span.days.to_be_bytes());
        bytes[12..].copy_from_slice(&span.months.to_be_bytes());
        Some(bytes)
    }

    /// The same as the heap has it.
    pub(super) fn stored(self, value: &[u8]) -> Option<[u8; 16]> {
        let span = self.span(value)?;
        Some(stored(span.micros, span.days, span.months))
    }

    fn span(self, value: &[u8]) -> Option<Span> {
        if value.first() == Some(&b'-') && !self.sign_per_field {
            return None;
        }
        parse(value)
    }
}

/// An interval as the heap has it (datatype/timestamp.h, Interval).
pub(crate) fn stored(micros: i64, days: i32, months: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&micros.to_le_bytes());
    bytes[8..12].copy_from_slice(&days.to_le_bytes());
    bytes[12..].copy_from_slice(&months.to_le_bytes());
    bytes
}

#[derive(Debug, PartialEq, Eq)]
struct Span {
    months: i32,
    days: i32,
    micros: i64,
}

/// Largest unit first, each at most once; anything in another order is left to the server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Unit {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
}

fn unit(word: &[u8]) -> Option<Unit> {
    Some(match word {
        b"year" | b"years" => Unit::Year,
        b"mon" | b"mons" | b"month" | b"months" => Unit::Month,
        b"day" | b"days" => Unit::Day,
        b"hour" | b"hours" => Unit::Hour,
        b"min" | b"mins" | b"minute" | b"minutes" => Unit::Minute,
        b"sec" | b"secs" | b"second" | b"seconds" => Unit::Second,
        _ => return None,
    })
}

fn parse(value: &[u8]) -> Option<Span> {
    const MICROS: i64 = 1_000_000;
    let mut span = Span { months: 0, days: 0, micros: 0 };
    let mut last = None;
    let mut words = value.split(|byte| *byte == b' ');
    while let Some(word) = words.next() {
        let (negative, digits) = match word {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, word),
        };
        if digits.contains(&b':') {
            // The clock comes last and stands for all three units.
            if last.is_some_and(|last| last >= Unit::Hour) || words.next().is_some() {
                return None;
            }
            let micros = clock(digits)?;
            span.micros = if negative { -micros } else { micros };
            return Some(span);
        }
        // Six digits keep every sum far from overflow.
        if digits.len() > 6 {
            return None;
        }
        let magnitude = i32::try_from(digits::number(digits)?).ok()?;
        let number = if negative { -magnitude } else { magnitude };
        let unit = unit(words.next()?)?;
        if last.is_some_and(|last| last >= unit) {
            return None;
        }
        last = Some(unit);
        match unit {
            Unit::Year => span.months += number * 12,
            Unit::Month => span.months += number,
            Unit::Day => span.days += number,
            Unit::Hour => span.micros += i64::from(number) * 3600 * MICROS,
            Unit::Minute => span.micros += i64::from(number) * 60 * MICROS,
            Unit::Second => span.micros += i64::from(number) * MICROS,
        }
    }
    last.map(|_| span)
}

/// `HH:MM:SS[.ffffff]` with one to six digits of hours. `HH:MM` depends on the column's fields.
fn clock(value: &[u8]) -> Option<i64> {
    let (hours, rest) = digits::split_digits(value);
    if hours.len() > 6 {
        return None;
    }
    let hours = digits::number(hours)?.cast_signed();
    let [b':', m1, m2, b':', s1, s2, rest @ ..] = rest else { return None };
    let minutes = digits::number(&[*m1, *m2])?.cast_signed();
    let seconds = digits::number(&[*s1, *s2])?.cast_signed();
    if minutes >= 60 || seconds >= 60 {
        return None;
    }
    let fraction = match rest {
        [] => 0,
        [b'.', rest @ ..] => match datetime::fraction(rest)? {
            (micros, []) => micros,
            _ => return None,
        },
        _ => return None,
    };
    Some((hours * 3600 + minutes * 60 + seconds) * 1_000_000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let span = |months, days, micros| Some(Span { months, days, micros });
        assert_eq!(parse(b"1 year 2 mons 3 days -04:05:06.5"), span(14, 3, -14_706_500_000));
        assert_eq!(parse(b"00:00:00"), span(0, 0, 0));
        assert_eq!(parse(b"-1 days +02:03:00"), span(0, -1, 7_380_000_000));
        assert_eq!(parse(b"100:00:00"), span(0, 0, 360_000_000_000));
        assert_eq!(parse(b"5 minutes"), span(0, 0, 300_000_000));
        for odd in [
            "",
            "1",
            "1 day 1 day",
            "1 day 1 year",
            "1  day",
            "1 day ",
            "04:05",
            "1 hour 00:00:01",
            "P1D",
            "1.5 days",
            "@ 1 day",
        ] {
            assert_eq!(parse(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn settings_decide() {
        let plain = Session { interval_style: IntervalStyle::SignPerField, ..Session::default() };
        let sql = Reading::new(-1, &Session::default()).expect("no fields restricted");
        assert!(sql.interval(b"-1 days").is_none() && sql.interval(b"1 day").is_some());
        assert!(Reading::new(-1, &plain).expect("no fields restricted").interval(b"-1 days").is_some());
        // interval(3), then interval day to second.
        assert!(Reading::new(FULL_RANGE << 16 | 3, &plain).is_some());
        assert!(Reading::new(0x1c08 << 16 | 0xffff, &plain).is_none());
    }
}
