//! The view for pipes and files: a line per table and interval, or a JSON object per interval.

use super::{Session, clock::Moment, whole};
use crate::grid::{Align, bytes, grid};
use crate::say;
use inrush_core::{Code, Error, Result, printable};
use inrush_load::grouped;
use inrush_profile::watch::{Picture, TableFigures, Together, WatchedServer, split_in_words};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

/// Version of the JSON form, docs/watch.md.
const VERSION: u32 = 1;

/// An interval or the summary, as JSON.
#[derive(Serialize)]
struct Line<'a> {
    version: u32,
    #[serde(rename = "type")]
    kind: &'a str,
    time: String,
    server: Option<WatchedServer>,
    #[serde(flatten)]
    picture: &'a Picture,
}

/// Prints until it is over, or until nobody reads any more.
pub fn print(session: &mut Session, json: bool) -> Result<()> {
    let interval = session.interval;
    let mut next = Instant::now() + interval;
    let mut told = None;
    loop {
        while Instant::now() < next && !session.is_over() {
            let left = next.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(20)));
            session.check()?;
        }
        if session.is_over() && Instant::now() + interval / 10 < next {
            break;
        }
        next += interval;
        let picture = session.watch.picture(Some(interval.as_secs_f64()));
        if picture.hidden != told {
            told = picture.hidden;
            if let Some(hidden) = told {
                say::note(&hidden.in_words());
            }
        }
        let text = if json { json_line(session, "interval", &picture)? } else { lines(session, &picture) };
        if !write(&text)? {
            return Ok(());
        }
        if session.is_over() {
            break;
        }
    }
    if json {
        return write(&json_line(session, "summary", &session.watch.picture(None))?).map(drop);
    }
    print_summary(session)
}

/// All that was seen, for a person.
pub fn print_summary(session: &Session) -> Result<()> {
    write(&summary(session, &session.watch.picture(None))).map(drop)
}

fn json_line(session: &Session, kind: &str, picture: &Picture) -> Result<String> {
    let line = Line {
        version: VERSION,
        kind,
        time: Moment::now(0).rfc3339(),
        server: session.watch.server(),
        picture,
    };
    let text = serde_json::to_string(&line)
        .map_err(|e| Error::new(Code::Internal, format!("what was seen has no JSON form: {e}")))?;
    Ok(text + "\n")
}

/// Whether somebody has read it.
fn write(text: &str) -> Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Error::new(Code::Output, format!("cannot write to standard output: {e}"))),
    }
}

fn lines(session: &Session, picture: &Picture) -> String {
    let clock = session.clock();
    if let Some(trouble) = &picture.trouble {
        return format!("{clock} {}; trying again\n", printable(trouble));
    }
    if picture.tables.is_empty() {
        return format!("{clock} nothing is loading\n");
    }
    picture.tables.iter().map(|table| format!("{clock} {}\n", table_line(table))).collect()
}

/// `public.t COPY 8 sessions 210,000 rows/s 95 MB/s relation extension locks 64 %, server CPU 20 %`
fn table_line(table: &TableFigures) -> String {
    let sessions = match table.time.sessions {
        1 => "1 session".to_owned(),
        n => format!("{n} sessions"),
    };
    let rows = table.rows_per_second.map(|rate| format!("{} rows/s", grouped(whole(rate))));
    let amount = table.bytes_per_second.map(|rate| format!("{}/s", bytes(whole(rate))));
    let grown = table.relation_growth_per_second.map(|rate| format!("grows by {}/s", bytes(whole(rate))));
    let split = split_in_words(&table.time.split);
    let parts = [Some(printable(&table.table)), Some(table.kinds_in_words()), Some(sessions), rows, amount];
    let parts = parts.into_iter().chain([grown, Some(split).filter(|split| !split.is_empty())]);
    parts.flatten().collect::<Vec<_>>().join(" ")
}

/// All that was seen: the sentence and the split of each table, and the sessions.
fn summary(session: &Session, picture: &Picture) -> String {
    let mut text = format!("\nwatched for {:.0} s", picture.seconds);
    if let Some(wal) = picture.wal_bytes_per_second {
        text += &format!(", WAL {}/s", bytes(whole(wal)));
    }
    if let Some(counters) = &picture.counters {
        let (timed, forced) = (counters.checkpoints_timed, counters.checkpoints_requested);
        text += &format!(", checkpoints {}", timed + forced);
    }
    if let Some(cpu) = session.watch.server().and_then(|server| server.cpu_seconds) {
        text += &format!("; watching took {cpu:.2} s of the server's CPU");
    }
    text.push('\n');
    if picture.tables.is_empty() {
        return text + "nothing was loading\n";
    }
    for table in &picture.tables {
        let rows = table.rows.map(|rows| format!(", {} rows", grouped(rows))).unwrap_or_default();
        let amount = table.bytes.map(|n| format!(", {}", bytes(n))).unwrap_or_default();
        let name = printable(&table.table);
        text += &format!("\n{name}  {}{rows}{amount}\n{}", table.kinds_in_words(), time(&table.time));
    }
    let headings = [
        ("PID", Align::Right),
        ("USER", Align::Left),
        ("APPLICATION", Align::Left),
        ("TABLE", Align::Left),
        ("KIND", Align::Left),
        ("SECONDS", Align::Right),
        ("ROWS", Align::Right),
        ("TIME", Align::Left),
    ];
    let rows: Vec<Vec<String>> = picture
        .backends
        .iter()
        .map(|backend| {
            vec![
                backend.pid.to_string(),
                printable(&backend.user),
                printable(&backend.application),
                printable(&backend.table),
                backend.kind.name().to_owned(),
                format!("{:.1}", backend.time.backend_seconds),
                backend.rows.map_or_else(String::new, grouped),
                split_in_words(&backend.time.split),
            ]
        })
        .collect();
    text + "\n" + &grid(&headings, &rows)
}

fn time(time: &Together) -> String {
    let sentence = time.limit.as_ref().map(|limit| format!("  limit       {}\n", limit.sentence));
    format!("{}  server      {}\n", sentence.unwrap_or_default(), split_in_words(&time.split))
}
