//! Figures as text.

/// A size as SHOW prints it: in the largest unit that needs no fraction (guc.c, convert_int_from_base_unit).
pub(super) fn setting_size(bytes: u64) -> String {
    let units = [("TB", 40), ("GB", 30), ("MB", 20), ("kB", 10)];
    let fits = |(_, bits): &&(&str, u32)| bytes != 0 && bytes.is_multiple_of(1 << bits);
    match units.iter().find(fits) {
        Some((unit, bits)) => format!("{}{unit}", bytes >> bits),
        None => format!("{bytes}B"),
    }
}

/// A number of bytes for a person, in powers of 1000.
#[allow(clippy::cast_precision_loss)] // two or three digits are shown
pub(super) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    let mut unit = "B";
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if unit == "B" || value >= 9.95 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// The largest power of two that is not larger; 0 for 0.
pub(super) fn power_of_two(n: u64) -> u64 {
    if n == 0 { 0 } else { 1 << n.ilog2() }
}

/// `since 2026-11-21`, or nothing.
pub(super) fn since(day: Option<&str>) -> String {
    day.map_or_else(String::new, |day| format!(" since {day}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_server() {
        for (n, text) in [
            (16 << 30, "16GB"),
            (1536 << 20, "1536MB"),
            (64 << 20, "64MB"),
            (1 << 40, "1TB"),
            (24 << 10, "24kB"),
        ] {
            assert_eq!(setting_size(n), text);
        }
    }

    #[test]
    fn powers_of_two() {
        for (n, power) in [(0, 0), (1, 1), (3, 2), (4, 4), (u64::MAX, 1 << 63)] {
            assert_eq!(power_of_two(n), power);
        }
    }

    #[test]
    fn bytes_for_people() {
        for (n, text) in [(999, "999 B"), (1_500_000_000, "1.5 GB"), (66_000_000_000, "66 GB")] {
            assert_eq!(bytes(n), text);
        }
    }
}
