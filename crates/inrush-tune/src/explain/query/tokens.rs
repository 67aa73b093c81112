//! What a text of SQL calls: names before a parenthesis, names behind a dot, operators. It follows the server's
//! lexer (scan.l): strings of all kinds, dollar quotes and comments are skipped, names are folded.
//!
//! The text is one that the server has parsed; what is cut off is read to its end and not complained of.

use std::collections::BTreeSet;

/// What was found. Names are as the catalog has them, but for their length: the server cuts those off.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// Names before a parenthesis, each with its schema or an empty text.
    pub(super) calls: BTreeSet<(String, String)>,
    /// Names behind a dot that are not called: `t.f` may be `f(t)` (parse_func.c, ParseFuncOrColumn).
    pub(super) attributes: BTreeSet<String>,
    /// All names, and key words.
    pub(super) names: BTreeSet<String>,
    pub(super) operators: BTreeSet<String>,
    /// Whether a name is written with Unicode escapes (`U&"..."`): which one it is is not known.
    pub(super) escaped_name: bool,
}

const OPERATOR: &str = "+-*/<>=~!@#%^&|`?";

/// Key words that stand for operators (gram.y, parse_expr.c).
const SPOKEN: &[(&str, &[&str])] = &[
    ("between", &["<", ">", "<=", ">="]),
    ("case", &["="]),
    ("distinct", &["="]),
    ("ilike", &["~~*", "!~~*"]),
    ("in", &["=", "<>"]),
    ("like", &["~~", "!~~"]),
    ("nullif", &["="]),
    ("similar", &["~", "!~"]),
];

impl Tokens {
    /// Reads a text. `plain_backslash`: a backslash in an ordinary string is nothing special
    /// (standard_conforming_strings).
    pub(super) fn read(&mut self, text: &str, plain_backslash: bool) {
        let mut rest = text;
        // The name before the dot; the name that may turn out to be called, and whether it is behind a dot.
        let (mut schema, mut name): (Option<String>, Option<String>) = (None, None);
        let mut dot = false;
        while let Some(c) = rest.chars().next() {
            if let Some(behind) = blank_or_comment(rest) {
                rest = behind;
                continue;
            }
            if c == '('
                && let Some(name) = name.take()
            {
                self.calls.insert((schema.take().unwrap_or_default(), name));
            } else if c != '.'
                && let Some(name) = name.take_if(|_| schema.is_some() || dot)
            {
                self.attributes.insert(name);
            }
            if c == '.' {
                schema = name.take();
                dot = true;
                rest = &rest[1..];
                continue;
            }
            if c == '"' || is_name_start(c) {
                let (word, behind) = identifier(rest);
                rest = behind;
                if c != '"' && matches!(word.as_str(), "e") && rest.starts_with('\'') {
                    rest = behind_string(rest, true);
                } else if word == "u" && c != '"' && rest.starts_with("&\"") {
                    self.escaped_name = true;
                    rest = identifier(&rest[1..]).1;
                } else {
                    if !dot {
                        schema = None;
                    }
                    self.name(&word, c == '"');
                    name = Some(word);
                    // Whether a dot was before it is asked again when what follows is known.
                    if dot && schema.is_none() {
                        schema = Some(String::new());
                    }
                    dot = false;
                    continue;
                }
            } else if c == '\'' {
                rest = behind_string(rest, !plain_backslash);
            } else if let Some(behind) = behind_dollar_quote(rest) {
                rest = behind;
            } else if c.is_ascii_digit() || c == '$' {
                let inside = |c: char| c == '_' || c.is_ascii_alphanumeric();
                rest = rest[1..].trim_start_matches(inside);
            } else if OPERATOR.contains(c) {
                let operator = operator(rest);
                self.operators.insert(if operator == "!=" { "<>" } else { operator }.to_owned());
                rest = &rest[operator.len()..];
            } else {
                rest = &rest[c.len_utf8()..];
            }
            (schema, name, dot) = (None, None, false);
        }
        if schema.is_some() {
            self.attributes.extend(name);
        }
    }

    fn name(&mut self, word: &str, quoted: bool) {
        self.names.insert(word.to_owned());
        let spoken = SPOKEN.iter().find(|(key, _)| !quoted && *key == word);
        self.operators.extend(spoken.iter().flat_map(|(_, all)| *all).map(|&one| one.to_owned()));
    }
}

fn is_name_start(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic() || !c.is_ascii()
}

/// What is behind blanks or a comment that begin here.
fn blank_or_comment(text: &str) -> Option<&str> {
    if text.starts_with([' ', '\t', '\n', '\r', '\u{c}', '\u{b}']) {
        return Some(&text[1..]);
    }
    if text.starts_with("--") {
        return Some(text.find(['\n', '\r']).map_or("", |end| &text[end..]));
    }
    let mut rest = text.strip_prefix("/*")?;
    let mut depth = 1;
    while depth > 0 {
        let Some(at) = rest.find("*/").into_iter().chain(rest.find("/*")).min() else { return Some("") };
        if rest[at..].starts_with('*') {
            depth -= 1;
        } else {
            depth += 1;
        }
        rest = &rest[at + 2..];
    }
    Some(rest)
}

/// An identifier, quoted or folded (scansup.c, downcase_identifier), and what is behind it.
fn identifier(text: &str) -> (String, &str) {
    if !text.starts_with('"') {
        let inside = |c: char| c == '$' || c.is_ascii_digit() || is_name_start(c);
        let end = text.find(|c| !inside(c)).unwrap_or(text.len());
        return (text[..end].to_ascii_lowercase(), &text[end..]);
    }
    let mut word = String::new();
    let mut rest = &text[1..];
    loop {
        let Some(at) = rest.find('"') else { return (word + rest, "") };
        word += &rest[..at];
        rest = &rest[at + 1..];
        match rest.strip_prefix('"') {
            Some(behind) => {
                word.push('"');
                rest = behind;
            }
            None => return (word, rest),
        }
    }
}

/// What is behind a string whose quote is here. A string goes on behind a line end and another quote, with the
/// same escapes.
fn behind_string(text: &str, escapes: bool) -> &str {
    let mut rest = &text[1..];
    while let Some(at) = rest.find(|c| c == '\'' || (escapes && c == '\\')) {
        let behind = &rest[at + 1..];
        if rest[at..].starts_with('\\') {
            let mut chars = behind.chars();
            chars.next();
            rest = chars.as_str();
            continue;
        }
        if let Some(behind) = behind.strip_prefix('\'') {
            rest = behind;
            continue;
        }
        let mut next = behind;
        while !next.starts_with("/*")
            && let Some(behind) = blank_or_comment(next)
        {
            next = behind;
        }
        match next.strip_prefix('\'') {
            Some(more) if behind[..behind.len() - next.len()].contains(['\n', '\r']) => rest = more,
            _ => return behind,
        }
    }
    ""
}

/// What is behind a dollar quote that begins here.
fn behind_dollar_quote(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('$')?;
    let end = inner.find('$')?;
    let tag = &inner[..end];
    let named = |c: char| is_name_start(c) || c.is_ascii_digit();
    if tag.starts_with(|c: char| c.is_ascii_digit()) || !tag.chars().all(named) {
        return None;
    }
    let quote = &text[..end + 2];
    let rest = &text[quote.len()..];
    Some(rest.find(quote).map_or("", |at| &rest[at + quote.len()..]))
}

/// The operator that begins here: a comment ends it, and plus and minus at the end of one that could be of
/// standard SQL are not part of it (scan.l, {operator}).
fn operator(text: &str) -> &str {
    let mut all = &text[..text.find(|c| !OPERATOR.contains(c)).unwrap_or(text.len())];
    for comment in ["--", "/*"] {
        all = all.find(comment).filter(|at| *at > 0).map_or(all, |at| &all[..at]);
    }
    while all.len() > 1 && all.ends_with(['+', '-']) {
        let shorter = &all[..all.len() - 1];
        if shorter.contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?']) {
            break;
        }
        all = shorter;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tokens {
        let mut tokens = Tokens::default();
        tokens.read(text, true);
        tokens
    }

    fn calls(text: &str) -> Vec<String> {
        read(text).calls.into_iter().map(|(schema, name)| format!("{schema}:{name}")).collect()
    }

    fn operators(text: &str) -> Vec<String> {
        read(text).operators.into_iter().collect()
    }

    #[test]
    fn calls_are_found_and_strings_are_not() {
        let text = "((lower(t.pad) = 'nextval(''x'')'::text) AND (s.\"F\"\"(\"(1) OPERATOR(q.+#) 2))";
        assert_eq!(calls(text), [":and", ":lower", ":operator", "s:F\"("]);
        assert_eq!(operators(text), ["+#", "="]);
        assert_eq!(calls("f('\\\\''g(', h(1))"), [":f", ":h"]);
        assert_eq!(calls("\"Öl\"(ts::numeric(10,2))"), [":numeric", ":Öl"]);
        assert_eq!(calls("count(*) OVER (?)"), [":count", ":over"]);
        assert_eq!(calls("a.b F /* /* ( */ g( */ -- h(\n (1)"), [":f"]);
        assert_eq!(calls("d . s -- x\n. f/**/(1)"), ["s:f"]);
        assert_eq!(calls("E'\\'f(' || g('\\') || h('')"), [":g", ":h"]);
        assert_eq!(calls("e'' -- x\n '\\' f(' g()"), [":g"]);
        assert_eq!(calls("$a$ f( $$ $b$ $a$ g($$h($$) || $1(i$x$(1))"), [":g", ":i$x$"]);
        assert_eq!(calls("N'f(' U&'g(' LIMIT h()"), [":h"]);
        assert_eq!(
            operators("1<--2(\n3 -+4 @-5 !=6 7*/**/8 like"),
            ["!~~", "*", "+", "-", "<", "<>", "@-", "~~"]
        );
        // Cut off: nothing is read past the end.
        for text in ["'", "E'\\", "\"", "a.", "a.(", "(", "f", "é", "$", "$a$", "/*", "--", "U&\""] {
            read(text);
        }
    }

    #[test]
    fn a_backslash_is_what_the_session_says() {
        let mut tokens = Tokens::default();
        tokens.read("'\\'f(' || g()", false);
        assert_eq!(tokens.calls.into_iter().collect::<Vec<_>>(), [(String::new(), "g".to_owned())]);
    }

    #[test]
    fn functions_of_rows_and_hidden_names_are_found() {
        let found = read("SELECT (t).f, a.g, h.i(1), t.\"J\" FROM k WHERE l.m");
        assert_eq!(found.attributes.into_iter().collect::<Vec<_>>(), ["J", "f", "g", "m"]);
        assert!(!found.escaped_name && read("SELECT u&\"\\0061\"(1)").escaped_name);
        assert!(found.names.contains("k") && found.names.contains("J"));
    }
}
