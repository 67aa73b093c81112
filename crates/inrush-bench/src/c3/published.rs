//! The ways that rows are written to now: pgbench with INSERTs, psql with COPY.

use crate::c3::blocks::{Block, now, time};
use crate::c3::senders;
use crate::c3::{Case, Kind};
use crate::measure;
use crate::random::Random;
use crate::server::{Server, remove_server_variables};
use inrush_core::{Code, Error, Excerpt, Result};
use inrush_testkit::Installation;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// What came of it.
#[derive(Debug)]
pub struct Done {
    pub rows: u64,
    pub seconds: f64,
    pub cpu: f64,
}

/// A program of the server's own, or the one on PATH.
pub fn program(installation: &Installation, name: &str) -> Command {
    if installation.bin().join(name).is_file() { installation.command(name) } else { Command::new(name) }
}

/// The script of all clients.
pub fn script(case: &Case, kind: Kind, schema: &str) -> String {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut info = || {
        let mut text = Vec::new();
        random.hex(&mut text, case.info_bytes);
        String::from_utf8_lossy(&text).into_owned()
    };
    let rows = case.statement_rows;
    let mut script = String::new();
    if kind == Kind::PgbenchConstants {
        // A prepared statement cannot have the name of its table in a variable.
        let info = info();
        for client in 0..case.clients {
            let _ = writeln!(
                script,
                "\\{} :client_id = {client}\nINSERT INTO {schema}.t{client} SELECT now(), '{info}' FROM \
                 generate_series(1, {rows});",
                if client == 0 { "if" } else { "elif" }
            );
        }
        script += "\\endif\n";
    } else {
        script = format!("INSERT INTO {schema}.t:client_id VALUES ");
        let began = now();
        for row in 0..rows {
            let parting = if row == 0 { "" } else { ", " };
            let _ = write!(script, "{parting}('{}', '{}')", time(began + u64::from(row)), info());
        }
        script += ";\n";
    }
    script
}

/// pgbench for some seconds.
pub fn pgbench(
    installation: &Installation,
    server: &Server,
    case: &Case,
    kind: Kind,
    file: &Path,
    seconds: f64,
    counter: &AtomicU64,
) -> Result<Done> {
    let failed = |e: &dyn std::fmt::Display| Error::new(Code::Local, format!("pgbench: {e}"));
    let mut command = program(installation, "pgbench");
    remove_server_variables(&mut command);
    let (clients, rows) = (case.clients, u64::from(case.statement_rows));
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = cores.min(usize::try_from(clients).unwrap_or(1));
    command
        .args(["-n", "-P", "1", "-T", &format!("{}", seconds.ceil()), "-c", &clients.to_string()])
        .args(["-j", &threads.to_string()])
        .args(["-M", if kind == Kind::PgbenchConstants { "prepared" } else { "simple" }])
        .arg("-f")
        .arg(file)
        .envs(server.environment())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| failed(&e))?;
    let (said, mut wrong) = (read_all(child.stdout.take()), String::new());
    if let Some(errors) = child.stderr.take() {
        for line in BufReader::new(errors).lines().map_while(std::result::Result::ok) {
            match transactions(&line) {
                // pgbench says so each second.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rows of a second
                Some(tps) => drop(counter.fetch_add(tps as u64 * rows, Relaxed)),
                None => wrong = wrong + &line + "\n",
            }
        }
    }
    let (status, usage) = measure::wait(&child).map_err(|e| failed(&e))?;
    let said = said.join().unwrap_or_default();
    if !status.success() {
        return Err(failed(&format!("{status}: {}", Excerpt(wrong.trim().as_bytes()))));
    }
    let figure = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().split(['/', ' ']).next()?.parse::<f64>().ok()
    };
    let count = figure("number of transactions actually processed:");
    let Some((count, tps)) = count.zip(figure("tps =")).filter(|(count, _)| *count >= 1.0) else {
        return Err(failed(&format!("no figures: {}", Excerpt(said.as_bytes()))));
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // of days
    let rows = count as u64 * rows;
    // Without the time that connecting took.
    Ok(Done { rows, seconds: count / tps, cpu: measure::cpu_seconds(&usage) })
}

/// Of `progress: 3.0 s, 1234.5 tps, lat ...`.
fn transactions(line: &str) -> Option<f64> {
    let figures = line.strip_prefix("progress:")?;
    figures.split(", ").nth(1)?.strip_suffix(" tps")?.parse().ok()
}

/// Sessions of psql that COPY into one table.
pub fn copy(
    installation: &Installation,
    server: &Server,
    case: &Case,
    table: &str,
    until: Instant,
    stop: &AtomicBool,
    counter: &AtomicU64,
) -> Result<Done> {
    let failed = |e: &dyn std::fmt::Display| Error::new(Code::Local, format!("psql: {e}"));
    let row = Block::row_bytes(case.info_bytes) as u64;
    let block_rows = ((1 << 20) / row).min(case.copy_rows).max(1);
    let block = Block::text(usize::try_from(block_rows).unwrap_or(1), case.info_bytes);
    let blocks = case.copy_rows / block_rows;
    let began = Instant::now();
    let session = || -> Result<(u64, f64)> {
        let mut command = program(installation, "psql");
        remove_server_variables(&mut command);
        let mut child = command
            .args(["-XAt", "-v", "ON_ERROR_STOP=1", "-d", server.dsn()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| failed(&e))?;
        let errors = read_all(child.stderr.take());
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&"no pipes"));
        };
        let mut block = block.clone();
        let written = thread::scope(|scope| {
            let writer = scope.spawn(move || -> std::io::Result<u64> {
                let mut rows = 0;
                while Instant::now() < until && !stop.load(Relaxed) {
                    writeln!(input, "COPY {table} FROM STDIN;")?;
                    for _ in 0..blocks {
                        block.stamp(now());
                        input.write_all(block.bytes())?;
                        rows += block.rows;
                    }
                    writeln!(input, "\\.")?;
                }
                Ok(rows)
            });
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                let rows = line.strip_prefix("COPY ").and_then(|rows| rows.parse().ok());
                counter.fetch_add(rows.unwrap_or(0), Relaxed);
            }
            writer.join()
        });
        let (status, usage) = measure::wait(&child).map_err(|e| failed(&e))?;
        match written {
            Ok(Ok(rows)) if status.success() => Ok((rows, measure::cpu_seconds(&usage))),
            _ => Err(failed(&format!("{status}: {}", errors.join().unwrap_or_default().trim()))),
        }
    };
    let sessions: Vec<Result<(u64, f64)>> = thread::scope(|scope| {
        let running: Vec<_> = (0..case.copy_sessions).map(|_| scope.spawn(session)).collect();
        running.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(failed(&"a thread died")))).collect()
    });
    let (mut rows, mut cpu) = (0, 0.0);
    for session in sessions {
        let (more, seconds) = session?;
        rows += more;
        cpu += seconds;
    }
    Ok(Done { rows, seconds: began.elapsed().as_secs_f64(), cpu })
}

/// Standard input of serve.
pub fn stdin(
    serve: &mut crate::c3::serve::Serve,
    case: &Case,
    until: Instant,
    stop: &AtomicBool,
    counter: &AtomicU64,
) -> Result<Done> {
    let failed = |e: &dyn std::fmt::Display| Error::new(Code::Local, format!("inrush serve: {e}"));
    let mut input = serve.stdin().ok_or_else(|| failed(&"no pipe"))?;
    let row = Block::row_bytes(case.info_bytes);
    let mut block = Block::csv(((1 << 20) / row).max(1), case.info_bytes, false);
    let (began, cpu) = (Instant::now(), measure::own_cpu_seconds());
    let ended = AtomicBool::new(false);
    let rows = thread::scope(|scope| {
        let serve = &*serve;
        let (stopped, ended) = (stop, &ended);
        scope.spawn(move || {
            while !ended.load(Relaxed) && !stopped.load(Relaxed) {
                if let Some(rows) = serve.rows() {
                    counter.fetch_max(rows, Relaxed);
                }
                thread::sleep(Duration::from_millis(250));
            }
        });
        let rows = senders::pipe(&mut input, b"crt_time,info\n", &mut block, until, stop);
        ended.store(true, Relaxed);
        rows
    });
    drop(input);
    let rows = rows.map_err(|e| failed(&format!("{e}: {}", serve.said())))?;
    let cpu = measure::own_cpu_seconds() - cpu;
    Ok(Done { rows, seconds: began.elapsed().as_secs_f64(), cpu })
}

fn read_all<R: Read + Send + 'static>(pipe: Option<R>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_progress_of_pgbench() {
        let line = "progress: 3.0 s, 1234.5 tps, lat 0.8 ms stddev 0.1, 0 failed";
        assert_eq!(transactions(line), Some(1234.5));
        assert_eq!(transactions("pgbench (18.0)"), None);
    }

    #[test]
    fn a_statement_has_its_rows() {
        let case = Case::built_in().unwrap();
        let data = script(&case, Kind::PgbenchData, "s");
        assert_eq!(data.matches("('").count(), 178);
        assert!(data.len() > 178 * 350 && data.lines().count() == 1);
        let constants = script(&case, Kind::PgbenchConstants, "s");
        assert_eq!(constants.matches("generate_series(1, 178)").count(), 8);
    }
}
