//! Some rows of a unit that is sent carefully: in a savepoint on every node that they go to, one COPY after another.

use super::router::Spot;
use super::session::{Send, Stand};
use super::slots::Slot;
use super::{Scatter, Watch, row_length};
use inrush_sink::copy::WireFormat;
use inrush_sink::failure::{Failure, RowFailure};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows of one format.
#[derive(Debug, Default)]
pub struct Part {
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// Which of the rows that are sent each of them is.
    pub rows: Vec<usize>,
}

/// Why rows were refused: by one of them, if it is known which.
#[derive(Debug)]
pub struct Refused {
    /// Its number.
    pub row: Option<usize>,
    /// What the server says of it.
    pub refusal: RowFailure,
}

impl Scatter {
    /// Sends some rows, and gives how many were stored. The outer error ends the unit; the inner one is about a row, and
    /// nothing of these rows is there then.
    ///
    /// `main` is not in frames: the extension only takes what goes well, and why a row is refused is COPY's to say.
    /// With `immediate` deferred constraints are checked, too.
    pub async fn try_rows(
        &mut self,
        watch: &dyn Watch,
        shape: usize,
        format: WireFormat,
        main: &Part,
        text: &Part,
        immediate: bool,
    ) -> Result<Result<u64, Refused>, Failure> {
        self.turn_to(watch, shape).await?;
        let begun = self.savepoint().await?;
        let mut stored = 0;
        let mut refused = None;
        // As without nodes the rows that go as text are first: they are the likeliest to be refused.
        for (part, format) in [(text, WireFormat::Text), (main, format)] {
            match self.copy_part(watch, part, format).await {
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
            return Ok(Err(refused));
        }
        self.slots.stored += stored;
        Ok(Ok(stored))
    }

    /// Rows of one format, by their places. On failure tells which row it was, if that is known.
    async fn copy_part(
        &mut self,
        watch: &dyn Watch,
        part: &Part,
        format: WireFormat,
    ) -> Result<u64, (Option<usize>, Failure)> {
        let mut portions: BTreeMap<usize, Part> = BTreeMap::new();
        let (mut at, mut number) = (0, 0);
        while at < part.bytes.len() {
            let known = part.rows.get(number).copied();
            let rest = &part.bytes[at..];
            let length = row_length(rest, format).map_err(|failure| (None, failure))?;
            let (row, spot) =
                self.place(&rest[..length], format).await.map_err(|failure| (known, failure))?;
            at += length;
            number += 1;
            let Spot::At(place) = spot else {
                return Err((known, Failure::Row(Box::new(self.refusal(spot)))));
            };
            if self.is_passed_over(place) {
                continue;
            }
            let portion = portions.entry(place).or_default();
            if portion.bytes.is_empty() && format == WireFormat::Binary {
                portion.bytes.extend_from_slice(inrush_encode::copy_binary::HEADER);
            }
            portion.bytes.extend_from_slice(&row);
            portion.rows.extend(known);
        }
        let mut stored = 0;
        for (place, mut portion) in portions {
            if format == WireFormat::Binary {
                portion.bytes.extend_from_slice(inrush_encode::copy_binary::TRAILER);
            }
            watch.sent(portion.bytes.len() as u64);
            let slot = self.slot_of(place);
            let mut session = self.slots.session(slot).await.map_err(|failure| (None, failure))?;
            let sent = session
                .copy(Send {
                    place: Arc::clone(&self.bound().places[place]),
                    columns: Arc::clone(&self.shapes[self.shape].names),
                    format,
                    blocks: None,
                    bytes: portion.bytes,
                })
                .await;
            self.slots.slots[slot] = Slot::Here(session);
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
        self.slots.rest_all().await?;
        let mut begun = Vec::new();
        for slot in &self.slots.slots {
            let there = match slot {
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
        for (slot, there) in self.slots.slots.iter_mut().zip(begun) {
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
        for slot in &self.slots.slots {
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
