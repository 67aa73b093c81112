//! Record borders 64 bytes at a time.
//!
//! Every block is turned into bit masks (bit i stands for byte i): where the line ends are, the quotes, the
//! backslashes. Whether a byte is quoted is then the parity of the quotes up to it, which one carry-less
//! multiplication gives for all 64; borders and lines are counted by population count. There is no branch
//! on the data but for what is rare: escapes other than the quote, backslashes, end markers.

use super::plain::is_end_marker;
use super::{Found, State};
use crate::Borders;
use inrush_core::Eol;

/// What the processor can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// 64-bit words only.
    Portable,
    /// AVX2 with carry-less multiplication: x86-64 since 2013.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Level {
    /// The best level of this processor.
    pub fn detect() -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            let all = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("pclmulqdq")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt");
            if all {
                return Level::Avx2;
            }
        }
        Level::Portable
    }
}

/// Scans whole blocks of `buffer` from `from` on; returns where it stopped, which may be at once. Exact in
/// everything but [`Found::longest`] below 64 bytes.
pub(crate) fn scan(
    level: Level,
    borders: Borders,
    buffer: &[u8],
    from: usize,
    headless: bool,
    state: &mut State,
    found: &mut Found,
) -> usize {
    match level {
        Level::Portable => scan_with::<Words>(borders, buffer, from, headless, state, found),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => {
            // SAFETY: this level comes from `Level::detect` only, which has seen that the processor has
            // every feature that `scan_avx2` is compiled for.
            unsafe { x86::scan(borders, buffer, from, headless, state, found) }
        }
    }
}

/// The operations that depend on the processor.
trait Ops {
    /// The bits of the bytes equal to `byte`.
    fn equal(block: &[u8; 64], byte: u8) -> u64;
    /// Bit i of the result is the parity of bits 0 to i.
    fn prefix_xor(bits: u64) -> u64;
}

/// [`Ops`] in plain 64-bit arithmetic.
struct Words;

impl Ops for Words {
    #[inline(always)]
    fn equal(block: &[u8; 64], byte: u8) -> u64 {
        const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        let pattern = u64::from_ne_bytes([byte; 8]);
        let (words, _) = block.as_chunks::<8>();
        words.iter().enumerate().fold(0, |mask, (i, word)| {
            let differs = u64::from_le_bytes(*word) ^ pattern;
            // The top bit of every byte that is zero; exact, as nothing carries from one byte to the next.
            let zero = !(((differs & LOW) + LOW) | differs | LOW);
            // Gathers the eight top bits in the top byte.
            let bits = (zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            mask | bits << (8 * i)
        })
    }

    #[inline(always)]
    fn prefix_xor(bits: u64) -> u64 {
        let mut parity = bits;
        for shift in [1, 2, 4, 8, 16, 32] {
            parity ^= parity << shift;
        }
        parity
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Borders, Found, Ops, State, scan_with};
    use std::arch::x86_64::{
        __m256i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_set1_epi8,
        _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8,
    };

    /// [`Ops`] with AVX2 and PCLMULQDQ. Used by [`scan`] alone, into which it is inlined.
    struct Avx2;

    /// # Safety
    /// The processor must have all the features named.
    #[target_feature(enable = "avx2,pclmulqdq,popcnt,bmi1,bmi2,lzcnt")]
    pub unsafe fn scan(
        borders: Borders,
        buffer: &[u8],
        from: usize,
        headless: bool,
        state: &mut State,
        found: &mut Found,
    ) -> usize {
        scan_with::<Avx2>(borders, buffer, from, headless, state, found)
    }

    impl Ops for Avx2 {
        #[inline(always)]
        fn equal(block: &[u8; 64], byte: u8) -> u64 {
            // SAFETY: only reached from `scan`, whose caller vouches for AVX2. Both loads are unaligned ones
            // of 32 bytes inside the 64 of `block`.
            unsafe {
                #[allow(clippy::cast_possible_wrap)]
                let pattern = _mm256_set1_epi8(byte as i8);
                let half = |at: usize| {
                    let bytes = _mm256_loadu_si256(block.as_ptr().add(at).cast::<__m256i>());
                    u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, pattern)).cast_unsigned())
                };
                half(0) | half(32) << 32
            }
        }

        #[inline(always)]
        fn prefix_xor(bits: u64) -> u64 {
            // SAFETY: only reached from `scan`, whose caller vouches for PCLMULQDQ.
            unsafe {
                let product =
                    _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(bits.cast_signed()), _mm_set1_epi8(-1));
                _mm_cvtsi128_si64(product).cast_unsigned()
            }
        }
    }
}

/// Borders and line ends of one block.
struct Masks {
    borders: u64,
    lines: u64,
    /// Borders at which the end marker may stand.
    markers: u64,
}

#[inline(always)]
fn scan_with<O: Ops>(
    borders: Borders,
    buffer: &[u8],
    from: usize,
    headless: bool,
    state: &mut State,
    found: &mut Found,
) -> usize {
    // One loop for each format, with what is constant for it outside.
    match borders {
        Borders::Binary => from,
        Borders::Lines => drive(borders, buffer, from, headless, state, found, |block, _| {
            let lines = O::equal(block, b'\n');
            Masks { borders: lines, lines, markers: 0 }
        }),
        Borders::Csv { quote, escape, .. } if quote == escape => {
            let nl = borders.last_byte();
            let mut quoted = if state.in_quote { u64::MAX } else { 0 };
            let end = drive(borders, buffer, from, headless, state, found, |block, _| {
                let inside = O::prefix_xor(O::equal(block, quote)) ^ quoted;
                // The sign bit spread over the word: whether the block ends inside quotes.
                quoted = (inside.cast_signed() >> 63).cast_unsigned();
                let lines = O::equal(block, nl);
                Masks { borders: lines & !inside, lines, markers: 0 }
            });
            state.in_quote = quoted != 0;
            end
        }
        // Nobody's dialect; the plain scan does it.
        Borders::Csv { quote, escape, .. } if [quote, escape].contains(&borders.last_byte()) => from,
        Borders::Csv { quote, escape, .. } => {
            let nl = borders.last_byte();
            drive(borders, buffer, from, headless, state, found, |block, state| {
                let lines = O::equal(block, nl);
                let (quotes, escapes) = (O::equal(block, quote), O::equal(block, escape));
                let quoted = if state.in_quote { u64::MAX } else { 0 };
                // An escape counts inside quotes only, and what is inside depends on which quotes are escaped.
                // Suppose that every escape counts: if then none is found outside, that was right, for the
                // first one that is truly outside would have been found to be.
                let mut escaped = state.escaped;
                let mut inside = O::prefix_xor(quotes & !after_odd_runs(escapes, &mut escaped)) ^ quoted;
                if escapes & !inside == 0 {
                    state.escaped = escaped;
                } else {
                    inside = O::prefix_xor(toggles(quotes, escapes, state)) ^ quoted;
                }
                state.in_quote = inside >> 63 != 0;
                Masks { borders: lines & !inside, lines, markers: 0 }
            })
        }
        Borders::Text { eol } => {
            let nl = borders.last_byte();
            let back = if eol == Eol::CrLf { 3 } else { 2 };
            // Backslashes of the block before, for markers that stand across the edge. A scan that begins
            // inside a buffer looks at what is in front.
            let mut before = (1..=3).fold(0, |bits, back| {
                let at = from.checked_sub(back).and_then(|at| buffer.get(at));
                bits | u64::from(at == Some(&b'\\')) << (64 - back)
            });
            drive(borders, buffer, from, headless, state, found, |block, state| {
                let lines = O::equal(block, nl);
                let backslashes = O::equal(block, b'\\');
                if backslashes | before == 0 && !state.escaped {
                    return Masks { borders: lines, lines, markers: 0 };
                }
                let escaped = after_odd_runs(backslashes, &mut state.escaped);
                let borders = lines & !escaped;
                // The backslash of a marker stands two bytes before its line end's last, or three.
                let mut markers = borders & (backslashes << back | before >> (64 - back));
                if markers != 0 {
                    // Lines that end in `\N` are common: look for the dot too, but for one in the block before.
                    markers &= O::equal(block, b'.') << (back - 1) | ((1 << (back - 1)) - 1);
                }
                before = backslashes;
                Masks { borders, lines, markers }
            })
        }
    }
}

/// The bits right after a run of backslashes of odd length: what stands there is escaped. `odd` says whether
/// the block before ended in such a run, and is set for the block after.
#[inline(always)]
fn after_odd_runs(backslashes: u64, odd: &mut bool) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let starts = backslashes & !(backslashes << 1);
    let (mut even_starts, mut odd_starts) = (starts & EVEN, starts & !EVEN);
    let mut at_once = 0;
    if *odd {
        // The run began one byte (or any odd number) before the block: as if at the odd position -1.
        if backslashes & 1 == 0 {
            at_once = 1;
        } else {
            even_starts &= !1;
            odd_starts |= 1;
        }
    }
    // Adding the first bit of a run clears the run and sets the bit after it; a run up to the last bit
    // overflows instead.
    let (from_even, _) = backslashes.overflowing_add(even_starts);
    let (from_odd, overflow) = backslashes.overflowing_add(odd_starts);
    *odd = overflow;
    (from_even & !backslashes & !EVEN) | (from_odd & !backslashes & EVEN) | at_once
}

/// The quotes of a block that open or close, where some escapes may stand outside quotes: goes from quote to
/// escape to quote by the rule of the plain scan. Moves `state.escaped` on, and leaves `state.in_quote` alone.
#[inline(always)]
fn toggles(quotes: u64, escapes: u64, state: &mut State) -> u64 {
    let mut in_quote = state.in_quote;
    // The bit that is escaped, if it is a quote or an escape.
    let mut escaped = u64::from(state.escaped);
    let mut carried = false;
    let mut toggles = 0;
    let mut left = quotes | escapes;
    while left != 0 {
        let bit = left & left.wrapping_neg();
        left ^= bit;
        if bit & escaped != 0 {
            continue;
        }
        if bit & quotes != 0 {
            in_quote = !in_quote;
            toggles |= bit;
        } else if in_quote {
            escaped = bit << 1;
            carried = escaped == 0;
        }
    }
    state.escaped = carried;
    toggles
}

/// Runs `masks` over all blocks and adds up what it finds.
#[inline(always)]
fn drive(
    borders: Borders,
    buffer: &[u8],
    from: usize,
    headless: bool,
    state: &mut State,
    found: &mut Found,
    mut masks: impl FnMut(&[u8; 64], &mut State) -> Masks,
) -> usize {
    let mut sum = *found;
    let (blocks, _) = buffer[from..].as_chunks::<64>();
    let mut base = from;
    for block in blocks {
        let found_here = masks(block, state);
        if found_here.markers != 0
            && let Some(end) = marker(borders, buffer, base, &found_here, headless, &sum)
        {
            let before = (1 << (end - base)) - 1;
            add(&mut sum, base, found_here.borders & before, found_here.lines & before);
            sum.stop = Some(end + 1);
            *found = sum;
            *state = State::default();
            return end + 1;
        }
        add(&mut sum, base, found_here.borders, found_here.lines);
        base += 64;
    }
    *found = sum;
    base
}

/// Adds the borders and line ends of the block at `base`.
#[inline(always)]
fn add(sum: &mut Found, base: usize, borders: u64, lines: u64) {
    // Written so that the compiler selects rather than jumps: with lines of about the length of a block a
    // jump would be mispredicted every other time.
    let any = borders != 0;
    let top = 63 - (borders | 1).leading_zeros();
    let first = base + (borders.trailing_zeros() & 63) as usize + 1;
    let gap = first.wrapping_sub(sum.last);
    let up_to_top = u64::from((lines & (u64::MAX >> (63 - top))).count_ones());
    let all = u64::from(lines.count_ones());
    sum.longest = if any && gap > sum.longest { gap } else { sum.longest };
    sum.last = if any { base + top as usize + 1 } else { sum.last };
    sum.records += u64::from(borders.count_ones());
    sum.lines += if any { sum.lines_after + up_to_top } else { 0 };
    sum.lines_after = if any { all - up_to_top } else { sum.lines_after + all };
}

/// Where the first end marker among the records of a block ends: the position of its last byte.
#[cold]
fn marker(
    borders: Borders,
    buffer: &[u8],
    base: usize,
    masks: &Masks,
    headless: bool,
    sum: &Found,
) -> Option<usize> {
    let (mut records, mut start) = (sum.records, sum.last);
    let mut ends = masks.borders;
    while ends != 0 {
        let end = base + ends.trailing_zeros() as usize;
        if (records > 0 || !headless) && is_end_marker(borders, &buffer[start..=end]) {
            return Some(end);
        }
        records += 1;
        start = end + 1;
        ends &= ends - 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::plain;
    use proptest::prelude::*;

    fn levels() -> Vec<Level> {
        let mut levels = vec![Level::Portable];
        if Level::detect() == Level::Portable {
            eprintln!("no AVX2 here: only the portable scan is tested");
        } else {
            levels.push(Level::detect());
        }
        levels
    }

    fn borders() -> impl Strategy<Value = Borders> {
        let eol = prop::sample::select(vec![Eol::Lf, Eol::CrLf, Eol::Cr]);
        let byte = prop_oneof![3 => prop::sample::select(b"\"\\'\n".to_vec()), 1 => any::<u8>()];
        prop_oneof![
            (byte.clone(), eol.clone()).prop_map(|(quote, eol)| Borders::Csv { quote, escape: quote, eol }),
            (byte.clone(), byte, eol.clone()).prop_map(|(quote, escape, eol)| Borders::Csv {
                quote,
                escape,
                eol
            }),
            eol.prop_map(|eol| Borders::Text { eol }),
            Just(Borders::Lines),
        ]
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            8 => prop::sample::select(b"\"\\'\n\r.a\0".to_vec()).prop_map(|c| vec![c]),
            2 => any::<u8>().prop_map(|c| vec![c]),
            1 => prop::sample::select(vec!["\n\\.\n", "\r\n\\.\r\n", "\r\\.\r"]).prop_map(|m| m.into()),
            1 => (0..140usize).prop_map(|n| vec![b'\\'; n]),
            1 => (0..140usize).prop_map(|n| vec![b'x'; n]),
        ];
        prop::collection::vec(piece, 0..120).prop_map(|p| p.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn finds_what_the_plain_scan_finds(
            borders in borders(),
            bytes in bytes(),
            from in 0..200usize,
            headless: bool,
        ) {
            let from = from.min(bytes.len());
            let mut begun = (State::default(), Found::default());
            let at = plain::scan(borders, &bytes[..from], 0, headless, &mut begun.0, &mut begun.1);
            prop_assume!(begun.1.stop.is_none() && at == from);
            let (mut state, mut found) = begun;
            plain::scan(borders, &bytes, from, headless, &mut state, &mut found);
            for level in levels() {
                let (mut fast_state, mut fast) = begun;
                let at = scan(level, borders, &bytes, from, headless, &mut fast_state, &mut fast);
                if fast.stop.is_none() {
                    let nobodys = matches!(borders, Borders::Csv { quote, escape, .. }
                        if quote != escape && [quote, escape].contains(&borders.last_byte()));
                    prop_assert!(at + 64 > bytes.len() || nobodys);
                    plain::scan(borders, &bytes, at, headless, &mut fast_state, &mut fast);
                }
                if found.longest >= 64 || fast.longest >= 64 {
                    prop_assert_eq!(fast.longest, found.longest);
                }
                fast.longest = found.longest;
                prop_assert_eq!((fast, fast_state), (found, state), "{:?}", level);
            }
        }

        #[test]
        fn words_are_exact(block: [u8; 32], other: [u8; 32], byte: u8, bits: u64) {
            let mut whole = [0; 64];
            whole[..32].copy_from_slice(&block);
            whole[32..].copy_from_slice(&other);
            whole[7] = byte;
            whole[40] = byte.wrapping_add(1);
            let want = (0..64).fold(0, |m, i| m | u64::from(whole[i] == byte) << i);
            prop_assert_eq!(Words::equal(&whole, byte), want);
            let parity = (0..64).fold(0, |m, i| m | u64::from((bits << (63 - i)).count_ones() & 1) << i);
            prop_assert_eq!(Words::prefix_xor(bits), parity);
        }
    }
}
