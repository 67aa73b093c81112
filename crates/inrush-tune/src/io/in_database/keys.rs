//! Which keys a trial asks for: none that another trial of the run asks for, and hardly any of another run.
//!
//! The keys are cut into strata of about as many rows by the histogram of the column, and each stratum into
//! cells. A trial takes one key from one cell of each stratum (stratified sampling), so its pages lie as
//! evenly over the table as a random choice allows. Cells are disjoint ranges of keys, and trials take other
//! cells: no key comes twice. Where the column follows the order of the table, neighbouring cells share
//! pages: trials are as many cells apart as there are.

use super::candidate::Candidate;

/// Cells of a stratum, where there are keys enough for them. A run takes thirty to fifty: another begins at
/// other cells, by chance, and so meets few of them.
const CELLS: u64 = 1_000;

/// The most trials of a run.
pub(super) const MOST_TRIALS: u64 = 50;

/// Keys that were not asked for yet.
#[derive(Debug)]
pub(super) struct Keys<'a> {
    candidate: &'a Candidate,
    strata: u64,
    cells: u64,
    /// The slots of the trials to come, the next one last.
    slots: Vec<u64>,
    /// Where the slots begin is another cell in each stratum.
    turn: u64,
    seed: u64,
}

impl<'a> Keys<'a> {
    /// For trials of at most so many keys.
    pub(super) fn new(candidate: &'a Candidate, most: u64, seed: u64) -> Keys<'a> {
        let span = match (candidate.bounds.first(), candidate.bounds.last()) {
            (Some(first), Some(last)) => last.abs_diff(*first),
            _ => 0,
        };
        let strata = most.max(1);
        let mut seed = seed;
        let mut slots: Vec<u64> = (0..MOST_TRIALS).collect();
        // Fisher and Yates.
        for i in (1..slots.len()).rev() {
            #[allow(clippy::cast_possible_truncation)] // below the number of slots
            slots.swap(i, (random(&mut seed) % (i as u64 + 1)) as usize);
        }
        let turn = random(&mut seed);
        Keys { candidate, strata, cells: (span / strata).clamp(MOST_TRIALS, CELLS), slots, turn, seed }
    }

    /// The keys of the next trial, at most `wanted`: fewer where the histogram leaves no room for others.
    /// `None` when there have been too many trials.
    pub(super) fn take(&mut self, wanted: u64) -> Option<Vec<i64>> {
        let slot = self.slots.pop()?;
        let wanted = wanted.clamp(1, self.strata);
        let first = random(&mut self.seed) % self.strata;
        let keys = (0..wanted).filter_map(|i| {
            // Some of the strata, evenly spread, and others each time; of those one cell.
            let stratum = (i * self.strata + first) / wanted;
            let begin = random(&mut { self.turn ^ stratum.wrapping_mul(0x9e37_79b9_7f4a_7c15) }) % self.cells;
            let cell = (begin + slot * (self.cells / MOST_TRIALS)) % self.cells;
            let at = u128::from(stratum) * u128::from(self.cells) + u128::from(cell);
            let (from, to) = (self.key(at)?, self.key(at + 1)?);
            let width = u128::try_from(to - from).ok().filter(|width| *width > 0)?;
            let start = u128::from(random(&mut self.seed)) % width;
            // A value with many rows is none of the bounds, but may lie between them.
            (0..width.min(16)).find_map(|step| {
                let key = from + i128::try_from((start + step) % width).ok()?;
                let key = i64::try_from(key).ok()?;
                (!self.candidate.common.contains(&key)).then_some(key)
            })
        });
        Some(keys.collect())
    }

    /// The key where a cell begins: the histogram as a line through its bounds.
    fn key(&self, cell: u128) -> Option<i128> {
        let parts = self.candidate.bounds.len().checked_sub(1)? as u128;
        let all = u128::from(self.strata) * u128::from(self.cells);
        let (part, rest) = (cell * parts / all, cell * parts % all);
        let bound = |i: u128| {
            let i = usize::try_from(i).ok()?;
            self.candidate.bounds.get(i).copied().map(i128::from)
        };
        let from = bound(part)?;
        if rest == 0 {
            return Some(from);
        }
        let width = bound(part + 1)? - from;
        Some(from + width * i128::try_from(rest).ok()? / i128::try_from(all).ok()?)
    }
}

/// splitmix64 (Steele, Lea, Flood 2014).
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::super::candidate::made_up;
    use super::*;
    use std::collections::BTreeSet;

    fn all(candidate: &Candidate, most: u64, seed: u64) -> Vec<Vec<i64>> {
        let mut keys = Keys::new(candidate, most, seed);
        // Trials of several sizes, as in a run.
        let sizes = [100, 32, most].into_iter().chain(std::iter::repeat(most / 2 + 1));
        sizes.map_while(|size| keys.take(size)).collect()
    }

    #[test]
    fn no_key_is_asked_for_twice() {
        let even = Candidate { bounds: (0..=100).map(|i| i * 10_000).collect(), ..made_up(100_000) };
        let wide = Candidate { bounds: vec![i64::MIN, -3, i64::MAX], ..made_up(100_000) };
        // A row a page, and buckets of which one is as narrow as can be.
        let narrow = Candidate { bounds: vec![1, 40_000, 40_001, 100_000], ..made_up(100_000) };
        for (seed, candidate) in [even, wide, narrow].iter().enumerate() {
            let trials = all(candidate, 400, seed as u64);
            assert_eq!(trials.len() as u64, MOST_TRIALS);
            let asked: Vec<i64> = trials.concat();
            let distinct: BTreeSet<i64> = asked.iter().copied().collect();
            assert_eq!(asked.len(), distinct.len());
            assert!(trials[2].len() > 200, "{}", trials[2].len());
            let (first, last) = (candidate.bounds[0], *candidate.bounds.last().unwrap());
            assert!(asked.iter().all(|key| (first..=last).contains(key)));
        }
    }

    /// Rows in the order of their keys, 20 on a page.
    #[test]
    fn trials_meet_on_few_pages_and_runs_too() {
        let candidate = Candidate { bounds: (0..=100).map(|i| i * 20_000).collect(), ..made_up(100_000) };
        let pages =
            |trials: &[Vec<i64>]| -> BTreeSet<i64> { trials.iter().flatten().map(|key| key / 20).collect() };
        let (one, other) = (all(&candidate, 400, 1), all(&candidate, 400, 2));
        let (first, second) = (pages(&one), pages(&other));
        assert!(first.len() * 100 >= one.concat().len() * 99, "{}", first.len());
        let shared = first.intersection(&second).count();
        assert!(shared * 8 < second.len(), "{shared} of {}", second.len());
    }

    #[test]
    fn values_with_many_rows_are_not_asked_for() {
        let common: BTreeSet<i64> = (0..100_000).filter(|key| key % 3 != 0).collect();
        let candidate = Candidate { bounds: vec![0, 50_000, 100_000], common, ..made_up(100_000) };
        let asked = all(&candidate, 400, 9).concat();
        assert!(asked.len() > 1_000 && asked.iter().all(|key| key % 3 == 0));
    }
}
