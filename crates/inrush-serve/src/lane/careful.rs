//! Finding the rows that the server refuses, while the others of the unit commit.
//!
//! Each batch goes in a savepoint. One that is refused goes again as COPY text, in segments, each in a savepoint: the
//! line in the server's error names the row, which becomes a dead letter, and the segment goes again without it. Errors
//! that name no line are narrowed down by halving. A segment shrinks after a refusal and grows after a success.

use super::Lane;
use super::attempt::send;
use super::nodes::{Carefully, no_session};
use crate::part::{Batch, LaneWork};
use crate::session::Session;
use crate::split::row_texts;
use bytes::Bytes;
use inrush_cluster::Refused;
use inrush_core::{Position, Reject, RejectOrigin};
use inrush_sink::copy::WireFormat;
use inrush_sink::failure::{Failure, RowFailure};
use inrush_sink::ledger::stream::DeadLetter;

/// A segment is not made smaller than this because of a refusal that names its row.
const MIN_SEGMENT: usize = 64;

/// How careful an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// As fast as it goes.
    No,
    /// Batch by batch. With `immediate`, deferred constraints are checked with each: COMMIT was refused before.
    Rows { immediate: bool },
}

impl Care {
    /// More care, if there is any.
    pub fn more(self) -> Option<Care> {
        match self {
            Care::No => Some(Care::Rows { immediate: false }),
            Care::Rows { immediate: false } => Some(Care::Rows { immediate: true }),
            Care::Rows { immediate: true } => None,
        }
    }
}

/// Where the rows of a batch go.
enum Into<'a> {
    Table(&'a mut Session),
    Nodes(Carefully<'a>),
}

impl Lane {
    /// Stores a batch but for the rows that the server refuses; gives those.
    pub(super) async fn copy_carefully(
        &mut self,
        work: &LaneWork,
        batch: &Batch,
        immediate: bool,
    ) -> Result<Vec<DeadLetter>, Failure> {
        let Some(session) = &mut self.session else { return Err(no_session()) };
        let client = &session.connected.client;
        let into = match Carefully::of(&mut self.nodes, client, &self.aborted, batch) {
            Some(nodes) => Into::Nodes(nodes),
            None => Into::Table(session),
        };
        into.copy(work, batch, immediate).await
    }
}

impl Into<'_> {
    async fn copy(
        mut self,
        work: &LaneWork,
        batch: &Batch,
        immediate: bool,
    ) -> Result<Vec<DeadLetter>, Failure> {
        if batch.wire == WireFormat::Direct && matches!(self, Into::Nodes(_)) {
            return self.narrow(work, batch, immediate).await;
        }
        let whole = match &mut self {
            Into::Table(session) => session.try_whole(batch, immediate).await?,
            Into::Nodes(nodes) => nodes.whole(batch, immediate).await?,
        };
        match whole {
            Ok(()) => Ok(Vec::new()),
            Err(_) => self.narrow(work, batch, immediate).await,
        }
    }

    /// Stores the rows of a batch one segment after the other.
    async fn narrow(
        &mut self,
        work: &LaneWork,
        batch: &Batch,
        immediate: bool,
    ) -> Result<Vec<DeadLetter>, Failure> {
        let rows = row_texts(&work.body, batch).map_err(Failure::Fatal)?;
        let mut refused: Vec<Option<RowFailure>> = rows.iter().map(|_| None).collect();
        let (mut at, mut segment) = (0, rows.len());
        while at < rows.len() {
            let end = rows.len().min(at + segment.max(1));
            let sent: Vec<usize> = (at..end).filter(|row| refused[*row].is_none()).collect();
            let text: Vec<u8> = sent.iter().flat_map(|row| rows[*row].text.iter().copied()).collect();
            if sent.is_empty() {
                at = end;
                continue;
            }
            let stored = match self {
                Into::Table(session) => session.try_text(batch, text, immediate).await?,
                Into::Nodes(nodes) => nodes.text(text, sent.len(), immediate).await?,
            };
            match stored {
                Ok(()) => {
                    at = end;
                    segment = segment.max(1).saturating_mul(4);
                }
                Err(Refused { row, refusal }) => match row.and_then(|row| sent.get(row)).copied() {
                    Some(row) => {
                        refused[row] = Some(refusal);
                        segment = (segment / 4).max(MIN_SEGMENT);
                    }
                    None if sent.len() == 1 => refused[sent[0]] = Some(refusal),
                    None => segment = (end - at) / 2,
                },
            }
        }
        let letters = rows.iter().zip(refused).filter_map(|(row, why)| why.map(|why| (row, why)));
        Ok(letters.map(|(row, why)| letter(work, batch, row, why)).collect())
    }
}

impl Session {
    /// All rows of a batch in a savepoint, as they were encoded. The inner error is about a row.
    async fn try_whole(&mut self, batch: &Batch, immediate: bool) -> Result<Result<(), Refused>, Failure> {
        self.execute("SAVEPOINT inrush_rows").await?;
        let copied = self.copy_whole(batch, immediate).await;
        self.end_savepoint(copied).await
    }

    /// Some rows in a savepoint, as COPY text.
    async fn try_text(
        &mut self,
        batch: &Batch,
        text: Vec<u8>,
        immediate: bool,
    ) -> Result<Result<(), Refused>, Failure> {
        self.execute("SAVEPOINT inrush_rows").await?;
        let stored = match self.copy_text(batch, Bytes::from(text)).await {
            Ok(()) => self.check_deferred(batch, immediate).await,
            Err(failure) => Err(failure),
        };
        self.end_savepoint(stored).await
    }

    async fn end_savepoint(&self, copied: Result<(), Failure>) -> Result<Result<(), Refused>, Failure> {
        match copied {
            Ok(()) => {
                self.execute("RELEASE inrush_rows").await?;
                Ok(Ok(()))
            }
            Err(Failure::Row(refusal)) => {
                self.execute("ROLLBACK TO inrush_rows; RELEASE inrush_rows").await?;
                let line = refusal.line.filter(|_| refusal.line_exact);
                let row = line.and_then(|line| usize::try_from(line).ok()?.checked_sub(1));
                Ok(Err(Refused { row, refusal: *refusal }))
            }
            Err(other) => Err(other),
        }
    }

    async fn copy_whole(&mut self, batch: &Batch, immediate: bool) -> Result<(), Failure> {
        if !batch.messages.is_empty() {
            let mut copy = self.start_copy(batch, batch.wire).await?;
            let sent = send(&mut copy, batch.wire, &[batch]).await;
            sent.map_err(|e| self.copy_failure(batch, batch.wire, &e))?;
            copy.finish().await.map_err(|e| self.copy_failure(batch, batch.wire, &e))?;
        }
        if !batch.side.is_empty() {
            self.copy_text(batch, batch.side.clone()).await?;
        }
        self.check_deferred(batch, immediate).await
    }

    async fn copy_text(&mut self, batch: &Batch, text: Bytes) -> Result<(), Failure> {
        let mut copy = self.start_copy(batch, WireFormat::Text).await?;
        copy.send(text).await.map_err(|e| self.copy_failure(batch, WireFormat::Text, &e))?;
        copy.finish().await.map_err(|e| self.copy_failure(batch, WireFormat::Text, &e))?;
        Ok(())
    }

    async fn check_deferred(&self, batch: &Batch, immediate: bool) -> Result<(), Failure> {
        if immediate {
            let checked = self.connected.client.batch_execute("SET CONSTRAINTS ALL IMMEDIATE").await;
            checked.map_err(|e| self.copy_failure(batch, WireFormat::Text, &e))?;
        }
        Ok(())
    }
}

/// A row of a batch, as COPY text.
pub(crate) struct RowText {
    /// Its bytes in the part.
    pub range: std::ops::Range<usize>,
    pub text: Vec<u8>,
}

fn letter(work: &LaneWork, batch: &Batch, row: &RowText, why: RowFailure) -> DeadLetter {
    let body = &work.body;
    let lines = memchr::memchr_iter(b'\n', &body.bytes[..row.range.start]).count() as u64;
    DeadLetter {
        from: body.origin.name.clone(),
        position: body.positions.of(row.range.start, &mut 0),
        target: batch.target.asked.clone(),
        reject: Reject {
            input: 0,
            position: Position {
                source: body.source.name.clone(),
                byte: Some(row.range.start as u64),
                line: Some(body.first_line + lines),
                record: None,
                column: why.column,
            },
            sqlstate: why.sqlstate,
            reason: why.reason,
            origin: RejectOrigin::Server,
            raw: body.bytes[row.range.clone()].to_vec(),
            full_len: None,
        },
    }
}
