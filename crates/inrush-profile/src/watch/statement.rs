//! What a statement does, from the text that pg_stat_activity has of it.
//!
//! The text may be cut off anywhere (`track_activity_query_size`), so that every question is asked of a prefix.

use serde::Serialize;

/// Work that fills a table or an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Kind {
    /// COPY into a table.
    #[serde(rename = "COPY")]
    Copy,
    /// INSERT, also within WITH.
    #[serde(rename = "INSERT")]
    Insert,
    /// MERGE.
    #[serde(rename = "MERGE")]
    Merge,
    /// CREATE TABLE AS and SELECT INTO.
    #[serde(rename = "CREATE TABLE AS")]
    CreateTableAs,
    /// CREATE MATERIALIZED VIEW and REFRESH.
    #[serde(rename = "REFRESH")]
    Refresh,
    /// CREATE INDEX, and what else builds one.
    #[serde(rename = "CREATE INDEX")]
    CreateIndex,
}

impl Kind {
    /// As it is shown, and its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Copy => "COPY",
            Kind::Insert => "INSERT",
            Kind::Merge => "MERGE",
            Kind::CreateTableAs => "CREATE TABLE AS",
            Kind::Refresh => "REFRESH",
            Kind::CreateIndex => "CREATE INDEX",
        }
    }
}

/// The name of a relation as somebody wrote it; what was not quoted is in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WrittenName {
    /// The schema, if it was written.
    pub schema: Option<String>,
    /// The relation.
    pub relation: String,
}

impl WrittenName {
    /// As it is shown where nothing more is known.
    pub fn shown(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{schema}.{}", self.relation),
            None => self.relation.clone(),
        }
    }
}

/// A statement that loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// What it does.
    pub kind: Kind,
    /// The relation it names.
    pub target: Option<WrittenName>,
}

/// The first statement of this text that loads. `None`: there is none.
pub fn of(text: &str) -> Option<Statement> {
    let tokens = tokens(text);
    tokens.split(|token| *token == Token::Symbol(';')).find_map(of_one)
}

/// A name as SQL writes it: `public."T x"`.
pub fn name_of(text: &str) -> Option<WrittenName> {
    name(&tokens(text), 0)
}

/// Whether the text ends a transaction: what a COMMIT waits for is still time of the load.
pub fn ends_transaction(text: &str) -> bool {
    matches!(tokens(text).first(), Some(token) if token.is("commit") || token.is("end"))
}

fn of_one(tokens: &[Token]) -> Option<Statement> {
    let word = |i: usize, word: &str| tokens.get(i).is_some_and(|token| token.is(word));
    let found = |kind, at: usize| Some(Statement { kind, target: name(tokens, at) });
    if word(0, "copy") {
        // COPY (query) TO has no name, and COPY t (a, b) TO reads.
        let at = 1 + usize::from(word(1, "binary") && !word(2, "from") && !word(2, "to"));
        let target = name(tokens, at)?;
        let direction = at_depth_0(tokens).map(|(_, token)| token).find(|t| t.is("from") || t.is("to"))?;
        return direction.is("from").then_some(Statement { kind: Kind::Copy, target: Some(target) });
    }
    if word(0, "refresh") && word(1, "materialized") && word(2, "view") {
        return found(Kind::Refresh, 3 + usize::from(word(3, "concurrently")));
    }
    if word(0, "create") {
        return created(tokens);
    }
    let pair = |first: &str| (0..tokens.len()).find(|i| word(*i, first) && word(i + 1, "into"));
    let first = |words: &[&str]| words.iter().any(|first| word(0, first));
    if let (true, Some(at)) = (first(&["insert", "with", "explain"]), pair("insert")) {
        return found(Kind::Insert, at + 2);
    }
    if let (true, Some(at)) = (first(&["merge", "with", "explain"]), pair("merge")) {
        return found(Kind::Merge, at + 2 + usize::from(word(at + 2, "only")));
    }
    if first(&["select", "with"]) {
        let (at, into) = at_depth_0(tokens).find(|(_, token)| token.is("into") || token.is("from"))?;
        if into.is("into") {
            let skipped = ["temporary", "temp", "unlogged", "table"];
            let more = tokens[at + 1..].iter().take_while(|t| skipped.iter().any(|word| t.is(word)));
            return found(Kind::CreateTableAs, at + 1 + more.count());
        }
    }
    None
}

/// CREATE ... TABLE ... AS, CREATE MATERIALIZED VIEW, CREATE INDEX.
fn created(tokens: &[Token]) -> Option<Statement> {
    let word = |i: usize, word: &str| tokens.get(i).is_some_and(|token| token.is(word));
    let kinds = ["table", "view", "index"];
    let at = (1..tokens.len().min(5)).find(|i| kinds.iter().any(|kind| word(*i, kind)))?;
    if word(at, "index") {
        let (on, _) = at_depth_0(tokens).find(|(_, token)| token.is("on"))?;
        let at = on + 1 + usize::from(word(on + 1, "only"));
        return Some(Statement { kind: Kind::CreateIndex, target: name(tokens, at) });
    }
    let kind = match word(at, "table") {
        true => Kind::CreateTableAs,
        false if word(at - 1, "materialized") => Kind::Refresh,
        false => return None,
    };
    // A generated column has its AS within parentheses.
    at_depth_0(tokens).find(|(_, token)| token.is("as"))?;
    let exists = word(at + 1, "if") && word(at + 2, "not") && word(at + 3, "exists");
    Some(Statement { kind, target: name(tokens, at + 1 + 3 * usize::from(exists)) })
}

/// A name, with or without schema, or with database and schema.
fn name(tokens: &[Token], at: usize) -> Option<WrittenName> {
    let mut parts = Vec::new();
    for pair in tokens.get(at..)?.chunks(2) {
        let [Token::Word(part) | Token::Quoted(part), rest @ ..] = pair else { break };
        parts.push(part.clone());
        if rest != [Token::Symbol('.')] {
            break;
        }
    }
    let relation = parts.pop()?;
    Some(WrittenName { schema: parts.pop(), relation })
}

/// Tokens outside of all parentheses, with their places.
fn at_depth_0(tokens: &[Token]) -> impl Iterator<Item = (usize, &Token)> {
    let mut depth = 0i32;
    tokens.iter().enumerate().filter(move |(_, token)| {
        match token {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A key word or a name, in lower case.
    Word(String),
    /// A quoted name, as it is.
    Quoted(String),
    /// A constant: text or a number.
    Constant,
    Symbol(char),
}

impl Token {
    fn is(&self, word: &str) -> bool {
        matches!(self, Token::Word(mine) if mine == word)
    }
}

/// Cuts SQL into tokens (scan.l): comments nest, strings may have escapes or be quoted by dollars.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c.is_whitespace() {
            rest = &rest[c.len_utf8()..];
        } else if rest.starts_with("--") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else if rest.starts_with("/*") {
            rest = after_comment(rest);
        } else if c == '"' {
            let (name, after) = quoted(&rest[1..], '"', false);
            tokens.push(Token::Quoted(name));
            rest = after;
        } else if c == '\'' {
            // E'...' has been cut into a word and this.
            let escapes = matches!(tokens.last(), Some(Token::Word(word)) if word == "e");
            rest = quoted(&rest[1..], '\'', escapes).1;
            tokens.push(Token::Constant);
        } else if let Some(after) = after_dollar_quotes(rest) {
            tokens.push(Token::Constant);
            rest = after;
        } else if c.is_alphabetic() || c == '_' {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'));
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            tokens.push(Token::Word(word.to_lowercase()));
            rest = after;
        } else if c.is_ascii_digit() {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_'));
            tokens.push(Token::Constant);
            rest = &rest[end.unwrap_or(rest.len())..];
        } else {
            tokens.push(Token::Symbol(c));
            rest = &rest[c.len_utf8()..];
        }
    }
    tokens
}

/// What follows a comment that may hold others.
fn after_comment(text: &str) -> &str {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return &text[at..];
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    ""
}

/// What stands before the closing quote, and what follows it. A doubled quote is one.
fn quoted(text: &str, quote: char, escapes: bool) -> (String, &str) {
    let mut inner = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            if !matches!(chars.peek(), Some((_, next)) if *next == quote) {
                return (inner, &text[at + c.len_utf8()..]);
            }
            chars.next();
        } else if c == '\\' && escapes {
            chars.next();
        }
        inner.push(c);
    }
    (inner, "")
}

/// What follows `$tag$ ... $tag$`; `None` if the text does not begin so.
fn after_dollar_quotes(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('$')?;
    let end = inner.find('$')?;
    let is_tag = inner[..end].chars().all(|c| c.is_alphanumeric() || c == '_')
        && !inner.starts_with(|c: char| c.is_ascii_digit());
    if !is_tag {
        return None;
    }
    let tag = &text[..end + 2];
    Some(text[tag.len()..].split_once(tag).map_or("", |(_, after)| after))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `KIND name`, or `-`.
    fn seen(text: &str) -> String {
        of(text).map_or("-".to_owned(), |statement| {
            let target = statement.target.map_or(String::new(), |name| format!(" {}", name.shown()));
            format!("{}{target}", statement.kind.name())
        })
    }

    #[test]
    fn statements_that_load() {
        for (text, wanted) in [
            ("COPY t FROM STDIN", "COPY t"),
            ("copy Public.T (a, b) from stdin with (format csv)", "COPY public.t"),
            (
                "  \n-- a comment; insert into x\n/* copy /* nested */ x */ COPY \"T x\".\"a\"\"b\" FROM '/f'",
                "COPY T x.a\"b",
            ),
            ("COPY BINARY t FROM STDIN", "COPY t"),
            ("copy binary from stdin", "COPY binary"),
            ("COPY \"to\" FROM PROGRAM 'cat to'", "COPY to"),
            ("INSERT INTO s.t VALUES ($1, $2)", "INSERT s.t"),
            ("insert\ninto db.s.t select 1", "INSERT s.t"),
            (
                "INSERT INTO t SELECT 'copy t to stdout; it''s', E'\\'; x', $$ ; $$, $a$ $b$ $a$ FROM u",
                "INSERT t",
            ),
            ("WITH n AS (SELECT 1) INSERT INTO t SELECT * FROM n", "INSERT t"),
            ("with recursive n (a) as (select ')') insert into t table n", "INSERT t"),
            ("WITH n AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM n", "INSERT t"),
            ("BEGIN; INSERT INTO t VALUES (1); COMMIT", "INSERT t"),
            ("EXPLAIN (ANALYZE) INSERT INTO t SELECT 1", "INSERT t"),
            ("MERGE INTO ONLY t USING u ON t.a = u.a WHEN MATCHED THEN DELETE", "MERGE t"),
            ("CREATE TABLE IF NOT EXISTS s.t AS SELECT 1", "CREATE TABLE AS s.t"),
            ("create unlogged table t (a, b) with (fillfactor = 70) as values (1, 2)", "CREATE TABLE AS t"),
            ("SELECT a, (SELECT b FROM c) INTO UNLOGGED TABLE t FROM u", "CREATE TABLE AS t"),
            ("REFRESH MATERIALIZED VIEW CONCURRENTLY s.v", "REFRESH s.v"),
            ("CREATE MATERIALIZED VIEW v AS SELECT 1", "REFRESH v"),
            (
                "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON ONLY s.t USING btree (a)",
                "CREATE INDEX s.t",
            ),
            ("CREATE INDEX ON t (a)", "CREATE INDEX t"),
        ] {
            assert_eq!(seen(text), wanted, "{text}");
        }
    }

    #[test]
    fn statements_that_do_not() {
        for text in [
            "",
            "COPY (SELECT * FROM t) TO STDOUT",
            "COPY (INSERT INTO t VALUES (1) RETURNING *) TO STDOUT",
            "COPY t TO STDOUT",
            "COPY t (a, b) TO '/tmp/from'",
            "SELECT 'insert into t'",
            "SELECT * FROM copy",
            "SELECT copy.from FROM t -- INSERT INTO t",
            "/* INSERT INTO t */ SELECT 1",
            "UPDATE t SET a = 'COPY t FROM STDIN'",
            "DELETE FROM t",
            "CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a) STORED)",
            "CREATE VIEW v AS SELECT 1",
            "CREATE FUNCTION f() RETURNS int AS $$ INSERT INTO t VALUES (1) $$ LANGUAGE sql",
            "COMMIT",
            "SELECT $1 INTO",
        ] {
            assert!(of(text).is_none_or(|s| s.target.is_none()), "{text}: {}", seen(text));
        }
        assert_eq!(seen("SELECT 1"), "-");
        assert!(ends_transaction("COMMIT") && ends_transaction("/* x */ end") && !ends_transaction("BEGIN"));
    }

    /// The server keeps 1 kB of a text unless told otherwise.
    #[test]
    fn texts_may_end_anywhere() {
        let text = "/* é */ WITH \"ü\" AS (SELECT $ä$x$ä$, E'a\\'b', 1.5e3) INSERT INTO \"ö\".t SELECT '…'";
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            of(&text[..end]);
        }
        assert_eq!(seen("INSERT INTO"), "INSERT");
        assert_eq!(seen("COPY t (a, b"), "-");
    }
}
