//! Charts over time, and the bar of classes.

use inrush_page::axis::{EVEN, HEIGHT, WIDTH, axis_label, coordinate, lines, steps};
use inrush_page::{Text, percent};
use inrush_profile::{ClassShare, Series};
use std::fmt::Write as _;

/// Columns of a chart at most: more are too narrow to be told apart.
const MOST_COLUMNS: usize = 240;
/// Labels along the time axis at most: they have room on a telephone.
const MOST_TIMES: f64 = 6.0;
/// Segments of a bar that are narrower have no label.
const LABELLED: f64 = 0.07;

/// A chart over time of one or several layers, one on the other.
pub(super) struct Chart<'a> {
    /// What is drawn.
    pub title: &'a str,
    /// Its unit.
    pub unit: &'a str,
    /// Field of `profile.series` that it shows.
    pub field: &'a str,
    /// The figures, for who cannot see the drawing.
    pub about: String,
    /// Only whole numbers are worth a line.
    pub whole: bool,
    /// A large one.
    pub tall: bool,
    /// Times of the columns.
    pub columns: Columns,
    /// Style class and value per column of each layer, the lowest first.
    pub layers: Vec<(&'a str, Vec<f64>)>,
}

/// How steps of a series become columns of a chart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    /// Steps of one column.
    pub steps: usize,
    /// Seconds of a step.
    pub step_seconds: f64,
    /// Steps of the series.
    pub all: usize,
}

#[allow(clippy::cast_precision_loss)] // at most 600 steps
impl Columns {
    /// Columns of at least so many seconds, unless the load is so short that fewer than four would be left.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a number of steps
    pub fn of(series: &Series, least_seconds: f64) -> Columns {
        let (all, step_seconds) = (series.bytes_in.len(), series.step_seconds);
        let least = least_seconds.min(all as f64 * step_seconds / 4.0);
        // 0.3 / 0.1 is a little less than 3.
        let steps = ((least / step_seconds) + 1e-6) as usize;
        Columns { steps: steps.max(all.div_ceil(MOST_COLUMNS)).max(1), step_seconds, all }
    }

    /// Seconds of a column.
    pub fn seconds(self) -> f64 {
        self.steps as f64 * self.step_seconds
    }

    /// Seconds of the whole series.
    pub fn total(self) -> f64 {
        self.all as f64 * self.step_seconds
    }

    /// Amounts per step as amounts per second in each column.
    pub fn rates(self, amounts: impl Iterator<Item = f64>) -> Vec<f64> {
        let amounts: Vec<f64> = amounts.collect();
        (0..self.count())
            .map(|column| {
                let steps = &amounts[column * self.steps..self.end_of(column)];
                steps.iter().sum::<f64>() / (steps.len() as f64 * self.step_seconds)
            })
            .collect()
    }

    /// How many columns there are. A rest of less than half a column belongs to the last one: a sliver of its own
    /// would show how chunks happened to fall.
    fn count(self) -> usize {
        ((self.all + self.steps / 2) / self.steps).max(usize::from(self.all > 0))
    }

    /// The step that a column ends before.
    fn end_of(self, column: usize) -> usize {
        if column + 1 == self.count() { self.all } else { (column + 1) * self.steps }
    }

    /// Where a column ends, in units of the drawing.
    fn right_of(self, column: usize) -> f64 {
        self.end_of(column) as f64 / self.all.max(1) as f64 * WIDTH
    }
}

impl Chart<'_> {
    /// The chart as a figure.
    pub fn render(&self, out: &mut String) {
        let count = self.layers.first().map_or(0, |(_, values)| values.len());
        // The sum of the layers up to each one.
        let mut heights: Vec<Vec<f64>> = Vec::new();
        for (_, values) in &self.layers {
            let below = heights.last().cloned().unwrap_or_else(|| vec![0.0; count]);
            heights.push(below.iter().zip(values).map(|(below, value)| below + value).collect());
        }
        let most = heights.last().into_iter().flatten().copied().fold(0.0, f64::max);
        let (line, top) = lines(most, self.whole);
        let _ = write!(
            out,
            "<figure>\n<figcaption><b>{}</b> <span class=\"unit\">{}</span> <output></output></figcaption>\n\
             <div class=\"plot{}\" data-field=\"{}\" data-steps=\"{}\" data-unit=\"{}\">\n",
            Text(self.title),
            Text(self.unit),
            if self.tall { " tall" } else { "" },
            self.field,
            self.columns.steps,
            Text(self.unit)
        );
        self.values_axis(out, line, top);
        let _ = write!(
            out,
            "<div class=\"area\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\">\
             <title>{}</title>",
            Text(&self.about)
        );
        // From the highest to the lowest, each down to the ground: no seams between neighbours.
        for ((class, _), heights) in self.layers.iter().zip(&heights).rev() {
            let _ = write!(out, "<path class=\"{class}\" {EVEN} d=\"{}\"/>", self.outline(heights, top));
        }
        let mut grid = String::new();
        for at in steps(line, top) {
            let _ = write!(grid, "M0 {}H{WIDTH}", coordinate(HEIGHT - at / top * HEIGHT));
        }
        let _ =
            writeln!(out, "<path class=\"grid\" {EVEN} d=\"{grid}\"/></svg><i class=\"cursor\"></i></div>");
        times_axis(out, self.columns.total());
        out.push_str("</div>\n</figure>\n");
    }

    fn values_axis(&self, out: &mut String, line: f64, top: f64) {
        out.push_str("<div class=\"y\" aria-hidden=\"true\">");
        for at in steps(line, top) {
            let _ = write!(
                out,
                "<span style=\"bottom:{}%\">{}</span>",
                coordinate(at / top * 100.0),
                axis_label(at)
            );
        }
        out.push_str("</div>\n");
    }

    fn outline(&self, heights: &[f64], top: f64) -> String {
        let mut path = format!("M0 {HEIGHT}");
        let mut last = String::new();
        for (column, height) in heights.iter().enumerate() {
            let y = coordinate(HEIGHT - height / top * HEIGHT);
            let x = coordinate(self.columns.right_of(column));
            if y == last {
                // As high as the one before: that one gets longer.
                path.truncate(path.rfind('H').unwrap_or(path.len()));
            } else {
                let _ = write!(path, "V{y}");
                last = y;
            }
            let _ = write!(path, "H{x}");
        }
        let _ = write!(path, "V{HEIGHT}Z");
        path
    }
}

/// Seconds, minutes or hours below a chart.
fn times_axis(out: &mut String, total: f64) {
    let (unit, seconds, nice): (&str, f64, &[f64]) = match total {
        t if t <= 180.0 => ("seconds", 1.0, &[0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0]),
        t if t <= 7200.0 => ("minutes", 60.0, &[1.0, 2.0, 5.0, 10.0, 15.0, 30.0]),
        _ => ("hours", 3600.0, &[0.5, 1.0, 2.0, 4.0, 6.0, 12.0, 24.0]),
    };
    let length = total / seconds;
    let every = nice.iter().copied().find(|every| length / every <= MOST_TIMES).unwrap_or(length / 4.0);
    out.push_str("<div class=\"x\" aria-hidden=\"true\">");
    for at in steps(every, length) {
        let left = coordinate(at / length.max(f64::MIN_POSITIVE) * 100.0);
        let _ = write!(out, "<span style=\"left:{left}%\">{}</span>", axis_label(at));
    }
    let _ = write!(out, "</div>\n<div class=\"time\" aria-hidden=\"true\">{unit} since the start</div>\n");
}

/// One bar of all classes. Its parts are named by the legend above it.
pub(super) fn split_bar(out: &mut String, split: &[ClassShare]) {
    let words: Vec<String> =
        split.iter().map(|share| format!("{} {}", share.class.in_words(), percent(share.share))).collect();
    let _ = write!(
        out,
        "<div class=\"split\"><svg viewBox=\"0 0 {WIDTH} 10\" preserveAspectRatio=\"none\" role=\"img\"><title>{}</title>",
        Text(&words.join(", "))
    );
    let mut labels = String::new();
    let mut from = 0.0;
    for share in split {
        let (x, width) = (coordinate(from * WIDTH), coordinate(share.share * WIDTH));
        let _ = write!(
            out,
            "<rect class=\"c-{} gap\" {EVEN} x=\"{x}\" y=\"0\" width=\"{width}\" height=\"10\"><title>{} {}</title></rect>",
            share.class.name(),
            share.class.in_words(),
            percent(share.share)
        );
        if share.share >= LABELLED {
            let middle = coordinate((from + share.share / 2.0) * 100.0);
            let _ = write!(labels, "<span style=\"left:{middle}%\">{}</span>", percent(share.share));
        }
        from += share.share;
    }
    let _ = write!(out, "</svg>\n<div class=\"labels\" aria-hidden=\"true\">{labels}</div></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_the_amounts() {
        for (all, steps, ends) in [(7, 3, vec![3, 7]), (8, 3, vec![3, 6, 8]), (2, 5, vec![2]), (0, 1, vec![])]
        {
            let columns = Columns { steps, step_seconds: 0.1, all };
            assert_eq!((0..columns.count()).map(|n| columns.end_of(n)).collect::<Vec<_>>(), ends);
            let rates = columns.rates(std::iter::repeat_n(1.0, all));
            assert_eq!(rates.len(), ends.len());
            assert!(rates.iter().all(|rate| (rate - 10.0).abs() < 1e-9), "{all} by {steps}: {rates:?}");
        }
    }

    #[test]
    fn equal_neighbours_are_one_line() {
        let chart = Chart {
            title: "",
            unit: "",
            field: "",
            about: String::new(),
            whole: false,
            tall: false,
            columns: Columns { steps: 1, step_seconds: 1.0, all: 4 },
            layers: Vec::new(),
        };
        assert_eq!(chart.outline(&[1.0, 1.0, 1.0, 0.5], 1.0), "M0 100V0H750V50H1000V100Z");
    }
}
