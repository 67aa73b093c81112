use crate::c4::Case;
use crate::{Absent, Host, median};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the JSON form. Fields are only ever added within a version.
pub const VERSION: u32 = 1;

/// What tells its files from those of other cases.
pub const KIND: &str = "inrush-bench-cluster";

/// Everything measured in one call, with what it was measured on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// [`KIND`]
    pub kind: String,
    /// [`VERSION`]
    pub version: u32,
    /// As it was run.
    pub case: Case,
    /// UTC, `2026-11-21 03:04:05`.
    pub began: String,
    /// The command line.
    pub command: String,
    /// The machine of the client.
    pub host: Host,
    /// The servers, the coordinator first.
    pub nodes: Vec<NodeFacts>,
    /// Contenders and rungs that could not run.
    pub absent: Vec<Absent>,
    /// Every turn in the order it took place.
    pub turns: Vec<Turn>,
    /// Why it ended before its end; what had been measured is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
}

/// A server of the cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeFacts {
    /// `coordinator`, or as the coordinator calls it.
    pub name: String,
    /// Version of PostgreSQL.
    pub version: String,
    /// Versions of the extensions that matter.
    pub extensions: BTreeMap<String, String>,
    /// Settings in force.
    pub settings: BTreeMap<String, String>,
    /// Whether it is on the client's machine, so that its CPU is known.
    pub here: bool,
}

/// One contender for some seconds, or one load.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Turn {
    /// Name of the rung.
    pub rung: String,
    /// In force on every node.
    pub synchronous_commit: String,
    /// From 1.
    pub round: u32,
    /// Who.
    pub contender: String,
    /// Clients at once; 0 for a command.
    pub threads: u32,
    /// Wall time.
    pub seconds: f64,
    /// Statements committed, or rows loaded.
    pub operations: u64,
    /// CPU of all processes of the coordinator; `None` if it is on another machine.
    pub coordinator_cpu_seconds: Option<f64>,
    /// The same of all other servers.
    pub workers_cpu_seconds: Option<f64>,
    /// CPU of the threads of this program that send, or of the command and its children.
    pub client_cpu_seconds: f64,
    /// Peak memory of the largest process of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_peak_bytes: Option<u64>,
    /// Rows found afterwards that are not where their keys lead, where it is for the client to see to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misplaced: Option<u64>,
    /// What the machine spent on anything else, in cores, if all servers are on it.
    pub foreign_cores: Option<f64>,
    /// Before it.
    pub load_average: Option<f64>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

#[allow(clippy::cast_precision_loss)] // operations of years fit
impl Turn {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-6)
    }

    /// Of CPU seconds, microseconds for each operation.
    pub fn each(&self, cpu_seconds: f64) -> f64 {
        cpu_seconds * 1e6 / self.operations.max(1) as f64
    }
}

impl Record {
    /// The turns of a contender that did not fail.
    pub fn of<'r>(
        &'r self,
        rung: &'r str,
        synchronous_commit: &'r str,
        contender: &'r str,
    ) -> impl Iterator<Item = &'r Turn> {
        self.turns.iter().filter(move |turn| {
            turn.rung == rung
                && turn.synchronous_commit == synchronous_commit
                && turn.contender == contender
                && turn.failure.is_none()
        })
    }

    /// The median of a figure over the turns of a contender.
    pub fn median(
        &self,
        rung: &str,
        synchronous_commit: &str,
        contender: &str,
        what: impl Fn(&Turn) -> Option<f64>,
    ) -> Option<f64> {
        median(self.of(rung, synchronous_commit, contender).filter_map(what).collect())
    }
}
