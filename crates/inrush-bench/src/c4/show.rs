//! What a record looks like.

use crate::c4::goals::{beside, judge};
use crate::c4::{Job, Record, Turn};
use crate::render::{Table, end_of_notes, facts_of_host, facts_tables_notes, grouped, terminal, words};
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
    facts.push((
        "set up".to_owned(),
        format!(
            "{} shards; a file of {} rows; a table of 384 columns with {} rows",
            case.shards, case.copy_rows, case.update_rows
        ),
    ));
    for node in &record.nodes {
        let extensions = node.extensions.iter().map(|(name, version)| format!("{name} {version}"));
        let settings = node.settings.iter().map(|(name, value)| format!("{name} {value}"));
        let here = if node.here { "on this machine" } else { "on another machine, its CPU not known" };
        let all: Vec<_> = extensions.chain([here.to_owned()]).chain(settings).collect();
        facts.push((node.name.clone(), format!("PostgreSQL {}, {}", node.version, all.join(", "))));
    }
    out + &facts_tables_notes(facts, &tables(record), &notes(record))
}

/// A turn that has just ended.
pub fn line(turn: &Turn) -> String {
    let each = |cpu: Option<f64>| cpu.map_or("-".to_owned(), |cpu| format!("{:.1}", turn.each(cpu)));
    let mut line = format!(
        "{}, synchronous_commit {}, {}: {}/s; CPU us each: coordinator {}, workers {}, client {}",
        turn.rung,
        turn.synchronous_commit,
        turn.contender,
        grouped(turn.rate()),
        each(turn.coordinator_cpu_seconds),
        each(turn.workers_cpu_seconds),
        each(Some(turn.client_cpu_seconds)),
    );
    if let Some(failure) = &turn.failure {
        let _ = write!(line, ", FAILED: {failure}");
    }
    line
}

fn tables(record: &Record) -> Vec<Table> {
    let mut tables = Vec::new();
    for rung in &record.case.rungs {
        for synchronous_commit in &rung.synchronous_commit {
            let first = &rung.contenders[0];
            let base = record.median(&rung.name, synchronous_commit, first, |turn| Some(turn.rate()));
            let rows: Vec<_> = rung
                .contenders
                .iter()
                .filter_map(|name| figures(record, &rung.name, synchronous_commit, name, base))
                .collect();
            if rows.is_empty() {
                continue;
            }
            let what = if rung.job == Job::Load { "rows/s" } else { "TPS" };
            let clients = match rung.threads {
                0 => String::new(),
                threads => format!(" {threads} clients."),
            };
            tables.push(Table {
                title: format!("{}, synchronous_commit {synchronous_commit}", rung.name),
                about: format!("{}.{clients} CPU in microseconds for each row or statement.", rung.about),
                heads: words(&[
                    "contender",
                    "turns",
                    what,
                    "least-most",
                    "ratio",
                    "coordinator CPU",
                    "workers",
                    "client",
                    "sum",
                    "peak MiB",
                ]),
                words: vec![0],
                rows,
            });
        }
    }
    tables.extend(published(record));
    tables.extend(goals(record));
    tables.extend(contenders(record));
    tables
}

/// Who had turns.
fn contenders(record: &Record) -> Option<Table> {
    let ran = |name: &str| record.turns.iter().any(|turn| turn.contender == name);
    let rows: Vec<_> = record
        .case
        .contenders
        .iter()
        .filter(|one| ran(&one.name))
        .map(|one| vec![one.name.clone(), one.about.clone()])
        .collect();
    (!rows.is_empty()).then(|| Table {
        title: "Contenders".to_owned(),
        about: String::new(),
        heads: words(&["name", ""]),
        words: vec![0, 1],
        rows,
    })
}

fn figures(
    record: &Record,
    rung: &str,
    synchronous_commit: &str,
    name: &str,
    base: Option<f64>,
) -> Option<Vec<String>> {
    let of = |what: &dyn Fn(&Turn) -> Option<f64>| record.median(rung, synchronous_commit, name, what);
    let shown = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    let rate = of(&|turn| Some(turn.rate()))?;
    let rates = || record.of(rung, synchronous_commit, name).map(Turn::rate);
    let (least, most) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
    let sum = |turn: &Turn| {
        Some(turn.coordinator_cpu_seconds? + turn.workers_cpu_seconds? + turn.client_cpu_seconds)
    };
    #[allow(clippy::cast_precision_loss)] // figures for a person
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Some(vec![
        name.to_owned(),
        rates().count().to_string(),
        grouped(rate),
        format!("{}-{}", grouped(least), grouped(most)),
        shown(base.map(|base| rate / base), 2),
        shown(of(&|turn| Some(turn.each(turn.coordinator_cpu_seconds?))), 2),
        shown(of(&|turn| Some(turn.each(turn.workers_cpu_seconds?))), 2),
        shown(of(&|turn| Some(turn.each(turn.client_cpu_seconds))), 2),
        shown(of(&|turn| Some(turn.each(sum(turn)?))), 2),
        shown(of(&|turn| turn.client_peak_bytes.map(mib)), 0),
    ])
}

/// Beside the study.
fn published(record: &Record) -> Option<Table> {
    let mut rows = Vec::new();
    for it in &record.case.published {
        let commits = record.case.rung(&it.rung).map_or(&[][..], |rung| &rung.synchronous_commit);
        for synchronous_commit in commits {
            let Some((ratio, work)) = beside(record, it, synchronous_commit) else { continue };
            let shown = |work: Option<f64>| work.map_or("-".to_owned(), |work| format!("{work:.1}"));
            rows.push(vec![
                format!("{}: {} over {}", it.rung, it.contender, it.against),
                synchronous_commit.clone(),
                format!("{ratio:.2}"),
                format!("{:.2}", it.ratio),
                shown(work),
                shown(it.work),
                it.note.clone(),
            ]);
        }
    }
    (!rows.is_empty()).then(|| Table {
        title: "Beside the published figures".to_owned(),
        about: "Those are of Citus 6.1, 9 machines of 32 threads, 128 shards, synchronous_commit on; there the coordinator was the \
                limit, while here all share a machine. `work` is operations for each CPU second of the coordinator."
            .to_owned(),
        heads: words(&[
            "who over whom",
            "synchronous_commit",
            "TPS here",
            "published",
            "work here",
            "published",
            "there",
        ]),
        words: vec![0, 1, 6],
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
                goal.contender.clone(),
                judged.wanted,
                judged.found,
                if judged.met { "met" } else { "MISSED" }.to_owned(),
            ]);
        }
    }
    (!rows.is_empty()).then(|| Table {
        title: "Goals".to_owned(),
        about: "Ratios of medians, synchronous_commit off.".to_owned(),
        heads: words(&["rung", "contender", "wanted", "found", ""]),
        words: vec![0, 1, 2, 3, 4],
        rows,
    })
}

fn notes(record: &Record) -> Vec<String> {
    let mut notes: Vec<String> = record.absent.iter().map(crate::Absent::sentence).collect();
    for turn in &record.turns {
        if let Some(failure) = &turn.failure {
            notes.push(format!(
                "{}, synchronous_commit {}, {}, turn {}: {failure}",
                turn.rung, turn.synchronous_commit, turn.contender, turn.round
            ));
        }
    }
    for node in record.nodes.iter().filter(|node| !node.here) {
        notes.push(format!("{} is on another machine: its CPU is not known.", node.name));
    }
    let foreign = record.turns.iter().filter_map(|turn| turn.foreign_cores);
    notes.extend(end_of_notes(foreign, record.ended_early.as_deref()));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c4::goals::tests::{record, turn};

    #[test]
    fn figures_are_for_each_operation_and_over_the_first() {
        let record = record(vec![
            turn("insert", "coord-simple", 2000, Some(0.4)),
            turn("insert", "direct-prep", 5000, Some(0.01)),
            turn("insert", "mx-prep", 4000, None),
        ]);
        let table = &tables(&record)[0];
        assert_eq!(table.title, "insert, synchronous_commit off");
        let cells: Vec<_> = table.rows.iter().map(|row| row[..9].join(" ")).collect();
        assert_eq!(
            cells,
            [
                "coord-simple 1 1,000 1,000-1,000 1.00 200.00 200.00 250.00 650.00",
                "mx-prep 1 2,000 2,000-2,000 2.00 - - 125.00 -",
                "direct-prep 1 2,500 2,500-2,500 2.50 2.00 2.00 100.00 104.00",
            ]
        );
        assert!(section("c4.json", &record).contains("| direct-prep | 1 | 2,500 |"));
    }
}
