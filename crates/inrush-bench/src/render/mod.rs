//! What records look like: tables for the terminal and the README of a kept run, and a page with plots.

mod figures;
mod html;
mod notes;
mod plots;
mod svg;
mod tables;

pub(crate) use figures::grouped;
pub use html::html;
pub(crate) use notes::end_of_notes;
pub(crate) use tables::{Table, words};

use crate::{Case, Host, Record};
use std::fmt::Write as _;

/// For a terminal.
pub fn text(record: &Record) -> String {
    let mut out = terminal(&tables::all(record));
    let notes = notes::notes(record);
    if !notes.is_empty() {
        let _ = writeln!(out, "\n{}", notes.join("\n"));
    }
    out
}

/// Tables for a terminal.
pub(crate) fn terminal(tables: &[Table]) -> String {
    let mut out = String::new();
    for table in tables {
        let _ = writeln!(out, "\n{}", table.title);
        if !table.about.is_empty() {
            let _ = writeln!(out, "{}", table.about);
        }
        out.push('\n');
        let widths: Vec<usize> = (0..table.heads.len())
            .map(|i| {
                let cells = table.rows.iter().map(|row| &row[i]).chain([&table.heads[i]]);
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for row in std::iter::once(&table.heads).chain(&table.rows) {
            let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| {
                if table.words.contains(&i) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            let _ = writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
    }
    out
}

/// The README of a directory of records, each with the name of its file.
pub fn readme(records: &[(String, Record)]) -> String {
    let mut out = String::from(
        "# Kept runs of `inrush bench`\n\nMade from the JSON files beside it, which have every raw number. Given are \
         medians. `ratio` is how many times as fast to COMMIT as the baseline, by rows a second where a contender has \
         fewer rows; `s to durable` includes a CHECKPOINT after COMMIT; `s/GB` is client CPU for 10^9 bytes of input. \
         Each run starts with a new table and a CHECKPOINT, contenders take turns, the input is in the page cache, \
         and rows and their hash are checked after each run.\n",
    );
    for (name, record) in records {
        let case = &record.case;
        let page = name.replace(".json", ".html");
        let _ = writeln!(
            out,
            "\n## {}: {} ([{name}]({name}), with plots: [{page}]({page}))\n",
            case.name, case.about
        );
        for (key, value) in facts(record) {
            let value = if key == "command" { format!("`{value}`") } else { value };
            let _ = writeln!(out, "- {key}: {value}");
        }
        out += &markdown(&tables::all(record));
        let notes = notes::notes(record);
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

/// Tables as Markdown.
pub(crate) fn markdown(tables: &[Table]) -> String {
    let mut out = String::new();
    for table in tables {
        let _ = writeln!(out, "\n### {}\n", table.title);
        if !table.about.is_empty() {
            let _ = writeln!(out, "{}\n", table.about);
        }
        let _ = writeln!(out, "| {} |", table.heads.join(" | "));
        let lines: Vec<_> =
            (0..table.heads.len()).map(|i| if table.words.contains(&i) { "---|" } else { "---:|" }).collect();
        let _ = writeln!(out, "|{}", lines.concat());
        for row in &table.rows {
            let _ = writeln!(out, "| {} |", row.join(" | ").trim_end());
        }
    }
    out
}

/// What was run on what: key and value.
fn facts(record: &Record) -> Vec<(String, String)> {
    let case = &record.case;
    let mut facts = facts_of_host(&record.began, &record.command, &record.host);
    facts.push((
        "file".to_owned(),
        format!("{} rows, {} bytes as CSV, {} as COPY text", case.rows, record.csv_bytes, record.text_bytes),
    ));
    for (place, server) in record.servers.iter().enumerate() {
        let settings: Vec<_> = server.settings.iter().map(|(k, v)| format!("{k} {v}")).collect();
        facts.push((record.server_title(place), settings.join(", ")));
    }
    for (contender, version) in &record.versions {
        // The first line: some print a page.
        facts.push((contender.clone(), version.lines().next().unwrap_or_default().to_owned()));
    }
    facts
}

/// The section of a kept run below its heading: facts, tables, notes.
pub(crate) fn facts_tables_notes(facts: Vec<(String, String)>, tables: &[Table], notes: &[String]) -> String {
    let mut out = String::new();
    for (key, value) in facts {
        let value = if key == "command" { format!("`{value}`") } else { value };
        let _ = writeln!(out, "- {key}: {value}");
    }
    out += &markdown(tables);
    if !notes.is_empty() {
        out.push('\n');
        for note in notes {
            let _ = writeln!(out, "- {note}");
        }
    }
    out
}

/// When, how and on what machine.
pub(crate) fn facts_of_host(began: &str, command: &str, host: &Host) -> Vec<(String, String)> {
    let memory = host.memory.map_or("unknown".to_owned(), |m| format!("{} GiB", m >> 30));
    let unknown = |value: &Option<String>, what: &str| value.clone().unwrap_or(format!("unknown {what}"));
    vec![
        ("when".to_owned(), format!("{began} UTC")),
        ("command".to_owned(), command.to_owned()),
        (
            "machine".to_owned(),
            format!(
                "{}, {} cores, {memory}, {}, {}",
                unknown(&host.processor, "processor"),
                host.cores,
                host.system,
                unknown(&host.file_system, "file system")
            ),
        ),
        (
            "inrush".to_owned(),
            format!("{}, commit {}", host.inrush, host.commit.as_deref().unwrap_or("unknown")),
        ),
    ]
}

/// One line per case, for a list.
pub fn line(case: &Case) -> String {
    let rungs = match case.rungs.len() {
        0 => String::new(),
        n => format!(", {n} rungs"),
    };
    format!("{:<4} {} rows{rungs}: {}", case.name, case.rows, case.about)
}
