//! Parts for one table: NDJSON and CSV.

use super::naming::Naming;
use super::reader::Reader;
use super::{Drifted, Splitter, Work, new_columns};
use crate::config::Unknown;
use crate::part::{Body, Reading};
use crate::target::Target;
use inrush_core::{BadRecord, Record, Result};
use inrush_decode::encoding;
use std::ops::Range;
use std::sync::Arc;

/// A part, and the table it is for.
struct Part<'p> {
    body: &'p Arc<Body>,
    table: &'p str,
    target: Arc<Target>,
    /// Whether all of it is UTF-8.
    valid: bool,
}

/// What became of a record.
enum Outcome {
    /// It is stored, or refused.
    Done,
    /// The table has other columns by now: it is to be decoded again.
    Again,
}

impl Splitter {
    /// A part for one table.
    pub(super) fn one_table(&mut self, body: &Arc<Body>, table: &str, work: &mut Work) -> Result<()> {
        let target = self.target(table, body)?;
        if let Reading::Line { .. } = body.reading {
            return self.lines(body, work, Naming::fixed(table));
        }
        let valid = encoding::check_utf8(&body.bytes).is_ok();
        let mut part = Part { body, table, target, valid };
        // Records that fill other columns than the first: they have their turn behind the rest.
        let mut aside: Vec<Range<usize>> = Vec::new();
        let mut base = 0;
        while base < body.bytes.len() {
            let bytes = &body.bytes[base..];
            let (key, mut reader) = self.reader(body, &part.target, bytes)?;
            reader.begin(bytes);
            let mut again = None;
            while let Some(step) = reader.next(bytes, &mut work.fields) {
                let range = base + step.range.start..base + step.range.end;
                if reader.tells_apart() {
                    let record = &body.bytes[range.clone()];
                    let decoded = Record { input: bytes, fields: &work.fields };
                    if !reader.suits(record) || (step.result.is_ok() && !reader.fills(&decoded, record)) {
                        aside.push(range);
                        continue;
                    }
                }
                // Nearly all of them.
                if part.valid && step.result.is_ok() {
                    let Some(target) = self.row(&mut reader, bytes, base, body, &range, work)? else {
                        continue;
                    };
                    part.target = target;
                    again = Some(range.start);
                    break;
                }
                if let Outcome::Again =
                    self.record(&mut part, &mut reader, (bytes, base), &range, step.result, work)?
                {
                    again = Some(range.start);
                    break;
                }
            }
            self.readers.insert(key, reader);
            let Some(start) = again else { break };
            base = start;
        }
        while let Some(first) = aside.first() {
            // Positions are looked up forwards.
            work.mark = 0;
            let (key, mut reader) = self.reader(body, &part.target, &body.bytes[first.clone()])?;
            let mut changed = false;
            let mut left = Vec::new();
            for range in aside {
                let record = &body.bytes[range.clone()];
                if changed || !reader.suits(record) {
                    left.push(range);
                    continue;
                }
                reader.begin(record);
                let Some(step) = reader.next(record, &mut work.fields) else { continue };
                let decoded = Record { input: record, fields: &work.fields };
                if step.result.is_ok() && !reader.fills(&decoded, record) {
                    left.push(range);
                    continue;
                }
                let at = (record, range.start);
                if let Outcome::Again = self.record(&mut part, &mut reader, at, &range, step.result, work)? {
                    changed = true;
                    left.push(range);
                }
            }
            self.readers.insert(key, reader);
            aside = left;
        }
        Ok(())
    }

    /// One record, decoded from `bytes`, which begin at this byte of the body.
    fn record(
        &mut self,
        part: &mut Part<'_>,
        reader: &mut Reader,
        (bytes, base): (&[u8], usize),
        range: &Range<usize>,
        decoded: Result<(), BadRecord>,
        work: &mut Work,
    ) -> Result<Outcome> {
        let body = part.body;
        let decoded = match decoded {
            Ok(()) if !part.valid => encoding::check_utf8(&body.bytes[range.clone()])
                .map_err(|at| encoding::invalid_at(&body.bytes, range.start + at)),
            other => other,
        };
        match decoded {
            Ok(()) => {
                if let Some(target) = self.row(reader, bytes, base, body, range, work)? {
                    part.target = target;
                    return Ok(Outcome::Again);
                }
            }
            Err(bad) if body.source.into.unknown == Unknown::Add && is_drift(&bad) => {
                let added = new_columns(&part.target, body, &body.bytes[range.clone()]);
                match self.add_columns(&part.target, body, &added)? {
                    Drifted::Target(target) => {
                        part.target = target;
                        return Ok(Outcome::Again);
                    }
                    Drifted::Refused(bad) => self.refuse(body, range, part.table, &bad, work),
                }
            }
            Err(bad) => self.refuse(body, range, part.table, &bad, work),
        }
        Ok(Outcome::Done)
    }
}

fn is_drift(bad: &BadRecord) -> bool {
    bad.fact.starts_with("no column for the key")
}
