//! Durations and sizes as people write them.

use serde::{Deserialize, Deserializer, de};
use std::time::Duration;

/// `200ms`, `10s`, `5m`, `1h`, `30d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

/// `512kB`, `64MiB`, `10GB`, or a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

/// A thousand years. Beyond it, sums with the clock leave what the system and the server can count to.
const LONGEST: Duration = Duration::from_secs(365_000 * 86_400);

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

fn span(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * seconds).ok()
}

fn size(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "kB" | "KB" => 1e3,
        "KiB" => 1024.0,
        "MB" => 1e6,
        "MiB" => 1_048_576.0,
        "GB" => 1e9,
        "GiB" => 1_073_741_824.0,
        "TB" => 1e12,
        "TiB" => 1_099_511_627_776.0,
        _ => return None,
    };
    let bytes = number * factor;
    // Far above any disk, far below where a float loses bytes that matter.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (bytes.is_finite() && (0.0..9e18).contains(&bytes)).then_some(bytes as u64)
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        match span(&text) {
            Some(span) if span <= LONGEST => Ok(Span(span)),
            Some(_) => {
                Err(de::Error::custom(format!("{text:?} is too long: a duration has 365000d at most")))
            }
            None => {
                Err(de::Error::custom(format!("{text:?} is no duration: write 200ms, 10s, 5m, 1h or 30d")))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Size(bytes)),
            Written::Text(text) => size(&text).map(Size).ok_or_else(|| {
                de::Error::custom(format!(
                    "{text:?} is no size: write 512kB, 64MiB, 10GB or a number of bytes"
                ))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{size, span};
    use std::time::Duration;

    #[test]
    fn people_write_many_things() {
        assert_eq!(span("200ms"), Some(Duration::from_millis(200)));
        assert_eq!(span("1.5h"), Some(Duration::from_secs(5400)));
        assert_eq!(span("30d"), Some(Duration::from_secs(30 * 86400)));
        assert_eq!(span("10"), None);
        assert_eq!(span("-1s"), None);
        assert_eq!(size("64MiB"), Some(64 << 20));
        assert_eq!(size("1.5 kB"), Some(1500));
        assert_eq!(size("7"), Some(7));
        assert_eq!(size("7 apples"), None);
    }
}
