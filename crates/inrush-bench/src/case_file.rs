//! Files that declare a case.

use inrush_core::{Code, Error, Result};

/// The text of a file.
///
/// # Errors
/// Code `source-open`, if it cannot be read.
pub fn read(name: &str) -> Result<String> {
    std::fs::read_to_string(name)
        .map_err(|e| Error::new(Code::SourceOpen, format!("cannot read {name}: {e}")))
}

/// The text of a file that ends in `.toml` and has this key at its top, which tells one kind of case from the others;
/// `None` of another file. What is wrong with a file is said by whoever reads all of it.
///
/// # Errors
/// As of [`read`].
pub fn read_with(name: &str, key: &str) -> Result<Option<String>> {
    if !name.ends_with(".toml") {
        return Ok(None);
    }
    let text = read(name)?;
    let is_of_kind = toml::from_str::<toml::Table>(&text).is_ok_and(|table| table.contains_key(key));
    Ok(is_of_kind.then_some(text))
}
