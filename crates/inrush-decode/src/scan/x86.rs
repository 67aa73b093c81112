//! The structural scan with vector instructions of x86-64.

use super::{BLOCK, Index, Needles, Scanned, index_window};
use std::arch::x86_64::{
    __m128i, __m256i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128,
    _mm_set1_epi8, _mm_setzero_si128, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256,
    _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_setzero_si256,
    _mm256_shuffle_epi8,
};

/// For each value of a byte's low four bits the needle that has them, and a byte that has others where there is
/// none. A shuffle looks 32 bytes up in it at once; what it finds is the byte itself if that is a needle.
pub(super) type Lookup = [u8; 16];

/// The table for these needles; `None` if two of them have the same low four bits, or one is not ASCII (for bytes
/// with the first bit set the shuffle finds 0).
pub(super) fn lookup(needles: Needles) -> Option<Lookup> {
    let mut table = [0; 16];
    // The one index whose low four bits are those of 0.
    table[0] = 1;
    for (i, needle) in needles.into_iter().enumerate() {
        let clashes = needles[..i].iter().any(|&other| other != needle && other & 15 == needle & 15);
        if clashes || !needle.is_ascii() {
            return None;
        }
        table[usize::from(needle & 15)] = needle;
    }
    Some(table)
}

/// Whether [`index_avx2`] and [`index_avx2_lookup`] may be called.
pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

/// 16 bytes at a time.
pub(super) fn index_sse2(
    window: &[u8],
    base: u32,
    needles: Needles,
    index: &mut Index,
    filled: usize,
) -> Scanned {
    let wanted = needles.map(|needle| {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_set1_epi8(needle.cast_signed()) }
    });
    // SAFETY: SSE2 is part of x86-64.
    let (mut least, mut all) = unsafe { (_mm_set1_epi8(1), _mm_setzero_si128()) };
    let filled = index_window!(window, base, index, filled, |block: &[u8; BLOCK]| {
        let mut mask = 0;
        for (i, part) in block.as_chunks::<16>().0.iter().enumerate() {
            // SAFETY: SSE2 is part of x86-64; the load reads the 16 bytes of `part` and needs no alignment.
            let bits = unsafe {
                let bytes = _mm_loadu_si128(part.as_ptr().cast::<__m128i>());
                least = _mm_min_epu8(least, bytes);
                all = _mm_or_si128(all, bytes);
                let mut hits = _mm_cmpeq_epi8(bytes, wanted[0]);
                for needle in &wanted[1..] {
                    hits = _mm_or_si128(hits, _mm_cmpeq_epi8(bytes, *needle));
                }
                _mm_movemask_epi8(hits)
            };
            mask |= u64::from(bits.cast_unsigned()) << (i * 16);
        }
        mask
    });
    // SAFETY: SSE2 is part of x86-64.
    let zero = unsafe { _mm_cmpeq_epi8(least, _mm_setzero_si128()) };
    // SAFETY: as above. The mask has the first bit of each byte.
    let plain = unsafe { _mm_movemask_epi8(_mm_or_si128(zero, all)) } == 0;
    Scanned { filled, plain }
}

/// 32 bytes at a time. A macro for the reason given at `index_window`.
macro_rules! index_by_32 {
    ($window:expr, $base:expr, $index:expr, $filled:expr, $hits:expr) => {{
        let (mut least, mut all) = (_mm256_set1_epi8(1), _mm256_setzero_si256());
        let filled = index_window!($window, $base, $index, $filled, |block: &[u8; BLOCK]| {
            let mut mask = 0;
            for (i, part) in block.as_chunks::<32>().0.iter().enumerate() {
                // SAFETY: the load reads the 32 bytes of `part` and needs no alignment.
                let bytes = unsafe { _mm256_loadu_si256(part.as_ptr().cast::<__m256i>()) };
                least = _mm256_min_epu8(least, bytes);
                all = _mm256_or_si256(all, bytes);
                mask |= u64::from(_mm256_movemask_epi8($hits(bytes)).cast_unsigned()) << (i * 32);
            }
            mask
        });
        // A NUL makes `least` zero somewhere; the mask has the first bit of each byte.
        let zero = _mm256_cmpeq_epi8(least, _mm256_setzero_si256());
        let plain = _mm256_movemask_epi8(_mm256_or_si256(zero, all)) == 0;
        Scanned { filled, plain }
    }};
}

/// 32 bytes at a time, whatever the needles are.
///
/// # Safety
/// The machine must have what [`has_avx2`] looks for.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) unsafe fn index_avx2(
    window: &[u8],
    base: u32,
    needles: Needles,
    index: &mut Index,
    filled: usize,
) -> Scanned {
    let wanted = needles.map(|needle| _mm256_set1_epi8(needle.cast_signed()));
    index_by_32!(window, base, index, filled, |bytes| {
        let mut hits = _mm256_cmpeq_epi8(bytes, wanted[0]);
        for needle in &wanted[1..] {
            hits = _mm256_or_si256(hits, _mm256_cmpeq_epi8(bytes, *needle));
        }
        hits
    })
}

/// 32 bytes at a time, with the table of [`lookup`] in place of a comparison for each needle.
///
/// # Safety
/// The machine must have what [`has_avx2`] looks for.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) unsafe fn index_avx2_lookup(
    window: &[u8],
    base: u32,
    table: &Lookup,
    index: &mut Index,
    filled: usize,
) -> Scanned {
    // SAFETY: the load reads the 16 bytes of the table and needs no alignment.
    let table = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast::<__m128i>()) });
    index_by_32!(window, base, index, filled, |bytes| {
        _mm256_cmpeq_epi8(_mm256_shuffle_epi8(table, bytes), bytes)
    })
}
