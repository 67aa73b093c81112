//! What a load tells at its end. JSON first; the terminal text and the HTML page are made from it.

mod html;
mod svg;

use crate::levers::Pulled;
use crate::levers::advice::{Conditions, LeverAdvice, advise, deferrable, major_version};
use crate::options::Options;
use crate::plan::{Plan, WirePath};
use crate::progress::Progress;
use inrush_cluster::Ending;
use inrush_core::{Error, RelKind};
use inrush_page::grouped;
use inrush_profile::Profile;
use inrush_sink::catalog::TableState;
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

/// Version of the JSON form. Fields are only ever added within a version.
pub const VERSION: u32 = 1;
/// Levers that the terminal text names.
const LEVERS_IN_TEXT: usize = 3;

/// The report of one load.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`VERSION`]
    pub version: u32,
    /// Version of Inrush.
    pub inrush: String,
    /// When this run began, UTC: `2026-11-21T03:11:52Z`.
    pub started: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Nothing was sent: input was decoded and encoded only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Number in the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<i64>,
    /// Whether rows of earlier runs were found and skipped.
    pub resumed: bool,
    /// `schema.table`
    pub table: String,
    /// Server version, as it says.
    pub server: String,
    /// Inputs in order.
    pub inputs: Vec<InputReport>,
    /// Path into the server.
    pub path: WirePath,
    /// Why this path.
    pub path_reason: String,
    /// How rows got to the servers that have them, of a table on several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterReport>,
    /// All rows or none, in one transaction.
    pub atomic: bool,
    /// Rows and bytes.
    pub totals: Totals,
    /// Where the client's time went, in seconds, summed over threads.
    pub stages: Stages,
    /// Levers that were pulled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pulled: Vec<Pulled>,
    /// Where the time of the server's backends went; none for a load that was over before the first sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// What would address the limit, and what it costs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub levers: Vec<LeverAdvice>,
    /// Things the user should know.
    pub notes: Vec<String>,
}

/// How rows of a table on several servers got there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterReport {
    /// Straight to where they belong.
    pub bypassed: bool,
    /// Units are on all nodes or on none; if not, whoever reads meanwhile may see some nodes' rows and not others'.
    pub atomic: bool,
    /// Why not straight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Servers that have rows of the table; 0 where they were not asked for.
    pub nodes: usize,
    /// Shards or partitions.
    pub places: usize,
    /// Whether every row is where it belongs, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<inrush_cluster::Audit>,
}

impl ClusterReport {
    fn of(plan: &Plan) -> Option<ClusterReport> {
        let topology = plan.spread.as_ref().map(|spread| &spread.aim.topology);
        if topology.is_none() && plan.through.is_none() {
            return None;
        }
        Some(ClusterReport {
            bypassed: topology.is_some(),
            atomic: plan.spread.as_ref().is_none_or(|spread| spread.ending == Ending::TwoPhase),
            reason: plan.through.clone(),
            nodes: topology.map_or(0, |topology| topology.nodes.len()),
            places: topology.map_or(0, |topology| topology.places.len()),
            audit: None,
        })
    }

    fn in_words(&self) -> String {
        let mut words = match &self.reason {
            None if self.atomic => format!("straight to {} shards on {} nodes", self.places, self.nodes),
            None => format!(
                "straight to {} shards on {} nodes, each of which commits for itself: max_prepared_transactions is 0",
                self.places, self.nodes
            ),
            Some(why) => format!("through the coordinator: {why}"),
        };
        if let Some(audit) = &self.audit {
            let _ = match audit.misplaced {
                0 => write!(words, "; each of {} rows is where its key leads", grouped(audit.rows)),
                n => write!(words, "; {} OF {} ROWS ARE MISPLACED", grouped(n), grouped(audit.rows)),
            };
        }
        words
    }
}

/// How a load ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every row is in the table.
    Loaded,
    /// Every row is in the table or among the rejects.
    LoadedWithRejects,
    /// It had been loaded before.
    AlreadyLoaded,
    /// The user stopped it; units that were committed stay.
    Interrupted,
    /// It failed; units that were committed stay.
    Failed,
}

impl Outcome {
    /// The exit code of the command: 0 done, 1 loaded with rejects, 2 failed.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Loaded | Outcome::AlreadyLoaded => 0,
            Outcome::LoadedWithRejects => 1,
            Outcome::Interrupted | Outcome::Failed => 2,
        }
    }
}

/// An error as data.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// Stable code.
    pub code: String,
    /// The fact.
    pub fact: String,
    /// SQLSTATE, if it came from the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sqlstate: Option<String>,
    /// Where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<inrush_core::Position>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        Failure {
            code: error.code().as_str().to_owned(),
            fact: error.fact().to_owned(),
            sqlstate: error.sqlstate_text().map(str::to_owned),
            position: error.position().cloned(),
            hint: error.hint_text().map(str::to_owned),
        }
    }
}

/// One input.
#[derive(Debug, Clone, Serialize)]
pub struct InputReport {
    /// As the user named it.
    pub name: String,
    /// Format and dialect in force.
    pub format: inrush_core::Format,
    /// Compression found in its content.
    pub compression: String,
    /// Bytes as stored; unknown for streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Columns its fields went to.
    pub columns: Vec<String>,
}

/// Rows and bytes of this run, and of earlier ones where they say so.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Totals {
    /// Seconds from start to the last commit.
    pub seconds: f64,
    /// Uncompressed input bytes read in this run.
    pub bytes_in: u64,
    /// Bytes sent to the server as COPY data.
    pub bytes_out: u64,
    /// Records read in this run.
    pub records: u64,
    /// Rows committed in this run.
    pub rows: u64,
    /// Rows that earlier runs of this load had committed.
    pub rows_before: u64,
    /// Rejects of this load, earlier runs included.
    pub rejects: u64,
    /// Rows a trigger left out.
    pub rows_left_out: u64,
    /// Rows sent as text because the client could not be sure of a value.
    pub rows_as_text: u64,
    /// Commit units.
    pub units: u64,
    /// Units sent again.
    pub retries: u64,
    /// Dead row versions that refused units left in the table.
    pub dead_rows: u64,
    /// Times the server's WAL writer was woken; each took a transaction id.
    pub wal_nudges: u64,
    /// Connections.
    pub connections: usize,
}

/// Seconds by stage; threads work at the same time, so they add up to more than the wall clock.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stages {
    /// Reader thread: reading, decompressing, cutting.
    pub read: f64,
    /// Lanes: decoding and encoding.
    pub encode: f64,
    /// Lanes: sending, and waiting for the server to take bytes.
    pub send: f64,
    /// Lanes: begin, ledger, commit.
    pub commit: f64,
    /// Lanes: waiting for the reader.
    pub wait: f64,
    /// At the end: taking levers back, such as making indexes again.
    pub put_back: f64,
}

// Seconds for a person: 52 bits of nanoseconds are 52 days.
#[allow(clippy::cast_precision_loss)]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Report {
    pub(crate) fn new(options: &Options, plan: &Plan, progress: &Progress, server: &str) -> Report {
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        let inputs = plan
            .inputs
            .iter()
            .map(|input| InputReport {
                name: input.name.clone(),
                format: input.format.clone(),
                compression: input.compression().to_owned(),
                bytes: input.stored_len(),
                columns: plan.shapes[input.shape].columns.iter().map(|c| c.name.clone()).collect(),
            })
            .collect();
        let mut notes = Vec::new();
        if plan.atomic && options.jobs.is_some_and(|n| n > 1) {
            notes.push("one connection is used: all rows or none means one transaction".to_owned());
        }
        Report {
            version: VERSION,
            inrush: env!("CARGO_PKG_VERSION").to_owned(),
            started: began(progress),
            outcome: Outcome::Loaded,
            error: None,
            dry_run: false,
            load: None,
            resumed: false,
            table: plan.table.qualified(),
            server: server.to_owned(),
            inputs,
            path: plan.path,
            path_reason: plan.path_reason.clone(),
            cluster: ClusterReport::of(plan),
            atomic: plan.atomic,
            totals: Totals {
                seconds: progress.started.elapsed().as_secs_f64(),
                bytes_in: get(&progress.bytes_in),
                bytes_out: get(&progress.bytes_out),
                records: get(&progress.records),
                rows: get(&progress.rows),
                rows_before: get(&progress.rows_before),
                rejects: get(&progress.rejects),
                rows_left_out: get(&progress.rows_left_out),
                rows_as_text: get(&progress.rows_as_text),
                units: get(&progress.units),
                retries: get(&progress.retries),
                dead_rows: get(&progress.dead_rows),
                wal_nudges: get(&progress.wal_nudges),
                connections: progress.lanes.load(Relaxed),
            },
            stages: Stages {
                read: seconds(get(&progress.read_nanos)),
                encode: seconds(get(&progress.encode_nanos)),
                send: seconds(get(&progress.send_nanos)),
                commit: seconds(get(&progress.commit_nanos)),
                wait: seconds(get(&progress.wait_nanos)),
                put_back: seconds(get(&progress.put_back_nanos)),
            },
            pulled: Vec::new(),
            profile: progress.recorder.profile(),
            levers: Vec::new(),
            notes,
        }
    }

    /// Says what would address the limit. `state` is what stands in the way of a fast load into the table, where that
    /// is known.
    #[allow(clippy::cast_precision_loss)] // a share
    pub(crate) fn advise(&mut self, options: &Options, plan: &Plan, state: Option<&TableState>) {
        let Some(profile) = &self.profile else { return };
        let used: Vec<String> = self
            .pulled
            .iter()
            .map(|pulled| match (pulled.lever.as_str(), &options.levers.sync_commit) {
                ("sync-commit", Some(value)) => format!("--sync-commit {value}"),
                (lever, _) => format!("--{lever}"),
            })
            .collect();
        let connection_seconds = self.totals.seconds * self.totals.connections as f64;
        self.levers = advise(&Conditions {
            profile,
            server_major: major_version(&self.server),
            path: self.path,
            extension_missing: plan.extension_missing,
            connections: self.totals.connections,
            connections_free: !plan.atomic && !plan.single_unit,
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            commit_share: if connection_seconds > 0.0 {
                self.stages.commit / connection_seconds
            } else {
                0.0
            },
            max_rate: options.max_rate.is_some(),
            compressions: self.inputs.iter().map(|input| input.compression.as_str()).collect(),
            unlogged: plan.table.unlogged,
            partitioned: plan.table.kind == RelKind::Partitioned,
            indexes: state.map(|state| state.indexes.len()),
            deferrable: state.map(deferrable),
            foreign_keys: state.map(|state| state.foreign_keys.len()),
            used: &used,
        });
    }

    /// What happened, in one line.
    fn headline(&self) -> String {
        let t = &self.totals;
        let load = self.load.map(|id| format!(" (load {id})")).unwrap_or_default();
        match self.outcome {
            _ if self.dry_run => {
                format!(
                    "dry run: {} rows would go to {}, {} refused",
                    grouped(t.rows),
                    self.table,
                    grouped(t.rejects)
                )
            }
            Outcome::Loaded | Outcome::LoadedWithRejects => {
                format!("{} rows into {}{load}", grouped(t.rows), self.table)
            }
            Outcome::AlreadyLoaded => {
                let rejects = match t.rejects {
                    0 => String::new(),
                    n => format!("; records refused then: {}", grouped(n)),
                };
                let load = self.load.unwrap_or_default();
                format!("nothing loaded: load {load} already has these rows{rejects}")
            }
            Outcome::Interrupted => format!("stopped: {} rows are in {}{load}", grouped(t.rows), self.table),
            Outcome::Failed => format!("failed: {} rows are in {}{load}", grouped(t.rows), self.table),
        }
    }

    /// The levers for the limit itself that the load did not use.
    fn levers_for_limit(&self) -> impl Iterator<Item = &LeverAdvice> {
        let limit = self.profile.as_ref().and_then(|profile| profile.limit.as_ref());
        let class = limit.map(|limit| limit.class);
        self.levers.iter().filter(move |lever| Some(lever.addresses) == class && !lever.used)
    }

    /// The report for a terminal.
    #[allow(clippy::cast_precision_loss)] // figures for a person
    pub fn text(&self) -> String {
        let t = &self.totals;
        let mut out = String::new();
        let line = |out: &mut String, name: &str, value: String| {
            let _ = writeln!(out, "  {name:<12}{value}");
        };
        let _ = writeln!(out, "{}", self.headline());
        if self.outcome == Outcome::AlreadyLoaded {
            return out;
        }
        let rate = if t.seconds > 0.0 { t.bytes_in as f64 / 1e6 / t.seconds } else { 0.0 };
        let rows_rate = if t.seconds > 0.0 { t.rows as f64 / t.seconds } else { 0.0 };
        line(
            &mut out,
            "time",
            format!(
                "{:.2} s, {:.1} MB in, {rate:.0} MB/s, {} rows/s",
                t.seconds,
                t.bytes_in as f64 / 1e6,
                grouped(rows_rate as u64)
            ),
        );
        if self.resumed || t.rows_before > 0 {
            line(
                &mut out,
                "before",
                format!("{} rows of an earlier run were there and skipped", grouped(t.rows_before)),
            );
        }
        if t.rejects > 0 {
            line(&mut out, "rejects", grouped(t.rejects));
        }
        if t.rows_left_out > 0 {
            line(
                &mut out,
                "left out",
                match self.pulled.iter().any(|pulled| pulled.lever == crate::levers::conflict::NAME) {
                    true => format!("{} rows, for others with the same key", grouped(t.rows_left_out)),
                    false => format!("{} rows, by a trigger or rule of the table", grouped(t.rows_left_out)),
                },
            );
        }
        line(
            &mut out,
            "path",
            format!(
                "{} over {} connection{}: {}",
                self.path.name(),
                t.connections,
                if t.connections == 1 { "" } else { "s" },
                self.path_reason
            ),
        );
        if let Some(cluster) = &self.cluster {
            line(&mut out, "cluster", cluster.in_words());
        }
        if t.rows_as_text > 0 {
            line(
                &mut out,
                "as text",
                format!("{} rows held values only the server can judge", grouped(t.rows_as_text)),
            );
        }
        let s = &self.stages;
        line(
            &mut out,
            "stages",
            format!(
                "read {:.2} s, decode+encode {:.2} s, send {:.2} s, commit {:.2} s, waiting for input {:.2} s",
                s.read, s.encode, s.send, s.commit, s.wait
            ),
        );
        for pulled in &self.pulled {
            let why = pulled.why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            line(&mut out, "lever", format!("--{}: {}{why}", pulled.lever, pulled.what));
        }
        if s.put_back >= 0.005 {
            line(&mut out, "put back", format!("{:.2} s", s.put_back));
        }
        if let Some(profile) = &self.profile {
            if let Some(limit) = &profile.limit {
                line(&mut out, "limit", limit.sentence.clone());
                line(&mut out, "server", profile.split_in_words());
            }
            if let Some(counters) = &profile.counters {
                let checkpoints = counters.checkpoints_timed + counters.checkpoints_requested;
                line(
                    &mut out,
                    "wal",
                    format!(
                        "{:.0} MB by the whole server, {} full page images, {} checkpoint{}",
                        counters.wal.bytes as f64 / 1e6,
                        grouped(counters.wal.full_page_images),
                        checkpoints,
                        if checkpoints == 1 { "" } else { "s" }
                    ),
                );
            }
            for blocker in &profile.blockers {
                line(&mut out, "blocked", format!("{:.0} s by {blocker}", blocker.waited_seconds));
            }
        }
        for lever in self.levers_for_limit().take(LEVERS_IN_TEXT) {
            line(&mut out, "levers", format!("{}: {} ({})", lever.lever, lever.what, lever.cost));
        }
        line(&mut out, "units", format!("{} committed, {} sent again", t.units, t.retries));
        if t.dead_rows > 0 {
            line(
                &mut out,
                "dead rows",
                format!("about {} left for VACUUM by units the server refused", grouped(t.dead_rows)),
            );
        }
        for note in &self.notes {
            line(&mut out, "note", note.clone());
        }
        out
    }
}

/// When the load began, UTC, to the second.
fn began(progress: &Progress) -> String {
    let began = SystemTime::now().checked_sub(progress.started.elapsed()).unwrap_or(UNIX_EPOCH);
    utc(began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// `2026-11-21T03:11:52Z` of seconds since 1970. Years start in March here, so that the leap day is the last; 400 of
/// them have 146097 days, and 0000-03-01 is 719468 days before 1970-01-01.
fn utc(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let of_cycle = days % 146_097;
    let year = (of_cycle - of_cycle / 1_460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = days / 146_097 * 400 + year + later;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
pub(crate) mod made_up;
#[cfg(test)]
mod tests;
