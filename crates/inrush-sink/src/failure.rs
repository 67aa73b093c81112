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
//! | 0A, 42 | only if COPY names a column | then the input function said so: the value asks for it |
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
    Row(RowFailure),
    /// Nothing that sending again or leaving out rows would mend.
    Fatal(Error),
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
    Failure::Row(RowFailure {
        error: build(Code::Server),
        sqlstate: sqlstate.to_owned(),
        line: context.as_ref().map(|c| c.line),
        line_exact: context.is_some() && (!sqlstate.starts_with("54") || column.is_some()),
        column: column.or_else(|| db.column().map(str::to_owned)),
        constraint: db.constraint().map(str::to_owned),
        reason,
    })
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
        "08P01" => return Kind::Other,
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
    /// Reads `COPY t, line 3, column c: "..."` in whatever language the server speaks: the name of the table is
    /// known, the first number after it is the line, and a known column name before the colon is the column.
    ///
    /// The first line that fits counts: what a function called by COPY says stands before it, and what follows is
    /// data, which may say anything.
    fn parse(text: &str, relation: &str, columns: &[&str]) -> Option<CopyContext> {
        let (_, rest) = text.match_indices(relation).find_map(|(at, _)| {
            let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let rest = &text[at + relation.len()..];
            let is_copy = text[line_start..at].contains("COPY")
                || rest.trim_start_matches('"').trim_start().starts_with("COPY")
                || rest.contains("COPY") && text[line_start..at].trim().is_empty();
            is_copy.then_some((line_start, rest))
        })?;
        let digits_at = rest.find(|c: char| c.is_ascii_digit())?;
        let digits = &rest[digits_at..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let line = digits[..end].parse().ok()?;
        Some(CopyContext { line, column: column(&digits[end..], columns) })
    }
}

/// The column named between the line number and the colon before the value. The longest known name that stands there
/// as a word of its own wins; data after the colon is not looked at.
fn column(text: &str, columns: &[&str]) -> Option<String> {
    let text = text.lines().next()?;
    columns
        .iter()
        .filter(|name| !name.is_empty())
        .filter_map(|name| {
            let (at, _) = text.match_indices(*name).find(|(at, _)| {
                let before = &text[..*at];
                let after = &text[at + name.len()..];
                let word = |c: char| c.is_alphanumeric() || c == '_';
                !before.contains([':', '\u{ff1a}', '"'])
                    && before.contains(',') | before.contains('\u{3001}') | before.contains('\u{ff0c}')
                    && !before.ends_with(word)
                    && !after.starts_with(word)
            })?;
            Some((at, name))
        })
        // The word for "column" comes first in most languages; a table may have a column of that name.
        .max_by_key(|(at, name)| (at + name.len(), name.len()))
        .map(|(_, name)| (*name).to_owned())
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
            format!("{}{}{}", &text[..=open], Excerpt(text[open + 1..close].as_bytes()), &text[close..])
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
