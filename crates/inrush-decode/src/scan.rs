//! The structural scan under the text formats: positions of the few bytes that mean something (delimiter,
//! quote, line ends), found 64 bytes at a time.
//!
//! The scan runs ahead of the decoder by one window and leaves an index of positions; the decoder then only
//! looks at those bytes. That keeps the unpredictable branch ("is there another one in this block?") out of
//! the per-field loop, which is what a bit-by-bit walk of the masks spends its time on.

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::push_unless_null;
use inrush_core::Fields;

/// Bytes scanned ahead at a time. Its index in the worst case (every byte structural) is four times as
/// large, in practice an eighth of it, and stays in the first-level cache.
const WINDOW: usize = 4096;
/// A block is what one mask covers.
const BLOCK: usize = 64;
/// Entries that may be kept when the next window is scanned behind them.
const CARRY: usize = 256;
/// Room for what is kept, for a whole window, and for one block more: [`flatten`] writes a few entries past the
/// real ones.
type Index = [u32; CARRY + WINDOW + BLOCK];

/// Which bytes are structural. Unused places repeat another needle.
pub(crate) type Needles = [u8; 5];

/// Finds structural bytes in a chunk, in order.
pub(crate) struct Scanner {
    needles: Needles,
    level: Level,
    index: Box<Index>,
    /// Entries of `index` that are filled, and the next one to hand out.
    filled: usize,
    at: usize,
    /// Bytes of the chunk the index has covered.
    scanned: usize,
    /// Whether they all are ASCII, and none is NUL.
    plain: bool,
}

/// What the scan of a window gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scanned {
    /// Entries that the index has now.
    filled: usize,
    /// Whether all bytes of the window are ASCII, and none is NUL.
    plain: bool,
}

/// Which instructions the scan uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// Plain 64-bit arithmetic; any machine.
    #[cfg(any(test, not(target_arch = "x86_64")))]
    Portable,
    /// 16 bytes at a time; every x86-64.
    #[cfg(target_arch = "x86_64")]
    Sse2,
    /// 32 bytes at a time; found at run time.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The same, for needles that a table tells apart.
    #[cfg(target_arch = "x86_64")]
    Avx2Lookup(x86::Lookup),
}

impl Level {
    /// The best this machine has for these needles.
    fn detect(needles: Needles) -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            if x86::has_avx2() {
                x86::lookup(needles).map_or(Level::Avx2, Level::Avx2Lookup)
            } else {
                Level::Sse2
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            Level::Portable
        }
    }
}

impl Scanner {
    pub(crate) fn new(needles: Needles) -> Scanner {
        Scanner::with_level(needles, Level::detect(needles))
    }

    fn with_level(needles: Needles, level: Level) -> Scanner {
        let index = Box::new([0; CARRY + WINDOW + BLOCK]);
        Scanner { needles, level, index, filled: 0, at: 0, scanned: 0, plain: true }
    }

    /// Starts on a new chunk.
    pub(crate) fn begin(&mut self) {
        (self.filled, self.at, self.scanned, self.plain) = (0, 0, 0, true);
    }

    /// Whether all bytes up to the last position that was asked for are ASCII, and none is NUL. What is a
    /// little behind it may be the reason for a no.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// The fields of a record of exactly `n` that begins at `start`, if nothing is special about it: the next
    /// structural bytes are `n - 1` delimiters and a line feed. They are used up then, and the start of the
    /// next record is given. Otherwise nothing is, and the fields mean nothing.
    #[inline(always)]
    pub(crate) fn simple_record(
        &mut self,
        chunk: &[u8],
        mut start: usize,
        n: usize,
        delimiter: u8,
        null: &[u8],
        fields: &mut Fields,
    ) -> Option<usize> {
        if self.filled - self.at < n && !self.top_up(chunk, n) {
            return None;
        }
        let (last, ends) = self.index[self.at..self.at + n].split_last()?;
        if chunk.get(*last as usize) != Some(&b'\n') {
            return None;
        }
        fields.clear();
        for end in ends {
            let end = *end as usize;
            if chunk[end] != delimiter {
                return None;
            }
            push_unless_null(chunk, fields, start..end, null);
            start = end + 1;
        }
        let end = *last as usize;
        push_unless_null(chunk, fields, start..end, null);
        self.at += n;
        Some(end + 1)
    }

    /// Scans on until the index holds `n` entries; `false` if that cannot be.
    #[cold]
    #[inline(never)]
    fn top_up(&mut self, chunk: &[u8], n: usize) -> bool {
        while self.filled - self.at < n {
            let left = self.filled - self.at;
            if left > CARRY || self.scanned >= chunk.len() {
                return false;
            }
            self.index.copy_within(self.at..self.filled, 0);
            (self.filled, self.at) = (left, 0);
            self.scan_window(chunk);
        }
        true
    }

    /// Position of the next structural byte, which is used up; the length of the chunk when there is none.
    #[inline(always)]
    pub(crate) fn next(&mut self, chunk: &[u8]) -> usize {
        if self.at == self.filled && !self.refill(chunk) {
            return chunk.len();
        }
        self.at += 1;
        self.index[self.at - 1] as usize
    }

    /// As [`Scanner::next`], without using it up.
    #[inline(always)]
    pub(crate) fn peek(&mut self, chunk: &[u8]) -> usize {
        if self.at == self.filled && !self.refill(chunk) {
            return chunk.len();
        }
        self.index[self.at] as usize
    }

    /// Uses up every structural byte before `position`.
    #[inline]
    pub(crate) fn skip_to(&mut self, chunk: &[u8], position: usize) {
        while self.peek(chunk) < position {
            self.at += 1;
        }
    }

    /// Scans on until the index holds something; `false` at the end of the chunk.
    #[cold]
    #[inline(never)]
    fn refill(&mut self, chunk: &[u8]) -> bool {
        (self.filled, self.at) = (0, 0);
        while self.filled == 0 {
            if self.scanned >= chunk.len() {
                return false;
            }
            self.scan_window(chunk);
        }
        true
    }

    /// Scans one window more; its entries go behind those that are there.
    fn scan_window(&mut self, chunk: &[u8]) {
        let end = chunk.len().min(self.scanned + WINDOW);
        let window = &chunk[self.scanned..end];
        // Chunks are below 1 GB (Limits::MAX_RECORD_CEILING).
        #[allow(clippy::cast_possible_truncation)]
        let base = self.scanned as u32;
        let scanned = match self.level {
            #[cfg(any(test, not(target_arch = "x86_64")))]
            Level::Portable => index_portable(window, base, self.needles, &mut self.index, self.filled),
            #[cfg(target_arch = "x86_64")]
            Level::Sse2 => x86::index_sse2(window, base, self.needles, &mut self.index, self.filled),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this level is only chosen where the features were found.
            Level::Avx2 => unsafe {
                x86::index_avx2(window, base, self.needles, &mut self.index, self.filled)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx2Lookup(table) => unsafe {
                x86::index_avx2_lookup(window, base, &table, &mut self.index, self.filled)
            },
        };
        self.filled = scanned.filled;
        self.plain &= scanned.plain;
        self.scanned = end;
    }
}

/// The loop over the blocks of a window, whose entries go behind `$filled` others; `$mask` turns a `&[u8; 64]`
/// into the mask of its structural bytes. The last block is filled up with spaces.
/// A macro and not a function with a closure: a closure with vector instructions is not reliably inlined
/// into a function without them.
macro_rules! index_window {
    ($window:expr, $base:expr, $index:expr, $filled:expr, $mask:expr) => {{
        let (window, index): (&[u8], &mut $crate::scan::Index) = ($window, $index);
        let mut base: u32 = $base;
        let mut filled: usize = $filled;
        let (blocks, tail) = window.as_chunks::<{ $crate::scan::BLOCK }>();
        for block in blocks {
            filled = $crate::scan::flatten($mask(block), base, index, filled);
            base += $crate::scan::BLOCK as u32;
        }
        if !tail.is_empty() {
            let mut block = [b' '; $crate::scan::BLOCK];
            block[..tail.len()].copy_from_slice(tail);
            let mask = $mask(&block) & ((1 << tail.len()) - 1);
            filled = $crate::scan::flatten(mask, base, index, filled);
        }
        filled
    }};
}
use index_window;

/// Appends the positions of the bits of `mask` to the index and gives its new length.
///
/// The first entries are written whether or not there are so many bits: a fixed number of writes is cheaper
/// than a loop whose length cannot be predicted.
#[inline(always)]
fn flatten(mut mask: u64, base: u32, index: &mut Index, filled: usize) -> usize {
    let count = mask.count_ones() as usize;
    let Some(out) = index[filled..].first_chunk_mut::<BLOCK>() else { return filled };
    let mut put = |from: usize, to: usize| {
        for slot in &mut out[from..to] {
            *slot = base + mask.trailing_zeros();
            mask &= mask.wrapping_sub(1);
        }
    };
    put(0, 4);
    if count > 4 {
        put(4, 8);
        if count > 8 {
            put(8, 16);
            if count > 16 {
                put(16, count);
            }
        }
    }
    filled + count
}

/// The scan in 64-bit arithmetic.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn index_portable(window: &[u8], base: u32, needles: Needles, index: &mut Index, filled: usize) -> Scanned {
    const ONES: u64 = u64::MAX / 255;
    const LOW: u64 = ONES * 0x7f;
    let wanted = needles.map(|needle| ONES * u64::from(needle));
    let plain = crate::encoding::is_plain(window);
    let filled = index_window!(window, base, index, filled, |block: &[u8; BLOCK]| {
        let mut mask = 0;
        for (i, word) in block.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            let mut hits = 0;
            for needle in wanted {
                // The high bit of each byte that is zero after the XOR; exact, no carry between bytes.
                let x = word ^ needle;
                hits |= !(((x & LOW) + LOW) | x | LOW);
            }
            // Gathers the eight high bits into one byte.
            mask |= ((hits >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (i * 8);
        }
        mask
    });
    Scanned { filled, plain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn levels(needles: Needles) -> Vec<Level> {
        let mut levels = vec![Level::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            levels.push(Level::Sse2);
            if x86::has_avx2() {
                levels.push(Level::Avx2);
                levels.extend(x86::lookup(needles).map(Level::Avx2Lookup));
            } else {
                println!("skipped: this machine has no AVX2, its scan is not tested");
            }
        }
        levels
    }

    fn all(level: Level, needles: Needles, chunk: &[u8]) -> Vec<usize> {
        let mut scanner = Scanner::with_level(needles, level);
        scanner.begin();
        let mut found = Vec::new();
        loop {
            assert_eq!(scanner.peek(chunk), scanner.peek(chunk));
            let p = scanner.next(chunk);
            if p == chunk.len() {
                return found;
            }
            found.push(p);
        }
    }

    proptest! {
        #[test]
        fn every_level_finds_what_a_loop_finds(
            chunk in proptest::collection::vec(prop_oneof![3 => any::<u8>(), 2 => Just(b','), 1 => Just(0x80)], 0..9000),
            other in any::<u8>(),
            last in prop_oneof![Just(b'"'), Just(0), Just(0x80), any::<u8>()],
        ) {
            // Those that no table takes, and those that one may.
            for needles in [[b',', b'\n', other, 0x80, 0], [b',', b'\n', other, b',', last]] {
                let plain: Vec<usize> = (0..chunk.len()).filter(|&i| needles.contains(&chunk[i])).collect();
                for level in levels(needles) {
                    prop_assert_eq!(&all(level, needles, &chunk), &plain, "{:?}", level);
                }
            }
        }
    }

    #[test]
    fn a_window_full_of_hits_fits() {
        let chunk = vec![b','; 3 * WINDOW + 7];
        for level in levels([b','; 5]) {
            assert_eq!(all(level, [b','; 5], &chunk).len(), chunk.len(), "{level:?}");
        }
    }

    #[test]
    fn long_stretches_without_a_hit_are_passed() {
        let mut chunk = vec![b'a'; 5 * WINDOW];
        chunk.push(b',');
        for level in levels([b','; 5]) {
            assert_eq!(all(level, [b','; 5], &chunk), [5 * WINDOW], "{level:?}");
        }
    }
}
