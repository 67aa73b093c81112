//! Files without their pages in memory.
//!
//! `posix_fadvise(DONTNEED)` takes clean pages of a file out of the page cache that nobody has mapped. It
//! needs no root, only somebody who may open the file, and takes nobody else's pages. `mincore()` tells what
//! is left: of files that belong to us or that we may write, for of others it tells that all is there
//! (mm/mincore.c, `can_do_mincore`).

use inrush_core::{Code, Error, Result};
use inrush_tune::files;
use std::io;
use std::path::PathBuf;

/// Takes files out of the page cache; the share of their pages that is still there.
///
/// # Errors
/// If one cannot be opened, or the kernel does not tell.
pub fn drop_caches(paths: &[PathBuf]) -> Result<f64> {
    let (mut there, mut all) = (0, 0);
    for path in paths {
        let one = || {
            files::forget(path)?;
            files::resident(path)
        };
        let (here, of) = one().map_err(|e: io::Error| {
            Error::new(Code::Local, format!("cannot take {} out of the page cache: {e}", path.display()))
        })?;
        there += here;
        all += of;
    }
    #[allow(clippy::cast_precision_loss)] // pages of a file
    Ok(if all == 0 { 0.0 } else { there as f64 / all as f64 })
}
