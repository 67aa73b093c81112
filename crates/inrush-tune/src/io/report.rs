//! What `inrush tune io` has to say, as JSON. Text and page are made from it.

use super::advice::{Advice, Dense, NamedScan};
use super::measured::Measured;
use super::verdict::Verdict;
use crate::advise::apply::Change;
use serde::{Deserialize, Serialize};

/// Version of the JSON form of [`Report`].
pub const VERSION: u32 = 1;

/// All there is to say about the storage of a server, or of a directory.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this form.
    pub version: u32,
    /// Version of inrush.
    pub inrush: String,
    /// When it began, in UTC: 2026-11-22T19:19:43Z.
    pub started: String,
    /// The server; `None` where only a directory was measured.
    pub server: Option<Server>,
    /// A tablespace each, or the directory.
    pub targets: Vec<Target>,
    /// What could not be seen or done, and what would let it.
    pub notes: Vec<String>,
    /// What --apply has made of it.
    pub applied: Option<Applied>,
}

/// What --apply has done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Applied {
    /// What was set.
    pub changes: Vec<Change>,
    /// What was to be set and could not be: its lines are for who can.
    pub not_applied: Vec<Advice>,
    /// Why not.
    pub why: Option<String>,
}

/// What of a server decides about its scans.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Server {
    /// server_version_num: 150004 for 15.4.
    pub version_num: u32,
    /// The version as the server prints it.
    pub version: String,
    /// The current role.
    pub role: String,
    /// The managed service that it belongs to.
    pub managed: Option<String>,
    /// Whether it is a standby.
    pub standby: bool,
    /// io_method, since 18.
    pub io_method: Option<String>,
    /// The values of io_method that this build offers.
    pub io_methods: Vec<String>,
    /// io_workers, since 18.
    pub io_workers: Option<u32>,
    /// io_max_concurrency, since 18: reads that one process has in flight at most.
    pub io_max_concurrency: Option<u32>,
    /// shared_buffers in bytes.
    pub shared_buffers: Option<u64>,
    /// Share of page requests that shared_buffers did not have, over all databases since the counters began.
    pub shared_miss: Option<f64>,
    /// Share of reads that the page cache of the operating system did not have, and how that is known.
    pub disk_share: Option<DiskShare>,
}

/// How much of what a server reads comes from its storage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskShare {
    /// 0 to 1.
    pub share: f64,
    /// Where the figure comes from, in words.
    pub how: String,
}

/// A tablespace or a directory.
#[derive(Debug, Clone, Serialize)]
pub struct Target {
    /// The tablespace; `None` where only a directory was measured.
    pub tablespace: Option<String>,
    /// Its options as they are: sessions cannot change what they name.
    pub options: Vec<TablespaceOption>,
    /// The directory that was measured.
    pub directory: Option<String>,
    /// What was measured.
    pub measured: Option<Measured>,
    /// Why nothing was.
    pub not_measured: Option<String>,
    /// What it means.
    pub verdict: Verdict,
    /// Settings to change.
    pub advice: Vec<Advice>,
    /// Settings that were looked at and are to stay, with their value.
    pub already_right: Vec<Right>,
    /// Settings that nothing could be said about, with their value.
    pub undecided: Vec<Right>,
    /// What scans take now and with the advice, by the model.
    pub scans: Vec<NamedScan>,
    /// From where on a bitmap heap scan is slower than reading the whole table.
    pub dense: Option<Dense>,
    /// What it was when it was last measured, for --verify.
    pub before: Option<Before>,
}

/// An option of a tablespace. It masks the setting of the same name, in all sessions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TablespaceOption {
    /// effective_io_concurrency, maintenance_io_concurrency, random_page_cost or seq_page_cost.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A setting that is not to be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Right {
    /// The setting.
    pub setting: &'static str,
    /// Its value.
    pub now: String,
    /// Why that is right, or why nothing can be said.
    pub why: String,
}

/// An earlier measurement beside the one of now.
#[derive(Debug, Clone, Serialize)]
pub struct Before {
    /// What was measured then.
    pub measured: Measured,
    /// What it meant.
    pub verdict: Verdict,
    /// The settings then, as they held for scans of the tablespace.
    pub settings: Vec<TablespaceOption>,
    /// The settings now.
    pub settings_now: Vec<TablespaceOption>,
    /// What has changed, in a sentence each.
    pub changes: Vec<String>,
}
