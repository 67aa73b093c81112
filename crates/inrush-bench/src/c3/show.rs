//! What a record looks like.

use crate::c3::{Goal, Purpose, Query, Record, Turn};
use crate::median;
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
    facts.push(("rows".to_owned(), format!("{} bytes as CSV", record.csv_row_bytes)));
    facts.push((
        "set up".to_owned(),
        format!(
            "pgbench: {} connections and tables; COPY: {} sessions; serve: {} tables, {} lanes, {} senders with bodies of \
             {} KiB, linger {}; tables truncated at {} MiB",
            case.clients,
            case.copy_sessions,
            case.serve.tables,
            case.serve.lanes,
            case.serve.connections,
            case.serve.body_kib,
            case.serve.linger,
            case.bound_mib
        ),
    ));
    if let Some(version) = &record.pgbench {
        facts.push(("pgbench".to_owned(), version.clone()));
    }
    for server in &record.servers {
        let settings: Vec<_> = server
            .settings
            .iter()
            .filter(|(name, _)| *name != "autovacuum")
            .map(|(k, v)| format!("{k} {v}"))
            .collect();
        facts.push((format!("PostgreSQL {}", server.version), settings.join(", ")));
    }
    out + &facts_tables_notes(facts, &tables(record), &notes(record))
}

/// A turn that has just ended.
pub fn line(turn: &Turn) -> String {
    let mut line = format!("{} {}: {} rows/s", word(turn.purpose), turn.contender, grouped(turn.rate()));
    if turn.truncated > 0 {
        let _ = write!(line, ", truncated {} times", turn.truncated);
    }
    if let Some(times) = turn.answers.filter(|_| turn.purpose == Purpose::Paced) {
        let _ = write!(line, ", 99 % of the rows answered within {:.3} s", times.p99);
    }
    if let Some(query) = turn.queries.last() {
        let _ = write!(line, ", a sixtieth: {:.2} % of the pages", query.part() * 100.0);
    }
    if let Some(failure) = &turn.failure {
        let _ = write!(line, ", FAILED: {failure}");
    }
    line
}

fn word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Top => "at full speed",
        Purpose::Paced => "at half speed",
        Purpose::Window => "a window",
        Purpose::Long => "long",
    }
}

fn tables(record: &Record) -> Vec<Table> {
    let mut tables = Vec::new();
    for rung in &record.case.rungs {
        for (server, facts) in record.servers.iter().enumerate() {
            for purpose in [Purpose::Top, Purpose::Long] {
                let rows: Vec<_> = record
                    .case
                    .contenders
                    .iter()
                    .filter_map(|one| speed(record, server, &rung.name, &one.name, purpose))
                    .collect();
                if rows.is_empty() {
                    continue;
                }
                let long = if purpose == Purpose::Long { ", long" } else { "" };
                tables.push(Table {
                    title: format!("PostgreSQL {}, {}{long}", facts.major, rung.name),
                    about: format!("{}.", rung.about),
                    heads: words(&[
                        "contender",
                        "turns",
                        "rows/s",
                        "least-most",
                        "MB/s",
                        "client CPU s/M rows",
                        "serve",
                        "server",
                        "WAL B/row",
                        "disk B/row",
                        "truncated",
                        "serve peak MiB",
                    ]),
                    words: vec![0],
                    rows,
                });
            }
        }
    }
    tables.extend(times(record));
    tables.extend(questions(record));
    tables.extend(goals(record));
    tables
}

#[allow(clippy::cast_precision_loss)] // figures for a person
fn speed(record: &Record, server: usize, rung: &str, name: &str, purpose: Purpose) -> Option<Vec<String>> {
    let turns: Vec<&Turn> = record.of(server, rung, name, purpose).collect();
    let of =
        |what: &dyn Fn(&Turn) -> Option<f64>| median(turns.iter().filter_map(|turn| what(turn)).collect());
    let shown = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    let rate = of(&|turn| Some(turn.rate()))?;
    let rates = || turns.iter().map(|turn| turn.rate());
    let (least, most) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
    let rows = |turn: &Turn| turn.rows.max(1) as f64;
    Some(vec![
        name.to_owned(),
        turns.len().to_string(),
        grouped(rate),
        format!("{}-{}", grouped(least), grouped(most)),
        format!("{:.0}", rate * record.csv_row_bytes as f64 / 1e6),
        shown(of(&|turn| Some(turn.client_cpu_seconds * 1e6 / rows(turn))), 2),
        shown(of(&|turn| Some(turn.serve_cpu_seconds? * 1e6 / rows(turn))), 2),
        shown(of(&|turn| Some(turn.server_cpu_seconds? * 1e6 / rows(turn))), 2),
        shown(of(&|turn| Some(turn.wal_bytes as f64 / rows(turn))), 0),
        shown(of(&|turn| Some(turn.disk_bytes as f64 / rows(turn))), 0),
        turns.iter().map(|turn| turn.truncated).max().unwrap_or(0).to_string(),
        shown(of(&|turn| Some(turn.serve_peak_bytes? as f64 / f64::from(1 << 20))), 0),
    ])
}

fn place(record: &Record, turn: &Turn) -> String {
    let version = record.servers.get(turn.server).map_or(0, |server| server.major);
    format!("{version}, {}, {}", turn.rung, turn.contender)
}

/// How long rows took at half of the top rate.
fn times(record: &Record) -> Option<Table> {
    let rows: Vec<_> = record
        .turns
        .iter()
        .filter(|turn| turn.purpose == Purpose::Paced && turn.failure.is_none())
        .filter_map(|turn| {
            let times = turn.answers?;
            Some(vec![
                place(record, turn),
                grouped(turn.paced_to?),
                grouped(turn.rate()),
                format!("{:.3}", times.p50),
                format!("{:.3}", times.p99),
                format!("{:.3}", times.most),
                turn.visible_p99_at_most.map_or("-".to_owned(), |bound| format!("{bound}")),
            ])
        })
        .collect();
    let serve = &record.case.serve;
    (!rows.is_empty()).then(|| Table {
        title: "From due to answered, at half of the top rate".to_owned(),
        about: format!(
            "{} senders with a body every half second, linger {}; seconds. A row is visible before its sender is answered; \
             the last column is of serve's own histogram, from arrival, the end of a step.",
            serve.paced_connections, serve.paced_linger
        ),
        heads: words(&["server, rung, contender", "wanted rows/s", "rows/s", "half", "99 %", "longest", "visible 99 %"]),
        words: vec![0],
        rows,
    })
}

/// What questions cost.
fn questions(record: &Record) -> Option<Table> {
    let mut rows = Vec::new();
    for turn in record.turns.iter().filter(|turn| !turn.queries.is_empty()) {
        // Of a small table nothing can be learned.
        let of =
            |what: &dyn Fn(&Query) -> f64| median(turn.queries.iter().map(what).collect()).unwrap_or(0.0);
        #[allow(clippy::cast_precision_loss)] // figures for a person
        rows.push(vec![
            place(record, turn),
            word(turn.purpose).to_owned(),
            turn.queries.len().to_string(),
            format!("{:.0}", of(&|query| query.pages as f64)),
            format!("{:.1}", of(&|query| query.ends_ms)),
            format!("{:.0}", of(&|query| query.rows as f64)),
            format!("{:.1}", of(&|query| query.brin_ms)),
            format!("{:.2}", of(&|query| query.part() * 100.0)),
            format!("{:.1}", of(&|query| query.seq_ms)),
        ]);
    }
    (!rows.is_empty()).then(|| Table {
        title: "Reading by time".to_owned(),
        about: "The ends of a table's time, and the rows of a sixtieth of it (a minute of an hour), through BRIN and by \
                reading it all: medians, in milliseconds. `long` is asked while rows come in and tables are truncated."
            .to_owned(),
        heads: words(&[
            "server, rung, contender",
            "turn",
            "asked",
            "pages",
            "min, max",
            "rows found",
            "BRIN",
            "% of pages",
            "sequential",
        ]),
        words: vec![0, 1],
        rows,
    })
}

/// Goals, met or missed.
fn goals(record: &Record) -> Option<Table> {
    let mut rows = Vec::new();
    for (server, facts) in record.servers.iter().enumerate() {
        for goal in &record.case.goals {
            let Some((found, wanted, met)) = judge(record, server, goal) else { continue };
            rows.push(vec![
                facts.major.to_string(),
                goal.rung.clone(),
                goal.contenders.join(" or "),
                wanted,
                found,
                if met { "met" } else { "MISSED" }.to_owned(),
            ]);
        }
    }
    (!rows.is_empty()).then(|| Table {
        title: "Goals".to_owned(),
        about: "Ratios of medians; the faster of two contenders counts.".to_owned(),
        heads: words(&["server", "rung", "contender", "wanted", "found", ""]),
        words: vec![1, 2, 3, 4, 5],
        rows,
    })
}

/// What was found, what was wanted, and whether it is met.
fn judge(record: &Record, server: usize, goal: &Goal) -> Option<(String, String, bool)> {
    let turns =
        |purpose| goal.contenders.iter().flat_map(move |name| record.of(server, &goal.rung, name, purpose));
    if let (Some(against), Some(ratio)) = (&goal.against, goal.ratio) {
        let rates = goal.contenders.iter().filter_map(|name| record.top(server, &goal.rung, name));
        let best =
            rates.fold(None, |best: Option<f64>, rate| Some(best.map_or(rate, |best| best.max(rate))))?;
        let found = best / record.top(server, &goal.rung, against)?;
        return Some((format!("{found:.2}"), format!("{ratio} times {against}"), found >= ratio));
    }
    if let Some(seconds) = goal.answer_p99_s {
        let turn = turns(Purpose::Paced).last()?;
        let found = turn.answers?.p99;
        // One that did not keep up has not been asked.
        let kept_up = turn.paced_to.is_none_or(|rate| turn.rate() > rate * 0.9);
        let note = if kept_up { "" } else { ", and did not keep up" };
        let wanted = format!("99 % of the rows answered within {seconds} s at half speed");
        return Some((format!("{found:.3} s{note}"), wanted, found < seconds && kept_up));
    }
    let part = goal.brin_pages?;
    let turn = turns(Purpose::Window).last()?;
    let found = median(turn.queries.iter().map(Query::part).collect())?;
    let wanted = format!("a sixtieth reads at most {} % of the pages", part * 100.0);
    // A bitmap scan of no page was none.
    Some((format!("{:.2} %", found * 100.0), wanted, found > 0.0 && found <= part))
}

fn notes(record: &Record) -> Vec<String> {
    let mut notes: Vec<String> = record.absent.iter().map(crate::Absent::sentence).collect();
    for turn in &record.turns {
        if let Some(failure) = &turn.failure {
            notes.push(format!("{}, turn {}: {failure}", place(record, turn), turn.round));
        }
    }
    let foreign = record.turns.iter().filter_map(|turn| turn.foreign_cores);
    notes.extend(end_of_notes(foreign, record.ended_early.as_deref()));
    notes
}
