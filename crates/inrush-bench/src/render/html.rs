use super::svg::escape;
use super::tables::{self, Table};
use super::{facts, notes, plots};
use crate::{Ladder, Place, Record, Rung, ladders};
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");

/// One page that needs nothing else: plots, tables, conditions. It is well-formed XML, too.
pub fn html(record: &Record) -> String {
    let case = &record.case;
    let title = format!("{}: {}", case.name, case.about);
    let mut out = format!(
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>inrush bench: {}</title>\n\
         <style>\n{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
        escape(&title),
        // A browser takes it as it is; XML does as well while it has neither < nor &.
        STYLE,
        escape(&title)
    );
    out.push_str(
        "<p>Every bar ends at the median of its runs; each dot is one run. Shorter is better for seconds, CPU and \
         WAL. Contenders took turns; the rows and their hash were checked after each run.</p>\n",
    );
    list(&mut out, &facts(record).into_iter().take(5).collect::<Vec<_>>());
    contents(&mut out, record);
    published(&mut out, record);
    for rung in case.each_rung() {
        section(&mut out, record, &rung);
    }
    let servers: Vec<Table> = tables::side_by_side(record);
    if !servers.is_empty() {
        out.push_str("<h2 id=\"servers\">Servers side by side</h2>\n");
        for one in servers {
            heads(&mut out, &one);
            table(&mut out, &one);
        }
    }
    conditions(&mut out, record);
    out.push_str("</body>\n</html>\n");
    out
}

/// The name of a rung's section: names come from case files and may be anything.
fn anchor(record: &Record, rung: &Rung) -> String {
    let place = record.case.each_rung().iter().position(|one| one.name == rung.name);
    format!("rung-{}", place.unwrap_or(0))
}

fn heading(rung: &Rung) -> &str {
    if rung.name.is_empty() { "Contenders" } else { &rung.name }
}

fn contents(out: &mut String, record: &Record) {
    out.push_str("<nav><ul>");
    if has_published(record) {
        out.push_str("<li><a href=\"#published\">beside the published figures</a></li>");
    }
    for rung in record.case.each_rung() {
        let _ = write!(out, "<li><a href=\"#{}\">{}</a></li>", anchor(record, &rung), escape(heading(&rung)));
    }
    out.push_str("<li><a href=\"#conditions\">conditions and settings</a></li></ul></nav>\n");
}

fn has_published(record: &Record) -> bool {
    tables::published(record).is_some() || ladders(record).iter().any(Ladder::has_published)
}

fn published(out: &mut String, record: &Record) {
    if !has_published(record) {
        return;
    }
    out.push_str(
        "<h2 id=\"published\">Beside the published figures</h2>\n<p>The study's machine and versions were others: \
         only ratios are compared, each over its own base.</p>\n",
    );
    for one in ladders(record).iter().filter(|one| one.has_published()) {
        climb(out, record, one);
    }
    if let Some(one) = tables::published(record) {
        heads(out, &one);
        table(out, &one);
    }
}

fn climb(out: &mut String, record: &Record, ladder: &Ladder) {
    let rows = tables::ladder(ladder);
    heads(out, &rows);
    let keys = [("ours", "inrush"), ("base", "others here"), ("published", "published")];
    legend(out, &keys[..if ladder.has_published() { 3 } else { 2 }]);
    if let Some(plot) = plots::ladder(record, ladder) {
        figure(out, &plot);
    }
    table(out, &rows);
}

fn heads(out: &mut String, table: &Table) {
    let _ =
        writeln!(out, "<h3>{}</h3>\n<p class=\"soft\">{}</p>", escape(&table.title), escape(&table.about));
}

fn section(out: &mut String, record: &Record, rung: &Rung) {
    let _ = writeln!(out, "<h2 id=\"{}\">{}</h2>", anchor(record, rung), escape(heading(rung)));
    let mut about = format!("Table: {}.", rung.table_form());
    if !rung.about.is_empty() {
        let _ = write!(about, " {}.", rung.about);
    }
    let _ = writeln!(out, "<p>{}</p>", escape(&about));
    let places: Vec<Place> = record.places().into_iter().filter(|place| place.rung == rung.name).collect();
    if places.is_empty() {
        let reasons: Vec<_> = record
            .absent
            .iter()
            .filter(|absent| absent.rung.as_ref() == Some(&rung.name))
            .map(crate::Absent::sentence)
            .collect();
        let _ = writeln!(out, "<p class=\"soft\">No run. {}</p>", escape(&reasons.join("; ")));
        return;
    }
    legend(
        out,
        &[
            ("ours", "inrush"),
            ("base", "baseline"),
            ("other", "others"),
            ("limit", "limit of the machine"),
            ("client", "CPU of the client"),
            ("server", "CPU of the server"),
            ("wal", "WAL"),
        ],
    );
    for place in &places {
        // The line over all numbers of sessions stands before the first of them.
        let group: Vec<&Place> = places
            .iter()
            .filter(|one| Place { sessions: place.sessions, ..(*one).clone() } == *place)
            .collect();
        if group[0] == place
            && let Some(plot) = plots::over_sessions(record, &group)
        {
            let _ = writeln!(
                out,
                "<h3>{}, synchronous_commit {}: over sessions</h3>",
                escape(&record.server_title(place.server)),
                escape(&place.synchronous_commit)
            );
            figure(out, &plot);
            for one in ladders(record).iter().filter(|one| one.foot == *place) {
                climb(out, record, one);
            }
        }
        let medians = tables::medians(record, place);
        let _ = writeln!(out, "<h3>{}</h3>", escape(&medians.title));
        let drawn = [plots::seconds(record, place, &places), plots::rows(record, place)];
        if drawn.iter().all(Option::is_none) {
            out.push_str("<p class=\"soft\">No run counts.</p>\n");
        }
        for plot in drawn.iter().flatten() {
            figure(out, plot);
        }
        out.push_str("<details><summary>figures</summary>\n");
        table(out, &medians);
        out.push_str("</details>\n");
    }
}

fn conditions(out: &mut String, record: &Record) {
    out.push_str(
        "<h2 id=\"conditions\">Conditions and settings</h2>\n<p>Before each run: a new table, prepared as the rung \
         says, and a CHECKPOINT. Seconds to COMMIT are wall time of the whole command. The input is in the page \
         cache. Servers that the bench starts have fsync, full_page_writes and data checksums on.</p>\n",
    );
    list(out, &facts(record));
    let notes = notes::notes(record);
    if !notes.is_empty() {
        out.push_str("<ul>\n");
        for note in notes {
            let _ = writeln!(out, "<li>{}</li>", escape(&note));
        }
        out.push_str("</ul>\n");
    }
    out.push_str("<details><summary>commands</summary>\n<pre>");
    for contender in &record.case.contenders {
        let about = if contender.about.is_empty() { String::new() } else { format!(": {}", contender.about) };
        let _ = writeln!(
            out,
            "# {}{}\n{}\n",
            escape(&contender.name),
            escape(&about),
            escape(contender.command.trim())
        );
    }
    out.push_str("</pre></details>\n");
}

fn list(out: &mut String, facts: &[(String, String)]) {
    out.push_str("<dl>\n");
    for (key, value) in facts {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(key), escape(value));
    }
    out.push_str("</dl>\n");
}

fn legend(out: &mut String, keys: &[(&str, &str)]) {
    out.push_str("<p class=\"legend\">");
    for (class, word) in keys {
        let _ = write!(out, "<span class=\"k-{class}\">{word}</span>");
    }
    out.push_str("</p>\n");
}

fn figure(out: &mut String, plot: &str) {
    let _ = writeln!(out, "<div class=\"wide\">{plot}</div>");
}

fn table(out: &mut String, table: &Table) {
    let class = |i: usize| if table.words.contains(&i) { " class=\"word\"" } else { "" };
    out.push_str("<div class=\"wide\"><table>\n<thead><tr>");
    for (i, head) in table.heads.iter().enumerate() {
        let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(i), escape(head));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let class = if cell.chars().count() > 40 { " class=\"word long\"" } else { class(i) };
            let _ = write!(out, "<td{class}>{}</td>", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
}
