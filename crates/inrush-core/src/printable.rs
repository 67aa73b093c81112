//! Text of others on a terminal.

/// Text in one line, with what a terminal would obey (control characters, C1 too) written out as escapes.
///
/// Names, values and messages of a server are somebody else's: a table may be called `ESC [ 2 J`.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(printable("\"a\u{1b}[31m\nb\u{9b}ö\""), r#""a\u{1b}[31m\nb\u{9b}ö""#);
    }
}
