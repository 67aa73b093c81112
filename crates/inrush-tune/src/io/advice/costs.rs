//! What the planner and the kernel should know of a storage: random_page_cost, the read-ahead of the device, and from
//! where on a bitmap heap scan is slower than reading all.

use super::super::model::{Model, ReadAhead};
use super::super::report::Right;
use super::super::verdict::time;
use super::{Context, Dense, Judged, Place};
use crate::advise::Effect;

/// Between these the planner's other figures stay believable (scan-io: a measured ratio as it is makes plans worse).
const LEAST: f64 = 1.1;
const MOST: f64 = 4.0;

/// Share of random reads that go to the storage where nothing is known: what PostgreSQL's default of 4 assumed of a
/// disk on which a random read costs 40 times as much.
const ASSUMED_MISS: f64 = 0.1;

/// A difference of less is not worth a change of plans.
const WORTH: f64 = 0.15;

/// `random_page_cost = seq_page_cost * (1 + miss * (latency / time of a sequential page - 1))`, within bounds.
pub(super) fn random_page_cost(context: &Context<'_>, judged: &mut Judged) {
    let (Some(latency), Some(sequential)) =
        (context.measured.latency_us(), context.measured.sequential_page_us())
    else {
        return;
    };
    let ratio = latency / sequential;
    let (miss, how, known) = miss(context);
    let holds = |name: &str| context.tablespace.and_then(|one| one.holds(name)?.parse::<f64>().ok());
    let unit = holds("seq_page_cost").filter(|cost| *cost > 0.0).unwrap_or(1.0);
    let raw = 1.0 + miss * (ratio - 1.0);
    let advised = (raw.clamp(LEAST, MOST) * 20.0).round() / 20.0 * unit;
    let now = holds("random_page_cost").unwrap_or(4.0);
    let mut why = format!(
        "a random page takes {} from this storage, one of a sequential scan {}: {ratio:.1} times as much; {how}, so \
         1 + {miss:.2} * ({ratio:.1} - 1) = {raw:.2}",
        time(latency),
        time(sequential)
    );
    if !(LEAST..=MOST).contains(&raw) {
        why += &format!(", kept between {LEAST} and {MOST}");
    }
    if (advised - now).abs() <= WORTH * now {
        judged.right.push(Right { setting: "random_page_cost", now: figure(now), why });
        return;
    }
    let mut price =
        "plans of all queries on the tablespace may change: look at the slowest ones with `inrush explain` \
                     before and after"
            .to_owned();
    if !known {
        price += "; --apply leaves it, because how much is cached was not measured";
    }
    let mut advice = context.option("random_page_cost", figure(advised), why, price);
    advice.applied &= known;
    judged.advice.push(advice);
}

/// The share of random reads that go to the storage, how that is known, and whether it is.
fn miss(context: &Context<'_>) -> (f64, String, bool) {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    match (context.server.shared_miss, &context.server.disk_share) {
        (Some(shared), Some(disk)) => {
            let miss = shared * disk.share;
            let how = format!(
                "shared_buffers had no answer for {} of the requests, and {} of those went to the storage ({})",
                percent(shared),
                percent(disk.share),
                disk.how
            );
            (miss, how, true)
        }
        _ => (
            ASSUMED_MISS,
            format!("{} of random reads are assumed to go to it", percent(ASSUMED_MISS)),
            false,
        ),
    }
}

fn figure(cost: f64) -> String {
    let text = format!("{cost:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Read-ahead of the device: as large as it takes for sequential scans to get what the storage gives.
pub(super) fn read_ahead(context: &Context<'_>, judged: &mut Judged) {
    let measured = context.measured;
    let Some(now) = measured.storage.read_ahead_kb else { return };
    let best = |buffered: bool| {
        let of = measured.sequential.iter().filter(|one| one.buffered == buffered);
        of.map(|one| one.bytes_per_second).fold(0.0, f64::max)
    };
    let (buffered, direct) = (best(true), best(false));
    if buffered <= 0.0 || direct <= 0.0 {
        return;
    }
    let rates = format!(
        "pages read from front to back with a read-ahead of {now} kB come at {:.0} MB/s, reads of 1 MiB past the page \
         cache at {:.0} MB/s",
        buffered / 1e6,
        direct / 1e6
    );
    if buffered >= 0.7 * direct || now >= 4096 {
        judged.right.push(Right { setting: "read_ahead_kb", now: now.to_string(), why: rates });
        return;
    }
    let advised = 4096u64.min((now * 2).max(1024));
    let device = measured.storage.device.clone().filter(|name| name.starts_with("/dev/"));
    let line = match (&device, &measured.storage.device_number) {
        (Some(name), _) => format!("blockdev --setra {} {name}", advised * 2),
        (None, Some(number)) => format!("echo {advised} > /sys/class/bdi/{number}/read_ahead_kb"),
        (None, None) => return,
    };
    let why = format!("{rates}; sequential scans, and dense bitmap scans without advice, depend on it");
    let price =
        "reads of a few pages that happen to be neighbours fetch more than they need; it holds until the \
                 machine is started again, and needs root"
            .to_owned();
    judged.advice.push(super::Advice {
        setting: "read_ahead_kb",
        versions: None,
        place: Place::Device { name: device },
        now: Some(now.to_string()),
        advised: advised.to_string(),
        why,
        price,
        effect: Effect::Immediate,
        applied: false,
        lines: vec![line],
        may: false,
        obstacle: None,
        expected: Vec::new(),
    });
}

/// From which density on a sequential scan is faster than a bitmap heap scan.
pub(super) fn dense(context: &Context<'_>, depth: Option<u32>, workers: Option<u32>) -> Option<Dense> {
    let model = Model::new(context.measured);
    let sequential = context.measured.sequential_page_us()?;
    let concurrency = depth?;
    let page = |density| {
        model.page_us(density, ReadAhead { concurrency, ..context.read_ahead(concurrency, workers) })
    };
    // A page costs about the same at any density: the first step at which all of them cost more than the whole table.
    let above = (1..=100)
        .map(|n| f64::from(n) / 100.0)
        .find(|density| page(*density).is_some_and(|page| page * density > sequential))?;
    let text = format!(
        "a bitmap heap scan of more than {:.0} % of a table's pages is slower than a sequential scan of all of them \
         here; the planner does not know that. {}",
        above * 100.0,
        if context.verdict.class.capped() {
            "On capped storage that counts: keep queries of many pages from bitmaps, or let the kernel read ahead for \
             them (effective_io_concurrency 0, for a role or a query, where no option of the tablespace masks it)."
        } else {
            "`inrush explain` shows it of a query."
        }
    );
    let mut lines = vec!["SET LOCAL enable_bitmapscan = off;".to_owned()];
    if context.verdict.class.capped() {
        lines.push("SET LOCAL effective_io_concurrency = 0;".to_owned());
    }
    Some(Dense { above, text, lines })
}
