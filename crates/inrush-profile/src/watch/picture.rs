//! What there is to show.

use super::statement::Kind;
use crate::blockers::Blocker;
use crate::class::Class;
use crate::counters::Counters;
use crate::limit::Limit;
use crate::profile::ClassShare;
use serde::Serialize;

/// What has been seen within a time.
#[derive(Debug, Clone, Serialize)]
pub struct Picture {
    /// Seconds that the figures stand for: the last ones, or all since the beginning.
    pub seconds: f64,
    /// Looks at the sessions in that time, per second.
    pub looks_per_second: f64,
    /// What is wrong with the connection, if something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// What this role may not see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<Hidden>,
    /// Whether waiting for a processor could be told from running.
    pub cpu_queue_seen: bool,
    /// WAL that the whole server wrote per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_bytes_per_second: Option<f64>,
    /// What the whole server has counted since the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// All sessions together.
    pub all: Together,
    /// By table, most backend time first.
    pub tables: Vec<TableFigures>,
    /// By session, in the order of their numbers.
    pub backends: Vec<BackendFigures>,
}

/// Sessions of other roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Hidden {
    /// Sessions whose statements this role may not see.
    pub sessions: u64,
    /// How many of them run COPY: that is all one may know.
    pub copies: u64,
}

impl Hidden {
    /// One line: what cannot be seen, and what helps.
    pub fn in_words(self) -> String {
        let of_them = match self.copies {
            0 => String::new(),
            1 => ", one of which runs COPY".to_owned(),
            n => format!(", {n} of which run COPY"),
        };
        let sessions = if self.sessions == 1 { "session" } else { "sessions" };
        format!(
            "not seen: {} {sessions} of other roles{of_them}; a member of pg_read_all_stats or pg_monitor sees them",
            self.sessions
        )
    }
}

/// Where the time of some sessions went.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Together {
    /// Sessions at work now.
    pub sessions: usize,
    /// Seconds of all of them together.
    pub backend_seconds: f64,
    /// What they were limited by. None where there were too few looks to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Backend time by class, most first.
    pub split: Vec<ClassShare>,
}

/// What happened to a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableFigures {
    /// Schema and name; with the database in front if it is another one than that of the connection.
    pub table: String,
    /// What was done to it.
    pub kinds: Vec<Kind>,
    /// Rows since the beginning, where the server counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// The same per second, of late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_per_second: Option<f64>,
    /// Bytes that COPY has read since the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The same per second, of late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<f64>,
    /// Bytes of the relation (its partitions that are written to), where they may be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relation_bytes: Option<u64>,
    /// By how much these have grown per second, of late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relation_growth_per_second: Option<f64>,
    /// Where the time of its sessions went.
    #[serde(flatten)]
    pub time: Together,
}

impl TableFigures {
    /// `COPY`, or `COPY, INSERT`.
    pub fn kinds_in_words(&self) -> String {
        self.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
    }
}

/// What a session did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackendFigures {
    /// Process id of the backend.
    pub pid: i32,
    /// Whether it is still at work.
    pub at_work: bool,
    /// The role that logged in.
    pub user: String,
    /// Its application_name.
    pub application: String,
    /// The client's address; none for a Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Its database.
    pub database: String,
    /// The table it works on.
    pub table: String,
    /// What it does to it.
    pub kind: Kind,
    /// Seconds for which its statement has been running; none between two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement_seconds: Option<f64>,
    /// Rows of COPY or CREATE INDEX since the beginning. What an INSERT has done is not known before it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Bytes that COPY has read since the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What it was last seen waiting for, `Lock/extend`; none for a backend that ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// Whose locks it waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<Blocker>,
    /// Where its time went.
    #[serde(flatten)]
    pub time: Together,
}

/// `relation extension locks 64 %, server CPU 20 %, the client or the network 16 %`
pub fn split_in_words(split: &[ClassShare]) -> String {
    let worth = split.iter().filter(|share| share.share >= 0.005);
    worth
        .map(|share| format!("{} {:.0} %", share.class.in_words_of_others(), share.share * 100.0))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The share of a class, 0 to 1.
pub fn share_of(split: &[ClassShare], class: Class) -> f64 {
    split.iter().find(|share| share.class == class).map_or(0.0, |share| share.share)
}
