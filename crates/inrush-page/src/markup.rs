//! Text and tables as markup. What is written is both HTML and well-formed XML: a strict parser can judge it.

use serde::Serialize;
use std::fmt::{self, Write as _};

/// Text of anybody, made harmless: it stays text, in an element or in a quoted attribute.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a>(pub &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(c)?,
                // Neither HTML nor XML takes control characters, not even escaped: their pictures stand for
                // them.
                '\0'..='\u{1f}' => f.write_char(char::from_u32(0x2400 + u32::from(c)).unwrap_or(' '))?,
                '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => f.write_char('\u{fffd}')?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Whatever it prints, as [`Text`].
pub fn text(value: impl fmt::Display) -> String {
    Text(&value.to_string()).to_string()
}

/// JSON that can stand in a script element: nothing in it ends the element or opens a comment.
pub fn json_for_script(value: &impl Serialize) -> String {
    // A report has string keys and finite or null figures: all of it has a JSON form.
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out
}

/// How a column of a table stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column<'a> {
    /// Words.
    Words(&'a str),
    /// Figures, one below the other.
    Figures(&'a str),
}

/// A table. `caption` is for who does not see the heading above it; the cells are markup.
pub fn table(out: &mut String, caption: &str, columns: &[Column<'_>], rows: &[Vec<String>]) {
    let _ = write!(out, "<div class=\"scroll\"><table><caption>{}</caption>\n<thead><tr>", Text(caption));
    for column in columns {
        let _ = match column {
            Column::Words(head) => write!(out, "<th scope=\"col\">{}</th>", Text(head)),
            Column::Figures(head) => write!(out, "<th scope=\"col\" class=\"n\">{}</th>", Text(head)),
        };
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (cell, column) in row.iter().zip(columns) {
            let class = if matches!(column, Column::Figures(_)) { " class=\"n\"" } else { "" };
            let _ = write!(out, "<td{class}>{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use roxmltree::{Document, ParsingOptions};

    /// Markup as a strict parser sees it.
    pub(crate) fn parsed(markup: &str) -> Document<'_> {
        Document::parse_with_options(markup, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() })
            .unwrap_or_else(|e| panic!("{e} in {markup}"))
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(
            text("<script>alert('1\"')</script>&"),
            "&lt;script&gt;alert(&#39;1&quot;&#39;)&lt;/script&gt;&amp;"
        );
        assert_eq!(text("a\0b\u{1b}[31m\tc\u{85}\u{ffff}ä"), "a␀b␛[31m\tc\u{fffd}\u{fffd}ä");
    }

    #[test]
    fn json_does_not_leave_its_script() {
        let nasty = "</script><!--<script>&\u{2028}\u{7f}";
        let json = json_for_script(&nasty);
        assert!(!json.contains(['<', '>', '&', '\u{2028}', '\u{7f}']), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), nasty);
    }
}
