//! Instants: a time column's values as 64-bit numbers, and what they look like in SQL and in names.

use inrush_core::{Code, Error, Excerpt, Result};
use serde::Serialize;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL counts from.
const EPOCH_DAYS: i64 = 10_957;
const DAY_US: i64 = 86_400_000_000;

/// The type of a time column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeKind {
    /// Instants are microseconds since 2000-01-01 UTC.
    Timestamptz,
    /// As [`TimeKind::Timestamptz`]; the clock it is compared with is UTC.
    Timestamp,
    /// Instants are days since 2000-01-01.
    Date,
    /// Instants are the numbers themselves: [`Unit`]s since 1970-01-01 UTC.
    Bigint,
}

/// What a bigint counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millis,
    /// Microseconds.
    #[serde(rename = "us")]
    Micros,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanos,
}

impl Unit {
    /// As the ledger and the command line have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Millis => "ms",
            Unit::Micros => "us",
            Unit::Nanos => "ns",
        }
    }

    /// Reads [`Unit::as_str`].
    pub fn parse(text: &str) -> Option<Unit> {
        [Unit::Seconds, Unit::Millis, Unit::Micros, Unit::Nanos]
            .into_iter()
            .find(|unit| unit.as_str() == text)
    }

    fn per_second(self) -> i64 {
        match self {
            Unit::Seconds => 1,
            Unit::Millis => 1_000,
            Unit::Micros => 1_000_000,
            Unit::Nanos => 1_000_000_000,
        }
    }
}

/// A length of time as a user writes it: `90s`, `15m`, `1h`, `30d`, `2w`. Whole microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(i64);

impl Span {
    /// A span of so many microseconds.
    pub const fn from_us(us: i64) -> Span {
        Span(us)
    }

    /// Its microseconds.
    pub const fn us(self) -> i64 {
        self.0
    }

    /// Reads a number with a unit: ms, s, m, h, d or w.
    pub fn parse(text: &str) -> Result<Span, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor = match unit {
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" | "min" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => DAY_US,
            "w" => 7 * DAY_US,
            _ => return Err("a length of time is a number with s, m, h, d or w: 90s, 1h, 30d".to_owned()),
        };
        let number: i64 =
            number.parse().map_err(|_| "a length of time begins with a number: 1h".to_owned())?;
        match number.checked_mul(factor) {
            Some(us) if us > 0 => Ok(Span(us)),
            Some(_) => Err("a length of time is more than nothing".to_owned()),
            None => Err("the length of time is too large".to_owned()),
        }
    }
}

/// As [`Span::parse`] reads it, in the largest unit that is exact.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, us) in
            [("d", DAY_US), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)]
        {
            if self.0 % us == 0 {
                return write!(f, "{}{unit}", self.0 / us);
            }
        }
        write!(f, "{}us", self.0)
    }
}

/// How a time column counts: its type, and the unit of a bigint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// The type.
    pub kind: TimeKind,
    /// What a bigint counts; seconds for all others.
    pub unit: Unit,
}

impl Scale {
    /// The scale of a column of this type (`pg_type.oid`), if it is one that windows are made of.
    pub fn of_type(oid: u32, unit: Option<Unit>) -> Option<Scale> {
        let kind = match oid {
            1184 => TimeKind::Timestamptz,
            1114 => TimeKind::Timestamp,
            1082 => TimeKind::Date,
            20 => TimeKind::Bigint,
            _ => return None,
        };
        Some(Scale { kind, unit: unit.unwrap_or(Unit::Seconds) })
    }

    /// A length of time in instants, if it is a whole number of them.
    pub fn length(self, span: Span) -> Option<i64> {
        let us = i128::from(span.us());
        let (factor, divisor) = match self.kind {
            TimeKind::Timestamptz | TimeKind::Timestamp => (1, 1),
            TimeKind::Date => (1, i128::from(DAY_US)),
            TimeKind::Bigint => (i128::from(self.unit.per_second()), 1_000_000),
        };
        let scaled = us * factor;
        if scaled % divisor != 0 {
            return None;
        }
        i64::try_from(scaled / divisor).ok().filter(|n| *n > 0)
    }

    /// A number of instants as a length of time.
    pub fn span(self, length: i64) -> Span {
        let us = match self.kind {
            TimeKind::Timestamptz | TimeKind::Timestamp => i128::from(length),
            TimeKind::Date => i128::from(length) * i128::from(DAY_US),
            TimeKind::Bigint => i128::from(length) * 1_000_000 / i128::from(self.unit.per_second()),
        };
        Span(i64::try_from(us).unwrap_or(i64::MAX))
    }

    /// A time of the clock as an instant.
    pub fn instant(self, time: SystemTime) -> i64 {
        let ns = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => as_ns(after),
            Err(before) => -as_ns(before.duration()),
        };
        let value = match self.kind {
            TimeKind::Timestamptz | TimeKind::Timestamp => {
                ns.div_euclid(1_000) - i128::from(EPOCH_DAYS) * i128::from(DAY_US)
            }
            TimeKind::Date => ns.div_euclid(i128::from(DAY_US) * 1_000) - i128::from(EPOCH_DAYS),
            TimeKind::Bigint => ns.div_euclid(1_000_000_000 / i128::from(self.unit.per_second())),
        };
        i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
    }

    /// The begin of the window of this width that an instant is in. Windows are counted from a Monday, so that those of
    /// weeks begin on Mondays; in UTC.
    pub fn window_start(self, instant: i64, width: i64) -> i64 {
        let monday = match self.kind {
            TimeKind::Timestamptz | TimeKind::Timestamp => i128::from(2 * DAY_US),
            TimeKind::Date => 2,
            TimeKind::Bigint => i128::from(4 * 86_400) * i128::from(self.unit.per_second()),
        };
        let (instant, width) = (i128::from(instant), i128::from(width.max(1)));
        let start = (instant - monday).div_euclid(width) * width + monday;
        i64::try_from(start).unwrap_or(i64::MIN)
    }

    /// Whether windows can be made there: years 1 to 9999 (a name and a literal have four digits for the year).
    pub fn is_usual(self, instant: i64) -> bool {
        let days = self.unix_us(instant).div_euclid(i128::from(DAY_US));
        (-719_162..2_932_897).contains(&days)
    }

    /// Microseconds since 1970.
    fn unix_us(self, instant: i64) -> i128 {
        let instant = i128::from(instant);
        let epoch = i128::from(EPOCH_DAYS) * i128::from(DAY_US);
        match self.kind {
            TimeKind::Timestamptz | TimeKind::Timestamp => instant + epoch,
            TimeKind::Date => instant * i128::from(DAY_US) + epoch,
            TimeKind::Bigint => (instant * 1_000_000).div_euclid(i128::from(self.unit.per_second())),
        }
    }

    /// Year, month, day, hour, minute, second, microsecond in UTC.
    fn civil(self, instant: i64) -> [i64; 7] {
        let us = self.unix_us(instant);
        let day_us = i128::from(DAY_US);
        let days = i64::try_from(us.div_euclid(day_us)).unwrap_or_default();
        let rest = i64::try_from(us.rem_euclid(day_us)).unwrap_or_default();
        let (year, month, day) = date_of(days);
        let seconds = rest / 1_000_000;
        [year, month, day, seconds / 3600, seconds / 60 % 60, seconds % 60, rest % 1_000_000]
    }

    /// The instant as SQL: a quoted literal of the column's type, or a number.
    pub fn literal(self, instant: i64) -> String {
        match self.kind {
            TimeKind::Bigint => instant.to_string(),
            _ => format!("'{}'", self.text(instant)),
        }
    }

    /// The instant for people, as the server would print it in ISO style and UTC.
    pub fn text(self, instant: i64) -> String {
        let [year, month, day, hour, minute, second, us] = self.civil(instant);
        let date = format!("{year:04}-{month:02}-{day:02}");
        let fraction = if us == 0 { String::new() } else { format!(".{us:06}") };
        let time = format!("{date} {hour:02}:{minute:02}:{second:02}{fraction}");
        match self.kind {
            TimeKind::Date => date,
            TimeKind::Timestamp => time,
            TimeKind::Timestamptz => time + "+00",
            TimeKind::Bigint => instant.to_string(),
        }
    }

    /// The begin of a window in the name of its leaf: `20261122`, `20261122_0100` or `20261122_010030`.
    pub(crate) fn suffix(self, start: i64, width: i64) -> String {
        let [year, month, day, hour, minute, second, us] = self.civil(start);
        let date = format!("{year:04}{month:02}{day:02}");
        let width = self.span(width).us();
        match width {
            w if w % DAY_US == 0 => date,
            w if w % 60_000_000 == 0 => format!("{date}_{hour:02}{minute:02}"),
            w if w % 1_000_000 == 0 => format!("{date}_{hour:02}{minute:02}{second:02}"),
            _ => format!("{date}_{hour:02}{minute:02}{second:02}_{us:06}"),
        }
    }

    /// SQL that gives a value of the column's type for an instant.
    pub(crate) fn value_sql(self, instant: &str) -> String {
        let stamp = |kind: &str, epoch: &str| {
            format!(
                "CASE WHEN {instant} OPERATOR(pg_catalog.=) 9223372036854775807 THEN {kind} 'infinity' \
                      WHEN {instant} OPERATOR(pg_catalog.<) -211813488000000000 THEN {kind} '-infinity' \
                      ELSE {kind} '{epoch}' OPERATOR(pg_catalog.+) \
                           (pg_catalog.interval '1 microsecond' OPERATOR(pg_catalog.*) {instant}::pg_catalog.float8) END"
            )
        };
        match self.kind {
            TimeKind::Timestamptz => stamp("pg_catalog.timestamptz", "2000-01-01 00:00:00+00"),
            TimeKind::Timestamp => stamp("pg_catalog.timestamp", "2000-01-01 00:00:00"),
            TimeKind::Date => {
                format!("pg_catalog.date '2000-01-01' OPERATOR(pg_catalog.+) {instant}::pg_catalog.int4")
            }
            TimeKind::Bigint => instant.to_owned(),
        }
    }

    /// The least width of a window.
    pub(crate) fn least_width(self) -> Span {
        match self.kind {
            TimeKind::Date => Span(DAY_US),
            _ => Span(1_000_000),
        }
    }

    /// The error for a width that is no whole number of instants, or too small.
    pub(crate) fn width(self, span: Span) -> Result<i64> {
        let least = self.least_width();
        match self.length(span) {
            Some(width) if span >= least => Ok(width),
            _ => {
                Err(Error::new(Code::Usage, format!("a window of {span} is too small for this time column"))
                    .hint(format!("A window is a whole number of times {least}.")))
            }
        }
    }
}

fn as_ns(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar (Hinnant's civil_from_days).
fn date_of(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// A word of the command line for an error, kept short.
pub(crate) fn shown(text: &str) -> Excerpt<'_> {
    Excerpt(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TZ: Scale = Scale { kind: TimeKind::Timestamptz, unit: Unit::Seconds };
    const DATE: Scale = Scale { kind: TimeKind::Date, unit: Unit::Seconds };
    const MS: Scale = Scale { kind: TimeKind::Bigint, unit: Unit::Millis };

    #[test]
    fn spans_are_read_and_written() {
        for (text, us) in
            [("1h", 3_600_000_000), ("30d", 30 * DAY_US), ("90s", 90_000_000), ("1500ms", 1_500_000)]
        {
            assert_eq!(Span::parse(text), Ok(Span(us)));
            assert_eq!(Span(us).to_string(), text);
        }
        assert_eq!(Span::parse("2w").unwrap().to_string(), "14d");
        for wrong in ["", "h", "1", "0s", "-1h", "1y", "99999999999999999w", "1 h"] {
            assert!(Span::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_clock_is_read_in_every_scale() {
        // 2026-11-22 01:34:03.5 UTC
        let time = UNIX_EPOCH + Duration::from_millis(1_795_311_243_500);
        assert_eq!(TZ.text(TZ.instant(time)), "2026-11-22 01:34:03.500000+00");
        assert_eq!(DATE.text(DATE.instant(time)), "2026-11-22");
        assert_eq!(MS.instant(time), 1_795_311_243_500);
        let before = UNIX_EPOCH - Duration::from_millis(1);
        assert_eq!(TZ.text(TZ.instant(before)), "1969-12-31 23:59:59.999000+00");
        assert_eq!(MS.instant(before), -1);
    }

    #[test]
    fn dates_are_the_calendars() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (EPOCH_DAYS, (2000, 1, 1)),
            (EPOCH_DAYS + 59, (2000, 2, 29)),
            (-1, (1969, 12, 31)),
            (-719_162, (1, 1, 1)),
            (2_932_896, (9999, 12, 31)),
        ] {
            assert_eq!(date_of(days), date);
        }
        assert!(TZ.is_usual(0) && !TZ.is_usual(i64::MAX) && !TZ.is_usual(i64::MIN));
    }

    #[test]
    fn windows_begin_on_round_times_and_weeks_on_mondays() {
        let week = TZ.length(Span(7 * DAY_US)).unwrap();
        // 2026-11-22 is a Sunday.
        let now = TZ.instant(UNIX_EPOCH + Duration::from_secs(1_795_311_243));
        assert_eq!(TZ.text(TZ.window_start(now, week)), "2026-11-16 00:00:00+00");
        let hour = TZ.length(Span(3_600_000_000)).unwrap();
        let start = TZ.window_start(now, hour);
        assert_eq!(TZ.literal(start), "'2026-11-22 01:00:00+00'");
        assert_eq!(TZ.window_start(start - 1, hour), start - hour);
        assert_eq!(TZ.suffix(start, hour), "20261122_0100");
        let day = DATE.length(Span(DAY_US)).unwrap();
        assert_eq!((day, DATE.window_start(-5, day)), (1, -5));
        assert_eq!(MS.suffix(MS.window_start(1_795_311_243_500, 86_400_000), 86_400_000), "20261122");
        assert_eq!(MS.window_start(-1, 1000), -1000);
    }

    #[test]
    fn widths_that_do_not_fit_are_refused() {
        assert!(DATE.width(Span(3_600_000_000)).is_err());
        assert!(TZ.width(Span(1_000)).is_err());
        assert_eq!(MS.width(Span(60_000_000)).unwrap(), 60_000);
        assert_eq!(Scale { unit: Unit::Seconds, ..MS }.length(Span(1_500_000)), None);
    }
}
