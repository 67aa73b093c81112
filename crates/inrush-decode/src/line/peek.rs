//! What a line says before it is decoded: for choosing a table and columns.

use super::cursor::{Cursor, Fault, IN_KEY, IN_MEASUREMENT, unescape};
use super::{invalid, name_of};
use crate::encoding;
use inrush_core::BadRecord;

/// The measurement of a line, unescaped; `line` is the bytes of its content (see [`lines`]), and only as much of
/// them as needed is looked at. For choosing a table before a line is decoded.
pub fn measurement<'a>(line: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<&'a [u8], BadRecord> {
    let mut cursor = Cursor::new(line, 0);
    let token = cursor.measurement().map_err(|fault| invalid(line, &fault, 0))?;
    if let Err(offset) = encoding::check_utf8(&line[token.range.clone()]) {
        return Err(encoding::invalid_at(line, token.range.start + offset));
    }
    if !token.escaped {
        return Ok(&line[token.range]);
    }
    scratch.clear();
    unescape(&line[token.range], IN_MEASUREMENT, scratch);
    Ok(scratch)
}

/// The value of a tag of a line, unescaped, as [`measurement`] gives the measurement; `None` if the line has no such tag.
pub fn tag<'a>(line: &'a [u8], name: &[u8], scratch: &'a mut Vec<u8>) -> Result<Option<&'a [u8]>, BadRecord> {
    let mut cursor = Cursor::new(line, 0);
    let fault = |fault: Fault| invalid(line, &fault, 0);
    cursor.measurement().map_err(fault)?;
    while cursor.pass(b',') {
        let key = cursor.key("expected a tag key", None).map_err(fault)?;
        let value = cursor.tag_value().map_err(fault)?;
        if name_of(line, &key, scratch) != name {
            continue;
        }
        if let Err(offset) = encoding::check_utf8(&line[value.range.clone()]) {
            return Err(encoding::invalid_at(line, value.range.start + offset));
        }
        if !value.escaped {
            return Ok(Some(&line[value.range]));
        }
        scratch.clear();
        unescape(&line[value.range], IN_KEY, scratch);
        return Ok(Some(scratch));
    }
    Ok(None)
}

/// The names of the tags and fields of a line, unescaped, as far as it can be read.
pub fn keys(line: &[u8]) -> Vec<Vec<u8>> {
    let (mut cursor, mut scratch, mut found) = (Cursor::new(line, 0), Vec::new(), Vec::new());
    let mut read = || -> Result<(), Fault> {
        cursor.measurement()?;
        while cursor.pass(b',') {
            let key = cursor.key("expected a tag key", None)?;
            found.push(name_of(line, &key, &mut scratch).to_vec());
            cursor.tag_value()?;
        }
        cursor.spaces();
        loop {
            let key = cursor.key("expected a field key", None)?;
            found.push(name_of(line, &key, &mut scratch).to_vec());
            cursor.value()?;
            if !cursor.pass(b',') {
                return Ok(());
            }
        }
    };
    // What is wrong with a line is said when it is decoded.
    let _ = read();
    found
}
