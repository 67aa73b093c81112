//! What a process counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Upper bounds, in seconds, of the buckets of times.
const BOUNDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// How many took how long.
#[derive(Debug, Default)]
pub(crate) struct Times {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Times {
    pub fn add(&self, time: Duration, count: u64) {
        let seconds = time.as_secs_f64();
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[at].fetch_add(count, Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros.saturating_mul(count), Relaxed);
    }

    fn write(&self, out: &mut String, name: &str) {
        let mut sum = 0;
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            sum += bucket.load(Relaxed);
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {sum}");
        }
        sum += self.buckets[BOUNDS.len()].load(Relaxed);
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {sum}");
        // Seconds need no more digits than a float has.
        #[allow(clippy::cast_precision_loss)]
        let seconds = self.micros.load(Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum {seconds}\n{name}_count {sum}");
    }
}

/// What one input counts.
#[derive(Debug, Default)]
pub(crate) struct InputCounters {
    pub bytes: AtomicU64,
    pub rows: AtomicU64,
    pub known: AtomicU64,
    pub rejects: AtomicU64,
    pub dropped: AtomicU64,
    pub requests: AtomicU64,
    pub refused: AtomicU64,
    /// How far behind it is, in positions of its source; -1 where that is not known.
    pub lag: AtomicI64,
    window: Mutex<Option<(Instant, u64)>>,
}

impl InputCounters {
    /// Counts refused rows. `false` once there are more than `limit` within a minute; 0 is no limit.
    pub fn reject(&self, count: u64, limit: u64) -> bool {
        self.rejects.fetch_add(count, Relaxed);
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (began, sum) = match *window {
            Some((began, sum)) if now - began < Duration::from_secs(60) => (began, sum + count),
            _ => (now, count),
        };
        *window = Some((began, sum));
        limit == 0 || sum <= limit
    }

    /// How long the input stays stopped for its refused rows.
    pub fn poisoned(&self, limit: u64) -> Option<Duration> {
        if limit == 0 {
            return None;
        }
        let window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, sum) = (*window)?;
        (sum > limit).then(|| Duration::from_secs(60).checked_sub(began.elapsed())).flatten()
    }
}

/// What the whole process counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub rows: AtomicU64,
    pub bytes_sent: AtomicU64,
    pub units: AtomicU64,
    pub retries: AtomicU64,
    pub reconnects: AtomicU64,
    pub rows_as_text: AtomicU64,
    /// From arrival to visible, by row.
    pub visible: Times,
    /// How long a unit took.
    pub unit: Times,
    /// Lanes without a connection.
    pub lanes_down: AtomicI64,
    pub lanes: AtomicI64,
    pub windows_ahead: AtomicI64,
    pub windows_retired: AtomicU64,
    pub maintenance_failures: AtomicU64,
    pub spilled: AtomicU64,
    pub stopping: AtomicBool,
    inputs: Mutex<BTreeMap<String, Arc<crate::part::Source>>>,
    /// Why it is behind, as the latest look at the server's waits said.
    pub limit: Mutex<String>,
    /// What the lanes' backends wait for.
    pub recorder: Arc<inrush_profile::Recorder>,
    last_error: Mutex<Option<(SystemTime, String)>>,
}

impl Metrics {
    pub fn add_input(&self, source: &Arc<crate::part::Source>) {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        inputs.insert(source.name.clone(), Arc::clone(source));
    }

    /// An input by its name in the ledger.
    pub fn source(&self, name: &str) -> Option<Arc<crate::part::Source>> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Whether no lane has a connection.
    pub fn is_down(&self) -> bool {
        self.lanes_down.load(Relaxed) >= self.lanes.load(Relaxed).max(1)
    }

    /// Rows refused by all inputs.
    pub fn rejects(&self) -> u64 {
        let inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        inputs.values().map(|source| source.counters.rejects.load(Relaxed)).sum()
    }

    /// Keeps the latest error for /ready.
    pub fn note_error(&self, error: &inrush_core::Error) {
        let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((SystemTime::now(), error.fact().to_owned()));
    }

    /// The latest error, if it is not older than that.
    pub fn recent_error(&self, age: Duration) -> Option<String> {
        let last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, error) = last.as_ref()?;
        (at.elapsed().unwrap_or_default() <= age).then(|| error.clone())
    }

    /// Why the process is not ready, if it is not.
    pub fn not_ready(&self, reject_limit: u64) -> Vec<String> {
        let mut why = Vec::new();
        if self.stopping.load(Relaxed) {
            why.push("stopping".to_owned());
        }
        let (down, lanes) = (self.lanes_down.load(Relaxed), self.lanes.load(Relaxed));
        if down > 0 {
            let error = self.recent_error(Duration::from_secs(60));
            let error = error.map_or(String::new(), |error| format!(": {error}"));
            why.push(format!("{down} of {lanes} lanes have no connection{error}"));
        }
        if self.windows_ahead.load(Relaxed) == 0 {
            why.push("a table has no window ahead of now".to_owned());
        }
        let inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        for source in inputs.values() {
            if source.counters.poisoned(reject_limit).is_some() {
                why.push(format!(
                    "{} is stopped: more than {reject_limit} refused rows a minute",
                    source.name
                ));
            }
        }
        why
    }

    /// The text that Prometheus reads (exposition format 0.0.4).
    pub fn prometheus(&self, memory: (usize, usize), spill: Option<SpillFigures>) -> String {
        let mut out = String::new();
        let mut one = |name: &str, kind: &str, help: &str, value: i128| {
            let _ = writeln!(
                out,
                "# HELP inrush_{name} {help}\n# TYPE inrush_{name} {kind}\ninrush_{name} {value}"
            );
        };
        let count = |n: &AtomicU64| i128::from(n.load(Relaxed));
        let gauge = |n: &AtomicI64| i128::from(n.load(Relaxed));
        one("rows_total", "counter", "Rows committed.", count(&self.rows));
        one("sent_bytes_total", "counter", "Bytes sent to the server.", count(&self.bytes_sent));
        one("units_total", "counter", "Units committed.", count(&self.units));
        one("retries_total", "counter", "Units sent again.", count(&self.retries));
        one("reconnects_total", "counter", "Connections made again.", count(&self.reconnects));
        one(
            "rows_as_text_total",
            "counter",
            "Rows the encoder was not sure of, sent as COPY text.",
            count(&self.rows_as_text),
        );
        one("lanes", "gauge", "Connections that write.", gauge(&self.lanes));
        one("lanes_down", "gauge", "Lanes without a connection.", gauge(&self.lanes_down));
        one(
            "windows_ahead",
            "gauge",
            "Windows made ahead, of the table with fewest; -1: there are no windows.",
            gauge(&self.windows_ahead),
        );
        one("windows_retired_total", "counter", "Windows retired.", count(&self.windows_retired));
        one(
            "maintenance_failures_total",
            "counter",
            "Rounds of window maintenance that failed.",
            count(&self.maintenance_failures),
        );
        one("memory_used_bytes", "gauge", "Memory taken by rows not committed.", memory.0 as i128);
        one("memory_limit_bytes", "gauge", "Memory they may take.", memory.1 as i128);
        one("spilled_total", "counter", "Parts that went to the spill.", count(&self.spilled));
        if let Some(spill) = spill {
            one(
                "spill_bytes",
                "gauge",
                "Bytes in the spill that wait to be drained.",
                i128::from(spill.bytes),
            );
            one("spill_disk_bytes", "gauge", "Bytes of disk that the spill takes.", i128::from(spill.disk));
            one("spill_age_seconds", "gauge", "Age of the oldest part in the spill.", i128::from(spill.age));
        }
        let inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        type Read = fn(&InputCounters) -> i128;
        let of_inputs: [(&str, &str, &str, Read); 8] = [
            ("input_bytes_total", "counter", "Bytes taken in.", |c| c.bytes.load(Relaxed).into()),
            ("input_rows_total", "counter", "Rows committed.", |c| c.rows.load(Relaxed).into()),
            ("input_known_total", "counter", "Rows that were there already.", |c| {
                c.known.load(Relaxed).into()
            }),
            ("input_rejects_total", "counter", "Rows refused.", |c| c.rejects.load(Relaxed).into()),
            ("input_dropped_total", "counter", "Late rows dropped.", |c| c.dropped.load(Relaxed).into()),
            ("input_requests_total", "counter", "Requests.", |c| c.requests.load(Relaxed).into()),
            ("input_refused_total", "counter", "Requests refused.", |c| c.refused.load(Relaxed).into()),
            ("input_lag", "gauge", "Positions behind the source's end; -1: not known.", |c| {
                c.lag.load(Relaxed).into()
            }),
        ];
        for (name, kind, help, read) in of_inputs {
            let _ = writeln!(out, "# HELP inrush_{name} {help}\n# TYPE inrush_{name} {kind}");
            for source in inputs.values() {
                let _ =
                    writeln!(out, "inrush_{name}{{input=\"{}\"}} {}", source.name, read(&source.counters));
            }
        }
        for (name, help, times) in [
            ("visible_seconds", "Rows by the time from arrival to visible.", &self.visible),
            ("unit_seconds", "Units by the time from first statement to committed.", &self.unit),
        ] {
            let _ = writeln!(out, "# HELP inrush_{name} {help}\n# TYPE inrush_{name} histogram");
            times.write(&mut out, &format!("inrush_{name}"));
        }
        out + &crate::waits::prometheus(&self.recorder.times())
    }
}

/// What the spill holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpillFigures {
    /// That wait to be drained.
    pub bytes: u64,
    /// Of disk.
    pub disk: u64,
    /// Seconds, of the oldest.
    pub age: u64,
}

/// Seconds since 1970, for positions of messages in time.
pub(crate) fn unix_micros(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_rejects_stop_an_input_for_a_while() {
        let counters = InputCounters::default();
        assert!(counters.reject(5, 10));
        assert!(counters.poisoned(10).is_none());
        assert!(!counters.reject(6, 10));
        assert!(counters.poisoned(10).is_some_and(|left| left <= Duration::from_secs(60)));
        assert!(counters.poisoned(0).is_none());
    }

    #[test]
    fn buckets_are_cumulative() {
        let times = Times::default();
        times.add(Duration::from_millis(7), 3);
        times.add(Duration::from_secs(100), 1);
        let mut out = String::new();
        times.write(&mut out, "t");
        assert!(out.contains("t_bucket{le=\"0.005\"} 0\n"), "{out}");
        assert!(
            out.contains("t_bucket{le=\"0.01\"} 3\n") && out.contains("t_bucket{le=\"60\"} 3\n"),
            "{out}"
        );
        assert!(out.contains("t_bucket{le=\"+Inf\"} 4\n") && out.contains("t_count 4\n"), "{out}");
    }
}
