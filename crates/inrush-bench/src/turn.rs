use crate::files::{Files, USUAL_SESSIONS};
use crate::measure::measure;
use crate::server::{Found, Server, TABLE, remove_server_variables};
use crate::{Case, Contender, Run, Rung, machine};
use inrush_core::{Code, Error, Excerpt, Result};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// One run of one contender: what is to be done.
#[derive(Debug)]
pub struct Turn<'t> {
    pub files: &'t Files,
    pub case: &'t Case,
    pub rung: &'t Rung,
    pub sessions: Option<u32>,
    pub contender: &'t Contender,
    /// Rows to load.
    pub rows: u64,
    /// PATH of the contender.
    pub path: &'t OsStr,
    /// The program it finds as `INRUSH`.
    pub inrush: &'t Path,
}

impl Turn<'_> {
    /// Prepares the table, runs the command, looks at what it left. Server, round and `synchronous_commit` of the run
    /// are for the caller to fill in. Without `expected` the rows are only counted.
    pub fn run(&self, server: &Server, expected: Option<&str>) -> Result<(Run, Found)> {
        let contender = self.contender;
        let data = self.files.of_rows(self.rows);
        let scratch = self.files.empty_scratch()?.to_owned();
        let mut before = Found::default();
        if contender.server {
            let mut rung = Cow::Borrowed(self.rung);
            if contender.without_indexes {
                rung.to_mut().index.clear();
            }
            before = server.prepare(&rung, &self.case.columns, &data.text)?;
        }
        let log_path = self.files.dir().join("log");
        let log = File::create(&log_path)
            .and_then(|file| Ok((file.try_clone()?, file)))
            .map_err(|e| Error::new(Code::Output, format!("cannot write {}: {e}", log_path.display())))?;
        let mut command = Command::new("sh");
        if !server.uses_environment() {
            remove_server_variables(&mut command);
        }
        command
            .args(["-c", &contender.command])
            .env("PATH", self.path)
            .env("DSN", server.dsn())
            .envs(server.environment())
            .env("TABLE", TABLE)
            .envs(data.environment(contender.input, self.sessions.unwrap_or(USUAL_SESSIONS)))
            .env("INRUSH", self.inrush)
            .env("SCRATCH", scratch)
            .stdin(Stdio::null())
            .stdout(log.0)
            .stderr(log.1);

        let load_average = machine::load_average();
        let wal_before = server.wal_position()?;
        let (busy_before, server_before) = (machine::busy(), server.cpu());
        let began = Instant::now();
        let taken = measure(&mut command)
            .map_err(|e| Error::new(Code::Internal, format!("sh cannot be run: {e}")))?;
        let (busy_after, server_after) = (machine::busy(), server.cpu());
        if contender.server {
            server.checkpoint()?;
        }
        let durable = began.elapsed();
        // The checkpoint's own record is some hundred bytes.
        let wal = server.wal_position()?.saturating_sub(wal_before);

        let seconds = taken.wall.as_secs_f64();
        let client = (taken.user + taken.system).as_secs_f64();
        let server_cpu = server_before.zip(server_after).map(|(before, after)| after - before);
        let foreign_cores = busy_before.zip(busy_after).map(|(before, after)| {
            ((after - before - client - server_cpu.unwrap_or(0.0)) / seconds.max(0.01)).max(0.0)
        });
        let mut failure = None;
        let mut found = Found::default();
        if !taken.status.success() {
            let text = std::fs::read(&log_path).unwrap_or_default();
            failure = Some(format!("{}: {}", taken.status, Excerpt(text.trim_ascii())));
        } else if contender.server {
            found = server.found(&before)?;
            if found.rows != self.rows {
                failure = Some(format!("{} rows instead of {}", found.rows, self.rows));
            } else if expected.is_some_and(|expected| expected != found.hash) {
                failure = Some("other rows than the baseline's".to_owned());
            }
        }
        let run = Run {
            server: 0,
            rung: self.rung.name.clone(),
            sessions: self.sessions,
            synchronous_commit: String::new(),
            round: 0,
            contender: contender.name.clone(),
            input_bytes: Some(data.bytes(contender.input)),
            seconds,
            durable_seconds: if contender.server { durable.as_secs_f64() } else { seconds },
            client_user_seconds: taken.user.as_secs_f64(),
            client_system_seconds: taken.system.as_secs_f64(),
            client_peak_bytes: taken.peak,
            server_cpu_seconds: server_cpu.filter(|_| contender.server),
            wal_bytes: if contender.server { wal } else { 0 },
            rows: found.rows,
            grown_bytes: Some(found.bytes).filter(|_| contender.server && failure.is_none()),
            load_average,
            foreign_cores,
            failure,
        };
        Ok((run, found))
    }
}
