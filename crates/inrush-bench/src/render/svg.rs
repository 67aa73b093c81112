//! Drawings for a page: SVG by hand. Colours and fonts are the page's, through classes.

use std::fmt::Write as _;

/// A drawing that grows; coordinates are pixels at its natural width.
#[derive(Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    /// An empty one.
    pub fn new(width: f64, height: f64) -> Svg {
        Svg { width, height, body: String::new() }
    }

    /// A filled rectangle; nothing when it has no width. `tip` is shown under the pointer.
    pub fn bar(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), tip: &str) {
        if width > 0.0 {
            let _ = writeln!(
                self.body,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
                 <title>{}</title></rect>",
                escape(tip)
            );
        }
    }

    /// A small disc.
    pub fn dot(&mut self, class: &str, (x, y): (f64, f64), radius: f64, tip: &str) {
        let _ = writeln!(
            self.body,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{}</title></circle>",
            escape(tip)
        );
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.body,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// A line through points.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.body, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }

    /// Words; the class says where they are anchored.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let _ =
            writeln!(self.body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
    }

    /// The element. `about` is what somebody hears who does not see it.
    pub fn end(self, about: &str) -> String {
        let (width, height) = (self.width, self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            escape(about),
            self.body
        )
    }
}

/// Text as content or as the value of an attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML has no way to write the other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t' | '\r') => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}

/// A round number at or above `most`, and the distance of at most so many marks up to it.
pub fn scale(most: f64, marks: f64) -> (f64, f64) {
    if !most.is_finite() || most <= 0.0 {
        return (1.0, 0.5);
    }
    let rough = most / marks;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * power);
    ((most / step - 1e-9).ceil() * step, step)
}

/// The marks of a scale: values and what to write there.
pub fn marks(top: f64, step: f64) -> Vec<(f64, String)> {
    let digits = if step >= 1.0 && step.fract() == 0.0 {
        0
    } else if (step * 10.0).fract().abs() < 1e-6 {
        1
    } else {
        2
    };
    let mut marks = Vec::new();
    let mut value = 0.0;
    while value <= top + step / 2.0 {
        marks.push((value, format!("{value:.digits$}")));
        value += step;
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_round_and_reach() {
        for (most, expected) in [(3.09, 4.0), (1.0, 1.0), (97.0, 100.0), (0.04, 0.04), (5600.0, 6000.0)] {
            let (top, step) = scale(most, 5.0);
            assert!((top - expected).abs() < 1e-9, "{most}: {top}");
            assert!(top >= most && (2..=5).contains(&(marks(top, step).len() - 1)), "{most}: {step}");
        }
        assert_eq!(scale(0.0, 5.0), scale(f64::NAN, 5.0));
        let words: Vec<_> = marks(1.0, 0.25).into_iter().map(|(_, word)| word).collect();
        assert_eq!(words, ["0.00", "0.25", "0.50", "0.75", "1.00"]);
    }

    #[test]
    fn nothing_gets_out_of_a_text() {
        assert_eq!(escape("<a b='\"&\u{1}'>"), "&lt;a b=&#39;&quot;&amp;\u{FFFD}&#39;&gt;");
    }
}
