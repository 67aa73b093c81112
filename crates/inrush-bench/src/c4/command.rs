//! A contender that is a command.

use crate::c4::cluster::Cluster;
use crate::c4::rows::Files;
use crate::c4::send::Before;
use crate::c4::tables::Tables;
use crate::c4::{Contender, Turn};
use crate::measure::measure;
use inrush_core::{Code, Error, Excerpt, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// What commands find.
#[derive(Debug)]
pub struct Surroundings<'s> {
    pub files: &'s Files,
    /// PATH.
    pub path: &'s OsStr,
    pub inrush: &'s Path,
    /// Options `--node`, for `sh`.
    pub nodes: &'s str,
}

/// Runs it; what it did wrong is in the turn.
pub fn run(
    cluster: &Cluster,
    tables: &Tables<'_>,
    contender: &Contender,
    around: &Surroundings<'_>,
) -> Result<Turn> {
    let Some(script) = &contender.command else {
        return Err(Error::new(Code::Internal, format!("{} is not a command", contender.name)));
    };
    let files = around.files;
    let log_path = files.dir().join("log");
    let log = File::create(&log_path)
        .and_then(|file| Ok((file.try_clone()?, file)))
        .map_err(|e| Error::new(Code::Output, format!("cannot write {}: {e}", log_path.display())))?;
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .env("PATH", around.path)
        .env("DSN", &cluster.dsn)
        .env("TABLE", tables.table())
        .env("STAGED", Tables::staged())
        .env("TEXT", files.text(contender.part))
        .env("TEXT_1", files.half(contender.part, 1))
        .env("TEXT_2", files.half(contender.part, 2))
        .env("INRUSH", around.inrush)
        .env("NODES", around.nodes)
        .stdin(Stdio::null())
        .stdout(log.0)
        .stderr(log.1);
    let before = Before::now(cluster);
    let taken =
        measure(&mut command).map_err(|e| Error::new(Code::Internal, format!("sh cannot be run: {e}")))?;
    let seconds = taken.wall.as_secs_f64();
    let spent = before.taken(cluster, seconds);
    let client = (taken.user + taken.system).as_secs_f64();
    let failure = (!taken.status.success()).then(|| {
        let text = std::fs::read(&log_path).unwrap_or_default();
        format!("{}: {}", taken.status, Excerpt(text.trim_ascii()))
    });
    Ok(Turn {
        seconds,
        operations: files.rows_of(contender.part),
        coordinator_cpu_seconds: spent.coordinator,
        workers_cpu_seconds: spent.workers,
        client_cpu_seconds: client,
        client_peak_bytes: Some(taken.peak),
        // This program has only waited meanwhile.
        foreign_cores: spent.foreign_cores.map(|cores| (cores - client / seconds.max(0.01)).max(0.0)),
        failure,
        ..Turn::default()
    })
}
