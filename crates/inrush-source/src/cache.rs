//! Reading without leaving the file in the machine's page cache.

use crate::{InputKind, InputSpec, platform};
use std::fs::File;

/// Bytes read before those behind are dropped: a call each for less would cost more than it gives.
const STEP: u64 = 8 << 20;

/// Drops the pages of a file from the page cache once they have been read. Pages that were there before go, too; those
/// that another process has changed and that are not on the disk yet stay.
#[derive(Debug)]
pub struct DropBehind {
    file: File,
    done: u64,
}

impl DropBehind {
    /// For a regular file; `None` for anything else, or if it cannot be opened.
    pub fn of(spec: &InputSpec) -> Option<DropBehind> {
        let InputKind::File(path) = &spec.kind else { return None };
        // Another handle: the cache is the file's.
        Some(DropBehind { file: File::open(path).ok()?, done: 0 })
    }

    /// The file has been read up to this byte.
    pub fn read_up_to(&mut self, byte: u64) {
        if byte >= self.done + STEP {
            platform::drop_cached(&self.file, self.done, byte - self.done);
            self.done = byte;
        }
    }

    /// Nothing of it is needed any more.
    pub fn finish(self) {
        platform::drop_cached(&self.file, 0, 0);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// Pages of the file in the page cache, as mincore(2) tells through /proc: counted by fincore where it is.
    fn cached(path: &std::path::Path) -> Option<u64> {
        let output =
            std::process::Command::new("fincore").args(["-b", "-n", "-o", "RES"]).arg(path).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    }

    #[test]
    fn what_was_read_is_dropped() {
        // Not in memory: a tmpfs has no page cache to drop from.
        let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; 20 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        let spec = InputSpec { name: "x".into(), kind: InputKind::File(file.path().to_owned()) };
        let mut behind = DropBehind::of(&spec).unwrap();
        let mut bytes = Vec::new();
        File::open(file.path()).unwrap().read_to_end(&mut bytes).unwrap();
        let Some(before) = cached(file.path()) else {
            eprintln!("SKIPPED: needs fincore (util-linux)");
            return;
        };
        assert_eq!(before, 20 << 20);
        behind.read_up_to(STEP - 1);
        assert_eq!(cached(file.path()), Some(20 << 20));
        behind.read_up_to(10 << 20);
        assert!(cached(file.path()).unwrap() <= 11 << 20);
        behind.finish();
        assert_eq!(cached(file.path()), Some(0));
    }
}
