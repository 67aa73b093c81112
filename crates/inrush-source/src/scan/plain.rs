//! Record borders byte by byte: the judge of the fast scan, and the scan of the few bytes that do not fill
//! a block.

use super::{Found, State, binary};
use crate::Borders;
use inrush_core::Eol;

/// Moves `state` over byte `c`; whether a record ends with it.
#[inline]
fn step(borders: Borders, state: &mut State, c: u8) -> bool {
    match borders {
        Borders::Csv { quote, escape, eol } => {
            // As CopyReadLineText has it: an escape counts only inside quotes, and where quote and escape are
            // one character every one of them toggles.
            let escape = (escape != quote).then_some(escape);
            if state.in_quote && Some(c) == escape {
                state.escaped = !state.escaped;
            }
            if c == quote && !state.escaped {
                state.in_quote = !state.in_quote;
            }
            if Some(c) != escape {
                state.escaped = false;
            }
            c == eol.last_byte() && !state.in_quote
        }
        Borders::Text { eol } => {
            let escaped = state.escaped;
            state.escaped = c == b'\\' && !escaped;
            c == eol.last_byte() && !escaped
        }
        Borders::Lines => c == b'\n',
        Borders::Binary => false,
    }
}

/// Whether `record`, line end included, is the marker that ends the data. Only COPY text has one, and only
/// with the line end of the input: COPY refuses any other (copyfromparse.c, CopyReadLineText: "end-of-copy
/// marker does not match previous newline style"), and the decoder does so when it is given it as data.
#[inline]
pub(crate) fn is_end_marker(borders: Borders, record: &[u8]) -> bool {
    let Borders::Text { eol } = borders else { return false };
    match eol {
        Eol::Lf => record == b"\\.\n",
        Eol::CrLf => record == b"\\.\r\n",
        Eol::Cr => record == b"\\.\r",
    }
}

/// Scans `buffer` from `from` on; returns where it stopped, which is the end unless the end marker came.
pub(crate) fn scan(
    borders: Borders,
    buffer: &[u8],
    from: usize,
    headless: bool,
    state: &mut State,
    found: &mut Found,
) -> usize {
    let last_byte = borders.last_byte();
    for (i, &c) in buffer.iter().enumerate().skip(from) {
        let ends = step(borders, state, c);
        let whole = found.records > 0 || !headless;
        if ends && whole && is_end_marker(borders, &buffer[found.last..=i]) {
            *state = State::default();
            found.stop = Some(i + 1);
            return i + 1;
        }
        found.lines_after += u64::from(c == last_byte);
        if ends {
            *state = State::default();
            found.border(i + 1);
        }
    }
    buffer.len()
}

/// One past the end of the first record that ends in `buffer` at or after `from`.
pub(crate) fn next_border(borders: Borders, buffer: &[u8], from: usize, mut state: State) -> Option<usize> {
    (from..buffer.len()).find(|&i| step(borders, &mut state, buffer[i])).map(|i| i + 1)
}

/// One past the end of the first record of `buffer`, at whose beginning a record begins.
pub(crate) fn first_border(buffer: &[u8], borders: Borders) -> Option<usize> {
    match borders {
        Borders::Binary => binary::Framing::default().first_border(buffer),
        _ => next_border(borders, buffer, 0, State::default()),
    }
}
