//! What storage gives, for people: 80 columns, what to do first, and lines to copy.

use crate::grid::{Align, bytes, grid, wrapped};
use inrush_tune::advise::Effect;
use inrush_tune::advise::apply::Change;
use inrush_tune::io::advice::{NamedScan, Place};
use inrush_tune::io::measured::{Engine, Mechanism};
use inrush_tune::io::report::{Before, Target};
use inrush_tune::io::verdict::{thousands, time};
use inrush_tune::io::{Advice, Measured, Report};
use std::collections::BTreeSet;

/// Everything there is to say. `apply` is the command that sets what is advised; `applying`: it is this one.
pub fn report(report: &Report, apply: &str, applying: bool) -> String {
    let mut out = String::new();
    if let Some(server) = &report.server {
        out += &format!("PostgreSQL {} as role {}\n", server.version, server.role);
        if let Some(method) = &server.io_method {
            let workers = server.io_workers.map_or_else(String::new, |n| format!(", io_workers {n}"));
            let offered = server.io_methods.join(", ");
            out += &wrapped("io_method", &format!("{method}{workers}; this build offers {offered}"));
        }
    }
    for target in &report.targets {
        out += "\n";
        out += &target_text(target);
    }
    let lines = |needs: &dyn Fn(&Advice) -> bool| -> Vec<&str> {
        let advice = report.targets.iter().flat_map(|target| &target.advice);
        advice
            .filter(|one| one.versions.is_none() && needs(one))
            .flat_map(|one| &one.lines)
            .map(String::as_str)
            .collect()
    };
    let (sql, restart) = (
        lines(&|one| one.effect != Effect::Restart && !device(one)),
        lines(&|one| one.effect == Effect::Restart),
    );
    let shell = lines(&device);
    for (what, lines, reload) in [
        ("Without a restart:", &sql, true),
        ("These need a restart of the server:", &restart, false),
        ("On the server's machine, as root:", &shell, false),
    ] {
        if lines.is_empty() {
            continue;
        }
        out += &format!("\n{what}\n\n{}\n", lines.join("\n"));
        if reload && lines.iter().any(|line| line.starts_with("ALTER SYSTEM")) {
            out += "SELECT pg_reload_conf();\n";
        }
    }
    let all = report.targets.iter().flat_map(|target| &target.advice);
    let may = all.clone().filter(|one| one.applied && one.may && one.obstacle.is_none()).count();
    if may > 0 && !applying {
        out += &format!(
            "\nWhat can be set without a restart is set, and recorded to be taken back, by:\n\n{apply}\n"
        );
    }
    let may_not: BTreeSet<&str> = all.filter(|one| one.applied && !one.may).map(|one| one.setting).collect();
    if let Some(server) = report.server.as_ref().filter(|_| !may_not.is_empty()) {
        let names: Vec<&str> = may_not.into_iter().collect();
        out += "\n";
        out += &wrapped(
            "but",
            &format!(
                "role {} may not set {}: a superuser may, or the tablespace's owner",
                server.role,
                names.join(", ")
            ),
        );
    }
    for note in &report.notes {
        out += &wrapped("note", note);
    }
    out
}

fn device(advice: &Advice) -> bool {
    matches!(advice.place, Place::Device { .. })
}

fn target_text(target: &Target) -> String {
    let directory = target.directory.as_deref().unwrap_or("?");
    let mut out = match &target.tablespace {
        Some(name) => format!("tablespace {name}, {directory}\n"),
        None => format!("{directory}\n"),
    };
    out += &wrapped("verdict", &target.verdict.text);
    // What refused it stands above; the rest is what can be done.
    let fact = target.verdict.refused.as_deref().unwrap_or_default();
    if let Some(way) =
        target.not_measured.as_deref().and_then(|why| why.strip_prefix(fact)?.strip_prefix(". "))
    {
        out += &wrapped("way out", way);
    }
    if let Some(measured) = &target.measured {
        let storage = storage(measured);
        if !storage.is_empty() {
            out += &wrapped("storage", &storage);
        }
        out += &wrapped("measured", &how(measured));
        if let Some(stop) = &measured.stopped {
            out += &wrapped("stopped", &stop.text);
        }
        out += &curve(measured);
        out += &replays(measured);
    }
    for option in &target.options {
        out += &wrapped(
            "mask",
            &format!(
                "{} = {} is an option of the tablespace: what sessions SET does not count for its tables",
                option.name, option.value
            ),
        );
    }
    for advice in &target.advice {
        out += "\n";
        out += &advice_text(advice);
    }
    if let Some(dense) = &target.dense {
        out += "\n";
        out += &wrapped("dense scans", &dense.text);
        for line in &dense.lines {
            out += &format!("              {line}\n");
        }
    }
    if !target.already_right.is_empty() {
        out += "\nto stay as they are\n";
        for right in &target.already_right {
            out += &wrapped("", &format!("{} {}: {}", right.setting, right.now, right.why));
        }
    }
    if !target.undecided.is_empty() {
        out += "\nnot to be told\n";
        for one in &target.undecided {
            out += &wrapped("", &format!("{} {}: {}", one.setting, one.now, one.why));
        }
    }
    if let Some(before) = &target.before {
        out += &before_text(before, target);
    }
    out
}

fn storage(measured: &Measured) -> String {
    let storage = &measured.storage;
    let mut words = Vec::new();
    words.extend(storage.device.clone());
    words.extend(storage.file_system.clone());
    words.extend(storage.read_ahead_kb.map(|kb| format!("read-ahead {kb} kB")));
    words.extend(storage.scheduler.as_ref().map(|scheduler| format!("scheduler {scheduler}")));
    words.extend(storage.group_limit.clone());
    words.extend(storage.file_system_note.clone());
    words.join(", ")
}

fn how(measured: &Measured) -> String {
    let engine = match measured.engine {
        Engine::Aio => "asynchronous direct reads",
        Engine::Threads => "direct reads of threads",
        Engine::Server => "scans of the server",
    };
    let scratch = if measured.scratch_bytes > 0 {
        format!(", a scratch file of {}", bytes(measured.scratch_bytes))
    } else {
        String::new()
    };
    format!(
        "{engine}{scratch}, {} read in {:.0} s, {}",
        bytes(measured.read_bytes),
        measured.seconds,
        measured.at.replace('T', " ").replace('Z', " UTC")
    )
}

/// Reads a second and their slowest, by depth.
fn curve(measured: &Measured) -> String {
    if measured.random.is_empty() {
        return String::new();
    }
    let mut headings = vec![("  depth", Align::Left)];
    let depths: Vec<String> = measured.random.iter().map(|one| one.depth.to_string()).collect();
    headings.extend(depths.iter().map(|depth| (depth.as_str(), Align::Right)));
    let row = |name: &str, cell: &dyn Fn(&inrush_tune::io::measured::Depth) -> String| {
        let mut cells = vec![format!("  {name}")];
        cells.extend(measured.random.iter().map(cell));
        cells
    };
    let mut rows = vec![row("reads/s", &|one| thousands(one.iops).replace(' ', ""))];
    if measured.random.iter().any(|one| one.p99_us > 0.0) {
        rows.push(row("p99", &|one| time(one.p99_us).replace(' ', "")));
    }
    format!("\n{}", grid(&headings, &rows))
}

/// Microseconds of a page, by effective_io_concurrency and by the share of pages that is read.
fn replays(measured: &Measured) -> String {
    let mechanisms: BTreeSet<Mechanism> = measured.replays.iter().map(|one| one.mechanism).collect();
    let mut out = String::new();
    for mechanism in mechanisms {
        let of: Vec<_> = measured.replays.iter().filter(|one| one.mechanism == mechanism).collect();
        let aheads: BTreeSet<u32> = of.iter().map(|one| one.ahead).collect();
        // Pages read one by one, for index scans: no setting to choose.
        if aheads.len() < 2 {
            continue;
        }
        let mut densities: Vec<f64> = of.iter().map(|one| one.density).collect();
        densities.sort_by(f64::total_cmp);
        densities.dedup();
        let names: Vec<String> = aheads.iter().map(u32::to_string).collect();
        let mut headings = vec![("  pages read", Align::Left)];
        headings.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
        let rows: Vec<Vec<String>> = densities
            .iter()
            .map(|density| {
                let mut cells = vec![format!("  {} %", figure(density * 100.0))];
                cells.extend(aheads.iter().map(|ahead| {
                    let found =
                        of.iter().find(|one| one.ahead == *ahead && (one.density - density).abs() < 1e-9);
                    found.map_or_else(|| "-".to_owned(), |one| figure(one.page_us))
                }));
                cells
            })
            .collect();
        let what = match mechanism {
            Mechanism::Advice => String::new(),
            Mechanism::CombinedAdvice => ", neighbours combined".to_owned(),
            Mechanism::Workers { workers } => format!(", {workers} io_workers"),
            Mechanism::IoUring => ", io_uring".to_owned(),
        };
        out += &format!(
            "\n  microseconds a page, by effective_io_concurrency{what}\n{}",
            grid(&headings, &rows)
        );
    }
    out
}

fn figure(value: f64) -> String {
    match value {
        v if v < 9.95 => format!("{v:.1}").trim_end_matches(".0").to_owned(),
        v => format!("{v:.0}"),
    }
}

fn advice_text(advice: &Advice) -> String {
    let effect = match (&advice.place, advice.effect) {
        (Place::Tablespace { .. }, _) => "option of the tablespace",
        (Place::Device { .. }, _) => "of the device",
        (Place::System, Effect::Reload) => "reload",
        (Place::System, Effect::Restart) => "restart",
        (Place::System, Effect::Session | Effect::Immediate) => "new sessions",
    };
    let now = advice.now.as_deref().map_or_else(String::new, |now| format!("{now} -> "));
    let versions = advice.versions.map_or_else(String::new, |versions| format!(", {versions}"));
    let mut out = format!("{}: {now}{} ({effect}{versions})\n", advice.setting, advice.advised);
    out += &wrapped("why", &advice.why);
    if !advice.expected.is_empty() {
        let list: Vec<String> = advice.expected.iter().map(expected).collect();
        out += &wrapped("expected", &list.join("; "));
    }
    out += &wrapped("price", &advice.price);
    if let Some(obstacle) = &advice.obstacle {
        out += &wrapped("but", obstacle);
    }
    if advice.versions.is_some() {
        for line in &advice.lines {
            out += &format!("              {line}\n");
        }
    }
    out
}

fn expected(scan: &NamedScan) -> String {
    format!("{} {} -> {}", scan.name, time(scan.now_seconds * 1e6), time(scan.then_seconds * 1e6))
}

fn before_text(before: &Before, target: &Target) -> String {
    let mut out = format!("\nbefore, {}\n", before.measured.at.replace('T', " ").replace('Z', " UTC"));
    out += &wrapped("verdict", &before.verdict.text);
    if before.changes.is_empty() {
        out += &wrapped("settings", "as they are now");
    }
    for change in &before.changes {
        out += &wrapped("then, now", change);
    }
    let mut rows = Vec::new();
    if let Some(measured) = &target.measured {
        for one in &measured.random {
            if let Some(then) = before.measured.iops(one.depth) {
                rows.push(vec![
                    format!("  {}", one.depth),
                    thousands(then),
                    thousands(one.iops),
                    format!("{:.2}", one.iops / then.max(f64::MIN_POSITIVE)),
                ]);
            }
        }
    }
    if !rows.is_empty() {
        let headings = [
            ("  depth", Align::Left),
            ("then/s", Align::Right),
            ("now/s", Align::Right),
            ("ratio", Align::Right),
        ];
        out += &format!("\n{}", grid(&headings, &rows));
    }
    out
}

/// What was set.
pub fn applied(changes: &[Change], undo: &str, verify: &str) -> String {
    if changes.is_empty() {
        return "\nnothing was set\n".to_owned();
    }
    let mut out = String::from("\nset:\n");
    for change in changes {
        let before = if change.before.is_empty() { String::new() } else { format!("{} -> ", change.before) };
        out += &match &change.overruled {
            None => format!("  {}: {before}{}, in effect\n", change.setting, change.value),
            Some(why) => {
                format!(
                    "  {}: {before}{}, but {} is in effect: {why}\n",
                    change.setting, change.value, change.now
                )
            }
        };
    }
    out + &format!("measure again with: {verify}\ntake it back with: {undo}\n")
}
