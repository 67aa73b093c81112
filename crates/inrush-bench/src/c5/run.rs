use crate::c5::server::Server;
use crate::c5::storage::Storage;
use crate::c5::turn::{Stage, Wanted};
use crate::c5::{Asked, Case, Curve, KIND, Record, Rung, Setup, Stored, Turn, VERSION, predict, show};
use crate::random::Random;
use crate::record::output;
use crate::run::{installations, on_path};
use crate::server::search_path;
use crate::{Absent, Host};
use inrush_core::{Code, Error, Result};
use inrush_testkit::{USUAL_BLOCK_SIZE, slow_disk};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What directories of a bench are called; its process follows.
const PREFIX: &str = "inrush-c5-";

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Turns of each scan instead of the rung's.
    pub runs: Option<u32>,
    /// Rows of the published table instead of the case's; the others have as many less.
    pub rows: Option<u64>,
    /// Major versions of servers to start; empty: all of the case that are installed.
    pub versions: Vec<u32>,
    /// Rungs with these names; empty: all that can be had.
    pub rungs: Vec<String>,
    /// Scans whose names contain one of these; empty: all.
    pub only: Vec<String>,
    /// The program that is asked as `inrush tune io`.
    pub inrush: PathBuf,
    /// The command line, for the record.
    pub command: String,
}

/// Runs the case on servers of its own. `tell` takes a line for the user now and then.
///
/// # Errors
/// If nothing could be measured.
pub fn run(mut case: Case, options: &Options, tell: &dyn Fn(&str)) -> Result<Record> {
    if let Some(rows) = options.rows {
        case.set_rows(rows);
    }
    case.select(&options.rungs, &options.versions, &options.only)?;
    if !on_path("psql", &search_path()) {
        return Err(Error::new(Code::Usage, "psql is not on PATH").hint("Install postgresql-client."));
    }
    // What a killed bench has left may be in the way.
    slow_disk::clean_up()
        .map_err(|e| Error::new(Code::Local, format!("storage of a bench that was killed: {e}")))?;
    remove_left(&std::env::temp_dir());
    let dir = tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", std::process::id()))
        .tempdir()
        .and_then(|dir| fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).map(|()| dir))
        .map_err(|e| Error::new(Code::Output, format!("no place for files: {e}")))?;
    let mut record = Record {
        kind: KIND.to_owned(),
        version: VERSION,
        began: output("date", &["-u", "+%Y-%m-%d %H:%M:%S"]).unwrap_or_default(),
        command: options.command.clone(),
        host: Host::here(dir.path()),
        servers: std::collections::BTreeMap::new(),
        absent: Vec::new(),
        storage: Vec::new(),
        turns: Vec::new(),
        predictions: Vec::new(),
        ended_early: None,
        case,
    };
    match on_servers(options, dir.path(), &mut record, tell) {
        // Minutes of turns are not thrown away for the last of them.
        Err(error) if !record.turns.is_empty() => {
            tell(&format!("ended early: {error}"));
            record.ended_early = Some(error.to_string());
        }
        done => done?,
    }
    if record.turns.is_empty() {
        let reasons: Vec<_> = record.absent.iter().map(Absent::sentence).collect();
        return Err(Error::new(Code::Usage, format!("nothing could be run: {}", reasons.join("; "))));
    }
    record.predictions = predict::all(&record);
    Ok(record)
}

/// Removes what benches that were killed have left: a gigabyte each. What cannot be removed is not ours.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse().ok());
        let dead = pid.and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH));
        if dead {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn on_servers(options: &Options, dir: &Path, record: &mut Record, tell: &dyn Fn(&str)) -> Result<()> {
    let mut versions: Vec<u32> = record.case.servers.iter().map(|setup| setup.version).collect();
    versions.dedup();
    for version in versions {
        let found = installations(&[version])
            .map(|all| all.into_iter().find(|one| one.block_size() == USUAL_BLOCK_SIZE));
        let installation = match found {
            Ok(Some(installation)) => installation,
            Ok(None) => continue,
            Err(error) => {
                let server = Some(version.to_string());
                let absent = Absent {
                    rung: None,
                    contender: "every scan".to_owned(),
                    server,
                    reason: error.to_string(),
                };
                tell(&absent.sentence());
                record.absent.push(absent);
                continue;
            }
        };
        tell(&format!("starting {}", installation.wanted()));
        let server = Server::start(installation)?;
        record.servers.insert(version, server.facts()?);
        let mut lacking = Vec::new();
        for setup in record.case.servers.iter().filter(|setup| setup.version == version) {
            if let Some(reason) = server.lacks(setup)? {
                let absent = Absent { rung: None, contender: setup.name.clone(), server: None, reason };
                tell(&absent.sentence());
                lacking.push(absent);
            }
        }
        let missing: Vec<String> = lacking.iter().map(|absent| absent.contender.clone()).collect();
        record.absent.extend(lacking);
        for rung in record.case.rungs.clone() {
            on_rung(&server, version, &rung, &missing, options, dir, record, tell)?;
        }
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)] // what a version's rung needs to know
fn on_rung(
    server: &Server,
    version: u32,
    rung: &Rung,
    missing: &[String],
    options: &Options,
    dir: &Path,
    record: &mut Record,
    tell: &dyn Fn(&str),
) -> Result<()> {
    let here = |setup: &&Setup| setup.version == version && !missing.contains(&setup.name);
    let mut setups: Vec<Setup> =
        rung.servers.iter().filter_map(|name| record.case.server(name)).filter(here).cloned().collect();
    let Some(first) = setups.first().cloned() else { return Ok(()) };
    let place = dir.join(version.to_string());
    let storage = match make(rung, &place) {
        Ok(storage) => storage,
        Err(reason) => {
            let absent =
                Absent { rung: Some(rung.name.clone()), contender: String::new(), server: None, reason };
            if !record.absent.iter().any(|known| known.sentence() == absent.sentence()) {
                tell(&format!("SKIPPED: {}", absent.sentence()));
                record.absent.push(absent);
            }
            return Ok(());
        }
    };
    let tables = record.case.tables_of(rung);
    tell(&format!(
        "PostgreSQL {version}, {}: writing {} rows, {} and {}",
        rung.name, tables.tbx, tables.events, tables.lineitem
    ));
    server.fill(&rung.name, &storage, tables)?;
    let stored = measure(server, &first, rung, &storage, record.case.fio_ms, options, dir, tell)?;
    let advised = stored.asked.concurrency();
    if let Some(workers) = stored.asked.advised("io_workers").filter(|_| version >= 18) {
        let setup = record.case.add_workers(rung, &first, &workers);
        if !setups.iter().any(|one| one.name == setup.name) {
            setups.push(setup);
        }
    }
    record.storage.push(stored);
    let stage = Stage { rung, tables, server, storage: &storage, files: server.files(&rung.name)? };
    // A server that has just started, and tables that nobody has read.
    let scans = record.case.scans.clone();
    let all = turns_of(&scans, rung, &setups, advised);
    for round in 1..=options.runs.unwrap_or(rung.runs) {
        let mut order: Vec<usize> = (0..all.len()).collect();
        shuffle(&mut order, u64::from(round) << 8 | u64::from(version));
        for place in order {
            let (wanted, recommended_only) = &all[place];
            let wanted = Wanted { warm: round == 1, ..wanted.clone() };
            let turn = Turn { round, recommended_only: *recommended_only, ..stage.turn(&wanted)? };
            tell(&show::line(&turn));
            record.turns.push(turn);
        }
    }
    // Running processes have files open there, the server's working directory is elsewhere.
    server.restart(&first, &storage)?;
    server.empty(&rung.name)
}

fn make(rung: &Rung, place: &Path) -> Result<Storage, String> {
    let made = fs::create_dir_all(place)
        .and_then(|()| fs::set_permissions(place, fs::Permissions::from_mode(0o755)));
    made.map_err(|e| e.to_string())?;
    Storage::make(rung, place)
}

/// What fio and `inrush tune io` find, with tables in place and nothing else at work.
#[allow(clippy::too_many_arguments)] // what is measured, how, and who is told
fn measure(
    server: &Server,
    setup: &Setup,
    rung: &Rung,
    storage: &Storage,
    fio_ms: u32,
    options: &Options,
    dir: &Path,
    tell: &dyn Fn(&str),
) -> Result<Stored> {
    server.restart(setup, storage)?;
    tell(&format!("{}, {}: measuring the storage", rung.name, setup.name));
    let mut fio = Curve::default();
    storage.settle()?;
    fio.pass(storage, fio_ms);
    storage.settle()?;
    let asked = match readable(&options.inrush, dir) {
        Ok(program) => Asked::about(&program, &server.dsn(), &format!("c5_{}", rung.name), storage),
        Err(reason) => Asked::without(reason),
    };
    fio.pass(storage, fio_ms);
    if let Some(reason) = &asked.absent {
        tell(&format!("no recommendation: {reason}"));
    }
    Ok(Stored {
        rung: rung.name.clone(),
        server: setup.name.clone(),
        counted: storage.counted(),
        bytes: server.sizes(&rung.name)?,
        fio,
        asked,
    })
}

/// The program where the server's account may run it: the directory it is in may be closed to others.
fn readable(inrush: &Path, dir: &Path) -> Result<PathBuf, String> {
    let copy = dir.join("inrush");
    if !copy.exists() {
        fs::copy(inrush, &copy).map_err(|e| format!("{} cannot be copied: {e}", inrush.display()))?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
    }
    Ok(copy)
}

/// Everything that has a turn in a round, and whether only for the recommendation's sake.
fn turns_of<'a>(
    scans: &'a [crate::c5::Scan],
    rung: &Rung,
    setups: &'a [Setup],
    advised: Option<u32>,
) -> Vec<(Wanted<'a>, bool)> {
    let mut all = Vec::new();
    for setup in setups {
        for scan in scans {
            let values = scan.values(rung, setup);
            let further = advised.filter(|value| scan.recommended && !values.contains(&Some(*value)));
            let both = values
                .into_iter()
                .map(|value| (value, false))
                .chain(further.map(|value| (Some(value), true)));
            all.extend(
                both.map(|(concurrency, only)| (Wanted { setup, scan, concurrency, warm: false }, only)),
            );
        }
    }
    all
}

/// Another order each time, and the same in each run of the bench (Fisher and Yates).
fn shuffle(places: &mut [usize], seed: u64) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
    for last in (1..places.len()).rev() {
        let other = usize::try_from(random.next() % (last as u64 + 1)).unwrap_or(0);
        places.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_have_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let name = |pid: u32| dir.path().join(format!("{PREFIX}{pid}-abc"));
        let others =
            [name(std::process::id()), dir.path().join("inrush-c5-x"), dir.path().join("inrush-c55-1-x")];
        for path in others.iter().chain([&name(child.id())]) {
            fs::create_dir(path).unwrap();
            fs::write(path.join("f"), "").unwrap();
        }
        remove_left(dir.path());
        assert!(others.iter().all(|path| path.join("f").exists()) && !name(child.id()).exists());
    }

    #[test]
    fn every_turn_has_its_place_in_every_order() {
        let order = |seed| {
            let mut places: Vec<usize> = (0..40).collect();
            shuffle(&mut places, seed);
            places
        };
        let (mut first, second) = (order(1), order(2));
        assert!(first != second && first == order(1));
        first.sort_unstable();
        assert!(first.into_iter().eq(0..40));
    }
}
