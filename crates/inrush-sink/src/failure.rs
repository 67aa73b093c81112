//! What a failed statement means: try again, reject a row, or stop.
//!
//! # Which SQLSTATEs are about a row
//! An error while a COPY runs is about the content of a row when it comes from a type's input function, a constraint,
//! or code that runs per row (triggers, defaults). By class (errcodes.txt, PostgreSQL 15 to 18):
//!
//! | class | row? | why |
//! |---|---|---|
//! | 21, 22, 23, 2F, 38, 44, P0 | yes | values, constraints, and functions that look at one row |
//! | 27 | yes | a trigger changed the row it was fired for |
//! | 54 | yes | row, index entry or nesting too large |
//! | a class PostgreSQL does not use | yes | `RAISE ... USING ERRCODE` in somebody's trigger |
//! | 0A, 42, 08P01 | only if COPY names a column | then the input function said so: the value asks for it |
//! | 40001, 40P01 | no: try again | the same rows succeed later |
//! | 08 (not 08P01), 57P01-57P03, 57P05, 25P03, 25P04 | no: connection lost | the backend is gone |
//! | the rest (25, 28, 39, 53, 55, 57, 58, F0, XX, ...) | no: fatal | more rows would meet the same |

use inrush_core::{Code, Error, Excerpt};
use std::error::Error as _;

/// What to do about a failed statement.
#[derive(Debug)]
pub enum Failure {
    /// The connection is gone or the server is going down: what was not committed may be sent again.
    Lost(Error),
    /// A deadlock or a serialization failure: the same transaction may succeed now.
    Retry(Error),
    /// The server refused the content of a row.
    Row(Box<RowFailure>),
    /// Nothing that sending again or leaving out rows would mend.
    Fatal(Error),
}

impl Failure {
    /// What an error means that is not of one statement: a session that cannot be had is tried for again, as a lost one.
    pub fn of_error(error: Error) -> Failure {
        match error.code() {
            Code::Connect | Code::ConnectionLost => Failure::Lost(error),
            _ => Failure::Fatal(error),
        }
    }
}

/// A row the server refused.
#[derive(Debug)]
pub struct RowFailure {
    /// The error to show.
    pub error: Error,
    /// SQLSTATE.
    pub sqlstate: String,
    /// One fact: the server's message, with its detail.
    pub reason: String,
    /// Line of the COPY stream, from 1, as the server counts: rows in binary and text, physical lines in CSV, a header
    /// included. In CSV a line end inside quotes counts if it is the byte that ends lines (`\r` for CRLF), and never in
    /// the first line of the stream, whose end the server has not seen yet (copyfromparse.c, CopyReadLineText).
    /// `None` when the server did not say: constraints checked at the end of the statement (foreign keys,
    /// deferred ones).
    pub line: Option<u64>,
    /// Whether the line is the row at fault. A row that is too large is found when the server writes its buffer
    /// of up to 1000 rows: the line is then that of the last row read.
    pub line_exact: bool,
    /// The column whose input function refused the value, or the one a NOT NULL constraint names.
    pub column: Option<String>,
    /// The constraint that was violated.
    pub constraint: Option<String>,
}

impl Failure {
    /// The error to show.
    pub fn error(&self) -> &Error {
        match self {
            Failure::Lost(e) | Failure::Retry(e) | Failure::Fatal(e) => e,
            Failure::Row(row) => &row.error,
        }
    }

    /// The error to show.
    pub fn into_error(self) -> Error {
        match self {
            Failure::Lost(e) | Failure::Retry(e) | Failure::Fatal(e) => e,
            Failure::Row(row) => row.error,
        }
    }
}

/// The failure of a statement that is not COPY: no row is to blame. For `map_err`.
#[allow(clippy::needless_pass_by_value)]
pub fn classify(error: tokio_postgres::Error) -> Failure {
    of_statement(&error)
}

/// The error to show for a failed statement that is not COPY. For `map_err`.
#[allow(clippy::needless_pass_by_value)]
pub fn server_error(error: tokio_postgres::Error) -> Error {
    of_statement(&error).into_error()
}

/// The failure of a statement that is not COPY: no row is to blame.
pub fn of_statement(error: &tokio_postgres::Error) -> Failure {
    read(error, None)
}

/// The failure of a COMMIT: constraints checked so late may blame rows, but cannot name a line.
pub fn of_commit(error: &tokio_postgres::Error) -> Failure {
    read(error, Some(("", &[])))
}

/// The failure of `COPY relation FROM STDIN`. `relation` is the bare name of the table in that command (as
/// Table::name has it) and `columns` the names of its columns; both help to read the server's context.
pub fn of_copy(error: &tokio_postgres::Error, relation: &str, columns: &[&str]) -> Failure {
    read(error, Some((relation, columns)))
}

/// As [`of_copy`], of `FORMAT inrush`: that the table was altered since, or takes this format no longer, says
/// nothing of the rows, which another format may bring in. It counts as a refusal of rows that names none.
pub fn of_direct_copy(error: &tokio_postgres::Error, relation: &str, columns: &[&str]) -> Failure {
    match of_copy(error, relation, columns) {
        Failure::Fatal(error)
            if matches!(error.sqlstate_text(), Some("0A000" | "55000" | "42704" | "22023")) =>
        {
            Failure::Row(Box::new(RowFailure {
                sqlstate: error.sqlstate_text().unwrap_or_default().to_owned(),
                reason: error.fact().to_owned(),
                error,
                line: None,
                line_exact: false,
                column: None,
                constraint: None,
            }))
        }
        other => other,
    }
}

fn read(error: &tokio_postgres::Error, copy: Option<(&str, &[&str])>) -> Failure {
    let Some(db) = error.as_db_error() else {
        let io = error.source().is_some_and(|source| source.is::<std::io::Error>());
        // The driver has lost count of the answers (it does when COPY is refused before the first byte is read: its
        // first Sync is answered too). The session is unusable, and its kind is not public.
        let confused = error.to_string().starts_with("unexpected message");
        return if error.is_closed() || io || confused {
            Failure::Lost(Error::new(
                Code::ConnectionLost,
                format!("connection to the server lost: {}", text(error)),
            ))
        } else {
            Failure::Fatal(Error::new(Code::Server, text(error)))
        };
    };
    let sqlstate = db.code().code();
    let mut reason = message(db.message());
    if let Some(detail) = db.detail() {
        reason = format!("{reason} ({})", message(detail.trim_end_matches('.')));
    }
    let build = |code| {
        let error = Error::new(code, reason.clone()).sqlstate(sqlstate);
        match db.hint() {
            Some(hint) => error.hint(message(hint)),
            None => error,
        }
    };
    match kind(sqlstate) {
        Kind::Lost => return Failure::Lost(build(Code::ConnectionLost)),
        Kind::Retry => return Failure::Retry(build(Code::Server)),
        Kind::Row | Kind::Value | Kind::Other => {}
    }
    let Some((relation, columns)) = copy else { return Failure::Fatal(build(Code::Server)) };
    let context = db.where_().and_then(|text| CopyContext::parse(text, relation, columns));
    let column = context.as_ref().and_then(|c| c.column.clone());
    let about_row = match kind(sqlstate) {
        Kind::Row => true,
        Kind::Value => column.is_some(),
        _ => false,
    };
    if !about_row {
        return Failure::Fatal(build(Code::Server));
    }
    Failure::Row(Box::new(RowFailure {
        error: build(Code::Server),
        sqlstate: sqlstate.to_owned(),
        line: context.as_ref().map(|c| c.line),
        line_exact: context.is_some() && (!sqlstate.starts_with("54") || column.is_some()),
        column: column.or_else(|| db.column().map(str::to_owned)),
        constraint: db.constraint().map(str::to_owned),
        reason,
    }))
}

enum Kind {
    Lost,
    Retry,
    /// About a row.
    Row,
    /// About a row if a column's input function said it.
    Value,
    Other,
}

fn kind(sqlstate: &str) -> Kind {
    match sqlstate {
        "40001" | "40P01" => return Kind::Retry,
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04" => return Kind::Lost,
        "08P01" => return Kind::Value,
        _ => {}
    }
    match sqlstate.get(..2).unwrap_or("") {
        "08" => Kind::Lost,
        "21" | "22" | "23" | "27" | "2F" | "38" | "44" | "54" | "P0" => Kind::Row,
        "0A" | "42" => Kind::Value,
        // The other classes of errcodes.txt.
        "00" | "01" | "02" | "03" | "09" | "0B" | "0F" | "0L" | "0P" | "0Z" | "10" | "20" | "24" | "25"
        | "26" | "28" | "2B" | "2D" | "34" | "39" | "3B" | "3D" | "3F" | "40" | "53" | "55" | "57" | "58"
        | "72" | "F0" | "HV" | "XX" => Kind::Other,
        _ => Kind::Row,
    }
}

/// What the server's context says about the row that COPY was at (copyfromparse.c, CopyFromErrorCallback).
#[derive(Debug, PartialEq, Eq)]
struct CopyContext {
    line: u64,
    column: Option<String>,
}

impl CopyContext {
    /// Reads `COPY t, line 3, column c: "..."` in whatever language the server speaks. All translations of PostgreSQL
    /// have the table, then the line, then the column and a colon; Japanese and Korean put the word COPY after the
    /// table, and Korean the word for column after the column.
    ///
    /// The first line that fits counts: what a function called by COPY says stands before it, and what follows is
    /// data, which may say anything.
    fn parse(text: &str, relation: &str, columns: &[&str]) -> Option<CopyContext> {
        if relation.is_empty() {
            return None;
        }
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        let rest = starts.map(|start| &text[start..]).find_map(|line| {
            let after = |line: &'_ str| line.strip_prefix(relation).map(str::len);
            let rest = |length: usize| &line[line.len() - length..];
            match line.strip_prefix("COPY ").and_then(after).map(rest) {
                Some(rest) if rest.starts_with(',') => Some(rest),
                _ => after(line).map(rest).filter(|rest| {
                    rest.starts_with("\u{306e}COPY") || rest.starts_with(" \u{bcf5}\u{c0ac},")
                }),
            }
        })?;
        let rest = rest.split('\n').next()?;
        let digits = &rest[rest.find(|c: char| c.is_ascii_digit())?..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        Some(CopyContext { line: digits[..end].parse().ok()?, column: column(&digits[end..], columns) })
    }
}

/// The column, from the text after the line number: `, WORD name: ...`, in Korean `..., name WORD: ...`.
fn column(text: &str, columns: &[&str]) -> Option<String> {
    const KOREAN_COLUMN: &str = " \u{c5f4}";
    let (before, after) = text.split_once([',', '\u{3001}'])?;
    if before.contains(':') {
        return None;
    }
    // Korean has the counter between the number and the comma; every other language the word for column after it.
    let name = match before.is_empty() {
        true => after.trim_start().split_once(' ')?.1,
        false => after.trim_start(),
    };
    let ends = |rest: &str| {
        let rest = rest.strip_prefix(KOREAN_COLUMN).unwrap_or(rest);
        rest.is_empty() || rest.starts_with(':') || rest.starts_with(" :")
    };
    let known = columns.iter().filter(|known| name.strip_prefix(**known).is_some_and(ends));
    known.max_by_key(|known| known.len()).map(|known| (*known).to_owned())
}

/// The text of an error of the driver with its cause: its own Display leaves the cause out.
pub(crate) fn text(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return message(db.message());
    }
    match error.source() {
        Some(source) => message(&source.to_string()),
        None => message(&error.to_string()),
    }
}

/// A message of the server with the user's data in it bounded: the server repeats values in full.
fn message(text: &str) -> String {
    const LONGEST: usize = 400;
    let (open, close) = (text.find('"'), text.rfind('"'));
    let text = match (open, close) {
        (Some(open), Some(close)) if close > open + 1 + Excerpt::MAX => {
            format!("{}{}{}", &text[..=open], Excerpt(&text.as_bytes()[open + 1..close]), &text[close..])
        }
        _ => text.to_owned(),
    };
    let mut out = String::with_capacity(text.len().min(LONGEST));
    for c in text.chars() {
        if out.len() >= LONGEST {
            out.push_str("...");
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(text: &str) -> Option<(u64, Option<String>)> {
        let columns = ["c", "column c", "Spalte c", "a b", "x: y"];
        CopyContext::parse(text, "t 7", &columns).map(|c| (c.line, c.column))
    }

    #[test]
    fn reads_the_context_in_every_language() {
        // The translations of PostgreSQL 15 (msgstr of "COPY %s, line %llu, column %s: \"%s\"").
        for text in [
            "COPY t 7, line 12, column c: \"v\"",
            "COPY t 7, Zeile 12, Spalte c: »v«",
            "COPY t 7, Zeile 12, Spalte c: NULL Eingabe",
            "COPY t 7, línea 12, columna c: «v»",
            "COPY t 7, ligne 12, colonne c : « v »",
            "COPY t 7, riga 12, colonna c: input nullo",
            "t 7のCOPY、行 12、列 c: \"v\"",
            "COPY t 7, ხაზი 12, სვეტი c: \"v\"",
            "t 7 복사, 12번째 줄, c 열: \"v\"",
            "COPY t 7, 12행, c 열: null 입력",
            "COPY t 7, строка 12, столбец c: \"v\"",
            "COPY t 7, rad 12, kolumn c",
            "COPY t 7, рядок 12, стовпець c: \"v\"",
        ] {
            assert_eq!(context(text), Some((12, Some("c".to_owned()))), "{text}");
        }
        for text in [
            "COPY t 7, line 12",
            "COPY t 7, line 12: \"1, column c: 3\"",
            "COPY t 7, ligne 12 : « 1, colonne c : 3 »",
            "t 7のCOPY、行 12: \"v, 列 c\"",
            "t 7 복사, 12번째 줄: \"v, c 열\"",
        ] {
            assert_eq!(context(text), Some((12, None)), "{text}");
        }
    }

    #[test]
    fn is_not_led_astray_by_names_and_data() {
        let with = |column: &str| Some((3, Some(column.to_owned())));
        assert_eq!(context("COPY t 7, line 3, column column c: \"v\""), with("column c"));
        assert_eq!(context("COPY t 7, line 3, column a b: \"c: d\""), with("a b"));
        assert_eq!(context("COPY t 7, line 3, column x: y: \"v\""), with("x: y"));
        let function = "PL/pgSQL function \"COPY t 7, line 9\"() line 8 at RAISE\nCOPY t 7, line 3: \"v\"";
        assert_eq!(context(function), Some((3, None)));
        let data = "COPY t 7, line 3: \"v\nCOPY t 7, line 4, column c: v\"";
        assert_eq!(context(data), Some((3, None)));
        assert_eq!(context("COPY t 70, line 3"), None);
        assert_eq!(context("SQL statement \"SELECT 1\""), None);
        assert_eq!(CopyContext::parse("COPY , line 1", "", &[]), None);
    }

    #[test]
    fn bounds_the_data_in_messages() {
        let text = format!("invalid input syntax for type integer: \"{}\"", "x".repeat(5000));
        assert!(message(&text).len() < 160, "{}", message(&text));
        assert!(message(&"y".repeat(5000)).len() < 410);
        assert_eq!(message("a\nb"), "a\\nb");
    }
}
