//! The report as one HTML page: nothing is fetched, and nothing but the read-outs under the pointer needs its script.

use super::svg::{Chart, Columns, split_bar};
use super::{Outcome, Report};
use inrush_page::bars::bars;
use inrush_page::{Column, Frame, Text, figure, grouped, megabytes, page, percent, table, text};
use inrush_profile::{Class, Counters, Profile};
use std::fmt::Write as _;

const SCRIPT: &str = include_str!("page.js");

/// Wait events, inputs and columns that the page shows; the JSON in it has all.
const MOST_EVENTS: usize = 25;
const MOST_INPUTS: usize = 50;
const MOST_COLUMNS: usize = 40;

impl Report {
    /// The report as a page: HTML that is well-formed XML too, with the report's JSON in it.
    pub fn html(&self) -> String {
        let headline = self.headline();
        let frame = Frame {
            title: &headline,
            style: "",
            script: Some(SCRIPT),
            inrush: &self.inrush,
            version: self.version,
        };
        page(&frame, self, |out| self.main(out, &headline))
    }

    fn main(&self, out: &mut String, headline: &str) {
        self.happened(out, headline);
        self.figures(out);
        match &self.profile {
            Some(profile) => {
                throughput(out, profile);
                waits(out, profile);
            }
            None => self.no_charts(out),
        }
        self.client(out);
        if let Some(profile) = &self.profile {
            blockers(out, profile);
            counters(out, profile);
        }
        self.levers_table(out);
        if let Some(profile) = &self.profile {
            settings(out, profile);
        }
        self.inputs(out);
        self.said(out);
    }

    fn happened(&self, out: &mut String, headline: &str) {
        let (class, outcome) = match self.outcome {
            Outcome::Loaded => ("good", "loaded"),
            Outcome::LoadedWithRejects => ("warn", "loaded with rejects"),
            Outcome::AlreadyLoaded => ("good", "already loaded"),
            Outcome::Interrupted => ("warn", "stopped"),
            Outcome::Failed => ("bad", "failed"),
        };
        let server =
            if self.dry_run { String::new() } else { format!("; PostgreSQL {}", Text(&self.server)) };
        let _ = write!(
            out,
            "<header>\n<h1>{}</h1>\n<p class=\"soft\"><span class=\"outcome {class}\">{outcome}</span>; began \
             <time datetime=\"{}\">{}</time>{server}; inrush {}</p>\n",
            Text(headline),
            Text(&self.started),
            Text(&self.started.replace('T', " ").replace('Z', " UTC")),
            Text(&self.inrush)
        );
        if let Some(error) = &self.error {
            let _ = write!(
                out,
                "<div class=\"limit error\"><b>error[{}]</b><span>{}</span>",
                Text(&error.code),
                Text(&error.fact)
            );
            if let Some(sqlstate) = &error.sqlstate {
                let _ = write!(out, "<p>SQLSTATE {}</p>", Text(sqlstate));
            }
            if let Some(position) = &error.position {
                let _ = write!(out, "<p>at: <code>{}</code></p>", text(position));
            }
            if let Some(hint) = &error.hint {
                let _ = write!(out, "<p>hint: {}</p>", Text(hint));
            }
            out.push_str("</div>\n");
        }
        if let Some(limit) = self.profile.as_ref().and_then(|profile| profile.limit.as_ref()) {
            let _ = writeln!(
                out,
                "<div class=\"limit\"><b>What it was limited by</b><span>{}</span></div>",
                Text(&limit.sentence)
            );
        }
        out.push_str("</header>\n");
    }

    #[allow(clippy::cast_precision_loss)] // figures for a person
    fn figures(&self, out: &mut String) {
        let t = &self.totals;
        let per_second = |amount: f64| if t.seconds > 0.0 { amount / t.seconds } else { 0.0 };
        let mut rows = vec![
            ("time", format!("{}\u{a0}s", figure(t.seconds))),
            ("input", megabytes(t.bytes_in)),
            ("input per second", format!("{}\u{a0}MB/s", figure(per_second(t.bytes_in as f64 / 1e6)))),
            ("rows per second", figure(per_second(t.rows as f64))),
            ("rejects", grouped(t.rejects)),
            ("connections", t.connections.to_string()),
            ("units committed", grouped(t.units)),
            ("units sent again", grouped(t.retries)),
        ];
        let more = [
            ("rows of earlier runs, skipped", t.rows_before),
            ("rows left out by a trigger or rule", t.rows_left_out),
            ("rows sent as text", t.rows_as_text),
            ("dead rows left for VACUUM", t.dead_rows),
        ];
        rows.extend(more.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name, grouped(n))));
        if let Some(counters) = self.profile.as_ref().and_then(|profile| profile.counters.as_ref()) {
            rows.push(("WAL of the server", megabytes(counters.wal.bytes)));
            let checkpoints = counters.checkpoints_timed + counters.checkpoints_requested;
            rows.push(("checkpoints", grouped(checkpoints)));
        }
        out.push_str("<section aria-label=\"Key figures\">\n<dl class=\"figures\">\n");
        for (name, value) in rows {
            let _ = writeln!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
        }
        let atomic = if self.atomic { "; all rows or none, in one transaction" } else { "" };
        let _ = write!(
            out,
            "<div class=\"wide\"><dt>path into the server</dt><dd><code>{}</code>: {}{atomic}</dd></div>\n</dl>\n\
             </section>\n",
            self.path.name(),
            Text(&self.path_reason)
        );
    }

    fn no_charts(&self, out: &mut String) {
        let why = if self.dry_run {
            "A dry run has no server whose time could be looked at."
        } else if self.outcome == Outcome::AlreadyLoaded {
            "Nothing was loaded, so there is nothing to show over time."
        } else {
            "There are no charts: nobody looked at what the server waited for. The load was over after about a tenth \
             of a second, or it ran with --sample-hz 0, or no connection was left for it."
        };
        let _ = write!(
            out,
            "<section>\n<h2>Where the server's time went</h2>\n<p id=\"no-charts\">{why}</p>\n</section>\n"
        );
    }

    fn client(&self, out: &mut String) {
        let s = &self.stages;
        out.push_str(
            "<section>\n<h2>What the client did</h2>\n<p class=\"soft\">Seconds by stage, of the reader and all lanes \
             together: threads work at the same time, so they add up to more than the clock shows.</p>\n",
        );
        let mut stages = vec![
            ("read", s.read),
            ("decode+encode", s.encode),
            ("send", s.send),
            ("commit", s.commit),
            ("waiting for input", s.wait),
        ];
        if s.put_back > 0.0 {
            stages.push(("taking levers back", s.put_back));
        }
        bars(out, &stages);
        if let Some(client) = self.profile.as_ref().map(|profile| profile.client)
            && client.input + client.encode + client.send > 0.0
        {
            out.push_str(
                "<p class=\"soft\">Of that, while a process of the server waited for the client, in seconds of these \
                 processes:</p>\n",
            );
            bars(
                out,
                &[
                    ("waiting for input", client.input),
                    ("decode+encode", client.encode),
                    ("send", client.send),
                ],
            );
        }
        out.push_str("</section>\n");
    }

    fn levers_table(&self, out: &mut String) {
        if self.levers.is_empty() && self.pulled.is_empty() {
            return;
        }
        out.push_str("<section class=\"levers stacked\">\n<h2>Levers</h2>\n");
        if !self.pulled.is_empty() {
            out.push_str("<p class=\"soft\">Pulled for this load:</p>\n<ul class=\"notes\">\n");
            for pulled in &self.pulled {
                let why = pulled.why.as_ref().map_or(String::new(), |why| format!(" ({})", Text(why)));
                let _ = writeln!(
                    out,
                    "<li><code>--{}</code>: {}{why}</li>",
                    Text(&pulled.lever),
                    Text(&pulled.what)
                );
            }
            out.push_str("</ul>\n");
        }
        if self.levers.is_empty() {
            out.push_str("</section>\n");
            return;
        }
        let rows: Vec<Vec<String>> = self
            .levers
            .iter()
            .map(|lever| {
                let used = if lever.used { " <span class=\"good\">in use</span>" } else { "" };
                vec![
                    format!("<code>{}</code>{used}", Text(&lever.lever)),
                    class_cell(lever.addresses),
                    text(&lever.what),
                    text(&lever.cost),
                    format!("<code>{}</code>", Text(&lever.how)),
                ]
            })
            .collect();
        let columns = ["lever", "addresses", "what it does", "what it costs", "how"].map(Column::Words);
        table(out, "What would make less of the classes with most time.", &columns, &rows);
        out.push_str("</section>\n");
    }

    fn inputs(&self, out: &mut String) {
        let rows: Vec<Vec<String>> = self
            .inputs
            .iter()
            .take(MOST_INPUTS)
            .map(|input| {
                let shown: Vec<String> = input.columns.iter().take(MOST_COLUMNS).map(text).collect();
                let more = match input.columns.len().saturating_sub(MOST_COLUMNS) {
                    0 => String::new(),
                    n => format!(" and {n} more"),
                };
                vec![
                    format!("<code>{}</code>", Text(&input.name)),
                    input.format.name().to_owned(),
                    text(&input.compression),
                    input.bytes.map_or("unknown".to_owned(), megabytes),
                    format!("<span class=\"from\">{}</span>{more}", shown.join(", ")),
                ]
            })
            .collect();
        out.push_str("<section class=\"inputs stacked\">\n<h2>Inputs</h2>\n");
        let columns = [
            Column::Words("name"),
            Column::Words("format"),
            Column::Words("compression"),
            Column::Figures("as stored"),
            Column::Words("columns filled"),
        ];
        let caption = match self.inputs.len() {
            1 => "One input.".to_owned(),
            n if n > MOST_INPUTS => format!("The first {MOST_INPUTS} of {} inputs.", grouped(n as u64)),
            n => format!("{n} inputs."),
        };
        table(out, &caption, &columns, &rows);
        out.push_str("</section>\n");
    }

    fn said(&self, out: &mut String) {
        if self.notes.is_empty() {
            return;
        }
        out.push_str("<section>\n<h2>Notes</h2>\n<ul class=\"notes\">\n");
        for note in &self.notes {
            let _ = writeln!(out, "<li>{}</li>", Text(note));
        }
        out.push_str("</ul>\n</section>\n");
    }
}

/// A class with the colour it has in the charts.
fn class_cell(class: Class) -> String {
    format!("{}{}", key(class), class.in_words())
}

fn key(class: Class) -> String {
    format!(
        "<svg class=\"key\" viewBox=\"0 0 1 1\" aria-hidden=\"true\"><rect class=\"c-{}\" width=\"1\" height=\"1\"/></svg>",
        class.name()
    )
}

#[allow(clippy::cast_precision_loss)] // figures for a drawing
fn throughput(out: &mut String, profile: &Profile) {
    let series = &profile.series;
    if series.bytes_in.is_empty() {
        return;
    }
    out.push_str("<section>\n<h2>Throughput</h2>\n");
    // Chunks are megabytes, units are committed about once a second, and WAL is read once a second: shorter columns
    // would show that rhythm and not how fast the load was.
    let charts = [
        ("Input", "MB/s", "bytes_in", &series.bytes_in, 1e6, 0.5),
        ("Rows committed", "rows/s", "rows", &series.rows, 1.0, 1.0),
        ("WAL of the server", "MB/s", "wal_bytes", &series.wal_bytes, 1e6, 1.0),
    ];
    for (title, unit, field, amounts, scale, least) in charts {
        let columns = Columns::of(series, least);
        let rates = columns.rates(amounts.iter().map(|amount| *amount as f64 / scale));
        let most = rates.iter().copied().fold(0.0, f64::max);
        let mean = amounts.iter().sum::<u64>() as f64 / scale / columns.total();
        Chart {
            title,
            unit,
            field,
            about: format!(
                "{title} over {} seconds, in steps of {:.1} s: {} {unit} on average, {} {unit} at most",
                figure(columns.total()),
                columns.seconds(),
                figure(mean),
                figure(most)
            ),
            whole: false,
            tall: field == "bytes_in",
            columns,
            layers: vec![("amount", rates)],
        }
        .render(out);
    }
    out.push_str("</section>\n");
}

fn waits(out: &mut String, profile: &Profile) {
    if profile.split.is_empty() {
        return;
    }
    let series = &profile.series;
    out.push_str("<section>\n<h2>Where the server's time went</h2>\n");
    // Processor time is read ten times a second, as often as the shortest steps: two readings may meet in one.
    let columns = Columns::of(series, 0.5);
    let layers: Vec<(String, Vec<f64>)> = profile
        .split
        .iter()
        .map(|share| {
            let class = share.class;
            (format!("c-{}", class.name()), columns.rates(series.waits.iter().map(|step| step.of(class))))
        })
        .collect();
    Chart {
        title: "Processes of the server that were busy with it",
        unit: "processes",
        field: "waits",
        about: format!(
            "What the server's processes were busy with over {} seconds: {}",
            figure(columns.total()),
            profile.split_in_words()
        ),
        whole: true,
        tall: true,
        columns,
        layers: layers.iter().map(|(class, values)| (class.as_str(), values.clone())).collect(),
    }
    .render(out);
    out.push_str("<ul class=\"legend\">\n");
    for share in &profile.split {
        let _ = writeln!(
            out,
            "<li data-class=\"{}\" data-words=\"{}\">{} {}</li>",
            share.class.name(),
            share.class.in_words(),
            class_cell(share.class),
            percent(share.share)
        );
    }
    out.push_str("</ul>\n");
    split_bar(out, &profile.split);
    if !profile.cpu_queue_seen {
        out.push_str(
            "<p class=\"soft\">Waiting for a CPU is part of server CPU here: from afar the two cannot be told apart.</p>\n",
        );
    }
    events(out, profile);
    out.push_str("</section>\n");
}

fn events(out: &mut String, profile: &Profile) {
    let mut rows: Vec<Vec<String>> = profile
        .events
        .iter()
        .take(MOST_EVENTS)
        .map(|event| {
            let (kind, name) = match (event.kind.as_str(), event.event.as_str()) {
                ("", "") => ("-".to_owned(), "none: it ran, or waited for a processor".to_owned()),
                // Type and name are read one after the other: the wait had just ended.
                (kind, "") => (text(kind), "-".to_owned()),
                (kind, name) => (text(kind), format!("<code>{}</code>", Text(name))),
            };
            // The samples do not tell running from waiting for a processor: the events count both as running.
            vec![kind, name, class_cell(event.class), format!("{:.2}", event.seconds), percent(event.share)]
        })
        .collect();
    let rest = profile.events.get(MOST_EVENTS..).unwrap_or_default();
    if !rest.is_empty() {
        let sum = |of: fn(&inrush_profile::EventShare) -> f64| rest.iter().map(of).sum::<f64>();
        rows.push(vec![
            String::new(),
            format!("{} more", rest.len()),
            String::new(),
            format!("{:.2}", sum(|event| event.seconds)),
            percent(sum(|event| event.share)),
        ]);
    }
    let columns = [
        Column::Words("type"),
        Column::Words("wait event"),
        Column::Words("class"),
        Column::Figures("seconds"),
        Column::Figures("share"),
    ];
    let caption = format!(
        "Wait events, {} looks, {} seconds of all processes together.",
        grouped(profile.samples),
        figure(profile.backend_seconds)
    );
    table(out, &caption, &columns, &rows);
}

fn blockers(out: &mut String, profile: &Profile) {
    if profile.blockers.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> = profile
        .blockers
        .iter()
        .map(|blocker| {
            let open = blocker.open_seconds.map_or(String::new(), |seconds| format!("{seconds:.0}\u{a0}s"));
            vec![text(blocker), open, format!("{:.0}\u{a0}s", blocker.waited_seconds)]
        })
        .collect();
    out.push_str("<section>\n<h2>Whose locks it waited for</h2>\n");
    let columns = [Column::Words("waited for"), Column::Figures("open"), Column::Figures("waited")];
    table(
        out,
        "Looked at once a second. Open is how long its transaction had been open when it was first seen.",
        &columns,
        &rows,
    );
    out.push_str("</section>\n");
}

fn counters(out: &mut String, profile: &Profile) {
    let Some(counters) = &profile.counters else { return };
    let Counters { wal, table_io, .. } = counters;
    let mut figures = vec![
        ("WAL", megabytes(wal.bytes)),
        ("WAL records", grouped(wal.records)),
        ("images of whole pages in WAL", grouped(wal.full_page_images)),
        ("times wal_buffers was full", grouped(wal.buffers_full)),
        ("checkpoints by checkpoint_timeout", grouped(counters.checkpoints_timed)),
        ("checkpoints by max_wal_size or on request", grouped(counters.checkpoints_requested)),
        ("seconds checkpoints wrote, pauses included", figure(counters.checkpoint_write_seconds)),
        ("seconds checkpoints synced", figure(counters.checkpoint_sync_seconds)),
    ];
    if let Some(io) = table_io {
        figures.extend([
            ("extensions of relations", grouped(io.extends)),
            ("extended by", megabytes(io.extend_bytes)),
            ("pages written by clients' processes", grouped(io.writes)),
            ("pages thrown out of shared_buffers", grouped(io.evictions)),
            ("pages of a ring used again", grouped(io.reuses)),
            ("syncs by clients' processes", grouped(io.fsyncs)),
        ]);
    }
    out.push_str("<section>\n<h2>What the server counted</h2>\n");
    let rows: Vec<Vec<String>> =
        figures.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let columns = [Column::Words("what"), Column::Figures("how much")];
    table(out, "The whole server during the load, not only the load.", &columns, &rows);
    out.push_str("</section>\n");
}

fn settings(out: &mut String, profile: &Profile) {
    if profile.settings.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> = profile
        .settings
        .iter()
        .map(|(name, value)| {
            vec![format!("<code>{}</code>", Text(name)), format!("<code>{}</code>", Text(value))]
        })
        .collect();
    out.push_str("<section>\n<h2>Settings in force</h2>\n");
    let columns = [Column::Words("setting"), Column::Words("value")];
    table(out, "Those of the server that matter for loading.", &columns, &rows);
    out.push_str("</section>\n");
}
