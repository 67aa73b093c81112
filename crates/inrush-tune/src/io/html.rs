//! What `inrush tune io` has to say as a page: one file, which needs no script.

mod before;
mod curves;
mod settings;

use super::measured::{Engine, Measured};
use super::report::{Applied, Report, Server, Target};
use super::verdict::Class;
use inrush_page::frame::CHARTS;
use inrush_page::{Column, Frame, Text, duration, figure, grouped, megabytes, page, percent, table, text};
use std::fmt::Write as _;

/// Style of this page alone.
const STYLE: &str = include_str!("html/page.css");

impl Report {
    /// The report as a page: HTML that is well-formed XML too, with the report's JSON in it.
    pub fn html(&self) -> String {
        let headline = self.headline();
        let style = [CHARTS, STYLE].concat();
        let frame = Frame {
            title: &headline,
            style: &style,
            script: None,
            inrush: &self.inrush,
            version: self.version,
        };
        page(&frame, self, |out| self.main(out, &headline))
    }

    /// What was looked at, and what it is.
    fn headline(&self) -> String {
        match &self.targets[..] {
            [] => "Storage: nothing was measured".to_owned(),
            [one] => format!("Storage of {}: {}", one.words(), one.class()),
            several => format!("Storage of {} tablespaces", several.len()),
        }
    }

    fn main(&self, out: &mut String, headline: &str) {
        let asked = self.server.as_ref().map_or_else(
            || "no server was asked".to_owned(),
            |server| format!("PostgreSQL {}", Text(&server.version)),
        );
        let _ = write!(
            out,
            "<header>\n<h1>{}</h1>\n<p class=\"soft\">{asked}; began <time datetime=\"{}\">{}</time>; \
             inrush {}</p>\n",
            Text(headline),
            Text(&self.started),
            Text(&moment(&self.started)),
            Text(&self.inrush)
        );
        for target in &self.targets {
            target.gist(out);
        }
        out.push_str("</header>\n");
        for target in &self.targets {
            self.target(out, target);
        }
        if let Some(server) = &self.server {
            facts_of_server(out, server);
        }
        if let Some(applied) = &self.applied {
            set(out, applied);
        }
        if !self.notes.is_empty() {
            out.push_str("<section>\n<h2>Notes</h2>\n");
            list(out, &self.notes);
            out.push_str("</section>\n");
        }
    }

    fn target(&self, out: &mut String, target: &Target) {
        let server = self.server.as_ref();
        let _ = write!(out, "<section>\n<h2>{}</h2>\n", Text(&capital(&target.words())));
        match (&target.verdict.refused, &target.not_measured) {
            (_, Some(why)) => {
                let _ = writeln!(out, "<p>Nothing was measured: {}</p>", prose(&stopped(why)));
            }
            (Some(why), None) => {
                let _ = writeln!(
                    out,
                    "<p><b>No verdict.</b> {} What was measured is below, but no setting is advised on \
                     it.</p>",
                    prose(&sentence(why))
                );
            }
            (None, None) => {
                let _ = writeln!(out, "<p>{}</p>", prose(&sentence(&target.verdict.text)));
            }
        }
        settings::write(out, target);
        if let Some(before) = &target.before {
            before::write(out, target, before, server);
        }
        if let Some(measured) = &target.measured {
            curves::write(out, target, measured, server);
            facts_of_storage(out, measured);
        }
        out.push_str("</section>\n");
    }
}

impl Target {
    /// Its name in a sentence.
    fn words(&self) -> String {
        match (&self.tablespace, &self.directory) {
            (Some(name), _) => format!("tablespace {name}"),
            (None, Some(directory)) => directory.clone(),
            (None, None) => "an unknown directory".to_owned(),
        }
    }

    /// The kind of its storage in a word.
    fn class(&self) -> &'static str {
        match &self.not_measured {
            Some(_) => "not measured",
            None => self.verdict.class.name(),
        }
    }

    /// What it is and what to set, in large letters.
    fn gist(&self, out: &mut String) {
        let without = self.not_measured.is_some() || self.verdict.class == Class::CannotTell;
        let knee =
            self.verdict.knee.map_or(String::new(), |knee| format!(", knee at {knee} reads in flight"));
        let _ = writeln!(
            out,
            "<div class=\"limit{}\"><b>{}: {}{knee}</b><span>{}</span></div>",
            if without { " error" } else { "" },
            Text(&self.words()),
            self.class(),
            Text(&self.to_do())
        );
    }

    /// What to do, in a sentence.
    fn to_do(&self) -> String {
        if self.not_measured.is_some() {
            return "Cannot tell: nothing was measured.".to_owned();
        }
        if self.verdict.class == Class::CannotTell {
            return "Cannot tell: no setting is advised.".to_owned();
        }
        if self.advice.is_empty() {
            return "Nothing to change: the settings fit this storage.".to_owned();
        }
        // Of each version what is for it, in the order in which versions come first.
        let mut said: Vec<(Option<&str>, Vec<String>)> = Vec::new();
        for one in &self.advice {
            let setting = format!("{} = {}", one.setting, one.advised);
            match said.iter_mut().find(|(versions, _)| *versions == one.versions) {
                Some((_, settings)) => settings.push(setting),
                None => said.push((one.versions, vec![setting])),
            }
        }
        let sentences: Vec<String> = said
            .into_iter()
            .map(|(versions, settings)| match versions {
                Some(versions) => format!("{versions}: set {}.", settings.join(", ")),
                None => format!("Set {}.", settings.join(", ")),
            })
            .collect();
        sentences.join(" ")
    }
}

/// What was known of a storage without reading from it, and how it was measured.
fn facts_of_storage(out: &mut String, measured: &Measured) {
    let storage = &measured.storage;
    let device = match (&storage.device, &storage.device_number) {
        (Some(name), Some(number)) => Some(format!("{name} ({number})")),
        (name, number) => name.clone().or_else(|| number.clone()),
    };
    let known = [
        ("device", device),
        ("file system", storage.file_system.clone()),
        ("read-ahead", storage.read_ahead_kb.map(|kb| format!("{kb} kB"))),
        ("I/O scheduler", storage.scheduler.clone()),
        ("requests in its queue", storage.queue_requests.map(grouped)),
        ("free", storage.space.map(|(free, all)| format!("{} of {}", megabytes(free), megabytes(all)))),
        ("limits of the control group", storage.group_limit.clone()),
        ("kernel", storage.kernel.clone()),
    ];
    out.push_str("<h3>What is known of it</h3>\n");
    figures(out, &known);
    let _ = writeln!(out, "<p>Measured: <code>{}</code>.</p>", Text(&storage.directory));
    if let Some(note) = &storage.file_system_note {
        let _ = writeln!(out, "<p class=\"warn\">{}</p>", prose(&sentence(note)));
    }
    let scratch =
        format!("from a scratch file of {} with random contents", megabytes(measured.scratch_bytes));
    let how = match measured.engine {
        Engine::Aio => format!("{scratch}; past the page cache by the kernel's asynchronous I/O"),
        Engine::Threads => format!("{scratch}; past the page cache by a thread for each read in flight"),
        Engine::Server => "by bitmap heap scans of the server".to_owned(),
    };
    let cached = measured.cached_page_us.map_or(String::new(), |us| {
        format!(" A page that is in the page cache takes {}.", duration(us / 1e6))
    });
    let _ = writeln!(
        out,
        "<p class=\"soft\">Measured from {} on, for {}\u{a0}s: {} read {how}.{cached}</p>",
        Text(&moment(&measured.at)),
        figure(measured.seconds),
        megabytes(measured.read_bytes),
    );
    if let Some(stop) = &measured.stopped {
        let _ =
            writeln!(out, "<p class=\"warn\">The probe ended early: {}</p>", prose(&sentence(&stop.text)));
    }
}

/// What of the server decides about scans.
fn facts_of_server(out: &mut String, server: &Server) {
    let offered = (!server.io_methods.is_empty()).then(|| server.io_methods.join(", "));
    let of = |n: Option<u32>| n.map(|n| n.to_string());
    let disk = server.disk_share.as_ref().map(|disk| format!("{} ({})", percent(disk.share), disk.how));
    let known = [
        ("version", Some(server.version.clone())),
        ("role", Some(server.role.clone())),
        ("managed service", server.managed.clone()),
        ("state", server.standby.then(|| "standby".to_owned())),
        ("io_method", server.io_method.clone()),
        ("its choices in this build", offered),
        ("io_workers", of(server.io_workers)),
        ("io_max_concurrency", of(server.io_max_concurrency)),
        ("shared_buffers", server.shared_buffers.map(megabytes)),
        ("requests that shared_buffers did not have", server.shared_miss.map(percent)),
        ("reads that went to the storage", disk),
    ];
    out.push_str("<section>\n<h2>The server</h2>\n");
    figures(out, &known);
    out.push_str("</section>\n");
}

/// What is known, with its names. What is not is left out.
fn figures(out: &mut String, known: &[(&str, Option<String>)]) {
    if known.iter().all(|(_, value)| value.is_none()) {
        return;
    }
    out.push_str("<dl class=\"figures\">\n");
    for (name, value) in known {
        if let Some(value) = value {
            let _ = writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", Text(value));
        }
    }
    out.push_str("</dl>\n");
}

/// What --apply has set.
fn set(out: &mut String, applied: &Applied) {
    out.push_str("<section>\n<h2>What was set</h2>\n");
    let mut said: Vec<String> = applied
        .changes
        .iter()
        .map(|change| match &change.overruled {
            None => format!("{}: {} -> {}", change.setting, change.before, change.value),
            Some(why) => {
                format!("{}: set to {}, and {} is in effect: {why}", change.setting, change.value, change.now)
            }
        })
        .collect();
    said.extend(applied.not_applied.iter().map(|one| format!("{}: not set", one.setting)));
    said.extend(applied.why.clone());
    if said.is_empty() {
        said.push("nothing".to_owned());
    }
    list(out, &said);
    out.push_str("</section>\n");
}

fn list(out: &mut String, items: &[String]) {
    out.push_str("<ul class=\"notes\">\n");
    for item in items {
        let _ = writeln!(out, "<li>{}</li>", prose(&sentence(item)));
    }
    out.push_str("</ul>\n");
}

/// Lines to copy.
fn lines(out: &mut String, lines: &[String]) {
    if !lines.is_empty() {
        let _ = writeln!(out, "<pre><code>{}</code></pre>", Text(&lines.join("\n")));
    }
}

/// A table of words.
fn words(out: &mut String, caption: &str, heads: &[&str], rows: &[Vec<String>]) {
    let columns: Vec<Column<'_>> = heads.iter().map(|head| Column::Words(head)).collect();
    table(out, caption, &columns, rows);
}

/// `2026-11-22T19:19:43Z` for people.
fn moment(at: &str) -> String {
    at.replace('T', " ").replace('Z', " UTC")
}

/// A fact as a sentence. A name that begins with a small letter keeps it.
fn sentence(fact: &str) -> String {
    capital(&stopped(fact))
}

/// With a final stop.
fn stopped(fact: &str) -> String {
    let stop = if fact.is_empty() || fact.ends_with(['.', '!', '?', ';']) { "" } else { "." };
    format!("{fact}{stop}")
}

/// With a capital, unless the first word is a name such as `io_workers`.
fn capital(words: &str) -> String {
    let first = words.split([' ', ':', ',']).next().unwrap_or_default();
    let mut rest = words.chars();
    match rest.next() {
        Some(letter) if first.chars().all(|c| c.is_alphabetic() || c == '-') => {
            format!("{}{}", letter.to_uppercase(), rest.as_str())
        }
        _ => words.to_owned(),
    }
}

/// Text as markup, with what stands between backticks as code.
fn prose(words: &str) -> String {
    let parts: Vec<&str> = words.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return text(words);
    }
    let mut out = String::new();
    for (n, part) in parts.into_iter().enumerate() {
        let _ = if n % 2 == 1 {
            write!(out, "<code>{}</code>", Text(part))
        } else {
            write!(out, "{}", Text(part))
        };
    }
    out
}

#[cfg(test)]
mod tests;
