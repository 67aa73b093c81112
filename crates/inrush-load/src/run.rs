//! One load from beginning to end.

use crate::ahead::{FirstHead, Lines};
use crate::create::{create_table_sql, target_name};
use crate::direct;
use crate::inputs::Opened;
use crate::job::Job;
use crate::levers::{self, End, Hand, LeverOptions};
use crate::once::{self, Verdict};
use crate::options::{LedgerChoice, Options};
use crate::plan::{Plan, ServerFacts};
use crate::progress::{Progress, Stop, add_time};
use crate::reader::ReaderReport;
use crate::rejects::RejectWriter;
use crate::report::{Failure, Outcome, Report};
use crate::spread;
use crate::target;
use crate::work::{Worked, starting_lanes, work};
use inrush_core::{Code, Error, Reject, RelKind, Result};
use inrush_page::grouped;
use inrush_sink::catalog::{self, TableName, Target, citus};
use inrush_sink::connect::connect;
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::{Ledger, RangeDone, StoredLoad};
use inrush_source::{DropBehind, InputKind, InputSpec};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio_postgres::Client;

/// A load that got as far as having a plan: its report, and the error if it failed.
#[derive(Debug)]
pub struct Finished {
    /// The report, also of a load that failed half-way.
    pub report: Report,
    /// Why it failed.
    pub error: Option<Error>,
}

/// Loads files into a table.
///
/// Blocks until the load is done, failed or stopped ([`Progress::stop`]). `notice` is told what the user
/// should know while it runs. An error means that nothing was begun.
pub fn run(
    options: &Options,
    conninfo: &ConnInfo,
    progress: &Arc<Progress>,
    notice: &(dyn Fn(&str) + Sync),
) -> Result<Finished> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
        Error::new(Code::Internal, format!("cannot start the control connection's runtime: {e}"))
    })?;
    let specs = inrush_source::expand(&options.sources);
    let opened = Opened::with(FirstHead::of(options, specs.as_deref().unwrap_or_default()));
    let mut control = runtime.block_on(connect(conninfo, "inrush load: control"))?;
    let specs = specs?;
    // Not before: where there are few connections, the control connection matters most.
    let mut lines = Lines::open(options, conninfo, &specs, starting_lanes(&options.limits));
    refuse_overwriting(options, &specs)?;
    let client = &mut control.client;
    let Prepared { mut plan, target, server } =
        runtime.block_on(prepare(client, conninfo, options, &specs, &opened, notice))?;
    options.rejects.as_deref().map_or(Ok(()), check_writable)?;
    progress.bytes_total.store(plan.inputs.iter().filter_map(|i| i.stored_len()).sum(), Relaxed);

    let mut load = None;
    let mut pulled = levers::of_the_run(options, &plan);
    let mut done: Vec<RangeDone> = Vec::new();
    let mut resumed = false;
    if let LedgerChoice::Schema(schema) = &options.ledger {
        let ledger = runtime
            .block_on(Ledger::open(client, schema, true))?
            .ok_or_else(|| Error::new(Code::Internal, "the ledger was not made"))?;
        match runtime.block_on(once::open(client, &ledger, options, &plan, notice))? {
            Verdict::Nothing { load } => {
                let load_id = load.id;
                let mut report = Report::new(options, &plan, progress, &server);
                report.outcome = Outcome::AlreadyLoaded;
                report.load = Some(load.id);
                report.totals.rows_before = u64::try_from(load.rows).unwrap_or_default();
                report.totals.rejects = u64::try_from(load.rejects).unwrap_or_default();
                report.notes.push(format!(
                    "load {} of {} has these rows; --again loads them once more",
                    load.id,
                    load.finished_at.as_deref().unwrap_or(&load.started_at)
                ));
                if let Some(path) = &options.rejects {
                    // The run that found them may have died before it could write them.
                    let load = (ledger.clone(), load);
                    runtime.block_on(write_rejects(client, &plan, Some(&load), &[], path))?;
                }
                // The run that loaded them may have died before it took its levers back.
                let back =
                    levers::put_back(client, conninfo, &ledger, load_id, End::Finished, plan.hands(), notice);
                let error = runtime.block_on(back).err();
                report.error = error.as_ref().map(Failure::from);
                return Ok(Finished { report, error });
            }
            Verdict::Load { load: mut stored, done: ranges, resumed: again } => {
                resumed = again;
                done = ranges;
                let mut hand = Hand {
                    options,
                    ledger: &ledger,
                    load: &mut stored,
                    table: &mut plan.table,
                    resumed: !done.is_empty(),
                    bytes: plan.inputs.iter().map(|input| input.uncompressed_len()).sum(),
                    notice,
                };
                match runtime.block_on(levers::pull(&mut hand, &target, conninfo)) {
                    Ok(more) => pulled.extend(more),
                    Err(error) => {
                        let back = levers::put_back(
                            client,
                            conninfo,
                            &ledger,
                            stored.id,
                            End::GivenUp,
                            plan.hands(),
                            notice,
                        );
                        if let Err(also) = runtime.block_on(back) {
                            notice(&format!("{}; `inrush recover` tries again", also.fact()));
                        }
                        return Err(error);
                    }
                }
                load = Some((ledger, stored));
            }
        }
    }
    progress.rows_before.store(done.iter().map(|r| r.rows).sum(), Relaxed);
    let mut partial = match &load {
        Some((ledger, load)) => runtime.block_on(spread::settle(
            client,
            (ledger, load),
            conninfo,
            options,
            &plan,
            resumed,
            notice,
        ))?,
        None => Vec::new(),
    };
    let (job, Worked { read: ReaderReport { ignored, changed }, sessions }) = loop {
        let job = Job::new(plan, Arc::clone(progress), conninfo.clone(), load);
        job.mend(std::mem::take(&mut partial));
        job.rejects.found_before(done.iter().map(|r| r.rejects).sum(), done.iter().map(|r| r.records).sum());
        job.progress.rejects.fetch_add(done.iter().map(|r| r.rejects).sum(), Relaxed);
        let worked = work(&job, options, &done, &mut lines, notice, &runtime, &control.client);
        if !job.wants_another_try() {
            break (job, worked);
        }
        notice(
            "there are duplicates: the load is done once more, with the index in place, to find their records",
        );
        (plan, load) = (job.plan, job.ledger);
        plan.forbidding.clear();
        // The profile is that of the first try.
        plan.sample_hz = None;
        progress.begin_again();
    };
    // Levers are taken back over connections of their own, of which there may be few.
    let _idle = if options.levers == LeverOptions::default() { sessions } else { Vec::new() };
    let mut error = job.take_failure();
    if job.plan.drop_cache {
        // What was read ahead, and columnar files, of which each lane reads its part.
        job.plan.inputs.iter().filter_map(|input| DropBehind::of(&input.spec)).for_each(DropBehind::finish);
    }
    // The server may have been restarted meanwhile: the lanes have come back, and so must we. That a connection is closed is
    // seen only by who drives it.
    if runtime.block_on(control.client.batch_execute("")).is_err() || control.client.is_closed() {
        match runtime.block_on(connect(conninfo, "inrush load: control")) {
            Ok(again) => control = again,
            Err(lost) => error = error.or(Some(lost)),
        }
    }
    let drained = error.is_none() && job.progress.stopping() != Stop::No;
    if error.is_none() && !drained {
        error = runtime.block_on(finish(&mut control.client, &job, options, notice)).err();
    }
    let mut audited = None;
    if error.is_none() && !drained && options.audit {
        match runtime.block_on(spread::audit(&control.client, conninfo, options, &job.plan)) {
            Ok(audit) => audited = audit,
            Err(failed) => error = Some(failed),
        }
    }
    let left = runtime.block_on(take_levers_back(&mut control.client, &job, error.as_ref(), drained, notice));
    let mut report = Report::new(options, &job.plan, &job.progress, &server);
    report.load = job.ledger.as_ref().map(|(_, load)| load.id);
    report.resumed = resumed;
    error = error.or_else(|| audited.as_ref().and_then(|audit| spread::misplaced(&job.plan, audit)));
    if let Some(cluster) = &mut report.cluster {
        cluster.audit = audited;
    }
    report.pulled = pulled;
    report.pulled.extend(job.take_pulled());
    if report.profile.is_some() {
        // Only for what is said of levers: a table that cannot be looked at any more costs no more than that.
        let state = runtime.block_on(target.state_within(&mut control.client, "1s")).ok();
        report.advise(options, &job.plan, state.as_ref());
    }
    report.notes.extend(left);
    for (name, bytes) in ignored {
        report.notes.push(format!("{name}: {bytes} bytes after the end-of-data marker \\. were not read"));
    }
    for name in changed {
        report
            .notes
            .push(format!("{name} was written to while it was being loaded; what it held at first was read"));
    }
    if let Some(path) = &options.rejects {
        let others = [job.rejects.kept(), job.rejects.stopped_on()].concat();
        let ledger = job.ledger.as_ref();
        let written = runtime.block_on(write_rejects(&control.client, &job.plan, ledger, &others, path));
        match (written, &error) {
            (Err(failed), None) => error = Some(failed),
            (Err(failed), Some(_)) => report.notes.push(failed.fact().to_owned()),
            (Ok(()), _) => {}
        }
    }
    report.outcome = match &error {
        Some(error) if error.code() == Code::Interrupted => Outcome::Interrupted,
        Some(_) => Outcome::Failed,
        None if drained => Outcome::Interrupted,
        None if report.totals.rejects > 0 => Outcome::LoadedWithRejects,
        None => Outcome::Loaded,
    };
    if drained && error.is_none() {
        error = Some(Error::new(Code::Interrupted, "stopped on request").hint(if job.plan.atomic {
            "Nothing was loaded."
        } else {
            "Give the same command again to load the rest."
        }));
    }
    report.error = error.as_ref().map(Failure::from);
    if let (Some(load), false) =
        (report.load, matches!(report.outcome, Outcome::Loaded | Outcome::LoadedWithRejects))
        && report.totals.rows + report.totals.rows_before > 0
    {
        report.notes.push(format!(
            "{} rows of this load are committed; the same command goes on from there, `inrush loads undo {load}` removes them",
            grouped(report.totals.rows + report.totals.rows_before)
        ));
    }
    Ok(Finished { report, error })
}

/// A rejects file must not replace an input.
fn refuse_overwriting(options: &Options, specs: &[InputSpec]) -> Result<()> {
    let Some(rejects) = &options.rejects else { return Ok(()) };
    let mut reasons = rejects.clone().into_os_string();
    reasons.push(".jsonl");
    for path in [rejects.clone(), reasons.into()] {
        let Ok(output) = path.canonicalize() else { continue };
        let taken = specs.iter().any(|spec| match &spec.kind {
            InputKind::File(input) | InputKind::Stream(input) => {
                input.canonicalize().is_ok_and(|input| input == output)
            }
            InputKind::Stdin => false,
        });
        if taken {
            return Err(Error::new(
                Code::Usage,
                format!("--rejects would overwrite the input {}", path.display()),
            )
            .hint("Name another file."));
        }
    }
    Ok(())
}

/// What is known before anything is written.
struct Prepared {
    plan: Plan,
    target: Target,
    /// Version of the server, as it says.
    server: String,
}

async fn prepare(
    client: &mut Client,
    conninfo: &ConnInfo,
    options: &Options,
    specs: &[InputSpec],
    opened: &Opened,
    notice: &(dyn Fn(&str) + Sync),
) -> Result<Prepared> {
    let facts = catalog::facts(client).await?;
    let array_nulls: String = client
        .query_one("SELECT pg_catalog.current_setting('array_nulls')", &[])
        .await
        .map_err(server_error)?
        .get(0);
    let name = target_name(options.table.as_deref(), specs)?;
    let target = find_or_create(client, options, specs, opened, &name, notice).await?;
    let server_facts = ServerFacts {
        session: inrush_encode::Session::from_settings(&facts.time_zone, &facts.interval_style, &array_nulls),
        server_encoding: facts.server_encoding.clone(),
    };
    refuse_unlogged_shards(client, options, &target).await?;
    let checked = levers::check(options, &target, &facts, client).await?;
    let mut one_transaction = options.clone();
    let options = if checked.forbidding.is_empty() {
        options
    } else {
        one_transaction.atomic = true;
        &one_transaction
    };
    let mut plan = Plan::new(options, target.table.clone(), specs, opened, &server_facts)?;
    for shape in &plan.shapes {
        let columns = shape.names();
        target.check_loadable(&columns, &facts)?;
    }
    if options.on_conflict.is_some() {
        let state = target.state(client).await?;
        plan.merge = levers::conflict::plan(options, &plan.table, &state)?;
        plan.merges()?;
    }
    plan.forbidding = checked.forbidding;
    direct::choose(client, options, facts.has_extension, &target, &mut plan).await?;
    spread::choose(client, conninfo, options, &facts.server_encoding, &mut plan).await?;
    for price in checked.price {
        notice(&price);
    }
    Ok(Prepared { plan, target, server: facts.server_version.clone() })
}

/// An unlogged table is emptied by a crash of the server that has its rows, and what the ledger has of them must go with
/// them: not so if that is another server than the ledger's.
async fn refuse_unlogged_shards(client: &Client, options: &Options, target: &Target) -> Result<()> {
    let table = &target.table;
    let unlogged = table.unlogged || options.levers.unlogged;
    if !unlogged || options.ledger == LedgerChoice::None || !citus::is_sharded(client, table.oid).await? {
        return Ok(());
    }
    let name = table.qualified();
    let (fact, hint) = if table.unlogged {
        (
            format!("{name} is unlogged, and Citus has its rows"),
            "After a crash of a server nobody could say which rows are left. Make the table logged, or load with \
             --no-ledger and count on nothing.",
        )
    } else {
        (
            format!("--unlogged is impossible: Citus has the rows of {name}"),
            "After a crash of a server nobody could say which rows are left; load it logged.",
        )
    };
    Err(Error::new(Code::Table, fact).hint(hint))
}

/// Takes the levers of a load back that has not come to its end, as far as that is wanted: what a user stopped is
/// resumed soon. Gives what to say of what is left.
async fn take_levers_back(
    client: &mut Client,
    job: &Job,
    error: Option<&Error>,
    drained: bool,
    notice: &(dyn Fn(&str) + Sync),
) -> Option<String> {
    let (ledger, load) = job.ledger.as_ref()?;
    // Another run goes on with the load, and with its levers.
    if error.is_none_or(|error| error.code() == Code::Fenced) && !drained {
        return None;
    }
    let left = |why: &str| {
        Some(format!(
            "{why}what the load changed about {} is not taken back yet: the same command goes on, `inrush recover` \
             takes it back",
            job.plan.table.qualified()
        ))
    };
    let interrupted = drained || error.is_some_and(|error| error.code() == Code::Interrupted);
    if interrupted {
        return match ledger.pending_levers(client, load.id).await {
            Ok(pending) if pending.is_empty() => None,
            _ => left(""),
        };
    }
    let back =
        levers::put_back(client, &job.conninfo, ledger, load.id, End::Failed, job.plan.hands(), notice);
    match back.await {
        Ok(_) => None,
        Err(error) => left(&format!("{}; ", error.fact())),
    }
}

/// The target; made from what the first input shows where it is missing and the user has not forbidden it.
///
/// The table is made in a transaction of its own: a load that then fails leaves it behind, empty or with what
/// was committed, for the same command to go on with.
async fn find_or_create(
    client: &Client,
    options: &Options,
    specs: &[InputSpec],
    opened: &Opened,
    name: &TableName,
    notice: &(dyn Fn(&str) + Sync),
) -> Result<Target> {
    if let Some(target) = catalog::find(client, name).await? {
        return Ok(target);
    }
    if !options.create {
        return catalog::describe(client, name).await;
    }
    let columns = target::columns_of(options, specs, opened)?;
    let sql = create_table_sql(name, &columns);
    client.batch_execute(&sql).await.map_err(server_error)?;
    notice(&format!("created {name} with {} columns, from a sample of {}", columns.len(), specs[0].name));
    catalog::describe(client, name).await
}

/// What comes after the last unit.
async fn finish(
    client: &mut Client,
    job: &Job,
    options: &Options,
    notice: &(dyn Fn(&str) + Sync),
) -> Result<()> {
    let records = job.progress.records.load(Relaxed);
    if !job.plan.atomic {
        // Judged first: a load with too many rejects stays open, so that the same command says so again and one
        // with a higher limit ends it.
        job.rejects.judge(records)?;
        if let Some((ledger, load)) = &job.ledger {
            check_still_recorded(client, job, ledger, load).await?;
            put_back(client, job, ledger, load, notice).await?;
            client.batch_execute("BEGIN").await.map_err(server_error)?;
            ledger.finish(client, load).await?;
            client.batch_execute("COMMIT").await.map_err(server_error)?;
        }
    } else if let Some((ledger, load)) = &job.ledger {
        put_back(client, job, ledger, load, notice).await?;
    }
    if let Some((ledger, load)) = &job.ledger {
        for other in ledger.others_with_levers(client, load).await? {
            notice(&format!(
                "load {other} has changed {} for its own time and has not taken it back: if nobody works on it any \
                 more, `inrush recover` does",
                job.plan.table.qualified()
            ));
        }
    }
    let stored = matches!(job.plan.table.kind, RelKind::Table | RelKind::Partitioned);
    let (analyze, vacuum) = (options.analyze, options.levers.quiet_autovacuum);
    if (analyze || vacuum) && stored && job.progress.rows.load(Relaxed) > 0 {
        // Where autovacuum was kept away, what it would have done by now is done.
        let what = match (vacuum, analyze) {
            (true, true) => "VACUUM (ANALYZE)",
            (true, false) => "VACUUM",
            _ => "ANALYZE",
        };
        let analyze = format!("{what} {}", job.plan.table.qualified());
        if let Err(error) = client.batch_execute(&analyze).await {
            notice(&format!("the rows are loaded, but {what} failed: {}", server_error(error).fact()));
        }
    }
    Ok(())
}

/// Takes the levers of a load back whose rows are all there.
async fn put_back(
    client: &mut Client,
    job: &Job,
    ledger: &Ledger,
    load: &StoredLoad,
    notice: &(dyn Fn(&str) + Sync),
) -> Result<()> {
    let started = Instant::now();
    levers::put_back(client, &job.conninfo, ledger, load.id, End::Finished, job.plan.hands(), notice).await?;
    add_time(&job.progress.put_back_nanos, started.elapsed());
    Ok(())
}

/// Fails if the server has crashed while an unlogged table was loaded: the lanes have come back, but what was
/// committed before is gone, from the table and from the ledger alike.
async fn check_still_recorded(client: &Client, job: &Job, ledger: &Ledger, load: &StoredLoad) -> Result<()> {
    if !load.unlogged {
        return Ok(());
    }
    let recorded: u64 = ledger.done_ranges(client, load).await?.iter().map(|r| r.rows + r.rejects).sum();
    let progress = &job.progress;
    let committed =
        progress.rows.load(Relaxed) + progress.rows_before.load(Relaxed) + progress.rejects.load(Relaxed);
    if recorded < committed {
        return Err(Error::new(
            Code::Incarnation,
            format!("{} is unlogged, and a crash of the server has emptied it", job.plan.table.qualified()),
        )
        .hint("Give the same command again to load what is missing."));
    }
    Ok(())
}

/// Writes the rejects that the ledger has of a load, and `others`.
async fn write_rejects(
    client: &Client,
    plan: &Plan,
    load: Option<&(Ledger, StoredLoad)>,
    others: &[Reject],
    path: &Path,
) -> Result<()> {
    let mut writer = RejectWriter::create(plan, path)?;
    if let Some((ledger, load)) = load {
        let write = |mut reject: Reject| {
            // The ledger has absolute paths; messages call an input as the user does.
            if let Some(input) = plan.inputs.get(reject.input as usize) {
                reject.position.source.clone_from(&input.name);
            }
            writer.write(&reject)
        };
        ledger.rejects(client, load, write).await?;
    }
    for reject in others {
        writer.write(reject)?;
    }
    writer.finish()
}

/// Fails before anything is loaded if the rejects could not be written afterwards. What is in the files stays
/// until there are rejects to write.
fn check_writable(path: &Path) -> Result<()> {
    let mut reasons = path.as_os_str().to_owned();
    reasons.push(".jsonl");
    for path in [path, Path::new(&reasons)] {
        std::fs::OpenOptions::new().append(true).create(true).open(path).map_err(|e| {
            Error::new(Code::Output, format!("cannot write {}: {e}", path.display()))
                .hint("Nothing was loaded. Name a file that can be written with --rejects.")
        })?;
    }
    Ok(())
}
