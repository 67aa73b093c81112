//! Finding record borders in a buffer that fills step by step.
//!
//! [`plain`] says byte by byte where records end, as close to the words of COPY's own loop as can be; it is
//! the judge. [`blocks`] does the same for 64 bytes at once and is tested against it. Both share one
//! [`State`], so that a scan may change from one to the other at any byte.

pub(crate) mod binary;
mod blocks;
pub(crate) mod plain;

use crate::Borders;
use inrush_core::Result;

/// What is known of the unfinished record at the end of what was scanned. Always the default right after a
/// border.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// CSV: inside quotes.
    pub in_quote: bool,
    /// CSV: the last byte was an escape that counts (`last_was_esc` in CopyReadLineText). Text: the number
    /// of backslashes right before is odd.
    pub escaped: bool,
}

/// What was found in a buffer so far. Positions count from the first byte of the buffer, where a record
/// begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// One past the last border, 0 if there is none.
    pub last: usize,
    /// Records that end at or before `last`.
    pub records: u64,
    /// Line ends before `last`.
    pub lines: u64,
    /// Line ends from `last` on.
    pub lines_after: u64,
    /// Bytes of the longest record that ends at or before `last`.
    pub longest: usize,
    /// The marker that ends the input begins at `last` and ends here; nothing after it was scanned.
    pub stop: Option<usize>,
}

impl Found {
    /// Notes that a record ends right before `end`.
    fn border(&mut self, end: usize) {
        self.longest = self.longest.max(end - self.last);
        self.last = end;
        self.records += 1;
        self.lines += self.lines_after;
        self.lines_after = 0;
    }
}

/// A scan over a buffer that keeps its first byte while more bytes are put behind its last.
#[derive(Debug, Clone)]
pub(crate) struct Scanner {
    borders: Borders,
    state: State,
    binary: binary::Framing,
    /// Whether the buffer begins inside a record whose head was thrown away.
    headless: bool,
    scanned: usize,
    found: Found,
    blocks: Option<blocks::Level>,
}

impl Scanner {
    /// A scanner at the beginning of a record. With `exact_lengths`, [`Found::longest`] is exact for records
    /// below 64 bytes too, at a tenth of the speed.
    pub fn new(borders: Borders, exact_lengths: bool) -> Scanner {
        Scanner {
            borders,
            state: State::default(),
            binary: binary::Framing::default(),
            headless: false,
            scanned: 0,
            found: Found::default(),
            blocks: if exact_lengths { None } else { Some(blocks::Level::detect()) },
        }
    }

    /// What was found since the buffer began.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Scans what of `buffer` was not scanned yet. Fails only for COPY binary, with a position that counts
    /// from the first byte of the buffer.
    pub fn scan(&mut self, buffer: &[u8]) -> Result<()> {
        if self.found.stop.is_some() {
            return Ok(());
        }
        if self.borders == Borders::Binary {
            self.binary.scan(buffer, &mut self.found)?;
            self.scanned = buffer.len();
            return Ok(());
        }
        if let Some(level) = self.blocks {
            self.scanned = blocks::scan(
                level,
                self.borders,
                buffer,
                self.scanned,
                self.headless,
                &mut self.state,
                &mut self.found,
            );
            if self.found.stop.is_some() {
                return Ok(());
            }
        }
        self.scanned =
            plain::scan(self.borders, buffer, self.scanned, self.headless, &mut self.state, &mut self.found);
        Ok(())
    }

    /// The buffer now begins at what was its byte [`Found::last`].
    pub fn shift(&mut self) {
        let last = self.found.last;
        self.scanned -= last;
        self.binary.shift(last);
        self.headless &= self.found.records == 0;
        self.found = Found {
            lines_after: self.found.lines_after,
            stop: self.found.stop.map(|s| s - last),
            ..Found::default()
        };
    }

    /// The first bytes of the unfinished record, at the beginning of the buffer, are no longer needed:
    /// returns how many of the buffer may go. The caller must drop exactly these.
    pub fn behead(&mut self) -> usize {
        debug_assert_eq!(self.found.last, 0);
        let gone =
            if self.borders == Borders::Binary { self.binary.parsed(self.scanned) } else { self.scanned };
        self.binary.shift(gone);
        self.scanned -= gone;
        self.headless = true;
        self.found = Found::default();
        gone
    }

    /// Where the unfinished record ends in `buffer`, which has grown since the scanner last saw it.
    pub fn next_border(&self, buffer: &[u8]) -> Option<usize> {
        match self.borders {
            Borders::Binary => self.binary.first_border(buffer),
            borders => plain::next_border(borders, buffer, self.scanned, self.state),
        }
    }
}
