//! What to set, what is right as it is, and what a tablespace masks.

use super::super::advice::{Advice, NamedScan, Place};
use super::super::report::{Right, Target};
use super::super::verdict::Class;
use super::{capital, lines, prose, sentence, stopped, words};
use crate::advise::Effect;
use inrush_page::bars::{Bar, Cache, Group, Scans, Setting};
use inrush_page::{Text, duration, percent, text};
use std::fmt::Write as _;

/// Everything about settings of a target.
pub(super) fn write(out: &mut String, target: &Target) {
    recommendations(out, target);
    stays(out, target);
    dense(out, target);
    masks(out, target);
}

fn recommendations(out: &mut String, target: &Target) {
    if target.advice.is_empty() {
        return;
    }
    out.push_str("<section class=\"advice stacked\">\n<h3>What to set</h3>\n");
    let rows: Vec<Vec<String>> = target.advice.iter().map(row).collect();
    let heads = ["setting", "now", "advised", "why", "what it costs", "when it holds"];
    words(out, "Settings that would serve scans better with another value.", &heads, &rows);
    how(out, &target.advice);
    let expected: Vec<&Advice> = target.advice.iter().filter(|one| !one.expected.is_empty()).collect();
    for advice in &expected {
        let now = advice.now.as_deref().unwrap_or("the default");
        let versions = advice.versions.map_or(String::new(), |versions| format!(", {versions}"));
        let heading = format!("{}: {now} now, {} advised{versions}", advice.setting, advice.advised);
        effect(out, &heading, &advice.expected);
    }
    // Of one setting alone it would be the same again, and of settings that do not matter to scans nothing.
    // Advice for several versions is not for one server.
    let one_server = target.advice.iter().all(|one| one.versions.is_none());
    let differs = |scan: &NamedScan| (scan.now_seconds / scan.then_seconds - 1.0).abs() > 0.01;
    if one_server && expected.len() != 1 && target.scans.iter().any(differs) {
        effect(out, "All of it together", &target.scans);
    }
    out.push_str("</section>\n");
}

fn row(advice: &Advice) -> Vec<String> {
    let versions = advice.versions.map_or(String::new(), |versions| format!("<br/>{}", Text(versions)));
    vec![
        format!("{}{versions}", name(advice.setting)),
        text(advice.now.as_deref().unwrap_or("not asked")),
        format!("<b>{}</b>", Text(&advice.advised)),
        prose(&sentence(&advice.why)),
        prose(&sentence(&advice.price)),
        holds(advice).to_owned(),
    ]
}

/// A setting's name, which may be broken between its words.
fn name(setting: &str) -> String {
    format!("<code class=\"setting\">{}</code>", text(setting).replace('_', "_<wbr/>"))
}

/// When a change takes effect.
fn holds(advice: &Advice) -> &'static str {
    match (&advice.place, advice.effect) {
        (Place::Device { .. }, _) => "at once, until the machine is started again",
        (_, Effect::Reload) => "once the server has read its configuration again",
        (_, Effect::Restart) => "when the server has been started again",
        (_, Effect::Immediate) => "at once",
        (_, Effect::Session) => "in sessions that begin afterwards",
    }
}

/// The lines that make the changes: first those of --apply, then what is for somebody else, and why.
fn how(out: &mut String, advice: &[Advice]) {
    let by_us = |one: &&Advice| one.applied && one.may && one.obstacle.is_none();
    let ours: Vec<String> = advice.iter().filter(by_us).flat_map(|one| one.lines.clone()).collect();
    if !ours.is_empty() {
        out.push_str("<h4>What <code>--apply</code> does, and <code>--undo</code> takes back</h4>\n");
        lines(out, &ours);
    }
    let others: Vec<&Advice> = advice.iter().filter(|one| !by_us(one) && !one.lines.is_empty()).collect();
    if others.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h4>{}</h4>", if ours.is_empty() { "How" } else { "What is left to you" });
    // Lines of which the same is to be said stand together.
    let mut blocks: Vec<(String, Vec<String>)> = Vec::new();
    for one in others {
        let about = about(one);
        match blocks.last_mut().filter(|(of, _)| *of == about) {
            Some((_, lines)) => lines.extend(one.lines.iter().cloned()),
            None => blocks.push((about, one.lines.clone())),
        }
    }
    for (about, of) in blocks {
        if !about.is_empty() {
            let _ = writeln!(out, "<p class=\"soft\">{about}</p>");
        }
        lines(out, &of);
    }
}

/// What there is to know before lines are given: for which versions they are, and what is in their way.
fn about(advice: &Advice) -> String {
    let why = match &advice.obstacle {
        Some(obstacle) => stopped(obstacle),
        None if !advice.may => "this role may not: the lines are for someone who may.".to_owned(),
        None => String::new(),
    };
    match advice.versions {
        Some(versions) if why.is_empty() => text(versions),
        Some(versions) => prose(&format!("{versions}: {why}")),
        None => prose(&capital(&why)),
    }
}

/// Bars of named scans, now and then.
fn effect(out: &mut String, heading: &str, scans: &[NamedScan]) {
    let bar = |name: &str, setting, seconds: f64, note: String| Bar {
        name: name.to_owned(),
        setting,
        cache: Cache::Cold,
        amount: Some(seconds),
        figure: duration(seconds),
        expected: None,
        note,
    };
    let groups = scans
        .iter()
        .map(|scan| Group {
            name: scan.name.clone(),
            bars: vec![
                bar("now", Setting::Current, scan.now_seconds, String::new()),
                bar(
                    "as advised",
                    Setting::Recommended,
                    scan.then_seconds,
                    gain(scan.now_seconds, scan.then_seconds),
                ),
            ],
        })
        .collect();
    let _ = writeln!(out, "<h4>{}</h4>", Text(heading));
    Scans {
        caption: "What scans are expected to take, by what was measured; nothing of them in memory.",
        settings: ["now", "as advised"],
        expected: "",
        groups,
    }
    .render(out);
}

/// How much faster or slower, in words; nothing for what is about the same.
pub(super) fn gain(now: f64, then: f64) -> String {
    match now / then {
        ratio if !ratio.is_finite() => String::new(),
        ratio if ratio >= 1.1 => format!("{ratio:.1} times as fast"),
        ratio if ratio > 0.0 && ratio <= 0.9 => format!("{:.1} times as slow", 1.0 / ratio),
        _ => String::new(),
    }
}

fn stays(out: &mut String, target: &Target) {
    listed(out, "What stays as it is", "Settings that were looked at.", &target.already_right);
    listed(out, "What cannot be told", "Settings about which the figures say too little.", &target.undecided);
}

fn listed(out: &mut String, heading: &str, caption: &str, settings: &[Right]) {
    if settings.is_empty() {
        return;
    }
    let _ = writeln!(out, "<section class=\"right stacked\">\n<h3>{heading}</h3>");
    let rows: Vec<Vec<String>> = settings
        .iter()
        .map(|one| vec![name(one.setting), text(&one.now), prose(&sentence(&one.why))])
        .collect();
    words(out, caption, &["setting", "value", "why"], &rows);
    out.push_str("</section>\n");
}

fn dense(out: &mut String, target: &Target) {
    let Some(dense) = &target.dense else { return };
    let _ = writeln!(
        out,
        "<h3>Scans of more than {} of a table</h3>\n<p>{}</p>",
        percent(dense.above),
        prose(&sentence(&dense.text))
    );
    lines(out, &dense.lines);
}

fn masks(out: &mut String, target: &Target) {
    if target.tablespace.is_none() || target.verdict.class == Class::CannotTell && target.options.is_empty() {
        return;
    }
    out.push_str("<h3>Options of the tablespace</h3>\n");
    if target.options.is_empty() {
        out.push_str(
            "<p class=\"soft\">It has none: what server, database, role and session set holds for its \
             tables.</p>\n",
        );
        return;
    }
    out.push_str(
        "<p>They mask the settings of the same names: neither a session's <code>SET</code> nor the server's \
         configuration changes anything for tables of this tablespace.</p>\n",
    );
    let rows: Vec<Vec<String>> = target
        .options
        .iter()
        .map(|one| vec![format!("<code>{}</code>", Text(&one.name)), text(&one.value)])
        .collect();
    words(out, "Options that are set.", &["option", "value"], &rows);
}
