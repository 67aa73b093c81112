use crate::c3::turn::{Stage, Wanted};
use crate::c3::{Case, Contender, Kind, Purpose, Record, VERSION};
use crate::record::output;
use crate::run::{installations, on_path};
use crate::server::{Server, search_path};
use crate::{Absent, Host, c3};
use inrush_core::{Code, Error, Result};
use inrush_testkit::Installation;
use std::path::{Path, PathBuf};

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Turns of each contender.
    pub runs: u32,
    /// Length of each.
    pub seconds: f64,
    /// One turn of this length instead, with questions meanwhile; of serve's first contender, if none is named.
    pub minutes: Option<f64>,
    /// Major versions of servers to start; empty: all that are installed, or for one long turn the newest.
    pub versions: Vec<u32>,
    /// Rungs with these names; empty: all, or for one long turn the first.
    pub rungs: Vec<String>,
    /// Contenders whose names contain one of these; empty: all.
    pub only: Vec<String>,
    /// The program that runs as `inrush serve`.
    pub inrush: PathBuf,
    /// The command line, for the record.
    pub command: String,
}

/// Runs the case on servers of its own. `tell` takes a line for the user now and then.
///
/// # Errors
/// If nothing could be measured.
pub fn run(mut case: Case, options: &Options, tell: &dyn Fn(&str)) -> Result<Record> {
    case.select(&options.rungs, &options.only)?;
    if options.minutes.is_some() {
        if options.rungs.is_empty() {
            case.rungs.truncate(1);
        }
        if options.only.is_empty() {
            let first = case.contenders.iter().position(|one| one.kind == Kind::ServeHttp).unwrap_or(0);
            case.contenders = vec![case.contenders.swap_remove(first)];
        }
        case.goals.clear();
    }
    let mut versions = options.versions.clone();
    if options.minutes.is_some() && versions.is_empty() {
        versions.extend(Installation::all().last().map(Installation::major));
    }
    let mut installations = installations(&versions)?;
    installations.retain(|one| one.block_size() == inrush_testkit::USUAL_BLOCK_SIZE);
    let path = search_path();
    if !on_path("psql", &path) {
        return Err(Error::new(Code::Usage, "psql is not on PATH").hint("Install postgresql-client."));
    }
    let dir = tempfile::Builder::new()
        .prefix("inrush-c3-")
        .tempdir()
        .map_err(|e| Error::new(Code::Output, format!("no place for files: {e}")))?;
    let mut record = Record {
        kind: c3::record::KIND.to_owned(),
        version: VERSION,
        began: output("date", &["-u", "+%Y-%m-%d %H:%M:%S"]).unwrap_or_default(),
        command: options.command.clone(),
        host: Host::here(dir.path()),
        pgbench: None,
        csv_row_bytes: c3::blocks::Block::row_bytes(case.info_bytes) as u64,
        servers: Vec::new(),
        absent: Vec::new(),
        turns: Vec::new(),
        ended_early: None,
        case,
    };
    match on_servers(&installations, options, dir.path(), &mut record, tell) {
        // An hour of turns is not thrown away for the last of them.
        Err(error) if !record.turns.is_empty() => {
            tell(&format!("ended early: {error}"));
            record.ended_early = Some(error.to_string());
        }
        done => done?,
    }
    Ok(record)
}

fn on_servers(
    installations: &[&'static Installation],
    options: &Options,
    dir: &Path,
    record: &mut Record,
    tell: &dyn Fn(&str),
) -> Result<()> {
    for installation in installations {
        tell(&format!("starting {}", installation.wanted()));
        let server = Server::start(installation, &record.case.settings)?;
        let facts = server.facts()?;
        let version = facts.version.clone();
        record.servers.push(facts);
        let mut contenders = record.case.contenders.clone();
        contenders.retain(|contender| match missing(contender, installation, &server) {
            Some(reason) => {
                let (contender, server) = (contender.name.clone(), Some(version.clone()));
                let absent = Absent { rung: None, contender, server, reason };
                tell(&absent.sentence());
                record.absent.push(absent);
                false
            }
            None => true,
        });
        if contenders.iter().any(|one| one.is_pgbench()) && record.pgbench.is_none() {
            let mut command = c3::published::program(installation, "pgbench");
            record.pgbench = crate::record::output_of(command.arg("--version"));
        }
        let case = record.case.clone();
        let stage = Stage { case: &case, installation, server: &server, inrush: &options.inrush, dir };
        for rung in &case.rungs {
            server.set_synchronous_commit(Some(&rung.synchronous_commit))?;
            server.sql(&format!("ALTER SYSTEM SET autovacuum = {}", rung.autovacuum))?;
            server.sql("SELECT pg_reload_conf()")?;
            let turn = |wanted: &Wanted<'_>, round, record: &mut Record| -> Result<()> {
                let mut turn = stage.turn(wanted)?;
                turn.server = record.servers.len() - 1;
                turn.round = round;
                tell(&format!("PostgreSQL {version}, {}: {}", rung.name, c3::show::line(&turn)));
                record.turns.push(turn);
                Ok(())
            };
            let seconds = options.seconds;
            let top = |contender| Wanted { rung, contender, purpose: Purpose::Top, seconds, paced_to: None };
            if let Some(minutes) = options.minutes {
                for contender in &contenders {
                    let seconds = minutes * 60.0;
                    turn(&Wanted { purpose: Purpose::Long, seconds, ..top(contender) }, 1, record)?;
                }
                continue;
            }
            // A server that has just started has WAL files and memory to make: nobody's merit.
            if let Some(first) = contenders.first() {
                stage.turn(&Wanted { seconds: seconds.min(5.0), ..top(first) })?;
            }
            for round in 1..=options.runs {
                // Each round begins with another contender.
                let first = (round as usize - 1) % contenders.len().max(1);
                for contender in contenders.iter().cycle().skip(first).take(contenders.len()) {
                    turn(&top(contender), round, record)?;
                }
            }
            for contender in contenders.iter().filter(|one| one.kind == Kind::ServeHttp) {
                let goals: Vec<_> = case
                    .goals
                    .iter()
                    .filter(|goal| goal.rung == rung.name && goal.contenders.contains(&contender.name))
                    .collect();
                let rate = record.top(record.servers.len() - 1, &rung.name, &contender.name);
                if let Some(rate) = rate
                    && goals.iter().any(|goal| goal.answer_p99_s.is_some())
                {
                    let (purpose, paced_to) = (Purpose::Paced, Some(rate / 2.0));
                    turn(&Wanted { purpose, paced_to, seconds: seconds * 2.0, ..top(contender) }, 1, record)?;
                }
                if goals.iter().any(|goal| goal.brin_pages.is_some()) {
                    // It ends with the size.
                    let (purpose, seconds) = (Purpose::Window, 600.0);
                    turn(&Wanted { purpose, seconds, ..top(contender) }, 1, record)?;
                }
            }
        }
        server.clear()?;
    }
    Ok(())
}

/// Why a contender cannot run on a server.
fn missing(contender: &Contender, installation: &Installation, server: &Server) -> Option<String> {
    if contender.is_pgbench()
        && !installation.bin().join("pgbench").is_file()
        && !on_path("pgbench", &search_path())
    {
        return Some("pgbench is neither with the server nor on PATH".to_owned());
    }
    contender.extension.as_ref().and_then(|name| server.make_extension(name).err())
}

impl Contender {
    fn is_pgbench(&self) -> bool {
        matches!(self.kind, Kind::PgbenchConstants | Kind::PgbenchData)
    }
}
