//! Decimal digits, eight at a time in one word.

const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Whether the server's isspace() holds in every locale: the six ASCII spaces, vertical tab included.
#[inline]
pub(super) fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

/// Without the spaces at both ends that the numeric input functions skip.
#[inline]
pub(super) fn trim(value: &[u8]) -> &[u8] {
    match value {
        // One look decides for nearly every value.
        [first, .., last] if *first > b' ' && *last > b' ' => value,
        _ => trim_slow(value),
    }
}

#[cold]
fn trim_slow(mut value: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = value
        && is_space(*first)
    {
        value = rest;
    }
    while let [rest @ .., last] = value
        && is_space(*last)
    {
        value = rest;
    }
    value
}

/// The number eight digits stand for (first digit in the lowest byte), `None` if one is not a digit.
#[inline]
fn eight(word: u64) -> Option<u64> {
    // A byte is a digit if its high half is 3, and still is after 6 is added. A byte of 0xfa or more carries
    // into its neighbour, but then its own high half is not 3 and the result is `None` anyway.
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    if word & HIGH != ZEROS || word.wrapping_add(0x0606_0606_0606_0606) & HIGH != ZEROS {
        return None;
    }
    // Pairs, then fours, then all eight; no lane overflows.
    let pairs = (word & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(10 * 256 + 1) >> 8;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul(100 * 65536 + 1) >> 16;
    Some((fours & 0x0000_ffff_0000_ffff).wrapping_mul(10_000 * (1 << 32) + 1) >> 32)
}

/// One to eight bytes as a little-endian word, the first byte lowest.
#[inline]
fn load(value: &[u8]) -> u64 {
    let n = value.len();
    debug_assert!((1..=8).contains(&n));
    if let (Some(head), Some(tail)) = (value.first_chunk::<4>(), value.last_chunk::<4>()) {
        // Both halves overlap; where they do they agree.
        u64::from(u32::from_le_bytes(*head)) | u64::from(u32::from_le_bytes(*tail)) << (8 * (n - 4))
    } else {
        u64::from(value[0])
            | u64::from(value[n / 2]) << (8 * (n / 2))
            | u64::from(value[n - 1]) << (8 * (n - 1))
    }
}

/// One to eight digits.
#[inline]
fn up_to_eight(value: &[u8]) -> Option<u64> {
    let n = value.len();
    if n == 8 {
        return eight(load(value));
    }
    // Zeros in front fill the word.
    eight(load(value) << (8 * (8 - n)) | ZEROS >> (8 * n))
}

/// The number 1 to 19 digits stand for; `None` for anything else. 19 digits always fit.
#[inline]
pub(super) fn number(value: &[u8]) -> Option<u64> {
    match value.len() {
        1..=8 => up_to_eight(value),
        9..=16 => {
            let (head, tail) = value.split_at(value.len() - 8);
            Some(up_to_eight(head)? * 100_000_000 + up_to_eight(tail)?)
        }
        17..=19 => {
            let (head, tail) = value.split_at(value.len() - 16);
            Some(up_to_eight(head)? * 10_000_000_000_000_000 + number(tail)?)
        }
        _ => None,
    }
}

/// Splits off the digits at the start.
#[inline]
pub(super) fn split_digits(value: &[u8]) -> (&[u8], &[u8]) {
    let n = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    value.split_at(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The judge: one digit at a time.
    fn plain(value: &[u8]) -> Option<u64> {
        if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
            return None;
        }
        Some(value.iter().fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0')))
    }

    proptest! {
        #[test]
        fn digits_as_the_plain_loop(value in "[0-9]{0,21}") {
            prop_assert_eq!(number(value.as_bytes()), plain(value.as_bytes()));
        }

        #[test]
        fn one_wrong_byte_is_found(value in "[0-9]{1,19}", at in any::<prop::sample::Index>(), byte: u8) {
            let mut bytes = value.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            prop_assert_eq!(number(&bytes), plain(&bytes));
        }

        #[test]
        fn any_bytes(value in prop::collection::vec(any::<u8>(), 0..24)) {
            prop_assert_eq!(number(&value), plain(&value));
        }
    }

    #[test]
    fn every_byte_at_every_place() {
        for n in 1..=19 {
            for at in 0..n {
                for byte in 0..=255 {
                    let mut value = vec![b'9'; n];
                    value[at] = byte;
                    assert_eq!(number(&value), plain(&value), "{value:?}");
                }
            }
        }
    }
}
