use crate::Case;
use crate::server::TABLE;
use inrush_core::{Code, Error, Result};
use inrush_testkit::fixtures;
use std::fs::File;
use std::io::{BufWriter, Write};
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
    /// INSERT statements into the table of the bench, this many rows each.
    Insert(u32),
}

/// Every file has the same seed, so that runs on different days load the same bytes.
const SEED: u64 = 1;

/// Writes `rows` rows of a case to a file; its bytes. The same rows give the same file everywhere.
pub fn write_data(case: &Case, form: Form, rows: u64, path: &Path) -> Result<u64> {
    let writer = case.writer().map_err(|fact| Error::new(Code::Usage, fact))?;
    let plain = |form| File::create(path).and_then(|file| writer.write(form, rows, SEED, file));
    match form {
        Form::Csv => plain(fixtures::Form::Csv),
        Form::CsvHeader => plain(fixtures::Form::CsvHeader),
        Form::Text => plain(fixtures::Form::CopyText),
        Form::Insert(each) => File::create(path).and_then(|file| {
            let mut statements = Statements::new(file, each);
            writer.write(fixtures::Form::Csv, rows, SEED, &mut statements)?;
            statements.end()
        }),
    }
    .map_err(|e| Error::new(Code::Output, format!("cannot write {}: {e}", path.display())))
}

/// Turns lines of CSV without quotes, as the writers make them, into INSERT statements.
struct Statements<W: Write> {
    out: BufWriter<W>,
    /// Rows of a statement.
    each: u32,
    /// Rows in the statement that is being written.
    rows: u32,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    written: u64,
}

impl<W: Write> Statements<W> {
    fn new(out: W, each: u32) -> Statements<W> {
        let out = BufWriter::with_capacity(1 << 20, out);
        Statements { out, each, rows: 0, line: Vec::new(), written: 0 }
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn row(&mut self) -> std::io::Result<()> {
        let line = std::mem::take(&mut self.line);
        if self.rows == 0 {
            self.put(format!("INSERT INTO {TABLE} VALUES (").as_bytes())?;
        } else {
            self.put(b",(")?;
        }
        for (i, field) in line.split(|&byte| byte == b',').enumerate() {
            if i > 0 {
                self.put(b",")?;
            }
            if field.iter().all(u8::is_ascii_digit) {
                self.put(field)?;
            } else {
                // The writers make no quotes and no backslashes.
                self.put(b"'")?;
                self.put(field)?;
                self.put(b"'")?;
            }
        }
        self.put(b")")?;
        self.rows += 1;
        if self.rows == self.each {
            self.close()?;
        }
        self.line = line;
        self.line.clear();
        Ok(())
    }

    fn close(&mut self) -> std::io::Result<()> {
        self.rows = 0;
        self.put(b";\n")
    }

    /// Ends the last statement; the bytes of all.
    fn end(mut self) -> std::io::Result<u64> {
        if self.rows > 0 {
            self.close()?;
        }
        self.out.flush()?;
        Ok(self.written)
    }
}

impl<W: Write> Write for Statements<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            if let Some(rest) = part.strip_suffix(b"\n") {
                self.line.extend_from_slice(rest);
                self.row()?;
            } else {
                self.line.extend_from_slice(part);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_their_rows() {
        let mut statements = Statements::new(Vec::new(), 2);
        // Lines come in any pieces.
        for piece in ["1,a", "b\n2,cd\n3", ",ef\n"] {
            statements.write_all(piece.as_bytes()).unwrap();
        }
        let out = {
            statements.close().unwrap();
            statements.out.into_inner().unwrap()
        };
        let expected =
            format!("INSERT INTO {TABLE} VALUES (1,'ab'),(2,'cd');\nINSERT INTO {TABLE} VALUES (3,'ef');\n");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_file_of_statements_ends_its_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.sql");
        for (rows, statements) in [(0, 0), (1, 1), (100, 1), (101, 2)] {
            let bytes = write_data(&Case::find("c2").unwrap(), Form::Insert(100), rows, &path).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.len() as u64, bytes);
            assert_eq!(text.matches(");\n").count(), statements);
            assert_eq!(text.matches("'info").count() as u64, rows);
        }
    }
}
