use crate::files::Files;
use crate::measure::measure;
use crate::record::{Absent, Host, Record, Run, VERSION, output, output_of};
use crate::server::{SCHEMA, Server, remove_server_variables, search_path};
use crate::{Case, Contender, machine};
use inrush_core::{Code, Error, Excerpt, Result};
use inrush_testkit::Installation;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rows instead of the case's.
    pub rows: Option<u64>,
    /// Runs of each contender.
    pub runs: u32,
    /// Servers that run already. Without any, the bench starts its own.
    pub servers: Vec<String>,
    /// Major versions of servers to start; empty: all that are installed.
    pub versions: Vec<u32>,
    /// Contenders whose names contain one of these; empty: all.
    pub only: Vec<String>,
    /// The program that contenders find as `INRUSH`.
    pub inrush: PathBuf,
    /// The command line, for the record.
    pub command: String,
}

/// Runs a case. `tell` takes a line for the user now and then.
///
/// On a server that is named, the schemas `inrush_bench` and `inrush_bench_ledger` are made and removed, and
/// `synchronous_commit` of our own role in that database is set and reset.
pub fn run(mut case: Case, options: &Options, tell: &dyn Fn(&str)) -> Result<Record> {
    case.rows = options.rows.unwrap_or(case.rows);
    if !options.only.is_empty() {
        let baseline = case.baseline.clone();
        case.contenders.retain(|contender| {
            contender.name == baseline || options.only.iter().any(|part| contender.name.contains(part))
        });
        let left = |name: &String| case.contenders.iter().any(|c| c.name == *name);
        case.goals.retain(|goal| left(&goal.contender) && goal.against.as_ref().is_none_or(left));
    }
    if !on_path("psql") {
        return Err(Error::new(Code::Usage, "psql is not on PATH")
            .hint("The baseline of every case is psql: install postgresql-client."));
    }
    tell(&format!("writing {} rows of case {}", case.rows, case.name));
    let files = Files::write(&case, case.rows)?;
    let mut record = Record {
        version: VERSION,
        began: output("date", &["-u", "+%Y-%m-%d %H:%M:%S"]).unwrap_or_default(),
        command: options.command.clone(),
        host: Host::here(files.dir()),
        csv_bytes: files.csv_bytes,
        text_bytes: files.text_bytes,
        servers: Vec::new(),
        versions: BTreeMap::new(),
        absent: Vec::new(),
        runs: Vec::new(),
        case,
    };
    let path = search_path();
    leave_out_the_missing(&mut record, &path);
    let bench = Bench { files: &files, options, path, tell };
    if options.servers.is_empty() {
        let mut versions = options.versions.clone();
        if versions.is_empty() {
            versions = Installation::all().iter().map(Installation::major).collect();
        }
        if versions.is_empty() {
            return Err(Error::new(Code::Local, "no PostgreSQL 15 or newer is installed")
                .hint("Name a server with --server DSN, or run tests/servers.sh."));
        }
        for major in versions {
            tell(&format!("starting PostgreSQL {major}"));
            bench.on(&Server::start(major, &record.case.settings)?, &mut record)?;
        }
    } else {
        for dsn in &options.servers {
            bench.on(&Server::named(dsn)?, &mut record)?;
        }
    }
    Ok(record)
}

fn leave_out_the_missing(record: &mut Record, path: &OsStr) {
    let (absent, versions) = (&mut record.absent, &mut record.versions);
    record.case.contenders.retain(|contender| match contender.needs.iter().find(|name| !on_path(name)) {
        Some(name) => {
            absent.push(Absent {
                contender: contender.name.clone(),
                server: None,
                reason: format!("{name} is not on PATH"),
            });
            false
        }
        None => {
            if let Some(command) = &contender.version
                && let Some(text) = output_of(Command::new("sh").args(["-c", command]).env("PATH", path))
            {
                versions.insert(contender.name.clone(), text);
            }
            true
        }
    });
}

fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

struct Bench<'b> {
    files: &'b Files,
    options: &'b Options,
    /// PATH of the contenders.
    path: OsString,
    tell: &'b dyn Fn(&str),
}

impl Bench<'_> {
    /// All runs on one server.
    fn on(&self, server: &Server, record: &mut Record) -> Result<()> {
        let facts = server.facts()?;
        let version = facts.version.clone();
        record.servers.push(facts);
        let mut contenders = record.case.contenders.clone();
        contenders.retain(|contender| match &contender.extension {
            Some(name) => server
                .make_extension(name)
                .map_err(|reason| {
                    let (contender, server) = (contender.name.clone(), Some(version.clone()));
                    record.absent.push(Absent { contender, server, reason });
                })
                .is_ok(),
            None => true,
        });
        let done = self.rounds(server, &version, &contenders, record);
        // A server that was named is left as it was found, whatever happened.
        let reset = server.set_synchronous_commit(None);
        done.and(reset).and(server.clear())
    }

    fn rounds(
        &self,
        server: &Server,
        version: &str,
        contenders: &[Contender],
        record: &mut Record,
    ) -> Result<()> {
        let place = record.servers.len() - 1;
        let Some(baseline) = contenders.iter().find(|c| c.name == record.case.baseline) else {
            return Err(Error::new(Code::Usage, format!("the baseline {} cannot run", record.case.baseline)));
        };
        for synchronous_commit in record.case.synchronous_commit.clone() {
            server.set_synchronous_commit(Some(&synchronous_commit))?;
            // A server that has just started has WAL files and memory to make; that is nobody's merit.
            let (warm_up, expected) = self.one(server, &record.case, baseline, None)?;
            if let Some(failure) = warm_up.failure {
                return Err(Error::new(Code::Server, format!("{} failed: {failure}", baseline.name)));
            }
            for round in 1..=self.options.runs {
                // Each round begins with another contender: whoever comes after a certain other one does not
                // always.
                let first = (round as usize - 1) % contenders.len();
                for contender in contenders.iter().cycle().skip(first).take(contenders.len()) {
                    let (mut run, _) = self.one(server, &record.case, contender, expected.as_ref())?;
                    run.server = place;
                    run.synchronous_commit.clone_from(&synchronous_commit);
                    run.round = round;
                    (self.tell)(&format!(
                        "PostgreSQL {version}, synchronous_commit {synchronous_commit}, run {round}: \
                         {} {:.2} s{}",
                        run.contender,
                        run.seconds,
                        run.failure
                            .as_ref()
                            .map(|failure| format!(", FAILED: {failure}"))
                            .unwrap_or_default()
                    ));
                    record.runs.push(run);
                }
            }
        }
        Ok(())
    }

    /// One run; with rows and hash of the table after it.
    fn one(
        &self,
        server: &Server,
        case: &Case,
        contender: &Contender,
        expected: Option<&(u64, String)>,
    ) -> Result<(Run, Option<(u64, String)>)> {
        let scratch = self.files.empty_scratch()?.to_owned();
        if contender.server {
            server.prepare(&case.columns)?;
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
            .env("PATH", &self.path)
            .env("DSN", server.dsn())
            .envs(server.environment())
            .env("TABLE", format!("{SCHEMA}.t"))
            .env("CSV", &self.files.csv)
            .env("TEXT", &self.files.text)
            .env("TEXT_1", &self.files.halves[0])
            .env("TEXT_2", &self.files.halves[1])
            .env("INRUSH", &self.options.inrush)
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
        let mut found = None;
        if !taken.status.success() {
            let text = std::fs::read(&log_path).unwrap_or_default();
            failure = Some(format!("{}: {}", taken.status, Excerpt(text.trim_ascii())));
        } else if contender.server {
            let (rows, hash) = server.rows_and_hash()?;
            if rows != case.rows {
                failure = Some(format!("{rows} rows instead of {}", case.rows));
            } else if expected.is_some_and(|expected| expected.1 != hash) {
                failure = Some("other rows than the baseline's".to_owned());
            }
            found = Some((rows, hash));
        }
        let run = Run {
            server: 0,
            synchronous_commit: String::new(),
            round: 0,
            contender: contender.name.clone(),
            seconds,
            durable_seconds: if contender.server { durable.as_secs_f64() } else { seconds },
            client_user_seconds: taken.user.as_secs_f64(),
            client_system_seconds: taken.system.as_secs_f64(),
            client_peak_bytes: taken.peak,
            server_cpu_seconds: server_cpu.filter(|_| contender.server),
            wal_bytes: if contender.server { wal } else { 0 },
            rows: found.as_ref().map_or(0, |found| found.0),
            load_average,
            foreign_cores,
            failure,
        };
        Ok((run, found))
    }
}
