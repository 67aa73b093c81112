use crate::scan::plain;
use inrush_core::{Eol, Format};

/// Where the records of a format end, which is all the cutter knows of it.
///
/// A record ends at every byte that is the last of a line end ([`Eol::last_byte`]) and neither quoted nor
/// escaped. With [`Eol::CrLf`] a lone newline therefore ends a record too: COPY refuses such a line
/// (copyfromparse.c, CopyReadLineText: "unquoted newline found in data"), and so does the decoder; ending the
/// record there keeps the damage to that line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Borders {
    /// CSV as COPY reads it: line ends inside quotes are data.
    Csv {
        /// Quote.
        quote: u8,
        /// Escape inside quotes; the quote itself where nothing else was said.
        escape: u8,
        /// How records end.
        eol: Eol,
    },
    /// COPY text: a line end after an odd number of backslashes is data, and a line that is exactly `\.`
    /// ends the input.
    Text {
        /// How records end.
        eol: Eol,
    },
    /// One record per line, whatever is in it (NDJSON).
    Lines,
    /// COPY binary: records are tuples, found by their lengths.
    Binary,
}

impl Borders {
    /// The borders of a format; `None` for columnar formats, which are not cut by bytes.
    pub fn of(format: &Format) -> Option<Borders> {
        match format {
            Format::Csv(d) => Some(Borders::Csv { quote: d.quote, escape: d.escape, eol: d.eol }),
            Format::Text(d) => Some(Borders::Text { eol: d.eol }),
            Format::Binary => Some(Borders::Binary),
            Format::Ndjson => Some(Borders::Lines),
            Format::Parquet | Format::Arrow => None,
        }
    }

    /// The byte at which a record ends if it is neither quoted nor escaped.
    pub(crate) fn last_byte(self) -> u8 {
        match self {
            Borders::Csv { eol, .. } | Borders::Text { eol } => eol.last_byte(),
            Borders::Lines | Borders::Binary => b'\n',
        }
    }
}

/// How the first record of `sample` ends, as COPY decides it for the whole input (copyfromparse.c,
/// CopyReadLineText): by the first carriage return or newline that is neither quoted nor escaped. The `eol`
/// in `borders` is not looked at. `None` if the sample holds no line end, or ends in a carriage return that
/// may yet be followed by a newline.
pub fn detect_eol(sample: &[u8], borders: Borders) -> Option<Eol> {
    let (cr, lf) = match borders {
        Borders::Csv { quote, escape, .. } => (
            plain::first_border(sample, Borders::Csv { quote, escape, eol: Eol::Cr }),
            plain::first_border(sample, Borders::Csv { quote, escape, eol: Eol::Lf }),
        ),
        Borders::Text { .. } => (
            plain::first_border(sample, Borders::Text { eol: Eol::Cr }),
            plain::first_border(sample, Borders::Text { eol: Eol::Lf }),
        ),
        Borders::Lines | Borders::Binary => return Some(Eol::Lf),
    };
    match (cr, lf) {
        (Some(cr), lf) if lf.is_none_or(|lf| cr < lf) => match sample.get(cr) {
            Some(b'\n') => Some(Eol::CrLf),
            Some(_) => Some(Eol::Cr),
            None => None,
        },
        (_, Some(_)) => Some(Eol::Lf),
        (_, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_end_outside_quotes_decides() {
        let csv = Borders::Csv { quote: b'"', escape: b'"', eol: Eol::Lf };
        assert_eq!(detect_eol(b"a,b\n1,2\r\n", csv), Some(Eol::Lf));
        assert_eq!(detect_eol(b"a,\"\n\"\r\n", csv), Some(Eol::CrLf));
        assert_eq!(detect_eol(b"a\rb\r", csv), Some(Eol::Cr));
        assert_eq!(detect_eol(b"a\r", csv), None);
        assert_eq!(detect_eol(b"\"a\n", csv), None);
        assert_eq!(detect_eol(b"", csv), None);
        let text = Borders::Text { eol: Eol::Lf };
        assert_eq!(detect_eol(b"a\\\nb\r\n", text), Some(Eol::CrLf));
    }
}
