use crate::{Case, Contender, Input, Rung, machine};
use inrush_testkit::USUAL_BLOCK_SIZE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Version of the JSON form. Fields are only ever added within a version. 2 has rungs; records of version 1 are
/// read as those of a case with one rung without a name.
pub const VERSION: u32 = 2;

/// Everything measured in one call of the bench, with what it was measured on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// [`VERSION`]
    pub version: u32,
    /// As it was run: rows are those that were used.
    pub case: Case,
    /// UTC, `2026-11-21 03:04:05`.
    pub began: String,
    /// The command line.
    pub command: String,
    /// The machine and what was on it.
    pub host: Host,
    /// Bytes of the file as CSV and as COPY text.
    pub csv_bytes: u64,
    /// See `csv_bytes`.
    pub text_bytes: u64,
    /// The servers in order.
    pub servers: Vec<ServerFacts>,
    /// What each contender's version command printed.
    pub versions: BTreeMap<String, String>,
    /// Contenders and rungs that could not run.
    pub absent: Vec<Absent>,
    /// Every run in the order it took place. The warm-up is not among them.
    pub runs: Vec<Run>,
    /// Why the bench ended before its end; what had been measured is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
}

/// The machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// `uname -srm`
    pub system: String,
    /// Model of the processor.
    pub processor: Option<String>,
    /// Cores this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Type and device of the file system with the data and the servers that were started.
    pub file_system: Option<String>,
    /// Version of Inrush.
    pub inrush: String,
    /// The commit of the working directory, `+changes` if its files differ from it.
    pub commit: Option<String>,
}

/// A server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerFacts {
    /// As it says.
    pub version: String,
    /// Major version.
    pub major: u32,
    /// Bytes of a block.
    #[serde(default = "usual_block_size")]
    pub block_size: u32,
    /// Whether the bench started it, with the settings of the case.
    pub started_for_this: bool,
    /// Settings in force.
    pub settings: BTreeMap<String, String>,
}

fn usual_block_size() -> u32 {
    USUAL_BLOCK_SIZE
}

/// A contender that was left out, or a whole rung.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Absent {
    /// Which rung; every one if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<String>,
    /// Who; every one if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub contender: String,
    /// Version of the server; every one if missing.
    pub server: Option<String>,
    /// Why.
    pub reason: String,
}

/// One run of one contender.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Place in [`Record::servers`].
    pub server: usize,
    /// Name of the rung; empty in a case without rungs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rung: String,
    /// Number of sessions, where the rung sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// In force.
    pub synchronous_commit: String,
    /// From 1.
    pub round: u32,
    /// Who.
    pub contender: String,
    /// Bytes of its input that MB/s count; missing in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
    /// Wall time of the command.
    pub seconds: f64,
    /// Wall time of the command and of a CHECKPOINT after it. For `server = false` the same as `seconds`. Says nothing
    /// of an unlogged table: a CHECKPOINT leaves its pages in memory.
    pub durable_seconds: f64,
    /// CPU of the command and its children.
    pub client_user_seconds: f64,
    /// See `client_user_seconds`.
    pub client_system_seconds: f64,
    /// Peak memory of the largest of its processes.
    pub client_peak_bytes: u64,
    /// CPU of the server until COMMIT, if it runs here.
    pub server_cpu_seconds: Option<f64>,
    /// Bytes of WAL until COMMIT.
    pub wal_bytes: u64,
    /// Rows in the table afterwards, without what the preparation left in it.
    pub rows: u64,
    /// Bytes that the main fork of the table has grown by; missing in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grown_bytes: Option<u64>,
    /// Load average before it began.
    pub load_average: Option<f64>,
    /// Cores that were busy with neither client nor server.
    pub foreign_cores: Option<f64>,
    /// Why the run does not count: the command failed, or the table is not what it must be.
    pub failure: Option<String>,
}

impl Absent {
    /// `left out on VERSION: WHO: WHY`
    pub fn sentence(&self) -> String {
        let on = self.server.as_ref().map(|server| format!(" on {server}")).unwrap_or_default();
        let who = match &self.rung {
            Some(rung) => format!("rung {rung}"),
            None => self.contender.clone(),
        };
        // A server's message may have several lines; this is one.
        let reason = self.reason.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        format!("left out{on}: {who}: {reason}")
    }
}

impl Run {
    /// Where it took place.
    pub fn place(&self) -> Place {
        Place {
            server: self.server,
            rung: self.rung.clone(),
            synchronous_commit: self.synchronous_commit.clone(),
            sessions: self.sessions,
        }
    }

    /// Whether it took place there.
    pub fn is_at(&self, place: &Place) -> bool {
        self.server == place.server
            && self.rung == place.rung
            && self.synchronous_commit == place.synchronous_commit
            && self.sessions == place.sessions
    }

    /// CPU seconds of the client.
    pub fn client_seconds(&self) -> f64 {
        self.client_user_seconds + self.client_system_seconds
    }
}

impl Host {
    /// This machine; `data` is on the file system to name.
    pub fn here(data: &Path) -> Host {
        let changed = output("git", &["status", "--porcelain", "--untracked-files=no"]);
        let commit = output("git", &["rev-parse", "HEAD"])
            .map(|hash| if changed.is_some_and(|text| !text.is_empty()) { hash + "+changes" } else { hash });
        Host {
            name: output("uname", &["-n"]).unwrap_or_else(|| "unknown".to_owned()),
            system: output("uname", &["-srm"]).unwrap_or_default(),
            processor: machine::processor(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory: machine::memory(),
            file_system: machine::file_system(data),
            inrush: env!("CARGO_PKG_VERSION").to_owned(),
            commit,
        }
    }
}

/// Runs that may be compared: on one server and rung, under one value of `synchronous_commit`, with one number of
/// sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Place in [`Record::servers`].
    pub server: usize,
    /// Name of the rung.
    pub rung: String,
    /// In force.
    pub synchronous_commit: String,
    /// Where the rung sets it.
    pub sessions: Option<u32>,
}

impl Record {
    /// Every place that has runs, in the order of the rungs, then of the servers.
    pub fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for rung in self.case.each_rung() {
            for server in 0..self.servers.len() {
                for synchronous_commit in self.case.synchronous_commit_of(&rung) {
                    for sessions in rung.each_sessions() {
                        let place = Place {
                            server,
                            rung: rung.name.clone(),
                            synchronous_commit: synchronous_commit.clone(),
                            sessions,
                        };
                        if self.runs.iter().any(|run| run.is_at(&place)) {
                            places.push(place);
                        }
                    }
                }
            }
        }
        places
    }

    /// The rung of a place.
    pub fn rung(&self, place: &Place) -> Rung {
        self.case.each_rung().into_iter().find(|rung| rung.name == place.rung).unwrap_or_else(Rung::unnamed)
    }

    /// The contenders that have runs at a place, failed ones included, in the order of the case.
    pub fn contenders_at(&self, place: &Place) -> impl Iterator<Item = &Contender> {
        self.case.contenders.iter().filter(move |contender| {
            self.runs.iter().any(|run| run.is_at(place) && run.contender == contender.name)
        })
    }

    /// The runs of a contender at a place that count.
    pub fn of<'r>(&'r self, place: &'r Place, contender: &'r str) -> impl Iterator<Item = &'r Run> + Clone {
        self.runs
            .iter()
            .filter(move |run| run.is_at(place) && run.contender == contender && run.failure.is_none())
    }

    /// The median of something measured in these runs; `None` without a run.
    pub fn median(&self, place: &Place, contender: &str, what: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        median(self.of(place, contender).filter_map(what).collect())
    }

    /// Bytes that the MB/s of a run count.
    pub fn input_bytes(&self, run: &Run) -> u64 {
        run.input_bytes.unwrap_or_else(|| match self.case.contender(&run.contender).map(|c| c.input) {
            Some(Input::Text) => self.text_bytes,
            _ => self.csv_bytes,
        })
    }

    /// Median megabytes (10^6 bytes) of input a second until COMMIT.
    #[allow(clippy::cast_precision_loss)] // files of petabytes fit
    pub fn mbps(&self, place: &Place, contender: &str) -> Option<f64> {
        self.median(place, contender, |run| Some(self.input_bytes(run) as f64 / 1e6 / run.seconds))
    }

    /// Median rows a second until COMMIT; `None` for limits of the machine, which load none.
    #[allow(clippy::cast_precision_loss)] // 2^53 rows are enough
    pub fn rows_per_second(&self, place: &Place, contender: &str) -> Option<f64> {
        self.median(place, contender, |run| (run.rows > 0).then_some(run.rows as f64 / run.seconds))
    }

    /// Rows that a contender is given at a place.
    pub fn rows_for(&self, place: &Place, contender: &Contender) -> u64 {
        self.case.rows_for(&self.rung(place), contender)
    }

    /// How many times as fast as the baseline of its place a contender is: in seconds to COMMIT for the same
    /// rows, which is rows a second where it has fewer.
    #[allow(clippy::cast_precision_loss)] // 2^53 rows are enough
    pub fn ratio(&self, place: &Place, contender: &Contender) -> Option<f64> {
        let rung = self.rung(place);
        let baseline = self.case.contender(self.case.baseline_of(&rung))?;
        self.times_as_fast(place, contender, baseline)
    }

    /// How many times as fast one contender is as another, as in [`Record::ratio`].
    #[allow(clippy::cast_precision_loss)] // 2^53 rows are enough
    pub fn times_as_fast(&self, place: &Place, one: &Contender, other: &Contender) -> Option<f64> {
        let seconds_a_row = |contender: &Contender| {
            let seconds = self.median(place, &contender.name, |run| Some(run.seconds))?;
            Some(seconds / self.rows_for(place, contender) as f64)
        };
        Some(seconds_a_row(other)? / seconds_a_row(one)?)
    }

    /// A server in a few words; those that would have the same name have their number with it.
    pub fn server_title(&self, server: usize) -> String {
        let name = |facts: &ServerFacts| {
            let blocks = if facts.block_size == USUAL_BLOCK_SIZE {
                String::new()
            } else {
                format!(", {} KB blocks", facts.block_size / 1024)
            };
            format!("PostgreSQL {}{blocks}", facts.version)
        };
        let own = name(&self.servers[server]);
        if self.servers.iter().filter(|facts| name(facts) == own).count() > 1 {
            format!("{own} (server {})", server + 1)
        } else {
            own
        }
    }

    /// A place in a few words.
    pub fn title(&self, place: &Place) -> String {
        let rung = if place.rung.is_empty() { String::new() } else { format!("{}: ", place.rung) };
        let sessions = match place.sessions {
            None => String::new(),
            Some(1) => ", 1 session".to_owned(),
            Some(n) => format!(", {n} sessions"),
        };
        format!(
            "{rung}{}, synchronous_commit {}{sessions}",
            self.server_title(place.server),
            place.synchronous_commit
        )
    }
}

/// The median: of an even number of values the mean of the middle two.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some(f64::midpoint(values[n / 2 - 1], values[n / 2])),
    }
}

/// What a program prints, if it can be run and ends well.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Option<String> {
    output_of(Command::new(program).args(arguments))
}

/// See [`output`].
pub(crate) fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn medians() {
        assert_eq!(super::median(vec![]), None);
        assert_eq!(super::median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(super::median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
