//! What a record looks like.

use crate::c5::goals::{beside, judge};
use crate::c5::{Case, Method, Query, Record, Rung, Turn};
use crate::render::{Table, end_of_notes, facts_of_host, facts_tables_notes, grouped, terminal, words};
use crate::{Absent, median};
use std::fmt::Write as _;

/// For a terminal.
pub fn text(record: &Record) -> String {
    let mut out = terminal(&tables(record));
    let notes = notes(record);
    if !notes.is_empty() {
        let _ = writeln!(out, "\n{}", notes.join("\n"));
    }
    out
}

/// Its part of the README of a directory of records.
pub fn section(name: &str, record: &Record) -> String {
    let case = &record.case;
    let out = format!("\n## {}: {} ([{name}]({name}))\n\n", case.name, case.about);
    let mut facts = facts_of_host(&record.began, &record.command, &record.host);
    for (major, settings) in &record.servers {
        let all: Vec<_> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        facts.push((format!("PostgreSQL {major}"), all.join(", ")));
    }
    out + &facts_tables_notes(facts, &tables(record), &notes(record))
}

/// A turn that has just ended.
pub fn line(turn: &Turn) -> String {
    let reads = turn.device_reads.map_or("-".to_owned(), |reads| reads.to_string());
    let mut line = format!(
        "{}, {}: {}, effective_io_concurrency {}: {} ms, {reads} reads",
        turn.rung,
        turn.server,
        turn.scan,
        turn.concurrency,
        millis(turn.seconds)
    );
    if let Some(failure) = &turn.failure {
        let _ = write!(line, ", FAILED: {failure}");
    }
    line
}

/// Milliseconds for a person: three figures are enough.
fn millis(seconds: f64) -> String {
    let ms = seconds * 1e3;
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

fn tables(record: &Record) -> Vec<Table> {
    let mut tables = Vec::new();
    for rung in &record.case.rungs {
        for query in [Query::Dense, Query::Sparse, Query::Events, Query::Q6] {
            tables.extend(scans(record, rung, query));
        }
    }
    tables.extend(published(record));
    tables.extend(advice(record));
    tables.extend(curves(record));
    tables.extend(goals(record));
    tables.extend(predictions(record));
    tables
}

fn title(query: Query) -> &'static str {
    match query {
        Query::Dense => "53 % of the pages",
        Query::Sparse => "1 % of the pages",
        Query::Events => "1 % of a time, in order",
        Query::Q6 => "TPC-H Q6, a year of lineitem in no order",
    }
}

/// A scan with one value: a column. Its head, the scan, and the value if it has several.
type Column<'c> = (String, &'c str, Option<u32>);

fn columns<'c>(record: &'c Record, case: &'c Case, rung: &Rung, query: Query) -> Vec<Column<'c>> {
    let mut columns = Vec::new();
    for scan in case.scans.iter().filter(|scan| scan.query == query) {
        let mut values: Vec<u32> =
            rung.servers.iter().flat_map(|server| record.values(&rung.name, server, &scan.name)).collect();
        values.sort_unstable();
        values.dedup();
        if values.is_empty() {
            continue;
        }
        let way = match (scan.method, scan.work_mem.is_some()) {
            (Method::Planner, _) => "planner's",
            (Method::Sequential, _) => "seq",
            (Method::Index, _) => "index",
            (Method::Brin, _) => "brin",
            (Method::Bitmap, true) => "lossy",
            (Method::Bitmap, false) => "",
        };
        if scan.concurrency.is_empty() {
            columns.push((way.to_owned(), scan.name.as_str(), None));
        } else {
            let heads = values
                .iter()
                .map(|value| (format!("{way} {value}").trim().to_owned(), scan.name.as_str(), Some(*value)));
            columns.extend(heads);
        }
    }
    columns
}

fn turns_of<'r>(record: &'r Record, rung: &'r Rung, server: &'r str, column: &Column<'r>) -> Vec<&'r Turn> {
    record.of(&rung.name, server, column.1, column.2).collect()
}

/// Seconds, spread and reads of all scans for the same rows.
fn scans<'r>(record: &'r Record, rung: &'r Rung, query: Query) -> Option<Table> {
    let columns = columns(record, &record.case, rung, query);
    let mut rows = Vec::new();
    for server in &rung.servers {
        let turns = |column: &Column<'r>| turns_of(record, rung, server, column);
        if columns.iter().all(|column| turns(column).is_empty()) {
            continue;
        }
        let mut row = |what: &str, cell: &dyn Fn(&[&Turn]) -> Option<String>| {
            let cells = columns.iter().map(|column| cell(&turns(column)).unwrap_or("-".to_owned()));
            rows.push([server.clone(), what.to_owned()].into_iter().chain(cells).collect::<Vec<_>>());
        };
        row("ms", &|turns| median(turns.iter().map(|turn| turn.seconds).collect()).map(millis));
        row("spread %", &|turns| {
            let values: Vec<f64> = turns.iter().map(|turn| turn.seconds).collect();
            let middle = median(values.clone()).filter(|middle| values.len() > 1 && *middle > 0.0)?;
            let farthest = values.iter().map(|value| (value - middle).abs()).fold(0.0, f64::max);
            Some(format!("{:.0}", farthest / middle * 100.0))
        });
        #[allow(clippy::cast_precision_loss)] // reads of a query
        row("reads", &|turns| {
            let reads = turns.iter().filter_map(|turn| turn.device_reads).map(|reads| reads as f64).collect();
            median(reads).map(grouped)
        });
        row("warm ms", &|turns| {
            median(turns.iter().filter_map(|turn| turn.warm_seconds).collect()).map(millis)
        });
    }
    let heads =
        ["server", ""].into_iter().map(str::to_owned).chain(columns.into_iter().map(|column| column.0));
    (!rows.is_empty()).then(|| Table {
        title: format!("{}: {}", rung.name, title(query)),
        about: format!(
            "{}. Cold, medians; numbers above are effective_io_concurrency of a bitmap heap \
             scan. Spread is the largest distance from the median.",
            rung.about
        ),
        heads: heads.collect(),
        words: vec![0, 1],
        rows,
    })
}

/// Beside the studies.
fn published(record: &Record) -> Option<Table> {
    let mut places = Vec::new();
    for rung in &record.case.rungs {
        for server in &rung.servers {
            if record.case.published.iter().any(|it| beside(record, it, &rung.name, server).is_some()) {
                places.push((rung.name.as_str(), server.as_str()));
            }
        }
    }
    let rows: Vec<Vec<String>> = record
        .case
        .published
        .iter()
        .map(|it| {
            let value = it.concurrency.map_or(String::new(), |value| format!(" {value}"));
            let what = format!("{}{value} over {} {}", it.scan, it.against, it.against_concurrency);
            let ours = places.iter().map(|(rung, server)| {
                beside(record, it, rung, server).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
            });
            [what, format!("{:.2}", it.ratio)].into_iter().chain(ours).chain([it.note.clone()]).collect()
        })
        .collect();
    let heads = places.iter().map(|(rung, server)| format!("{rung} {server}"));
    (!places.is_empty()).then(|| Table {
        title: "Beside the published figures".to_owned(),
        about: "How many times as fast. Those are of 9.x and a consumer SSD, which read bitmap \
                scans as 15 does; the default plan was the bitmap scan with 1."
            .to_owned(),
        heads: words(&["what", "published"]).into_iter().chain(heads).chain(words(&["there"])).collect(),
        words: vec![0, 2 + places.len()],
        rows,
    })
}

/// What is recommended.
fn advice(record: &Record) -> Option<Table> {
    let rows: Vec<_> = record
        .storage
        .iter()
        .map(|stored| {
            let asked = &stored.asked;
            let said = |setting: &str| asked.advised(setting).unwrap_or("-".to_owned());
            vec![
                stored.rung.clone(),
                stored.server.clone(),
                asked.class().unwrap_or("-").to_owned(),
                said("effective_io_concurrency"),
                said("io_workers"),
                said("random_page_cost"),
                format!("{:.0}", asked.seconds),
                asked.absent.clone().unwrap_or_default(),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        title: "What `inrush tune io` says".to_owned(),
        about: String::new(),
        heads: words(&[
            "rung",
            "server",
            "class",
            "effective_io_concurrency",
            "io_workers",
            "random_page_cost",
            "seconds",
            "",
        ]),
        words: vec![0, 1, 2, 7],
        rows,
    })
}

/// Reads a second by depth, ours and fio's.
fn curves(record: &Record) -> Option<Table> {
    let mut rows = Vec::new();
    for stored in &record.storage {
        let measured = stored.asked.measured();
        for one in &stored.fio.depths {
            let (ours, theirs) =
                (measured.as_ref().and_then(|it| it.iops(one.depth)), stored.fio.iops(one.depth));
            let shown = |value: Option<f64>| value.map_or("-".to_owned(), grouped);
            let ratio = ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
            rows.push(vec![
                stored.rung.clone(),
                stored.server.clone(),
                one.depth.to_string(),
                shown(theirs),
                shown(ours),
                ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            ]);
        }
    }
    (!rows.is_empty()).then(|| Table {
        title: "Direct reads of 8 kB in random order".to_owned(),
        about: "Reads a second by fio (libaio; once before and once after) and by `inrush tune io`."
            .to_owned(),
        heads: words(&["rung", "server", "depth", "fio", "inrush", "ratio"]),
        words: vec![0, 1],
        rows,
    })
}

/// Goals, met or missed.
fn goals(record: &Record) -> Option<Table> {
    let mut rows = Vec::new();
    for goal in &record.case.goals {
        for judged in judge(record, goal) {
            rows.push(vec![
                goal.rung.clone(),
                goal.server.clone(),
                judged.wanted,
                judged.found,
                match judged.met {
                    Some(true) => "met",
                    Some(false) => "MISSED",
                    None => "not seen",
                }
                .to_owned(),
            ]);
        }
    }
    (!rows.is_empty()).then(|| Table {
        title: "Goals".to_owned(),
        about: "Of the bitmap heap scan of 53 % of the pages, by medians.".to_owned(),
        heads: words(&["rung", "server", "wanted", "found", ""]),
        words: vec![0, 1, 2, 3, 4],
        rows,
    })
}

/// Predicted and measured.
fn predictions(record: &Record) -> Option<Table> {
    let rows: Vec<_> = record
        .predictions
        .iter()
        .filter_map(|it| {
            let predicted = it.predicted?;
            Some(vec![
                it.rung.clone(),
                it.server.clone(),
                it.scan.clone(),
                it.concurrency.to_string(),
                millis(it.seconds),
                millis(predicted),
                format!("{:.2}", predicted / it.seconds),
                if it.within() == Some(true) { "" } else { "off" }.to_owned(),
            ])
        })
        .collect();
    let within = record.predictions.iter().filter(|it| it.within() == Some(true)).count();
    (!rows.is_empty()).then(|| Table {
        title: "Predicted and measured".to_owned(),
        about: format!(
            "{within} of {} within 25 %. Milliseconds. Without what a limit in slices cannot slow.",
            rows.len()
        ),
        heads: words(&["rung", "server", "scan", "value", "measured", "predicted", "ratio", ""]),
        words: vec![0, 1, 2, 7],
        rows,
    })
}

fn notes(record: &Record) -> Vec<String> {
    let mut notes: Vec<String> = record.absent.iter().map(Absent::sentence).collect();
    for stored in &record.storage {
        if let Some(reason) = &stored.fio.absent {
            notes.push(format!("{}, {}: no curve of fio: {reason}", stored.rung, stored.server));
        }
        if let Some(reason) = &stored.asked.absent {
            notes.push(format!("{}, {}: no recommendation: {reason}", stored.rung, stored.server));
        }
    }
    if !record.predictions.is_empty() && record.predictions.iter().all(|it| it.predicted.is_none()) {
        notes
            .push("nothing is predicted: the storage was not measured, or the model says nothing".to_owned());
    }
    for turn in &record.turns {
        if let Some(failure) = &turn.failure {
            notes.push(format!(
                "failed, not counted: {}, {}: {}, effective_io_concurrency {}, turn {}: {failure}",
                turn.rung, turn.server, turn.scan, turn.concurrency, turn.round
            ));
        }
    }
    let disturbed = record.turns.iter().filter(|turn| turn.disturbed()).count();
    if disturbed > 0 {
        notes.push(format!(
            "in {disturbed} of {} turns others read from the same device: their reads and times say little",
            record.turns.len()
        ));
    }
    let loads: Vec<f64> = record.turns.iter().filter_map(|turn| turn.load_average).collect();
    let most = loads.iter().copied().fold(0.0, f64::max);
    if let Some(load) = median(loads) {
        notes.push(format!("load average before the turns: median {load:.1}, most {most:.1}"));
    }
    notes.extend(end_of_notes(std::iter::empty(), record.ended_early.as_deref()));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c5::goals::tests::{asked, record, turn};

    #[test]
    fn scans_for_the_same_rows_stand_side_by_side() {
        let mut seq = turn("latency", "15", "dense seq", 1, 0.85);
        seq.device_reads = None;
        let record = record(
            vec![
                turn("latency", "15", "dense bitmap", 1, 9.0),
                turn("latency", "15", "dense bitmap", 1, 11.0),
                turn("latency", "15", "dense bitmap", 64, 0.1974),
                turn("latency", "15", "dense lossy", 16, 0.004_56),
                turn("latency", "18 sync", "dense bitmap", 1, 4.0),
                seq,
            ],
            &asked(),
        );
        let table = &tables(&record)[0];
        assert_eq!(table.title, "latency: 53 % of the pages");
        assert_eq!(table.heads.join(" "), "server  1 64 lossy 16 seq");
        let cells: Vec<_> = table.rows.iter().map(|row| row.join(" ")).collect();
        assert_eq!(
            cells[..5],
            [
                "15 ms 10000 197 4.6 850",
                "15 spread % 10 - - -",
                "15 reads 1,000 1,000 1,000 -",
                "15 warm ms 10 10 10 10",
                "18 sync ms 4000 - - -",
            ]
        );
        assert!(!notes(&record).iter().any(|note| note.contains("others read")), "{:?}", notes(&record));
        let text = section("c5.json", &record);
        assert!(text.contains("| latency | 15 | iops_capped | 64 | 32 | - | 30 |"), "{text}");
        assert!(text.contains("no curve of fio: fio is not installed"));
        let mut other = turn("local", "15", "dense bitmap", 1, 9.0);
        (other.pages_read, other.device_bytes) = (1000, Some(100 << 20));
        let disturbed = crate::c5::goals::tests::record(vec![other], &asked());
        assert!(notes(&disturbed)[2..].iter().any(|note| note.starts_with("in 1 of 1 turns others read")));
    }
}
