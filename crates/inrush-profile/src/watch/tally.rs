//! Sums over time, and what they were a while ago.

use super::picture::Together;
use crate::class::{Class, ClassTimes};
use crate::limit::Limit;
use crate::profile::ClassShare;
use std::collections::VecDeque;

/// What has been counted so far of a session, a table, or everything.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub times: ClassTimes,
    /// Looks at sessions.
    pub looks: u64,
    /// Rows, and bytes of input, of COPY.
    pub rows: u64,
    pub bytes: u64,
}

impl Tally {
    pub fn since(&self, earlier: &Tally) -> Tally {
        Tally {
            times: self.times.since(&earlier.times),
            looks: self.looks.saturating_sub(earlier.looks),
            rows: self.rows.saturating_sub(earlier.rows),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }

    /// Where the time went. `forced`: checkpoints that were forced, and in how many seconds.
    pub fn together(&self, sessions: usize, forced: Option<(u64, f64)>) -> Together {
        // Differences of sums come out a little below nothing.
        let sum: f64 = self.times.ranked().iter().map(|(_, seconds)| seconds).sum();
        let split: Vec<ClassShare> = self
            .times
            .ranked()
            .into_iter()
            .filter(|(_, seconds)| *seconds > 1e-9)
            .map(|(class, seconds)| ClassShare { class, seconds, share: seconds / sum })
            .collect();
        Together {
            sessions,
            backend_seconds: sum,
            limit: Limit::of_others(self.looks, &split, forced),
            split,
        }
    }
}

/// A sum, and its values of the last seconds.
#[derive(Debug, Clone)]
pub(crate) struct Course<T> {
    pub now: T,
    began: f64,
    /// Oldest first. One that is older than what is kept stays, to begin from.
    past: VecDeque<(f64, T)>,
}

impl<T: Copy> Course<T> {
    pub fn new(began: f64, value: T) -> Course<T> {
        Course { now: value, began, past: VecDeque::from([(began, value)]) }
    }

    /// Remembers the present value for `keep` seconds.
    pub fn remember(&mut self, at: f64, keep: f64) {
        self.past.push_back((at, self.now));
        while self.past.get(1).is_some_and(|(then, _)| *then <= at - keep) {
            self.past.pop_front();
        }
    }

    /// The seconds back to the value that was there `seconds` ago or a little later, and that value.
    pub fn ago(&self, at: f64, seconds: f64) -> (f64, T) {
        // Whoever asks every second asks sometimes a little early.
        let then = at - seconds * 0.95;
        let found = self.past.iter().rev().find(|(when, _)| *when <= then).or(self.past.front());
        found.map_or((at - self.began, self.now), |(when, value)| ((at - when).max(0.0), *value))
    }

    /// The time of the first value.
    pub fn began(&self) -> f64 {
        self.began
    }

    /// The time of the last value that was remembered.
    pub fn last(&self) -> f64 {
        self.past.back().map_or(self.began, |(at, _)| *at)
    }
}

/// Splits time without wait event by what the kernel says of the process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Running {
    /// Of the time it could have run, the share for which every processor was taken.
    pub queued: f64,
}

impl Running {
    pub fn add(self, times: &mut ClassTimes, class: Class, seconds: f64) {
        if class == Class::Cpu {
            times.add(Class::Cpu, seconds * (1.0 - self.queued));
            times.add(Class::CpuQueue, seconds * self.queued);
        } else {
            times.add(class, seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_knows_what_was() {
        let mut course = Course::new(10.0, 0u64);
        for tenth in 1..=100u32 {
            course.now = u64::from(tenth);
            course.remember(10.0 + f64::from(tenth) / 10.0, 5.0);
        }
        let (seconds, value) = course.ago(20.0, 1.0);
        assert!((0.9..1.1).contains(&seconds) && (90..=91).contains(&value), "{seconds} {value}");
        assert!(course.past.len() <= 52, "{}", course.past.len());
        // Before it began there was nothing.
        let young = Course::new(19.5, 3u64);
        assert_eq!(young.ago(20.0, 5.0), (0.5, 3));
    }
}
