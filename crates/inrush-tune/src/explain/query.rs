//! Which queries are run: one statement that only reads.
//!
//! Three things see to that. The server parses the text as the query of a cursor, which takes nothing but a
//! SELECT (or VALUES, TABLE, WITH) that changes no data; it runs in a read-only transaction; and functions
//! that the plan calls are looked up, since what a volatile one does need not be undone by a rollback (files,
//! other servers, signals).
//!
//! What that does not see: functions that functions call (one declared stable or immutable is believed), and
//! those behind the casts, domains and input functions of somebody's own types.

use super::plan::Node;
use super::session::{Session, get};
use inrush_core::{Code, Error, Excerpt, Result};
use std::collections::BTreeSet;
use tokio_postgres::types::Type;

/// Volatile functions of PostgreSQL that change nothing outside the session, and that waiting or chance makes
/// volatile.
const HARMLESS: &[&str] = &[
    "clock_timestamp",
    "currval",
    "gen_random_uuid",
    "lastval",
    "pg_current_wal_lsn",
    "pg_database_size",
    "pg_indexes_size",
    "pg_relation_size",
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
    "pg_table_size",
    "pg_tablespace_size",
    "pg_total_relation_size",
    "random",
    "random_normal",
    "timeofday",
    "uuidv4",
    "uuidv7",
];

const ONE_QUERY: &str = "Give one SELECT, WITH, VALUES or TABLE that only reads; nothing was run.";

/// Has the server parse the query, and refuses what is more, or something else, than one that reads.
///
/// # Errors
/// `usage` for what may not be run; `server` for what cannot.
pub(super) async fn check_text(session: &Session, query: &str) -> Result<()> {
    if query.trim().is_empty() {
        return Err(Error::new(Code::Usage, "there is no query").hint(ONE_QUERY));
    }
    // Only parsed, never executed. DECLARE CURSOR takes a SelectStmt (gram.y) without INTO and without
    // data-modifying WITH (analyze.c, transformDeclareCursorStmt); Parse takes a single statement.
    let statement =
        session.parse(&format!("DECLARE inrush_explain CURSOR FOR {query}\n")).await.map_err(|error| {
            match error.sqlstate_text() {
                Some("42601" | "0A000") => {
                    let said = format!("that is not one query that only reads: {}", error.fact());
                    Error::new(Code::Usage, said).hint(ONE_QUERY)
                }
                _ => error,
            }
        })?;
    if !statement.params().is_empty() {
        return Err(Error::new(Code::Usage, "the query has parameters ($1)")
            .hint("Put values in their places: another value may need another plan."));
    }
    Ok(())
}

/// Refuses a plan that writes, locks rows, or calls what may have effects. `allow_volatile`: the user vouches
/// for the functions.
///
/// # Errors
/// `usage`.
pub(super) async fn check_plan(session: &Session, top: &Node, allow_volatile: bool) -> Result<()> {
    for node in top.all() {
        let fact = match node.kind() {
            "ModifyTable" => "the query writes",
            "LockRows" => "the query locks rows",
            _ => continue,
        };
        return Err(Error::new(Code::Usage, fact).hint(ONE_QUERY));
    }
    if allow_volatile {
        return Ok(());
    }
    let found = volatile(session, &top.expressions()).await?;
    if found.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = found.iter().map(|name| Excerpt(name.as_bytes()).to_string()).collect();
    Err(Error::new(
        Code::Usage,
        format!("the query calls what is volatile and may have effects: {}", names.join(", ")),
    )
    .hint(
        "A rollback need not undo them, and each runs many times here; --allow-volatile runs them all the \
           same.",
    ))
}

/// Names of functions and operators that these expressions use and that are volatile, without the harmless
/// ones.
///
/// By name: of functions that share one, a volatile one counts for all. EXPLAIN puts the schema before a name
/// that the search path would not lead to (ruleutils.c, generate_function_name).
async fn volatile(session: &Session, expressions: &[&str]) -> Result<Vec<String>> {
    let mut calls = BTreeSet::new();
    let mut operators = BTreeSet::new();
    for text in expressions {
        read_expression(text, &mut calls, &mut operators);
    }
    let (schemas, names): (Vec<String>, Vec<String>) = calls.into_iter().unzip();
    let operators: Vec<String> = operators.into_iter().collect();
    let rows = session
        .rows(
            "SELECT DISTINCT CASE WHEN n.nspname OPERATOR(pg_catalog.=) 'pg_catalog' THEN \
             p.proname::pg_catalog.text \
                         ELSE pg_catalog.format('%s.%s', n.nspname, p.proname) END, \
                    n.nspname OPERATOR(pg_catalog.=) 'pg_catalog' \
               FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), \
               pg_catalog.unnest($2::pg_catalog.text[])) \
                    AS c(schema, name) \
               JOIN pg_catalog.pg_proc p ON p.proname::pg_catalog.text OPERATOR(pg_catalog.=) c.name \
               JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
              WHERE CASE WHEN c.schema OPERATOR(pg_catalog.=) '' THEN \
              pg_catalog.pg_function_is_visible(p.oid) \
                         ELSE n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) c.schema END \
                AND (p.provolatile OPERATOR(pg_catalog.=) 'v' \
                  OR EXISTS (SELECT FROM pg_catalog.pg_aggregate a \
                               JOIN pg_catalog.pg_proc f ON f.oid OPERATOR(pg_catalog.=) ANY (ARRAY[ \
                                    a.aggtransfn::pg_catalog.oid, a.aggfinalfn::pg_catalog.oid, \
                                    a.aggmtransfn::pg_catalog.oid, a.aggminvtransfn::pg_catalog.oid, \
                                    a.aggmfinalfn::pg_catalog.oid]) \
                              WHERE a.aggfnoid::pg_catalog.oid OPERATOR(pg_catalog.=) p.oid \
                                AND f.provolatile OPERATOR(pg_catalog.=) 'v')) \
              UNION ALL \
             SELECT DISTINCT 'operator ' OPERATOR(pg_catalog.||) o.oprname::pg_catalog.text, false \
               FROM pg_catalog.pg_operator o \
               JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) o.oprcode::pg_catalog.oid \
              WHERE o.oprname::pg_catalog.text OPERATOR(pg_catalog.=) ANY ($3::pg_catalog.text[]) \
                AND p.provolatile OPERATOR(pg_catalog.=) 'v'",
            &[(&schemas, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY), (&operators, Type::TEXT_ARRAY)],
        )
        .await?;
    let mut found = Vec::new();
    for row in &rows {
        let (name, of_server): (String, bool) = (get(row, 0)?, get(row, 1)?);
        if !of_server || !HARMLESS.contains(&name.as_str()) {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// Finds what an expression, as the server prints it, calls: names before a parenthesis, with their schema or
/// an empty one, and operators. Strings are skipped.
fn read_expression(text: &str, calls: &mut BTreeSet<(String, String)>, operators: &mut BTreeSet<String>) {
    let mut rest = text;
    // The name before the dot, and the name that may turn out to be called.
    let (mut schema, mut name): (Option<String>, Option<String>) = (None, None);
    while let Some(c) = rest.chars().next() {
        if c == '\'' {
            rest = behind_string(rest);
            (schema, name) = (None, None);
        } else if c == '"' || c == '_' || c.is_alphabetic() || !c.is_ascii() {
            let (word, behind) = identifier(rest);
            rest = behind;
            name = Some(word);
        } else if c == '.' && name.is_some() {
            schema = name.take();
            rest = &rest[1..];
        } else if c == '(' {
            if let Some(name) = name.take() {
                calls.insert((schema.take().unwrap_or_default(), name));
            }
            schema = None;
            rest = &rest[1..];
        } else if "+-*/<>=~!@#%^&|`?".contains(c) {
            let end = rest.find(|c| !"+-*/<>=~!@#%^&|`?".contains(c)).unwrap_or(rest.len());
            operators.insert(rest[..end].to_owned());
            rest = &rest[end..];
            (schema, name) = (None, None);
        } else {
            rest = &rest[c.len_utf8()..];
            (schema, name) = (None, None);
        }
    }
}

/// An identifier, quoted or not, and what is behind it.
fn identifier(text: &str) -> (String, &str) {
    if !text.starts_with('"') {
        let inside = |c: char| c == '_' || c == '$' || c.is_alphanumeric() || !c.is_ascii();
        let end = text.find(|c| !inside(c)).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
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

/// What is behind a string that begins here. The server prints quotes in a string doubled, and never with a
/// backslash (ruleutils.c, simple_quote_literal).
fn behind_string(text: &str) -> &str {
    let mut rest = &text[1..];
    while let Some(at) = rest.find('\'') {
        match rest[at + 1..].strip_prefix('\'') {
            Some(behind) => rest = behind,
            None => return &rest[at + 1..],
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        let (mut calls, mut operators) = (BTreeSet::new(), BTreeSet::new());
        read_expression(text, &mut calls, &mut operators);
        let calls = calls.into_iter().map(|(schema, name)| format!("{schema}:{name}")).collect();
        (calls, operators.into_iter().collect())
    }

    #[test]
    fn calls_are_found_and_strings_are_not() {
        let (calls, operators) =
            read("((lower(t.pad) = 'nextval(''x'')'::text) AND (s.\"F\"\"(\"(1) OPERATOR(q.+#) 2))");
        assert_eq!(calls, [":OPERATOR", ":lower", "s:F\"("]);
        assert_eq!(operators, ["+#", "="]);
        assert_eq!(read("f('\\\\''g(', h(1))").0, [":f", ":h"]);
        assert_eq!(read("\"Öl\"(ts::numeric(10,2))").0, [":numeric", ":Öl"]);
        assert_eq!(read("count(*) OVER (?)").0, [":count"]);
        // Cut off: nothing is read past the end.
        for text in ["'", "E'\\", "\"", "a.", "a.(", "(", "f", "é"] {
            read(text);
        }
    }
}
