//! The COPYs of a unit: the main one, and beside it one of COPY text for rows the encoder was not sure of.

use crate::inputs::InputPlan;
use crate::lane::Lane;
use crate::unit::Unit;
use bytes::Bytes;
use inrush_encode::copy_binary;
use inrush_encode::frames::BlockWriter;
use inrush_profile::Stage;
use inrush_sink::copy::{CopyStream, WireFormat};
use inrush_sink::failure::Failure;

/// The main COPY of a lane while it is open.
pub(crate) struct MainCopy {
    /// Whose columns it has.
    shape: usize,
    stream: CopyStream,
    format: WireFormat,
    /// Makes blocks of frames, on the direct path.
    blocks: Option<BlockWriter>,
}

impl Lane<'_> {
    /// Makes sure that the main COPY for this input's shape is open.
    pub async fn open_copy(&mut self, unit: &mut Unit, input: &InputPlan) -> Result<(), Failure> {
        if self.spread.is_some() || self.copy.as_ref().is_some_and(|copy| copy.shape == input.shape) {
            return Ok(());
        }
        self.finish_copies(unit).await?;
        self.enter(Stage::Answer);
        let plan = &self.job.plan;
        let format = plan.wire(input);
        let stream = self.session.start_copy(self.job, input.shape, format).await?;
        let blocks = (format == WireFormat::Direct).then(|| BlockWriter::new(&plan.layouts[input.shape]));
        self.copy = Some(MainCopy { shape: input.shape, stream, format, blocks });
        if format == WireFormat::Binary {
            self.out.extend_from_slice(copy_binary::HEADER);
        }
        Ok(())
    }

    /// Sends what has gathered for the main COPY; where rows go to nodes, what has gathered of this shape.
    pub async fn flush(&mut self, shape: usize) -> Result<(), Failure> {
        if let Some(spread) = &mut self.spread {
            let format = self.job.plan.wire_of(shape);
            spread.take(self.job, shape, format, &self.out).await?;
            self.out.clear();
            spread.take(self.job, shape, WireFormat::Text, &self.side).await?;
            self.side.clear();
            return Ok(());
        }
        if self.copy.is_none() || self.out.is_empty() {
            return Ok(());
        }
        self.enter(Stage::Send);
        let next = self.buffers.take(self.message + self.message / 4);
        let bytes = std::mem::replace(&mut self.out, next);
        let Some(copy) = &mut self.copy else { return Ok(()) };
        let sent = match &copy.blocks {
            None => {
                self.job.count_sent(bytes.len() as u64);
                copy.stream.send(self.buffers.message(bytes)).await
            }
            Some(blocks) => {
                let mut sent = Ok(());
                for block in blocks.seal(bytes) {
                    self.job.count_sent(block.len() as u64);
                    sent = copy.stream.send_whole(self.buffers.message(block)).await;
                    if sent.is_err() {
                        break;
                    }
                }
                sent
            }
        };
        sent.map_err(|e| self.session.copy_failure(self.job, copy.shape, &e))
    }

    /// Ends the main COPY, then sends the rows that go as text.
    pub async fn finish_copies(&mut self, unit: &mut Unit) -> Result<(), Failure> {
        if let Some(spread) = &mut self.spread {
            spread.finish(self.job).await?;
            unit.stored = spread.stored();
            return Ok(());
        }
        let Some(copy) = &self.copy else { return Ok(()) };
        let shape = copy.shape;
        if copy.format == WireFormat::Binary {
            self.out.extend_from_slice(copy_binary::TRAILER);
        }
        self.flush(shape).await?;
        self.enter(Stage::Answer);
        if let Some(copy) = self.copy.take() {
            unit.stored += self.session.finish_copy(self.job, shape, copy.stream).await?;
        }
        if !self.side.is_empty() {
            let mut copy = self.session.start_copy(self.job, shape, WireFormat::Text).await?;
            let side = Bytes::from(std::mem::take(&mut self.side));
            self.job.count_sent(side.len() as u64);
            let sent = copy.send(side).await;
            sent.map_err(|e| self.session.copy_failure(self.job, shape, &e))?;
            unit.stored += self.session.finish_copy(self.job, shape, copy).await?;
        }
        Ok(())
    }
}
