//! Some rows of a piece, in savepoints of the nodes that they go to.

use crate::careful::Piece;
use crate::feed::Sent;
use crate::lane::Lane;
use crate::unit::Unit;
use inrush_cluster::{CarefulPart, Refused};
use inrush_sink::copy::WireFormat;
use inrush_sink::failure::Failure;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

impl Lane<'_> {
    /// [`Lane::try_rows`] where the rows go to several nodes.
    pub(crate) async fn try_rows_spread(
        &mut self,
        unit: &mut Unit,
        piece: &mut dyn Piece,
        rows: Range<usize>,
        immediate: bool,
    ) -> Result<Result<(), Refused>, Failure> {
        let job = self.job;
        let Some(spread) = &mut self.spread else { return Ok(Ok(())) };
        let input = &job.plan.inputs[piece.input() as usize];
        let (mut main, mut text) = (CarefulPart::default(), CarefulPart::default());
        let (mut main_rows, mut text_rows) = (Vec::new(), Vec::new());
        let start = rows.start;
        // The extension only takes what goes well: why a row is refused is COPY's to say.
        let as_text = job.plan.wire(input) == WireFormat::Direct;
        let format = if as_text { WireFormat::Text } else { job.plan.wire(input) };
        piece.encode(rows.clone(), as_text, &mut main.bytes, &mut text.bytes, &mut |row, how| match how {
            Sent::Main => main_rows.push(row - start),
            Sent::Side => text_rows.push(row - start),
        })?;
        (main.rows, text.rows) = (main_rows, text_rows);
        match spread.try_rows(job, input.shape, format, &main, &text, immediate).await? {
            Ok(_) => {
                unit.sent += rows.len() as u64;
                unit.side_rows += text.rows.len() as u64;
                Ok(Ok(()))
            }
            Err(refused) => {
                let dead = refused.row.unwrap_or(rows.len()) as u64;
                job.progress.dead_rows.fetch_add(dead, Relaxed);
                Ok(Err(refused))
            }
        }
    }
}
