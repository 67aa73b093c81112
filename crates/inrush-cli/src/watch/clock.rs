//! The time of day, without a library for it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment, as a calendar and a clock show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    year: i64,
    month: i64,
    day: i64,
    /// Seconds of the day.
    second: i64,
    milli: u32,
}

impl Moment {
    /// Now, where clocks are `offset` seconds ahead of UTC.
    pub fn now(offset: i32) -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // A clock that shows the year 300 billion has other problems.
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX / 2);
        Moment::at(seconds + i64::from(offset), since.subsec_millis())
    }

    /// Seconds since 1970 to a date of the Gregorian calendar (H. Hinnant, chrono-compatible low-level date
    /// algorithms, civil_from_days): years begin in March, so that the odd day comes last.
    fn at(seconds: i64, milli: u32) -> Moment {
        let days = seconds.div_euclid(86_400) + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Moment {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            second: seconds.rem_euclid(86_400),
            milli,
        }
    }

    /// `10:00:01`
    pub fn time_of_day(&self) -> String {
        let Moment { second, .. } = *self;
        format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
    }

    /// `2026-11-21T10:00:01.250Z`, for a moment in UTC.
    pub fn rfc3339(&self) -> String {
        let Moment { year, month, day, milli, .. } = *self;
        format!("{year:04}-{month:02}-{day:02}T{}.{milli:03}Z", self.time_of_day())
    }
}

/// `2026-11-21 10:00:01`
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moment { year, month, day, .. } = *self;
        write!(f, "{year:04}-{month:02}-{day:02} {}", self.time_of_day())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (1_795_255_201, "2026-11-21 10:00:01"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
        ] {
            assert_eq!(Moment::at(seconds, 0).to_string(), text, "{seconds}");
        }
        assert_eq!(Moment::at(1_795_255_201, 7).rfc3339(), "2026-11-21T10:00:01.007Z");
    }
}
