//! Advice for people: 80 columns, what matters most first, and lines to copy in one piece.

use crate::grid::{bytes, pair};
use inrush_tune::advise::apply::{applicable, check};
use inrush_tune::advise::facts::{Archiver, Replica, ServerFacts, Slot};
use inrush_tune::advise::machine::Directory;
use inrush_tune::advise::{Advice, Effect, Finding, Report, Weight};

/// Columns of a terminal that nobody has widened.
const WIDTH: usize = 80;

/// Everything there is to say. `apply` is the command that makes the changes.
pub fn report(report: &Report, apply: &str) -> String {
    let facts = &report.facts;
    let mut out = format!("PostgreSQL {} as role {}\n", facts.version, facts.role);
    out += &wrapped("", &headline(report));
    for finding in report.findings.iter().filter(|finding| finding.weight != Weight::Fact) {
        out += "\n";
        out += &finding_text(finding);
    }
    for advice in &report.advice {
        out += "\n";
        out += &advice_text(advice);
    }
    out += &to_copy(report, apply);
    if !report.options.is_empty() {
        out += "\nOptions: they give something up, or serve some loads only\n";
        for option in &report.options {
            out += "\n";
            out += &advice_text(option);
        }
    }
    out += "\nThe server\n";
    out += &server(facts);
    for finding in report.findings.iter().filter(|finding| finding.weight == Weight::Fact) {
        out += &wrapped("  note        ", &said(finding));
    }
    for what in &facts.not_visible {
        out += &wrapped("  not seen    ", what);
    }
    out
}

fn headline(report: &Report) -> String {
    let dangers = report.findings.iter().filter(|finding| finding.weight == Weight::Danger).count();
    let limits = match report.limits() {
        0 => "nothing here limits bulk loads".to_owned(),
        1 => "one thing limits bulk loads".to_owned(),
        n => format!("{n} things limit bulk loads"),
    };
    match dangers {
        0 => limits,
        1 => format!("{limits}, and one endangers the server or its data"),
        n => format!("{limits}, and {n} endanger the server or its data"),
    }
}

fn finding_text(finding: &Finding) -> String {
    let label = if finding.weight == Weight::Danger { "danger: " } else { "limit: " };
    wrapped(label, &said(finding))
}

fn said(finding: &Finding) -> String {
    match &finding.remedy {
        Some(remedy) => format!("{} {remedy}", finding.text),
        None => finding.text.clone(),
    }
}

fn advice_text(advice: &Advice) -> String {
    let effect = match advice.effect {
        Effect::Reload => "reload",
        Effect::Restart => "restart",
        Effect::Session => "new sessions",
        Effect::Immediate => "at once",
    };
    let advised = advice.advised.as_deref().unwrap_or("see below");
    let mut out = format!("{}: {} -> {advised} ({effect})\n", advice.setting, advice.now);
    out += &wrapped("  why    ", &advice.why);
    out += &wrapped("  price  ", &advice.price);
    if let Some(obstacle) = &advice.obstacle {
        out += &wrapped("  but    ", obstacle);
    }
    for line in &advice.sql {
        out += &format!("  {line}\n");
    }
    out
}

/// The lines of all advice in one piece each, for those that need a reload and those that need a restart.
fn to_copy(report: &Report, apply: &str) -> String {
    let mut out = String::new();
    let facts = &report.facts;
    let of = |effect: Effect| {
        let advice = report.advice.iter().filter(move |advice| advice.effect == effect);
        advice.filter(|advice| advice.obstacle.is_none() && !advice.sql.is_empty()).collect::<Vec<_>>()
    };
    let (reload, restart) = (of(Effect::Reload), of(Effect::Restart));
    if !reload.is_empty() {
        out += "\nA reload is enough for these:\n\n";
        reload.iter().flat_map(|advice| &advice.sql).for_each(|line| out += &format!("{line}\n"));
        out += "SELECT pg_reload_conf();\n";
    }
    if !restart.is_empty() {
        out += "\nThese need a restart of the server:\n\n";
        restart.iter().flat_map(|advice| &advice.sql).for_each(|line| out += &format!("{line}\n"));
    }
    if out.is_empty() {
        return out;
    }
    let lines = reload.len() + restart.len();
    let may_not: Vec<&str> =
        [reload, restart].concat().iter().filter(|a| !a.may).map(|advice| advice.setting).collect();
    if let Some(obstacle) = &report.obstacle {
        out += "\n";
        out += &wrapped("", &format!("{obstacle}."));
    } else if !may_not.is_empty() {
        let where_else = match &facts.managed {
            Some(service) => format!("on {service} they are parameters of its console or command line"),
            None => "a superuser may; on a managed service they are parameters of its console".to_owned(),
        };
        let what = if may_not.len() == lines {
            "these lines".to_owned()
        } else {
            format!("those for {}", may_not.join(", "))
        };
        out += "\n";
        out += &wrapped("", &format!("Role {} may not run {what}: {where_else}.", facts.role));
    }
    if report.obstacle.is_none() && check(report).is_ok() && !applicable(report).is_empty() {
        out += &format!("\nWhat needs no restart is done, and recorded to be taken back, by:\n\n{apply}\n");
    }
    out
}

fn server(facts: &ServerFacts) -> String {
    let shown = |name: &str| facts.setting(name).map_or("?", |setting| setting.shown.as_str());
    let mut out =
        pair("pages", &format!("{} bytes, checksums {}", shown("block_size"), shown("data_checksums")));
    let size = facts.wal_directory_bytes.map_or_else(String::new, |n| format!(", {} in pg_wal", bytes(n)));
    out += &pair(
        "WAL",
        &format!("wal_level {}, segments of {}{size}", shown("wal_level"), shown("wal_segment_size")),
    );
    if let Some(machine) = &facts.machine {
        let memory =
            machine.memory.map_or_else(|| "memory unknown".to_owned(), |n| format!("{} of memory", bytes(n)));
        let processors = machine.processors.map_or_else(String::new, |n| format!(", {n} processors"));
        out += &pair("machine", &format!("{memory}{processors}"));
        let mut place = None;
        for directory in &machine.directories {
            // One line for directories that share a file system.
            let here = (&directory.mount_point, &directory.device);
            if place == Some(here) && directory.mount_point.is_some() {
                out += &wrapped("              ", &format!("{} is there too", directory.what));
            } else {
                out += &wrapped("  device      ", &directory_text(directory));
                place = Some(here);
            }
        }
    }
    let list = |items: Vec<String>| if items.is_empty() { "none".to_owned() } else { items.join("; ") };
    out += &wrapped("  replicas    ", &list(facts.replicas.iter().map(replica_text).collect()));
    out += &wrapped("  slots       ", &list(facts.slots.iter().map(slot_text).collect()));
    out += &wrapped("  archiver    ", &archiver_text(facts.archiver.as_ref()));
    out
}

fn directory_text(directory: &Directory) -> String {
    let mut text = directory.what.clone();
    if let (Some(device), Some(file_system)) = (&directory.device, &directory.file_system) {
        text += &format!(" on {device} ({file_system}");
        match directory.rotational {
            Some(true) => text += ", a disk that turns)",
            Some(false) => text += ", not rotational)",
            None => text += ")",
        }
    }
    if let Some(space) = directory.space {
        text += &format!(", {} of {} free", bytes(space.free), bytes(space.total));
    }
    text
}

fn replica_text(replica: &Replica) -> String {
    let mut text = replica.name.clone().unwrap_or_else(|| "one that this role may not see".to_owned());
    let details = [replica.state.clone(), replica.sync_state.clone(), replica.behind_bytes.map(behind)];
    for detail in details.into_iter().flatten() {
        text += &format!(" {detail}");
    }
    text
}

fn behind(n: i64) -> String {
    format!("{} behind", bytes(u64::try_from(n).unwrap_or_default()))
}

fn slot_text(slot: &Slot) -> String {
    let used = if slot.active { "in use" } else { "idle" };
    let held = slot.held_bytes.and_then(|n| u64::try_from(n).ok());
    let held = held.map_or_else(String::new, |n| format!(", holds {}", bytes(n)));
    format!("{} ({}, {used}{held})", slot.name, slot.kind)
}

fn archiver_text(archiver: Option<&Archiver>) -> String {
    let Some(archiver) = archiver else { return "off".to_owned() };
    let last = match (&archiver.last_archived, &archiver.last_archived_at) {
        (Some(segment), Some(at)) => format!(", last {segment} at {at}"),
        _ => String::new(),
    };
    format!("{} segments, {} failures{last}", archiver.archived, archiver.failed)
}

/// Text behind a label, its lines under each other, none wider than a terminal unless one word is.
fn wrapped(label: &str, text: &str) -> String {
    let indent = " ".repeat(label.chars().count());
    let mut out = String::new();
    let mut line = label.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        let wider = line.chars().count() + word.chars().count() + usize::from(!empty) > WIDTH;
        if wider && !empty {
            out += line.trim_end();
            out.push('\n');
            line.clone_from(&indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += word;
        empty = false;
    }
    out += line.trim_end();
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_under_its_label() {
        let text = "word ".repeat(40);
        let wrapped = wrapped("  why    ", &text);
        assert!(wrapped.lines().all(|line| line.chars().count() <= WIDTH), "{wrapped}");
        assert!(wrapped.starts_with("  why    word word"), "{wrapped}");
        assert!(wrapped.lines().skip(1).all(|line| line.starts_with("         word")), "{wrapped}");
        assert_eq!(wrapped.matches("word").count(), 40);
    }
}
