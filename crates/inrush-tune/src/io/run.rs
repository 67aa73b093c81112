//! One run of `inrush tune io`: finds what is to be measured, measures it in the way that is possible, and judges.

use super::advice::{self, Context, Judged};
use super::in_database;
use super::keep::{Kept, Key, Store};
use super::measured::{Measured, Mechanism, StopReason};
use super::model::MOST_WORKERS;
use super::probe::{self, Progress};
use super::report::{Before, DiskShare, Report, Server, TablespaceOption, Target, VERSION};
use super::server::{self, Space, writable_directory};
use super::storage;
use super::verdict::Verdict;
use crate::advise::ServerFacts;
use crate::files;
use inrush_core::{Code, Error, Result};
use inrush_sink::conninfo::{ConnInfo, Endpoint};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tokio_postgres::Client;

/// How a probe can be had where this account cannot make one.
const ON_THE_MACHINE: &str = "On the server's machine its account can measure (`sudo -u postgres inrush tune io --to dbname=postgres`), and \
                              anybody with --path to a directory on the same file system.";

/// What is wanted.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// These tablespaces; none: all of them.
    pub tablespaces: Vec<String>,
    /// A directory on the storage of the tablespace, where its own cannot be written into; or any, without a server.
    pub path: Option<PathBuf>,
    /// The table to read from where only the server can be asked.
    pub table: Option<String>,
    /// Seconds of a probe.
    pub seconds: f64,
    /// Whether to put what was measured last beside it.
    pub verify: bool,
    /// Where measurements are kept.
    pub store: Option<Store>,
}

/// A server to look at.
pub struct Connection<'a> {
    /// The session.
    pub client: &'a mut Client,
    /// How others are opened.
    pub conninfo: &'a ConnInfo,
    /// What the server has told.
    pub facts: &'a ServerFacts,
}

/// Measures a directory, without a server. What it means for PostgreSQL until 17 and since 18, both as they are by
/// default, is two targets of one measurement.
///
/// # Errors
/// Those of the probe.
pub fn directory(
    request: &Request,
    path: &Path,
    ended: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let mechanisms = vec![
        Mechanism::Advice,
        Mechanism::Workers { workers: 3 },
        Mechanism::Workers { workers: MOST_WORKERS },
    ];
    let measured = probe::run(&plan(request, path, mechanisms), None, ended, progress)?;
    let verdict = Verdict::of(&measured);
    let key = Key::directory(&path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    let mut target = target(None, &measured, verdict);
    target.before = before(request, &key, &target, &[]);
    let mut judged = Judged::default();
    for (version_num, versions, io_method) in
        [(170_000, "PostgreSQL 15 to 17", None), (180_000, "PostgreSQL 18", Some("worker"))]
    {
        let server = Server {
            version_num,
            io_method: io_method.map(str::to_owned),
            io_workers: io_method.map(|_| 3),
            ..Server::default()
        };
        let context = Context {
            measured: &measured,
            verdict: &target.verdict,
            server: &server,
            versions: Some(versions),
            tablespace: None,
        };
        let mut of = advice::judge(&context);
        for one in std::mem::take(&mut of.advice) {
            match judged.advice.iter_mut().find(|other| same(&one, other)) {
                // Of every version.
                Some(other) => other.versions = None,
                None => judged.advice.push(one),
            }
        }
        of.right.retain(|one| !judged.right.iter().any(|other| other.setting == one.setting));
        judged.right.append(&mut of.right);
        of.undecided.retain(|one| !judged.undecided.iter().any(|other| other.setting == one.setting));
        judged.undecided.append(&mut of.undecided);
        if judged.scans.is_empty() {
            (judged.scans, judged.dense) = (of.scans, of.dense);
        }
    }
    fill(&mut target, judged);
    let mut notes = Vec::new();
    keep(request, &key, &target, Vec::new(), &mut notes);
    Ok(report(None, vec![target], notes))
}

/// Whether two advices, of two versions, are the same: then it is given once, for both.
fn same(one: &advice::Advice, other: &advice::Advice) -> bool {
    let device = |advice: &advice::Advice| matches!(advice.place, advice::Place::Device { .. });
    one.setting == other.setting && (device(one) || one.setting == "random_page_cost")
}

/// Measures the tablespaces of a server.
///
/// # Errors
/// `server` where a tablespace does not exist, or a statement fails that everybody may give. A tablespace that cannot be
/// measured is no error: the report says why.
pub async fn server(
    request: &Request,
    connection: Connection<'_>,
    ended: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let Connection { client, conninfo, facts } = connection;
    let (mut server, spaces) = server::read(client, facts).await?;
    let wanted = wanted(request, spaces)?;
    let mut notes = Vec::new();
    let mut targets: Vec<Target> = Vec::new();
    let mut asked = None;
    for space in wanted {
        let way = Way::of(request, &space, facts);
        let known = match &way {
            Way::Named(path) => same_storage(path, &space, facts, conninfo),
            Way::Probe(_) | Way::Server(_) => Some(true),
        };
        let measured = match way {
            Way::Named(path) if known == Some(false) => Err(Error::new(
                Code::Usage,
                format!("{} is not on the storage of tablespace {}", path.display(), space.tablespace.name),
            )
            .hint("Name a directory on the file system that the tablespace is on.")),
            Way::Probe(directory) | Way::Named(directory) => match already(&targets, &directory) {
                Some(measured) => Ok(measured),
                None => {
                    let plan = plan(request, &directory, mechanisms(&server));
                    probe::run(&plan, Some(conninfo), ended, progress)
                }
            },
            Way::Server(why) => {
                // One table is read, and says something of its own tablespace only.
                let told = match asked.take() {
                    Some(told) => told,
                    None => ask(request, conninfo, &server, ended, progress).await,
                };
                match told {
                    Ok((tablespace, measured)) if tablespace == space.tablespace.name => Ok(measured),
                    Ok(other) => {
                        let fact =
                            format!("{why}; the table that could be read is in tablespace {}", other.0);
                        asked = Some(Ok(other));
                        Err(Error::new(Code::Server, fact))
                    }
                    Err(error) => {
                        let both = Error::new(error.code(), format!("{why}; {}", error.fact()));
                        let hint = error.hint_text().map_or_else(String::new, |hint| format!(" {hint}"));
                        asked = Some(Err(error));
                        Err(both.hint(format!("{ON_THE_MACHINE}{hint}")))
                    }
                }
            }
        };
        let mut target = match measured {
            Ok(measured) => {
                learn(client, facts, &space, &mut server, &measured).await?;
                let verdict = Verdict::of(&measured);
                let mut target = target(Some(&space), &measured, verdict);
                let settings = held(&space);
                let key = key(facts, conninfo, &space.tablespace.name);
                target.before = before(request, &key, &target, &settings);
                if known.is_some() {
                    keep(request, &key, &target, settings, &mut notes);
                } else {
                    notes.push(format!(
                        "whether {} is on the storage of tablespace {} cannot be seen from here: nothing of it is \
                         kept, and --apply sets nothing",
                        measured.storage.directory, space.tablespace.name
                    ));
                }
                target
            }
            Err(error) => unmeasured(&space, &error),
        };
        if let Some(measured) = target.measured.clone() {
            let context = Context {
                measured: &measured,
                verdict: &target.verdict,
                server: &server,
                versions: None,
                tablespace: Some(&space.tablespace),
            };
            let mut judged = advice::judge(&context);
            if known.is_none() {
                let unseen = format!(
                    "whether {} is on the storage of tablespace {} cannot be seen by this role from here",
                    measured.storage.directory, space.tablespace.name
                );
                let own = judged.advice.iter_mut().filter(|one| one.applied && one.obstacle.is_none());
                own.for_each(|one| one.obstacle = Some(unseen.clone()));
            }
            fill(&mut target, judged);
        }
        // The server has one number of workers, whatever it has of tablespaces.
        let said: Vec<_> =
            targets.iter().flat_map(|one| &one.advice).filter(|one| system(one)).cloned().collect();
        target.advice.retain(|one| !system(one) || !said.iter().any(|other| other.setting == one.setting));
        let interrupted = target
            .measured
            .as_ref()
            .and_then(|measured| measured.stopped.as_ref())
            .is_some_and(|stop| stop.reason == StopReason::Interrupted);
        targets.push(target);
        if interrupted {
            break;
        }
    }
    notes.extend(facts.standby.then(|| {
        "the server is a standby: options of tablespaces are set on its primary, and hold here too".to_owned()
    }));
    Ok(report(Some(server), targets, notes))
}

/// How a tablespace can be measured.
enum Way {
    /// By a probe of this directory, which is the tablespace's.
    Probe(PathBuf),
    /// By a probe of a directory that somebody has named.
    Named(PathBuf),
    /// Through the server; why not by a probe.
    Server(String),
}

impl Way {
    fn of(request: &Request, space: &Space, facts: &ServerFacts) -> Way {
        if let Some(path) = &request.path {
            return Way::Named(path.clone());
        }
        let name = &space.tablespace.name;
        let Some(directory) = &space.directory else {
            return Way::Server(format!("this role may not see where tablespace {name} is"));
        };
        if facts.machine.is_none() {
            return Way::Server(format!(
                "{} is not on this machine, or this account may not look into the server's directory",
                directory.display()
            ));
        }
        let directory = writable_directory(directory, facts.version_num);
        match rustix::fs::access(&directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
            Ok(()) => Way::Probe(directory),
            Err(e) => Way::Server(format!("{} cannot be written into: {e}", directory.display())),
        }
    }
}

/// Whether a directory is on the storage of a tablespace, by the numbers of their devices; `None` where the server's
/// directories cannot be seen.
fn same_storage(path: &Path, space: &Space, facts: &ServerFacts, conninfo: &ConnInfo) -> Option<bool> {
    // Without a look into the data directory only a Unix socket tells that the server is on this machine.
    let local = conninfo.hosts.iter().all(|host| matches!(host.endpoint, Endpoint::Unix(_)));
    if facts.machine.is_none() && !local {
        return None;
    }
    let directory = space.directory.as_deref()?;
    // Within the data directory, which may be closed, the directory of the default tablespace has its device.
    let own = [Some(directory), directory.parent().filter(|_| space.in_data)].into_iter().flatten();
    let number = |path: &Path| rustix::fs::stat(path).ok().map(|stat| stat.st_dev);
    let wanted = own.filter_map(number).next()?;
    Some(number(path)? == wanted)
}

async fn ask(
    request: &Request,
    conninfo: &ConnInfo,
    server: &Server,
    ended: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<(String, Measured)> {
    let plan = in_database::Plan {
        table: request.table.clone(),
        seconds: request.seconds,
        read_bytes: probe::MOST_READ_BYTES,
    };
    in_database::run(conninfo, server, &plan, ended, &mut |done, text| {
        progress(Progress { done, text: text.to_owned() });
    })
    .await
}

fn wanted(request: &Request, spaces: Vec<Space>) -> Result<Vec<Space>> {
    if let Some(name) =
        request.tablespaces.iter().find(|name| !spaces.iter().any(|space| space.tablespace.name == **name))
    {
        let names: Vec<&str> = spaces.iter().map(|space| space.tablespace.name.as_str()).collect();
        return Err(Error::new(Code::Server, format!("there is no tablespace {name:?}"))
            .hint(format!("There are: {}.", names.join(", "))));
    }
    let all = request.tablespaces.is_empty();
    // A directory stands for one tablespace: that of the database, unless another is named.
    let chosen = |space: &Space| {
        if all {
            request.path.is_none() || space.default
        } else {
            request.tablespaces.contains(&space.tablespace.name)
        }
    };
    Ok(spaces.into_iter().filter(chosen).collect())
}

/// The reads ahead that a server does, as it is and as it could be.
fn mechanisms(server: &Server) -> Vec<Mechanism> {
    match server.io_method.as_deref() {
        None => vec![Mechanism::Advice],
        Some("worker") => {
            let mut all = vec![
                Mechanism::Workers { workers: server.io_workers.unwrap_or(3) },
                Mechanism::Workers { workers: MOST_WORKERS },
            ];
            all.dedup();
            if server.io_methods.iter().any(|method| method == "io_uring") {
                all.push(Mechanism::IoUring);
            }
            all
        }
        // As many workers stand for it where the probe may not use it.
        Some("io_uring") if !probe::has_io_uring() => vec![Mechanism::Workers { workers: MOST_WORKERS }],
        Some("io_uring") => vec![Mechanism::IoUring],
        Some(_) => vec![Mechanism::CombinedAdvice],
    }
}

fn plan(request: &Request, directory: &Path, mechanisms: Vec<Mechanism>) -> probe::Plan {
    probe::Plan { seconds: request.seconds, mechanisms, ..probe::Plan::new(directory) }
}

/// What was measured of the same device already.
fn already(targets: &[Target], directory: &Path) -> Option<Measured> {
    let device = storage::look(directory).ok()?.device_number?;
    let same = |measured: &&Measured| {
        measured.storage.device_number.as_ref() == Some(&device) && measured.stopped.is_none()
    };
    targets.iter().filter_map(|target| target.measured.as_ref()).find(same).cloned()
}

/// How much of what scans of a tablespace read is cached: by what the page cache has of its files, else by what reads
/// take.
async fn learn(
    client: &Client,
    facts: &ServerFacts,
    space: &Space,
    server: &mut Server,
    measured: &Measured,
) -> Result<()> {
    let directory = space.directory.as_deref().filter(|_| facts.machine.is_some());
    let directory = directory.map(|directory| writable_directory(directory, facts.version_num));
    if let Some(cached) = directory.and_then(|directory| files::cached_share(&directory)) {
        let how = format!("{:.0} % of the pages of its files are in the page cache", cached * 100.0);
        server.disk_share = Some(DiskShare { share: 1.0 - cached, how });
        return Ok(());
    }
    server.disk_share = None;
    if let (Some(latency), Some(cached)) = (measured.latency_us(), measured.cached_page_us) {
        server.disk_share = server::disk_share(client, facts, latency, cached).await?;
    }
    Ok(())
}

fn target(space: Option<&Space>, measured: &Measured, verdict: Verdict) -> Target {
    Target {
        tablespace: space.map(|space| space.tablespace.name.clone()),
        options: space.map(|space| space.tablespace.options.clone()).unwrap_or_default(),
        directory: Some(measured.storage.directory.clone()),
        measured: Some(measured.clone()),
        not_measured: None,
        verdict,
        advice: Vec::new(),
        already_right: Vec::new(),
        undecided: Vec::new(),
        scans: Vec::new(),
        dense: None,
        before: None,
    }
}

fn unmeasured(space: &Space, error: &Error) -> Target {
    let why = match error.hint_text() {
        Some(hint) => format!("{}. {hint}", error.fact()),
        None => error.fact().to_owned(),
    };
    Target {
        tablespace: Some(space.tablespace.name.clone()),
        options: space.tablespace.options.clone(),
        directory: space.directory.as_ref().map(|directory| directory.display().to_string()),
        measured: None,
        not_measured: Some(why),
        verdict: Verdict::refused(error.fact().to_owned()),
        advice: Vec::new(),
        already_right: Vec::new(),
        undecided: Vec::new(),
        scans: Vec::new(),
        dense: None,
        before: None,
    }
}

fn fill(target: &mut Target, judged: Judged) {
    target.advice = judged.advice;
    target.already_right = judged.right;
    target.undecided = judged.undecided;
    target.scans = judged.scans;
    target.dense = judged.dense;
}

fn system(advice: &advice::Advice) -> bool {
    advice.place == advice::Place::System
}

/// What holds for scans of a tablespace.
fn held(space: &Space) -> Vec<TablespaceOption> {
    let held = |setting: &TablespaceOption| TablespaceOption {
        name: setting.name.clone(),
        value: space.tablespace.holds(&setting.name).unwrap_or(&setting.value).to_owned(),
    };
    space.tablespace.settings.iter().map(held).collect()
}

/// What a tablespace's measurements are kept by.
pub fn key(facts: &ServerFacts, conninfo: &ConnInfo, tablespace: &str) -> Key {
    let server = match facts.system_identifier {
        Some(identifier) => identifier.to_string(),
        None => conninfo.hosts.iter().map(|host| format!("{:?} {}", host.endpoint, host.port)).collect(),
    };
    Key::tablespace(&server, tablespace)
}

/// The last measurement beside this one.
fn before(request: &Request, key: &Key, target: &Target, now: &[TablespaceOption]) -> Option<Before> {
    let store = request.store.as_ref().filter(|_| request.verify)?;
    let Kept { measured, settings } = store.last(key)?;
    let verdict = Verdict::of(&measured);
    let mut changes = Vec::new();
    for setting in &settings {
        let value = now.iter().find(|one| one.name == setting.name).map(|one| one.value.as_str());
        if let Some(value) = value.filter(|value| *value != setting.value) {
            changes.push(format!("{}: {} then, {value} now", setting.name, setting.value));
        }
    }
    if verdict.class != target.verdict.class {
        changes.push(format!("{} then, {} now", verdict.class.name(), target.verdict.class.name()));
    }
    Some(Before { measured, verdict, settings, settings_now: now.to_vec(), changes })
}

/// Keeps what was measured, unless it was cut short: `inrush explain` predicts by it.
fn keep(
    request: &Request,
    key: &Key,
    target: &Target,
    settings: Vec<TablespaceOption>,
    notes: &mut Vec<String>,
) {
    let (Some(store), Some(measured)) = (&request.store, &target.measured) else { return };
    if target.verdict.refused.is_some() || measured.replays.is_empty() {
        return;
    }
    if let Err(error) = store.keep(key, Kept { measured: measured.clone(), settings }) {
        notes.push(error.fact().to_owned());
    }
}

/// The report of these figures.
fn report(server: Option<Server>, targets: Vec<Target>, notes: Vec<String>) -> Report {
    let started =
        targets.iter().find_map(|target| target.measured.as_ref()).map(|measured| measured.at.clone());
    Report {
        version: VERSION,
        inrush: env!("CARGO_PKG_VERSION").to_owned(),
        started: started.unwrap_or_default(),
        server,
        targets,
        notes,
        applied: None,
    }
}
