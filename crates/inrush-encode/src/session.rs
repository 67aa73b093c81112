/// The server settings that change what a text value means. COPY binary carries values whose meaning is
/// already fixed, so an encoder must know how the server's session would have read the text.
///
/// DateStyle is not among them: the dates that are encoded all start with a year of four digits, and those
/// read the same under every DateStyle (datetime.c, DecodeNumber). client_encoding must be UTF8 and the
/// server 14 or newer.
///
/// [`Session::default`] assumes the least: what depends on a setting goes as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Session {
    /// Whether TimeZone is UTC: only then is a timestamptz without an offset encoded.
    pub timezone_is_utc: bool,
    /// IntervalStyle.
    pub interval_style: IntervalStyle,
    /// Whether array_nulls is on: only then does an unquoted `NULL` mean NULL in an array (arrayfuncs.c).
    pub array_nulls: bool,
}

/// How the server reads signs in intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IntervalStyle {
    /// `sql_standard`, or not known: a leading minus may apply to all fields (datetime.c, DecodeInterval).
    #[default]
    SqlStandard,
    /// `postgres`, `postgres_verbose`, `iso_8601`: each field has its own sign.
    SignPerField,
}

impl Session {
    /// From the settings as `current_setting` gives them: TimeZone, IntervalStyle and array_nulls.
    pub fn from_settings(timezone: &str, interval_style: &str, array_nulls: &str) -> Session {
        let style = match interval_style {
            "postgres" | "postgres_verbose" | "iso_8601" => IntervalStyle::SignPerField,
            _ => IntervalStyle::SqlStandard,
        };
        Session {
            timezone_is_utc: UTC_NAMES.iter().any(|name| name.eq_ignore_ascii_case(timezone)),
            interval_style: style,
            array_nulls: array_nulls == "on",
        }
    }
}

/// Names of the zone database that have been UTC at all times. A name missing here only costs speed.
const UTC_NAMES: &[&str] = &[
    "UTC",
    "Etc/UTC",
    "UCT",
    "Etc/UCT",
    "GMT",
    "Etc/GMT",
    "GMT0",
    "Etc/GMT0",
    "Greenwich",
    "Etc/Greenwich",
    "Universal",
    "Etc/Universal",
    "Zulu",
    "Etc/Zulu",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_settings_assume_the_least() {
        assert_eq!(Session::from_settings("Europe/Berlin", "?", ""), Session::default());
        assert_eq!(
            Session::from_settings("etc/utc", "postgres", "on"),
            Session { timezone_is_utc: true, interval_style: IntervalStyle::SignPerField, array_nulls: true }
        );
    }
}
