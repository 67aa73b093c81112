use crate::Case;
use inrush_core::{Code, Error, Result};
use inrush_testkit::fixtures;
use std::fs::File;
use std::path::Path;

/// The form of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Comma-separated, no header.
    Csv,
    /// Comma-separated, the first line names the columns.
    CsvHeader,
    /// COPY text.
    Text,
}

/// Every file has the same seed, so that runs on different days load the same bytes.
const SEED: u64 = 1;

/// Writes `rows` rows of a case to a file; its bytes. The same rows give the same file everywhere.
pub fn write_data(case: &Case, form: Form, rows: u64, path: &Path) -> Result<u64> {
    let form = match form {
        Form::Csv => fixtures::Form::Csv,
        Form::CsvHeader => fixtures::Form::CsvHeader,
        Form::Text => fixtures::Form::CopyText,
    };
    let writer = case.writer().map_err(|fact| Error::new(Code::Usage, fact))?;
    File::create(path)
        .and_then(|file| writer.write(form, rows, SEED, file))
        .map_err(|e| Error::new(Code::Output, format!("cannot write {}: {e}", path.display())))
}
