use crate::Case;
use crate::case::Input;
use crate::data::{Form, write_data};
use inrush_core::{Code, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Parts of the file for a contender whose rung names no number of sessions.
pub const USUAL_SESSIONS: u32 = 2;

/// The files of one bench, in a directory that is removed at the end.
#[derive(Debug)]
pub struct Files {
    /// By the number of their rows.
    data: BTreeMap<u64, Data>,
    scratch: PathBuf,
    dir: TempDir,
}

/// One number of rows in every form that somebody reads.
#[derive(Debug)]
pub struct Data {
    pub csv: PathBuf,
    pub text: PathBuf,
    pub csv_bytes: u64,
    pub text_bytes: u64,
    /// INSERT statements, by the rows of each.
    statements: BTreeMap<u32, PathBuf>,
    /// Directories with `csv` and `text` cut into this many parts: csv.1, text.1 and so on.
    parts: BTreeMap<u32, PathBuf>,
}

impl Files {
    /// Writes what the contenders of a case need, under the system's directory for temporary files (`TMPDIR`).
    pub fn write(case: &Case) -> Result<Files> {
        let dir = tempfile::Builder::new().prefix("inrush-bench-").tempdir().map_err(|e| failed(&e))?;
        let mut wanted: BTreeMap<u64, (BTreeSet<u32>, BTreeSet<u32>)> = BTreeMap::new();
        // The file that the record tells about.
        wanted.entry(case.rows).or_default();
        for rung in case.each_rung() {
            for contender in case.contenders.iter().filter(|contender| rung.has(&contender.name)) {
                let (statements, sessions) = wanted.entry(case.rows_for(&rung, contender)).or_default();
                if let Input::Insert(rows) = contender.input {
                    statements.insert(rows);
                }
                sessions.extend(rung.each_sessions().iter().map(|n| n.unwrap_or(USUAL_SESSIONS)));
            }
        }
        let mut data = BTreeMap::new();
        for (rows, (statements, sessions)) in wanted {
            let here = dir.path().join(rows.to_string());
            data.insert(rows, Data::write(case, rows, &here, &statements, &sessions)?);
        }
        Ok(Files { data, scratch: dir.path().join("scratch"), dir })
    }

    /// The directory they are in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The files with this many rows.
    pub fn of_rows(&self, rows: u64) -> &Data {
        self.data.get(&rows).expect("written for every contender of the case")
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

impl Data {
    fn write(
        case: &Case,
        rows: u64,
        here: &Path,
        statements: &BTreeSet<u32>,
        sessions: &BTreeSet<u32>,
    ) -> Result<Data> {
        std::fs::create_dir(here).map_err(|e| failed(&e))?;
        let (csv, text) = (here.join("rows.csv"), here.join("rows.text"));
        let csv_bytes = write_data(case, Form::Csv, rows, &csv)?;
        let text_bytes = write_data(case, Form::Text, rows, &text)?;
        let mut data =
            Data { csv, text, csv_bytes, text_bytes, statements: BTreeMap::new(), parts: BTreeMap::new() };
        for &each in statements {
            let path = here.join(format!("insert-{each}.sql"));
            write_data(case, Form::Insert(each), rows, &path)?;
            data.statements.insert(each, path);
        }
        for &n in sessions {
            let directory = here.join(format!("parts-{n}"));
            std::fs::create_dir(&directory)
                .and_then(|()| cut(&data.csv, csv_bytes, n, &directory, "csv"))
                .and_then(|()| cut(&data.text, text_bytes, n, &directory, "text"))
                .map_err(|e| failed(&e))?;
            data.parts.insert(n, directory);
        }
        data.sync(here).map_err(|e| failed(&e))?;
        Ok(data)
    }

    /// On the disk before the first run: nobody pays for our writing.
    fn sync(&self, here: &Path) -> std::io::Result<()> {
        for directory in std::iter::once(here).chain(self.parts.values().map(PathBuf::as_path)) {
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                if entry.file_type()?.is_file() {
                    File::open(entry.path())?.sync_all()?;
                }
            }
        }
        Ok(())
    }

    /// Bytes that the MB/s of a form count.
    pub fn bytes(&self, input: Input) -> u64 {
        match input {
            Input::Csv => self.csv_bytes,
            Input::Text | Input::Insert(_) => self.text_bytes,
        }
    }

    /// The variables that tell a contender of them.
    pub fn environment(&self, input: Input, sessions: u32) -> Vec<(String, OsString)> {
        let mut variables = vec![
            ("CSV".to_owned(), self.csv.clone().into()),
            ("TEXT".to_owned(), self.text.clone().into()),
            ("SESSIONS".to_owned(), sessions.to_string().into()),
        ];
        if let Input::Insert(each) = input
            && let Some(path) = self.statements.get(&each)
        {
            variables.push(("SQL".to_owned(), path.clone().into()));
        }
        if let Some(directory) = self.parts.get(&sessions) {
            variables.push(("PARTS".to_owned(), directory.clone().into()));
            for n in 1..=sessions {
                variables.push((format!("CSV_{n}"), directory.join(format!("csv.{n}")).into()));
                variables.push((format!("TEXT_{n}"), directory.join(format!("text.{n}")).into()));
            }
        }
        variables
    }
}

fn failed(e: &std::io::Error) -> Error {
    Error::new(Code::Output, format!("cannot write the data: {e}"))
}

/// Cuts a file at line borders into `n` parts of about the same size, `NAME.1` to `NAME.n`. One part is the file
/// itself under another name.
fn cut(whole: &Path, bytes: u64, n: u32, directory: &Path, name: &str) -> std::io::Result<()> {
    let part = |i: u32| directory.join(format!("{name}.{i}"));
    if n == 1 {
        return std::fs::hard_link(whole, part(1));
    }
    let mut reader = BufReader::with_capacity(1 << 20, File::open(whole)?);
    let mut begin = 0;
    for i in 1..=n {
        let mut end = bytes;
        if i < n {
            // After the line that the border falls into.
            let border = (bytes * u64::from(i) / u64::from(n)).max(begin);
            let mut rest_of_line = Vec::new();
            reader.seek(SeekFrom::Start(border))?;
            reader.read_until(b'\n', &mut rest_of_line)?;
            end = border + rest_of_line.len() as u64;
        }
        reader.seek(SeekFrom::Start(begin))?;
        std::io::copy(&mut reader.by_ref().take(end - begin), &mut File::create(part(i))?)?;
        begin = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rung;

    #[test]
    fn parts_are_the_whole() {
        let mut case = Case::find("c2").unwrap();
        case.contenders.retain(|contender| contender.name == "psql-text");
        case.rungs = vec![Rung { sessions: vec![1, 2, 3, 8], ..Rung::unnamed() }];
        for rows in [0, 1, 2, 7, 1001] {
            case.set_rows(rows);
            let files = Files::write(&case).unwrap();
            let data = files.of_rows(rows);
            let read = |path: &OsString| std::fs::read(path).unwrap();
            for sessions in [1, 2, 3, 8] {
                let variables: BTreeMap<_, _> = data.environment(Input::Csv, sessions).into_iter().collect();
                for (whole, name) in [("CSV", "CSV_"), ("TEXT", "TEXT_")] {
                    let parts: Vec<_> =
                        (1..=sessions).map(|n| read(&variables[&format!("{name}{n}")])).collect();
                    assert!(parts.iter().all(|part| part.is_empty() || part.ends_with(b"\n")));
                    assert_eq!(parts.concat(), read(&variables[whole]));
                    if rows > 1000 {
                        let sizes = parts.iter().map(Vec::len);
                        assert!(sizes.clone().max().unwrap() < sizes.min().unwrap() + 100);
                    }
                }
            }
        }
    }

    #[test]
    fn every_contender_finds_its_files() {
        for name in Case::names() {
            let mut case = Case::find(name).unwrap();
            case.set_rows(50);
            let files = Files::write(&case).unwrap();
            for rung in case.each_rung() {
                for contender in case.contenders.iter().filter(|contender| rung.has(&contender.name)) {
                    let sessions = rung.each_sessions()[0].unwrap_or(USUAL_SESSIONS);
                    let variables =
                        files.of_rows(case.rows_for(&rung, contender)).environment(contender.input, sessions);
                    assert!(variables.iter().any(|(name, _)| name == "PARTS"));
                    let sql = variables.iter().any(|(name, _)| name == "SQL");
                    assert_eq!(sql, matches!(contender.input, Input::Insert(_)), "{}", contender.name);
                    for (name, value) in variables.iter().filter(|(name, _)| name != "SESSIONS") {
                        assert!(Path::new(value).exists(), "{name} of {}", contender.name);
                    }
                }
            }
        }
    }
}
