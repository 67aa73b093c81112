//! The scans of a query for people: 80 columns, what matters most first.

use crate::grid::{self, Align, bytes, grid};
use inrush_core::printable;
use inrush_tune::explain::{Report, Timing, Variant};

fn wrapped(name: &str, value: &str) -> String {
    grid::wrapped(name, &printable(value))
}

/// Everything there is to say.
pub fn report(report: &Report) -> String {
    let mut out = String::new();
    for sentence in &report.verdict.sentences {
        out += &paragraph(sentence);
    }
    if !report.verdict.reasons.is_empty() {
        out += "\nWhat the planner did not know\n";
        for reason in &report.verdict.reasons {
            out += &format!("- {}", paragraph_at(&reason.text, 2));
        }
    }
    out += "\n";
    out += &times(report);
    out += "\n";
    out += &reads(report);
    out += "\n";
    out += &pages(report);
    out += "\n";
    out += &conditions(report);
    out
}

/// Times, and what was read from the device.
fn times(report: &Report) -> String {
    let cold = report.scans.iter().any(|scan| scan.cold.is_some());
    let predicted = report.scans.iter().any(|scan| scan.prediction.is_some());
    let mut headings = vec![("SCAN", Align::Left), ("WARM ms", Align::Right)];
    if cold {
        headings.extend([("COLD ms", Align::Right), ("FROM-TO", Align::Right)]);
    }
    if predicted {
        headings.push(("MODEL", Align::Right));
    }
    headings.push(("COST", Align::Right));
    let rows: Vec<Vec<String>> = report
        .scans
        .iter()
        .map(|scan| {
            let mut row = vec![name(scan), scan.warm.as_ref().map_or_else(none, |warm| ms(warm.seconds))];
            if cold {
                row.extend(cold_cells(scan.cold.as_ref()));
            }
            if predicted {
                row.push(scan.prediction.as_ref().map_or_else(none, |one| ms(one.seconds)));
            }
            row.push(scan.total_cost.map_or_else(none, |cost| format!("{cost:.0}")));
            row
        })
        .collect();
    let mut out = grid(&headings, &rows);
    if report.scans.iter().any(|scan| scan.planners) {
        out += "* what the planner chose\n";
    }
    out
}

fn cold_cells(cold: Option<&Timing>) -> [String; 2] {
    match cold {
        None => [none(), none()],
        Some(cold) => [ms(cold.seconds), format!("{}-{}", ms(cold.least), ms(cold.most))],
    }
}

/// What was read, from the device and into shared buffers: cold, where that was measured.
fn reads(report: &Report) -> String {
    let cold = report.cold.measured;
    let headings = [
        (if cold { "COLD" } else { "WARM" }, Align::Left),
        ("DEVICE READS", Align::Right),
        ("BYTES", Align::Right),
        ("BLOCKS FOUND", Align::Right),
        ("BLOCKS READ", Align::Right),
    ];
    let rows = report.scans.iter().map(|scan| {
        let timing = if cold { scan.cold.as_ref() } else { scan.warm.as_ref() };
        let cell = |of: &dyn Fn(&Timing) -> Option<String>| timing.and_then(of).unwrap_or_else(none);
        vec![
            name(scan),
            cell(&|timing| timing.device_reads.map(|n| n.to_string())),
            cell(&|timing| timing.device_bytes.map(bytes)),
            cell(&|timing| Some(timing.shared_hit.to_string())),
            cell(&|timing| Some(timing.shared_read.to_string())),
        ]
    });
    grid(&headings, &rows.collect::<Vec<_>>())
}

/// Pages and rows: expected and found.
fn pages(report: &Report) -> String {
    let headings = [
        ("SCAN", Align::Left),
        ("PAGES", Align::Right),
        ("EXPECTED", Align::Right),
        ("LOSSY", Align::Right),
        ("RECHECKED", Align::Right),
        ("ROWS", Align::Right),
        ("EXPECTED", Align::Right),
    ];
    let rows: Vec<Vec<String>> = report
        .scans
        .iter()
        .map(|scan| {
            let bitmap = scan.heap_pages_estimated.is_some() || scan.lossy_pages.is_some();
            vec![
                name(scan),
                scan.heap_pages.map_or_else(none, |n| n.to_string()),
                scan.heap_pages_estimated.map_or_else(none, |n| format!("{n:.0}")),
                scan.lossy_pages.map_or_else(none, |n| n.to_string()),
                if bitmap { scan.rows_rechecked.to_string() } else { none() },
                format!("{:.0}", scan.rows),
                format!("{:.0}", scan.rows_estimated),
            ]
        })
        .collect();
    grid(&headings, &rows)
}

/// What was measured, under which conditions, and what was not.
fn conditions(report: &Report) -> String {
    let table = &report.table;
    let parts = table.partitions.map_or_else(String::new, |n| format!(" in {n} partitions"));
    let mut out =
        wrapped("table", &format!("{}, {}{parts}, {} pages", table.name, bytes(table.bytes), table.pages));
    let mut server = format!("PostgreSQL {} as role {}", report.server.version, report.server.role);
    if let Some(buffers) = report.server.shared_buffers {
        server += &format!(", shared_buffers {}", bytes(buffers));
    }
    if let Some(method) = &report.server.io_method {
        server += &format!(", io_method {method}");
        if let Some(workers) = report.server.io_workers.filter(|_| method == "worker") {
            server += &format!(" ({workers} workers)");
        }
    }
    out += &wrapped("server", &server);
    let settings: Vec<String> =
        report.server.settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    if !settings.is_empty() {
        out += &wrapped("settings", &settings.join(", "));
    }
    let mut ahead = format!("effective_io_concurrency {}", report.concurrency.current);
    let other: Vec<String> = report.concurrency.compared.iter().map(u32::to_string).collect();
    if !other.is_empty() {
        ahead += &format!(", compared with {}", other.join(", "));
    }
    if let Some(why) = &report.concurrency.why_only_current {
        ahead += &format!(" only: {why}");
    }
    out += &wrapped("read-ahead", &ahead);
    for mask in &report.concurrency.masks {
        let text = format!(
            "tablespace {} has {} = {}, which wins over what a session sets",
            mask.tablespace, mask.option, mask.value
        );
        out += &wrapped("mask", &text);
    }
    out += &wrapped("cold", &cold(report));
    for absent in &report.absent {
        out += &wrapped("no scan", &format!("{}: {}", absent.method.name(), absent.why));
    }
    let silent = report.scans.iter().find_map(|scan| scan.no_prediction.as_ref());
    if let Some(why) = silent.filter(|_| report.scans.iter().all(|scan| scan.prediction.is_none())) {
        out += &wrapped("no model", why);
    }
    for note in &report.notes {
        out += &wrapped("note", note);
    }
    for left in &report.left_out {
        out += &wrapped("not done", &left.what);
        if let Some(remedy) = &left.remedy {
            out += &wrapped("", remedy);
        }
    }
    out
}

fn cold(report: &Report) -> String {
    let cold = &report.cold;
    if let Some(why) = &cold.why_not {
        return format!("warm only: {why}");
    }
    let mut text = cold.how.join("; ");
    if let Some(resident) = cold.resident {
        text += &format!("; at most {:.2} % of the files were in the file cache", resident * 100.0);
    }
    if let Some(left) = cold.buffers_left {
        text += &format!(", and {left} pages in shared buffers");
    }
    if let Some(partial) = &cold.partial {
        text += &format!("; not quite cold: {partial}");
    }
    text
}

fn name(scan: &Variant) -> String {
    let label = printable(&scan.label);
    if scan.planners { label + " *" } else { label }
}

/// Milliseconds, three digits.
fn ms(seconds: f64) -> String {
    match seconds * 1e3 {
        ms if ms >= 99.95 => format!("{ms:.0}"),
        ms if ms >= 9.995 => format!("{ms:.1}"),
        ms => format!("{ms:.2}"),
    }
}

fn none() -> String {
    "-".to_owned()
}

/// A sentence on lines of 80 columns.
fn paragraph(text: &str) -> String {
    paragraph_at(text, 0)
}

/// The same behind so many columns, which the first line has been given already.
fn paragraph_at(text: &str, indent: usize) -> String {
    let width = 80 - indent;
    let (mut out, mut line) = (String::new(), String::new());
    for word in printable(text).split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            out += &line;
            out.push('\n');
            out += &" ".repeat(indent);
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    out + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_fit_a_terminal() {
        let text = paragraph(&"word ".repeat(50));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.matches("word").count(), 50);
    }

    #[test]
    fn names_do_not_reach_the_terminal_raw() {
        for text in [paragraph("a\u{1b}\nb"), wrapped("table", "a\u{1b}\nb")] {
            assert!(text.ends_with("a\\u{1b}\\nb\n") && text.lines().count() == 1, "{text}");
        }
        let scan = Variant { label: "x\r".to_owned(), ..Variant::default() };
        assert_eq!(name(&scan), "x\\r");
    }

    #[test]
    fn milliseconds() {
        assert_eq!([ms(0.0012), ms(0.0123), ms(4.516)], ["1.20", "12.3", "4516"]);
    }
}
