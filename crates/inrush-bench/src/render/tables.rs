//! What the terminal, the README and the page show as tables.

use crate::{Contender, Ladder, Place, Record, Run, beside, ladders};

/// A table: the first column is left-aligned, the others are figures unless `words` says so.
#[derive(Debug, Clone)]
pub struct Table {
    pub title: String,
    /// What is to be known before reading it.
    pub about: String,
    pub heads: Vec<String>,
    /// Columns that hold words.
    pub words: Vec<usize>,
    pub rows: Vec<Vec<String>>,
}

/// Every table of a record, in the order of reading.
pub fn all(record: &Record) -> Vec<Table> {
    let mut tables: Vec<Table> = record.places().iter().map(|place| medians(record, place)).collect();
    tables.retain(|table| !table.rows.is_empty());
    tables.extend(side_by_side(record));
    tables.extend(ladders(record).iter().map(ladder));
    tables.extend(published(record));
    tables
}

/// The medians of a place.
pub fn medians(record: &Record, place: &Place) -> Table {
    let rung = record.rung(place);
    let mut about = Vec::new();
    if !place.rung.is_empty() {
        about.push(format!("Table: {}.", rung.table_form()));
    }
    if !rung.about.is_empty() {
        about.push(format!("{}.", rung.about));
    }
    if rung.unlogged {
        about.push("An unlogged table is never durable.".to_owned());
    }
    let contenders = record.contenders_at(place);
    Table {
        title: record.title(place),
        about: about.join(" "),
        heads: words(&[
            "contender",
            "runs",
            "s to COMMIT",
            "least-most",
            "ratio",
            "rows/s",
            "MB/s",
            "s to durable",
            "client CPU s",
            "s/GB",
            "server CPU s",
            "WAL MB",
            "peak MiB",
        ]),
        words: vec![0],
        rows: contenders
            .filter(|contender| record.of(place, &contender.name).next().is_some())
            .map(|contender| row(record, place, contender, rung.unlogged))
            .collect(),
    }
}

#[allow(clippy::cast_precision_loss)] // figures for a person
fn row(record: &Record, place: &Place, contender: &Contender, unlogged: bool) -> Vec<String> {
    let name = &contender.name;
    let runs = record.of(place, name);
    let median = |what: &dyn Fn(&Run) -> Option<f64>| record.median(place, name, what);
    let times: Vec<f64> = runs.clone().map(|r| r.seconds).collect();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    let loads = contender.server;
    vec![
        label(record, place, contender),
        times.len().to_string(),
        show(median(&|r| Some(r.seconds)), 2),
        format!("{least:.2}-{most:.2}"),
        show(record.ratio(place, contender), 2),
        show(record.rows_per_second(place, name), 0),
        show(record.mbps(place, name), 0),
        show(median(&|r| Some(r.durable_seconds)).filter(|_| !unlogged || !loads), 2),
        show(median(&|r| Some(r.client_seconds())), 2),
        show(median(&|r| Some(r.client_seconds() / gigabytes(record, r))), 2),
        show(median(&|r| r.server_cpu_seconds), 2),
        show(median(&|r| Some(r.wal_bytes as f64 / 1e6)).filter(|_| loads), 0),
        show(runs.map(|r| r.client_peak_bytes).max().map(|b| b as f64 / f64::from(1 << 20)), 0),
    ]
}

/// A contender's name, with its rows where it has fewer than the others.
pub fn label(record: &Record, place: &Place, contender: &Contender) -> String {
    let rows = record.rows_for(place, contender);
    if rows == record.case.rows_of(&record.rung(place)) {
        contender.name.clone()
    } else {
        format!("{} ({rows} rows)", contender.name)
    }
}

/// Every contender on every server, a table for each rung, value of `synchronous_commit` and number of sessions;
/// none where only one server ran.
pub fn side_by_side(record: &Record) -> Vec<Table> {
    let places = record.places();
    let mut groups: Vec<Vec<&Place>> = Vec::new();
    for place in &places {
        let same = |other: &Place| Place { server: place.server, ..other.clone() } == *place;
        match groups.iter_mut().find(|group| same(group[0])) {
            Some(group) => group.push(place),
            None => groups.push(vec![place]),
        }
    }
    groups.iter().filter(|group| group.len() > 1).map(|group| servers(record, group)).collect()
}

fn servers(record: &Record, group: &[&Place]) -> Table {
    let first = group[0];
    let mut heads = words(&["contender"]);
    heads.extend(group.iter().map(|place| record.server_title(place.server)));
    let cell = |place: &Place, contender: &Contender| {
        let seconds = record.median(place, &contender.name, |run| Some(run.seconds))?;
        let ratio = record.ratio(place, contender).map(|ratio| format!(" ({ratio:.2})"));
        Some(format!("{seconds:.2}{}", ratio.unwrap_or_default()))
    };
    let mut rows = Vec::new();
    for contender in &record.case.contenders {
        let cells: Vec<Option<String>> = group.iter().map(|place| cell(place, contender)).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            rows.push(std::iter::once(label(record, first, contender)).chain(cells).collect());
        }
    }
    let rung = if first.rung.is_empty() { String::new() } else { format!("{}: ", first.rung) };
    let sessions = first.sessions.map(|n| format!(", sessions {n}")).unwrap_or_default();
    Table {
        title: format!(
            "{rung}servers side by side, synchronous_commit {}{sessions}",
            first.synchronous_commit
        ),
        about: "Seconds to COMMIT, and the ratio to the baseline on the same server.".to_owned(),
        heads,
        words: vec![0],
        rows,
    }
}

/// Rungs over their base, beside the study's if it has any.
pub fn ladder(ladder: &Ladder) -> Table {
    let own = 5;
    let mut table = Table {
        title: ladder.title.clone(),
        about: ladder.about.clone(),
        heads: words(&["rung", "table", "contender", "MB/s", "ours", "published", "their MB/s", "there"]),
        words: vec![0, 1, 2, 7],
        rows: ladder
            .lines
            .iter()
            .map(|line| {
                vec![
                    line.rung.clone(),
                    line.table.clone(),
                    line.contender.clone(),
                    show(line.mbps, 0),
                    show(line.ours, 2),
                    show(line.published, 2),
                    show(line.published_mbps, 0),
                    line.note.clone(),
                ]
            })
            .collect(),
    };
    if !ladder.has_published() {
        table.heads.truncate(own);
        table.rows.iter_mut().for_each(|row| row.truncate(own));
    }
    table
}

/// Published comparisons of contenders, if the case has any that ran.
pub fn published(record: &Record) -> Option<Table> {
    let rows: Vec<_> = beside(record)
        .into_iter()
        .map(|one| vec![one.what, one.here, show(one.ours, 2), show(Some(one.published), 2), one.note])
        .collect();
    (!rows.is_empty()).then(|| Table {
        title: "Beside the published comparison".to_owned(),
        about: "How many times as many rows a second.".to_owned(),
        heads: words(&["published", "here", "ours", "theirs", "there"]),
        words: vec![0, 1, 4],
        rows,
    })
}

pub fn words(heads: &[&str]) -> Vec<String> {
    heads.iter().map(|&head| head.to_owned()).collect()
}

/// A figure, or `-`.
pub fn show(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |v| format!("{v:.digits$}"))
}

/// Gigabytes (10^9 bytes) of input of a run.
#[allow(clippy::cast_precision_loss)] // figures for a person
pub fn gigabytes(record: &Record, run: &Run) -> f64 {
    record.input_bytes(run) as f64 / 1e9
}
