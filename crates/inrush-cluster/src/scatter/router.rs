//! Which place a row belongs to, by the wire bytes of the row: encoders need not know of it, and what is hashed is what
//! is sent.

use super::Aim;
use super::fill::Fill;
use crate::{Map, Topology};
use inrush_core::{BaseType, Column, PgType, TypeKind};
use inrush_encode::ValueEncoder;
use inrush_route::HashKind;
use std::ops::Range;

/// Where a row belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    /// Into this place.
    At(usize),
    /// Nowhere: its key is NULL.
    Null,
    /// Nowhere: no place has such keys.
    Nowhere,
    /// The server has to say what its key means.
    Unsure,
}

/// The key of a table in the rows of one shape.
#[derive(Debug)]
pub struct Router {
    keys: Vec<Key>,
    values: Vec<u8>,
}

#[derive(Debug)]
struct Key {
    /// Its number among the columns that are sent.
    column: usize,
    kind: HashKind,
    encoder: Option<ValueEncoder>,
    /// The type as a cast names it that neither rounds nor cuts.
    cast: String,
}

impl Router {
    /// For rows of these columns with `fills` behind them. `Err`: why they cannot be routed here.
    pub fn new(aim: &Aim, columns: &[Column], fills: &[Fill], topology: &Topology) -> Result<Router, String> {
        let mut keys = Vec::new();
        for name in &topology.keys {
            let mut all = columns.iter().chain(fills.iter().map(|fill| &fill.column)).enumerate();
            let Some((column, of)) = all.find(|(_, column)| column.name == *name) else {
                return Err(format!("no value is given for {name:?}, by which it is distributed"));
            };
            let Some(kind) = HashKind::of(&of.ty, of.typmod) else {
                return Err(HashKind::why_not(&of.ty, of.typmod).unwrap_or_default());
            };
            let text = matches!(kind, HashKind::Text | HashKind::Varchar { .. } | HashKind::Bpchar);
            if text && !aim.utf8 {
                return Err("its key is text, and the database is not in UTF8".into());
            }
            let encoder = ValueEncoder::of(&of.ty, of.typmod, &aim.session);
            keys.push(Key { column, kind, encoder, cast: cast(&of.ty) });
        }
        Ok(Router { keys, values: Vec::new() })
    }

    /// Where a row of COPY binary belongs: the number of fields, then each with its length.
    pub(super) fn of_binary(&mut self, topology: &Topology, row: &[u8]) -> Spot {
        if let [key] = &self.keys[..] {
            return match field(row, key.column) {
                Some(Some(range)) => spot(topology, &[(key.kind, Some(&row[range]))]),
                Some(None) => spot(topology, &[(key.kind, None)]),
                None => Spot::Unsure,
            };
        }
        let mut values = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let Some(range) = field(row, key.column) else { return Spot::Unsure };
            values.push((key.kind, range.map(|range| &row[range])));
        }
        spot(topology, &values)
    }

    /// Where a frame belongs that has its key's hash in front.
    pub(super) fn of_keyed(topology: &Topology, row: &[u8]) -> Spot {
        topology.map.at_hash(super::frames::hash(row)).map_or(Spot::Nowhere, Spot::At)
    }

    /// Where a row of COPY text belongs, its line end included.
    pub(super) fn of_text(&mut self, topology: &Topology, row: &[u8]) -> Spot {
        self.values.clear();
        let mut ranges = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            match text_field(row, key.column) {
                None => ranges.push(None),
                Some(text) => {
                    let start = self.values.len();
                    let sure = key.encoder.as_ref().is_some_and(|e| e.encode(&text, &mut self.values));
                    if !sure {
                        return Spot::Unsure;
                    }
                    ranges.push(Some(start..self.values.len()));
                }
            }
        }
        let values: Vec<_> = self
            .keys
            .iter()
            .zip(ranges)
            .map(|(key, range)| (key.kind, range.map(|range| &self.values[range])))
            .collect();
        spot(topology, &values)
    }

    /// The key of a row of COPY text, as text; and how each part is cast.
    pub(super) fn key_texts(&self, row: &[u8]) -> Vec<(Option<String>, &str)> {
        let keys = self.keys.iter();
        keys.map(|key| {
            let text = text_field(row, key.column).map(|text| String::from_utf8_lossy(&text).into_owned());
            (text, key.cast.as_str())
        })
        .collect()
    }

    /// Where a row belongs by values that the server has read.
    pub(super) fn of_values(&self, topology: &Topology, values: &[Option<Vec<u8>>]) -> Spot {
        let values: Vec<_> =
            self.keys.iter().zip(values).map(|(key, value)| (key.kind, value.as_deref())).collect();
        spot(topology, &values)
    }
}

fn spot(topology: &Topology, values: &[(HashKind, Option<&[u8]>)]) -> Spot {
    let found = match (&topology.map, values) {
        (Map::One, _) => Some(0),
        (Map::Shards(_), [(_, None)]) => return Spot::Null,
        (Map::Ranges(ranges), [(_, value)]) => ranges.find(*value),
        (map, values) => match map.hash(values) {
            Some(hash) => map.at_hash(hash),
            None => return Spot::Unsure,
        },
    };
    found.map_or(Spot::Nowhere, Spot::At)
}

/// The bytes of a field of a row of COPY binary; the inner `None` is NULL.
#[inline]
#[allow(clippy::option_option)]
fn field(row: &[u8], column: usize) -> Option<Option<Range<usize>>> {
    let mut at = 2;
    for _ in 0..column {
        let length = i32::from_be_bytes(*row.get(at..)?.first_chunk()?);
        at += 4 + usize::try_from(length).unwrap_or(0);
    }
    let length = i32::from_be_bytes(*row.get(at..)?.first_chunk()?);
    let Ok(length) = usize::try_from(length) else { return Some(None) };
    (at + 4 + length <= row.len()).then_some(Some(at + 4..at + 4 + length))
}

/// Bytes of the first row of COPY binary.
pub(super) fn binary_row(rows: &[u8]) -> Option<usize> {
    let count = i16::from_be_bytes(*rows.first_chunk()?);
    let mut at = 2;
    for _ in 0..count.max(0) {
        let length = i32::from_be_bytes(*rows.get(at..)?.first_chunk()?);
        at += 4 + usize::try_from(length).unwrap_or(0);
    }
    (count >= 0 && at <= rows.len()).then_some(at)
}

/// A field of a row of COPY text, unescaped; `None` is NULL (copyfromparse.c, CopyReadAttributesText; the escapes are those
/// that our encoder writes).
fn text_field(row: &[u8], column: usize) -> Option<Vec<u8>> {
    let row = row.strip_suffix(b"\n").unwrap_or(row);
    let field = row.split(|byte| *byte == b'\t').nth(column)?;
    if field == b"\\N" {
        return None;
    }
    let mut text = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(byte) = bytes.next() {
        text.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'b') => 8,
                Some(b'f') => 12,
                Some(b'v') => 11,
                Some(other) => *other,
                None => b'\\',
            },
            byte => *byte,
        });
    }
    Some(text)
}

/// The type for a cast of text. A bare `character` would be of length 1.
fn cast(ty: &PgType) -> String {
    let (base, _) = ty.under_domains(-1);
    match base.kind {
        TypeKind::Base(BaseType::Bpchar) => "pg_catalog.bpchar".into(),
        _ => base.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inrush_route::{Shard, Shards};

    fn row(fields: &[Option<&[u8]>]) -> Vec<u8> {
        let mut row = i16::try_from(fields.len()).unwrap().to_be_bytes().to_vec();
        for field in fields {
            row.extend_from_slice(&field.map_or(-1, |f| i32::try_from(f.len()).unwrap()).to_be_bytes());
            row.extend_from_slice(field.unwrap_or_default());
        }
        row
    }

    #[test]
    fn fields_of_binary_rows_are_found() {
        let bytes = row(&[Some(b"ab"), None, Some(b""), Some(b"c")]);
        assert_eq!(binary_row(&bytes), Some(bytes.len()));
        let get = |column| field(&bytes, column).map(|found| found.map(|range| bytes[range].to_vec()));
        assert_eq!(get(0), Some(Some(b"ab".to_vec())));
        assert_eq!(get(1), Some(None));
        assert_eq!(get(2), Some(Some(Vec::new())));
        assert_eq!(get(3), Some(Some(b"c".to_vec())));
        assert_eq!(get(4), None);
        assert_eq!(binary_row(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn fields_of_text_rows_are_found() {
        let row = b"a\\tb\t\\N\tc\\\\\\n\n";
        assert_eq!(text_field(row, 0), Some(b"a\tb".to_vec()));
        assert_eq!(text_field(row, 1), None);
        assert_eq!(text_field(row, 2), Some(b"c\\\n".to_vec()));
    }

    #[test]
    fn null_belongs_nowhere_in_shards() {
        let shards =
            Shards::new(vec![Shard { id: 1, min: i32::MIN, max: 0 }, Shard { id: 2, min: 1, max: i32::MAX }])
                .unwrap();
        let topology = Topology {
            kind: crate::Kind::Citus,
            keys: vec!["id".into()],
            map: Map::Shards(shards),
            places: Vec::new(),
            nodes: Vec::new(),
        };
        let key = Key { column: 0, kind: HashKind::Int4, encoder: None, cast: "integer".into() };
        let mut router = Router { keys: vec![key], values: Vec::new() };
        assert_eq!(router.of_binary(&topology, &row(&[None])), Spot::Null);
        // hashint4(1) = -1905060026
        assert_eq!(router.of_binary(&topology, &row(&[Some(&[0, 0, 0, 1])])), Spot::At(0));
        assert_eq!(router.of_binary(&topology, &row(&[Some(&[0, 0, 1])])), Spot::Unsure);
    }
}
