//! io_workers and io_method of PostgreSQL 18: who reads ahead.

use super::super::measured::Mechanism;
use super::super::model::{MOST_WORKERS, Model, ReadAhead};
use super::super::report::Right;
use super::super::verdict::time;
use super::{Context, Judged, named_scans};
use crate::advise::Effect;

/// More workers are worth their processes where a page takes so many times less.
const WORTH: f64 = 1.25;

/// The distance at which numbers of workers are compared.
const COMPARED_AT: u32 = 64;

/// As many as the storage has use for, if that gives anything; else those there are. `None` where none read.
pub(super) fn advised(context: &Context<'_>) -> Option<u32> {
    let now = reading(context)?;
    if !compared(context) {
        return Some(now);
    }
    let wanted = context.verdict.knee?.clamp(1, MOST_WORKERS);
    let of = |workers| Mechanism::Workers { workers };
    let gain = gain(context, of(now), of(wanted.max(now)))?;
    Some(if wanted > now && gain >= WORTH { wanted } else { now })
}

/// io_workers where workers read.
fn reading(context: &Context<'_>) -> Option<u32> {
    (context.server.io_method.as_deref() == Some("worker")).then_some(context.server.io_workers.unwrap_or(3))
}

/// Whether numbers of workers were compared: through a server there is only the one that it has.
fn compared(context: &Context<'_>) -> bool {
    context.measured.replays.iter().any(|one| one.mechanism == Mechanism::Workers { workers: MOST_WORKERS })
}

/// How many times less a page takes when others read it, where that gives most.
fn gain(context: &Context<'_>, now: Mechanism, then: Mechanism) -> Option<f64> {
    let model = Model::new(context.measured);
    let page = |density, mechanism| model.page_us(density, ReadAhead { mechanism, concurrency: COMPARED_AT });
    let gains =
        [0.01, 0.1, 0.5].into_iter().filter_map(|density| Some(page(density, now)? / page(density, then)?));
    gains.max_by(f64::total_cmp)
}

/// Says how many there should be.
pub(super) fn judge(context: &Context<'_>, advised: Option<u32>, depth: Option<u32>, judged: &mut Judged) {
    let (Some(now), Some(advised)) = (reading(context), advised) else { return };
    if !compared(context) {
        return;
    }
    let model = Model::new(context.measured);
    let page = |workers| {
        let mechanism = Mechanism::Workers { workers };
        model.page_us(0.1, ReadAhead { mechanism, concurrency: COMPARED_AT }).unwrap_or(f64::NAN)
    };
    if advised <= now {
        let why = format!(
            "where a tenth of the pages is read, a page takes {} with {now} workers and {} with {MOST_WORKERS}",
            time(page(now)),
            time(page(MOST_WORKERS))
        );
        judged.right.push(Right { setting: "io_workers", now: now.to_string(), why });
        io_method(context, now, depth, judged);
        return;
    }
    let why = format!(
        "io_workers is the cap: {now} workers do all reads ahead of all sessions, so at most {now} are in flight, \
         whatever effective_io_concurrency is. Where a tenth of the pages is read, a page takes {} with {now} workers \
         and {} with {advised}; the storage has use for {} reads in flight",
        time(page(now)),
        time(page(advised)),
        context.verdict.knee.unwrap_or(advised)
    );
    let mut price = format!("{advised} processes, idle until they are needed");
    if context.server.io_methods.iter().any(|method| method == "io_uring") {
        price += "; io_method = io_uring reads without workers, from the next restart on";
    }
    let mut advice = context.system(
        "io_workers",
        context.tablespace.map(|_| now.to_string()),
        advised.to_string(),
        why,
        price,
        Effect::Reload,
    );
    let concurrency = depth.unwrap_or_else(|| context.concurrency_now());
    advice.expected = named_scans(
        context,
        context.read_ahead(concurrency, Some(now)),
        context.read_ahead(concurrency, Some(advised)),
    );
    // The cap comes first: without it the others give little.
    judged.advice.insert(0, advice);
    io_method(context, advised, depth, judged);
}

/// What can be said of io_workers through a server alone, where they are all that scans show: that they are too few for
/// reads that take so long. What more of them give is told by measuring again.
pub(super) fn through_the_server(context: &Context<'_>, judged: &mut Judged) {
    let (Some(now), Some(bound)) =
        (reading(context), super::super::verdict::bound_by_workers(context.measured))
    else {
        return;
    };
    if now >= MOST_WORKERS {
        return;
    }
    let why = format!(
        "io_workers is the cap: {now} workers do all reads ahead of all sessions, and scans got {:.0} reads a second, \
         {:.1} times as many as one at a time, whatever effective_io_concurrency was. A read takes {}: storage that \
         slow has use for many in flight",
        bound.most,
        bound.most / bound.alone,
        time(1e6 / bound.alone)
    );
    let price = format!(
        "{MOST_WORKERS} processes, idle until they are needed; measure again afterwards: what they give could not be \
         measured from here"
    );
    judged.advice.push(context.system(
        "io_workers",
        context.tablespace.map(|_| now.to_string()),
        MOST_WORKERS.to_string(),
        why,
        price,
        Effect::Reload,
    ));
}

/// Another io_method, where workers are too few for the storage even at their most: io_uring unless it was measured to give
/// no more than `workers` do.
fn io_method(context: &Context<'_>, workers: u32, depth: Option<u32>, judged: &mut Judged) {
    let Some(knee) = context.verdict.knee.filter(|knee| *knee > MOST_WORKERS) else { return };
    let offered = |method: &str| context.server.io_methods.iter().any(|one| one == method);
    let by_workers = Mechanism::Workers { workers };
    let measured = context.measured.nearest(Mechanism::IoUring) == Some(Mechanism::IoUring);
    let method = match (offered("io_uring"), offered("sync")) {
        (true, _) if !measured || gain(context, by_workers, Mechanism::IoUring) >= Some(WORTH) => "io_uring",
        (false, true) => "sync",
        _ => return,
    };
    let mut why = format!(
        "instead of workers, at the next restart: the storage has use for {knee} reads in flight, and there can be no \
         more than {MOST_WORKERS} workers for all sessions together"
    );
    let concurrency = depth.unwrap_or_else(|| context.concurrency_now()).max(COMPARED_AT);
    let ahead = |mechanism| ReadAhead { mechanism, concurrency };
    let mut expected = Vec::new();
    if method == "io_uring" && measured {
        let model = Model::new(context.measured);
        let page = |mechanism| model.page_us(0.1, ahead(mechanism)).map_or("unknown".to_owned(), time);
        why += &format!(
            ". Where a tenth of the pages is read, a page takes {} with {workers} workers and {} with io_uring, at \
             effective_io_concurrency {concurrency}",
            page(by_workers),
            page(Mechanism::IoUring)
        );
        expected = named_scans(context, ahead(by_workers), ahead(Mechanism::IoUring));
    }
    let price = match method {
        "io_uring" => {
            "a restart; the server must be allowed to use io_uring, which containers often forbid, and needs a file \
             descriptor for each backend"
        }
        _ => "a restart; pages are asked for by posix_fadvise and copied by the backend itself",
    };
    let now = context.server.io_method.clone();
    let mut advice =
        context.system("io_method", now, method.to_owned(), why, price.to_owned(), Effect::Restart);
    advice.expected = expected;
    judged.advice.push(advice);
}
