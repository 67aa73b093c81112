//! What kind of storage a curve is of.

use super::measured::{Depth, Engine, Measured, Mechanism, PAGE, StopReason, spread};
use serde::{Deserialize, Serialize};

/// Share of the most reads a second that the knee gives.
const KNEE: f64 = 0.9;

/// Passes that differ by more than this share say nothing.
pub const MOST_SPREAD: f64 = 0.25;

/// Depth at which the growth of a curve is judged.
const JUDGED_AT: u32 = 16;

/// The kind of a storage, by what limits random reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Each read waits for its latency, and many can wait at once: depth pays almost in full.
    LatencyBound,
    /// Depth pays until the device is busy.
    SaturatingLocal,
    /// So many reads a second, whatever their number in flight: only fewer reads help.
    IopsCapped,
    /// So many bytes a second, whatever the size of reads.
    ThroughputCapped,
    /// The figures do not say.
    CannotTell,
}

impl Class {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Class::LatencyBound => "latency-bound",
            Class::SaturatingLocal => "saturating local",
            Class::IopsCapped => "IOPS-capped",
            Class::ThroughputCapped => "throughput-capped",
            Class::CannotTell => "cannot tell",
        }
    }

    /// Whether reads in flight give nothing more.
    pub fn capped(self) -> bool {
        matches!(self, Class::IopsCapped | Class::ThroughputCapped)
    }
}

/// What a curve means.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The kind of storage.
    pub class: Class,
    /// q*: the smallest depth that gives nine tenths of the most reads a second.
    pub knee: Option<u32>,
    /// 99th percentile of the latency there, in microseconds.
    pub knee_p99_us: Option<f64>,
    /// A smaller depth for storage that is shared with traffic that must answer at once: it gives most of the reads,
    /// and its slowest are a third as slow as those of the knee or better.
    pub gentle: Option<u32>,
    /// What it is, with figures, in a sentence or two.
    pub text: String,
    /// Why no verdict is given.
    pub refused: Option<String>,
}

impl Verdict {
    /// Judges a curve.
    pub fn of(measured: &Measured) -> Verdict {
        match judged(measured) {
            Ok(verdict) => verdict,
            Err(refused) => Verdict::refused(refused),
        }
    }

    /// No verdict, and why.
    pub fn refused(why: String) -> Verdict {
        Verdict {
            class: Class::CannotTell,
            knee: None,
            knee_p99_us: None,
            gentle: None,
            text: format!("cannot tell: {why}"),
            refused: Some(why),
        }
    }
}

/// Scans of a server whose workers are all that can be seen of its storage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bound {
    /// io_workers.
    pub(super) workers: u32,
    /// Reads a second one at a time.
    pub(super) alone: f64,
    /// The most reads a second.
    pub(super) most: f64,
}

/// A read that takes longer leaves a few workers too little to do (scan-io: never leave 3 of them on such a disk).
const SLOW_US: f64 = 500.0;

/// Whether the workers of a server bound what its scans have shown: about as many reads at once as there are workers.
pub(super) fn bound_by_workers(measured: &Measured) -> Option<Bound> {
    let workers = measured.replays.iter().find_map(|one| match one.mechanism {
        Mechanism::Workers { workers } => Some(workers),
        _ => None,
    })?;
    let alone = measured.iops(1).filter(|_| measured.engine == Engine::Server)?;
    let most = measured.random.iter().map(|one| one.iops).fold(0.0, f64::max);
    (alone > 0.0 && 1e6 / alone >= SLOW_US && most / alone <= f64::from(workers) * 1.6).then_some(Bound {
        workers,
        alone,
        most,
    })
}

fn judged(measured: &Measured) -> Result<Verdict, String> {
    if let Some(Bound { workers, alone, most }) = bound_by_workers(measured) {
        return Err(format!(
            "the {workers} io_workers of the server bound its scans to {} reads a second ({} one at a time, {} each); \
             the storage behind them may give more",
            thousands(most),
            thousands(alone),
            time(1e6 / alone)
        ));
    }
    let curve = &measured.random;
    let stopped = measured.stopped.as_ref();
    let (Some(first), Some(last)) = (curve.first().filter(|one| one.depth == 1), curve.last()) else {
        return Err(
            stopped.map_or_else(|| "no random reads were measured".to_owned(), |stop| stop.text.clone())
        );
    };
    let most = curve.iter().map(|one| one.iops).fold(0.0, f64::max);
    let knee =
        curve.iter().find(|one| one.iops >= KNEE * most).filter(|_| most > 0.0).ok_or("no read came back")?;
    // Where the curve was cut off while it rose, its knee is not known.
    if let Some(stop) = stopped.filter(|_| knee.depth == last.depth && last.depth < JUDGED_AT) {
        return Err(stop.text.clone());
    }
    if let Some(stop) = stopped.filter(|stop| stop.reason == StopReason::LiveQueries) {
        return Err(stop.text.clone());
    }
    for depth in [first, knee] {
        if let Some(apart) = spread(&depth.passes).filter(|apart| *apart > MOST_SPREAD) {
            return Err(format!(
                "the passes at depth {} differ by {:.0} %: {} reads a second. Something else uses the storage, or it \
                 changes; measure again when it is quiet",
                depth.depth,
                apart * 100.0,
                list(&depth.passes)
            ));
        }
    }
    let at = curve.iter().rfind(|one| one.depth <= JUDGED_AT).unwrap_or(first);
    let growth = at.iops / first.iops;
    let class = if throughput_capped(measured, most) {
        Class::ThroughputCapped
    } else if growth < 2.0 || (knee.depth <= 4 && at.depth == JUDGED_AT) {
        Class::IopsCapped
    } else if growth >= f64::from(at.depth) * 0.6 {
        Class::LatencyBound
    } else {
        Class::SaturatingLocal
    };
    let gentle = curve
        .iter()
        .rfind(|one| {
            one.depth < knee.depth
                && one.iops >= 0.7 * most
                && one.p99_us > 0.0
                && one.p99_us * 3.0 <= knee.p99_us
        })
        .map(|one| one.depth);
    // Through a server only the time of a whole scan is known.
    let knee_p99_us = Some(knee.p99_us).filter(|p99| *p99 > 0.0);
    let text = text(measured, class, first, knee, at, most, gentle);
    Ok(Verdict { class, knee: Some(knee.depth), knee_p99_us, gentle, text, refused: None })
}

/// Whether small and large reads deliver the same bytes a second.
#[allow(clippy::cast_precision_loss)] // 8192
fn throughput_capped(measured: &Measured, most: f64) -> bool {
    let mut direct = measured.sequential.iter().filter(|one| !one.buffered && one.request_bytes > PAGE);
    let (Some(one), Some(other)) = (direct.next(), direct.next()) else { return false };
    let rates = [most * PAGE as f64, one.bytes_per_second, other.bytes_per_second];
    let least = rates.iter().copied().fold(f64::MAX, f64::min);
    let greatest = rates.iter().copied().fold(0.0, f64::max);
    greatest > 0.0 && greatest <= least * 1.25
}

fn text(
    measured: &Measured,
    class: Class,
    first: &Depth,
    knee: &Depth,
    at: &Depth,
    most: f64,
    gentle: Option<u32>,
) -> String {
    let alone =
        format!("{} reads a second one at a time ({})", thousands(first.iops), time(1e6 / first.iops));
    let mut text = match class {
        Class::LatencyBound => format!(
            "latency-bound: {alone}, {:.0} times as many with {} in flight; {} in flight give {}, nine tenths of the most",
            at.iops / first.iops,
            at.depth,
            knee.depth,
            thousands(knee.iops)
        ),
        Class::SaturatingLocal => format!(
            "saturating local: {alone}, {} with {} in flight, which is nine tenths of the most",
            thousands(knee.iops),
            knee.depth
        ),
        Class::IopsCapped => format!(
            "IOPS-capped: {alone}, and {} with {} in flight: more in flight give nothing, only fewer reads do",
            thousands(at.iops),
            at.depth
        ),
        #[allow(clippy::cast_precision_loss)] // 8192
        Class::ThroughputCapped => format!(
            "throughput-capped: {:.0} MB/s whatever the size of reads; {alone}",
            most * PAGE as f64 / 1e6
        ),
        Class::CannotTell => "cannot tell".to_owned(),
    };
    if knee.p99_us > 0.0 {
        text += &format!("; there 99 of 100 are answered within {}", time(knee.p99_us));
    }
    if let Some(depth) = gentle {
        let p99 = measured.random.iter().find(|one| one.depth == depth).map_or(0.0, |one| one.p99_us);
        text += &format!(" ({} in flight: {})", depth, time(p99));
    }
    if let Some(tail) = measured.tail.as_ref().filter(|tail| tail.last_iops < 0.7 * tail.first_iops) {
        text += &format!(
            ". It does not keep that up: {} reads a second at first, {} after {:.0} s; burst credit was used up",
            thousands(tail.first_iops),
            thousands(tail.last_iops),
            tail.seconds
        );
    }
    text
}

/// `60 us`, `1.2 ms`, `0.4 s`
pub fn time(us: f64) -> String {
    match us {
        us if us < 100.0 => format!("{us:.0} us"),
        us if us < 1000.0 => format!("{:.2} ms", us / 1e3),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// `850`, `16.9 k`
pub fn thousands(value: f64) -> String {
    match value {
        v if v < 9_950.0 => format!("{v:.0}"),
        v if v < 99_500.0 => format!("{:.1} k", v / 1e3),
        v => format!("{:.0} k", v / 1e3),
    }
}

/// `53 %`, `0.4 %`
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent < 0.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

fn list(values: &[f64]) -> String {
    let words: Vec<String> = values.iter().map(|value| thousands(*value)).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{capped, local, slow};
    use super::super::measured::{Stop, Tail};
    use super::*;

    #[test]
    fn each_curve_has_its_class() {
        let verdict = Verdict::of(&local());
        assert_eq!(
            (verdict.class, verdict.knee, verdict.gentle),
            (Class::SaturatingLocal, Some(32), Some(16))
        );
        assert!(verdict.text.contains("16.9 k reads a second one at a time (59 us)"), "{}", verdict.text);
        let verdict = Verdict::of(&slow());
        assert_eq!((verdict.class, verdict.knee), (Class::LatencyBound, Some(128)));
        let verdict = Verdict::of(&capped());
        assert_eq!((verdict.class, verdict.knee), (Class::IopsCapped, Some(1)));
        // A volume whose latency hides its cap until two reads are in flight.
        let mut volume = capped();
        volume.random[0].iops = 1_400.0;
        volume.random[0].passes = vec![1_400.0, 1_380.0];
        assert_eq!(Verdict::of(&volume).class, Class::IopsCapped);
        // Small reads deliver what large ones do.
        let mut volume = local();
        volume.random.iter_mut().filter(|one| one.depth > 1).for_each(|one| one.iops = 15_300.0);
        volume.random[0].iops = 1_500.0;
        volume.random[0].passes = vec![1_500.0];
        volume.sequential.iter_mut().for_each(|one| one.bytes_per_second = 125e6);
        assert_eq!(Verdict::of(&volume).class, Class::ThroughputCapped);
    }

    #[test]
    fn what_differs_too_much_has_no_class() {
        let mut noisy = local();
        noisy.random[0].passes = vec![16_900.0, 9_000.0];
        let verdict = Verdict::of(&noisy);
        assert_eq!(verdict.class, Class::CannotTell);
        assert!(verdict.refused.unwrap().contains("depth 1 differ by 61 %"));
        assert_eq!(Verdict::of(&Measured::default()).class, Class::CannotTell);
    }

    #[test]
    fn a_curve_that_was_cut_off_has_no_class() {
        let mut cut = local();
        cut.random.truncate(3);
        cut.stopped = Some(Stop { reason: StopReason::Time, text: "60 s were over".to_owned() });
        assert_eq!(Verdict::of(&cut).refused.as_deref(), Some("60 s were over"));
        let mut stopped = local();
        stopped.stopped = Some(Stop { reason: StopReason::LiveQueries, text: "queries waited".to_owned() });
        assert_eq!(Verdict::of(&stopped).class, Class::CannotTell);
    }

    #[test]
    fn burst_credit_is_told() {
        let mut burst = local();
        burst.tail = Some(Tail { depth: 32, seconds: 15.0, first_iops: 60_000.0, last_iops: 3_000.0 });
        let text = Verdict::of(&burst).text;
        assert!(text.contains("60.0 k reads a second at first, 3000 after 15 s"), "{text}");
    }
}
