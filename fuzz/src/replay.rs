//! What was kept, run again without a fuzzer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Runs `check` over everything kept for a fuzz target: its corpus, and what once made it fail.
pub fn replay(target: &str, check: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut files = Vec::new();
    for kept in ["corpus", "regressions"] {
        // Not every target has failed yet.
        let Ok(dir) = std::fs::read_dir(fuzz.join(kept).join(target)) else { continue };
        files.extend(dir.map(|entry| entry.expect("a directory that can be read").path()));
    }
    assert!(!files.is_empty(), "nothing is kept for {target}");
    let failed: Vec<_> = files
        .iter()
        .filter(|file| {
            let input = std::fs::read(file).expect("a file that can be read");
            catch_unwind(AssertUnwindSafe(|| check(&input))).is_err()
        })
        .collect();
    assert!(failed.is_empty(), "{target} fails for {failed:?}");
}
