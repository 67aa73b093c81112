//! Rows for the extension of nodes: a frame does not show its key, so the hash of the key goes in front of it until the row
//! is in the buffer of its place.

use super::SpreadPlan;
use crate::shape::Shape;
use inrush_cluster::Map;
use inrush_core::{Code, Error, FieldSource, Record, Result};
use inrush_encode::frames::{FrameEncoder, HEADER};
use inrush_encode::{EncodeColumn, RowEncoder, Session, Unsure, ValueEncoder};
use inrush_route::{HashKind, partition_hash, shard_hash};

/// The hash, and the length of the frame.
const FRONT: usize = 12;

/// Encodes frames with the hash of their key in front.
pub(crate) struct KeyedFrames {
    keys: Vec<(FieldSource, ValueEncoder, HashKind)>,
    /// By the hash of 32 bits.
    shards: bool,
    frames: FrameEncoder,
    frame: Vec<u8>,
    values: Vec<u8>,
}

impl KeyedFrames {
    pub fn new(
        plan: &SpreadPlan,
        shape: &Shape,
        columns: &[EncodeColumn],
        session: Session,
        frames: FrameEncoder,
    ) -> Result<KeyedFrames> {
        let keys = plan.topology.keys.iter().map(|name| {
            let at = shape.columns.iter().position(|column| column.name == *name)?;
            let column = &columns[at];
            let kind = HashKind::of(&column.ty, column.typmod)?;
            Some((column.source.clone(), ValueEncoder::of(&column.ty, column.typmod, &session)?, kind))
        });
        let keys = keys.collect::<Option<Vec<_>>>();
        Ok(KeyedFrames {
            keys: keys
                .ok_or_else(|| Error::new(Code::Internal, "frames without a key that is hashed here"))?,
            shards: matches!(plan.topology.map, Map::Shards(_)),
            frames,
            frame: Vec::new(),
            values: Vec::new(),
        })
    }

    /// `None`: the row goes as text, and whoever routes that knows more.
    fn hash(&mut self, record: &Record<'_>) -> Option<u64> {
        self.values.clear();
        if let [(source, encoder, kind)] = &self.keys[..] {
            let Some(value) = source.value(record) else {
                return if self.shards { None } else { partition_hash(&[(*kind, None)]) };
            };
            if !encoder.encode(value, &mut self.values) {
                return None;
            }
            return if self.shards {
                shard_hash(*kind, &self.values).map(|hash| u64::from(hash.cast_unsigned()))
            } else {
                partition_hash(&[(*kind, Some(&self.values))])
            };
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
        partition_hash(&values)
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
