//! An earlier measurement beside the one of now.

use super::super::measured::Measured;
use super::super::model::{Model, ReadAhead};
use super::super::report::{Before, Server, TablespaceOption, Target};
use super::super::verdict::Verdict;
use super::settings::gain;
use super::{list, moment, words};
use inrush_page::bars::{Bar, Cache, Group, Scans, Setting};
use inrush_page::{Text, duration, figure, percent, text};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Before and after.
pub(super) fn write(out: &mut String, target: &Target, before: &Before, server: Option<&Server>) {
    let _ = writeln!(
        out,
        "<h3>Before and after</h3>\n<p>Measured before on {}.</p>",
        Text(&moment(&before.measured.at))
    );
    if before.changes.is_empty() {
        out.push_str("<p>Nothing has changed.</p>\n");
    } else {
        list(out, &before.changes);
    }
    let mut rows: Vec<Vec<String>> = settings(before);
    let now = target.measured.as_ref().map(|measured| storage(measured, &target.verdict));
    for (n, (name, then)) in storage(&before.measured, &before.verdict).into_iter().enumerate() {
        let now = now.as_ref().and_then(|now| now.get(n)).map_or("not measured", |(_, now)| now.as_str());
        rows.push(vec![name.to_owned(), text(then), text(now)]);
    }
    words(out, "Settings and storage, then and now.", &["what", "before", "now"], &rows);
    if let (Some(measured), Some(server)) = (&target.measured, server) {
        scans(out, before, measured, server);
    }
}

/// A row for each setting that one of both lists has.
fn settings(before: &Before) -> Vec<Vec<String>> {
    let names: BTreeSet<&str> =
        before.settings.iter().chain(&before.settings_now).map(|one| one.name.as_str()).collect();
    names
        .into_iter()
        .map(|name| {
            let (then, now) = (value(&before.settings, name), value(&before.settings_now, name));
            let now_shown = text(now.unwrap_or("not set"));
            vec![
                format!("<code>{}</code>", Text(name)),
                text(then.unwrap_or("not set")),
                if then == now { now_shown } else { format!("<b>{now_shown}</b>") },
            ]
        })
        .collect()
}

fn value<'a>(settings: &'a [TablespaceOption], name: &str) -> Option<&'a str> {
    settings.iter().find(|one| one.name == name).map(|one| one.value.as_str())
}

/// The figures of a storage that are worth comparing, with their names.
fn storage(measured: &Measured, verdict: &Verdict) -> Vec<(&'static str, String)> {
    let none = || "not measured".to_owned();
    // Through a server alone the latency of single reads cannot be seen: it is 0 then.
    let us = |us: Option<f64>| us.filter(|us| *us > 0.0).map_or_else(none, |us| duration(us / 1e6));
    let most = measured.random.iter().map(|one| one.iops).reduce(f64::max);
    let read_ahead = measured.storage.read_ahead_kb;
    vec![
        ("kind of storage", verdict.class.name().to_owned()),
        ("one random read", us(measured.latency_us())),
        ("reads a second at most", most.map_or_else(none, figure)),
        (
            "knee, reads in flight",
            verdict.knee.map_or_else(|| "not known".to_owned(), |knee| knee.to_string()),
        ),
        ("99 of 100 answered there within", us(verdict.knee_p99_us)),
        ("a page of a sequential scan", us(measured.sequential_page_us())),
        ("read-ahead of the device", read_ahead.map_or("not known".to_owned(), |kb| format!("{kb} kB"))),
    ]
}

/// What a page of a scan took with the settings of then, and takes with those of now, as each was measured.
fn scans(out: &mut String, before: &Before, measured: &Measured, server: &Server) {
    let ahead = |settings: &[TablespaceOption]| {
        let concurrency: u32 = value(settings, "effective_io_concurrency")?.parse().ok()?;
        let workers = value(settings, "io_workers").and_then(|workers| workers.parse().ok());
        let method = value(settings, "io_method").or(server.io_method.as_deref());
        Some(ReadAhead::of(server.version_num, method, workers.or(server.io_workers), concurrency))
    };
    let (Some(then), Some(now)) = (ahead(&before.settings), ahead(&before.settings_now)) else { return };
    let bar = |name: String, setting, us: f64, note| Bar {
        name,
        setting,
        cache: Cache::Cold,
        amount: Some(us),
        figure: duration(us / 1e6),
        expected: None,
        note,
    };
    let mut densities: Vec<f64> = measured.replays.iter().map(|one| one.density).collect();
    densities.sort_by(f64::total_cmp);
    densities.dedup();
    let groups: Vec<Group> = densities
        .into_iter()
        .filter_map(|density| {
            let was = Model::new(&before.measured).page_us(density, then)?;
            let is = Model::new(measured).page_us(density, now)?;
            let note = gain(was, is);
            Some(Group {
                name: format!("bitmap heap scan of {} of the pages", percent(density)),
                bars: vec![
                    bar(format!("before: {}", then.concurrency), Setting::Current, was, String::new()),
                    bar(format!("now: {}", now.concurrency), Setting::Recommended, is, note),
                ],
            })
        })
        .collect();
    if groups.is_empty() {
        return;
    }
    Scans {
        caption: "Time of a page with the settings of then and of now, each as it was measured.",
        settings: ["before", "now"],
        expected: "",
        groups,
    }
    .render(out);
}
