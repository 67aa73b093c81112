use crate::platform;
use inrush_core::{Code, Error, Position, Result};
use serde::{Deserialize, Serialize};
use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of the head and of the tail that are hashed.
const SAMPLE: usize = 64 << 10;

/// What makes an input the same input in another run: the ledger keeps it, and a load that is resumed
/// compares it. The bytes are those on disk, before any decompression.
///
/// Hashes are XXH3-128 in hexadecimal: fast and stable over versions and machines, not proof against someone
/// who wants to be mistaken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Absolute path; for a stream the name that messages give it, `<stdin>` for standard input.
    pub path: String,
    /// Size in bytes; `None` for a stream.
    pub size: Option<u64>,
    /// Time of the last change in nanoseconds since 1970; `None` for a stream or where the file system has
    /// none.
    pub mtime_ns: Option<i64>,
    /// Hash of the first 64 KiB.
    pub head_hash: String,
    /// Hash of the last 64 KiB; `None` for a stream.
    pub tail_hash: Option<String>,
}

impl Identity {
    /// The identity of the file at `path` as it is now.
    pub fn of(path: &Path) -> Result<Identity> {
        let file = File::open(path).map_err(|e| open_error(&path.display().to_string(), &e))?;
        let metadata = file.metadata().map_err(|e| open_error(&path.display().to_string(), &e))?;
        Identity::of_file(&file, &metadata, path)
    }

    pub(crate) fn of_file(file: &File, metadata: &Metadata, path: &Path) -> Result<Identity> {
        let name = path.display().to_string();
        let absolute = std::path::absolute(path).map_err(|e| open_error(&name, &e))?;
        let size = metadata.len();
        let sample = |offset: u64| {
            hash_at(file, offset).map_err(|e| {
                Error::new(Code::SourceRead, format!("could not read: {e}")).at(Position::source(&name))
            })
        };
        Ok(Identity {
            path: absolute.display().to_string(),
            size: Some(size),
            mtime_ns: mtime_ns(metadata),
            head_hash: sample(0)?,
            tail_hash: Some(sample(size.saturating_sub(SAMPLE as u64))?),
        })
    }

    pub(crate) fn of_stream(path: &str, head: &[u8]) -> Identity {
        let head = &head[..head.len().min(SAMPLE)];
        Identity { path: path.to_owned(), size: None, mtime_ns: None, head_hash: hex(head), tail_hash: None }
    }

    /// Bytes at the beginning of an input that its identity depends on.
    pub(crate) const HEAD: usize = SAMPLE;

    /// Fails with [`Code::SourceChanged`] if the file at this path is no longer this one. Streams cannot be
    /// looked at again and pass.
    pub fn unchanged(&self) -> Result<()> {
        if self.size.is_none() {
            return Ok(());
        }
        self.same_as(&Identity::of(Path::new(&self.path))?)
    }

    /// Fails with [`Code::SourceChanged`], naming what differs, if `now` is not this identity. Paths are not
    /// compared.
    pub fn same_as(&self, now: &Identity) -> Result<()> {
        let differs = if self.size != now.size {
            match (self.size, now.size) {
                (Some(then), Some(now)) => format!("its size was {then} bytes and is {now}"),
                _ => "it was a file and is a stream, or the other way round".to_owned(),
            }
        } else if self.head_hash != now.head_hash {
            "its first 64 KiB are different".to_owned()
        } else if self.tail_hash != now.tail_hash {
            "its last 64 KiB are different".to_owned()
        } else if self.mtime_ns != now.mtime_ns {
            "its modification time is different".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::new(Code::SourceChanged, format!("the input has changed: {differs}"))
            .at(Position::source(&self.path))
            .hint("Load files that are not written to any more; a changed file is a new load."))
    }

    /// As [`Identity::unchanged`], by size and time alone: cheap enough for every range that is read again.
    pub(crate) fn same_metadata(&self, metadata: &Metadata) -> Result<()> {
        let now = Identity { size: Some(metadata.len()), mtime_ns: mtime_ns(metadata), ..self.clone() };
        self.same_as(&now)
    }
}

pub(crate) fn open_error(name: &str, error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => Some("The file is there; its permissions keep this user out."),
        _ => None,
    };
    let fact = format!("could not open: {}", lowercase_io(error));
    let error = Error::new(Code::SourceOpen, fact).at(Position::source(name));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The operating system's words without the `(os error 2)` and without a capital.
pub(crate) fn lowercase_io(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map(|c| c.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

fn mtime_ns(metadata: &Metadata) -> Option<i64> {
    let modified = metadata.modified().ok()?;
    match modified.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).ok(),
        Err(before) => i64::try_from(before.duration().as_nanos()).ok().map(|ns| -ns),
    }
}

fn hash_at(file: &File, offset: u64) -> io::Result<String> {
    let mut sample = vec![0; SAMPLE];
    let mut filled = 0;
    while filled < SAMPLE {
        match platform::read_at(file, &mut sample[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(hex(&sample[..filled]))
}

fn hex(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_every_kind_of_change() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("a.csv");
        let write = |text: &str| std::fs::write(&path, text);
        write("one,two\n")?;
        let identity = Identity::of(&path)?;
        identity.unchanged()?;
        let stored: Identity = serde_json::from_str(&serde_json::to_string(&identity)?)?;
        assert_eq!(stored, identity);

        write("one,twp\n")?;
        let error = identity.unchanged().expect_err("another content");
        assert_eq!(error.code(), Code::SourceChanged);
        assert!(error.fact().contains("first 64 KiB"), "{error}");
        write("one,two\n\n")?;
        assert!(identity.unchanged().expect_err("longer").fact().contains("8 bytes and is 9"));
        std::fs::remove_file(&path)?;
        assert_eq!(identity.unchanged().expect_err("gone").code(), Code::SourceOpen);
        Ok(())
    }
}
