//! The rejects files: the records as they stand in the input, to repair and load again, and JSON lines that
//! say why.

use crate::plan::Plan;
use inrush_core::{Code, Error, Format, Reject, RejectOrigin, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes rejected records to `FILE` and their reasons to `FILE.jsonl`.
///
/// Records keep the format of their input: the file can be repaired and given to the same command. Where
/// inputs differ in header or format, each kind gets a file of its own: `FILE`, `FILE.2`, ...
pub(crate) struct RejectWriter<'a> {
    plan: &'a Plan,
    path: PathBuf,
    reasons: BufWriter<File>,
    files: Vec<(Vec<u8>, &'static str, BufWriter<File>)>,
}

impl<'a> RejectWriter<'a> {
    /// Creates `path.jsonl`; `path` itself comes with the first reject.
    pub fn create(plan: &'a Plan, path: &Path) -> Result<RejectWriter<'a>> {
        let mut reasons = path.as_os_str().to_owned();
        reasons.push(".jsonl");
        let reasons = create(Path::new(&reasons))?;
        let mut writer =
            RejectWriter { plan, path: path.to_owned(), reasons: BufWriter::new(reasons), files: Vec::new() };
        // The file is there even if nothing was refused: an old one must not be taken for this load's.
        writer.file_for(0)?;
        Ok(writer)
    }

    /// Writes one reject.
    pub fn write(&mut self, reject: &Reject) -> Result<()> {
        let line_end = self.line_end(reject.input);
        let i = self.file_for(reject.input)?;
        let failed = output_error(&self.path);
        let file = &mut self.files[i].2;
        file.write_all(&reject.raw).map_err(&failed)?;
        if let Some(line_end) = line_end
            && !reject.raw.ends_with(&line_end[line_end.len() - 1..])
        {
            file.write_all(line_end).map_err(&failed)?;
        }
        writeln!(self.reasons, "{}", reject_json(reject)).map_err(failed)
    }

    /// Writes everything out to disk.
    pub fn finish(mut self) -> Result<()> {
        let failed = output_error(&self.path);
        // A binary file ends with its trailer.
        for (_, format, file) in &mut self.files {
            if *format == "binary" {
                file.write_all(&[0xff, 0xff]).map_err(&failed)?;
            }
            file.flush().map_err(&failed)?;
            file.get_ref().sync_all().map_err(&failed)?;
        }
        self.reasons.flush().map_err(&failed)?;
        self.reasons.get_ref().sync_all().map_err(failed)
    }

    fn line_end(&self, input: u32) -> Option<&'static [u8]> {
        let eol = match &self.plan.inputs[input as usize].format {
            Format::Csv(d) => d.eol,
            Format::Text(d) => d.eol,
            // Rows of columnar inputs are kept as NDJSON.
            Format::Ndjson | Format::Parquet | Format::Arrow => inrush_core::Eol::Lf,
            _ => return None,
        };
        Some(match eol {
            inrush_core::Eol::Lf => b"\n",
            inrush_core::Eol::CrLf => b"\r\n",
            inrush_core::Eol::Cr => b"\r",
        })
    }

    /// The file for records of this input: shared by inputs with the same header and format.
    fn file_for(&mut self, input: u32) -> Result<usize> {
        let plan = &self.plan.inputs[input as usize];
        let header = plan.header_bytes().to_vec();
        let format = plan.format.name();
        if let Some(i) = self.files.iter().position(|(h, f, _)| *h == header && *f == format) {
            return Ok(i);
        }
        let mut path = self.path.as_os_str().to_owned();
        if !self.files.is_empty() {
            path.push(format!(".{}", self.files.len() + 1));
        }
        let mut file = BufWriter::new(create(Path::new(&path))?);
        file.write_all(&header).map_err(output_error(&self.path))?;
        self.files.push((header, format, file));
        Ok(self.files.len() - 1)
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(output_error(path))
}

fn output_error(path: &Path) -> impl Fn(std::io::Error) -> Error {
    let path = path.display().to_string();
    move |error| Error::new(Code::Output, format!("cannot write {path}: {error}"))
}
/// A reject as one JSON object: a line of `FILE.jsonl`. `raw` is text, or `{"hex": ...}` where it is not UTF-8.
pub fn reject_json(reject: &Reject) -> Value {
    let raw = match std::str::from_utf8(&reject.raw) {
        Ok(text) => json!(text),
        Err(_) => json!({ "hex": reject.raw.iter().map(|b| format!("{b:02x}")).collect::<String>() }),
    };
    json!({
        "source": reject.position.source,
        "record": reject.position.record,
        "line": reject.position.line,
        "byte": reject.position.byte,
        "column": reject.position.column,
        "sqlstate": reject.sqlstate,
        "reason": reject.reason,
        "from": match reject.origin { RejectOrigin::Client => "client", RejectOrigin::Server => "server" },
        "length": reject.full_len,
        "raw": raw,
    })
}
