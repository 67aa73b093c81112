//! What there is: windowed tables, their windows and leaves, as the ledger and the catalog have them.

use crate::policy::{IndexKind, Late, Policy};
use crate::time::{Scale, Span, TimeKind, Unit};
use inrush_core::{Code, Error, Result, quote_ident};
use inrush_sink::catalog::TableName;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::Ledger;
use serde::Serialize;
use std::time::SystemTime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{GenericClient, Row};

const DAY: Span = Span::from_us(86_400_000_000);

/// A table that rows go into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leaf {
    /// OID.
    pub relid: u32,
    /// Schema, not quoted.
    pub schema: String,
    /// Name, not quoted.
    pub name: String,
    /// Remainder of the hash partition; 0 where a window is one leaf.
    pub lane: u32,
}

impl Leaf {
    /// The name as SQL needs it.
    pub fn qualified(&self) -> String {
        format!("{}.{}", quote_ident(&self.schema), quote_ident(&self.name))
    }
}

/// Whether a window is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WindowState {
    /// It lies ahead, or is being written.
    Open,
    /// It has ended; late rows still find it.
    Closed,
    /// It is going away.
    Retiring,
}

/// One window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Its first instant.
    pub start: i64,
    /// The first instant after it.
    pub end: i64,
    /// Whether it is written to.
    pub state: WindowState,
    /// Its leaves: the index is the lane, the remainder of the hash partition.
    pub leaves: Vec<Leaf>,
}

/// A windowed table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windowed {
    /// OID of the parent.
    pub relid: u32,
    /// Its name, with schema.
    pub name: TableName,
    /// The column whose range the windows are.
    pub time_column: String,
    /// Its type.
    pub time_kind: TimeKind,
    /// What it counts, if it is a bigint.
    pub unit: Option<Unit>,
    /// What was decided.
    pub policy: Policy,
    /// No window before this is made any more.
    pub retired_to: Option<i64>,
    /// The windows that stand: attached, and not going away. By start.
    pub windows: Vec<Window>,
    /// The table for late rows, if they go there.
    pub overflow: Option<Leaf>,
}

/// Where a row belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// Into this window.
    Window(&'a Window),
    /// Into one that may be made and is not there: [`crate::ensure`] makes it.
    Missing,
    /// It comes too late: its window has been retired, or would be at once.
    Late,
    /// Its time lies too far ahead: a wrong clock, or a wrong unit.
    TooFarAhead,
}

impl Windowed {
    /// How the time column counts.
    pub fn scale(&self) -> Scale {
        Scale { kind: self.time_kind, unit: self.unit.unwrap_or(Unit::Seconds) }
    }

    /// A time of the clock as an instant of the time column.
    pub fn instant(&self, time: SystemTime) -> i64 {
        self.scale().instant(time)
    }

    /// The begin of the window that an instant is in, made or not.
    pub fn window_start(&self, instant: i64) -> i64 {
        self.scale().window_start(instant, self.policy.width)
    }

    /// The window of an instant, if it stands.
    pub fn window_of(&self, instant: i64) -> Option<&Window> {
        let after = self.windows.partition_point(|window| window.start <= instant);
        self.windows[..after].last().filter(|window| instant < window.end)
    }

    /// Where a row of this time belongs, at this time of the clock.
    pub fn place(&self, instant: i64, now: i64) -> Place<'_> {
        match self.window_of(instant) {
            Some(window) => Place::Window(window),
            None => self.place_outside(instant, now),
        }
    }

    fn place_outside(&self, instant: i64, now: i64) -> Place<'static> {
        let start = self.window_start(instant);
        let end = start.saturating_add(self.policy.width);
        let gone = self.retired_to.is_some_and(|retired_to| start < retired_to);
        let too_old = self.policy.keep.is_some_and(|keep| end.saturating_add(keep) <= now);
        let usual = self.scale().is_usual(start) && self.scale().is_usual(end);
        if gone || too_old || (!usual && instant < now) {
            return Place::Late;
        }
        // A day of instants: that of a bigint in nanoseconds is a number as any.
        let day = self.scale().length(DAY).unwrap_or(self.policy.width);
        if !usual || start > now.saturating_add(self.policy.future(day)) {
            return Place::TooFarAhead;
        }
        Place::Missing
    }

    /// All windows that the retention lets stand at once, if it goes by age.
    pub fn windows_kept(&self) -> Option<u64> {
        let keep = self.policy.keep?;
        Some(windows_kept(keep, self.policy.width, self.policy.ahead))
    }
}

/// Windows that stand at once: those kept, the one that is being written, those ahead, and the one whose time is up.
pub(crate) fn windows_kept(keep: i64, width: i64, ahead: u32) -> u64 {
    let width = width.max(1).unsigned_abs();
    keep.unsigned_abs().div_ceil(width) + u64::from(ahead) + 2
}

/// A window as it is recorded, whatever its state.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub start: i64,
    pub stop: i64,
    pub state: WindowState,
    /// The partition of the parent: the leaf itself, or the partitioned table of the lanes.
    pub top: Leaf,
    /// What the catalog has under its OID.
    pub standing: Standing,
    pub leaves: Vec<RecordedLeaf>,
}

/// A leaf as it is recorded.
#[derive(Debug, Clone)]
pub(crate) struct RecordedLeaf {
    pub leaf: Leaf,
    /// Blocks that are summarized, from the first on.
    pub summarized_to: i64,
    /// The file they are in.
    pub file: Option<u32>,
}

/// What the catalog has of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is a partition.
    Attached,
    /// DETACH CONCURRENTLY has begun and not ended.
    Pending,
    /// It is a table of its own.
    Detached,
    /// It is a partition, and one of its tables is not there or has another name: somebody else's business.
    Foreign,
    /// It is not there, or another table has its OID.
    Gone,
}

impl Recorded {
    /// The window, if rows may go there.
    pub fn window(&self) -> Option<Window> {
        if self.state == WindowState::Retiring || self.standing != Standing::Attached {
            return None;
        }
        let leaves = self.leaves.iter().map(|recorded| recorded.leaf.clone()).collect();
        Some(Window { start: self.start, end: self.stop, state: self.state, leaves })
    }
}

/// The windowed table of this OID; `None` if it is none, or is there no more.
pub async fn read(client: &impl GenericClient, ledger: &Ledger, relid: u32) -> Result<Option<Windowed>> {
    Ok(read_where(client, ledger, "d.relid OPERATOR(pg_catalog.=) $1", &[&relid]).await?.pop())
}

/// The windowed table of this name.
pub async fn find(
    client: &impl GenericClient,
    ledger: &Ledger,
    name: &TableName,
) -> Result<Option<Windowed>> {
    let row = client
        .query_one("SELECT pg_catalog.to_regclass($1)::pg_catalog.oid", &[&name.to_string()])
        .await
        .map_err(server_error)?;
    match row.try_get::<_, Option<u32>>(0).map_err(server_error)? {
        Some(relid) => read(client, ledger, relid).await,
        None => Ok(None),
    }
}

/// All windowed tables of the database, by name.
pub async fn read_all(client: &impl GenericClient, ledger: &Ledger) -> Result<Vec<Windowed>> {
    read_where(client, ledger, "true", &[]).await
}

/// The OIDs of all tables that are recorded, those that were dropped included: [`crate::maintain`] forgets them.
pub async fn recorded_tables(client: &impl GenericClient, ledger: &Ledger) -> Result<Vec<u32>> {
    let sql = format!("SELECT relid FROM {} ORDER BY name, relid", ledger.table("windowed"));
    client.query(&sql, &[]).await.map_err(server_error)?.iter().map(|row| get(row, 0)).collect()
}

/// Columns are those of the partition keys, whatever they are called by now.
async fn read_where(
    client: &impl GenericClient,
    ledger: &Ledger,
    condition: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Windowed>> {
    let sql = format!(
        "SELECT d.relid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, a.attname::pg_catalog.text, a.atttypid,
                d.unit, d.width, d.keep, d.max_size, d.min_free, d.ahead, d.lanes,
                coalesce((SELECT ka.attname::pg_catalog.text FROM {windows} w
                            JOIN pg_catalog.pg_partitioned_table k ON k.partrelid OPERATOR(pg_catalog.=) w.top
                            JOIN pg_catalog.pg_attribute ka ON ka.attrelid OPERATOR(pg_catalog.=) w.top
                                 AND ka.attnum OPERATOR(pg_catalog.=) k.partattrs[0]
                           WHERE w.relid OPERATOR(pg_catalog.=) d.relid AND d.key_column IS NOT NULL LIMIT 1),
                         d.key_column),
                d.tablespaces, d.unlogged,
                d.index_kind, d.pages_per_range, d.late, d.idle, d.retired_to,
                o.oid, o.relname::pg_catalog.text, pn.nspname::pg_catalog.text
           FROM {windowed} d
           JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) d.relid
                AND c.relkind OPERATOR(pg_catalog.=) 'p'
           JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
           JOIN pg_catalog.pg_partitioned_table p ON p.partrelid OPERATOR(pg_catalog.=) c.oid
           JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid
                AND a.attnum OPERATOR(pg_catalog.=) p.partattrs[0]
           LEFT JOIN pg_catalog.pg_class o ON o.oid OPERATOR(pg_catalog.=) d.overflow
           LEFT JOIN pg_catalog.pg_namespace pn ON pn.oid OPERATOR(pg_catalog.=) o.relnamespace
          WHERE {condition} ORDER BY 2, 3",
        windowed = ledger.table("windowed"),
        windows = ledger.table("windows"),
    );
    let rows = client.query(&sql, parameters).await.map_err(server_error)?;
    let mut tables = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut table = from_row(row)?;
        table.windows = recorded(client, ledger, &table).await?.iter().filter_map(Recorded::window).collect();
        tables.push(table);
    }
    Ok(tables)
}

fn from_row(row: &Row) -> Result<Windowed> {
    let name = TableName { schema: Some(get(row, 1)?), name: get(row, 2)? };
    let odd = |what: &str| Error::new(Code::Ledger, format!("the ledger has an odd {what} for table {name}"));
    let unit = get::<Option<String>>(row, 5)?;
    let unit = unit.map(|unit| Unit::parse(&unit).ok_or_else(|| odd("unit"))).transpose()?;
    let scale = Scale::of_type(get(row, 4)?, unit).ok_or_else(|| odd("time column"))?;
    let count = |i| get::<i32>(row, i).map(i32::unsigned_abs);
    let policy = Policy {
        width: get(row, 6)?,
        keep: get(row, 7)?,
        max_size: get(row, 8)?,
        min_free: get(row, 9)?,
        ahead: count(10)?,
        lanes: count(11)?,
        key_column: get(row, 12)?,
        tablespaces: get(row, 13)?,
        unlogged: get(row, 14)?,
        index: IndexKind::parse(get(row, 15)?).ok_or_else(|| odd("index"))?,
        pages_per_range: count(16)?,
        late: Late::parse(get(row, 17)?).ok_or_else(|| odd("rule for late rows"))?,
        idle_us: get(row, 18)?,
    };
    let overflow = match get::<Option<u32>>(row, 20)? {
        Some(relid) => Some(Leaf { relid, schema: get(row, 22)?, name: get(row, 21)?, lane: 0 }),
        None => None,
    };
    Ok(Windowed {
        relid: get(row, 0)?,
        time_column: get(row, 3)?,
        time_kind: scale.kind,
        unit,
        retired_to: get(row, 19)?,
        windows: Vec::new(),
        overflow,
        policy,
        name,
    })
}

/// Every window that is recorded of a table, by start.
pub(crate) async fn recorded(
    client: &impl GenericClient,
    ledger: &Ledger,
    table: &Windowed,
) -> Result<Vec<Recorded>> {
    let sql = format!(
        "SELECT w.start, w.stop, w.state,
                CASE WHEN w.summarized_of OPERATOR(pg_catalog.=) pg_catalog.pg_relation_filenode(lc.oid)
                     THEN w.summarized_to ELSE 0 END, w.lane,
                w.top, w.top_name, tc.relname::pg_catalog.text, tn.nspname::pg_catalog.text,
                i.inhparent, i.inhdetachpending,
                w.leaf, w.leaf_name, lc.relname::pg_catalog.text, ln.nspname::pg_catalog.text,
                pg_catalog.pg_relation_filenode(lc.oid)
           FROM {} w
           LEFT JOIN pg_catalog.pg_class tc ON tc.oid OPERATOR(pg_catalog.=) w.top
           LEFT JOIN pg_catalog.pg_namespace tn ON tn.oid OPERATOR(pg_catalog.=) tc.relnamespace
           LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid OPERATOR(pg_catalog.=) w.top
           LEFT JOIN pg_catalog.pg_class lc ON lc.oid OPERATOR(pg_catalog.=) w.leaf
           LEFT JOIN pg_catalog.pg_namespace ln ON ln.oid OPERATOR(pg_catalog.=) lc.relnamespace
          WHERE w.relid OPERATOR(pg_catalog.=) $1 ORDER BY w.start, w.lane",
        ledger.table("windows")
    );
    let rows = client.query(&sql, &[&table.relid]).await.map_err(server_error)?;
    let mut windows: Vec<Recorded> = Vec::new();
    for row in &rows {
        let start: i64 = get(row, 0)?;
        if windows.last().is_none_or(|last| last.start != start) {
            windows.push(from_window_row(row, table)?);
        }
        let Some(window) = windows.last_mut() else { continue };
        let lane = get::<i32>(row, 4)?.unsigned_abs();
        let now: Option<String> = get(row, 13)?;
        let recorded: String = get(row, 12)?;
        // An OID may have been given to another table since: a leaf is known by both.
        let there = now.as_deref() == Some(&recorded);
        if !there && window.standing == Standing::Attached {
            window.standing = Standing::Foreign;
        }
        let schema: Option<String> = get(row, 14)?;
        let leaf = Leaf { relid: get(row, 11)?, schema: schema.unwrap_or_default(), name: recorded, lane };
        if there {
            window.leaves.push(RecordedLeaf { leaf, summarized_to: get(row, 3)?, file: get(row, 15)? });
        }
    }
    Ok(windows)
}

fn from_window_row(row: &Row, table: &Windowed) -> Result<Recorded> {
    let recorded: String = get(row, 6)?;
    let now: Option<String> = get(row, 7)?;
    let parent: Option<u32> = get(row, 9)?;
    let pending = get::<Option<bool>>(row, 10)?.unwrap_or(false);
    let standing = match (now.as_deref() == Some(&recorded), parent) {
        (false, Some(parent)) if parent == table.relid => Standing::Foreign,
        (false, _) => Standing::Gone,
        (true, None) => Standing::Detached,
        (true, Some(parent)) if parent != table.relid => Standing::Gone,
        (true, Some(_)) if pending => Standing::Pending,
        (true, Some(_)) => Standing::Attached,
    };
    let state = match get::<&str>(row, 2)? {
        "open" => WindowState::Open,
        "closed" => WindowState::Closed,
        "retiring" => WindowState::Retiring,
        other => {
            return Err(Error::new(
                Code::Ledger,
                format!("unknown state {other:?} of a window in the ledger"),
            ));
        }
    };
    let schema: Option<String> = get(row, 8)?;
    let top = Leaf { relid: get(row, 5)?, schema: schema.unwrap_or_default(), name: recorded, lane: 0 };
    Ok(Recorded { start: get(row, 0)?, stop: get(row, 1)?, state, top, standing, leaves: Vec::new() })
}

/// A field of an answer; an error of the server's kind where it has another type.
pub(crate) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, i: usize) -> Result<T> {
    row.try_get(i).map_err(server_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(keep: Option<i64>, retired_to: Option<i64>) -> Windowed {
        let window =
            |start: i64| Window { start, end: start + 10, state: WindowState::Open, leaves: Vec::new() };
        Windowed {
            relid: 1,
            name: TableName { schema: Some("s".into()), name: "t".into() },
            time_column: "at".into(),
            time_kind: TimeKind::Bigint,
            unit: Some(Unit::Seconds),
            policy: Policy {
                width: 10,
                keep,
                max_size: None,
                min_free: None,
                ahead: 2,
                lanes: 1,
                key_column: None,
                tablespaces: Vec::new(),
                unlogged: false,
                index: IndexKind::Brin,
                pages_per_range: 128,
                late: Late::Reject,
                idle_us: 1,
            },
            retired_to,
            windows: vec![window(1_000_000), window(1_000_010), window(1_000_030)],
            overflow: None,
        }
    }

    #[test]
    fn a_row_finds_its_window() {
        let table = table(Some(100), Some(999_960));
        let now = 1_000_012;
        let place = |instant| table.place(instant, now);
        for (instant, start) in [(1_000_000, 1_000_000), (1_000_009, 1_000_000), (1_000_010, 1_000_010)] {
            assert!(matches!(place(instant), Place::Window(w) if w.start == start), "{instant}");
        }
        assert_eq!(place(1_000_020), Place::Missing);
        assert_eq!(place(999_999), Place::Missing);
        // Its window ends when everything before was retired, and no later.
        assert_eq!(place(999_960), Place::Missing);
        assert_eq!(place(999_959), Place::Late);
        assert_eq!(place(1_000_040 + 240), Place::TooFarAhead);
        assert_eq!((place(i64::MAX), place(i64::MIN)), (Place::TooFarAhead, Place::Late));
    }

    #[test]
    fn a_window_that_stands_takes_rows_however_old() {
        let table = table(Some(1), Some(1_000_020));
        assert!(matches!(table.place(1_000_005, 9_000_000), Place::Window(_)));
        assert_eq!(table.place(999_990, 1_000_000), Place::Late);
    }

    #[test]
    fn what_retention_would_drop_at_once_is_late() {
        let table = table(Some(100), None);
        // The window 999_900..999_910 is retired at 1_000_010.
        assert_eq!(table.place(999_905, 1_000_009), Place::Missing);
        assert_eq!(table.place(999_905, 1_000_010), Place::Late);
        assert_eq!(super::windows_kept(100, 10, 2), 14);
    }
}
