//! Curves over something that doubles: reads in flight, pages asked for ahead.

use crate::axis::{EVEN, HEIGHT, WIDTH, axis_label, coordinate, lines, log_lines, steps};
use crate::figures::figure;
use crate::markup::{Column, Text, table};
use std::fmt::Write as _;

/// Labels along the axis at most: they have room on a telephone.
const MOST_LABELS: usize = 10;
/// Ways to draw a line; a further one looks like the first.
const STYLES: usize = 6;

/// Curves over a logarithmic axis, with a table of their figures beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves<'a> {
    /// What is drawn.
    pub title: &'a str,
    /// The unit of the values.
    pub unit: &'a str,
    /// What the axis to the right is: `reads in flight`.
    pub over: &'a str,
    /// What there is to be seen, in a sentence: for who cannot see the drawing.
    pub about: String,
    /// Values on a logarithmic axis; else the axis begins with 0.
    pub log: bool,
    /// The curves.
    pub series: Vec<Series<'a>>,
    /// Places on the axis that have a name.
    pub marks: Vec<Mark>,
}

/// One curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Series<'a> {
    /// Its name in the legend and the table.
    pub name: &'a str,
    /// Its points, in any order.
    pub points: Vec<Point>,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Where on the axis: a positive number, or 0 for a place of its own before it, to which no line leads.
    pub at: f64,
    /// The value.
    pub value: f64,
    /// The least and the most of what the value stands for, such as the passes of a measurement.
    pub range: Option<(f64, f64)>,
}

/// A place on the axis with a name: a vertical line, labelled `knee: 32`.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Where, as in [`Point::at`].
    pub at: f64,
    /// Its name: `knee`.
    pub name: String,
}

impl Point {
    /// Whether it can be drawn.
    fn fits(&self, log: bool) -> bool {
        let value = self.value.is_finite() && if log { self.value > 0.0 } else { self.value >= 0.0 };
        value && self.at.is_finite() && self.at >= 0.0
    }
}

/// Where something is on the axis.
struct Across {
    /// The least and the most that is not 0.
    ends: Option<(f64, f64)>,
    /// Whether there is a place for 0.
    zero: bool,
}

impl Across {
    fn of(places: impl Iterator<Item = f64>) -> Across {
        let mut across = Across { ends: None, zero: false };
        for at in places.filter(|at| at.is_finite()) {
            if at > 0.0 {
                let (least, most) = across.ends.unwrap_or((at, at));
                across.ends = Some((least.min(at), most.max(at)));
            } else {
                across.zero = true;
            }
        }
        across
    }

    /// Doublings from one end to the other, and one for the place of 0.
    fn length(&self) -> f64 {
        let doublings = self.ends.map_or(0.0, |(least, most)| (most / least).log2());
        doublings + if self.zero && self.ends.is_some() { 1.0 } else { 0.0 }
    }

    /// The share of the axis to the left of a place.
    fn share(&self, at: f64) -> f64 {
        let length = self.length();
        let least = self.ends.map_or(1.0, |(least, _)| least);
        match at {
            _ if length <= 0.0 => 0.5,
            at if at <= 0.0 => 0.0,
            at => (((at / least).log2() + f64::from(u8::from(self.zero))) / length).clamp(0.0, 1.0),
        }
    }

    /// The places that have a label: 0 if it is there, and doublings of the least.
    fn labels(&self) -> Vec<f64> {
        let mut doublings: Vec<f64> = Vec::new();
        if let Some((least, most)) = self.ends {
            let all = std::iter::successors(Some(least), |at| Some(at * 2.0));
            doublings = all.take_while(|at| *at <= most * (1.0 + 1e-9)).take(2048).collect();
        }
        let every = (doublings.len() + usize::from(self.zero)).div_ceil(MOST_LABELS).max(1);
        let zero = self.zero.then_some(0.0);
        zero.into_iter().chain(doublings.into_iter().step_by(every)).collect()
    }
}

/// The axis of the values.
struct Up {
    lines: Vec<f64>,
    log: bool,
}

impl Up {
    fn of(values: &[f64], log: bool) -> Up {
        let most = values.iter().copied().fold(0.0, f64::max);
        let lines = if log {
            log_lines(values.iter().copied().fold(f64::INFINITY, f64::min), most)
        } else {
            let (line, top) = lines(most, false);
            steps(line, top).collect()
        };
        Up { lines, log }
    }

    /// The share of the axis below a value.
    fn share(&self, value: f64) -> f64 {
        let least = self.lines.first().copied().unwrap_or(0.0);
        let most = self.lines.last().copied().unwrap_or(1.0);
        let share = if self.log {
            (value / least).ln() / (most / least).ln()
        } else {
            (value - least) / (most - least)
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    fn y(&self, value: f64) -> String {
        coordinate((1.0 - self.share(value)) * HEIGHT)
    }

    fn label(&self, value: f64) -> String {
        // A thousandth is worth a line on a logarithmic axis, and so its digits.
        if self.log && value < 0.1 { value.to_string() } else { axis_label(value) }
    }
}

impl Curves<'_> {
    /// The chart as a figure, with its table.
    pub fn render(&self, out: &mut String) {
        let series: Vec<(&str, Vec<Point>)> =
            self.series.iter().map(|one| (one.name, sorted(&one.points, self.log))).collect();
        let points = || series.iter().flat_map(|(_, points)| points);
        let values: Vec<f64> = points()
            .flat_map(|point| {
                let (least, most) = self.range(point).unwrap_or((point.value, point.value));
                [point.value, least, most]
            })
            .collect();
        let marks: Vec<&Mark> =
            self.marks.iter().filter(|mark| mark.at.is_finite() && mark.at >= 0.0).collect();
        let across = Across::of(points().map(|point| point.at).chain(marks.iter().map(|mark| mark.at)));
        let up = Up::of(&values, self.log);

        let _ = write!(
            out,
            "<figure class=\"curve\">\n<figcaption><b>{}</b> <span class=\"unit\">{}</span>\
             </figcaption>\n<div>\n",
            Text(self.title),
            Text(self.unit)
        );
        legend(out, &series);
        names(out, &marks, &across);
        out.push_str("<div class=\"plot tall\">\n<div class=\"y\" aria-hidden=\"true\">");
        for line in &up.lines {
            let bottom = coordinate(up.share(*line) * 100.0);
            let _ = write!(out, "<span style=\"bottom:{bottom}%\">{}</span>", up.label(*line));
        }
        let _ = write!(
            out,
            "</div>\n<div class=\"area\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" \
             role=\"img\"><title>{}</title>",
            Text(&self.about)
        );
        let grid: String = up.lines.iter().map(|line| format!("M0 {}H{WIDTH}", up.y(*line))).collect();
        let _ = write!(out, "<path class=\"grid\" {EVEN} d=\"{grid}\"/>");
        for mark in &marks {
            let x = coordinate(across.share(mark.at) * WIDTH);
            let _ = write!(out, "<path class=\"mark\" {EVEN} d=\"M{x} 0V{HEIGHT}\"/>");
        }
        for (number, (name, points)) in series.iter().enumerate() {
            self.curve(out, number % STYLES, name, points, &across, &up);
        }
        out.push_str("</svg></div>\n<div class=\"x\" aria-hidden=\"true\">");
        for at in across.labels() {
            let left = coordinate(across.share(at) * 100.0);
            let _ = write!(out, "<span style=\"left:{left}%\">{}</span>", axis_label(at));
        }
        let _ = write!(
            out,
            "</div>\n<div class=\"time\" aria-hidden=\"true\">{}</div>\n</div>\n</div>\n",
            Text(self.over)
        );
        self.table(out, &series, &marks);
        out.push_str("</figure>\n");
    }

    /// A point's range, if it can be drawn.
    fn range(&self, point: &Point) -> Option<(f64, f64)> {
        let fits = |value: f64| Point { value, ..*point }.fits(self.log);
        point.range.filter(|(least, most)| fits(*least) && fits(*most))
    }

    fn curve(&self, out: &mut String, style: usize, name: &str, points: &[Point], across: &Across, up: &Up) {
        let x = |point: &Point| coordinate(across.share(point.at) * WIDTH);
        let mut line = String::new();
        // No line leads to the place of 0: it is not on the way to 1.
        for point in points.iter().filter(|point| point.at > 0.0) {
            let to = if line.is_empty() { 'M' } else { 'L' };
            let _ = write!(line, "{to}{} {}", x(point), up.y(point.value));
        }
        if !line.is_empty() {
            let _ = write!(out, "<path class=\"line s{style}\" {EVEN} d=\"{line}\"/>");
        }
        for point in points {
            if let Some((least, most)) = self.range(point) {
                let (x, least, most) = (x(point), up.y(least), up.y(most));
                let _ = write!(out, "<path class=\"range s{style}\" {EVEN} d=\"M{x} {least}V{most}\"/>");
            }
            // A line of no length with round ends is a dot that is not stretched with the drawing.
            let _ = write!(
                out,
                "<path class=\"dot s{style}\" {EVEN} d=\"M{} {}h.01\"><title>{}, {} {}: {} {}</title></path>",
                x(point),
                up.y(point.value),
                Text(name),
                axis_label(point.at),
                Text(self.over),
                figure(point.value),
                Text(self.unit)
            );
        }
    }

    fn table(&self, out: &mut String, series: &[(&str, Vec<Point>)], marks: &[&Mark]) {
        let mut places: Vec<f64> =
            series.iter().flat_map(|(_, points)| points).map(|point| point.at).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let mut columns = vec![Column::Figures(self.over)];
        columns.extend(series.iter().map(|(name, _)| Column::Figures(name)));
        let rows: Vec<Vec<String>> = places
            .iter()
            .map(|at| {
                let here = marks.iter().filter(|mark| mark.at.total_cmp(at).is_eq());
                let named: String =
                    here.map(|mark| format!("<span class=\"named\">{}</span> ", Text(&mark.name))).collect();
                let mut row = vec![format!("{named}{}", axis_label(*at))];
                row.extend(series.iter().map(|(_, points)| {
                    let point = points.iter().find(|point| point.at.total_cmp(at).is_eq());
                    point.map_or("\u{2013}".to_owned(), |point| figure(point.value))
                }));
                row
            })
            .collect();
        table(out, &format!("{}, {}", self.title, self.unit), &columns, &rows);
    }
}

/// The points that can be drawn, from left to right; of several at one place the last.
fn sorted(points: &[Point], log: bool) -> Vec<Point> {
    let mut sorted: Vec<Point> = points.iter().copied().filter(|point| point.fits(log)).collect();
    sorted.sort_by(|a, b| a.at.total_cmp(&b.at));
    sorted.reverse();
    sorted.dedup_by(|a, b| a.at.total_cmp(&b.at).is_eq());
    sorted.reverse();
    sorted
}

fn legend(out: &mut String, series: &[(&str, Vec<Point>)]) {
    if series.len() < 2 {
        return;
    }
    out.push_str("<ul class=\"legend\">\n");
    for (number, (name, _)) in series.iter().enumerate() {
        let style = number % STYLES;
        let _ = writeln!(
            out,
            "<li><svg class=\"stroke\" viewBox=\"0 0 28 10\" aria-hidden=\"true\">\
             <path class=\"line s{style}\" d=\"M0 5H28\"/>\
             <path class=\"dot s{style}\" d=\"M14 5h.01\"/></svg>{}</li>",
            Text(name)
        );
    }
    out.push_str("</ul>\n");
}

/// The names of marks above the drawing, each on a line of its own: they may be close to each other.
fn names(out: &mut String, marks: &[&Mark], across: &Across) {
    if marks.is_empty() {
        return;
    }
    out.push_str("<div class=\"marks\" aria-hidden=\"true\">");
    for mark in marks {
        let share = across.share(mark.at);
        let side = match share {
            s if s < 0.2 => "start",
            s if s > 0.8 => "end",
            _ => "middle",
        };
        let _ = write!(
            out,
            "<div><span class=\"{side}\" style=\"left:{}%\">{}: {}</span></div>",
            coordinate(share * 100.0),
            Text(&mark.name),
            axis_label(mark.at)
        );
    }
    out.push_str("</div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markup::tests::parsed;

    fn series<'a>(name: &'a str, points: &[(f64, f64)]) -> Series<'a> {
        let point = |(at, value): &(f64, f64)| Point { at: *at, value: *value, range: None };
        Series { name, points: points.iter().map(point).collect() }
    }

    fn curves<'a>(series: Vec<Series<'a>>) -> Curves<'a> {
        Curves {
            title: "Random <reads>",
            unit: "reads/s",
            over: "reads in flight",
            about: "It grows & stays".into(),
            log: false,
            series,
            marks: Vec::new(),
        }
    }

    fn rendered(curves: &Curves<'_>) -> String {
        let mut out = String::new();
        curves.render(&mut out);
        parsed(&out);
        assert!(!out.contains("NaN") && !out.contains("inf"), "{out}");
        out
    }

    /// The outlines of what has this style class.
    fn drawn(markup: &str, class: &str) -> Vec<String> {
        let document = parsed(markup);
        let paths = document.descendants().filter(|node| node.attribute("class") == Some(class));
        paths.filter_map(|node| node.attribute("d")).map(str::to_owned).collect()
    }

    #[test]
    fn doublings_are_equally_far_apart() {
        let mut chart = curves(vec![series("a", &[(4.0, 30.0), (1.0, 10.0), (2.0, 20.0), (16.0, 40.0)])]);
        chart.marks = vec![Mark { at: 4.0, name: "<knee>".into() }];
        let out = rendered(&chart);
        assert_eq!(drawn(&out, "line s0"), ["M0 75L250 50L500 25L1000 0"]);
        assert_eq!(drawn(&out, "mark"), ["M500 0V100"]);
        assert_eq!(drawn(&out, "dot s0").len(), 4);
        let document = parsed(&out);
        let title = document.descendants().find(|node| node.has_tag_name("title")).expect("a title");
        assert_eq!(title.text(), Some("It grows & stays"));
        // The table has every figure, and the mark.
        let cells: Vec<String> = document
            .descendants()
            .filter(|node| node.has_tag_name("td"))
            .map(|cell| {
                cell.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
            })
            .collect();
        assert_eq!(cells, ["1", "10.0", "2", "20.0", "<knee> 4", "30.0", "16", "40.0"]);
    }

    #[test]
    fn zero_has_a_place_of_its_own() {
        let chart =
            curves(vec![series("a", &[(0.0, 5.0), (1.0, 20.0), (2.0, 10.0)]), series("b", &[(8.0, 1.0)])]);
        let out = rendered(&chart);
        assert_eq!(drawn(&out, "line s0"), ["M0 5H28", "M250 0L500 50"]);
        assert_eq!(drawn(&out, "dot s0"), ["M14 5h.01", "M0 75h.01", "M250 0h.01", "M500 50h.01"]);
        assert_eq!(drawn(&out, "line s1"), ["M0 5H28", "M1000 95"]);
        assert!(out.contains("<td class=\"n\">\u{2013}</td>"), "what was not measured is not 0");
    }

    #[test]
    fn logarithmic_values_and_ranges() {
        let mut chart = curves(vec![series("p50", &[(1.0, 10.0), (2.0, 0.0), (4.0, 1000.0)])]);
        chart.log = true;
        chart.series[0].points[2].range = Some((100.0, 1000.0));
        let out = rendered(&chart);
        assert_eq!(drawn(&out, "line s0"), ["M0 100L1000 0"], "0 has no place on it");
        assert_eq!(drawn(&out, "range s0"), ["M1000 50V0"]);
    }

    #[test]
    fn long_axes_have_few_labels() {
        let across = Across::of([0.0, 1.0, 4096.0].into_iter());
        assert_eq!(across.labels(), [0.0, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0]);
        let across = Across::of([0.0, 1.0, 256.0].into_iter());
        assert_eq!(across.labels().len(), 10);
        assert!(Across::of([f64::MIN_POSITIVE, f64::MAX].into_iter()).labels().len() <= MOST_LABELS);
    }

    #[test]
    fn curves_of_nothing_are_drawn() {
        rendered(&curves(Vec::new()));
        for log in [false, true] {
            for points in
                [vec![], vec![(1.0, 0.0)], vec![(0.0, 3.0)], vec![(f64::NAN, 1.0), (1.0, f64::INFINITY)]]
            {
                let mut chart = curves(vec![series("<none>", &points), series("more", &points)]);
                chart.log = log;
                chart.marks =
                    vec![Mark { at: f64::NAN, name: "x".into() }, Mark { at: 0.0, name: "y".into() }];
                rendered(&chart);
            }
        }
    }
}
