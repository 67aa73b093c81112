//! Curves of what was measured, with their tables.

use super::super::measured::{Depth, Engine, Measured, Mechanism, PAGE, Replay, Tail};
use super::super::report::{Server, Target};
use inrush_page::curves::{Curves, Mark, Point, Series};
use inrush_page::{Column, Text, duration, figure, grouped, percent, table};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A tail that ends with less of what it began with has used up a credit.
const KEPT: f64 = 0.7;

/// All curves of a target.
pub(super) fn write(out: &mut String, target: &Target, measured: &Measured, server: Option<&Server>) {
    random(out, target, measured);
    replays(out, target, measured, server);
    sequential(out, measured);
    if let Some(tail) = &measured.tail {
        kept(out, tail);
    }
}

/// Reads a second and latency over depth, beside those of an earlier measurement if there is one.
fn random(out: &mut String, target: &Target, measured: &Measured) {
    out.push_str("<h3>Random reads</h3>\n");
    if measured.random.is_empty() {
        out.push_str("<p>Random reads at several depths were not measured.</p>\n");
        return;
    }
    let (how, over) = match measured.engine {
        Engine::Aio | Engine::Threads => {
            ("Pages of 8 kB in random order, past the page cache.", "reads in flight")
        }
        Engine::Server => (
            "Pages that lie far apart, as bitmap heap scans of the server got them; those that were in \
             shared_buffers do not count.",
            "effective_io_concurrency",
        ),
    };
    let _ = writeln!(
        out,
        "<p class=\"soft\">{how} Where more in flight give no more reads, only their latency grows.</p>"
    );
    let mut marks: Vec<Mark> = Vec::new();
    if let Some(knee) = target.verdict.knee {
        marks.push(Mark { at: f64::from(knee), name: "knee".to_owned() });
    }
    if let Some(gentle) = target.verdict.gentle {
        marks.push(Mark { at: f64::from(gentle), name: "gentle".to_owned() });
    }
    let before = target.before.as_ref().map(|before| &before.measured.random[..]).unwrap_or_default();
    let mut series = vec![Series { name: "reads a second", points: reads(&measured.random) }];
    if !before.is_empty() {
        series[0].name = "now";
        series.push(Series { name: "before", points: reads(before) });
    }
    let most = measured.random.iter().map(|one| one.iops).fold(0.0, f64::max);
    let knee = target.verdict.knee.map_or("no knee is known".to_owned(), |knee| {
        format!("{knee} in flight give nine tenths of the most")
    });
    Curves {
        title: "Reads a second",
        unit: "8 kB reads/s",
        over,
        about: format!(
            "Random reads a second over reads in flight: {} with one, {} at most; {knee}",
            measured.iops(1).map_or("not measured".to_owned(), figure),
            figure(most)
        ),
        log: false,
        series,
        marks: marks.clone(),
    }
    .render(out);
    if measured.random.iter().all(|one| one.p99_us <= 0.0) {
        out.push_str("<p class=\"soft\">The latency of single reads could not be seen.</p>\n");
        return;
    }
    let of = |value: fn(&Depth) -> f64| -> Vec<Point> {
        let point = |one: &Depth| Point { at: f64::from(one.depth), value: value(one), range: None };
        measured.random.iter().map(point).collect()
    };
    let p99 = target.verdict.knee_p99_us.map_or(String::new(), |us| {
        format!("; at the knee 99 of 100 are answered within {}", duration(us / 1e6))
    });
    Curves {
        title: "Latency of a read",
        unit: "µs",
        over,
        about: format!("Median and 99th percentile of the latency over reads in flight{p99}"),
        log: true,
        series: vec![
            Series { name: "median", points: of(|one| one.p50_us) },
            Series { name: "99th percentile", points: of(|one| one.p99_us) },
        ],
        marks,
    }
    .render(out);
    if target.verdict.gentle.is_some() {
        out.push_str(
            "<p class=\"soft\">Gentle: most of the reads, and much less latency, for storage that is shared \
             with traffic that must be answered at once.</p>\n",
        );
    }
}

fn reads(depths: &[Depth]) -> Vec<Point> {
    let point = |one: &Depth| Point { at: f64::from(one.depth), value: one.iops, range: range(&one.passes) };
    depths.iter().map(point).collect()
}

/// The least and the most of some passes.
fn range(passes: &[f64]) -> Option<(f64, f64)> {
    let least = passes.iter().copied().reduce(f64::min)?;
    let most = passes.iter().copied().reduce(f64::max)?;
    (passes.len() > 1).then_some((least, most))
}

/// Microseconds a page over effective_io_concurrency: a chart for each mechanism, a curve for each density.
fn replays(out: &mut String, target: &Target, measured: &Measured, server: Option<&Server>) {
    out.push_str("<h3>Scans with gaps</h3>\n");
    if measured.replays.is_empty() {
        out.push_str("<p>Scans with gaps were not measured.</p>\n");
        return;
    }
    out.push_str(
        "<p class=\"soft\">Some pages of a file in ascending order, through the page cache, as a bitmap heap \
         scan reads them. 0 asks for none ahead and leaves reading ahead to the kernel.</p>\n",
    );
    let marks = Marks::of(target, measured, server);
    let mut mechanisms: Vec<Mechanism> =
        measured.replays.iter().map(|one| one.mechanism).collect::<BTreeSet<_>>().into_iter().collect();
    let here = marks.mechanisms();
    // That of now first, then the one that is advised. Where neither is known, none is more important.
    mechanisms.sort_by_key(|one| here.iter().position(|here| *here == Some(*one)).unwrap_or(here.len()));
    let known = here.iter().any(Option::is_some);
    let (shown, others): (Vec<Mechanism>, Vec<Mechanism>) =
        mechanisms.into_iter().partition(|one| !known || here.contains(&Some(*one)));
    for mechanism in shown {
        replay(out, measured, mechanism, &marks);
    }
    if !others.is_empty() {
        out.push_str(
            "<details>\n<summary>How it would be with another version or other settings</summary>\n",
        );
        for mechanism in others {
            replay(out, measured, mechanism, &marks);
        }
        out.push_str("</details>\n");
    }
}

fn replay(out: &mut String, measured: &Measured, mechanism: Mechanism, marks: &Marks) {
    let replays = || measured.replays.iter().filter(|one| one.mechanism == mechanism);
    let mut densities: Vec<f64> = replays().map(|one| one.density).collect();
    densities.sort_by(f64::total_cmp);
    densities.dedup();
    let names: Vec<String> =
        densities.iter().map(|density| format!("{} of pages", percent(*density))).collect();
    let point =
        |one: &Replay| Point { at: f64::from(one.ahead), value: one.page_us, range: range(&one.passes) };
    let series: Vec<Series<'_>> = densities
        .iter()
        .zip(&names)
        .map(|(density, name)| {
            let of = replays().filter(|one| one.density.total_cmp(density).is_eq());
            Series { name, points: of.map(point).collect() }
        })
        .collect();
    let best = replays().min_by(|a, b| a.page_us.total_cmp(&b.page_us));
    let worst = replays().max_by(|a, b| a.page_us.total_cmp(&b.page_us));
    let at = |one: Option<&Replay>| {
        one.map_or("not measured".to_owned(), |one| {
            let page = duration(one.page_us / 1e6);
            format!("{page} at {} where {} of the pages are read", one.ahead, percent(one.density))
        })
    };
    let here = marks.now.is_some_and(|now| now.mechanism == mechanism);
    let title = format!("{}{}", name(mechanism), if here { ", as this server reads" } else { "" });
    Curves {
        title: &title,
        unit: "µs a page",
        over: "effective_io_concurrency",
        about: format!(
            "Time of a page over effective_io_concurrency, read ahead by {}: the least is {}, the most {}",
            name(mechanism),
            at(best),
            at(worst)
        ),
        log: true,
        series,
        marks: marks.on(mechanism),
    }
    .render(out);
}

/// How pages are read ahead, in words.
pub(super) fn name(mechanism: Mechanism) -> String {
    match mechanism {
        Mechanism::Advice => "posix_fadvise page by page (PostgreSQL until 17)".to_owned(),
        Mechanism::CombinedAdvice => {
            "posix_fadvise for runs of pages (PostgreSQL 18, io_method sync)".to_owned()
        }
        Mechanism::Workers { workers: 1 } => "1 I/O worker (PostgreSQL 18)".to_owned(),
        Mechanism::Workers { workers } => format!("{workers} I/O workers (PostgreSQL 18)"),
        Mechanism::IoUring => "io_uring (PostgreSQL 18, io_method io_uring)".to_owned(),
    }
}

/// How the server reads ahead now, how it would as advised, and where that is on the axes of replays.
struct Marks {
    now: Option<Place>,
    advised: Option<Place>,
}

/// A mechanism that was measured, and effective_io_concurrency as far as it is known.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    mechanism: Mechanism,
    concurrency: Option<u32>,
}

impl Marks {
    fn of(target: &Target, measured: &Measured, server: Option<&Server>) -> Marks {
        const SETTING: &str = "effective_io_concurrency";
        let Some(server) = server else { return Marks { now: None, advised: None } };
        let advice = target.advice.iter().find(|one| one.setting == SETTING);
        let right = target.already_right.iter().find(|one| one.setting == SETTING);
        let now = advice.and_then(|one| one.now.as_deref()).or(right.map(|one| one.now.as_str()));
        let now: Option<u32> = now.and_then(|now| now.parse().ok());
        let advised = advice.map_or(now, |advice| advice.advised.parse().ok());
        let workers = target.advice.iter().find(|one| one.setting == "io_workers");
        let workers = workers.and_then(|one| one.advised.parse().ok()).or(server.io_workers);
        let place = |workers, concurrency: Option<u32>| {
            let method = server.io_method.as_deref();
            let mechanism = measured.nearest(Mechanism::of(server.version_num, method, workers))?;
            Some(Place { mechanism, concurrency })
        };
        Marks { now: place(server.io_workers, now), advised: place(workers, advised) }
    }

    /// The mechanisms of now and then.
    fn mechanisms(&self) -> [Option<Mechanism>; 2] {
        [self.now, self.advised].map(|place| place.map(|place| place.mechanism))
    }

    fn on(&self, mechanism: Mechanism) -> Vec<Mark> {
        let here = |place: Option<Place>| place.filter(|place| place.mechanism == mechanism)?.concurrency;
        let mark = |n: u32, name: &str| Mark { at: f64::from(n), name: name.to_owned() };
        let (now, advised) = (here(self.now), here(self.advised));
        match now.filter(|now| advised == Some(*now)) {
            Some(both) => vec![mark(both, "now, and right")],
            None => {
                let now = now.map(|now| mark(now, "now"));
                now.into_iter().chain(advised.map(|advised| mark(advised, "advised"))).collect()
            }
        }
    }
}

#[allow(clippy::cast_precision_loss)] // 8192
fn sequential(out: &mut String, measured: &Measured) {
    out.push_str("<h3>From front to back</h3>\n");
    if measured.sequential.is_empty() {
        out.push_str("<p>Sequential reads were not measured.</p>\n");
        return;
    }
    let rows: Vec<Vec<String>> = measured
        .sequential
        .iter()
        .map(|one| {
            let how = match one.buffered {
                true => "through the page cache, with the kernel's read-ahead, as PostgreSQL reads",
                false => "past the page cache, one read at a time",
            };
            let page = if one.bytes_per_second > 0.0 {
                duration(PAGE as f64 / one.bytes_per_second)
            } else {
                "\u{2013}".to_owned()
            };
            vec![
                how.to_owned(),
                format!("{}\u{a0}kB", grouped(one.request_bytes / 1024)),
                figure(one.bytes_per_second / 1e6),
                page,
            ]
        })
        .collect();
    let columns = [
        Column::Words("how"),
        Column::Figures("size of a read"),
        Column::Figures("MB/s"),
        Column::Figures("time of 8 kB"),
    ];
    table(out, "Sequential reads.", &columns, &rows);
}

fn kept(out: &mut String, tail: &Tail) {
    let lost = tail.last_iops < KEPT * tail.first_iops;
    let _ = writeln!(
        out,
        "<h3>Does it last?</h3>\n<p><span class=\"{}\">{}</span> With {} reads in flight for {}\u{a0}s: {} \
         reads a second in the first part, {} in the last.{}</p>",
        if lost { "bad" } else { "good" },
        if lost { "No." } else { "Yes, as long as was looked." },
        tail.depth,
        figure(tail.seconds),
        figure(tail.first_iops),
        figure(tail.last_iops),
        Text(if lost {
            " Such storage gives more for a while and takes it back when a credit is used up."
        } else {
            ""
        })
    );
}
