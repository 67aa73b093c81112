//! One pass of maintenance: make windows ahead, retire, close, summarize; and finish what an earlier pass left half done.

use crate::leaf::make;
use crate::overflow;
use crate::read::{Leaf, Recorded, Standing, WindowState, Windowed, get, read, recorded};
use crate::time::Span;
use crate::turn::{Turn, Wait, is_about_a_lock};
use inrush_core::Result;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::Ledger;
use serde::Serialize;
use std::time::{Duration, Instant, SystemTime};
use tokio_postgres::{Client, GenericClient};

/// First number of the advisory lock of a table's maintainer (the second is the table's OID).
const MAINTAINING: i32 = 7118;
/// A window is closed so long after its end, or after its own length if that is less: most late rows are in by then.
const CLOSE_AFTER: Span = Span::from_us(60_000_000);

/// How a pass works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Longest wait for a lock that others may have to queue behind.
    pub lock_timeout: Duration,
    /// Longest wait for one that holds up nobody (ShareUpdateExclusive), and for transactions to end.
    pub gentle_timeout: Duration,
    /// As `gentle_timeout`, for building an index: giving up late costs the whole build.
    pub index_timeout: Duration,
    /// How long a step is tried again before it is left for the next pass.
    pub patience: Duration,
    /// How long a pass summarizes, before it leaves the rest for the next.
    pub budget: Duration,
    /// Ends the pass after so many steps, for tests of what a crash leaves.
    pub steps: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lock_timeout: Duration::from_millis(50),
            gentle_timeout: Duration::from_secs(5),
            index_timeout: Duration::from_secs(60),
            patience: Duration::from_secs(5),
            budget: Duration::from_secs(20),
            steps: None,
        }
    }
}

/// A window in a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// Its first instant.
    pub start: i64,
    /// The same for people.
    pub from: String,
    /// The name of its table.
    pub name: String,
}

/// A window that was retired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Retired {
    /// Which.
    #[serde(flatten)]
    pub window: Named,
    /// `age`, `size` or `space`; `left` for one that an earlier pass began to retire.
    pub why: &'static str,
    /// Bytes given back.
    pub bytes: i64,
    /// Whether nothing of it is left.
    pub gone: bool,
}

/// What a pass has done.
#[derive(Debug, Default, Serialize)]
pub struct Maintained {
    /// OID of the table.
    pub relid: u32,
    /// Its name, as it was recorded if it is there no more; empty if nothing is known of it.
    pub table: String,
    /// Another maintainer was at work: nothing was done.
    pub busy: bool,
    /// The table was dropped, and what the ledger had of it has been removed.
    pub forgotten: bool,
    /// Windows made.
    pub made: Vec<Named>,
    /// Windows closed.
    pub closed: Vec<Named>,
    /// Ranges of BRIN indexes summarized.
    pub summarized: u64,
    /// Windows retired.
    pub retired: Vec<Retired>,
    /// What waited for a lock.
    pub waits: Vec<Wait>,
    /// What could not be done, and why.
    pub notes: Vec<String>,
}

impl Maintained {
    /// Whether there is anything to tell.
    pub fn did_something(&self) -> bool {
        self.forgotten
            || self.summarized > 0
            || !(self.made.is_empty()
                && self.closed.is_empty()
                && self.retired.is_empty()
                && self.notes.is_empty())
    }

    /// Milliseconds of the longest wait.
    pub fn longest_wait_ms(&self) -> f64 {
        self.waits.iter().map(|wait| wait.longest_try_ms).fold(0.0, f64::max)
    }
}

/// One pass over one table. Safe beside other maintainers (the second does nothing), and at any time: what an earlier
/// one has left half done is finished. A pass that is dropped half-way leaves its lock with the connection, which has to
/// be closed then. `now` is the server's time if it is not said: one wrong clock among many must not retire windows.
///
/// # Errors
/// What the server says. Locks that cannot be had are no errors: they are waits that were not done.
pub async fn maintain(
    client: &mut Client,
    ledger: &Ledger,
    relid: u32,
    now: impl Into<Option<SystemTime>>,
    options: &Options,
) -> Result<Maintained> {
    let mut did = Maintained { relid, ..Maintained::default() };
    let now = match now.into() {
        Some(now) => now,
        None => server_time(client).await?,
    };
    let lock = "SELECT pg_catalog.pg_try_advisory_lock($1, $2), pg_catalog.current_setting('lock_timeout')";
    let row = client.query_one(lock, &[&MAINTAINING, &relid.cast_signed()]).await.map_err(server_error)?;
    if !get::<bool>(&row, 0)? {
        did.busy = true;
        return Ok(did);
    }
    let before: String = get(&row, 1)?;
    let outcome = match read(client, ledger, relid).await {
        Ok(Some(table)) => {
            did.table = table.name.to_string();
            let mut pass = Pass {
                now: table.instant(now),
                started: now,
                made_at: None,
                leave_at: Instant::now(),
                table,
                ledger,
                options: options.clone(),
                steps: options.steps,
                began: Instant::now(),
                did: &mut did,
            };
            pass.run(client).await
        }
        Ok(None) => forget(client, ledger, relid).await.map(|name| {
            did.forgotten = name.is_some();
            did.table = name.unwrap_or_default();
        }),
        Err(error) => Err(error),
    };
    // On a connection that is lost both are gone with it, and the outcome says why.
    let end =
        "SELECT pg_catalog.set_config('lock_timeout', $1, false), pg_catalog.pg_advisory_unlock($2, $3)";
    let ended = client.query(end, &[&before, &MAINTAINING, &relid.cast_signed()]).await.map_err(server_error);
    outcome.and(ended.map(|_| did))
}

/// Removes what the ledger has of a table that was dropped; gives the name that it had, if it was known.
async fn forget(client: &mut Client, ledger: &Ledger, relid: u32) -> Result<Option<String>> {
    let there = "SELECT 1 FROM pg_catalog.pg_class WHERE oid OPERATOR(pg_catalog.=) $1";
    if client.query_opt(there, &[&relid]).await.map_err(server_error)?.is_some() {
        return Ok(None);
    }
    let tx = client.transaction().await.map_err(server_error)?;
    for name in ["windows", "progress", "progress_unlogged"] {
        let sql = format!("DELETE FROM {} WHERE relid OPERATOR(pg_catalog.=) $1", ledger.table(name));
        tx.execute(&sql, &[&relid]).await.map_err(server_error)?;
    }
    let sql = format!(
        "DELETE FROM {} WHERE relid OPERATOR(pg_catalog.=) $1 RETURNING name",
        ledger.table("windowed")
    );
    let row = tx.query_opt(&sql, &[&relid]).await.map_err(server_error)?;
    tx.commit().await.map_err(server_error)?;
    row.map(|row| get(&row, 0)).transpose()
}

/// The time of the server's clock.
pub(crate) async fn server_time(client: &impl GenericClient) -> Result<SystemTime> {
    let sql = "SELECT pg_catalog.clock_timestamp()";
    get(&client.query_one(sql, &[]).await.map_err(server_error)?, 0)
}

/// A pass at work.
pub(crate) struct Pass<'a> {
    /// The time of the clock, moved on while the pass is at work.
    pub now: i64,
    started: SystemTime,
    /// The window that was the current one when windows were last made.
    made_at: Option<i64>,
    /// When retiring is left for the next pass.
    pub leave_at: Instant,
    pub table: Windowed,
    pub ledger: &'a Ledger,
    pub options: Options,
    pub steps: Option<u32>,
    pub began: Instant,
    pub did: &'a mut Maintained,
}

/// What a pass does, in this order.
#[derive(Clone, Copy)]
enum Stage {
    Make,
    Retire,
    Close,
    Summarize,
}

impl Pass<'_> {
    async fn run(&mut self, client: &mut Client) -> Result<()> {
        // First what writers need. A reader that will not go must not keep windows from being made, and a window that
        // cannot be made must not keep the disk from being emptied: each goes as far as it can, and the first error is
        // the outcome.
        let mut outcome = overflow::widen(client, &self.table, self.gently()).await;
        for stage in [Stage::Make, Stage::Retire, Stage::Close, Stage::Summarize] {
            if client.is_closed() {
                break;
            }
            let done = match stage {
                Stage::Make => self.make_ahead(client).await,
                Stage::Retire => self.retire(client).await,
                Stage::Close => self.close(client).await,
                Stage::Summarize => self.summarize_behind(client).await,
            };
            outcome = outcome.and(done);
        }
        outcome
    }

    /// Whether a further step may be done.
    pub(crate) fn step(&mut self) -> bool {
        match &mut self.steps {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }

    /// Makes the windows ahead of now, if time has come to another window since it was last done. To be called between
    /// all steps that take time: writers need the windows, whatever else is to be done.
    pub(crate) async fn make_ahead(&mut self, client: &mut Client) -> Result<()> {
        self.now = self.table.instant(self.started + self.began.elapsed());
        let mut start = self.table.window_start(self.now);
        if self.made_at == Some(start) {
            return Ok(());
        }
        self.made_at = Some(start);
        let windows = recorded(client, self.ledger, &self.table).await?;
        let width = self.table.policy.width;
        for _ in 0..=self.table.policy.ahead {
            let there =
                windows.iter().any(|window| window.start == start && window.standing != Standing::Gone);
            if !there && self.step() {
                self.make_one(client, start).await?;
            }
            start = start.saturating_add(width);
        }
        Ok(())
    }

    async fn make_one(&mut self, client: &mut Client, start: i64) -> Result<()> {
        let mut turn = Turn::new(format!("make {}", self.table.scale().text(start)), self.patience());
        let made = loop {
            match make(client, self.ledger, &self.table, start, &self.options).await {
                Err(error) if turn.again(&error).await => {}
                Err(error) if is_about_a_lock(&error) => break None,
                other => break Some(other?),
            }
        };
        self.did.waits.extend(turn.told(made.is_some()));
        if let Some(Some(window)) = made {
            let leaf = window.leaves.first();
            let name = match (&leaf, window.leaves.len()) {
                (Some(leaf), 1) => leaf.name.clone(),
                (Some(leaf), n) => format!("{} and {} more", leaf.name, n - 1),
                (None, _) => String::new(),
            };
            self.did.made.push(Named { start, from: self.table.scale().text(start), name });
        }
        Ok(())
    }

    /// The time in which writers come to a quarter of the windows ahead: no single wait of a pass may be longer.
    fn hold_up(&self) -> Duration {
        let width = self.table.scale().span(self.table.policy.width).us().unsigned_abs();
        Duration::from_micros(width.saturating_mul(u64::from(self.table.policy.ahead)) / 4)
    }

    /// [`Options::gentle_timeout`], as far as the windows ahead allow.
    pub(crate) fn gently(&self) -> Duration {
        self.options.gentle_timeout.min(self.hold_up())
    }

    /// [`Options::index_timeout`], as far as the windows ahead allow.
    pub(crate) fn for_an_index(&self) -> Duration {
        self.options.index_timeout.min(self.hold_up())
    }

    /// [`Options::patience`], as far as the windows ahead allow.
    pub(crate) fn patience(&self) -> Duration {
        self.options.patience.min(self.hold_up())
    }

    /// The time after which a window counts as ended.
    pub(crate) fn close_after(&self) -> i64 {
        let usual = self.table.scale().length(CLOSE_AFTER).unwrap_or(0);
        usual.min(self.table.policy.width)
    }

    pub(crate) fn named(&self, window: &Recorded) -> Named {
        Named {
            start: window.start,
            from: self.table.scale().text(window.start),
            name: window.top.name.clone(),
        }
    }

    pub(crate) async fn recorded(&self, client: &impl GenericClient) -> Result<Vec<Recorded>> {
        recorded(client, self.ledger, &self.table).await
    }

    /// Windows that stand, with the state that is asked for.
    pub(crate) async fn standing(
        &self,
        client: &impl GenericClient,
        state: WindowState,
    ) -> Result<Vec<Recorded>> {
        let mut windows = self.recorded(client).await?;
        windows.retain(|window| window.state == state && window.standing == Standing::Attached);
        Ok(windows)
    }

    /// Sets how long statements of the session wait for a lock, until the pass ends.
    pub(crate) async fn wait_at_most(&self, client: &impl GenericClient, timeout: Duration) -> Result<()> {
        let timeout = timeout.as_millis().max(1).to_string();
        let sql = "SELECT pg_catalog.set_config('lock_timeout', $1, false)";
        client.query(sql, &[&timeout]).await.map(|_| ()).map_err(server_error)
    }

    /// Runs statements with a lock timeout until they succeed, or patience ends: `false`. Other errors are errors.
    /// What cannot run in a transaction block has to come alone.
    pub(crate) async fn try_sql(
        &mut self,
        client: &mut Client,
        what: &str,
        sql: &str,
        timeout: Duration,
        patience: Duration,
    ) -> Result<bool> {
        self.wait_at_most(client, timeout).await?;
        let mut turn = Turn::new(what, patience);
        let done = loop {
            match client.batch_execute(sql).await.map_err(server_error) {
                Ok(()) => break true,
                Err(error) if turn.again(&error).await => {}
                Err(error) if is_about_a_lock(&error) => break false,
                Err(error) => return Err(error),
            }
        };
        self.did.waits.extend(turn.told(done));
        Ok(done)
    }
}

/// Leaves as a list for SQL.
pub(crate) fn sql_list<'l>(leaves: impl Iterator<Item = &'l Leaf>) -> String {
    leaves.map(Leaf::qualified).collect::<Vec<_>>().join(", ")
}
