use crate::identity::open_error;
use crate::input::read_at;
use crate::{Identity, Input};
use inrush_core::{Code, Error, Result};
use std::fs::File;
use std::path::Path;

/// A plain file opened a second time, to read the bytes of a commit unit again. May be used by any lane: it
/// reads by position.
#[derive(Debug)]
pub struct Reread {
    file: File,
    name: String,
    identity: Identity,
}

impl Reread {
    /// Opens the file behind `input` again; `None` if the input is a stream or compressed.
    pub fn of(input: &Input) -> Result<Option<Reread>> {
        if !input.is_seekable() {
            return Ok(None);
        }
        let identity = input.identity().clone();
        let name = input.name().to_owned();
        let file = File::open(Path::new(&identity.path)).map_err(|e| open_error(&name, &e))?;
        Ok(Some(Reread { file, name, identity }))
    }

    /// Reads some bytes at an offset, none at the end of the file. For decoders that find their own way; they
    /// ask [`Reread::unchanged`] whether what they made of it holds.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        read_at(&self.name, &self.file, buf, offset)
    }

    /// Length of the file when the input was opened.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.identity.size.unwrap_or_default()
    }

    /// Fails with [`Code::SourceChanged`] if size or modification time are no longer those the input was
    /// opened with.
    pub fn unchanged(&self) -> Result<()> {
        // By path: a file replaced by renaming another one over it is a change too, although the open one
        // still reads well.
        let metadata =
            std::fs::metadata(Path::new(&self.identity.path)).map_err(|e| open_error(&self.name, &e))?;
        self.identity.same_metadata(&metadata)
    }

    /// Reads the bytes from `start` to `end` into `buf`, replacing what is in it.
    ///
    /// Fails with [`Code::SourceChanged`] if size or modification time are no longer those the input was
    /// opened with; looked at after reading, so that a change while reading is seen too.
    pub fn read_range(&self, start: u64, end: u64, buf: &mut Vec<u8>) -> Result<()> {
        let len = usize::try_from(end.saturating_sub(start))
            .map_err(|_| Error::new(Code::Internal, "a range to read again does not fit into memory"))?;
        buf.resize(len, 0);
        let mut filled = 0;
        while filled < len {
            match read_at(&self.name, &self.file, &mut buf[filled..], start + filled as u64)? {
                0 => break,
                n => filled += n,
            }
        }
        self.unchanged()?;
        if filled < len {
            return Err(Error::new(
                Code::SourceChanged,
                format!(
                    "the file ends at byte {} inside a range that was read before",
                    start + filled as u64
                ),
            ));
        }
        Ok(())
    }
}
