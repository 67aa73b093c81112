//! The machine of a server, where it is this one.
//!
//! A socket or the loopback address does not show that: a tunnel or a container may be behind it. The directory that
//! the server names must hold, on this machine, the cluster that answers: the identifier in its pg_control, and the
//! port and the start of its postmaster in postmaster.pid. Most often only root and the server's account may look.

use super::facts::ServerFacts;
use super::platform;
use serde::Serialize;
use std::fs;
use std::io::Read;
use std::path::Path;

/// How far the start in postmaster.pid and the one the server tells may be apart: the second is taken when the shared
/// memory is there, which takes a while where it is large.
const START_SLACK: f64 = 300.0;

/// What a machine is, as far as a server on it cares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Bytes of memory the server may use: the machine's, or the limit of its control group.
    pub memory: Option<u64>,
    /// Processors this process may use.
    pub processors: Option<u64>,
    /// Directories of the server, the data directory first, then pg_wal, then tablespaces.
    pub directories: Vec<Directory>,
}

/// A directory of the server and the device it is on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Directory {
    /// `data`, `pg_wal`, or `tablespace NAME`.
    pub what: String,
    /// Where it really is: pg_wal and tablespaces are often links.
    pub path: String,
    /// What is mounted there.
    pub device: Option<String>,
    /// Where that is mounted.
    pub mount_point: Option<String>,
    /// ext4, xfs ...
    pub file_system: Option<String>,
    /// Whether it is a disk that turns.
    pub rotational: Option<bool>,
    /// Free and total bytes.
    pub space: Option<Space>,
}

/// Bytes of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Space {
    /// Free for an ordinary account.
    pub free: u64,
    /// In all.
    pub total: u64,
}

impl Machine {
    /// The directory of the WAL.
    pub fn wal(&self) -> Option<&Directory> {
        self.directories.iter().find(|directory| directory.what == "pg_wal")
    }
}

/// Looks at the machine if the server with this data directory is on it.
pub(super) fn look(data: &str, facts: &ServerFacts) -> Option<Machine> {
    let data = Path::new(data);
    let postmaster = postmaster_of(data, facts)?;
    let mut directories =
        vec![directory("data".to_owned(), data), directory("pg_wal".to_owned(), &data.join("pg_wal"))];
    for tablespace in &facts.tablespaces {
        directories
            .push(directory(format!("tablespace {}", tablespace.name), Path::new(&tablespace.location)));
    }
    Some(Machine {
        memory: platform::memory(postmaster),
        processors: std::thread::available_parallelism().ok().map(|n| n.get() as u64),
        directories,
    })
}

/// The process id of the postmaster, if the directory is that of the server that told `facts`.
fn postmaster_of(data: &Path, facts: &ServerFacts) -> Option<u32> {
    // The identifier comes first in the file and has the byte order of the machine (pg_control.h). Copies of a cluster
    // share it, so it only excludes.
    if let Some(wanted) = facts.system_identifier {
        let mut bytes = [0; 8];
        fs::File::open(data.join("global/pg_control")).ok()?.read_exact(&mut bytes).ok()?;
        if i64::from_ne_bytes(bytes) != wanted {
            return None;
        }
    }
    // Process id, directory, start, port, a line each (pidfile.h).
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let started: f64 = lines.get(2)?.parse().ok()?;
    let same_port = facts.setting("port").is_some_and(|port| Some(&port.value.as_str()) == lines.get(3));
    let same_start = (facts.started - started).abs() <= START_SLACK;
    (same_port && same_start).then(|| lines.first()?.parse().ok())?
}

fn directory(what: String, path: &Path) -> Directory {
    let mount = platform::mount(path);
    Directory {
        what,
        path: path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string(),
        device: mount.as_ref().map(|mount| mount.source.clone()),
        mount_point: mount.as_ref().map(|mount| mount.point.clone()),
        rotational: mount.as_ref().and_then(|mount| mount.rotational),
        file_system: mount.map(|mount| mount.file_system),
        space: platform::space(path),
    }
}
