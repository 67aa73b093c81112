use crate::c5::{Asked, Case, Curve, Predicted};
use crate::{Absent, Host, median};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the JSON form. Fields are only ever added within a version.
pub const VERSION: u32 = 1;

/// What tells its files from those of other cases.
pub const KIND: &str = "inrush-bench-scans";

/// Everything measured in one call, with what it was measured on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// [`KIND`]
    pub kind: String,
    /// [`VERSION`]
    pub version: u32,
    /// As it was run.
    pub case: Case,
    /// UTC, `2026-11-22 03:04:05`.
    pub began: String,
    /// The command line.
    pub command: String,
    /// The machine.
    pub host: Host,
    /// Versions of the servers, and settings that were the same for all turns, by major version.
    pub servers: BTreeMap<u32, BTreeMap<String, String>>,
    /// Rungs and servers that could not run.
    pub absent: Vec<Absent>,
    /// The storage of each rung, as each version saw it.
    pub storage: Vec<Stored>,
    /// Every turn in the order it took place.
    pub turns: Vec<Turn>,
    /// What the model said of what was measured.
    pub predictions: Vec<Predicted>,
    /// Why it ended before its end; what had been measured is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
}

/// Storage, what is on it, and what is said of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stored {
    /// Name of the rung.
    pub rung: String,
    /// Name of the server whose settings were in force.
    pub server: String,
    /// Where reads are counted: the number of a device, or the layer.
    pub counted: String,
    /// Bytes of tables and indexes.
    pub bytes: BTreeMap<String, u64>,
    /// What fio measured, before and after `inrush tune io`; or why it did not.
    pub fio: Curve,
    /// What `inrush tune io` said; or why it did not.
    pub asked: Asked,
}

/// One scan.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Turn {
    /// Name of the rung.
    pub rung: String,
    /// Name of the server.
    pub server: String,
    /// Name of the scan.
    pub scan: String,
    /// effective_io_concurrency.
    pub concurrency: u32,
    /// Whether that is only run because it is recommended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recommended_only: bool,
    /// From 1.
    pub round: u32,
    /// The server's time of the query, from what it read first to its last row.
    pub seconds: f64,
    /// The same with everything in the page cache, where that was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_seconds: Option<f64>,
    /// The scan of the table that it was: as EXPLAIN calls it.
    pub plan: String,
    /// The index that it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// What the planner thought it costs.
    pub cost: f64,
    /// Rows that the scan gave.
    pub rows: u64,
    /// Pages of the table that a bitmap heap scan looked at, each once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_pages: Option<u64>,
    /// Of which all rows had to be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossy_pages: Option<u64>,
    /// Rows that were looked at for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rechecked_rows: Option<u64>,
    /// Pages that the server asked for and did not have.
    pub pages_read: u64,
    /// Of them, those of the index, where the plan says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_pages: Option<u64>,
    /// Reads of the storage meanwhile.
    pub device_reads: Option<u64>,
    /// Bytes of them.
    pub device_bytes: Option<u64>,
    /// Share of the tables' pages that was in the page cache before.
    pub resident: f64,
    /// CPU of all processes of the server.
    pub cpu_seconds: Option<f64>,
    /// Before it.
    pub load_average: Option<f64>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_false(value: &bool) -> bool {
    !*value
}

impl Turn {
    /// Whether somebody else read from the device meanwhile: it gave more than a quarter more than the pages
    /// that the server asked for, and a window of read-ahead that was for nothing.
    pub fn disturbed(&self) -> bool {
        const PAGE: u64 = 8192;
        const WINDOW: u64 = 8 << 20;
        let asked = self.pages_read * PAGE;
        self.device_bytes.is_some_and(|bytes| bytes > asked + asked / 4 + WINDOW)
    }
}

impl Record {
    /// The turns of a scan that did not fail.
    pub fn of<'r>(
        &'r self,
        rung: &'r str,
        server: &'r str,
        scan: &'r str,
        concurrency: Option<u32>,
    ) -> impl Iterator<Item = &'r Turn> + Clone {
        self.turns.iter().filter(move |turn| {
            turn.rung == rung
                && turn.server == server
                && turn.scan == scan
                && concurrency.is_none_or(|value| turn.concurrency == value)
                && turn.failure.is_none()
        })
    }

    /// The median of its seconds.
    pub fn seconds(&self, rung: &str, server: &str, scan: &str, concurrency: Option<u32>) -> Option<f64> {
        median(self.of(rung, server, scan, concurrency).map(|turn| turn.seconds).collect())
    }

    /// The values of effective_io_concurrency that a scan ran with, in order.
    pub fn values(&self, rung: &str, server: &str, scan: &str) -> Vec<u32> {
        let mut values: Vec<u32> = self.of(rung, server, scan, None).map(|turn| turn.concurrency).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// What is known of the storage of a rung by the version of a server.
    pub fn storage_of(&self, rung: &str, server: &str) -> Option<&Stored> {
        let version = |name: &str| self.case.server(name).map(|setup| setup.version);
        self.storage.iter().find(|one| one.rung == rung && version(&one.server) == version(server))
    }
}
