//! What comes before the data: byte order mark, header.

use super::{Cutter, END_MARKER};
use crate::scan::{binary, plain};
use inrush_core::{Code, Error, Result};

/// Bytes a header is first looked for in; more are read if it is longer.
const HEADER_SAMPLE: usize = 64 << 10;

impl Cutter {
    pub(super) fn skip_byte_order_mark(&mut self) -> Result<()> {
        let head = self.input.peek(4)?;
        let utf16 = match head[..] {
            [0xef, 0xbb, 0xbf, ..] => {
                self.input.skip_to(3)?;
                return Ok(());
            }
            [0xff, 0xfe, 0, 0] => "UTF-32LE",
            [0, 0, 0xfe, 0xff] => "UTF-32BE",
            [0xff, 0xfe, ..] => "UTF-16LE",
            [0xfe, 0xff, ..] => "UTF-16BE",
            _ => return Ok(()),
        };
        let name = self.input.name();
        let name = if name.starts_with('<') { "FILE" } else { name };
        Err(Error::new(Code::Encoding, format!("the input is encoded in {utf16}, by its byte order mark"))
            .at(self.input.at(0))
            .hint(format!("Convert it on the way: iconv -f {utf16} -t UTF-8 {name} | inrush load - ...")))
    }

    pub(super) fn take_header(&mut self) -> Result<()> {
        let mut n = HEADER_SAMPLE;
        // A marker that ends the data is looked for however short records must be.
        let n_max = (self.max_record + 1).max(END_MARKER);
        let header = loop {
            let sample = self.input.peek(n.min(n_max))?;
            if let Some(end) = plain::first_border(&sample, self.borders) {
                break sample[..end].to_vec();
            }
            if sample.len() < n.min(n_max) {
                // Half a header would be blamed for columns it lacks.
                self.input.failure()?;
                break sample;
            }
            if n >= n_max {
                break sample;
            }
            n *= 4;
        };
        if header.is_empty() || plain::is_end_marker(self.borders, &header) {
            return Ok(());
        }
        if header.len() > self.max_record {
            return Err(Error::new(
                Code::RecordTooLong,
                format!("the header is longer than {} bytes, the limit for one record", self.max_record),
            )
            .at(self.input.at(self.input.position()))
            .hint("Check the quote: one that is never closed takes in the whole file."));
        }
        self.line += self.count_lines(&header);
        self.input.skip_to(self.input.position() + header.len() as u64)?;
        self.header = Some(header);
        Ok(())
    }

    pub(super) fn take_binary_header(&mut self) -> Result<()> {
        let head = self.input.peek(binary::FIXED_HEADER)?;
        if head.len() < binary::FIXED_HEADER {
            self.input.failure()?;
        }
        let len = binary::header_len(&head).map_err(|e| e.at(self.input.at(0)))?;
        if len > self.max_record.max(HEADER_SAMPLE) {
            return Err(Error::new(
                Code::Format,
                format!("the header takes {len} bytes, more than a record may"),
            )
            .at(self.input.at(15)));
        }
        let header = self.input.peek(len)?;
        if header.len() < len {
            self.input.failure()?;
            return Err(Error::new(Code::Format, "invalid COPY file header (wrong length)")
                .at(self.input.at(header.len() as u64)));
        }
        self.input.skip_to(len as u64)?;
        self.header = Some(header);
        Ok(())
    }
}
