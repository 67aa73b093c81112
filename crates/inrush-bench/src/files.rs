use crate::Case;
use crate::data::{Form, write_data};
use inrush_core::{Code, Error, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The files of one bench, in a directory that is removed at the end.
#[derive(Debug)]
pub struct Files {
    pub csv: PathBuf,
    pub text: PathBuf,
    /// `text`, cut in two at a line border.
    pub halves: [PathBuf; 2],
    pub csv_bytes: u64,
    pub text_bytes: u64,
    scratch: PathBuf,
    dir: TempDir,
}

impl Files {
    /// Writes them under the system's directory for temporary files (`TMPDIR`).
    pub fn write(case: &Case, rows: u64) -> Result<Files> {
        let failed = |e: std::io::Error| Error::new(Code::Output, format!("cannot write the data: {e}"));
        let dir = tempfile::Builder::new().prefix("inrush-bench-").tempdir().map_err(failed)?;
        let at = |name: &str| dir.path().join(name);
        let (csv, text, halves) = (at("rows.csv"), at("rows.text"), [at("half.1"), at("half.2")]);
        let csv_bytes = write_data(case, Form::Csv, rows, &csv)?;
        let text_bytes = write_data(case, Form::Text, rows, &text)?;
        halve(&text, text_bytes, &halves).map_err(failed)?;
        let scratch = at("scratch");
        let files = Files { csv, text, halves, csv_bytes, text_bytes, scratch, dir };
        // On the disk before the first run: nobody pays for our writing.
        for path in [&files.csv, &files.text, &files.halves[0], &files.halves[1]] {
            File::open(path).and_then(|file| file.sync_all()).map_err(failed)?;
        }
        Ok(files)
    }

    /// The directory they are in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// An empty directory beside the files.
    pub fn empty_scratch(&self) -> Result<&Path> {
        match std::fs::remove_dir_all(&self.scratch) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => std::fs::create_dir(&self.scratch),
        }
        .map_err(|e| Error::new(Code::Output, format!("cannot empty {}: {e}", self.scratch.display())))?;
        Ok(&self.scratch)
    }
}

fn halve(text: &Path, bytes: u64, halves: &[PathBuf; 2]) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(text)?);
    reader.seek(std::io::SeekFrom::Start(bytes / 2))?;
    let mut rest_of_line = Vec::new();
    reader.read_until(b'\n', &mut rest_of_line)?;
    let border = bytes / 2 + rest_of_line.len() as u64;
    reader.rewind()?;
    let mut first = File::create(&halves[0])?;
    std::io::copy(&mut reader.by_ref().take(border), &mut first)?;
    first.flush()?;
    std::io::copy(&mut reader, &mut File::create(&halves[1])?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_the_whole() {
        let case = Case::find("c2").unwrap();
        for rows in [0, 1, 2, 1001] {
            let files = Files::write(&case, rows).unwrap();
            let read = |path: &Path| std::fs::read(path).unwrap();
            let [first, second] = [read(&files.halves[0]), read(&files.halves[1])];
            assert!(first.is_empty() || first.ends_with(b"\n"));
            assert_eq!([first, second].concat(), read(&files.text));
        }
    }
}
