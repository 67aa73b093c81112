//! Columns with a default: a record that has no key for one leaves it to the server.
//!
//! A COPY fills the same columns in all its rows, so that records are told apart by which of these columns they fill.

use crate::config::Into;
use crate::part::Reading;
use crate::target::{Target, is_line_time};
use inrush_core::{Default, Generated, Identity};
use inrush_decode::{line, ndjson};
use memchr::memmem::{self, Finder};

/// The columns of a table that a record may leave to the server.
#[derive(std::default::Default)]
pub(super) struct Optional {
    keys: Vec<Key>,
    is_line: bool,
}

struct Key {
    name: Vec<u8>,
    /// Finds it in a record: seldom where it is not a key, and never not where it is one, escapes apart.
    finder: Finder<'static>,
    /// The time of a line, which every line has.
    always: bool,
}

impl Optional {
    /// Those that the configuration says nothing of. None of CSV: its header says which columns there are.
    pub fn of(target: &Target, into: &Into, reading: &Reading) -> Optional {
        let is_line = matches!(reading, Reading::Line { .. });
        let keys = match reading {
            Reading::Csv { .. } => Vec::new(),
            Reading::Ndjson | Reading::Line { .. } => target
                .table
                .columns
                .iter()
                .filter(|column| column.default != Default::None || column.identity != Identity::No)
                .filter(|column| column.generated == Generated::No)
                .filter(|column| {
                    !into.columns.contains_key(&column.name) && !into.constants.contains_key(&column.name)
                })
                .map(|column| {
                    let name = column.name.as_bytes();
                    let sought = if is_line { [name, b"="].concat() } else { [b"\"", name, b"\""].concat() };
                    Key {
                        name: name.to_vec(),
                        finder: Finder::new(&sought).into_owned(),
                        always: is_line && is_line_time(target, &column.name),
                    }
                })
                .collect(),
        };
        Optional { keys, is_line }
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a record fills these, of all, and no others.
    pub fn suits(&self, record: &[u8], present: &[Vec<u8>]) -> bool {
        let same = |key: &Key| {
            let here = key.always || key.finder.find(record).is_some();
            here == present.contains(&key.name)
        };
        // What looks otherwise is looked at closely: it may stand in a value, or be written with escapes.
        let escape: &[u8] = if self.is_line { b"\\" } else { b"\\u" };
        self.keys.is_empty()
            || (self.keys.iter().all(same) && memmem::find(record, escape).is_none())
            || self.present_in(record) == present
    }

    /// Those that the first record of these fills, in order.
    pub fn present_in(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        if self.keys.is_empty() {
            return Vec::new();
        }
        let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(bytes.len());
        let end = memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |at| start + at);
        let first = &bytes[start..end];
        let has: Vec<Vec<u8>> = match self.is_line {
            true => line::keys(first),
            false => ndjson::keys_of(first).keys.into_iter().map(|key| key.name).collect(),
        };
        self.keys
            .iter()
            .filter(|key| key.always || has.contains(&key.name))
            .map(|key| key.name.clone())
            .collect()
    }
}
