//! What a fuzzed input decides besides the bytes that are read.

/// Takes choices off the front of a fuzzed input, so that the bytes to be read are its tail and seeds are
/// easy to write. Past the end every choice is the first.
pub struct Choices<'a>(&'a [u8]);

// Every test that includes this makes other choices.
#[allow(dead_code)]
impl<'a> Choices<'a> {
    pub fn of(input: &'a [u8]) -> Choices<'a> {
        Choices(input)
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Whether the next byte is odd.
    pub fn yes(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of `all`, none more likely than another for a fuzzer that tries bytes.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// A number of two bytes, the higher first.
    pub fn number(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    /// What is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}
