//! Counts that threads share.

use crate::c3::record::Times;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Answers by how long they took: 16 steps for each doubling, which is 6 %.
#[derive(Debug)]
pub struct Histogram {
    buckets: Vec<AtomicU64>,
    most: AtomicU64,
}

const STEPS: u32 = 16;

impl Default for Histogram {
    fn default() -> Histogram {
        let buckets = (0..STEPS * 40).map(|_| AtomicU64::new(0)).collect();
        Histogram { buckets, most: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Adds `count` that took so long.
    pub fn add(&self, time: Duration, count: u64) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        let last = self.buckets.len() - 1;
        self.buckets[place(micros).min(last)].fetch_add(count, Relaxed);
        self.most.fetch_max(micros, Relaxed);
    }

    /// Its figures, if there are any.
    #[allow(clippy::cast_precision_loss)] // figures
    pub fn times(&self) -> Option<Times> {
        let counts: Vec<u64> = self.buckets.iter().map(|n| n.load(Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let most = self.most.load(Relaxed);
        let below = |part: f64| {
            let mut sum = 0;
            let at = counts.iter().position(|n| {
                sum += n;
                sum as f64 >= count as f64 * part
            });
            upper(at.unwrap_or(0)).min(most as f64 / 1e6)
        };
        (count > 0).then(|| Times { count, p50: below(0.5), p99: below(0.99), most: most as f64 / 1e6 })
    }
}

fn place(micros: u64) -> usize {
    let doubling = micros.ilog2();
    let rest = micros - (1 << doubling);
    let step = (rest * u64::from(STEPS)) >> doubling;
    doubling as usize * STEPS as usize + usize::try_from(step).unwrap_or(0)
}

/// The end of a bucket, in seconds.
#[allow(clippy::cast_precision_loss)] // figures
fn upper(at: usize) -> f64 {
    let (doubling, step) = (at / STEPS as usize, at % STEPS as usize);
    (1u64 << doubling) as f64 * (1.0 + (step + 1) as f64 / f64::from(STEPS)) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_long_most_took() {
        let all = Histogram::default();
        assert!(all.times().is_none());
        for ms in 1..=1000 {
            all.add(Duration::from_millis(ms), 2);
        }
        let times = all.times().unwrap();
        assert_eq!(times.count, 2000);
        assert!((0.49..0.54).contains(&times.p50) && (0.98..=1.0).contains(&times.p99), "{times:?}");
        assert!((times.most - 1.0).abs() < 1e-9);
    }
}
