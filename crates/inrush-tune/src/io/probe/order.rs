//! Which pages are read, in which order: random numbers that need not be good, only different each time.

use std::time::{SystemTime, UNIX_EPOCH};

/// Random numbers by splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). Its bytes do
/// not compress, and no two probes write the same: storage that stores equal blocks once has nothing to gain.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// Always the same numbers.
    #[cfg(test)]
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Other numbers in each process and at each moment.
    pub(super) fn fresh() -> Random {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        #[allow(clippy::cast_possible_truncation)] // the bits that change
        Random((now as u64) ^ (u64::from(std::process::id()) << 40))
    }

    /// The next one.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One below a limit; 0 if that is 0. The bias of the remainder does not matter here.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    /// Whether an event of this probability happens.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        #[allow(clippy::cast_precision_loss)] // 53 bits fit
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        uniform < probability
    }

    /// Fills a buffer.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) {
        for eight in buffer.chunks_mut(8) {
            let bytes = self.next().to_ne_bytes();
            eight.copy_from_slice(&bytes[..eight.len()]);
        }
    }
}

/// All pages of a file in random order, over and over: no page comes again before all others have come.
#[derive(Debug)]
pub(super) struct Shuffled {
    pages: Vec<u32>,
    at: usize,
}

impl Shuffled {
    /// Of a file of so many pages.
    pub(super) fn new(pages: u32, random: &mut Random) -> Shuffled {
        let mut all: Vec<u32> = (0..pages.max(1)).collect();
        // Fisher and Yates.
        for last in (1..all.len()).rev() {
            #[allow(clippy::cast_possible_truncation)] // below `last`
            all.swap(last, random.below(last as u64 + 1) as usize);
        }
        Shuffled { pages: all, at: 0 }
    }

    /// The next ones; at most as many as the file has.
    pub(super) fn take(&mut self, count: usize) -> Vec<u32> {
        let count = count.min(self.pages.len());
        let taken = (0..count).map(|i| self.pages[(self.at + i) % self.pages.len()]).collect();
        self.at = (self.at + count) % self.pages.len();
        taken
    }
}

/// Pages as a bitmap has them: each with this probability, ascending from a random one, at most `count`. Where the end
/// of the file comes first, another sweep follows from its front, of pages that have not been read; it ends with fewer
/// when a sweep finds hardly any.
pub(super) fn ascending(pages: u32, density: f64, count: usize, random: &mut Random) -> Vec<u32> {
    let mut list = Vec::with_capacity(count.min(pages as usize));
    let mut taken = vec![false; pages as usize];
    // A dense list from the middle of a file would need a second sweep soon: begin where it fits, if it fits at all.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // pages of a file
    let span = (count as f64 / density.max(1e-6)).min(f64::from(pages)) as u32;
    #[allow(clippy::cast_possible_truncation)] // below a u32
    let mut start = random.below(u64::from(pages - span) + 1) as u32;
    while list.len() < count {
        let before = list.len();
        for page in start..pages {
            if list.len() < count && !taken[page as usize] && random.happens(density) {
                taken[page as usize] = true;
                list.push(page);
            }
        }
        start = 0;
        // Of a list of half the pages a second sweep would find neighbours of what is cached: that is another pattern.
        if density > 0.2 || list.len() == before || list.len() > pages as usize / 10 {
            break;
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_page_comes_twice_before_all_have_come() {
        let mut order = Shuffled::new(1000, &mut Random::new(1));
        let (first, second) = (order.take(600), order.take(400));
        let all: HashSet<u32> = first.iter().chain(&second).copied().collect();
        assert_eq!(all.len(), 1000);
        assert_ne!(first[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(order.take(5000).len(), 1000);
    }

    #[test]
    fn ascending_pages_have_the_density_asked_for() {
        let mut random = Random::new(2);
        for (density, count) in [(0.01, 300), (0.1, 2000), (0.5, 5000)] {
            let list = ascending(40_000, density, count, &mut random);
            assert_eq!(list.len(), count);
            assert!(list.windows(2).all(|pair| pair[0] < pair[1]), "{density}");
            let span = f64::from(list[count - 1] - list[0]);
            let seen = count as f64 / span;
            assert!((seen / density - 1.0).abs() < 0.25, "{density}: {seen}");
        }
    }

    #[test]
    fn sparse_pages_of_a_small_file_take_several_sweeps_and_none_comes_twice() {
        let list = ascending(10_000, 0.01, 500, &mut Random::new(3));
        assert_eq!(list.len(), 500);
        assert!(list.windows(2).filter(|pair| pair[0] > pair[1]).count() >= 3);
        assert_eq!(list.iter().collect::<HashSet<_>>().len(), 500);
        // Never more than a tenth in further sweeps, never endless.
        assert!(ascending(1000, 0.01, 5000, &mut Random::new(4)).len() <= 200);
        assert!(ascending(1, 0.01, 5, &mut Random::new(5)).len() <= 1);
        assert_eq!(ascending(0, 0.5, 5, &mut Random::new(5)).len(), 0);
    }
}
