//! From the query to the report.

use super::cold::Freezer;
use super::cold::buffers::{self, Scratch};
use super::device::Counters;
use super::estimate::{Known, predict};
use super::measure::Runner;
use super::plan::Explained;
use super::session::{Session, get};
use super::target::Target;
use super::variants::{self, Base, Planned};
use super::{
    Cold, ColdWish, Hooks, LeftOut, Method, Options, Report, Server, Table, Timing, VERSION, Variant,
    Verdict, query,
};
use crate::advise::{ServerFacts, facts};
use crate::io;
use inrush_core::{Code, Error, Excerpt, Result};
use inrush_sink::conninfo::ConnInfo;
use std::path::PathBuf;

/// Runs the query in every way that the planner has, and says what came out.
///
/// What was made meanwhile (a scratch schema, where shared buffers can be emptied in no other way) is removed
/// however it ends; what a killed run has left is removed by the next one.
///
/// # Errors
/// `usage` for a query that is not run: it writes, locks, calls what may have effects, is too large, or scans
/// no table. `interrupted` when the user has had enough. Else what the server refuses.
pub async fn run(conninfo: &ConnInfo, options: &Options, hooks: &Hooks<'_>) -> Result<Report> {
    let session = Session::open(conninfo, &hooks.stop).await?;
    session.bound(options.timeout).await?;
    query::check_text(&session, &options.query).await?;
    if !options.allow_volatile {
        query::check_calls(&session, &options.query).await?;
    }
    let base = Base::plan(&session, options).await?;
    query::check_plan(&session, &base.plan.top, options.allow_volatile).await?;
    let target = Target::find(&session, &base.plan.top).await?;
    check_size(&target, options)?;
    let mut left_out = Vec::new();
    let mut notes = Vec::new();
    match buffers::clear(&session, false).await {
        Ok(Scratch::Dropped) => {
            notes.push("scratch tables that an earlier run had left were removed".to_owned());
        }
        Ok(Scratch::Absent | Scratch::InUse | Scratch::Foreign) => {}
        Err(error) if error.code() == Code::Interrupted => return Err(error),
        Err(error) => notes.push(format!(
            "scratch tables that an earlier run had left could not be removed: {}",
            error.fact()
        )),
    }
    let facts = facts::read(session.client()).await?;
    let (server, eic) = server(&session, &facts, &base.plan).await?;
    let spaces = target.spaces(&session).await?;
    let options =
        &informed(options, conninfo, &facts, &server, spaces.iter().map(|space| space.name.as_str()));
    let (values, concurrency) = variants::values(options, eic, &spaces, &mut left_out);
    let (mut planned, absent) = variants::find(&session, options, &base, &target, &values, &server).await?;
    check_time(&planned, &target, options, &server, eic)?;
    let table = target.table(&session, others(&base.plan, &target)).await?;

    let mut freezer = match Freezer::prepare(conninfo, &facts, &target, options.cold, hooks, &mut left_out)
        .await?
    {
        Ok(freezer) => Ok(freezer),
        Err(why) if options.cold == ColdWish::Required => {
            let hint = why.remedy.unwrap_or_else(|| "Measure warm instead.".to_owned());
            return Err(Error::new(Code::Usage, format!("no cold runs can be had: {}", why.why)).hint(hint));
        }
        Err(why) => {
            if let Some(remedy) = &why.remedy {
                let what = format!("no cold runs: {}", why.why);
                left_out.push(LeftOut { what, remedy: Some(remedy.clone()) });
            }
            Err(why.why)
        }
    };
    // Whose files they are is settled then: what is read of them can be counted.
    let file = freezer.as_ref().ok().and_then(Freezer::a_file).map(PathBuf::from);
    let file = file.or_else(|| a_file(&facts));
    let counters = file.map_or_else(Counters::default, |file| Counters::of(&file, session.backend()));
    let own_reads = server.io_method.as_deref() != Some("worker");
    let runner = Runner { session: &session, options, hooks, target: &target, counters, own_reads };
    let measured = measure(&runner, &mut planned, &mut freezer).await;
    if let Ok(freezer) = &freezer {
        freezer.finish().await;
    }
    let cold = measured?;

    let mut scans: Vec<Variant> = planned.into_iter().map(|one| one.variant).collect();
    complete(&mut scans, &table, &server, options);
    notes.extend(remarks(&scans, &table, &facts, &server, options, &runner, &cold));
    let verdict = Verdict::of(&scans, &table, options.storage.as_ref());
    Ok(Report {
        version: VERSION,
        inrush: env!("CARGO_PKG_VERSION").to_owned(),
        query: options.query.clone(),
        server,
        table,
        concurrency,
        cold,
        scans,
        absent,
        verdict,
        notes,
        left_out,
    })
}

/// The options with what is known of the storage: what `inrush tune io` has kept of the tablespace, unless it was given,
/// and the value that fits it, unless another is wanted.
fn informed<'s>(
    options: &Options,
    conninfo: &ConnInfo,
    facts: &ServerFacts,
    server: &Server,
    mut spaces: impl Iterator<Item = &'s str>,
) -> Options {
    let mut options = options.clone();
    if options.storage.is_none() {
        // Of several tablespaces none stands for the others.
        let only = spaces.next().filter(|_| spaces.next().is_none());
        let kept = options.store.as_ref().zip(only);
        options.storage = kept.and_then(|(store, name)| {
            store.last(&io::run::key(facts, conninfo, name)).map(|kept| kept.measured)
        });
    }
    if options.concurrency.is_none() {
        let server = io::report::Server {
            version_num: server.version_num,
            io_method: server.io_method.clone(),
            io_workers: server.io_workers,
            ..io::report::Server::default()
        };
        options.concurrency =
            options.storage.as_ref().and_then(|measured| io::advice::concurrency(measured, &server));
    }
    options
}

/// Runs everything, warm and then cold.
async fn measure(
    runner: &Runner<'_>,
    planned: &mut Vec<Planned>,
    freezer: &mut Result<Freezer, String>,
) -> Result<Cold> {
    runner.warm_up(planned).await?;
    runner.warm(planned).await?;
    match freezer {
        Err(why) => Ok(Cold { why_not: Some(why.clone()), ..Cold::default() }),
        Ok(freezer) => match runner.cold(planned, freezer).await? {
            None => Ok(freezer.said.clone()),
            Some(why) => Ok(Cold { measured: false, why_not: Some(why), ..freezer.said.clone() }),
        },
    }
}

/// Refuses a query whose tables and indexes are larger than allowed.
fn check_size(target: &Target, options: &Options) -> Result<()> {
    if target.query_bytes <= options.max_bytes {
        return Ok(());
    }
    let mb = |bytes: u64| bytes / 1_000_000;
    Err(Error::new(
        Code::Usage,
        format!(
            "the tables of the query, with TOAST and the indexes of its plan, have {} MB, and a run may read \
             {} MB",
            mb(target.query_bytes),
            mb(options.max_bytes)
        ),
    )
    .hint("Each of many runs may read all of them; allow more with --max-size."))
}

/// Refuses a query that takes too long as the planner would have it, where the model can tell.
fn check_time(
    planned: &[Planned],
    target: &Target,
    options: &Options,
    server: &Server,
    eic: u32,
) -> Result<()> {
    let Some(own) = planned.iter().map(|one| &one.variant).find(|scan| scan.planners) else { return Ok(()) };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // pages
    let expected = own.heap_pages_estimated.map(|pages| pages as u64);
    let known = Known {
        method: own.method,
        table_pages: target.pages(),
        heap_pages: expected.or((own.method == Method::Sequential).then(|| target.pages())),
        stops_early: own.stops_early,
        index_pages: 0,
        sweeps: None,
        warm_seconds: 0.0,
        concurrency: own.concurrency.unwrap_or(eic),
    };
    match predict(options.storage.as_ref(), server, &known) {
        Ok(prediction) if prediction.seconds > options.timeout.as_secs_f64() => Err(Error::new(
            Code::Usage,
            format!(
                "a cold run is expected to take {:.0} s, and may take {} s",
                prediction.seconds,
                options.timeout.as_secs_f64()
            ),
        )
        .hint("Allow more with --timeout, or ask for less of the table.")),
        _ => Ok(()),
    }
}

/// Tables that the plan scans beside the target.
fn others(plan: &Explained, target: &Target) -> usize {
    let mut others: Vec<(&str, &str)> = plan
        .top
        .scans()
        .iter()
        .filter(|scan| !target.has(scan.schema, scan.table))
        .map(|scan| (scan.schema, scan.table))
        .collect();
    others.sort_unstable();
    others.dedup();
    others.len()
}

/// The server, and the session's effective_io_concurrency.
async fn server(session: &Session, facts: &ServerFacts, plan: &Explained) -> Result<(Server, u32)> {
    let rows = session
        .rows(
            "SELECT s.name, s.setting FROM pg_catalog.pg_settings s \
              WHERE s.name OPERATOR(pg_catalog.=) ANY (ARRAY['effective_io_concurrency', 'io_method', \
                    'io_workers', 'work_mem']::pg_catalog.text[])",
            &[],
        )
        .await?;
    let mut settings = std::collections::BTreeMap::new();
    for row in &rows {
        settings.insert(get::<String>(row, 0)?, get::<String>(row, 1)?);
    }
    let number = |name: &str| settings.get(name).and_then(|value| value.parse::<u32>().ok());
    // What is set for comparability is said elsewhere.
    let ours = ["max_parallel_workers_per_gather", "jit"];
    let mut planners = plan.settings.clone();
    planners.retain(|name, _| !ours.contains(&name.as_str()));
    let server = Server {
        version: facts.version.clone(),
        version_num: facts.version_num,
        role: facts.role.clone(),
        shared_buffers: facts.bytes("shared_buffers"),
        io_method: settings.get("io_method").cloned(),
        io_workers: number("io_workers"),
        work_mem_kb: u64::from(number("work_mem").unwrap_or(4096)),
        settings: planners,
    };
    Ok((server, number("effective_io_concurrency").unwrap_or(0)))
}

/// A file on the device of the data directory, where that is on this machine.
fn a_file(facts: &ServerFacts) -> Option<PathBuf> {
    facts.machine.as_ref()?;
    Some(PathBuf::from(&facts.setting("data_directory")?.value).join("PG_VERSION"))
}

/// Adds what follows from all of the figures: pages of index scans, predictions.
fn complete(scans: &mut [Variant], table: &Table, server: &Server, options: &Options) {
    // An index scan visits the pages that a bitmap of the same index names.
    let bitmap = scans
        .iter()
        .find(|scan| scan.method == Method::Bitmap && scan.heap_pages.is_some())
        .map(|scan| (scan.indexes.clone(), scan.heap_pages, scan.index_pages));
    for scan in scans.iter_mut() {
        if let (Method::Index, Some((indexes, heap, index))) = (scan.method, &bitmap)
            && scan.indexes == *indexes
            && !scan.stops_early
        {
            (scan.heap_pages, scan.index_pages) = (*heap, *index);
        }
        let Some(warm) = &scan.warm else { continue };
        let known = Known {
            method: scan.method,
            table_pages: table.pages,
            heap_pages: scan.heap_pages,
            stops_early: scan.stops_early,
            index_pages: scan.index_pages,
            sweeps: sweeps(scan, warm),
            warm_seconds: warm.seconds,
            concurrency: scan.concurrency.unwrap_or(0),
        };
        match predict(options.storage.as_ref(), server, &known) {
            Ok(prediction) => scan.prediction = Some(prediction),
            Err(why) => scan.no_prediction = Some(why),
        }
    }
}

/// How often an index scan goes through the table in ascending order; `None` for one that goes in no order. A page that
/// is visited for several rows in turn counts once, so visits that are fewer than rows tell of an order.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // pages and rows
fn sweeps(scan: &Variant, warm: &Timing) -> Option<u64> {
    let heap = scan.heap_pages? as f64;
    let visits = (warm.shared_hit + warm.shared_read).saturating_sub(scan.index_pages) as f64;
    // With a row on each page there is no telling, and hardly a difference.
    let ordered = visits < 0.7 * scan.rows || scan.rows <= 1.3 * heap;
    (scan.method == Method::Index && ordered).then(|| (visits / heap.max(1.0)).round().max(1.0) as u64)
}

/// What has to be known to read the figures.
fn remarks(
    scans: &[Variant],
    table: &Table,
    facts: &ServerFacts,
    server: &Server,
    options: &Options,
    runner: &Runner<'_>,
    cold: &Cold,
) -> Vec<String> {
    let mut notes = Vec::new();
    if !options.parallel {
        notes.push("parallel workers and JIT are off in all runs (--parallel leaves them)".to_owned());
    }
    if server.shared_buffers.is_some_and(|bytes| table.bytes > bytes / 4) {
        notes.push(
            "a sequential scan of a table larger than a quarter of shared_buffers goes through a small ring \
             of them: warm, it still reads from the operating system's cache"
                .to_owned(),
        );
    }
    let memory = facts.machine.as_ref().and_then(|machine| machine.memory);
    if memory.is_some_and(|memory| table.bytes > memory / 10 * 8) {
        notes.push(
            "the table is about as large as the memory: warm runs read from the device, too".to_owned(),
        );
    } else if let Some(read) = scans.iter().find_map(|scan| {
        let bytes = scan.warm.as_ref()?.device_bytes?;
        (bytes > table.bytes / 20 && bytes > 1 << 20).then(|| (scan.label.clone(), bytes / 1_000_000))
    }) {
        let (label, mb) = read;
        notes.push(format!(
            "warm is not quite warm: {mb} MB were read from the device during runs of {label}"
        ));
    }
    if let Some((ours, all)) = foreign_reads(scans).filter(|_| runner.own_reads) {
        notes.push(format!(
            "others read from the device meanwhile: {} MB of {} MB during one cold run were not this query's",
            all.saturating_sub(ours) / 1_000_000,
            all / 1_000_000
        ));
    }
    if cold.measured && !runner.counters.has_device() {
        notes.push("the device's reads are not counted: it is no block device of this machine".to_owned());
    }
    if cold.measured && table.other_tables > 0 {
        notes.push("only the table that is studied is made cold, not the others of the query".to_owned());
    }
    if scans.iter().any(|scan| scan.rest_differs) {
        let labels: Vec<&str> =
            scans.iter().filter(|scan| scan.rest_differs).map(|scan| scan.label.as_str()).collect();
        notes.push(format!(
            "with another scan the rest of the plan changes, too, so times compare plans: {}",
            labels.join(", ")
        ));
    }
    if options.allow_volatile {
        notes.push("volatile functions were run, once for each run".to_owned());
    }
    if !cold.measured && facts.machine.is_none() {
        for what in facts.not_visible.iter().filter(|what| what.contains("devices")) {
            notes.push(format!("not seen: {}", Excerpt(what.as_bytes())));
        }
    }
    notes
}

/// Bytes that the query and everybody has read during the cold run in which others read the most, if that was
/// much.
fn foreign_reads(scans: &[Variant]) -> Option<(u64, u64)> {
    // Of a parallel plan the process reads but its own part.
    let alone = scans.iter().filter(|scan| scan.workers == 0);
    let runs = alone.filter_map(|scan| scan.cold.as_ref()).flat_map(|cold| &cold.runs);
    let both = runs.filter_map(|run| Some((run.backend_bytes?, run.device_bytes?)));
    both.filter(|(ours, all)| *all > ours + ours / 5 + (8 << 20)).max_by_key(|(ours, all)| all - ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::{Run, Timing};

    #[test]
    fn reads_of_others_are_told_where_they_are_many() {
        let scan = |ours, all| {
            let run = Run { backend_bytes: Some(ours), device_bytes: Some(all), ..Run::default() };
            let cold = Some(Timing { runs: vec![run], ..Timing::default() });
            Variant { cold, ..Variant::default() }
        };
        assert_eq!(foreign_reads(&[scan(100 << 20, 105 << 20)]), None);
        let most = (10 << 20, 90 << 20);
        assert_eq!(foreign_reads(&[scan(100 << 20, 130 << 20), scan(most.0, most.1)]), Some(most));
        assert_eq!(foreign_reads(&[Variant::default()]), None);
    }
}
