//! Files that reports are written to, as JSON or as a page.

use crate::say;
use inrush_core::{Code, Error, Result};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// A file for a report. It is opened before the work begins: after an hour it is too late to say that it cannot be
/// written.
pub enum ReportFile<'a> {
    /// `-`
    Stdout,
    /// What it holds stays until there is something new.
    File(&'a Path, File),
}

impl<'a> ReportFile<'a> {
    /// Makes sure that it can be written.
    ///
    /// # Errors
    /// `output` if it cannot.
    pub fn open(path: &'a Path) -> Result<ReportFile<'a>> {
        if path == Path::new("-") {
            return Ok(ReportFile::Stdout);
        }
        match File::options().create(true).truncate(false).write(true).open(path) {
            Ok(file) => Ok(ReportFile::File(path, file)),
            Err(e) => Err(Error::new(Code::Output, format!("cannot write {}: {e}", path.display()))),
        }
    }

    /// Whether it is standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self, ReportFile::Stdout)
    }

    /// Writes a report: JSON, or the page where the name asks for one.
    ///
    /// # Errors
    /// `output` where it cannot be written.
    pub fn write(&mut self, report: &impl Serialize, page: impl FnOnce() -> String) -> Result<()> {
        match self {
            ReportFile::Stdout => say::json(report),
            ReportFile::File(path, file) => {
                let text = if is_page(path) { page() } else { say::json_text(report)? + "\n" };
                // A pipe or a device has no length to cut.
                let _ = file.set_len(0);
                file.write_all(text.as_bytes())
                    .map_err(|e| Error::new(Code::Output, format!("cannot write {}: {e}", path.display())))
            }
        }
    }
}

/// Whether a file of this name is to be a page.
fn is_page(path: &Path) -> bool {
    path.to_string_lossy().to_ascii_lowercase().ends_with(".html")
}
