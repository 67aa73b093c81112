//! The plots of a page, from a record.

use super::svg::{Svg, marks, scale};
use super::tables::{label, show};
use crate::{Contender, Ladder, Place, Record, Run};

/// Natural width of every plot.
const WIDTH: f64 = 960.0;
/// What names and axis marks need.
const NAMES: f64 = 190.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 20.0;
const FOOT: f64 = 20.0;
/// Between panels.
const GAP: f64 = 22.0;
/// What the figure after a bar needs.
const FIGURE: f64 = 54.0;

/// Bars side by side with others of the same rows.
struct Panel {
    head: String,
    /// Part of the width that panels share.
    share: f64,
    /// The end of the scale; 0: it is made from the bars.
    most: f64,
    bars: Vec<Bar>,
}

/// What stands left of the bars.
struct Row {
    /// Stands over the rows down to the next that has one.
    group: String,
    name: String,
}

#[derive(Default)]
struct Bar {
    /// Class and length of each piece.
    pieces: Vec<(&'static str, f64)>,
    /// Raw values.
    dots: Vec<f64>,
    figure: String,
    tip: String,
}

/// Who is drawn how.
pub fn class(record: &Record, place: &Place, contender: &Contender) -> &'static str {
    if !contender.server {
        "limit"
    } else if contender.command.contains("$INRUSH") {
        "ours"
    } else if contender.name == record.case.baseline_of(&record.rung(place)) {
        "base"
    } else {
        "other"
    }
}

/// Seconds to COMMIT, CPU and WAL of everybody with the same rows at a place. `like` are the places to share the
/// scales with. `None` if nobody has a run that counts.
pub fn seconds(record: &Record, place: &Place, like: &[Place]) -> Option<String> {
    let same_rows = |place: &Place, contender: &&Contender| {
        record.rows_for(place, contender) == record.case.rows_of(&record.rung(place))
    };
    let shown: Vec<&Contender> = record.contenders_at(place).filter(|c| same_rows(place, c)).collect();
    let most = |what: &dyn Fn(&Run) -> f64| {
        let values = like.iter().flat_map(|place| {
            record
                .contenders_at(place)
                .filter(|c| same_rows(place, c))
                .flat_map(|contender| record.of(place, &contender.name).map(what))
        });
        values.fold(0.0, f64::max)
    };
    let panels = [
        Panel {
            head: "seconds to COMMIT".to_owned(),
            share: 0.5,
            most: most(&|run| run.seconds),
            bars: shown.iter().map(|c| time_bar(record, place, c)).collect(),
        },
        Panel {
            head: "CPU s: client, server".to_owned(),
            share: 0.27,
            most: most(&cpu),
            bars: shown.iter().map(|c| cpu_bar(record, place, c, |_| 1.0)).collect(),
        },
        Panel {
            head: "WAL MB".to_owned(),
            share: 0.23,
            most: most(&|run| megabytes(run.wal_bytes)),
            bars: shown.iter().map(|c| wal_bar(record, place, c, |_| 1e6)).collect(),
        },
    ];
    let rows: Vec<_> = shown.iter().map(|c| Row { group: String::new(), name: c.name.clone() }).collect();
    draw(&rows, &panels, &format!("Seconds to COMMIT, CPU and WAL: {}", record.title(place)))
}

/// Rows a second, CPU and WAL of a row, at a place where some have fewer rows than the others: the figures that may
/// be compared there. `None` elsewhere.
pub fn rows(record: &Record, place: &Place) -> Option<String> {
    let shown: Vec<&Contender> = record.contenders_at(place).filter(|c| c.server).collect();
    let whole = record.case.rows_of(&record.rung(place));
    if shown.iter().all(|contender| record.rows_for(place, contender) == whole) {
        return None;
    }
    let panels = [
        Panel {
            head: "thousand rows a second".to_owned(),
            share: 0.5,
            most: 0.0,
            bars: shown.iter().map(|c| rate_bar(record, place, c)).collect(),
        },
        Panel {
            head: "CPU microseconds a row".to_owned(),
            share: 0.27,
            most: 0.0,
            bars: shown.iter().map(|c| cpu_bar(record, place, c, |run| float(run.rows) / 1e6)).collect(),
        },
        Panel {
            head: "WAL bytes a row".to_owned(),
            share: 0.23,
            most: 0.0,
            bars: shown.iter().map(|c| wal_bar(record, place, c, |run| float(run.rows))).collect(),
        },
    ];
    let names = shown.iter().map(|c| label(record, place, c));
    let rows: Vec<_> = names.map(|name| Row { group: String::new(), name }).collect();
    draw(&rows, &panels, &format!("Rows a second, CPU and WAL of a row: {}", record.title(place)))
}

fn time_bar(record: &Record, place: &Place, contender: &Contender) -> Bar {
    let runs: Vec<f64> = record.of(place, &contender.name).map(|run| run.seconds).collect();
    let median = record.median(place, &contender.name, |run| Some(run.seconds));
    bar(class(record, place, contender), median, runs, 2, &contender.name, "s")
}

fn rate_bar(record: &Record, place: &Place, contender: &Contender) -> Bar {
    let rate = |run: &Run| float(run.rows) / run.seconds / 1e3;
    let runs: Vec<f64> = record.of(place, &contender.name).map(rate).collect();
    let median = record.median(place, &contender.name, |run| Some(rate(run)));
    bar(class(record, place, contender), median, runs, 0, &contender.name, "thousand rows a second")
}

fn wal_bar(record: &Record, place: &Place, contender: &Contender, over: fn(&Run) -> f64) -> Bar {
    if !contender.server {
        return Bar { figure: "-".to_owned(), ..Bar::default() };
    }
    let median = record.median(place, &contender.name, |run| Some(float(run.wal_bytes) / over(run)));
    bar("wal", median, Vec::new(), 0, &contender.name, "of WAL")
}

fn cpu_bar(record: &Record, place: &Place, contender: &Contender, over: fn(&Run) -> f64) -> Bar {
    let median = |what: &dyn Fn(&Run) -> Option<f64>| {
        record.median(place, &contender.name, |run| Some(what(run)? / over(run)))
    };
    let client = median(&|run| Some(run.client_seconds()));
    let server = median(&|run| run.server_cpu_seconds);
    let Some(client) = client else { return Bar::default() };
    Bar {
        pieces: vec![("client", client), ("server", server.unwrap_or(0.0))],
        dots: Vec::new(),
        figure: show(Some(client + server.unwrap_or(0.0)), 2),
        tip: format!("{}: client {client:.2}, server {}", contender.name, show(server, 2)),
    }
}

fn bar(
    class: &'static str,
    median: Option<f64>,
    dots: Vec<f64>,
    digits: usize,
    name: &str,
    unit: &str,
) -> Bar {
    let Some(median) = median else {
        // Who is drawn has runs: none of them counts.
        return Bar { figure: "failed".to_owned(), ..Bar::default() };
    };
    let figure = show(Some(median), digits);
    Bar { pieces: vec![(class, median)], dots, tip: format!("{name}: {figure} {unit}"), figure }
}

/// Rungs over their base: each contender's bar, and the study's.
pub fn ladder(record: &Record, ladder: &Ladder) -> Option<String> {
    let mut rows = Vec::new();
    let mut bars: Vec<Bar> = Vec::new();
    for (i, line) in ladder.lines.iter().enumerate() {
        let begins = i == 0 || ladder.lines[i - 1].rung != line.rung;
        let group = if begins { line.rung.clone() } else { String::new() };
        rows.push(Row { group, name: line.contender.clone() });
        let ours = record.case.contender(&line.contender).is_some_and(|c| c.command.contains("$INRUSH"));
        let class = if ours { "ours" } else { "base" };
        bars.push(bar(class, line.ours, Vec::new(), 2, &line.contender, "times its base"));
        let ends = ladder.lines.get(i + 1).is_none_or(|next| next.rung != line.rung);
        if ends && line.published.is_some() {
            rows.push(Row { group: String::new(), name: "published".to_owned() });
            bars.push(bar("published", line.published, Vec::new(), 2, "published", "times its base"));
        }
    }
    let panels = [Panel { head: "MB/s over MB/s of the base".to_owned(), share: 1.0, most: 0.0, bars }];
    draw(&rows, &panels, &ladder.title)
}

/// Rows of bars in panels side by side.
fn draw(rows: &[Row], panels: &[Panel], about: &str) -> Option<String> {
    if panels.iter().all(|panel| panel.bars.iter().all(|bar| bar.pieces.is_empty())) {
        return None;
    }
    // A guess at the width of a letter; names that are longer than usual take from the bars.
    let width_of = |letters: usize| if letters == 0 { 0.0 } else { float(letters as u64) * 6.6 + 14.0 };
    let widest = |letters: &dyn Fn(&Row) -> usize| width_of(rows.iter().map(letters).max().unwrap_or(0));
    let groups = widest(&|row| row.group.chars().count());
    let names_width = (groups + widest(&|row| row.name.chars().count())).clamp(NAMES, WIDTH / 2.0);
    let height = HEAD + ROW * float(rows.len() as u64) + FOOT;
    let mut svg = Svg::new(WIDTH, height);
    for (i, row) in rows.iter().enumerate() {
        svg.text("end", (names_width - 8.0, middle(i)), &row.name);
        if !row.group.is_empty() {
            let y = HEAD + ROW * float(i as u64);
            if i > 0 {
                svg.line("grid", (0.0, y), (WIDTH, y));
            }
            svg.text("group", (0.0, middle(i)), &row.group);
        }
    }
    let room = WIDTH - names_width - GAP * float(panels.len() as u64 - 1);
    let mut left = names_width;
    for panel in panels {
        let width = room * panel.share;
        let longest = |bar: &Bar| {
            let all: f64 = bar.pieces.iter().map(|(_, length)| length).sum();
            bar.dots.iter().copied().fold(all, f64::max)
        };
        let most = panel.bars.iter().map(longest).fold(panel.most, f64::max);
        let (top, step) = scale(most, (width / 70.0).clamp(2.0, 8.0));
        let x = |value: f64| left + (width - FIGURE) * value / top;
        svg.text("head", (left, 13.0), &panel.head);
        for (value, word) in marks(top, step) {
            svg.line("grid", (x(value), HEAD), (x(value), height - FOOT));
            svg.text("mid-soft", (x(value), height - 6.0), &word);
        }
        for (i, bar) in panel.bars.iter().enumerate() {
            let y = HEAD + ROW * float(i as u64);
            let mut from = 0.0;
            for &(class, length) in &bar.pieces {
                svg.bar(class, (x(from), y + 4.0), (x(from + length) - x(from), ROW - 8.0), &bar.tip);
                from += length;
            }
            for &value in &bar.dots {
                svg.dot("run", (x(value), y + ROW / 2.0), 2.5, &format!("{value:.3}"));
            }
            let end = bar.dots.iter().copied().fold(from, f64::max);
            svg.text("soft", (x(end) + 6.0, middle(i)), &bar.figure);
        }
        svg.line("axis", (left, HEAD), (left, height - FOOT));
        left += width + GAP;
    }
    Some(svg.end(about))
}

/// The base line of a row's text.
fn middle(row: usize) -> f64 {
    HEAD + ROW * float(row as u64) + ROW / 2.0 + 4.0
}

/// MB/s over the number of sessions, a line for each contender; `None` for a rung with one number.
pub fn over_sessions(record: &Record, places: &[&Place]) -> Option<String> {
    let numbers: Vec<f64> = places.iter().filter_map(|place| place.sessions.map(f64::from)).collect();
    let (least, most) =
        (numbers.iter().copied().fold(f64::INFINITY, f64::min), numbers.iter().copied().fold(0.0, f64::max));
    if numbers.len() != places.len() || least >= most {
        return None;
    }
    let contenders: Vec<&Contender> = record
        .case
        .contenders
        .iter()
        .filter(|c| places.iter().any(|place| record.of(place, &c.name).next().is_some()))
        .collect();
    let rate = |run: &Run| megabytes(record.input_bytes(run)) / run.seconds;
    let all = contenders.iter().flat_map(|c| places.iter().flat_map(|p| record.of(p, &c.name).map(rate)));
    let (top, step) = scale(all.fold(0.0, f64::max), 5.0);
    let (height, left, right) = (300.0, 56.0, WIDTH - 220.0);
    let (floor, ceiling) = (height - 40.0, 28.0);
    // Twice the sessions, one step to the right.
    let x = |sessions: f64| left + (right - left) * ((sessions / least).log2() / (most / least).log2());
    let y = |value: f64| floor - (floor - ceiling) * value / top;
    let mut svg = Svg::new(WIDTH, height);
    svg.text("head", (left, 13.0), "MB/s to COMMIT");
    for (value, word) in marks(top, step) {
        svg.line("grid", (left, y(value)), (right, y(value)));
        svg.text("end-soft", (left - 8.0, y(value) + 4.0), &word);
    }
    for &sessions in &numbers {
        svg.text("mid-soft", (x(sessions), floor + 18.0), &format!("{sessions:.0}"));
    }
    svg.text("mid-soft", (f64::midpoint(left, right), height - 4.0), "sessions");
    let mut names: Vec<(f64, String)> = Vec::new();
    for (i, contender) in contenders.iter().enumerate() {
        let class = format!("s{}", i % 6);
        let mut points = Vec::new();
        for place in places {
            let sessions = f64::from(place.sessions.unwrap_or(1));
            if let Some(mbps) = record.mbps(place, &contender.name) {
                points.push((x(sessions), y(mbps)));
            }
            for run in record.of(place, &contender.name) {
                let tip = format!("{}, {sessions} sessions: {:.0} MB/s", contender.name, rate(run));
                svg.dot(&class, (x(sessions), y(rate(run))), 3.0, &tip);
            }
        }
        svg.path(&class, &points);
        if let Some((_, end)) = points.last() {
            names.push((*end, contender.name.clone()));
        }
    }
    // Names stand at the ends of their lines, a line of text apart.
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut lowest = 0.0;
    for (end, name) in names {
        lowest = f64::max(end + 4.0, lowest + 15.0);
        svg.text("soft", (right + 10.0, lowest), &name);
    }
    Some(svg.end(&format!("MB/s over sessions: {}", record.server_title(places[0].server))))
}

fn cpu(run: &Run) -> f64 {
    run.client_seconds() + run.server_cpu_seconds.unwrap_or(0.0)
}

fn megabytes(bytes: u64) -> f64 {
    float(bytes) / 1e6
}

#[allow(clippy::cast_precision_loss)] // pixels and figures for a person
fn float(n: u64) -> f64 {
    n as f64
}
