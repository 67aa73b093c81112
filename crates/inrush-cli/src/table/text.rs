//! What `inrush table` prints.

use crate::grid::{Align, bytes, grid, pair};
use crate::loads::counted;
use inrush_load::grouped;
use inrush_windows::{
    Complete, Created, IndexKind, Late, LeafSize, Maintained, Named, Window, WindowState, Windowed,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What has been made.
pub fn created(made: &Created) -> String {
    let table = &made.table;
    let mut text =
        format!("table {} made, with {}\n", table.name, counted(table.windows.len() as u64, "window"));
    text += &facts(table);
    if let Some(kept) = made.windows_kept {
        let leaves = kept * u64::from(table.policy.lanes);
        let locks = made.locks.of(kept);
        text += &pair(
            "at once",
            &format!("{}, {}", counted(kept, "window"), counted(leaves, "leaf").replace("leafs", "leaves")),
        );
        text += &pair(
            "locks",
            &format!(
                "{} of a query over all windows; the server has {}",
                grouped(locks),
                grouped(made.locks.capacity)
            ),
        );
    }
    text += &pair("complete", &format!("SELECT * FROM {}", made.view));
    text
}

/// What the user should know of a table that was made all the same.
pub fn warnings(made: &Created) -> Vec<String> {
    let mut warnings = Vec::new();
    if let (Some(kept), Some(width)) = (made.windows_kept, made.suggested) {
        warnings.push(format!(
            "a query over all windows needs {} of the server's {} locks: --window {width} would do with fewer",
            grouped(made.locks.of(kept)),
            grouped(made.locks.capacity)
        ));
    }
    if made.windows_kept.is_none()
        && made.table.policy.max_size.is_none()
        && made.table.policy.min_free.is_none()
    {
        warnings.push("nothing is ever retired: there is no --keep, --max-size or --min-free".to_owned());
    }
    if let Some(error) = &made.unfinished {
        warnings.push(format!("some windows ahead are not made yet: {}", error.fact()));
    }
    warnings
}

pub fn created_json(made: &Created) -> Value {
    let mut value = table_json(&made.table, &[]);
    if let Value::Object(map) = &mut value {
        map.insert("view".into(), json!(made.view));
        map.insert("windows_kept".into(), json!(made.windows_kept));
        map.insert("locks_needed".into(), json!(made.windows_kept.map(|kept| made.locks.of(kept))));
        map.insert("locks".into(), json!(made.locks.capacity));
        map.insert("suggested_window".into(), json!(made.suggested.map(|width| width.to_string())));
        map.insert("warnings".into(), json!(warnings(made)));
    }
    value
}

/// What was decided.
fn facts(table: &Windowed) -> String {
    let policy = &table.policy;
    let scale = table.scale();
    let span = |length: i64| scale.span(length).to_string();
    let mut text = pair("time", &table.time_column);
    text += &pair("window", &span(policy.width));
    if let Some(key) = policy.key_column.as_ref().filter(|_| policy.lanes > 1) {
        text += &pair("lanes", &format!("{}, by the hash of {key}", policy.lanes));
    }
    let size = |n: i64| bytes(n.unsigned_abs());
    let rules: Vec<String> = [
        policy.keep.map(span),
        policy.max_size.map(|max| format!("{} in a tablespace", size(max))),
        policy.min_free.map(|min| format!("while a device has {} free", size(min))),
    ]
    .into_iter()
    .flatten()
    .collect();
    text += &pair("kept", &if rules.is_empty() { "for ever".to_owned() } else { rules.join(", ") });
    text += &pair(
        "late rows",
        &match (policy.late, &table.overflow) {
            (Late::Overflow, Some(leaf)) => format!("into {}", leaf.qualified()),
            (Late::Overflow, None) => "into a table that is gone".to_owned(),
            (Late::Reject, _) => "are rejects".to_owned(),
            (Late::Drop, _) => "are counted and dropped".to_owned(),
        },
    );
    let index = match policy.index {
        IndexKind::Brin => format!("brin, {} pages per range", policy.pages_per_range),
        IndexKind::BrinAtClose => {
            format!("brin when a window has ended, {} pages per range", policy.pages_per_range)
        }
        IndexKind::None => "none on the time".to_owned(),
    };
    text += &pair("index", &index);
    if policy.unlogged {
        text += &pair("unlogged", "yes: empty after a crash of the server");
    }
    if !policy.tablespaces.is_empty() {
        text += &pair("tablespaces", &policy.tablespaces.join(", "));
    }
    text
}

fn size_of(window: &Window, sizes: &[LeafSize]) -> (u64, String) {
    let mine = |size: &&LeafSize| window.leaves.iter().any(|leaf| leaf.relid == size.relid);
    let mine: Vec<&LeafSize> = sizes.iter().filter(mine).collect();
    let spaces: BTreeSet<&str> = mine.iter().map(|size| size.tablespace.as_str()).collect();
    let bytes = mine.iter().map(|size| size.bytes.unsigned_abs()).sum();
    (bytes, spaces.into_iter().collect::<Vec<_>>().join(", "))
}

fn total(sizes: &[LeafSize]) -> u64 {
    sizes.iter().map(|size| size.bytes.unsigned_abs()).sum()
}

fn state(window: &Window) -> &'static str {
    match window.state {
        WindowState::Open => "open",
        WindowState::Closed => "closed",
        WindowState::Retiring => "retiring",
    }
}

/// A line for each table.
pub fn list(found: &[(Windowed, Vec<LeafSize>)]) -> String {
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|(table, sizes)| {
            let scale = table.scale();
            vec![
                table.name.to_string(),
                table.time_column.clone(),
                scale.span(table.policy.width).to_string(),
                table.policy.keep.map_or_else(String::new, |keep| scale.span(keep).to_string()),
                table.policy.lanes.to_string(),
                table.windows.len().to_string(),
                bytes(total(sizes)),
                table.windows.first().map_or_else(String::new, |window| scale.text(window.start)),
                table.windows.last().map_or_else(String::new, |window| scale.text(window.end)),
            ]
        })
        .collect();
    grid(
        &[
            ("TABLE", Align::Left),
            ("TIME", Align::Left),
            ("WINDOW", Align::Right),
            ("KEEP", Align::Right),
            ("LANES", Align::Right),
            ("WINDOWS", Align::Right),
            ("SIZE", Align::Right),
            ("FROM", Align::Left),
            ("TO", Align::Left),
        ],
        &rows,
    )
}

/// One table.
pub fn show(table: &Windowed, sizes: &[LeafSize], sources: &[Complete]) -> String {
    let scale = table.scale();
    let mut text = format!("table {}: {}\n", table.name, bytes(total(sizes)));
    text += &facts(table);
    if let Some(retired_to) = table.retired_to {
        text += &pair("retired to", &scale.text(retired_to));
    }
    let rows: Vec<Vec<String>> = table
        .windows
        .iter()
        .map(|window| {
            let (size, spaces) = size_of(window, sizes);
            let first = window.leaves.first().map_or("", |leaf| leaf.name.as_str());
            let leaves = match window.leaves.len() {
                1 => first.to_owned(),
                n => format!("{first} and {} more", n.saturating_sub(1)),
            };
            vec![scale.text(window.start), state(window).to_owned(), bytes(size), leaves, spaces]
        })
        .collect();
    text += "\n";
    text += &grid(
        &[
            ("WINDOW", Align::Left),
            ("STATE", Align::Left),
            ("SIZE", Align::Right),
            ("LEAVES", Align::Left),
            ("TABLESPACE", Align::Left),
        ],
        &rows,
    );
    if sources.is_empty() {
        return text;
    }
    let rows: Vec<Vec<String>> = sources
        .iter()
        .map(|source| {
            vec![
                source.source.clone(),
                source.up_to.clone(),
                grouped(source.rows.unsigned_abs()),
                source.lanes.to_string(),
                source.idle_lanes.to_string(),
            ]
        })
        .collect();
    text += "\n";
    text += &grid(
        &[
            ("SOURCE", Align::Left),
            ("COMPLETE UP TO", Align::Left),
            ("ROWS", Align::Right),
            ("LANES", Align::Right),
            ("IDLE", Align::Right),
        ],
        &rows,
    );
    text
}

pub fn table_json(table: &Windowed, sizes: &[LeafSize]) -> Value {
    let scale = table.scale();
    let policy = &table.policy;
    let windows: Vec<Value> = table
        .windows
        .iter()
        .map(|window| {
            json!({
                "start": scale.text(window.start),
                "end": scale.text(window.end),
                "state": window.state,
                "bytes": size_of(window, sizes).0,
                "leaves": window.leaves,
            })
        })
        .collect();
    json!({
        "version": 1,
        "table": table.name.to_string(),
        "relid": table.relid,
        "time_column": table.time_column,
        "time_kind": table.time_kind,
        "unit": table.unit,
        "window": scale.span(policy.width).to_string(),
        "keep": policy.keep.map(|keep| scale.span(keep).to_string()),
        "max_size": policy.max_size,
        "min_free": policy.min_free,
        "ahead": policy.ahead,
        "lanes": policy.lanes,
        "key_column": policy.key_column,
        "tablespaces": policy.tablespaces,
        "unlogged": policy.unlogged,
        "index": policy.index,
        "pages_per_range": policy.pages_per_range,
        "late": policy.late,
        "overflow": table.overflow,
        "retired_to": table.retired_to.map(|instant| scale.text(instant)),
        "windows": windows,
    })
}

pub fn show_json(table: &Windowed, sizes: &[LeafSize], sources: &[Complete]) -> Value {
    let mut value = table_json(table, sizes);
    if let Value::Object(map) = &mut value {
        map.insert("complete".into(), json!(sources));
    }
    value
}

/// What a pass has done.
pub fn maintained(did: &Maintained) -> String {
    if did.busy {
        return format!(
            "{}: another maintainer is at work\n",
            if did.table.is_empty() { "table" } else { &did.table }
        );
    }
    if did.forgotten {
        return format!("table {} was dropped: what was recorded of it is removed\n", did.table);
    }
    let mut text = String::new();
    let table = &did.table;
    let mut line = |what: &str| text += &format!("{table}: {what}\n");
    let each = |windows: &[Named]| windows.iter().map(|one| one.from.clone()).collect::<Vec<_>>().join(", ");
    if !did.made.is_empty() {
        line(&format!("made {}", each(&did.made)));
    }
    for one in &did.retired {
        let why = match one.why {
            "age" => "by age",
            "size" => "its tablespace is above --max-size",
            "space" => "its device has too little room",
            _ => "begun by an earlier pass",
        };
        let freed =
            if one.bytes > 0 { format!(", {}", bytes(one.bytes.unsigned_abs())) } else { String::new() };
        let rest = if one.gone { "" } else { "; the rest of it with the next pass" };
        line(&format!("retired {} ({why}{freed}){rest}", one.window.from));
    }
    if !did.closed.is_empty() {
        line(&format!("closed {}", each(&did.closed)));
    }
    if did.summarized > 0 {
        line(&format!("summarized {}", counted(did.summarized, "range")));
    }
    for wait in did.waits.iter().filter(|wait| !wait.done) {
        line(&format!(
            "waits for a lock: {} ({} tries, {} ms each at most)",
            wait.what, wait.tries, wait.longest_try_ms
        ));
    }
    for note in &did.notes {
        line(note);
    }
    if text.is_empty() {
        text = format!("{table}: nothing to do\n");
    }
    text
}
