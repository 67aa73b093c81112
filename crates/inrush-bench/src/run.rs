use crate::files::Files;
use crate::record::{Absent, Host, Record, VERSION, output, output_of};
use crate::server::{Server, search_path};
use crate::turn::Turn;
use crate::{Case, Contender, Rung};
use inrush_core::{Code, Error, Result};
use inrush_testkit::Installation;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

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
    /// Rungs with these names; empty: all.
    pub rungs: Vec<String>,
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
    if let Some(rows) = options.rows {
        case.set_rows(rows);
    }
    case.select_rungs(&options.rungs)?;
    case.select_contenders(&options.only);
    let path = search_path();
    if !on_path("psql", &path) {
        return Err(Error::new(Code::Usage, "psql is not on PATH")
            .hint("The baseline of every case is psql: install postgresql-client."));
    }
    let (mut absent, mut versions) = (Vec::new(), BTreeMap::new());
    case.contenders.retain(|contender| match missing(contender, &path) {
        Some(reason) => {
            absent.push(Absent { rung: None, contender: contender.name.clone(), server: None, reason });
            false
        }
        None => {
            if let Some(command) = &contender.version
                && let Some(text) = output_of(Command::new("sh").args(["-c", command]).env("PATH", &path))
            {
                versions.insert(contender.name.clone(), text);
            }
            true
        }
    });
    tell(&format!("writing {} rows of case {}", case.rows, case.name));
    let files = Files::write(&case)?;
    let whole = files.of_rows(case.rows);
    let mut record = Record {
        version: VERSION,
        began: output("date", &["-u", "+%Y-%m-%d %H:%M:%S"]).unwrap_or_default(),
        command: options.command.clone(),
        host: Host::here(files.dir()),
        csv_bytes: whole.csv_bytes,
        text_bytes: whole.text_bytes,
        servers: Vec::new(),
        versions,
        absent,
        runs: Vec::new(),
        ended_early: None,
        case,
    };
    let bench = Bench { files: &files, options, path, tell };
    let done = if options.servers.is_empty() {
        bench.on_own_servers(&mut record)
    } else {
        options.servers.iter().try_for_each(|dsn| bench.on_named(&Server::named(dsn)?, &mut record))
    };
    match done {
        // An hour of runs is not thrown away for the last of them.
        Err(error) if !record.runs.is_empty() => {
            tell(&format!("ended early: {error}"));
            record.ended_early = Some(error.to_string());
        }
        done => done?,
    }
    Ok(record)
}

/// Why a contender cannot run on this machine.
fn missing(contender: &Contender, path: &OsStr) -> Option<String> {
    let name = contender.needs.iter().find(|name| !on_path(name, path))?;
    Some(format!("{name} is not on PATH"))
}

pub(crate) fn on_path(program: &str, path: &OsStr) -> bool {
    std::env::split_paths(path).any(|dir| dir.join(program).is_file())
}

/// The installations to start, by the size of their blocks: those of the versions that are wanted.
pub(crate) fn installations(versions: &[u32]) -> Result<Vec<&'static Installation>> {
    let known = Installation::all();
    if let Some(major) = versions.iter().find(|major| !known.iter().any(|one| one.major() == **major)) {
        let known: Vec<_> = known.iter().map(|one| one.major().to_string()).collect();
        return Err(Error::new(Code::Local, format!("PostgreSQL {major} is not installed"))
            .hint(format!("Found here: {}. tests/servers.sh fetches 16 and 18.", known.join(", "))));
    }
    if known.is_empty() {
        return Err(Error::new(Code::Local, "no PostgreSQL 15 or newer is installed")
            .hint("Name a server with --server DSN, or run tests/servers.sh."));
    }
    Ok(known
        .iter()
        .chain(Installation::with_other_blocks())
        .filter(|one| versions.is_empty() || versions.contains(&one.major()))
        .collect())
}

struct Bench<'b> {
    files: &'b Files,
    options: &'b Options,
    /// PATH of the contenders.
    path: OsString,
    tell: &'b dyn Fn(&str),
}

impl Bench<'_> {
    /// Starts servers that every rung finds what it needs on, one after the other.
    fn on_own_servers(&self, record: &mut Record) -> Result<()> {
        let installations = installations(&self.options.versions)?;
        let rungs = record.case.each_rung();
        for rung in &rungs {
            if !installations.iter().any(|one| one.block_size() == rung.block_size) {
                let kib = rung.block_size / 1024;
                let other =
                    Installation::with_other_blocks().iter().any(|one| one.block_size() == rung.block_size);
                let reason = if other {
                    format!("the server with {kib} KB blocks is of a version that was not asked for")
                } else {
                    format!("no server with {kib} KB blocks is here (make postgres-32k builds one with 32)")
                };
                self.leave_out(record, rung, None, reason);
            }
        }
        for installation in installations {
            let mut left: Vec<Rung> =
                rungs.iter().filter(|rung| rung.block_size == installation.block_size()).cloned().collect();
            // A server for each set of settings; most rungs have those of the case.
            while let Some(first) = left.first() {
                let own = first.settings.clone();
                let (now, later) = left.into_iter().partition(|rung: &Rung| rung.settings == own);
                left = later;
                (self.tell)(&format!("starting {}", installation.wanted()));
                let mut settings = record.case.settings.clone();
                settings.extend(own);
                self.on(&Server::start(installation, &settings)?, &now, record)?;
            }
        }
        Ok(())
    }

    /// On a server that runs already, whatever it can do.
    fn on_named(&self, server: &Server, record: &mut Record) -> Result<()> {
        let facts = server.facts()?;
        let mut rungs = Vec::new();
        for rung in record.case.each_rung() {
            let reason = if rung.block_size != facts.block_size {
                format!("the server has blocks of {} bytes instead of {}", facts.block_size, rung.block_size)
            } else if !rung.settings.is_empty() {
                "the server would need other settings".to_owned()
            } else {
                rungs.push(rung);
                continue;
            };
            self.leave_out(record, &rung, Some(facts.version.clone()), reason);
        }
        if rungs.is_empty() { Ok(()) } else { self.on(server, &rungs, record) }
    }

    fn leave_out(&self, record: &mut Record, rung: &Rung, server: Option<String>, reason: String) {
        let absent = Absent { rung: Some(rung.name.clone()), contender: String::new(), server, reason };
        (self.tell)(&absent.sentence());
        record.absent.push(absent);
    }

    /// All runs of these rungs on one server.
    fn on(&self, server: &Server, rungs: &[Rung], record: &mut Record) -> Result<()> {
        let facts = server.facts()?;
        let version = facts.version.clone();
        record.servers.push(facts);
        let mut contenders = record.case.contenders.clone();
        contenders.retain(|contender| rungs.iter().any(|rung| rung.has(&contender.name)));
        contenders.retain(|contender| match &contender.extension {
            Some(name) => server
                .make_extension(name)
                .map_err(|reason| {
                    let (contender, server) = (contender.name.clone(), Some(version.clone()));
                    record.absent.push(Absent { rung: None, contender, server, reason });
                })
                .is_ok(),
            None => true,
        });
        let done = self.climb(server, rungs, &contenders, record);
        // A server that was named is left as it was found, whatever happened.
        let reset = server.set_synchronous_commit(None);
        done.and(reset).and(server.clear())
    }

    /// Rung by rung, with each value of `synchronous_commit` and each number of sessions.
    fn climb(
        &self,
        server: &Server,
        rungs: &[Rung],
        contenders: &[Contender],
        record: &mut Record,
    ) -> Result<()> {
        // The hash of so many rows on this server, whatever the table is like.
        let mut hashes: BTreeMap<u64, String> = BTreeMap::new();
        for rung in rungs {
            let contenders: Vec<&Contender> = contenders.iter().filter(|c| rung.has(&c.name)).collect();
            let baseline = record.case.baseline_of(rung);
            let Some(baseline) = contenders.iter().find(|c| c.name == baseline) else {
                return Err(Error::new(Code::Usage, format!("the baseline {baseline} cannot run")));
            };
            for synchronous_commit in record.case.synchronous_commit_of(rung).to_vec() {
                server.set_synchronous_commit(Some(&synchronous_commit))?;
                let each_sessions = rung.each_sessions();
                let mut sizes = vec![record.case.rows_of(rung)];
                sizes.extend(contenders.iter().map(|c| record.case.rows_for(rung, c)));
                sizes.dedup();
                for (i, rows) in sizes.into_iter().enumerate() {
                    // A server that has just started has WAL files and memory to make; that is nobody's merit. And
                    // whoever loads other rows must have some to be compared with.
                    if i > 0 && hashes.contains_key(&rows) {
                        continue;
                    }
                    let turn = self.turn(record, rung, each_sessions[0], baseline, rows);
                    let (warm_up, found) = turn.run(server, hashes.get(&rows).map(String::as_str))?;
                    if let Some(failure) = warm_up.failure {
                        let name = &baseline.name;
                        return Err(Error::new(Code::Server, format!("{name} failed: {failure}")));
                    }
                    hashes.insert(rows, found.hash);
                }
                for sessions in each_sessions {
                    self.rounds(server, rung, sessions, &synchronous_commit, &contenders, &hashes, record)?;
                }
            }
        }
        Ok(())
    }

    /// The contenders in turns.
    #[allow(clippy::too_many_arguments)] // each is a coordinate of the runs
    fn rounds(
        &self,
        server: &Server,
        rung: &Rung,
        sessions: Option<u32>,
        synchronous_commit: &str,
        contenders: &[&Contender],
        hashes: &BTreeMap<u64, String>,
        record: &mut Record,
    ) -> Result<()> {
        for round in 1..=self.options.runs {
            // Each round begins with another contender: whoever comes after a certain other one does not always.
            let first = (round as usize - 1) % contenders.len();
            for contender in contenders.iter().cycle().skip(first).take(contenders.len()) {
                let rows = record.case.rows_for(rung, contender);
                let turn = self.turn(record, rung, sessions, contender, rows);
                let (mut run, _) = turn.run(server, hashes.get(&rows).map(String::as_str))?;
                run.server = record.servers.len() - 1;
                synchronous_commit.clone_into(&mut run.synchronous_commit);
                run.round = round;
                let failure = run.failure.as_ref().map(|failure| format!(", FAILED: {failure}"));
                let line = format!(
                    "run {round}: {} {:.2} s{}",
                    run.contender,
                    run.seconds,
                    failure.unwrap_or_default()
                );
                record.runs.push(run);
                let place = record.runs[record.runs.len() - 1].place();
                (self.tell)(&format!("{}, {line}", record.title(&place)));
            }
        }
        Ok(())
    }

    fn turn<'t>(
        &'t self,
        record: &'t Record,
        rung: &'t Rung,
        sessions: Option<u32>,
        contender: &'t Contender,
        rows: u64,
    ) -> Turn<'t> {
        Turn {
            files: self.files,
            case: &record.case,
            rung,
            sessions,
            contender,
            rows,
            path: &self.path,
            inrush: &self.options.inrush,
        }
    }
}
