//! Figures for a person.

/// `1234567` as `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A share of one as `71 %`, `0.3 %`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.95 => format!("{p:.1}\u{a0}%"),
        p => format!("{p:.0}\u{a0}%"),
    }
}

/// Bytes as MB, with as many places as tell something.
#[allow(clippy::cast_precision_loss)] // a figure for a person
pub fn megabytes(bytes: u64) -> String {
    format!("{}\u{a0}MB", figure(bytes as f64 / 1e6))
}

/// Three digits that tell something: `0.12`, `3.4`, `430`, `12,300`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rounded and not negative
pub fn figure(value: f64) -> String {
    match value {
        v if v >= 99.5 => grouped(v.round() as u64),
        v if v >= 9.95 => format!("{v:.1}"),
        v if v > 0.0 => format!("{v:.2}"),
        _ => "0".to_owned(),
    }
}

/// Seconds in the unit that fits: `4.52 s`, `21.0 ms`, `130 µs`.
pub fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 0.9995 => (s, "s"),
        s if s >= 0.999_5e-3 => (s * 1e3, "ms"),
        s if s > 0.0 => (s * 1e6, "µs"),
        _ => (0.0, "s"),
    };
    format!("{}\u{a0}{unit}", figure(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_digits() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn figures_tell_three_digits() {
        assert_eq!(
            [0.0, 0.123, 3.456, 12.34, 430.4, 12_345.6].map(figure),
            ["0", "0.12", "3.46", "12.3", "430", "12,346"]
        );
        assert_eq!(
            [0.0, 0.003, 0.714, 1.0].map(percent),
            ["0\u{a0}%", "0.3\u{a0}%", "71\u{a0}%", "100\u{a0}%"]
        );
    }

    #[test]
    fn durations_have_the_unit_that_fits() {
        let shown = [4.516, 0.9999, 0.0213, 0.001, 129.6e-6, 0.0, f64::NAN].map(duration);
        let expected = ["4.52 s", "1.00 s", "21.3 ms", "1.00 ms", "130 µs", "0 s", "0 s"];
        assert_eq!(shown, expected.map(|text| text.replace(' ', "\u{a0}")));
    }
}
