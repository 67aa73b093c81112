//! effective_io_concurrency and maintenance_io_concurrency: how far ahead pages are asked for.

use super::super::measured::{Replay, median, spread};
use super::super::model::{MOST_WORKERS, Model, ReadAhead};
use super::super::report::Right;
use super::super::verdict::{Class, MOST_SPREAD, percent, time};
use super::{Context, Judged, named_scans};
use std::collections::BTreeSet;

/// A value whose scans take at most so many times what the best take is as good: a smaller one leaves more of the
/// storage to others.
const AS_GOOD: f64 = 1.08;

/// On capped storage more in flight gives nothing, and what looks better is how the cap counts.
const AS_GOOD_CAPPED: f64 = 1.25;

/// Distances that are worth advising: 0 and 1 only where nothing else comes near them.
const CANDIDATES: [u32; 10] = [2, 4, 8, 16, 32, 64, 128, 256, 1, 0];

/// Those for capped storage.
const CANDIDATES_CAPPED: [u32; 4] = [2, 4, 8, 16];

/// The distance that fits; `None` where replays do not say.
pub(super) fn advised(context: &Context<'_>, workers: Option<u32>) -> Option<u32> {
    let costs = costs(context, workers)?;
    let least = costs.iter().map(|(_, worst)| *worst).fold(f64::MAX, f64::min);
    costs.iter().find(|(_, worst)| *worst <= least * as_good_is(context)).map(|(ahead, _)| *ahead)
}

fn as_good_is(context: &Context<'_>) -> f64 {
    if context.verdict.class == Class::IopsCapped { AS_GOOD_CAPPED } else { AS_GOOD }
}

/// For each distance how many times longer than at the best distance the scans take that suffer most from it.
fn costs(context: &Context<'_>, workers: Option<u32>) -> Option<Vec<(u32, f64)>> {
    let model = Model::new(context.measured);
    let ahead = |concurrency| ReadAhead { concurrency, ..context.read_ahead(concurrency, workers) };
    let densities = densities(context, workers);
    let measured: BTreeSet<u32> =
        context.measured.replays.iter().map(|one| one.ahead).filter(|one| CANDIDATES.contains(one)).collect();
    let candidates: &[u32] =
        if context.verdict.class == Class::IopsCapped { &CANDIDATES_CAPPED } else { &CANDIDATES };
    let candidates = candidates.iter().copied().filter(|one| measured.contains(one));
    let costs: Vec<(u32, f64)> = candidates
        .filter_map(|concurrency| {
            let mut worst: f64 = 0.0;
            for density in &densities {
                let of = |n: u32| smooth(&measured, n, |n| model.page_us(*density, ahead(n)));
                let best = measured.iter().filter_map(|n| of(*n)).fold(f64::MAX, f64::min);
                worst = worst.max(of(concurrency)? / best);
            }
            (worst > 0.0).then_some((concurrency, worst))
        })
        .collect();
    (!costs.is_empty()).then_some(costs)
}

/// A value of a curve without what stands out of it alone: the median of it and its neighbours, which on a curve that
/// rises or falls is the value itself. Distances of 0 and 1 are each of their own kind.
fn smooth(measured: &BTreeSet<u32>, at: u32, of: impl Fn(u32) -> Option<f64>) -> Option<f64> {
    let own = of(at)?;
    if at <= 2 {
        return Some(own);
    }
    let before = measured.range(2..at).next_back().and_then(|n| of(*n));
    let after = measured.range(at.saturating_add(1)..).next().and_then(|n| of(*n));
    Some(before.zip(after).and_then(|(before, after)| median(&[before, own, after])).unwrap_or(own))
}

/// The densities that bitmap heap scans are for. Where more reads in flight give nothing, a scan of many pages belongs
/// to a sequential scan, and must not decide about the others.
fn densities(context: &Context<'_>, workers: Option<u32>) -> Vec<f64> {
    let mechanism = context.mechanism(workers);
    let model = Model::new(context.measured);
    let sequential = context.measured.sequential_page_us().unwrap_or(0.0);
    // A bitmap of all pages is there for the model; nobody chooses a setting for it.
    let mut densities: Vec<f64> =
        context.measured.replays.iter().map(|one| one.density).filter(|density| *density < 0.9).collect();
    densities.sort_by(f64::total_cmp);
    densities.dedup();
    if context.verdict.class == Class::IopsCapped {
        let pays = |density: &f64| {
            let page = model.page_us(*density, ReadAhead { mechanism, concurrency: 16 });
            page.is_some_and(|page| page * density <= sequential)
        };
        let sparse: Vec<f64> = densities.iter().copied().filter(pays).collect();
        let least = densities.first().copied();
        return if sparse.is_empty() { least.into_iter().collect() } else { sparse };
    }
    densities
}

/// Says what it is and what it should be.
pub(super) fn judge(context: &Context<'_>, advised: u32, workers: Option<u32>, judged: &mut Judged) {
    let now = context.concurrency_now();
    for setting in ["effective_io_concurrency", "maintenance_io_concurrency"] {
        let holds = match context.tablespace.and_then(|tablespace| tablespace.holds(setting)) {
            Some(value) => value.parse().unwrap_or(now),
            // By default 10 until 17, 16 since.
            None if setting.starts_with("maintenance") && context.server.version_num < 180_000 => 10,
            None => now,
        };
        let why = why(context, setting, holds, advised, workers);
        let worse = times_worse(context, holds, advised, workers);
        // Passes that differ much leave open what is better, unless it is better by far more than they differ.
        if let Some(apart) = unsteady(context, workers).filter(|apart| worse < 1.0 + 2.0 * apart) {
            let text = format!(
                "the passes of the replays differ by {:.0} %: which value is best cannot be told; measure again when \
                 the storage is quiet",
                apart * 100.0
            );
            judged.undecided.push(Right { setting, now: holds.to_string(), why: text });
            continue;
        }
        if worse <= as_good_is(context) {
            judged.right.push(Right { setting, now: holds.to_string(), why });
            continue;
        }
        let price = price(context, setting, advised);
        let mut advice = context.option(setting, advised.to_string(), why, price);
        if setting == "effective_io_concurrency" {
            advice.expected = named_scans(
                context,
                context.read_ahead(holds, workers),
                context.read_ahead(advised, workers),
            );
        }
        judged.advice.push(advice);
    }
}

/// How far the passes are apart on which the choice rests, where that is too far.
fn unsteady(context: &Context<'_>, workers: Option<u32>) -> Option<f64> {
    let (mechanism, densities) = (context.mechanism(workers), densities(context, workers));
    let rests =
        |one: &&Replay| one.mechanism == mechanism && one.ahead > 1 && densities.contains(&one.density);
    let spreads: Vec<f64> =
        context.measured.replays.iter().filter(rests).filter_map(|one| spread(&one.passes)).collect();
    median(&spreads).filter(|apart| *apart > MOST_SPREAD)
}

/// How many times longer scans take with a value than with the advised one, where that is most.
fn times_worse(context: &Context<'_>, holds: u32, advised: u32, workers: Option<u32>) -> f64 {
    let model = Model::new(context.measured);
    let page = |density, n| model.page_us(density, context.read_ahead(n, workers));
    densities(context, workers)
        .iter()
        .filter_map(|density| Some(page(*density, holds)? / page(*density, advised)?))
        .fold(1.0, f64::max)
}

fn why(context: &Context<'_>, setting: &str, holds: u32, advised: u32, workers: Option<u32>) -> String {
    let model = Model::new(context.measured);
    let page = |density, n| model.page_us(density, context.read_ahead(n, workers)).unwrap_or(f64::NAN);
    let densities = densities(context, workers);
    let figures: Vec<String> = densities
        .iter()
        .map(|density| {
            let (before, after) = (page(*density, holds), page(*density, advised));
            if holds == advised {
                format!("{} where {} of the pages are read", time(after), percent(*density))
            } else {
                format!(
                    "{} with {advised} and {} with {holds} where {} of the pages are read",
                    time(after),
                    time(before),
                    percent(*density)
                )
            }
        })
        .collect();
    let what = if setting.starts_with("maintenance") {
        "VACUUM, ANALYZE and CREATE INDEX read ahead in the same way; a page takes"
    } else {
        "replayed on this storage, a page of a bitmap heap scan takes"
    };
    let mut why = format!("{what} {}", figures.join(", "));
    if setting == "effective_io_concurrency" && holds == 1 && page(0.5, 1) > 1.2 * page(0.5, 0) {
        why +=
            "; 1 is slower than none at all, because advice for one page keeps the kernel from reading ahead";
    }
    if context.verdict.class == Class::IopsCapped {
        why += "; more in flight gives nothing on a capped storage";
    }
    if let Some(most) = context.server.io_max_concurrency.filter(|most| *most < advised) {
        why += &format!("; io_max_concurrency lets a process have {most} in flight");
    }
    why
}

fn price(context: &Context<'_>, setting: &str, advised: u32) -> String {
    let mut price =
        "each scan of each session may have so many reads in flight: with many cold scans at once they \
                     wait for each other, and for whatever shares the storage"
            .to_owned();
    if let (Some(knee), Some(p99)) = (context.verdict.knee, context.verdict.knee_p99_us) {
        price += &format!(" (at {knee} in flight 99 of 100 reads take up to {})", time(p99));
    }
    if let Some(gentle) = context.verdict.gentle.filter(|gentle| *gentle < advised) {
        price += &format!("; {gentle} is gentler");
    }
    if context.tablespace.is_some() {
        price += &format!("; an option of the tablespace masks what sessions SET for {setting}");
    }
    if context.verdict.class == Class::LatencyBound && context.server.io_method.as_deref() == Some("worker") {
        price += &format!("; io_workers ({MOST_WORKERS} at most) bound it for all sessions together");
    }
    price
}
