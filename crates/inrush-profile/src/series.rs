//! Figures over time, in a bounded number of steps however long the load takes.

use crate::class::{Class, ClassTimes};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// Steps kept: when there are more, two become one and the step doubles.
const MAX_STEPS: usize = 600;
/// The first step, in seconds.
const FIRST_STEP: f64 = 0.1;

/// What happened in each step of the load.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Series {
    /// Seconds of a step.
    pub step_seconds: f64,
    /// Input bytes that lanes dealt with.
    pub bytes_in: Vec<u64>,
    /// Rows committed.
    pub rows: Vec<u64>,
    /// WAL of the whole server, in bytes. Read once a second: spread over the steps between.
    pub wal_bytes: Vec<u64>,
    /// Backend seconds by class; classes without any are left out.
    #[serde(serialize_with = "by_class")]
    pub waits: Vec<ClassTimes>,
}

fn by_class<S: Serializer>(steps: &[ClassTimes], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for class in Class::ALL {
        if steps.iter().any(|step| step.of(class) > 0.0) {
            let rounded: Vec<f64> = steps.iter().map(|step| (step.of(class) * 1e4).round() / 1e4).collect();
            map.serialize_entry(class.name(), &rounded)?;
        }
    }
    map.end()
}

impl Series {
    pub(crate) fn new() -> Series {
        Series { step_seconds: FIRST_STEP, ..Series::default() }
    }

    /// Adds what happened until `at` seconds after the start.
    pub(crate) fn add(&mut self, at: f64, bytes: u64, rows: u64, times: &ClassTimes) {
        let step = self.step_of(at);
        self.bytes_in[step] += bytes;
        self.rows[step] += rows;
        self.waits[step].merge(times);
    }

    /// Spreads WAL over the steps from `from` to `to`, in seconds after the start.
    pub(crate) fn add_wal(&mut self, from: f64, to: f64, bytes: u64) {
        let (first, last) = (self.step_of(from), self.step_of(to));
        // Making the last step may have merged others.
        let first = first.min(last);
        let steps = (last - first + 1) as u64;
        for step in first..=last {
            self.wal_bytes[step] += bytes / steps;
        }
        self.wal_bytes[last] += bytes % steps;
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a number of steps, at most 600
    fn step_of(&mut self, at: f64) -> usize {
        while (at.max(0.0) / self.step_seconds) as usize >= MAX_STEPS {
            self.halve();
        }
        let step = (at.max(0.0) / self.step_seconds) as usize;
        while self.bytes_in.len() <= step {
            self.bytes_in.push(0);
            self.rows.push(0);
            self.wal_bytes.push(0);
            self.waits.push(ClassTimes::default());
        }
        step
    }

    fn halve(&mut self) {
        let sums = |steps: &[u64]| steps.chunks(2).map(|pair| pair.iter().sum()).collect();
        self.bytes_in = sums(&self.bytes_in);
        self.rows = sums(&self.rows);
        self.wal_bytes = sums(&self.wal_bytes);
        self.waits = self
            .waits
            .chunks(2)
            .map(|pair| {
                let mut times = pair[0];
                pair[1..].iter().for_each(|more| times.merge(more));
                times
            })
            .collect();
        self.step_seconds *= 2.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_load_has_few_steps_and_loses_nothing() {
        let mut series = Series::new();
        let mut times = ClassTimes::default();
        times.add(Class::Wal, 0.5);
        for second in 0..5000u32 {
            series.add(f64::from(second), 3, 1, &times);
            series.add_wal(f64::from(second), f64::from(second) + 1.0, 7);
        }
        assert!(series.bytes_in.len() <= MAX_STEPS);
        assert_eq!(series.bytes_in.iter().sum::<u64>(), 15_000);
        assert_eq!(series.rows.iter().sum::<u64>(), 5000);
        assert_eq!(series.wal_bytes.iter().sum::<u64>(), 35_000);
        let waited: f64 = series.waits.iter().map(|step| step.of(Class::Wal)).sum();
        assert!((waited - 2500.0).abs() < 1e-6);
        assert!(series.step_seconds * series.bytes_in.len() as f64 >= 5000.0);
    }

    #[test]
    fn classes_without_time_are_left_out() {
        let mut series = Series::new();
        let mut times = ClassTimes::default();
        times.add(Class::Cpu, 0.25);
        series.add(0.0, 1, 1, &times);
        let json = serde_json::to_value(&series).unwrap();
        assert_eq!(json["waits"], serde_json::json!({ "cpu": [0.25] }));
    }
}
