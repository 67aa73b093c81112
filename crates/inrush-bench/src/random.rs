//! Random figures: quick, and the same each time.

/// Random bits.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// 64 of them.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// So many hexadecimal digits.
    pub fn hex(&mut self, out: &mut Vec<u8>, count: usize) {
        let end = out.len() + count;
        while out.len() < end {
            let bits = self.next();
            let take = (end - out.len()).min(16);
            out.extend((0..take).map(|i| b"0123456789abcdef"[(bits >> (4 * i) & 15) as usize]));
        }
    }
}
