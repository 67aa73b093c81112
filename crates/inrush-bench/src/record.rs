use crate::{Case, machine};
use inrush_core::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Version of the JSON form. Fields are only ever added within a version.
pub const VERSION: u32 = 1;

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
    /// Contenders that could not run.
    pub absent: Vec<Absent>,
    /// Every run in the order it took place. The warm-up is not among them.
    pub runs: Vec<Run>,
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
    /// Whether the bench started it, with the settings of the case.
    pub started_for_this: bool,
    /// Settings in force.
    pub settings: BTreeMap<String, String>,
}

/// A contender that was left out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Absent {
    /// Who.
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
    /// In force.
    pub synchronous_commit: String,
    /// From 1.
    pub round: u32,
    /// Who.
    pub contender: String,
    /// Wall time of the command.
    pub seconds: f64,
    /// Wall time of the command and of a CHECKPOINT after it. For `server = false` the same as `seconds`.
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
    /// Rows in the table afterwards.
    pub rows: u64,
    /// Load average before it began.
    pub load_average: Option<f64>,
    /// Cores that were busy with neither client nor server.
    pub foreign_cores: Option<f64>,
    /// Why the run does not count: the command failed, or the table is not what it must be.
    pub failure: Option<String>,
}

impl Run {
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

impl Record {
    /// The runs of a contender that count, under one value of `synchronous_commit` on one server.
    pub fn of<'r>(
        &'r self,
        server: usize,
        synchronous_commit: &'r str,
        contender: &'r str,
    ) -> impl Iterator<Item = &'r Run> + Clone {
        self.runs.iter().filter(move |run| {
            run.server == server
                && run.synchronous_commit == synchronous_commit
                && run.contender == contender
                && run.failure.is_none()
        })
    }

    /// The median of something measured in these runs; `None` without a run.
    pub fn median(
        &self,
        server: usize,
        synchronous_commit: &str,
        contender: &str,
        what: impl Fn(&Run) -> Option<f64>,
    ) -> Option<f64> {
        median(self.of(server, synchronous_commit, contender).filter_map(what).collect())
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

/// Keeps a record: `CASE.json` in `DIRECTORY/DATE-HOST`, and the README there made anew from all records beside
/// it. A record that is there already is not touched: the next one is `CASE-2.json`.
pub fn keep(record: &Record, directory: &Path) -> Result<PathBuf> {
    let failed = |path: &Path, e: &dyn std::fmt::Display| {
        Error::new(Code::Output, format!("cannot write {}: {e}", path.display()))
    };
    let date = record.began.split(' ').next().unwrap_or_default();
    let here = directory.join(format!("{date}-{}", record.host.name));
    std::fs::create_dir_all(&here).map_err(|e| failed(&here, &e))?;
    let mut path = here.join(format!("{}.json", record.case.name));
    let mut n = 1;
    while path.exists() {
        n += 1;
        path = here.join(format!("{}-{n}.json", record.case.name));
    }
    let json = serde_json::to_string_pretty(record)
        .map_err(|e| Error::new(Code::Internal, format!("a record is not JSON: {e}")))?;
    std::fs::write(&path, json + "\n").map_err(|e| failed(&path, &e))?;
    let mut names: Vec<PathBuf> = std::fs::read_dir(&here)
        .map_err(|e| failed(&here, &e))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    names.sort();
    let mut records = Vec::new();
    for name in names {
        let text = std::fs::read(&name).map_err(|e| failed(&name, &e))?;
        let record: Record = serde_json::from_slice(&text).map_err(|e| failed(&name, &e))?;
        let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        records.push((name, record));
    }
    let readme = here.join("README.md");
    std::fs::write(&readme, crate::render::readme(&records)).map_err(|e| failed(&readme, &e))?;
    Ok(path)
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
