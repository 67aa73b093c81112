//! Names of tables as a user writes them.

use inrush_core::{Code, Error, Excerpt, Result, quote_ident};
use std::fmt;

/// The name of a table, with its schema if one was given. Both as the catalog has them, not quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// Schema; without it the server looks along the search_path.
    pub schema: Option<String>,
    /// Table.
    pub name: String,
}

/// The name as SQL needs it.
impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{}.", quote_ident(schema))?;
        }
        f.write_str(&quote_ident(&self.name))
    }
}

impl TableName {
    /// Reads `table` or `schema.table` as SQL does: a part in double quotes stands as it is, with `""` for a quote;
    /// any other is folded to lower case, ASCII letters only (scansup.c, downcase_identifier, for UTF-8). Key words
    /// need no quotes. Errors have code `usage`.
    pub fn parse(text: &str) -> Result<TableName> {
        let bad = |fact: &str| {
            let shown = Excerpt(text.as_bytes());
            Error::new(Code::Usage, format!("table name \"{shown}\" {fact}"))
        };
        let mut parts = Vec::new();
        let mut rest = text.trim();
        loop {
            let (part, after) = if let Some(quoted) = rest.strip_prefix('"') {
                let (part, after) =
                    quoted_part(quoted).ok_or_else(|| bad("has a quote that does not end"))?;
                if part.is_empty() {
                    return Err(bad("has an empty part"));
                }
                (part, after)
            } else {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                let part = &rest[..end];
                if part.is_empty() && (rest.is_empty() || rest.starts_with('.')) {
                    return Err(bad("has an empty part"));
                }
                if part.is_empty() || part.starts_with(|c: char| c.is_ascii_digit() || c == '$') {
                    return Err(bad("is not a plain name").hint(quoting_hint(text)));
                }
                (part.to_ascii_lowercase(), &rest[end..])
            };
            if part.contains('\0') {
                return Err(bad("has a NUL character"));
            }
            parts.push(part);
            rest = after.trim_start();
            match rest.strip_prefix('.') {
                Some(next) => rest = next.trim_start(),
                None if rest.is_empty() => break,
                None => return Err(bad("is not a plain name").hint(quoting_hint(text))),
            }
        }
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(name), None, _) => Ok(TableName { schema: None, name }),
            (Some(schema), Some(name), None) => Ok(TableName { schema: Some(schema), name }),
            _ => Err(bad("has more than a schema and a table")
                .hint("Name the database in the connection string (--to); put a name with a dot into double quotes.")),
        }
    }
}

/// Characters of a name without quotes (scan.l, identifier).
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// The part up to the closing quote, and what follows.
fn quoted_part(text: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let quote = rest.find('"')?;
        part.push_str(&rest[..quote]);
        rest = &rest[quote + 1..];
        match rest.strip_prefix('"') {
            Some(next) => {
                part.push('"');
                rest = next;
            }
            None => return Some((part, rest)),
        }
    }
}

fn quoting_hint(text: &str) -> String {
    let quoted: Vec<_> = text
        .trim()
        .splitn(2, '.')
        .map(|part| if part.starts_with('"') { part.to_owned() } else { format!("\"{part}\"") })
        .collect();
    let shown = quoted.join(".");
    format!(
        "Put it into double quotes, and those into single quotes for the shell: '{}'.",
        Excerpt(shown.as_bytes())
    )
}

/// At most three known names that the user may have meant, the nearest first.
pub(super) fn similar(wanted: &TableName, known: &[TableName]) -> Vec<TableName> {
    let target = wanted.name.to_lowercase();
    let allowed = (target.chars().count() / 3).clamp(1, 4);
    let mut found: Vec<(usize, &TableName)> = known
        .iter()
        .filter_map(|candidate| {
            let distance = distance(&target, &candidate.name.to_lowercase(), allowed)?;
            // Among equals the one of the named schema, which is then only spelled differently.
            Some((
                distance * 2 + usize::from(wanted.schema.is_some() && wanted.schema != candidate.schema),
                candidate,
            ))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.name.cmp(&b.1.name)));
    found.into_iter().take(3).map(|(_, name)| name.clone()).collect()
}

/// Levenshtein distance in characters; `None` when above `limit`.
fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    let b: Vec<char> = b.chars().collect();
    let length = a.chars().count();
    if length.abs_diff(b.len()) > limit {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().filter(|&n| n <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(Option<String>, String)> {
        TableName::parse(text).ok().map(|t| (t.schema, t.name))
    }

    #[test]
    fn reads_names_as_sql_does() {
        let name = |s: Option<&str>, n: &str| Some((s.map(str::to_owned), n.to_owned()));
        assert_eq!(parsed("Orders"), name(None, "orders"));
        assert_eq!(parsed("Sales.Orders"), name(Some("sales"), "orders"));
        assert_eq!(parsed(" Sales . \"Or\"\"ders.x\" "), name(Some("sales"), "Or\"ders.x"));
        assert_eq!(parsed("GRÖSSE"), name(None, "grÖsse"));
        assert_eq!(parsed("a$1"), name(None, "a$1"));
        assert_eq!(parsed("order"), name(None, "order"));
        for bad in ["", ".", "a.", ".a", "a.b.c", "\"a", "\"\"", "my-table", "1a", "a b", "a\"b\"", "a;b"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn says_how_to_quote() {
        let error = TableName::parse("my-table").expect_err("not a plain name");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("'\"my-table\"'")), "{error}");
    }

    #[test]
    fn finds_what_was_meant() {
        let known = |names: &[(&str, &str)]| -> Vec<TableName> {
            names.iter().map(|(s, n)| TableName { schema: Some((*s).into()), name: (*n).into() }).collect()
        };
        let known =
            known(&[("public", "Orders"), ("public", "order_lines"), ("sales", "orders"), ("x", "zzz")]);
        let of = |text: &str| -> Vec<String> {
            let name = TableName::parse(text).expect("a name");
            similar(&name, &known).iter().map(ToString::to_string).collect()
        };
        assert_eq!(of("sales.ordes"), ["sales.orders", "public.\"Orders\""]);
        assert_eq!(of("order_line"), ["public.order_lines"]);
        assert!(of("nothing_like_it").is_empty());
    }
}
