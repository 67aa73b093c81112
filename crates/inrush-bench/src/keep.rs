use crate::Record;
use crate::{c3, c4, c5, render};
use inrush_core::{Code, Error, Result};
use std::path::{Path, PathBuf};

/// Keeps a record: `CASE.json` in `DIRECTORY/DATE-HOST`, and the pages there made anew ([`pages`]). A record that is
/// there already is not touched: the next one is `CASE-2.json`.
pub fn keep(record: &Record, directory: &Path) -> Result<PathBuf> {
    let (here, path) = place(directory, &record.began, &record.host.name, &record.case.name)?;
    let json = serde_json::to_string_pretty(record)
        .map_err(|e| Error::new(Code::Internal, format!("a record is not JSON: {e}")))?;
    std::fs::write(&path, json + "\n").map_err(|e| failed("write", &path, &e))?;
    pages(&here)?;
    Ok(path)
}

/// The directory of a record, made if it is missing, and a file that is not there yet.
pub fn place(directory: &Path, began: &str, host: &str, case: &str) -> Result<(PathBuf, PathBuf)> {
    let date = began.split(' ').next().unwrap_or_default();
    let here = directory.join(format!("{date}-{host}"));
    std::fs::create_dir_all(&here).map_err(|e| failed("write", &here, &e))?;
    let mut path = here.join(format!("{case}.json"));
    let mut n = 1;
    while path.exists() {
        n += 1;
        path = here.join(format!("{case}-{n}.json"));
    }
    Ok((here, path))
}

/// Makes the README of a directory of records and a page beside each, `CASE.html`, from the records alone.
pub fn pages(here: &Path) -> Result<()> {
    let mut names: Vec<PathBuf> = std::fs::read_dir(here)
        .map_err(|e| failed("read", here, &e))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    names.sort();
    let (mut records, mut others) = (Vec::new(), String::new());
    for path in names {
        let text = std::fs::read(&path).map_err(|e| failed("read", &path, &e))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match kind(&text).as_str() {
            c3::KIND => {
                let record = serde_json::from_slice(&text).map_err(|e| failed("read", &path, &e))?;
                others += &c3::section(&name, &record);
                continue;
            }
            c4::KIND => {
                let record = serde_json::from_slice(&text).map_err(|e| failed("read", &path, &e))?;
                others += &c4::section(&name, &record);
                continue;
            }
            c5::KIND => {
                let record = serde_json::from_slice(&text).map_err(|e| failed("read", &path, &e))?;
                others += &c5::section(&name, &record);
                continue;
            }
            _ => {}
        }
        let record: Record = serde_json::from_slice(&text).map_err(|e| failed("read", &path, &e))?;
        let page = path.with_extension("html");
        std::fs::write(&page, render::html(&record)).map_err(|e| failed("write", &page, &e))?;
        records.push((name, record));
    }
    let readme = here.join("README.md");
    std::fs::write(&readme, render::readme(&records) + &others).map_err(|e| failed("write", &readme, &e))
}

/// What a record says it is: those of cases C3, C4 and C5 have forms of their own.
fn kind(json: &[u8]) -> String {
    #[derive(Default, serde::Deserialize)]
    struct Kind {
        #[serde(default)]
        kind: String,
    }
    serde_json::from_slice::<Kind>(json).unwrap_or_default().kind
}

pub fn failed(what: &str, path: &Path, e: &dyn std::fmt::Display) -> Error {
    Error::new(Code::Output, format!("cannot {what} {}: {e}", path.display()))
}
