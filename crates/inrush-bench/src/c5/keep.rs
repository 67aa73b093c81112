use crate::c5::Record;
use crate::keep::{failed, pages, place};
use inrush_core::{Code, Error, Result};
use std::path::{Path, PathBuf};

/// Keeps a record as [`crate::keep()`] does.
///
/// # Errors
/// If it cannot be written.
pub fn keep(record: &Record, directory: &Path) -> Result<PathBuf> {
    let (here, path) = place(directory, &record.began, &record.host.name, &record.case.name)?;
    let json = serde_json::to_string_pretty(record)
        .map_err(|e| Error::new(Code::Internal, format!("a record is not JSON: {e}")))?;
    std::fs::write(&path, json + "\n").map_err(|e| failed("write", &path, &e))?;
    pages(&here)?;
    Ok(path)
}
