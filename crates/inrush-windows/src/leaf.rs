//! Making a window: leaves as the parent is, attached in the transaction that made them.

use crate::locks::locks;
use crate::maintain::{Options, server_time};
use crate::policy::IndexKind;
use crate::read::{Place, Standing, Window, Windowed, get, read, recorded};
use crate::turn::Turn;
use inrush_core::{Code, Error, Result, quote_ident, quote_literal};
use inrush_sink::failure::server_error;
use inrush_sink::ledger::Ledger;
use tokio_postgres::{Client, Transaction};

/// First number of the advisory lock under which windows of a table are made (the second is the table's OID).
const MAKING: i32 = 7119;
/// Bytes of a name (NAMEDATALEN - 1).
const NAME_BYTES: usize = 63;

/// Makes the window of an instant, if it is not there and the policy allows it. `None`: it does not, now.
///
/// # Errors
/// What the server says; code `table` if the parent has a default partition.
pub async fn ensure(
    client: &mut Client,
    ledger: &Ledger,
    relid: u32,
    instant: i64,
) -> Result<Option<Window>> {
    let Some(table) = read(client, ledger, relid).await? else { return Ok(None) };
    match table.place(instant, table.instant(server_time(client).await?)) {
        Place::Window(window) => return Ok(Some(window.clone())),
        Place::Late | Place::TooFarAhead => return Ok(None),
        Place::Missing => {}
    }
    // Rows of any age may come where nothing is ever too old: tables without end must not come of them.
    let at_close = table.policy.index == IndexKind::BrinAtClose;
    let bearable = locks(client, relid, table.policy.lanes, at_close).await?.windows();
    if table.windows.len() as u64 >= bearable {
        return Ok(None);
    }
    let start = table.window_start(instant);
    let options = Options::default();
    let mut turn = Turn::new("make", options.patience);
    loop {
        match make(client, ledger, &table, start, &options).await {
            Err(error) if turn.again(&error).await => {}
            other => return other,
        }
    }
}

/// Makes a window in a transaction of its own. `None` if it is retired.
pub(crate) async fn make(
    client: &mut Client,
    ledger: &Ledger,
    table: &Windowed,
    start: i64,
    options: &Options,
) -> Result<Option<Window>> {
    let tx = client.transaction().await.map_err(server_error)?;
    let timeout = format!("SET LOCAL lock_timeout = {}", options.gentle_timeout.as_millis());
    tx.batch_execute(&timeout).await.map_err(server_error)?;
    let made = make_within(&tx, ledger, table, start).await?;
    tx.commit().await.map_err(server_error)?;
    Ok(made)
}

/// Makes a window within a transaction. Nobody sees anything of it before that commits: a crash leaves nothing.
///
/// A CHECK constraint that spares ATTACH the scan, as is usual, is not needed: the leaves are empty, and ours alone.
pub(crate) async fn make_within(
    tx: &Transaction<'_>,
    ledger: &Ledger,
    table: &Windowed,
    start: i64,
) -> Result<Option<Window>> {
    // One maker at a time; the next finds what this one has made.
    tx.query("SELECT pg_catalog.pg_advisory_xact_lock($1, $2)", &[&MAKING, &table.relid.cast_signed()])
        .await
        .map_err(server_error)?;
    // FOR SHARE: whoever retires windows waits with moving `retired_to` until this one is recorded.
    let sql = format!(
        "SELECT d.retired_to, p.partdefid FROM {} d
           JOIN pg_catalog.pg_partitioned_table p ON p.partrelid OPERATOR(pg_catalog.=) d.relid
          WHERE d.relid OPERATOR(pg_catalog.=) $1 FOR SHARE OF d",
        ledger.table("windowed")
    );
    let Some(row) = tx.query_opt(&sql, &[&table.relid]).await.map_err(server_error)? else { return Ok(None) };
    if get::<u32>(&row, 1)? != 0 {
        return Err(Error::new(Code::Table, format!("table {} has a default partition", table.name)).hint(
            "To attach a window, the server would lock and read it: move its rows elsewhere and drop it; late rows \
             have a table of their own with --late overflow.",
        ));
    }
    if get::<Option<i64>>(&row, 0)?.is_some_and(|retired_to| start < retired_to) {
        return Ok(None);
    }
    let there = recorded(tx, ledger, table).await?.into_iter().find(|window| window.start == start);
    if let Some(window) = there
        && window.standing != Standing::Gone
    {
        return Ok(window.window());
    }
    let names = free_names(tx, table, start).await?;
    let defaults = identity_defaults(tx, table.relid, BEFORE_INHERITED_IDENTITY).await?;
    // Leaves are the owner's, whoever makes them: what works on them now and later has his rights, not more.
    let role = become_owner(tx, table.relid).await?;
    tx.batch_execute(&statements(table, start, &names, &defaults)).await.map_err(attach_error)?;
    if let Some(before) = role {
        let back = "SELECT pg_catalog.set_config('role', $1, true)";
        tx.query(back, &[&before]).await.map_err(server_error)?;
    }
    record(tx, ledger, table, start, &names).await?;
    let made = recorded(tx, ledger, table).await?.into_iter().find(|window| window.start == start);
    Ok(made.and_then(|window| window.window()))
}

/// The names of a window's tables, not quoted: the partition of the parent, and its leaves by lane.
struct Names {
    top: String,
    leaves: Vec<String>,
}

/// Names that nothing in the schema has.
async fn free_names(tx: &Transaction<'_>, table: &Windowed, start: i64) -> Result<Names> {
    let suffix = table.scale().suffix(start, table.policy.width);
    for n in 1..100 {
        let tail = if n == 1 { format!("_{suffix}") } else { format!("_{suffix}_{n}") };
        let names = names(&table.name.name, &tail, table.policy.lanes);
        let all: Vec<&str> = names.leaves.iter().map(String::as_str).chain([names.top.as_str()]).collect();
        let taken = tx
            .query_opt(
                "SELECT 1 FROM pg_catalog.pg_class c
                   JOIN pg_catalog.pg_class p ON p.oid OPERATOR(pg_catalog.=) $1
                        AND c.relnamespace OPERATOR(pg_catalog.=) p.relnamespace
                  WHERE c.relname OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.text[]) LIMIT 1",
                &[&table.relid, &all],
            )
            .await
            .map_err(server_error)?;
        if taken.is_none() {
            return Ok(names);
        }
    }
    Err(Error::new(Code::Table, format!("no name is free for the window {suffix} of table {}", table.name))
        .hint("Drop or rename the tables whose names begin with the table's name and this time."))
}

fn names(parent: &str, tail: &str, lanes: u32) -> Names {
    let name = |tail: &str| format!("{}{tail}", cut(parent, NAME_BYTES.saturating_sub(tail.len())));
    match lanes {
        1 => Names { top: name(tail), leaves: vec![name(tail)] },
        _ => Names {
            top: name(tail),
            leaves: (0..lanes).map(|lane| name(&format!("{tail}_l{lane}"))).collect(),
        },
    }
}

/// At most so many bytes of a name, whole characters.
pub(crate) fn cut(name: &str, bytes: usize) -> &str {
    let mut end = name.len().min(bytes);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Takes the role of a table's owner until the transaction ends. Gives the setting before, if it was another.
async fn become_owner(tx: &Transaction<'_>, relid: u32) -> Result<Option<String>> {
    let row = tx
        .query_one(
            "SELECT pg_catalog.current_setting('role'), pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text,
                    pg_catalog.pg_get_userbyid(c.relowner) OPERATOR(pg_catalog.<>) current_user
               FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) $1",
            &[&relid],
        )
        .await
        .map_err(server_error)?;
    if !get::<bool>(&row, 2)? {
        return Ok(None);
    }
    let role = format!("SET LOCAL ROLE {}", quote_ident(get(&row, 1)?));
    tx.batch_execute(&role).await.map_err(attach_error)?;
    get(&row, 0).map(Some)
}

/// The first version in which ATTACH makes the leaf's columns identities of the parent's sequence (tablecmds.c,
/// MergeAttributesIntoExisting). Before, an identity counts for rows that come through the parent, and ours do not.
const BEFORE_INHERITED_IDENTITY: i32 = 170_000;

/// What numbers rows as the parent's identity columns do: clauses of ALTER TABLE for a table of another's, empty on
/// servers from this version on.
pub(crate) async fn identity_defaults(tx: &Transaction<'_>, relid: u32, until: i32) -> Result<String> {
    let rows = tx
        .query(
            "SELECT pg_catalog.format('ALTER COLUMN %I SET DEFAULT pg_catalog.nextval(%L)', a.attname,
                    pg_catalog.pg_get_serial_sequence(c.oid::pg_catalog.regclass::pg_catalog.text, a.attname))
               FROM pg_catalog.pg_class c
               JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid
              WHERE c.oid OPERATOR(pg_catalog.=) $1 AND a.attidentity OPERATOR(pg_catalog.<>) ''
                AND NOT a.attisdropped
                AND pg_catalog.current_setting('server_version_num')::pg_catalog.int4
                    OPERATOR(pg_catalog.<) $2",
            &[&relid, &until],
        )
        .await
        .map_err(server_error)?;
    let clauses = rows.iter().map(|row| get(row, 0)).collect::<Result<Vec<String>>>()?;
    Ok(clauses.join(", "))
}

fn statements(table: &Windowed, start: i64, names: &Names, defaults: &str) -> String {
    let policy = &table.policy;
    let parent = table.name.to_string();
    let qualified = |name: &str| match &table.name.schema {
        Some(schema) => format!("{}.{}", quote_ident(schema), quote_ident(name)),
        None => quote_ident(name),
    };
    let unlogged = if policy.unlogged { "UNLOGGED " } else { "" };
    let top = qualified(&names.top);
    // Each window begins with another tablespace: one without lanes goes round, too. Indexes and TOAST tables follow.
    let turn = start.div_euclid(policy.width);
    let space = |lane: i64| {
        let count = i64::try_from(policy.tablespaces.len()).unwrap_or(i64::MAX);
        let i = usize::try_from((turn + lane).checked_rem_euclid(count)?).ok()?;
        policy.tablespaces.get(i)
    };
    let place = |lane: i64| match space(lane) {
        Some(name) => (
            format!("SET LOCAL default_tablespace = {};", quote_literal(name)),
            format!(" TABLESPACE {}", quote_ident(name)),
        ),
        None => (String::new(), String::new()),
    };
    // A leaf with an identity of its own cannot be attached (17+); before, `defaults` stands for that of the parent.
    let like = format!("(LIKE {parent} INCLUDING ALL EXCLUDING IDENTITY)");
    let numbered = match defaults {
        "" => String::new(),
        clauses => format!("ALTER TABLE {top} {clauses};"),
    };
    let scale = table.scale();
    let (from, to) = (scale.literal(start), scale.literal(start + policy.width));
    let attach = format!("ALTER TABLE {parent} ATTACH PARTITION {top} FOR VALUES FROM ({from}) TO ({to})");
    let Some(key) = policy.key_column.as_ref().filter(|_| policy.lanes > 1) else {
        let (default, clause) = place(0);
        return format!("{default}CREATE {unlogged}TABLE {top} {like}{clause};{numbered}{attach}");
    };
    let reset = if policy.tablespaces.is_empty() { "" } else { "SET LOCAL default_tablespace = '';" };
    // Attached before it has leaves: what ATTACH gives its columns (identity, 17+) goes no further down.
    let mut sql = format!(
        "{reset}CREATE TABLE {top} {like} PARTITION BY HASH ({});{numbered}{attach}",
        quote_ident(key)
    );
    for (lane, name) in names.leaves.iter().enumerate() {
        let (default, clause) = place(i64::try_from(lane).unwrap_or_default());
        sql += &format!(
            ";{default}CREATE {unlogged}TABLE {} PARTITION OF {top} \
             FOR VALUES WITH (MODULUS {}, REMAINDER {lane}){clause}",
            qualified(name),
            policy.lanes
        );
    }
    sql
}

/// Records a window, and takes the summary of range 0 away that every new BRIN index has: into a summarized range,
/// every row goes the slow way.
async fn record(
    tx: &Transaction<'_>,
    ledger: &Ledger,
    table: &Windowed,
    start: i64,
    names: &Names,
) -> Result<()> {
    let sql = format!(
        "INSERT INTO {} (relid, start, stop, top, top_name, leaf, leaf_name, lane, state)
         SELECT $1, $2, $3, t.oid, t.relname, l.oid, l.relname, (n.lane - 1)::pg_catalog.int4, 'open'
           FROM ROWS FROM (pg_catalog.unnest($5::pg_catalog.text[])) WITH ORDINALITY n (name, lane)
           JOIN pg_catalog.pg_class p ON p.oid OPERATOR(pg_catalog.=) $1
           JOIN pg_catalog.pg_class t ON t.relnamespace OPERATOR(pg_catalog.=) p.relnamespace
                AND t.relname OPERATOR(pg_catalog.=) $4
           JOIN pg_catalog.pg_class l ON l.relnamespace OPERATOR(pg_catalog.=) p.relnamespace
                AND l.relname OPERATOR(pg_catalog.=) n.name
         ON CONFLICT (relid, start, lane) DO UPDATE
            SET stop = excluded.stop, top = excluded.top, top_name = excluded.top_name, leaf = excluded.leaf,
                leaf_name = excluded.leaf_name, state = 'open', summarized_to = 0
         RETURNING leaf",
        ledger.table("windows")
    );
    let stop = start + table.policy.width;
    let rows = tx
        .query(&sql, &[&table.relid, &start, &stop, &names.top, &names.leaves])
        .await
        .map_err(server_error)?;
    let leaves = rows.iter().map(|row| get(row, 0)).collect::<Result<Vec<u32>>>()?;
    tx.query(
        "SELECT pg_catalog.brin_desummarize_range(i.indexrelid::pg_catalog.regclass, 0)
           FROM pg_catalog.pg_index i
           JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid
           JOIN pg_catalog.pg_am m ON m.oid OPERATOR(pg_catalog.=) c.relam
          WHERE i.indrelid OPERATOR(pg_catalog.=) ANY ($1) AND m.amname OPERATOR(pg_catalog.=) 'brin'",
        &[&leaves],
    )
    .await
    .map_err(server_error)?;
    Ok(())
}

/// What the server says when a window cannot be made, with what to do.
fn attach_error(error: tokio_postgres::Error) -> Error {
    let code = error.code().map(|state| state.code().to_owned()).unwrap_or_default();
    let error = server_error(error);
    if error.hint_text().is_some() {
        return error;
    }
    match code.as_str() {
        "0A000" => error.hint(
            "A primary key or unique index of a partitioned table contains the time column and, with lanes, the key \
             column: add them to it, or leave it out.",
        ),
        "42501" => error.hint("Windows are made by the table's owner, who needs CREATE on its schema and tablespaces."),
        "42P17" => error.hint("Another partition covers this time, made or renamed by somebody else: detach it."),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_whatever_the_parent_is_called() {
        let long = "ä".repeat(31);
        let names = names(&long, "_20261122_0100", 12);
        assert!(names.top.len() <= 63 && names.top.ends_with("ä_20261122_0100"), "{}", names.top);
        assert!(names.leaves.iter().all(|name| name.len() <= 63));
        assert!(names.leaves[11].ends_with("_20261122_0100_l11"), "{:?}", names.leaves);
        assert_eq!(super::names("t", "_x", 1).leaves, ["t_x"]);
    }
}
