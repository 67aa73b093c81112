//! Which queries are run: one statement that only reads.
//!
//! Three things see to that. The server parses the text as the query of a cursor, which takes nothing but a
//! SELECT (or VALUES, TABLE, WITH) that changes no data; it runs in a read-only transaction; and functions
//! that it calls are looked up, since what a volatile one does need not be undone by a rollback (files, other
//! servers, signals). They are looked for in three places: in the text itself and in the views and policies
//! that it names, since EXPLAIN does not print every expression (LIMIT, the rows of VALUES, frames of windows);
//! and in the plan, which has what functions and inheritance bring in.
//!
//! What that does not see: functions that functions call (one declared stable or immutable is believed) or have
//! as defaults of arguments, and those behind the casts, domains and input functions of somebody's own types.

mod tokens;

use self::tokens::Tokens;
use super::plan::Node;
use super::session::{ParseFailure, Session, get};
use inrush_core::{Code, Error, Excerpt, Result};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// Volatile functions of PostgreSQL that change nothing outside the session, and that waiting or chance makes
/// volatile.
const HARMLESS: &[&str] = &[
    "array_sample",
    "array_shuffle",
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
    let statement = match session.parse(&format!("DECLARE inrush_explain CURSOR FOR {query}\n")).await {
        Ok(statement) => statement,
        Err(failed) => return Err(refusal(session, query, failed).await),
    };
    if !statement.params().is_empty() {
        return Err(Error::new(Code::Usage, "the query has parameters ($1)")
            .hint("Put values in their places: another value may need another plan."));
    }
    Ok(())
}

/// Why a query that no cursor takes is refused: what is wrong with it by itself, or that it is something else
/// than one query that reads.
async fn refusal(session: &Session, query: &str, failed: ParseFailure) -> Error {
    // Errors of syntax, of names, of values, and of what is not supported: the rest is not about the text.
    let sqlstate = failed.error.sqlstate_text().unwrap_or_default();
    if !["42", "22", "0A"].iter().any(|class| sqlstate.starts_with(class)) {
        return failed.error;
    }
    match session.parse(query).await {
        // Several statements are an error of syntax without a place (postgres.c, exec_parse_message).
        Err(ParseFailure { position: None, error }) if error.sqlstate_text() == Some("42601") => {
            Error::new(Code::Usage, "that is not one query that only reads").hint(ONE_QUERY)
        }
        // The position is one in what the user wrote.
        Err(ParseFailure { position, error }) => match position {
            Some(at) => error.about(&format!("at character {at} of the query")),
            None => error,
        },
        Ok(_) if matches!(sqlstate, "42601" | "0A000") => {
            let said = format!("that is not one query that only reads: {}", failed.error.fact());
            Error::new(Code::Usage, said).hint(ONE_QUERY)
        }
        Ok(_) => failed.error,
    }
}

/// Refuses a text that calls what may have effects, itself or by way of a view. Nothing has been planned yet.
///
/// A name counts for all functions that may be meant by it: which one is meant depends on the types of
/// arguments, and a plan that would tell does not show every call.
///
/// # Errors
/// `usage`; `server`.
pub(super) async fn check_calls(session: &Session, query: &str) -> Result<()> {
    let plain = plain_backslash(session).await?;
    let mut tokens = Tokens::default();
    tokens.read(query, plain);
    if tokens.escaped_name {
        return Err(Error::new(Code::Usage, "the query has a name with Unicode escapes (U&\"...\")").hint(
            "What it calls is read from its text: write the characters themselves, or vouch for it with \
             --allow-volatile.",
        ));
    }
    let mut found = volatile(session, &tokens).await?;
    found.extend(volatile_in_views(session, &tokens).await?);
    refuse(found)
}

/// Refuses a plan that writes, locks rows, or calls what may have effects. `allow_volatile`: the user vouches
/// for the functions, and for what is not read by this server.
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
    if let Some(fact) = top.all().into_iter().find_map(elsewhere) {
        return Err(Error::new(Code::Usage, fact).hint(
            "It may run programs or queries elsewhere, many times here, and no caches but this server's are \
             looked at; --allow-volatile runs it all the same.",
        ));
    }
    let plain = plain_backslash(session).await?;
    let mut tokens = Tokens::default();
    top.expressions().into_iter().for_each(|text| tokens.read(text, plain));
    refuse(volatile(session, &tokens).await?)
}

/// What a node reads that is not this server's to read, or in a way that is not known.
fn elsewhere(node: &Node) -> Option<String> {
    match (node.kind(), node.text("Schema"), node.text("Relation Name")) {
        ("Foreign Scan", Some(schema), Some(table)) => {
            let name = format!("{schema}.{table}");
            Some(format!("the query reads a foreign table: {}", Excerpt(name.as_bytes())))
        }
        // Joined or aggregated where they are.
        ("Foreign Scan", ..) => Some("the query reads foreign tables".to_owned()),
        ("Custom Scan", ..) => {
            let provider = node.text("Custom Plan Provider").unwrap_or("unknown");
            let name = Excerpt(provider.as_bytes());
            Some(format!("an extension takes part in the plan (Custom Scan): {name}"))
        }
        _ => None,
    }
}

fn refuse(mut found: Vec<String>) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    found.sort();
    found.dedup();
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

/// Whether a backslash in an ordinary string is nothing special.
async fn plain_backslash(session: &Session) -> Result<bool> {
    let sql = "SELECT pg_catalog.current_setting('standard_conforming_strings')";
    Ok(get::<String>(&session.row(sql, &[]).await?, 0)? == "on")
}

/// The condition that a row `p` of pg_proc is volatile, itself or, of an aggregate, in what it is made of.
const VOLATILE: &str = "(p.provolatile OPERATOR(pg_catalog.=) 'v' \
    OR EXISTS (SELECT FROM pg_catalog.pg_aggregate a \
                 JOIN pg_catalog.pg_proc f ON f.oid OPERATOR(pg_catalog.=) ANY (ARRAY[ \
                      a.aggtransfn::pg_catalog.oid, a.aggfinalfn::pg_catalog.oid, \
                      a.aggcombinefn::pg_catalog.oid, a.aggserialfn::pg_catalog.oid, \
                      a.aggdeserialfn::pg_catalog.oid, a.aggmtransfn::pg_catalog.oid, \
                      a.aggminvtransfn::pg_catalog.oid, a.aggmfinalfn::pg_catalog.oid]) \
                WHERE a.aggfnoid::pg_catalog.oid OPERATOR(pg_catalog.=) p.oid \
                  AND f.provolatile OPERATOR(pg_catalog.=) 'v'))";

/// The name of a row `p` of pg_proc in the schema `n`, and whether the server came with it.
const NAMED: &str = "CASE WHEN n.nspname OPERATOR(pg_catalog.=) 'pg_catalog' THEN p.proname::pg_catalog.text \
    ELSE pg_catalog.format('%s.%s', n.nspname, p.proname) END, n.nspname OPERATOR(pg_catalog.=) 'pg_catalog'";

/// Names of functions and operators that are called here and that are volatile, without the harmless ones.
///
/// By name: of functions that share one, a volatile one counts for all. EXPLAIN puts the schema before a name
/// that the search path would not lead to (ruleutils.c, generate_function_name). What takes an argument of type
/// internal cannot be called by a query (the methods of TABLESAMPLE are such).
async fn volatile(session: &Session, tokens: &Tokens) -> Result<Vec<String>> {
    let (schemas, names): (Vec<&str>, Vec<&str>) =
        tokens.calls.iter().map(|(schema, name)| (schema.as_str(), name.as_str())).unzip();
    let operators: Vec<&String> = tokens.operators.iter().collect();
    let attributes: Vec<&String> = tokens.attributes.iter().collect();
    // A cast to name cuts off what is too long, as the server does.
    let sql = format!(
        "SELECT DISTINCT {NAMED} \
           FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), \
                           pg_catalog.unnest($2::pg_catalog.text[])) AS c(schema, name) \
           JOIN pg_catalog.pg_proc p ON p.proname OPERATOR(pg_catalog.=) c.name::pg_catalog.name \
           JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
          WHERE CASE WHEN c.schema OPERATOR(pg_catalog.=) '' THEN \
                          pg_catalog.pg_function_is_visible(p.oid) \
                     ELSE n.nspname OPERATOR(pg_catalog.=) c.schema::pg_catalog.name END \
            AND NOT 'pg_catalog.internal'::pg_catalog.regtype::pg_catalog.oid OPERATOR(pg_catalog.=) \
                    ANY (p.proargtypes::pg_catalog.oid[]) \
            AND {VOLATILE} \
          UNION ALL \
         SELECT DISTINCT {NAMED} \
           FROM pg_catalog.unnest($3::pg_catalog.text[]) AS c(name) \
           JOIN pg_catalog.pg_proc p ON p.proname OPERATOR(pg_catalog.=) c.name::pg_catalog.name \
           JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) p.proargtypes[0] \
           JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
          WHERE pg_catalog.pg_function_is_visible(p.oid) \
            AND t.oid OPERATOR(pg_catalog.<>) 'pg_catalog.internal'::pg_catalog.regtype::pg_catalog.oid \
            AND t.typtype OPERATOR(pg_catalog.=) ANY (ARRAY['c', 'd', 'p']::pg_catalog.\"char\"[]) \
            AND {VOLATILE} \
          UNION ALL \
         SELECT DISTINCT 'operator ' OPERATOR(pg_catalog.||) o.oprname::pg_catalog.text, false \
           FROM pg_catalog.pg_operator o \
           JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) o.oprcode::pg_catalog.oid \
          WHERE o.oprname::pg_catalog.text OPERATOR(pg_catalog.=) ANY ($4::pg_catalog.text[]) \
            AND p.provolatile OPERATOR(pg_catalog.=) 'v'"
    );
    let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
        (&schemas, Type::TEXT_ARRAY),
        (&names, Type::TEXT_ARRAY),
        (&attributes, Type::TEXT_ARRAY),
        (&operators, Type::TEXT_ARRAY),
    ];
    harmful(&session.rows(&sql, &parameters).await?)
}

/// The same of the views that the names in the text may mean, of the views in these, and of the policies of
/// tables in all of them.
///
/// Their expressions are read as the catalog keeps them, by object ids: pg_depend does not say which functions
/// of the server itself they call. A name in such a tree has its blanks escaped (outfuncs.c, outToken), so none
/// looks like a field; and if one did, more would be refused, not less.
async fn volatile_in_views(session: &Session, tokens: &Tokens) -> Result<Vec<String>> {
    let names: Vec<&String> = tokens.names.iter().collect();
    let sql = format!(
        "WITH RECURSIVE used(oid) AS ( \
             SELECT c.oid FROM pg_catalog.unnest($1::pg_catalog.text[]) AS w(name) \
               JOIN pg_catalog.pg_class c ON c.relname OPERATOR(pg_catalog.=) w.name::pg_catalog.name \
               JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
              WHERE pg_catalog.pg_table_is_visible(c.oid) \
                 OR n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.text[]) \
              UNION \
             SELECT m.found[1]::pg_catalog.oid FROM used u, \
                    LATERAL (SELECT r.ev_action::pg_catalog.text FROM pg_catalog.pg_rewrite r \
                               JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) r.ev_class \
                              WHERE r.ev_class OPERATOR(pg_catalog.=) u.oid \
                                AND c.relkind OPERATOR(pg_catalog.=) 'v' \
                                AND r.ev_type OPERATOR(pg_catalog.=) '1' \
                              UNION ALL \
                             SELECT p.polqual::pg_catalog.text FROM pg_catalog.pg_policy p \
                               JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) p.polrelid \
                              WHERE p.polrelid OPERATOR(pg_catalog.=) u.oid AND c.relrowsecurity) AS t(tree), \
                    LATERAL pg_catalog.regexp_matches(t.tree, ':relid ([0-9]+)', 'g') AS m(found)), \
         tree(text) AS ( \
             SELECT r.ev_action::pg_catalog.text FROM used u \
               JOIN pg_catalog.pg_rewrite r ON r.ev_class OPERATOR(pg_catalog.=) u.oid \
                AND r.ev_type OPERATOR(pg_catalog.=) '1' \
               JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) u.oid \
                AND c.relkind OPERATOR(pg_catalog.=) 'v' \
              UNION ALL \
             SELECT p.polqual::pg_catalog.text FROM used u \
               JOIN pg_catalog.pg_policy p ON p.polrelid OPERATOR(pg_catalog.=) u.oid \
               JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) u.oid AND c.relrowsecurity), \
         operator(oid) AS ( \
             SELECT m.found[1]::pg_catalog.oid FROM tree t, LATERAL \
                    pg_catalog.regexp_matches(t.text, ':(?:opno|sortop|eqop) ([0-9]+)', 'g') AS m(found) \
              UNION \
             SELECT one::pg_catalog.oid FROM tree t, \
                    LATERAL pg_catalog.regexp_matches(t.text, ':opnos [(]o ([0-9 ]+)[)]', 'g') AS m(found), \
                    LATERAL pg_catalog.unnest(pg_catalog.string_to_array(m.found[1], ' ')) AS one), \
         function(oid) AS ( \
             SELECT m.found[1]::pg_catalog.oid FROM tree t, LATERAL pg_catalog.regexp_matches(t.text, \
                    ':(?:funcid|opfuncid|hashfuncid|negfuncid|aggfnoid|winfnoid|startInRangeFunc|endInRangeFunc) \
([0-9]+)', 'g') AS m(found) \
              UNION \
             SELECT o.oprcode::pg_catalog.oid FROM operator w \
               JOIN pg_catalog.pg_operator o ON o.oid OPERATOR(pg_catalog.=) w.oid) \
         SELECT DISTINCT {NAMED} FROM function w \
           JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) w.oid \
           JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
          WHERE {VOLATILE}"
    );
    harmful(&session.rows(&sql, &[(&names, Type::TEXT_ARRAY)]).await?)
}

/// The names in rows of a name and whether it is the server's, without those that change nothing.
fn harmful(rows: &[Row]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for row in rows {
        let (name, of_server): (String, bool) = (get(row, 0)?, get(row, 1)?);
        if !of_server || !HARMLESS.contains(&name.as_str()) {
            found.push(name);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::plan::tests::explained;
    use serde_json::json;

    #[test]
    fn what_is_read_elsewhere_is_named() {
        let of = |plan| elsewhere(&explained(&plan).top);
        let table = json!({ "Node Type": "Foreign Scan", "Schema": "s", "Relation Name": "f\u{1b}" });
        assert_eq!(of(table).unwrap(), r"the query reads a foreign table: s.f\u{1b}");
        let joined = json!({ "Node Type": "Foreign Scan", "Relations": "(a) INNER JOIN (b)" });
        assert_eq!(of(joined).unwrap(), "the query reads foreign tables");
        let chunks = json!({ "Node Type": "Custom Scan", "Custom Plan Provider": "ChunkAppend" });
        assert!(of(chunks).unwrap().ends_with("(Custom Scan): ChunkAppend"));
        assert_eq!(of(json!({ "Node Type": "Seq Scan", "Schema": "s", "Relation Name": "f" })), None);
    }
}
