//! What the figures of the scans say, in sentences: rules that are pure functions.
//!
//! The reasons are the blind spots of the planner's cost model. One is named only where figures of this query
//! show it.

use super::{Method, Table, Timing, Variant};
use crate::io::Measured;
use serde::Serialize;

/// Runs that lie further apart than this share of their median are no basis for a verdict.
const MOST_SPREAD: f64 = 0.25;

/// Runs that a verdict needs.
const LEAST_RUNS: usize = 3;

/// What there is to say.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Whether it is about cold runs.
    pub cold: bool,
    /// The label of the planner's own plan.
    pub planners: Option<String>,
    /// The label of the fastest, where that can be told.
    pub fastest: Option<String>,
    /// Why not.
    pub refused: Option<String>,
    /// What the figures say, what matters most first.
    pub sentences: Vec<String>,
    /// What the planner did not know.
    pub reasons: Vec<Reason>,
}

/// Something that the planner's costs leave out, as this query shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// `read-ahead`, `cache`, `bitmap-pages`, `rows`, `order-within-keys`, `overlap`, `one-random-page-cost`;
    /// scripts may match on it.
    pub about: &'static str,
    /// With the figures.
    pub text: String,
}

impl Verdict {
    /// Judges the scans of a table.
    pub fn of(scans: &[Variant], table: &Table, storage: Option<&Measured>) -> Verdict {
        let cold = scans.iter().any(|scan| scan.cold.is_some());
        let own = scans.iter().find(|scan| scan.planners);
        let mut verdict =
            Verdict { cold, planners: own.map(|scan| scan.label.clone()), ..Verdict::default() };
        let mut timed: Vec<(&Variant, &Timing)> =
            scans.iter().filter_map(|scan| Some((scan, timing(scan, cold)?))).collect();
        timed.sort_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
        let first = judge(&mut verdict, &timed, own);
        verdict.sentences.extend(first);
        if let Some(own) = own {
            verdict.sentences.extend(chosen(own, scans));
        }
        verdict.sentences.extend(memory(scans, cold));
        verdict.sentences.extend(
            scans
                .iter()
                .filter_map(|scan| Some(format!("No time of {}: {}.", scan.label, scan.failed.as_ref()?))),
        );
        verdict.reasons = reasons(scans, table, storage);
        verdict
    }
}

fn timing(scan: &Variant, cold: bool) -> Option<&Timing> {
    if cold { scan.cold.as_ref() } else { scan.warm.as_ref() }
}

/// The sentence about the fastest, or about why there is none.
fn judge(verdict: &mut Verdict, timed: &[(&Variant, &Timing)], own: Option<&Variant>) -> Option<String> {
    let how = if verdict.cold { "cold" } else { "warm" };
    let [(best, time), rest @ ..] = timed else {
        verdict.refused = Some("nothing was measured".to_owned());
        return None;
    };
    if time.runs.len() < LEAST_RUNS {
        let why =
            format!("{} of each are too few for a verdict, {LEAST_RUNS} are needed", runs(time.runs.len()));
        verdict.refused = Some(why.clone());
        return Some(format!("{}.", capital(&why)));
    }
    let Some((second, after)) = rest.first() else {
        verdict.fastest = Some(best.label.clone());
        return Some(format!("Only {} could be measured: {} {how}.", best.label, seconds(time.seconds)));
    };
    if let Some(why) = too_close((best, time), (second, after)) {
        let mut text = format!("Cannot tell {} from {} {how}: {why}.", best.label, second.label);
        // What is worse than both is worse.
        if let Some((own, slow)) =
            timed.iter().find(|(scan, _)| own.is_some_and(|own| own.label == scan.label))
            && own.label != best.label
            && own.label != second.label
            && after.most < slow.least
        {
            text += &format!(
                " Both beat what the planner chose, {}, which took {}.",
                own.label,
                seconds(slow.seconds)
            );
        }
        verdict.refused = Some(why);
        return Some(text);
    }
    verdict.fastest = Some(best.label.clone());
    let median = format!("{}, median of {}", seconds(time.seconds), time.runs.len());
    let Some((own, slow)) = timed.iter().find(|(scan, _)| scan.planners) else {
        return Some(format!("The fastest {how} was {} ({median}).", best.label));
    };
    if own.label == best.label {
        let next = seconds(after.seconds);
        return Some(format!(
            "The fastest {how} was what the planner chose: {} ({median}); next was {} ({next}).",
            best.label, second.label
        ));
    }
    let because = match why_faster(best, own, verdict.cold) {
        Some(why) => format!("because {why}"),
        None => "for reasons that these figures do not show".to_owned(),
    };
    let apart = if slow.least > time.most { "" } else { ", though their runs overlap" };
    Some(format!(
        "The fastest {how} was {} ({median}): {} times as fast as what the planner chose, {} ({}){apart}, \
         {because}.",
        best.label,
        ratio(slow.seconds / time.seconds),
        own.label,
        seconds(slow.seconds)
    ))
}

/// Why two cannot be told apart: runs of the one took as long as runs of the other.
fn too_close(a: (&Variant, &Timing), b: (&Variant, &Timing)) -> Option<String> {
    if a.1.most < b.1.least {
        return None;
    }
    let range = |timing: &Timing| format!("{} to {}", seconds(timing.least), seconds(timing.most));
    let wide = [a, b].into_iter().find_map(|(scan, timing)| {
        let spread = timing.spread.filter(|spread| *spread > MOST_SPREAD)?;
        Some(format!(", and those of {} are up to {:.0} % off their median", scan.label, spread * 100.0))
    });
    Some(format!("their runs overlap ({} and {}){}", range(a.1), range(b.1), wide.unwrap_or_default()))
}

/// What of the figures makes one faster than another.
fn why_faster(fast: &Variant, slow: &Variant, cold: bool) -> Option<String> {
    let (a, b) = (timing(fast, cold)?, timing(slow, cold)?);
    if fast.rest_differs || slow.rest_differs {
        return Some("the rest of the plan is another".to_owned());
    }
    // The device counts for everybody; and what it reads warm is what somebody else has pushed out.
    let own = cold && a.device_reads_own && b.device_reads_own;
    let fewer =
        |a: Option<u64>, b: Option<u64>| Some((a?, b?)).filter(|(a, b)| own && *b >= 2 * *a && *b >= 100);
    if let Some((few, many)) = fewer(a.device_reads, b.device_reads) {
        return Some(format!("it took {} device reads instead of {}", count(few), count(many)));
    }
    if fast.method == slow.method && slow.rows_rechecked > 0 && fast.rows_rechecked == 0 {
        return Some(format!(
            "its bitmap had room for every row, and {} were not rechecked",
            count(slow.rows_rechecked)
        ));
    }
    if let Some((few, many)) =
        fewer(a.device_bytes.map(|n| n / 1_000_000), b.device_bytes.map(|n| n / 1_000_000))
    {
        return Some(format!("it read {} MB instead of {} MB", count(few), count(many)));
    }
    let same = fast.method == slow.method && fast.indexes == slow.indexes;
    if let (true, Some(ours), Some(theirs)) = (same && cold, fast.concurrency, slow.concurrency)
        && ours != theirs
    {
        return Some(format!("up to {ours} reads were asked for ahead instead of {theirs}"));
    }
    let (ours, theirs) = (fast.warm.as_ref()?.seconds, slow.warm.as_ref()?.seconds);
    if ours * 1.5 <= theirs {
        let warm = if cold { " with all in memory" } else { "" };
        return Some(format!("it has less to do: {} instead of {}{warm}", seconds(ours), seconds(theirs)));
    }
    None
}

/// Why the planner took what it took.
fn chosen(own: &Variant, scans: &[Variant]) -> Option<String> {
    let cost = own.total_cost?;
    let mut others: Vec<(f64, &str)> = Vec::new();
    for scan in
        scans.iter().filter(|scan| scan.current && scan.work_mem_kb.is_none() && scan.method != own.method)
    {
        others.extend(scan.total_cost.map(|cost| (cost, scan.method.name())));
    }
    others.sort_by(|a, b| a.0.total_cmp(&b.0));
    let list: Vec<String> = others.iter().map(|(cost, name)| format!("{name} {}", number(*cost))).collect();
    let name = own.method.name();
    Some(match others.first() {
        None => format!("The planner chose {name} (cost {}); it has no cost to compare with.", number(cost)),
        Some((next, _)) if *next >= cost => format!(
            "The planner chose {name} because it has the lowest cost: {}, against {}.",
            number(cost),
            list.join(", ")
        ),
        Some(_) => format!(
            "The planner chose {name} (cost {}), and not what has the lowest cost alone ({}).",
            number(cost),
            list.join(", ")
        ),
    })
}

/// What work_mem does to a bitmap that did not fit.
fn memory(scans: &[Variant], cold: bool) -> Option<String> {
    let more = scans.iter().find(|scan| scan.work_mem_kb.is_some())?;
    let less = scans.iter().find(|scan| {
        scan.lossy_pages > Some(0)
            && scan.work_mem_kb.is_none()
            && (scan.method, scan.concurrency) == (more.method, more.concurrency)
    })?;
    let lossy = less.lossy_pages?;
    let pages = less.exact_pages? + lossy;
    let mut text = format!(
        "The bitmap did not fit into work_mem: {} of {} pages were lossy, and {} rows were rechecked",
        count(lossy),
        count(pages),
        count(less.rows_rechecked)
    );
    let work_mem = more.work_mem_kb?;
    if more.lossy_pages > Some(0) {
        text += &format!("; work_mem = {work_mem} kB does not keep it exact either");
    } else if let (Some(with), Some(without)) = (timing(more, cold), timing(less, cold)) {
        text += &format!(
            "; work_mem = {work_mem} kB keeps it exact: {} instead of {}",
            seconds(with.seconds),
            seconds(without.seconds)
        );
    }
    Some(text + ".")
}

/// The blind spots of the planner that show in these figures.
fn reasons(scans: &[Variant], table: &Table, storage: Option<&Measured>) -> Vec<Reason> {
    let all = [
        read_ahead(scans),
        cache(scans),
        bitmap_pages(scans, table),
        order_within_keys(scans, table),
        overlap(scans, table, storage),
        one_random_page_cost(scans),
    ];
    all.into_iter().flatten().collect()
}

/// (a) The cost of a scan is the same at every effective_io_concurrency.
fn read_ahead(scans: &[Variant]) -> Option<Reason> {
    let mut best: Option<(f64, &Variant, &Variant)> = None;
    for a in scans {
        for b in scans {
            let same = (a.method, &a.indexes, a.work_mem_kb) == (b.method, &b.indexes, b.work_mem_kb);
            let (Some(x), Some(y)) = (&a.cold, &b.cold) else { continue };
            let equal = a.scan_cost.is_some() && a.scan_cost == b.scan_cost && a.concurrency != b.concurrency;
            if same && equal && x.most < y.least && best.is_none_or(|(most, ..)| y.seconds / x.seconds > most)
            {
                best = Some((y.seconds / x.seconds, a, b));
            }
        }
    }
    let (_, fast, slow) = best?;
    let at =
        |scan: &Variant| Some(format!("{} at {}", seconds(scan.cold.as_ref()?.seconds), scan.concurrency?));
    let text = format!(
        "effective_io_concurrency is not in the planner's costs: {} costs {} at {} as at {}, and took {} \
         and {}",
        fast.method.name(),
        number(fast.scan_cost?),
        slow.concurrency?,
        fast.concurrency?,
        at(slow)?,
        at(fast)?
    );
    Some(Reason { about: "read-ahead", text })
}

/// (a) Nor is it known what is in memory.
fn cache(scans: &[Variant]) -> Option<Reason> {
    let own = scans.iter().find(|scan| scan.planners)?;
    let (warm, cold) = (own.warm.as_ref()?, own.cold.as_ref()?);
    (cold.least >= 2.0 * warm.most).then(|| Reason {
        about: "cache",
        text: format!(
            "what is in memory is not in the costs either: the same cost stands for {} warm and {} cold",
            seconds(warm.seconds),
            seconds(cold.seconds)
        ),
    })
}

/// (b) The pages of a bitmap are estimated as if rows lay at random.
fn bitmap_pages(scans: &[Variant], table: &Table) -> Option<Reason> {
    let off = |scan: &&Variant| {
        let (expected, real) = (scan.heap_pages_estimated?, float(scan.heap_pages?).max(1.0));
        let factor = (expected / real).max(real / expected.max(1.0));
        (factor >= 2.0 && (expected - real).abs() >= 100.0).then_some(factor)
    };
    let scan = scans
        .iter()
        .filter(|scan| off(scan).is_some())
        .max_by(|a, b| off(a).unwrap_or(0.0).total_cmp(&off(b).unwrap_or(0.0)))?;
    let (expected, real) = (scan.heap_pages_estimated?, scan.heap_pages?);
    let pages = format!(
        "the planner expected the {} scan to read {} pages of the table, and it read {}",
        scan.method.name(),
        number(expected),
        count(real)
    );
    let rows = (scan.rows_estimated.max(1.0) / scan.rows.max(1.0))
        .max(scan.rows.max(1.0) / scan.rows_estimated.max(1.0));
    if rows >= 2.0 && rows * 1.5 >= off(&scan)? {
        // How many rows were expected of all workers is only known as far as their number was as planned.
        if scan.workers > 0 {
            return None;
        }
        let text = format!(
            "{pages}, since it expected {} rows and there were {}: ANALYZE, or extended statistics, may \
             mend that",
            number(scan.rows_estimated),
            number(scan.rows)
        );
        return Some(Reason { about: "rows", text });
    }
    let index = table.indexes.iter().find(|index| scan.indexes.contains(&index.name));
    let correlation = index.and_then(|index| index.correlation).map_or_else(String::new, |correlation| {
        format!(" (the statistic of correlation is {correlation:.2}, which it does not use here)")
    });
    Some(Reason {
        about: "bitmap-pages",
        text: format!("{pages}: its estimate takes the rows to lie at random{correlation}"),
    })
}

/// (c) Rows of one key lie in the order of the table, which the statistic of correlation does not show.
fn order_within_keys(scans: &[Variant], table: &Table) -> Option<Reason> {
    let scan = scans.iter().find(|scan| scan.method == Method::Index && scan.cold.is_some())?;
    let cold = scan.cold.as_ref().filter(|cold| cold.device_reads_own)?;
    let (reads, pages) = (cold.device_reads?, scan.heap_pages?);
    let index = table.indexes.iter().find(|index| scan.indexes.contains(&index.name))?;
    let correlation = index.correlation.filter(|correlation| correlation.abs() < 0.5)?;
    (pages >= 1000 && reads * 10 <= pages).then(|| Reason {
        about: "order-within-keys",
        text: format!(
            "the index scan visited {} pages of the table with {} device reads: within a key it goes \
             through the table \
             in order, which the statistic of correlation ({correlation:.3}) does not show, so random reads \
             were reckoned with",
            count(pages),
            count(reads)
        ),
    })
}

/// (d) The cost of a sequential scan adds reading and computing, which overlap.
fn overlap(scans: &[Variant], table: &Table, storage: Option<&Measured>) -> Option<Reason> {
    let scan = scans.iter().find(|scan| scan.method == Method::Sequential && scan.cold.is_some())?;
    let (cold, warm) = (scan.cold.as_ref()?, scan.warm.as_ref()?);
    // What a cold run has read shows that there was something to overlap.
    let read = cold.device_reads_own && cold.device_bytes.is_some_and(|bytes| bytes * 2 >= table.bytes);
    let reading = storage.and_then(Measured::sequential_page_us).map(|us| us * float(table.pages) / 1e6);
    let text = match reading {
        Some(reading) if read && cold.most < 0.85 * (reading + warm.seconds) => format!(
            "reading and computing overlap in the sequential scan: {} cold, where reading alone takes {} \
             and the scan in memory {}; its cost is the sum of both",
            seconds(cold.seconds),
            seconds(reading),
            seconds(warm.seconds)
        ),
        None if read && cold.most <= 1.15 * warm.seconds => format!(
            "reading cost the sequential scan hardly any time: {} cold, {} in memory; its cost is the sum \
             of reading and computing",
            seconds(cold.seconds),
            seconds(warm.seconds)
        ),
        _ => return None,
    };
    Some(Reason { about: "overlap", text })
}

/// (e) One random_page_cost serves index scans, which wait for each read, and bitmap scans, which do not. It
/// shows where both read the same pages, as many as the planner expected, and the bitmap scan has them
/// sooner.
fn one_random_page_cost(scans: &[Variant]) -> Option<Reason> {
    // Times that are all computing say nothing of reads.
    let reads = |scan: &Variant| {
        scan.cold.as_ref().zip(scan.warm.as_ref()).is_some_and(|(c, w)| c.least > 1.5 * w.most)
    };
    let as_expected = |scan: &Variant| {
        scan.heap_pages_estimated.zip(scan.heap_pages).is_some_and(|(expected, real)| {
            let (expected, real) = (expected.max(1.0), float(real).max(1.0));
            expected <= real * 1.5 && real <= expected * 1.5
        })
    };
    let index =
        scans.iter().find(|scan| scan.method == Method::Index && !scan.rest_differs && reads(scan))?;
    let bitmap = scans
        .iter()
        .filter(|scan| scan.method == Method::Bitmap && scan.concurrency > Some(1) && !scan.rest_differs)
        .filter(|scan| scan.indexes == index.indexes && scan.work_mem_kb.is_none())
        .filter(|scan| scan.cold.is_some() && as_expected(scan))
        .max_by_key(|scan| scan.concurrency)?;
    let (alone, ahead) = (index.cold.as_ref()?, bitmap.cold.as_ref()?);
    let pages = index.heap_pages.filter(|pages| *pages >= 100 && bitmap.heap_pages == Some(*pages))?;
    let slower = ahead.most < alone.least && alone.seconds >= 2.0 * ahead.seconds;
    slower.then(|| Reason {
        about: "one-random-page-cost",
        text: format!(
            "one random_page_cost serves both: a page of the table took {} by index scan, which waits for \
             each read, and {} by {}, which asks for up to {} ahead",
            seconds(alone.seconds / float(pages)),
            seconds(ahead.seconds / float(pages)),
            bitmap.label,
            bitmap.concurrency.unwrap_or_default()
        ),
    })
}

/// Seconds for people: three digits.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 99.95 => format!("{s:.0} s"),
        s if s >= 9.995 => format!("{s:.1} s"),
        s if s >= 0.9995 => format!("{s:.2} s"),
        s if s >= 0.0995 => format!("{:.0} ms", s * 1e3),
        s if s >= 0.00995 => format!("{:.1} ms", s * 1e3),
        s if s < 0.000_995 => format!("{:.0} µs", s * 1e6),
        s => format!("{:.2} ms", s * 1e3),
    }
}

/// A number with its thousands parted.
fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A cost or an estimate, without its fractions.
// costs and rows are neither negative nor endless
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn number(n: f64) -> String {
    count(n.round().max(0.0) as u64)
}

fn ratio(n: f64) -> String {
    if n >= 9.95 { format!("{n:.0}") } else { format!("{n:.1}") }
}

fn runs(n: usize) -> String {
    if n == 1 { "one run".to_owned() } else { format!("{n} runs") }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[allow(clippy::cast_precision_loss)] // pages
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
