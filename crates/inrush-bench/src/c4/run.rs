use crate::c4::cluster::Cluster;
use crate::c4::command::{self, Surroundings};
use crate::c4::rows::Files;
use crate::c4::send::{Extent, Work};
use crate::c4::tables::Tables;
use crate::c4::{Case, Contender, Form, Hold, Job, KIND, Record, Rung, To, Turn, VERSION, show};
use crate::record::output;
use crate::run::on_path;
use crate::server::search_path;
use crate::{Absent, Host, machine};
use inrush_cluster::NodeMap;
use inrush_core::{Code, Error, Result};
use std::path::PathBuf;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The coordinator, as psql names it.
    pub to: String,
    /// How nodes are reached, `HOST:PORT=HOST:PORT`.
    pub nodes: Vec<String>,
    /// Turns of each contender instead of the case's.
    pub runs: Option<u32>,
    /// Length of turns with statements instead of the case's.
    pub seconds: Option<f64>,
    /// Clients at once instead of the rung's.
    pub threads: Option<u32>,
    /// Rows of the file instead of the case's.
    pub rows: Option<u64>,
    /// Rungs with these names; empty: all that the cluster has what they need for.
    pub rungs: Vec<String>,
    /// Contenders whose names contain one of these; empty: all.
    pub only: Vec<String>,
    /// The program that contenders find as `INRUSH`.
    pub inrush: PathBuf,
    /// The command line, for the record.
    pub command: String,
}

/// Runs the case on a cluster. `tell` takes a line for the user now and then.
///
/// On every node the schemas `inrush_bench_c4` and `inrush_bench_ledger` are made and removed, and `synchronous_commit` of our
/// own role in that database is set and put back.
///
/// # Errors
/// If nothing could be measured.
pub fn run(mut case: Case, options: &Options, tell: &dyn Fn(&str)) -> Result<Record> {
    case.select(&options.rungs, &options.only)?;
    case.runs = options.runs.unwrap_or(case.runs);
    case.copy_rows = options.rows.unwrap_or(case.copy_rows).max(1);
    for rung in case.rungs.iter_mut().filter(|rung| rung.job != Job::Load) {
        rung.threads = options.threads.unwrap_or(rung.threads);
    }
    let map = NodeMap::parse(&options.nodes)?;
    let mut cluster = Cluster::open(&options.to, &map)?;
    let mut record = Record {
        kind: KIND.to_owned(),
        version: VERSION,
        began: output("date", &["-u", "+%Y-%m-%d %H:%M:%S"]).unwrap_or_default(),
        command: options.command.clone(),
        host: Host::here(&std::env::temp_dir()),
        nodes: cluster.facts()?,
        absent: Vec::new(),
        turns: Vec::new(),
        ended_early: None,
        case,
    };
    let done = on_cluster(&mut cluster, options, &mut record, tell);
    // A node that has joined for its partitions is known now.
    let left = cluster.facts().map(|facts| record.nodes = facts);
    let left = left.and(cluster.reset_synchronous_commit()).and(cluster.clear());
    match done.and(left) {
        // What has been measured is not thrown away for what came last.
        Err(error) if !record.turns.is_empty() => {
            tell(&format!("ended early: {error}"));
            record.ended_early = Some(error.to_string());
        }
        done => done?,
    }
    if record.turns.is_empty() {
        let reasons: Vec<_> = record.absent.iter().map(Absent::sentence).collect();
        return Err(Error::new(Code::Usage, format!("nothing could be run: {}", reasons.join("; "))).hint(
            "Case c4 needs a coordinator of Citus, or a server with foreign servers of postgres_fdw and mappings for the role.",
        ));
    }
    Ok(record)
}

fn on_cluster(
    cluster: &mut Cluster,
    options: &Options,
    record: &mut Record,
    tell: &dyn Fn(&str),
) -> Result<()> {
    let case = record.case.clone();
    let path = search_path();
    let nodes = options.nodes.iter().map(|node| format!("--node {node}")).collect::<Vec<_>>().join(" ");
    let mut files = None;
    for rung in &case.rungs {
        let mut leave_out = |contender: &str, reason| {
            let (rung, contender) = (Some(rung.name.clone()), contender.to_owned());
            // A rung is named by itself, a contender by its own name.
            let rung = rung.filter(|_| contender.is_empty());
            let absent = Absent { rung, contender, server: None, reason };
            if record.absent.iter().any(|known| known.sentence() == absent.sentence()) {
                return;
            }
            tell(&format!("SKIPPED: {}", absent.sentence()));
            record.absent.push(absent);
        };
        if let Some(reason) = cluster.lacks(rung.on) {
            leave_out("", reason);
            continue;
        }
        let mut contenders: Vec<&Contender> =
            rung.contenders.iter().filter_map(|name| case.contender(name)).collect();
        let mut missing = Vec::new();
        for contender in &contenders {
            let program = contender.needs.iter().find(|name| !on_path(name, &path));
            let why = match program {
                Some(name) => Some(format!("{name} is not on PATH")),
                None => lacks(cluster, contender)?,
            };
            if let Some(reason) = why {
                leave_out(&contender.name, reason);
                missing.push(contender.name.clone());
            }
        }
        contenders.retain(|contender| !missing.contains(&contender.name));
        if rung.job == Job::Load && files.is_none() {
            tell(&format!("writing {} rows", case.copy_rows));
            let mut parts: Vec<u32> = case.contenders.iter().map(|one| one.part).chain([1]).collect();
            parts.sort_unstable();
            parts.dedup();
            files = Some(Files::write(case.copy_rows, &parts)?);
        }
        tell(&format!("{}: making the tables", rung.name));
        let tables = Tables::make(cluster, rung, &case, files.as_ref())?;
        let around = files.as_ref().map(|files| Surroundings {
            files,
            path: &path,
            inrush: &options.inrush,
            nodes: &nodes,
        });
        let stage = Stage { rung, case: &case, tables: &tables, around, seconds: options.seconds };
        for synchronous_commit in &rung.synchronous_commit {
            tables.cluster().set_synchronous_commit(synchronous_commit)?;
            for round in 1..=case.runs {
                // Each round begins with another contender.
                let first = (round as usize - 1) % contenders.len().max(1);
                for contender in contenders.iter().cycle().skip(first).take(contenders.len()) {
                    let turn = Turn {
                        rung: rung.name.clone(),
                        synchronous_commit: synchronous_commit.clone(),
                        round,
                        contender: contender.name.clone(),
                        ..stage.turn(contender)?
                    };
                    tell(&show::line(&turn));
                    record.turns.push(turn);
                }
            }
        }
        tables.cluster().reset_synchronous_commit()?;
    }
    Ok(())
}

/// Why a contender cannot run on the cluster.
fn lacks(cluster: &Cluster, contender: &Contender) -> Result<Option<String>> {
    let function = match (contender.form, contender.guard) {
        (Some(Form::Function), _) => "inrush.distribute_dml(regclass,anyelement,text)",
        (_, Hold::Function) => "inrush.dml_guard(regclass,bigint)",
        _ => return Ok(None),
    };
    // Where it is called; what distribute_dml() calls on other nodes it asks for itself.
    let on = match contender.to {
        Some(To::Coordinator) => &cluster.servers[..1],
        _ => cluster.workers(),
    };
    for server in on {
        let there = cluster.ask_on(server, &format!("SELECT to_regprocedure('{function}') IS NOT NULL"))?;
        if there != "t" {
            return Ok(Some(format!(
                "{} has no function {function}: CREATE EXTENSION inrush, on every node",
                server.name
            )));
        }
    }
    Ok(None)
}

/// Where the turns of a rung take place.
struct Stage<'s> {
    rung: &'s Rung,
    case: &'s Case,
    tables: &'s Tables<'s>,
    around: Option<Surroundings<'s>>,
    seconds: Option<f64>,
}

impl Stage<'_> {
    /// One turn. What the contender does wrong is in it; an error is of the cluster or this machine.
    fn turn(&self, contender: &Contender) -> Result<Turn> {
        let (tables, cluster) = (self.tables, self.tables.cluster());
        tables.renew()?;
        let load_average = machine::load_average();
        let (mut turn, stored) = match &self.around {
            Some(around) if self.rung.job == Job::Load => {
                let turn = command::run(cluster, tables, contender, around)?;
                let rows = turn.operations;
                (turn, rows)
            }
            _ => self.send(contender)?,
        };
        turn.load_average = load_average;
        // Locks of what was left prepared would keep everybody waiting.
        cluster.settle()?;
        if turn.failure.is_none() && self.rung.job != Job::Update {
            let found = tables.count(contender.to == Some(To::Plain))?;
            if found != stored {
                turn.failure = Some(format!("{found} rows instead of {stored}"));
            }
        }
        // All that Citus has not routed itself.
        let routed = contender.to == Some(To::Shard) || contender.form == Some(Form::Function);
        if turn.failure.is_none() && (routed || contender.audited) && self.audits() {
            let misplaced = cluster.misplaced(&tables.table())?;
            turn.misplaced = Some(misplaced);
            if misplaced > 0 {
                turn.failure = Some(format!("{misplaced} rows are not where their keys lead"));
            }
        }
        Ok(turn)
    }

    /// Updates put no row anywhere. Partitions on other servers are judged by the coordinator, to which every row is sent: too slow
    /// for each turn, and the tests of the load look at it.
    fn audits(&self) -> bool {
        self.rung.job != Job::Update && self.rung.on == crate::c4::On::Citus
    }

    fn send(&self, contender: &Contender) -> Result<(Turn, u64)> {
        let extent = Extent {
            seconds: self.seconds.unwrap_or_else(|| f64::from(self.case.seconds)),
            threads: self.rung.threads,
            rows: self.case.update_rows,
        };
        let work = Work::new(self.tables, self.rung.job, contender, extent)?;
        let sent = work.run(self.tables.cluster())?;
        let turn = Turn {
            threads: extent.threads,
            seconds: sent.seconds,
            operations: sent.operations,
            coordinator_cpu_seconds: sent.coordinator_cpu,
            workers_cpu_seconds: sent.workers_cpu,
            client_cpu_seconds: sent.client_cpu,
            foreign_cores: sent.foreign_cores,
            failure: sent.failure,
            ..Turn::default()
        };
        Ok((turn, sent.stored))
    }
}
