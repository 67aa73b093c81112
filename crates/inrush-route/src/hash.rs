//! PostgreSQL's hash function with a seed: Bob Jenkins' lookup3 as src/common/hashfn.c has it, in the byte order
//! of little-endian machines.
//!
//! The server hashes native words, so a big-endian one would place rows otherwise; PostgreSQL says so itself
//! where it forbids to restore hash partitions across architectures (pg_dump, `--load-via-partition-root`).

/// Jenkins' start value with PostgreSQL's own addition (hashfn.c, hash_bytes_extended).
const START: u32 = 0x9e37_79b9 + 3_923_095;

/// Three words that are stirred.
#[derive(Clone, Copy)]
struct Words {
    a: u32,
    b: u32,
    c: u32,
}

impl Words {
    /// For `len` bytes of key.
    #[inline]
    fn new(len: usize, seed: u64) -> Words {
        // hashfn.c truncates the length, too.
        #[allow(clippy::cast_possible_truncation)]
        let start = START.wrapping_add(len as u32);
        let mut words = Words { a: start, b: start, c: start };
        if seed != 0 {
            // In effect the seed is eight more bytes of key in front.
            words.a = words.a.wrapping_add(high(seed));
            words.b = words.b.wrapping_add(low(seed));
            words.mix();
        }
        words
    }

    #[inline]
    fn mix(&mut self) {
        let Words { mut a, mut b, mut c } = *self;
        let step = |x: &mut u32, y: &mut u32, z: u32, bits: u32| {
            *x = x.wrapping_sub(*y) ^ y.rotate_left(bits);
            *y = y.wrapping_add(z);
        };
        step(&mut a, &mut c, b, 4);
        step(&mut b, &mut a, c, 6);
        step(&mut c, &mut b, a, 8);
        step(&mut a, &mut c, b, 16);
        step(&mut b, &mut a, c, 19);
        step(&mut c, &mut b, a, 4);
        *self = Words { a, b, c };
    }

    /// The last stirring, and the hash.
    #[inline]
    fn finish(self) -> u64 {
        let Words { mut a, mut b, mut c } = self;
        let step = |x: &mut u32, y: u32, bits: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(bits));
        step(&mut c, b, 14);
        step(&mut a, c, 11);
        step(&mut b, a, 25);
        step(&mut c, b, 16);
        step(&mut a, c, 4);
        step(&mut b, a, 14);
        step(&mut c, b, 24);
        u64::from(b) << 32 | u64::from(c)
    }
}

/// hash_uint32_extended
#[inline]
pub fn hash_word(word: u32, seed: u64) -> u64 {
    let mut words = Words::new(4, seed);
    words.a = words.a.wrapping_add(word);
    words.finish()
}

/// hash_bytes_extended
#[inline]
pub fn hash_bytes(bytes: &[u8], seed: u64) -> u64 {
    let mut words = Words::new(bytes.len(), seed);
    let (blocks, rest) = bytes.as_chunks::<12>();
    for block in blocks {
        add(&mut words, block);
        words.mix();
    }
    let mut tail = [0; 12];
    tail[..rest.len()].copy_from_slice(rest);
    // The lowest byte of c is the length's.
    tail.copy_within(8..11, 9);
    tail[8] = 0;
    add(&mut words, &tail);
    words.finish()
}

#[inline]
fn add(words: &mut Words, block: &[u8; 12]) {
    let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3] = *block;
    words.a = words.a.wrapping_add(u32::from_le_bytes([a0, a1, a2, a3]));
    words.b = words.b.wrapping_add(u32::from_le_bytes([b0, b1, b2, b3]));
    words.c = words.c.wrapping_add(u32::from_le_bytes([c0, c1, c2, c3]));
}

#[allow(clippy::cast_possible_truncation)]
pub(crate) fn low(word: u64) -> u32 {
    word as u32
}

pub(crate) fn high(word: u64) -> u32 {
    low(word >> 32)
}
