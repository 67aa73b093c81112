//! Axes. A drawing is an SVG that is stretched to the page; its labels are ordinary text beside it, so that
//! they stay readable at any width.

/// Width of a drawing, in its own units.
pub const WIDTH: f64 = 1000.0;
/// Height of a chart, in its own units.
pub const HEIGHT: f64 = 100.0;
/// Lines stay as thick as they are, however much the drawing is stretched.
pub const EVEN: &str = "vector-effect=\"non-scaling-stroke\"";

/// The distance of the lines that make an axis up to `most` easy to read, and where the axis ends. `whole`:
/// only whole numbers are worth a line.
pub fn lines(most: f64, whole: bool) -> (f64, f64) {
    if !most.is_finite() || most <= 0.0 {
        return (1.0, 1.0);
    }
    let power = 10f64.powf((most / 4.0).log10().floor());
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
    let line = nice.into_iter().find(|line| most / line <= 4.0).unwrap_or(most);
    let line = if whole { line.max(1.0).ceil() } else { line };
    (line, (most / line - 1e-9).ceil().max(1.0) * line)
}

/// 0 and every `line` up to `top`.
pub fn steps(line: f64, top: f64) -> impl Iterator<Item = f64> {
    (0u32..).map(move |n| f64::from(n) * line).take_while(move |at| *at <= top * (1.0 + 1e-9)).take(100)
}

/// Lines of a logarithmic axis that has `least` and `most`, both positive: 1, 2, 5, 10 ..., or only powers of
/// ten if these would be too many. There are at least two, and the outermost are the ends of the axis.
pub fn log_lines(least: f64, most: f64) -> Vec<f64> {
    if !(least.is_finite() && most.is_finite()) || least <= 0.0 || most < least {
        return vec![1.0, 10.0];
    }
    // A value that is on a line up to rounding does not need the next one.
    let (least, most) = (least * (1.0 + 1e-9), most * (1.0 - 1e-9));
    let factors: &[f64] = if most / least > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let mut all: Vec<f64> = Vec::new();
    for power in -300..=300i32 {
        // Division rounds right where multiplying with a negative power of ten would not.
        let ten = 10f64.powi(power.abs());
        all.extend(factors.iter().map(|factor| if power < 0 { factor / ten } else { factor * ten }));
    }
    let from = all.iter().rposition(|line| *line <= least).unwrap_or(0);
    let to = all.iter().position(|line| *line >= most).unwrap_or(all.len() - 1);
    all[from..=to.max(from + 1).min(all.len() - 1)].to_vec()
}

/// `250 k` for a number on an axis.
pub fn axis_label(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "\u{a0}G"),
        v if v >= 1e6 => (v / 1e6, "\u{a0}M"),
        v if v >= 1e4 => (v / 1e3, "\u{a0}k"),
        v => (v, ""),
    };
    format!("{}{unit}", coordinate(value))
}

/// A number with at most two places, without zeros at its end.
pub fn coordinate(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_easy_to_read() {
        assert_eq!(lines(97.0, false), (25.0, 100.0));
        assert_eq!(lines(0.0, false), (1.0, 1.0));
        assert_eq!(lines(2.0, true), (1.0, 2.0));
        assert_eq!(lines(2.1, true), (1.0, 3.0));
        assert_eq!(lines(33.0, true), (10.0, 40.0));
        assert_eq!(lines(1.0, false), (0.25, 1.0));
        assert_eq!(lines(f64::NAN, false), (1.0, 1.0));
        assert_eq!(
            [0.5, 2000.0, 25_000.0, 1.25e6].map(axis_label),
            ["0.5", "2000", "25\u{a0}k", "1.25\u{a0}M"]
        );
    }

    #[test]
    fn logarithmic_axes_hold_their_values() {
        assert_eq!(log_lines(60.0, 1860.0), [50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0]);
        assert_eq!(log_lines(2.0, 50.0), [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(log_lines(3.0, 40_000.0), [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        assert_eq!(log_lines(0.003, 0.02), [0.002, 0.005, 0.01, 0.02]);
        assert_eq!(log_lines(100.0, 100.0), [100.0, 200.0]);
        for (least, most) in [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (2.0, 1.0)] {
            assert_eq!(log_lines(least, most), [1.0, 10.0], "{least} to {most}");
        }
        assert!(log_lines(f64::MIN_POSITIVE, f64::MAX).len() > 100, "as far as it goes, without a panic");
    }
}
