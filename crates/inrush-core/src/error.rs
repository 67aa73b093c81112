use crate::Position;
use std::fmt;

/// Result of everything in Inrush that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error as the user sees it: a stable code, one lowercase fact without a final stop, where it was
/// found, and a hint that is a full sentence.
///
/// Boxed: a `Result<T, Error>` costs one word in the hot path.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: Code,
    fact: String,
    position: Option<Position>,
    hint: Option<String>,
    sqlstate: Option<String>,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal,)*) => {
        /// Stable codes: what kind of thing went wrong. Scripts may match on the text form; a code is never
        /// renamed or given another meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[doc = $doc])+ $variant,)* }

        impl Code {
            /// Every code, for the reference page.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The text form, as printed in `error[...]`.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)* }
            }

            /// What it means, in a sentence for users.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$variant => concat!($($doc),+).trim_ascii(),)* }
            }
        }
    };
}

codes! {
    /// The command line contradicts itself or the world.
    Usage = "usage",
    /// An input does not exist, is a directory where a file was meant, or may not be read.
    SourceOpen = "source-open",
    /// Reading an input failed half-way.
    SourceRead = "source-read",
    /// An input changed while it was being loaded.
    SourceChanged = "source-changed",
    /// Compressed data is damaged, cut off, or expands beyond the limit.
    SourceCompression = "source-compression",
    /// A record is not well formed in its format.
    Record = "record",
    /// A record is longer than `--max-record`.
    RecordTooLong = "record-too-long",
    /// The file as a whole is not of its format (bad signature, cut off, unknown version).
    Format = "format",
    /// Bytes are not valid in the stated encoding.
    Encoding = "encoding",
    /// Columns of the file and of the table do not fit together.
    Columns = "columns",
    /// What the user stated and what the file shows contradict each other.
    Clash = "clash",
    /// No server could be reached, or it refused the login.
    Connect = "connect",
    /// The connection was lost and did not come back in time.
    ConnectionLost = "connection-lost",
    /// The server refused a statement.
    Server = "server",
    /// The server refused rows, and more of them than `--max-rejects` allows.
    Rejects = "rejects",
    /// The table does not exist or cannot be loaded into.
    Table = "table",
    /// The ledger is missing, not ours, of an unknown version, or may not be used.
    Ledger = "ledger",
    /// Another run of the same load has taken over.
    Fenced = "fenced",
    /// The table is not the one that earlier rows of this load went into.
    Incarnation = "incarnation",
    /// The user stopped the load.
    Interrupted = "interrupted",
    /// The embedded server could not be found, fetched, started or stopped.
    Local = "local",
    /// A file Inrush writes (report, rejects) could not be written.
    Output = "output",
    /// The spill log on disk is damaged, in use, or cannot be written.
    Spill = "spill",
    /// A bug in Inrush.
    Internal = "internal",
}

impl Error {
    /// A new error. `fact` is lowercase, one fact, without a final stop.
    pub fn new(code: Code, fact: impl Into<String>) -> Error {
        Error(Box::new(Inner { code, fact: fact.into(), position: None, hint: None, sqlstate: None }))
    }

    /// Adds where it was found.
    #[must_use]
    pub fn at(mut self, position: Position) -> Error {
        self.0.position = Some(position);
        self
    }

    /// Adds a hint: a full sentence that says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// Says in front of the fact what it is about; all else stays.
    #[must_use]
    pub fn about(mut self, what: &str) -> Error {
        self.0.fact = format!("{what}: {}", self.0.fact);
        self
    }

    /// Adds the SQLSTATE the server gave.
    #[must_use]
    pub fn sqlstate(mut self, sqlstate: impl Into<String>) -> Error {
        self.0.sqlstate = Some(sqlstate.into());
        self
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The fact, without position and hint.
    pub fn fact(&self) -> &str {
        &self.0.fact
    }

    /// Where it was found, if known.
    pub fn position(&self) -> Option<&Position> {
        self.0.position.as_ref()
    }

    /// What to do about it, if there is advice.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The SQLSTATE the server gave, if it came from the server.
    pub fn sqlstate_text(&self) -> Option<&str> {
        self.0.sqlstate.as_deref()
    }
}

/// `error[code]: fact`, then ` at position` and `hint:` lines.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.0.code.as_str(), self.0.fact)?;
        if let Some(sqlstate) = &self.0.sqlstate {
            write!(f, " (SQLSTATE {sqlstate})")?;
        }
        if let Some(position) = &self.0.position {
            write!(f, "\n  at: {position}")?;
        }
        if let Some(hint) = &self.0.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// At most 100 bytes of user data for a message: control characters and invalid UTF-8 escaped, `...` where
/// it was cut. User data never enters a message in any other way.
#[derive(Debug, Clone, Copy)]
pub struct Excerpt<'a>(pub &'a [u8]);

impl Excerpt<'_> {
    /// Bytes of user data shown at most (as PostgreSQL's MAX_COPY_DATA_DISPLAY, copyfrom.c).
    pub const MAX: usize = 100;
}

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cut = self.0.len().min(Self::MAX);
        // Do not cut a UTF-8 character in two.
        while cut < self.0.len() && cut > 0 && self.0[cut] & 0xC0 == 0x80 {
            cut -= 1;
        }
        for part in self.0[..cut].utf8_chunks() {
            for c in part.valid().chars() {
                if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
            }
            for byte in part.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        if cut < self.0.len() {
            f.write_str("...")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_code_position_and_hint() {
        let mut position = Position::source("a.csv");
        position.line = Some(7);
        position.byte = Some(130);
        let error = Error::new(Code::Record, "extra data after last expected column")
            .at(position)
            .hint("Check the delimiter.");
        assert_eq!(
            error.to_string(),
            "error[record]: extra data after last expected column\n  at: a.csv:7 (byte 130)\nhint: Check the delimiter."
        );
    }

    #[test]
    fn excerpt_is_bounded_and_printable() {
        assert_eq!(Excerpt(b"a\tb\xffc").to_string(), "a\\tb\\xffc");
        let long = "ä".repeat(80);
        let shown = Excerpt(long.as_bytes()).to_string();
        assert!(shown.ends_with("...") && shown.len() <= 103, "{shown}");
    }

    #[test]
    fn codes_are_unique() {
        let mut texts: Vec<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        texts.sort_unstable();
        let n = texts.len();
        texts.dedup();
        assert_eq!(n, texts.len());
    }
}
