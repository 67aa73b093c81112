//! Tables from records: for the terminal and for the README of a kept run.

use crate::{Case, Goal, Record, Run};
use std::fmt::Write as _;

/// The columns of a table of medians.
const COLUMNS: [&str; 13] = [
    "contender",
    "runs",
    "s to COMMIT",
    "least-most",
    "ratio",
    "rows/s",
    "MB/s",
    "s to durable",
    "client CPU s",
    "s/GB",
    "server CPU s",
    "WAL MB",
    "peak MiB",
];

/// For a terminal.
pub fn text(record: &Record) -> String {
    let mut out = String::new();
    each_table(record, |title, rows| {
        let _ = writeln!(out, "\n{title}\n");
        let widths: Vec<usize> = (0..COLUMNS.len())
            .map(|i| {
                rows.iter().map(|row| row[i].chars().count()).chain([COLUMNS[i].len()]).max().unwrap_or(0)
            })
            .collect();
        let heads = COLUMNS.map(str::to_owned);
        for row in std::iter::once(&heads).chain(rows) {
            let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| {
                if i == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            let _ = writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
    });
    let notes = notes(record);
    if !notes.is_empty() {
        let _ = writeln!(out, "\n{}", notes.join("\n"));
    }
    out
}

/// The README of a directory of records, each with the name of its file.
pub fn readme(records: &[(String, Record)]) -> String {
    let mut out = String::from(
        "# Kept runs of `inrush bench`\n\nMade from the JSON files beside it, which have every raw number. Given are \
         medians. `ratio` is how many times as fast to COMMIT as the baseline; `s to durable` includes a CHECKPOINT \
         after COMMIT; `s/GB` is client CPU for 10^9 bytes of input. Each run starts with a new table and a \
         CHECKPOINT, contenders take turns, the input is in the page cache, and rows and their hash are checked \
         after each run.\n",
    );
    for (name, record) in records {
        let (case, host) = (&record.case, &record.host);
        let _ = writeln!(out, "\n## {}: {} ([{name}]({name}))\n", case.name, case.about);
        let memory = host.memory.map_or("unknown".to_owned(), |m| format!("{} GiB", m >> 30));
        let facts = [
            ("when", format!("{} UTC", record.began)),
            ("command", format!("`{}`", record.command)),
            (
                "machine",
                format!(
                    "{}, {} cores, {memory}, {}, {}",
                    host.processor.as_deref().unwrap_or("unknown processor"),
                    host.cores,
                    host.system,
                    host.file_system.as_deref().unwrap_or("unknown file system")
                ),
            ),
            ("inrush", format!("{}, commit {}", host.inrush, host.commit.as_deref().unwrap_or("unknown"))),
            (
                "file",
                format!(
                    "{} rows, {} bytes as CSV, {} as COPY text",
                    case.rows, record.csv_bytes, record.text_bytes
                ),
            ),
        ];
        for (key, value) in facts {
            let _ = writeln!(out, "- {key}: {value}");
        }
        for server in &record.servers {
            let settings: Vec<_> = server.settings.iter().map(|(k, v)| format!("{k} {v}")).collect();
            let _ = writeln!(out, "- PostgreSQL {}: {}", server.version, settings.join(", "));
        }
        for (contender, version) in &record.versions {
            let _ = writeln!(out, "- {contender}: {version}");
        }
        each_table(record, |title, rows| {
            let _ = writeln!(out, "\n### {title}\n\n| {} |", COLUMNS.join(" | "));
            let _ = writeln!(out, "|---|{}", "---:|".repeat(COLUMNS.len() - 1));
            for row in rows {
                let _ = writeln!(out, "| {} |", row.join(" | "));
            }
        });
        let notes = notes(record);
        if !notes.is_empty() {
            out.push('\n');
            for note in notes {
                let _ = writeln!(out, "- {note}");
            }
        }
        let _ = writeln!(out, "\n<details><summary>Commands</summary>\n\n```sh");
        for contender in &case.contenders {
            let _ = writeln!(out, "# {}\n{}", contender.name, contender.command.trim());
        }
        let _ = writeln!(out, "```\n</details>");
    }
    out
}

/// Calls `each` for every server and value of `synchronous_commit` that has runs.
fn each_table(record: &Record, mut each: impl FnMut(&str, &[[String; COLUMNS.len()]])) {
    for (place, server) in record.servers.iter().enumerate() {
        for synchronous_commit in &record.case.synchronous_commit {
            let base = record.median(place, synchronous_commit, &record.case.baseline, |r| Some(r.seconds));
            let rows: Vec<_> = record
                .case
                .contenders
                .iter()
                .filter(|c| record.of(place, synchronous_commit, &c.name).next().is_some())
                .map(|c| row(record, place, synchronous_commit, &c.name, base))
                .collect();
            if !rows.is_empty() {
                let title = format!("PostgreSQL {}, synchronous_commit {synchronous_commit}", server.version);
                each(&title, &rows);
            }
        }
    }
}

#[allow(clippy::cast_precision_loss)] // figures for a person
fn row(
    record: &Record,
    server: usize,
    synchronous_commit: &str,
    name: &str,
    base: Option<f64>,
) -> [String; COLUMNS.len()] {
    let runs = record.of(server, synchronous_commit, name);
    let median = |what: &dyn Fn(&Run) -> Option<f64>| record.median(server, synchronous_commit, name, what);
    let show = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    let seconds = median(&|r| Some(r.seconds));
    let contender = record.case.contenders.iter().find(|c| c.name == name);
    let loads = contender.is_some_and(|c| c.server);
    let gigabytes = input_bytes(record, name) as f64 / 1e9;
    let client = median(&|r| Some(r.client_seconds()));
    let times: Vec<f64> = runs.clone().map(|r| r.seconds).collect();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    [
        name.to_owned(),
        times.len().to_string(),
        show(seconds, 2),
        format!("{least:.2}-{most:.2}"),
        show(base.zip(seconds).map(|(base, s)| base / s), 2),
        show(seconds.filter(|_| loads).map(|s| record.case.rows as f64 / s), 0),
        show(seconds.map(|s| gigabytes * 1000.0 / s), 0),
        show(median(&|r| Some(r.durable_seconds)), 2),
        show(client, 2),
        show(client.map(|c| c / gigabytes), 2),
        show(median(&|r| r.server_cpu_seconds), 2),
        if loads { show(median(&|r| Some(r.wal_bytes as f64 / 1e6)), 0) } else { "-".to_owned() },
        show(runs.map(|r| r.client_peak_bytes).max().map(|b| b as f64 / f64::from(1 << 20)), 0),
    ]
}

fn input_bytes(record: &Record, contender: &str) -> u64 {
    match record.case.contenders.iter().find(|c| c.name == contender).map(|c| c.input) {
        Some(crate::Input::Text) => record.text_bytes,
        _ => record.csv_bytes,
    }
}

/// What stands under the tables: goals, who was absent, what failed, how quiet the machine was.
fn notes(record: &Record) -> Vec<String> {
    let mut notes = Vec::new();
    for goal in &record.case.goals {
        for (place, server) in record.servers.iter().enumerate() {
            if goal.server.is_none_or(|major| major == server.major) {
                for synchronous_commit in &record.case.synchronous_commit {
                    notes.extend(judge(record, goal, place, synchronous_commit));
                }
            }
        }
    }
    for absent in &record.absent {
        let on = absent.server.as_ref().map(|server| format!(" on {server}")).unwrap_or_default();
        notes.push(format!("left out{on}: {}: {}", absent.contender, absent.reason));
    }
    for run in record.runs.iter().filter(|run| run.failure.is_some()) {
        notes.push(format!(
            "failed, not counted: {} on {}, run {}: {}",
            run.contender,
            record.servers[run.server].version,
            run.round,
            run.failure.as_deref().unwrap_or_default()
        ));
    }
    let foreign: Vec<f64> = record.runs.iter().filter_map(|run| run.foreign_cores).collect();
    let most = foreign.iter().copied().fold(0.0, f64::max);
    if let Some(median) = crate::median(foreign) {
        let noisy =
            if median > 0.2 { ". The machine was not quiet: these figures prove nothing" } else { "" };
        notes.push(format!("foreign CPU during the runs: median {median:.2} cores, most {most:.2}{noisy}"));
    }
    notes
}

#[allow(clippy::cast_precision_loss)] // figures for a person
fn judge(record: &Record, goal: &Goal, place: usize, synchronous_commit: &str) -> Vec<String> {
    let median = |name: &str, what: &dyn Fn(&Run) -> f64| {
        record.median(place, synchronous_commit, name, |run| Some(what(run)))
    };
    let where_ = format!(
        "PostgreSQL {}, synchronous_commit {synchronous_commit}: {}",
        record.servers[place].version, goal.contender
    );
    let mut notes = Vec::new();
    let mut note = |reached: bool, text: String| {
        notes.push(format!("{}: {where_} {text}", if reached { "reached" } else { "NOT reached" }));
    };
    if let (Some(wanted), Some(against)) = (goal.ratio, &goal.against)
        && let (Some(theirs), Some(ours)) =
            (median(against, &|r| r.seconds), median(&goal.contender, &|r| r.seconds))
    {
        let ratio = theirs / ours;
        note(ratio >= wanted, format!("{ratio:.2} times {against}, wanted {wanted}"));
    }
    if let (Some(wanted), Some(cpu)) = (goal.client_cpu_per_gb, median(&goal.contender, &Run::client_seconds))
    {
        let per_gb = cpu / (input_bytes(record, &goal.contender) as f64 / 1e9);
        note(per_gb <= wanted, format!("{per_gb:.2} s of client CPU per GB, wanted at most {wanted}"));
    }
    let peak = record.of(place, synchronous_commit, &goal.contender).map(|run| run.client_peak_bytes).max();
    if let (Some(wanted), Some(peak)) = (goal.peak_mib, peak) {
        let peak = peak as f64 / f64::from(1 << 20);
        note(peak <= wanted, format!("{peak:.0} MiB at most, wanted at most {wanted}"));
    }
    notes
}

/// One line per case, for a list.
pub fn line(case: &Case) -> String {
    format!("{:<4} {} rows: {}", case.name, case.rows, case.about)
}
