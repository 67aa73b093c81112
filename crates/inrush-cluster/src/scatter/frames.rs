//! Rows for the extension of nodes: a frame does not show its key, so the hash of the key goes in front of it until the row
//! is in the buffer of its place.

use crate::Topology;
use inrush_core::{Code, Column, Error, FieldSource, Record, Result};
use inrush_encode::frames::{FrameEncoder, HEADER};
use inrush_encode::{EncodeColumn, RowEncoder, Session, Unsure, ValueEncoder};
use inrush_route::HashKind;
use std::sync::Arc;

/// The hash, and the length of the frame.
const FRONT: usize = 12;

/// Encodes frames with the hash of their key in front.
pub struct KeyedFrames {
    keys: Vec<(FieldSource, ValueEncoder, HashKind)>,
    topology: Arc<Topology>,
    frames: FrameEncoder,
    frame: Vec<u8>,
    values: Vec<u8>,
}

impl KeyedFrames {
    /// For rows of these columns, which `encoded` says where they come from.
    ///
    /// # Errors
    /// Code `internal`, where the key is not among the columns or is none that is hashed here.
    pub fn new(
        topology: &Arc<Topology>,
        columns: &[Column],
        encoded: &[EncodeColumn],
        session: Session,
        frames: FrameEncoder,
    ) -> Result<KeyedFrames> {
        let keys = topology.keys.iter().map(|name| {
            let at = columns.iter().position(|column| column.name == *name)?;
            let column = &encoded[at];
            let kind = HashKind::of(&column.ty, column.typmod)?;
            Some((column.source.clone(), ValueEncoder::of(&column.ty, column.typmod, &session)?, kind))
        });
        let keys = keys.collect::<Option<Vec<_>>>();
        Ok(KeyedFrames {
            keys: keys
                .ok_or_else(|| Error::new(Code::Internal, "frames without a key that is hashed here"))?,
            topology: Arc::clone(topology),
            frames,
            frame: Vec::new(),
            values: Vec::new(),
        })
    }

    /// `None`: the row goes as text, and whoever routes that knows more.
    fn hash(&mut self, record: &Record<'_>) -> Option<u64> {
        let map = &self.topology.map;
        self.values.clear();
        if let [(source, encoder, kind)] = &self.keys[..] {
            return match source.value(record) {
                None => map.hash(&[(*kind, None)]),
                Some(value) if encoder.encode(value, &mut self.values) => {
                    map.hash(&[(*kind, Some(&self.values))])
                }
                Some(_) => None,
            };
        }
        if self.keys.is_empty() {
            // There is one place.
            return Some(0);
        }
        let mut ranges = Vec::with_capacity(self.keys.len());
        for (source, encoder, _) in &self.keys {
            let start = self.values.len();
            match source.value(record) {
                None => ranges.push(None),
                Some(value) if encoder.encode(value, &mut self.values) => {
                    ranges.push(Some(start..self.values.len()));
                }
                Some(_) => return None,
            }
        }
        let keys = self.keys.iter().zip(ranges);
        let values: Vec<_> =
            keys.map(|((_, _, kind), range)| (*kind, range.map(|range| &self.values[range]))).collect();
        map.hash(&values)
    }
}

impl RowEncoder for KeyedFrames {
    fn row(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> std::result::Result<(), Unsure> {
        let hash = self.hash(record).ok_or(Unsure { column: 0 })?;
        self.frame.clear();
        self.frames.row(record, &mut self.frame)?;
        let frame = &self.frame[HEADER..];
        let length = u32::try_from(frame.len()).map_err(|_| Unsure { column: 0 })?;
        out.extend_from_slice(&hash.to_ne_bytes());
        out.extend_from_slice(&length.to_ne_bytes());
        out.extend_from_slice(frame);
        Ok(())
    }
}

/// Bytes of the first row.
pub(super) fn keyed_length(rows: &[u8]) -> Option<usize> {
    let length = u32::from_ne_bytes(*rows.get(8..)?.first_chunk()?) as usize;
    (FRONT + length <= rows.len()).then_some(FRONT + length)
}

/// The hash of a row's key.
pub(super) fn hash(row: &[u8]) -> u64 {
    row.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// Its frame.
pub(super) fn frame(row: &[u8]) -> &[u8] {
    row.get(FRONT..).unwrap_or_default()
}
