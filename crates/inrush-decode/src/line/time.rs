//! Timestamps: integers of a stated precision to what PostgreSQL reads.

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// The unit of the timestamps of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Nanoseconds, the default of every version of the protocol.
    #[default]
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
    /// Minutes (version 1 only).
    M,
    /// Hours (version 1 only).
    H,
}

impl Precision {
    /// As a request's `precision` states it: `n`, `u`, `ms`, `s`, `m`, `h` (`/write`), `ns`, `us`, `ms`, `s`
    /// (`/api/v2/write`) or in full, `nanosecond` to `second` (`/api/v3/write_lp`).
    pub fn parse(text: &str) -> Option<Precision> {
        Some(match text {
            "n" | "ns" | "nanosecond" => Precision::Ns,
            "u" | "us" | "µ" | "microsecond" => Precision::Us,
            "ms" | "millisecond" => Precision::Ms,
            "s" | "second" => Precision::S,
            "m" => Precision::M,
            "h" => Precision::H,
            _ => return None,
        })
    }

    /// Microseconds of a timestamp. Nanoseconds are cut off towards the past, so that a point never moves
    /// into a window of time that begins after it. `None` beyond 64 bits.
    pub fn micros(self, number: i64) -> Option<i64> {
        match self {
            Precision::Ns => Some(number.div_euclid(1000)),
            _ => number.checked_mul(self.micros_per_unit()),
        }
    }

    /// The timestamp of a moment, cut off towards the past; `None` beyond 64 bits.
    pub fn of_micros(self, micros: i64) -> Option<i64> {
        match self {
            Precision::Ns => micros.checked_mul(1000),
            _ => Some(micros.div_euclid(self.micros_per_unit())),
        }
    }

    fn micros_per_unit(self) -> i64 {
        match self {
            Precision::Ns | Precision::Us => 1,
            Precision::Ms => 1000,
            Precision::S => 1_000_000,
            Precision::M => 60_000_000,
            Precision::H => 3_600_000_000,
        }
    }
}

/// Writes moments as ISO text, the date of the last one kept: points come in order of time, more or less.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock {
    day: Option<i64>,
    date: Vec<u8>,
    before_christ: bool,
}

impl Clock {
    /// Appends `YYYY-MM-DD HH:MM:SS[.ffffff]+00`, with ` BC` behind it where it must be (datetime.c,
    /// EncodeDateTime). Reads the same under every setting of DateStyle and TimeZone.
    pub(super) fn write(&mut self, micros: i64, out: &mut Vec<u8>) {
        let day = micros.div_euclid(MICROS_PER_DAY);
        if self.day != Some(day) {
            self.set(day);
        }
        out.extend_from_slice(&self.date);
        let time = micros.rem_euclid(MICROS_PER_DAY);
        // A day has 86,400 seconds, and numbers of 32 bits are quicker to take apart.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let (seconds, fraction) = ((time / 1_000_000) as u32, (time % 1_000_000) as u32);
        let mut text = *b" 00:00:00.000000+00";
        two(&mut text, 1, seconds / 3600);
        two(&mut text, 4, seconds / 60 % 60);
        two(&mut text, 7, seconds % 60);
        if fraction == 0 {
            out.extend_from_slice(&text[..9]);
            out.extend_from_slice(b"+00");
        } else {
            two(&mut text, 10, fraction / 10_000);
            two(&mut text, 12, fraction / 100 % 100);
            two(&mut text, 14, fraction % 100);
            out.extend_from_slice(&text);
        }
        if self.before_christ {
            out.extend_from_slice(b" BC");
        }
    }

    fn set(&mut self, day: i64) {
        let (year, month, day_of_month) = civil(day);
        self.day = Some(day);
        self.before_christ = year <= 0;
        let year = if year <= 0 { 1 - year } else { year };
        self.date.clear();
        self.date.extend_from_slice(format!("{year:04}-{month:02}-{day_of_month:02}").as_bytes());
    }
}

// Below 100, as all that are given are.
#[allow(clippy::cast_possible_truncation)]
fn two(text: &mut [u8], at: usize, number: u32) {
    text[at] = b'0' + (number / 10) as u8;
    text[at + 1] = b'0' + (number % 10) as u8;
}

/// Year (0 is 1 BC), month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
fn civil(day: i64) -> (i64, i64, i64) {
    // From 0000-03-01: a year that begins in March has its leap day last.
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + i64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(micros: i64) -> String {
        let mut out = Vec::new();
        Clock::default().write(micros, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn moments_as_text() {
        assert_eq!(text(0), "1970-01-01 00:00:00+00");
        assert_eq!(text(-1), "1969-12-31 23:59:59.999999+00");
        assert_eq!(text(1_556_813_561_098_000), "2019-05-02 16:12:41.098000+00");
        assert_eq!(text(951_782_400_000_000), "2000-02-29 00:00:00+00");
        assert_eq!(text(253_402_300_800_000_000), "10000-01-01 00:00:00+00");
        assert_eq!(text(-62_135_596_800_000_000), "0001-01-01 00:00:00+00");
        assert_eq!(text(-62_135_596_800_000_001), "0001-12-31 23:59:59.999999+00 BC");
        assert_eq!(text(i64::MAX), "294247-01-10 04:00:54.775807+00");
        assert_eq!(text(i64::MIN), "290309-12-21 19:59:05.224192+00 BC");
    }

    #[test]
    fn scaling_keeps_to_64_bits_and_to_the_past() {
        assert_eq!(Precision::Ns.micros(-1), Some(-1));
        assert_eq!(Precision::Ns.micros(1999), Some(1));
        assert_eq!(Precision::H.micros(1), Some(3_600_000_000));
        assert_eq!(Precision::S.micros(i64::MAX), None);
        assert_eq!(Precision::Ns.of_micros(i64::MAX), None);
        assert_eq!(Precision::M.of_micros(-1), Some(-1));
    }

    #[test]
    fn a_clock_is_not_stuck_on_a_day() {
        let mut clock = Clock::default();
        let mut out = Vec::new();
        clock.write(0, &mut out);
        clock.write(-1, &mut out);
        clock.write(MICROS_PER_DAY, &mut out);
        assert_eq!(
            out.escape_ascii().to_string(),
            "1970-01-01 00:00:00+001969-12-31 23:59:59.999999+001970-01-02 00:00:00+00"
        );
    }
}
