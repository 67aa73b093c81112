//! What was decided for a windowed table when it was made.

use serde::Serialize;

/// How far into the future a row may lie, in windows, where `ahead` says less: a day at most.
const FUTURE_WINDOWS: i64 = 24;

/// What was decided for a windowed table. Lengths are in instants of its time column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Length of a window.
    pub width: i64,
    /// Age after which a window is retired, counted from its end.
    pub keep: Option<i64>,
    /// Bytes in one tablespace above which the oldest windows there are retired.
    pub max_size: Option<i64>,
    /// Free bytes on the device of a tablespace below which the oldest windows there are retired.
    pub min_free: Option<i64>,
    /// Windows made before they begin.
    pub ahead: u32,
    /// Hash leaves of a window; 1: the window is one leaf.
    pub lanes: u32,
    /// The column whose hash chooses the leaf.
    pub key_column: Option<String>,
    /// Where leaves go, in turn; empty: the default of the database.
    pub tablespaces: Vec<String>,
    /// Whether leaves are unlogged.
    pub unlogged: bool,
    /// When a leaf gets its BRIN index.
    pub index: IndexKind,
    /// `pages_per_range` of that index.
    pub pages_per_range: u32,
    /// What becomes of late rows.
    pub late: Late,
    /// Microseconds after which a lane that commits nothing does not hold its source back.
    pub idle_us: i64,
}

/// When a leaf gets its BRIN index on the time column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IndexKind {
    /// It is there from the first row on.
    Brin,
    /// It is built when the window has ended.
    BrinAtClose,
    /// Never.
    None,
}

impl IndexKind {
    /// As the ledger has it.
    pub fn as_str(self) -> &'static str {
        match self {
            IndexKind::Brin => "brin",
            IndexKind::BrinAtClose => "brin-at-close",
            IndexKind::None => "none",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<IndexKind> {
        [IndexKind::Brin, IndexKind::BrinAtClose, IndexKind::None]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// What becomes of a row whose window is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Late {
    /// It is a reject.
    Reject,
    /// It goes to the table beside, see [`crate::Windowed::overflow`].
    Overflow,
    /// It is counted and dropped.
    Drop,
}

impl Late {
    /// As the ledger has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Late::Reject => "reject",
            Late::Overflow => "overflow",
            Late::Drop => "drop",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Late> {
        [Late::Reject, Late::Overflow, Late::Drop].into_iter().find(|late| late.as_str() == text)
    }
}

impl Policy {
    /// How far after now a window may begin: the windows made ahead, and a day or 24 windows, whichever is less, where
    /// that is more. A wrong clock at a source must not make tables without end.
    pub(crate) fn future(&self, day: i64) -> i64 {
        let ahead = self.width.saturating_mul(i64::from(self.ahead));
        let usual = self.width.saturating_mul(FUTURE_WINDOWS).min(day);
        ahead.max(usual)
    }
}
