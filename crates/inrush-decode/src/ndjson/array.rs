//! JSON arrays as PostgreSQL array literals (arrayfuncs.c, array_in).

use super::json::{Cursor, Kind, NoText, unescape};

/// Dimensions an array may have (MAXDIM, array.h).
const MAX_DIMENSIONS: usize = 6;

/// Why an array has no literal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoArray {
    TooManyDimensions,
    Text(NoText),
}

/// Appends `{...}` for a well-formed JSON array. Strings are always quoted, so that none of them is read as
/// NULL or as a brace; numbers and booleans stand as they are. Nested arrays become dimensions, or, with
/// `raw_elements` (the elements are json themselves), elements like all others.
pub(super) fn literal(array: &[u8], raw_elements: bool, out: &mut Vec<u8>) -> Result<(), NoArray> {
    dimension(array, raw_elements, 1, out)
}

fn dimension(array: &[u8], raw_elements: bool, depth: usize, out: &mut Vec<u8>) -> Result<(), NoArray> {
    if depth > MAX_DIMENSIONS {
        return Err(NoArray::TooManyDimensions);
    }
    out.push(b'{');
    let mut cursor = Cursor::new(array, 1);
    let mut first = true;
    loop {
        cursor.skip_space();
        // The array was checked when it was read: what is left is an element or the closing bracket.
        let Ok((kind, range)) = cursor.value() else { break };
        if !first {
            out.push(b',');
        }
        first = false;
        let raw = &array[range.clone()];
        match kind {
            Kind::Null => out.extend_from_slice(b"NULL"),
            _ if raw_elements => quoted(raw, out),
            Kind::Array => dimension(raw, raw_elements, depth + 1, out)?,
            Kind::String { escaped: false } => quoted(&array[range.start + 1..range.end - 1], out),
            Kind::String { escaped: true } => {
                let mut text = Vec::with_capacity(raw.len());
                unescape(&array[range.start + 1..range.end - 1], &mut text).map_err(NoArray::Text)?;
                quoted(&text, out);
            }
            Kind::Object => quoted(raw, out),
            Kind::Number | Kind::Bool => out.extend_from_slice(raw),
        }
        cursor.skip_space();
        if cursor.peek() == Some(b',') {
            cursor.at += 1;
        }
    }
    out.push(b'}');
    Ok(())
}

fn quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(array: &str, raw_elements: bool) -> Result<String, NoArray> {
        let mut out = Vec::new();
        literal(array.as_bytes(), raw_elements, &mut out).map(|()| String::from_utf8(out).expect("UTF-8"))
    }

    #[test]
    fn elements_keep_their_meaning() {
        assert_eq!(of("[]", false).as_deref(), Ok("{}"));
        assert_eq!(of("[ 1, -2.5e3 ,true,null ]", false).as_deref(), Ok("{1,-2.5e3,true,NULL}"));
        assert_eq!(of(r#"["a","NULL","","x,{y}"]"#, false).as_deref(), Ok(r#"{"a","NULL","","x,{y}"}"#));
        assert_eq!(of(r#"["q\"b\\s","\u00e4"]"#, false).as_deref(), Ok(r#"{"q\"b\\s","ä"}"#));
        assert_eq!(of("[[1,2],[3,null]]", false).as_deref(), Ok("{{1,2},{3,NULL}}"));
        assert_eq!(of(r#"[{"a":"b"}]"#, false).as_deref(), Ok(r#"{"{\"a\":\"b\"}"}"#));
    }

    #[test]
    fn json_elements_stay_json() {
        assert_eq!(of(r#"[1,"a",[2],{},null]"#, true).as_deref(), Ok(r#"{"1","\"a\"","[2]","{}",NULL}"#));
    }

    #[test]
    fn what_no_array_can_hold_is_refused() {
        assert_eq!(of("[[[[[[[1]]]]]]]", false), Err(NoArray::TooManyDimensions));
        assert!(of("[[[[[[1]]]]]]", false).is_ok());
        assert_eq!(of(r#"["\u0000"]"#, false), Err(NoArray::Text(NoText::Nul)));
    }
}
