//! Some rows of a unit that is sent carefully: in a savepoint on every node that they go to, one COPY after another.

use super::{Slot, Spot, Spread, row_length};
use crate::careful::{Piece, Refused};
use crate::feed::Sent;
use crate::job::Job;
use crate::spread::session::{Send, Stand};
use crate::unit::Unit;
use inrush_sink::copy::WireFormat;
use inrush_sink::failure::Failure;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Rows for one place: their bytes, and which of the rows of the piece they are.
#[derive(Default)]
struct Portion {
    bytes: Vec<u8>,
    rows: Vec<usize>,
}

impl Spread {
    /// Sends some rows. The outer error ends the unit; the inner one is about a row.
    pub async fn try_rows(
        &mut self,
        job: &Job,
        unit: &mut Unit,
        piece: &mut dyn Piece,
        rows: Range<usize>,
        immediate: bool,
    ) -> Result<Result<(), Refused>, Failure> {
        let input = &job.plan.inputs[piece.input() as usize];
        if input.shape != self.shape {
            self.finish(job).await?;
            self.shape = input.shape;
        }
        let begun = self.savepoint().await?;
        let (mut main, mut text) = (Vec::new(), Vec::new());
        let (mut main_rows, mut text_rows) = (Vec::new(), Vec::new());
        let start = rows.start;
        // The extension only takes what goes well: why a row is refused is COPY's to say.
        let as_text = job.plan.wire(input) == WireFormat::Direct;
        piece.encode(rows.clone(), as_text, &mut main, &mut text, &mut |row, how| match how {
            Sent::Main => main_rows.push(row - start),
            Sent::Side => text_rows.push(row - start),
        })?;
        let side_rows = text_rows.len() as u64;
        let mut stored = 0;
        // As without nodes the rows that go as text are first: they are the likeliest to be refused.
        let parts = [(text, text_rows, WireFormat::Text), (main, main_rows, job.plan.wire(input))];
        let mut refused = None;
        for (bytes, order, format) in parts {
            match self.copy_part(job, &bytes, &order, format).await {
                Ok(more) => stored += more,
                Err((row, Failure::Row(refusal))) => {
                    refused = Some(Refused { row, refusal: *refusal });
                    break;
                }
                Err((_, failure)) => return Err(failure),
            }
        }
        if refused.is_none() && immediate {
            refused = self.check_deferred().await?;
        }
        self.end_savepoint(&begun, refused.is_none()).await?;
        if let Some(refused) = refused {
            let dead = refused.row.unwrap_or(rows.len()) as u64;
            job.progress.dead_rows.fetch_add(dead, Relaxed);
            return Ok(Err(refused));
        }
        unit.sent += rows.len() as u64;
        unit.side_rows += side_rows;
        self.stored += stored;
        Ok(Ok(()))
    }

    /// Rows of one format, by their places. On failure tells which row it was, if that is known.
    async fn copy_part(
        &mut self,
        job: &Job,
        bytes: &[u8],
        order: &[usize],
        format: WireFormat,
    ) -> Result<u64, (Option<usize>, Failure)> {
        let mut portions: BTreeMap<usize, Portion> = BTreeMap::new();
        let (mut at, mut number) = (0, 0);
        while at < bytes.len() {
            let known = order.get(number).copied();
            let length = row_length(&bytes[at..], format).map_err(|failure| (None, failure))?;
            let (row, spot) =
                self.place(&bytes[at..at + length], format).await.map_err(|failure| (known, failure))?;
            let Spot::At(place) = spot else {
                return Err((known, Failure::Row(Box::new(self.refusal(job, spot)))));
            };
            if self.is_passed_over(place) {
                at += length;
                number += 1;
                continue;
            }
            let portion = portions.entry(place).or_default();
            if portion.bytes.is_empty() && format == WireFormat::Binary {
                portion.bytes.extend_from_slice(inrush_encode::copy_binary::HEADER);
            }
            portion.bytes.extend_from_slice(&row);
            portion.rows.extend(known);
            at += length;
            number += 1;
        }
        let mut stored = 0;
        for (place, mut portion) in portions {
            if format == WireFormat::Binary {
                portion.bytes.extend_from_slice(inrush_encode::copy_binary::TRAILER);
            }
            job.progress.bytes_out.fetch_add(portion.bytes.len() as u64, Relaxed);
            let node = self.places[place].node;
            let mut session = self.session(job, node).await.map_err(|failure| (None, failure))?;
            let sent = session
                .copy(Send {
                    place: Arc::clone(&self.places[place]),
                    columns: Arc::clone(&self.columns[self.shape]),
                    format,
                    blocks: None,
                    bytes: portion.bytes,
                })
                .await;
            self.slots[node] = Slot::Here(session);
            stored += sent.map_err(|failure| {
                let row = match &failure {
                    Failure::Row(refusal) => refusal
                        .line
                        .filter(|_| refusal.line_exact)
                        .and_then(|line| usize::try_from(line).ok()?.checked_sub(1))
                        .and_then(|line| portion.rows.get(line).copied()),
                    _ => None,
                };
                (row, failure)
            })?;
        }
        Ok(stored)
    }

    /// A savepoint on every node that has begun; which those were. Others begin behind it.
    async fn savepoint(&mut self) -> Result<Vec<bool>, Failure> {
        let mut begun = Vec::new();
        for number in 0..self.slots.len() {
            self.rest(number).await?;
            let there = match &self.slots[number] {
                Slot::Here(session) if session.stand == Stand::Begun => {
                    session.execute("SAVEPOINT inrush_rows").await?;
                    true
                }
                _ => false,
            };
            begun.push(there);
        }
        Ok(begun)
    }

    async fn end_savepoint(&mut self, begun: &[bool], keep: bool) -> Result<(), Failure> {
        for (slot, there) in self.slots.iter_mut().zip(begun) {
            let Slot::Here(session) = slot else { continue };
            match (session.stand, there, keep) {
                (Stand::Begun, true, true) => session.execute("RELEASE inrush_rows").await?,
                (Stand::Begun, true, false) => {
                    session.execute("ROLLBACK TO inrush_rows; RELEASE inrush_rows").await?;
                }
                (Stand::Begun, false, false) => {
                    session.execute("ROLLBACK").await?;
                    session.stand = Stand::Idle;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Has every node check what it would check when the unit is prepared.
    async fn check_deferred(&mut self) -> Result<Option<Refused>, Failure> {
        for slot in &self.slots {
            let Slot::Here(session) = slot else { continue };
            if session.stand != Stand::Begun {
                continue;
            }
            match session.check_deferred().await {
                Ok(()) => {}
                Err(Failure::Row(refusal)) => return Ok(Some(Refused { row: None, refusal: *refusal })),
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }
}
