//! Files without their pages in memory.
//!
//! `posix_fadvise(DONTNEED)` takes clean pages of a file out of the page cache that nobody has mapped. It
//! needs no root, only somebody who may open the file, and takes nobody else's pages. `mincore()` tells what
//! is left: of files that belong to us or that we may write, for of others it tells that all is there
//! (mm/mincore.c, `can_do_mincore`).

use inrush_core::{Code, Error, Result};
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// All files of a relation, from that of its main fork: further segments (`.1`), visibility and free space
/// maps.
pub fn files_of(main: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for fork in ["", "_vm", "_fsm"] {
        let first = PathBuf::from(format!("{}{fork}", main.display()));
        let mut next = first.clone();
        let mut segment = 0;
        while next.is_file() {
            files.push(next);
            segment += 1;
            next = PathBuf::from(format!("{}.{segment}", first.display()));
        }
    }
    files
}

/// Takes files out of the page cache; the share of their pages that is still there.
///
/// # Errors
/// If one cannot be opened, or the kernel does not tell.
pub fn drop_caches(files: &[PathBuf]) -> Result<f64> {
    let (mut there, mut all) = (0, 0);
    for path in files {
        let one = || -> io::Result<(usize, usize)> {
            let file = File::open(path)?;
            // Pages that are not written yet would stay.
            file.sync_data()?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
            resident(&file)
        };
        let (here, of) = one().map_err(|e| {
            Error::new(Code::Local, format!("cannot take {} out of the page cache: {e}", path.display()))
        })?;
        there += here;
        all += of;
    }
    #[allow(clippy::cast_precision_loss)] // pages of a file
    Ok(if all == 0 { 0.0 } else { there as f64 / all as f64 })
}

/// Pages of a file that are in the page cache, and all of them.
fn resident(file: &File) -> io::Result<(usize, usize)> {
    let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    if bytes == 0 {
        return Ok((0, 0));
    }
    let mut pages = vec![0_u8; bytes.div_ceil(rustix::param::page_size())];
    // SAFETY: a new mapping at a place that the kernel chooses, of a file that is open; nothing is read or
    // written through it.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is `bytes` long, and the vector has a byte for each of its pages, which is what
    // mincore writes.
    let asked = unsafe { libc::mincore(at, bytes, pages.as_mut_ptr().cast()) };
    let asked = if asked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the mapping from above, as long as it is, which nobody else knows.
    let unmapped = unsafe { libc::munmap(at, bytes) };
    debug_assert_eq!(unmapped, 0);
    asked?;
    Ok((pages.iter().filter(|page| **page & 1 == 1).count(), pages.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_there_and_then_is_not() {
        // As the servers are: on a disk, for file systems in memory keep their pages.
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("1234");
        for name in ["1234", "1234.1", "1234_vm", "1234_init", "12345"] {
            std::fs::write(dir.path().join(name), vec![1; 1 << 20]).unwrap();
        }
        let files = files_of(&main);
        assert_eq!(files.len(), 3, "{files:?}");
        let file = File::open(&main).unwrap();
        let (there, all) = resident(&file).unwrap();
        assert!(there == all && all > 0, "{there} of {all}");
        assert_eq!(drop_caches(&files).unwrap(), 0.0);
        assert_eq!(resident(&file).unwrap().0, 0);
    }
}
