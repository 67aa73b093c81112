//! A windowed table is made: parent, index, view, the table for late rows, the first window, and what is recorded of it,
//! in one transaction.

use crate::leaf::{make, make_within};
use crate::locks::{Locks, locks};
use crate::maintain::{Options, server_time};
use crate::overflow;
use crate::policy::{IndexKind, Late};
use crate::read::{Windowed, get, read, windows_kept};
use crate::space;
use crate::suggest;
use crate::time::{Scale, Span, Unit, shown};
use crate::turn::Turn;
use crate::view;
use inrush_core::{Code, Error, Result, quote_ident};
use inrush_sink::catalog::TableName;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::Ledger;
use tokio_postgres::{Client, Transaction};

/// What the columns of a new table are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// What stands between the parentheses of CREATE TABLE.
    Columns(String),
    /// One CREATE TABLE statement: with PARTITION BY RANGE, or as of an ordinary table.
    Statement(String),
}

/// A windowed table as it is asked for.
#[derive(Debug, Clone)]
pub struct Create {
    /// Its name.
    pub name: TableName,
    /// Its columns.
    pub body: Body,
    /// The column that windows are ranges of.
    pub time_column: String,
    /// What that counts, if it is a bigint.
    pub unit: Option<Unit>,
    /// Length of a window; `None`: what suits the retention.
    pub window: Option<Span>,
    /// Age at which a window is retired.
    pub keep: Option<Span>,
    /// Bytes in one tablespace above which the oldest are retired.
    pub max_size: Option<u64>,
    /// Free bytes of a tablespace's device below which the oldest are retired.
    pub min_free: Option<u64>,
    /// Windows made ahead.
    pub ahead: u32,
    /// Hash leaves of a window.
    pub lanes: u32,
    /// The column whose hash chooses the leaf.
    pub key_column: Option<String>,
    /// Where leaves go, in turn.
    pub tablespaces: Vec<String>,
    /// Whether leaves are unlogged.
    pub unlogged: bool,
    /// When leaves get their BRIN index.
    pub index: IndexKind,
    /// Its `pages_per_range`.
    pub pages_per_range: u32,
    /// Columns whose storage is set: name, and `plain`, `external`, `extended` or `main`.
    pub storage: Vec<(String, String)>,
    /// What becomes of late rows.
    pub late: Late,
    /// When a lane that commits nothing stops holding its source back.
    pub idle: Span,
}

/// A windowed table that has been made.
#[derive(Debug)]
pub struct Created {
    /// It, with the windows that stand.
    pub table: Windowed,
    /// The view that says up to when it is complete, as SQL names it.
    pub view: String,
    /// Most windows that stand at once, if the retention goes by age.
    pub windows_kept: Option<u64>,
    /// The locks of a query over all windows.
    pub locks: Locks,
    /// A width that suits the retention better, where the one chosen asks for many locks.
    pub suggested: Option<Span>,
    /// The width was not stated: it is the one that suits.
    pub width_chosen: bool,
    /// Why some of the windows ahead are not there; the next pass of maintenance makes them.
    pub unfinished: Option<Error>,
}

/// Makes a windowed table, and its windows up to `ahead`.
///
/// # Errors
/// Code `usage` for what contradicts itself or asks for too many locks, `table` for what the server does not make; then
/// nothing has been made.
pub async fn create(client: &mut Client, ledger: &Ledger, spec: &Create) -> Result<Created> {
    check(spec)?;
    let tx = client.transaction().await.map_err(server_error)?;
    tx.batch_execute("SET LOCAL lock_timeout = '5s'").await.map_err(server_error)?;
    let (relid, name) = make_parent(&tx, spec).await?;
    let spec = &Create { name, ..spec.clone() };
    let scale = scale(&tx, relid, spec).await?;
    finish_parent(&tx, relid, spec).await?;
    check_tablespaces(&tx, spec).await?;
    let bearable = locks(&tx, relid, spec.lanes, spec.index == IndexKind::BrinAtClose).await?;
    let keep = spec.keep.map(|keep| length(scale, keep, "--keep")).transpose()?;
    let suggested = suggest::width(scale, keep, spec.ahead, bearable);
    let width = match (spec.window, suggested) {
        (Some(window), _) => scale.width(window)?,
        (None, Some(suggested)) => scale.width(suggested)?,
        (None, None) => {
            return Err(Error::new(
                Code::Usage,
                "no usual width of windows suits this retention and these lanes",
            )
            .hint("State one with --window, and see how many locks it needs."));
        }
    };
    let now = scale.instant(server_time(&tx).await?);
    let last = i64::from(spec.ahead).saturating_add(2).saturating_mul(width).saturating_add(now);
    if !scale.is_usual(last) {
        return Err(Error::new(Code::Usage, "the last window ahead would end after the year 9999")
            .hint("Choose a shorter --window, or fewer of them with --ahead."));
    }
    let kept = keep.map(|keep| windows_kept(keep, width, spec.ahead));
    refuse_too_many(spec, bearable, kept, suggested)?;
    record(&tx, ledger, relid, spec, scale, width, keep).await?;
    let mut table = stored(&tx, ledger, relid).await?;
    if spec.late == Late::Overflow {
        overflow::make(&tx, ledger, &table).await.map_err(|e| explained(e, &spec.name))?;
        table = stored(&tx, ledger, relid).await?;
    }
    tx.batch_execute(&view::statements(&table, ledger)).await.map_err(|e| refused(e, &spec.name))?;
    make_within(&tx, ledger, &table, table.window_start(now)).await.map_err(|e| explained(e, &spec.name))?;
    tx.commit().await.map_err(server_error)?;
    let unfinished = make_ahead(client, ledger, &table, now).await.err();
    let table = stored(client, ledger, relid).await?;
    let too_many = kept.is_some_and(|kept| bearable.of(kept) > bearable.limit() / 2);
    Ok(Created {
        view: view::sql_name(&table.name),
        windows_kept: kept,
        locks: bearable,
        suggested: suggested.filter(|_| too_many),
        width_chosen: spec.window.is_none(),
        unfinished,
        table,
    })
}

/// What can be told without a server.
fn check(spec: &Create) -> Result<()> {
    let wrong = |fact: &str, hint: &str| Err(Error::new(Code::Usage, fact).hint(hint));
    match (&spec.key_column, spec.lanes) {
        (None, 2..) => {
            return wrong(
                "lanes need a key column",
                "Say which column's hash chooses the lane: --key COLUMN.",
            );
        }
        (Some(_), 0 | 1) => {
            return wrong("a key column needs lanes", "Say how many leaves a window has: --lanes 8.");
        }
        _ => {}
    }
    if let (Some(window), Some(keep)) = (spec.window, spec.keep)
        && keep < window
    {
        return wrong(
            "the retention is shorter than one window",
            "A window goes as a whole: choose a smaller --window or a longer --keep.",
        );
    }
    for (column, storage) in &spec.storage {
        if !["plain", "external", "extended", "main"].contains(&storage.as_str()) {
            let fact = format!("column \"{}\" cannot have storage \"{}\"", shown(column), shown(storage));
            return wrong(&fact, "The kinds are plain, external, extended and main.");
        }
    }
    Ok(())
}

/// A length of time in instants of the time column.
fn length(scale: Scale, span: Span, option: &str) -> Result<i64> {
    scale.length(span).ok_or_else(|| {
        Error::new(Code::Usage, format!("{option} {span} is no whole number of the time column's units"))
            .hint(format!("The least that it tells apart is {}.", scale.least_width()))
    })
}

/// The statement that makes the parent. It is checked to be one by the server: the extended protocol takes no more.
fn parent_sql(spec: &Create) -> Result<String> {
    let by = format!("PARTITION BY RANGE ({})", quote_ident(&spec.time_column));
    match &spec.body {
        Body::Columns(columns) => Ok(format!("CREATE TABLE {} ({columns}\n) {by}", spec.name)),
        Body::Statement(text) => {
            let (text, words) = without_comments(text);
            let text = text.trim_end_matches(|c: char| c.is_whitespace() || c == ';');
            let words = words.to_ascii_lowercase();
            let words: Vec<&str> =
                words.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
            if !matches!(words.as_slice(), ["create", "table" | "unlogged", ..]) {
                return Err(Error::new(Code::Usage, "the file does not begin with CREATE TABLE").hint(
                    "It has one statement, CREATE TABLE with the columns; what else a dump has is left out.",
                ));
            }
            let partitioned = words.windows(2).any(|two| two == ["partition", "by"]);
            Ok(if partitioned { text.to_owned() } else { format!("{text}\n{by}") })
        }
    }
}

/// A statement without its comments; and its words alone: what is quoted is left out of them.
///
/// Quotes as the server has them with `standard_conforming_strings`: `'...'` and `"..."` with doubled quotes inside,
/// `E'...'` with backslashes, `$tag$...$tag$` (scan.l). Comments in C's way nest.
fn without_comments(text: &str) -> (String, String) {
    let (mut kept, mut words) = (String::with_capacity(text.len()), String::new());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let quoted = match c {
            '-' if rest.starts_with("--") => {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
                continue;
            }
            '/' if rest.starts_with("/*") => {
                rest = &rest[nested_comment(rest)..];
                kept.push(' ');
                words.push(' ');
                continue;
            }
            '\'' | '"' => Some(closed(rest, c, words.ends_with(['e', 'E']))),
            '$' => dollar_quoted(rest),
            _ => None,
        };
        let length = quoted.unwrap_or(c.len_utf8());
        kept.push_str(&rest[..length]);
        words.push_str(if quoted.is_some() { " " } else { &rest[..length] });
        rest = &rest[length..];
    }
    (kept, words)
}

/// Bytes of the comment that a text begins with.
fn nested_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    while at < text.len() {
        match text.as_bytes().get(at..at + 2) {
            Some(b"/*") => depth += 1,
            Some(b"*/") => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Bytes of the quoted text that a text begins with.
fn closed(text: &str, quote: char, backslashes: bool) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
        if c == '\\' && backslashes {
            chars.next();
        }
    }
    text.len()
}

/// Bytes of the dollar-quoted text that a text begins with, if it does.
fn dollar_quoted(text: &str) -> Option<usize> {
    let end = 1 + text[1..].find('$')?;
    let tag = &text[..=end];
    if !tag[1..end].chars().all(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    Some(text[end + 1..].find(tag).map_or(text.len(), |at| end + 1 + at + tag.len()))
}

/// Makes the parent; gives its OID and its name, with schema.
async fn make_parent(tx: &Transaction<'_>, spec: &Create) -> Result<(u32, TableName)> {
    tx.execute(&parent_sql(spec)?, &[]).await.map_err(|e| refused(e, &spec.name))?;
    // The statement may name the table otherwise: what this transaction has made is found by its number. That of the
    // row type: tables that a foreign key refers to get a new row in pg_class.
    let made = tx
        .query(
            "SELECT c.oid, c.relkind::pg_catalog.text, c.relname::pg_catalog.text, n.nspname::pg_catalog.text
               FROM pg_catalog.pg_class c
               JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
               JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) c.reltype
              WHERE t.xmin::pg_catalog.text OPERATOR(pg_catalog.=)
                    (pg_catalog.pg_current_xact_id()::pg_catalog.text::pg_catalog.numeric
                     OPERATOR(pg_catalog.%) 4294967296)::pg_catalog.text
                AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p}')",
            &[],
        )
        .await
        .map_err(server_error)?;
    let [row] = made.as_slice() else {
        return Err(match made.len() {
            0 => Error::new(Code::Table, "the statement makes no table")
                .hint("One of this name is there already: leave IF NOT EXISTS out, and choose another name."),
            n => Error::new(Code::Usage, format!("the statement makes {n} tables"))
                .hint("It is one CREATE TABLE statement."),
        });
    };
    if get::<&str>(row, 1)? != "p" {
        return Err(Error::new(Code::Usage, "the statement makes a table that is not partitioned")
            .hint("Leave PARTITION BY out, or partition by range of the time column."));
    }
    let (relid, name): (u32, String) = (get(row, 0)?, get(row, 2)?);
    let mut now = format!("{}.{}", quote_ident(get(row, 3)?), quote_ident(&name));
    let mut moves = String::new();
    if let Some(schema) = spec.name.schema.as_deref().filter(|schema| Some(*schema) != row.try_get(3).ok()) {
        moves += &format!("ALTER TABLE {now} SET SCHEMA {};", quote_ident(schema));
        now = format!("{}.{}", quote_ident(schema), quote_ident(&name));
    }
    if name != spec.name.name {
        moves += &format!("ALTER TABLE {now} RENAME TO {}", quote_ident(&spec.name.name));
    }
    tx.batch_execute(&moves).await.map_err(|e| refused(e, &spec.name))?;
    let made_in: &str = get(row, 3)?;
    let schema = spec.name.schema.clone().unwrap_or_else(|| made_in.to_owned());
    Ok((relid, TableName { schema: Some(schema), name: spec.name.name.clone() }))
}

/// The scale of the time column, and that the parent is partitioned by its range and by nothing else.
async fn scale(tx: &Transaction<'_>, relid: u32, spec: &Create) -> Result<Scale> {
    let row = tx
        .query_opt(
            "SELECT a.atttypid, pg_catalog.format_type(a.atttypid, a.atttypmod),
                    p.partstrat OPERATOR(pg_catalog.=) 'r' AND p.partnatts OPERATOR(pg_catalog.=) 1
                      AND p.partattrs[0] OPERATOR(pg_catalog.=) a.attnum
               FROM pg_catalog.pg_attribute a
               JOIN pg_catalog.pg_partitioned_table p ON p.partrelid OPERATOR(pg_catalog.=) a.attrelid
              WHERE a.attrelid OPERATOR(pg_catalog.=) $1 AND a.attname OPERATOR(pg_catalog.=) $2",
            &[&relid, &spec.time_column],
        )
        .await
        .map_err(server_error)?;
    let column = shown(&spec.time_column);
    let Some(row) = row else {
        return Err(Error::new(Code::Columns, format!("the table has no column \"{column}\"")).hint(
            "Name the time column with --time as the catalog has it: in lower case unless it was quoted.",
        ));
    };
    if !get::<bool>(&row, 2)? {
        return Err(Error::new(
            Code::Table,
            format!("the table is not partitioned by range of \"{column}\""),
        )
        .hint("Leave PARTITION BY out of the statement."));
    }
    let of: String = get(&row, 1)?;
    let scale = Scale::of_type(get(&row, 0)?, spec.unit).ok_or_else(|| {
        Error::new(Code::Columns, format!("windows cannot be made of column \"{column}\" of type {of}"))
            .hint("A time column is a timestamptz, timestamp, date or bigint.")
    })?;
    let is_number = get::<u32>(&row, 0)? == 20;
    if is_number != spec.unit.is_some() {
        let fact = match is_number {
            true => format!("it is not known what the numbers of column \"{column}\" count"),
            false => format!("column \"{column}\" of type {of} needs no unit"),
        };
        return Err(Error::new(Code::Usage, fact)
            .hint("For a bigint, --unit s, ms, us or ns says what has passed since 1970-01-01 UTC."));
    }
    Ok(scale)
}

/// Storage of columns, the index, and that the key column is there.
async fn finish_parent(tx: &Transaction<'_>, relid: u32, spec: &Create) -> Result<()> {
    let table = spec.name.to_string();
    let mut sql = String::new();
    for (column, storage) in &spec.storage {
        sql += &format!("ALTER TABLE {table} ALTER COLUMN {} SET STORAGE {storage};", quote_ident(column));
    }
    let time = quote_ident(&spec.time_column);
    if spec.index == IndexKind::Brin {
        let there = tx
            .query_opt(
                "SELECT 1 FROM pg_catalog.pg_index i
                   JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid
                   JOIN pg_catalog.pg_am m ON m.oid OPERATOR(pg_catalog.=) c.relam
                        AND m.amname OPERATOR(pg_catalog.=) 'brin'
                   JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid
                        AND a.attnum OPERATOR(pg_catalog.=) i.indkey[0]
                  WHERE i.indrelid OPERATOR(pg_catalog.=) $1 AND a.attname OPERATOR(pg_catalog.=) $2",
                &[&relid, &spec.time_column],
            )
            .await
            .map_err(server_error)?;
        if there.is_none() {
            sql += &format!(
                "CREATE INDEX ON {table} USING brin ({time}) WITH (pages_per_range = {}, autosummarize = off)",
                spec.pages_per_range
            );
        }
    }
    tx.batch_execute(&sql).await.map_err(|e| refused(e, &spec.name))
}

async fn check_tablespaces(tx: &Transaction<'_>, spec: &Create) -> Result<()> {
    for name in &spec.tablespaces {
        let allowed = tx
            .query_opt(
                "SELECT pg_catalog.has_tablespace_privilege(s.oid, 'CREATE') FROM pg_catalog.pg_tablespace s
                  WHERE s.spcname OPERATOR(pg_catalog.=) $1",
                &[name],
            )
            .await
            .map_err(server_error)?;
        let shown = shown(name);
        let error = match allowed.map(|row| get::<bool>(&row, 0)).transpose()? {
            Some(true) => continue,
            Some(false) => Error::new(Code::Table, format!("this role may not use tablespace \"{shown}\""))
                .hint("Its owner can grant it: GRANT CREATE ON TABLESPACE."),
            None => Error::new(Code::Table, format!("there is no tablespace \"{shown}\"")).hint(
                "A superuser makes one with CREATE TABLESPACE; SELECT spcname FROM pg_tablespace lists them.",
            ),
        };
        return Err(error);
    }
    if spec.min_free.is_some() {
        for name in space::tablespaces(tx, &spec.tablespaces).await? {
            space::directory(tx, &name).await?;
        }
    }
    Ok(())
}

/// Refuses a table whose windows one query could not lock.
fn refuse_too_many(spec: &Create, locks: Locks, kept: Option<u64>, suggested: Option<Span>) -> Result<()> {
    let windows = kept.unwrap_or_else(|| u64::from(spec.ahead) + 1);
    let needed = locks.of(windows);
    if needed <= locks.limit() {
        return Ok(());
    }
    let leaves = windows * u64::from(spec.lanes.max(1));
    let fact = format!(
        "a query over all {windows} windows ({leaves} leaves) would lock {needed} tables and indexes; the server has {} locks \
         in all, and one query may take {}",
        locks.capacity,
        locks.limit()
    );
    let setting = needed.saturating_mul(64).div_ceil(locks.limit().max(1));
    let more = format!("raise max_locks_per_transaction (to {setting} if it is 64) and restart the server");
    Err(Error::new(Code::Usage, fact).hint(match suggested {
        Some(width) => {
            format!("Choose --window {width} or longer, fewer --lanes or a shorter --keep; or {more}.")
        }
        None => format!("Choose a longer --window, fewer --lanes or a shorter --keep; or {more}."),
    }))
}

async fn record(
    tx: &Transaction<'_>,
    ledger: &Ledger,
    relid: u32,
    spec: &Create,
    scale: Scale,
    width: i64,
    keep: Option<i64>,
) -> Result<()> {
    let sql = format!(
        "INSERT INTO {} (relid, name, time_column, unit, width, keep, max_size, min_free, ahead, lanes, key_column,
                         tablespaces, unlogged, index_kind, pages_per_range, late, idle)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
        ledger.table("windowed")
    );
    // An OID of a table that was dropped may have been given to this one.
    for name in ["windows", "progress", "progress_unlogged", "windowed"] {
        let sql = format!("DELETE FROM {} WHERE relid OPERATOR(pg_catalog.=) $1", ledger.table(name));
        tx.execute(&sql, &[&relid]).await.map_err(server_error)?;
    }
    let bytes = |bytes: Option<u64>| bytes.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let unit = spec.unit.filter(|_| scale.kind == crate::time::TimeKind::Bigint).map(Unit::as_str);
    let int = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    tx.execute(
        &sql,
        &[
            &relid,
            &spec.name.to_string(),
            &spec.time_column,
            &unit,
            &width,
            &keep,
            &bytes(spec.max_size),
            &bytes(spec.min_free),
            &int(spec.ahead),
            &int(spec.lanes.max(1)),
            &spec.key_column,
            &spec.tablespaces,
            &spec.unlogged,
            &spec.index.as_str(),
            &int(spec.pages_per_range),
            &spec.late.as_str(),
            &spec.idle.us(),
        ],
    )
    .await
    .map(|_| ())
    .map_err(server_error)
}

async fn stored(
    client: &impl tokio_postgres::GenericClient,
    ledger: &Ledger,
    relid: u32,
) -> Result<Windowed> {
    let lost = || Error::new(Code::Internal, "the table that was just recorded cannot be read");
    read(client, ledger, relid).await?.ok_or_else(lost)
}

async fn make_ahead(client: &mut Client, ledger: &Ledger, table: &Windowed, now: i64) -> Result<()> {
    let options = Options::default();
    let mut start = table.window_start(now);
    for _ in 0..table.policy.ahead {
        start = start.saturating_add(table.policy.width);
        let mut turn = Turn::new("make", options.patience);
        loop {
            match make(client, ledger, table, start, &options).await {
                Err(error) if turn.again(&error).await => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
    }
    Ok(())
}

/// What the server says when something cannot be made, with what to do. For `map_err`.
fn refused(error: tokio_postgres::Error, name: &TableName) -> Error {
    explained(server_error(error), name)
}

fn explained(error: Error, name: &TableName) -> Error {
    let Some(state) = error.sqlstate_text() else { return error };
    let hint = match (state, error.hint_text()) {
        ("42P07", _) => {
            "Choose another name, or drop what has it; a plain table cannot be partitioned in place."
        }
        ("3F000", _) => "Make the schema first, with CREATE SCHEMA.",
        ("42501", _) => {
            "Ask for GRANT CREATE ON SCHEMA, and on the tablespaces; windows are made by the table's owner."
        }
        ("42703", _) => {
            "Name the time column with --time, and that of the lanes with --key, as the catalog has them: in lower case \
             unless they were quoted."
        }
        ("42601", _) => {
            "Columns are given as in CREATE TABLE: 'at timestamptz NOT NULL' 'info text'; a file has one statement."
        }
        (_, Some(hint)) => hint,
        ("0A000", None) => {
            "A primary key or unique index of a partitioned table contains the time column and, with lanes, the key \
             column; leaves are made unlogged with --unlogged."
        }
        (_, None) => "The server says what is wrong; nothing has been made.",
    };
    let told = Error::new(Code::Table, format!("table {name} cannot be made: {}", error.fact()));
    told.sqlstate(state).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_left_out_and_what_is_quoted_is_no_word() {
        for (text, kept, words) in [
            ("-- a\n/* b /* c */ */CREATE", "\n CREATE", "\n CREATE"),
            ("x -- only", "x ", "x "),
            ("/* open", " ", " "),
            ("a '--' \"/*\" b", "a '--' \"/*\" b", "a     b"),
            ("E'\\' -- ' c", "E'\\' -- ' c", "E  c"),
            ("'it''s' d", "'it''s' d", "  d"),
            ("$f$ -- $f$ $1 e", "$f$ -- $f$ $1 e", "  $1 e"),
            ("'open", "'open", " "),
        ] {
            assert_eq!(without_comments(text), (kept.to_owned(), words.to_owned()), "{text}");
        }
    }
}
