use crate::c3::Case;
use crate::{Absent, Host, ServerFacts, median};
use serde::{Deserialize, Serialize};

/// Version of the JSON form. Fields are only ever added within a version.
pub const VERSION: u32 = 1;

/// What tells its files from those of other cases.
pub const KIND: &str = "inrush-bench-stream";

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
    /// The machine and what was on it.
    pub host: Host,
    /// What pgbench says its version is.
    pub pgbench: Option<String>,
    /// Bytes of a row as CSV, with its newline.
    pub csv_row_bytes: u64,
    /// The servers in order, with the settings they were started with.
    pub servers: Vec<ServerFacts>,
    /// Contenders that could not run.
    pub absent: Vec<Absent>,
    /// Every turn in the order it took place.
    pub turns: Vec<Turn>,
    /// Why it ended before its end; what had been measured is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
}

/// What a turn was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// As fast as it goes.
    Top,
    /// At half of the top rate: the times of answers.
    Paced,
    /// One table of a certain size: what questions about it cost.
    Window,
    /// As fast as it goes, for minutes or days, with questions.
    Long,
}

/// One contender for some time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Turn {
    /// Place in [`Record::servers`].
    pub server: usize,
    /// Name of the rung.
    pub rung: String,
    /// From 1.
    pub round: u32,
    /// Who.
    pub contender: String,
    /// What for.
    pub purpose: Purpose,
    /// Until the last row was acknowledged.
    pub seconds: f64,
    /// Rows that were acknowledged.
    pub rows: u64,
    /// Rows found in the tables, where none was truncated.
    pub counted: Option<u64>,
    /// Rows of each second of the first hour. Of pgbench: by its own progress lines.
    pub each_second: Vec<u64>,
    /// Rows of each whole minute.
    pub each_minute: Vec<u64>,
    /// CPU of pgbench or psql, or of the senders to serve.
    pub client_cpu_seconds: f64,
    /// CPU of serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_cpu_seconds: Option<f64>,
    /// The most memory that serve had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_peak_bytes: Option<u64>,
    /// CPU of all processes of the server.
    pub server_cpu_seconds: Option<f64>,
    /// WAL, until a moment after the last row.
    pub wal_bytes: u64,
    /// Of all tables and their indexes, truncated ones included.
    pub disk_bytes: u64,
    /// Rounds: how often the tables were truncated.
    pub truncated: u32,
    /// What the machine spent on anything else, in cores.
    pub foreign_cores: Option<f64>,
    /// Before it.
    pub load_average: Option<f64>,
    /// Rows a second that it was held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paced_to: Option<f64>,
    /// From when a body was due to its answer, by rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Times>,
    /// Of serve's own histogram: 99 % of the rows were visible within these seconds of their arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_p99_at_most: Option<f64>,
    /// Bodies that were told to come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_to_come_back: Option<u64>,
    /// Questions about the time, asked meanwhile or, for [`Purpose::Window`], at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<Query>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Times of many events, in seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Half took no longer.
    pub p50: f64,
    /// 99 % took no longer.
    pub p99: f64,
    /// The longest.
    pub most: f64,
}

/// A table asked for the ends of its time, and for the rows of a sixtieth of it, with the index and without.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Query {
    /// Since the turn began.
    pub at_seconds: f64,
    /// Pages of the table.
    pub pages: u64,
    /// `min(crt_time), max(crt_time)`, in milliseconds.
    pub ends_ms: f64,
    /// Between those, in seconds.
    pub span_seconds: f64,
    /// Rows of a sixtieth in its middle.
    pub rows: u64,
    /// The count through BRIN.
    pub brin_ms: f64,
    /// Heap pages that it looked at.
    pub brin_pages: u64,
    /// The count without.
    pub seq_ms: f64,
}

impl Query {
    /// The part of the pages that the count through BRIN looked at.
    #[allow(clippy::cast_precision_loss)] // pages
    pub fn part(&self) -> f64 {
        self.brin_pages as f64 / self.pages.max(1) as f64
    }
}

impl Turn {
    /// Rows a second.
    #[allow(clippy::cast_precision_loss)] // rows of years fit
    pub fn rate(&self) -> f64 {
        self.rows as f64 / self.seconds.max(1e-3)
    }
}

impl Record {
    /// The turns of a contender that did not fail.
    pub fn of<'r>(
        &'r self,
        server: usize,
        rung: &'r str,
        contender: &'r str,
        purpose: Purpose,
    ) -> impl Iterator<Item = &'r Turn> {
        self.turns.iter().filter(move |turn| {
            turn.server == server
                && turn.rung == rung
                && turn.contender == contender
                && turn.purpose == purpose
                && turn.failure.is_none()
        })
    }

    /// Rows a second at full speed: the median.
    pub fn top(&self, server: usize, rung: &str, contender: &str) -> Option<f64> {
        median(self.of(server, rung, contender, Purpose::Top).map(Turn::rate).collect())
    }
}
