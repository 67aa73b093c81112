//! Windows go away: by age, by size, by want of room.
//!
//! The order is what makes it safe to die in between, and the lock that is needed is the reason for each step:
//! 1. record it: no row is sent there any more, and the window is never made again;
//! 2. TRUNCATE the leaves: the room is free at once. The lock is on the leaves, which no writer uses any more; a query
//!    that has read them keeps its lock until its transaction ends, so each try is short;
//! 3. DETACH CONCURRENTLY: waits, without a lock that anybody queues behind, until no query knows the partition;
//! 4. DROP what is now a table of its own, and forget it.

use crate::maintain::{Pass, Retired, sql_list};
use crate::read::{Recorded, Standing, WindowState, get};
use crate::space::{self, LeafSize};
use inrush_core::{Error, Result};
use inrush_sink::failure::server_error;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// A try to lock many leaves waits for each of them no shorter than this.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(5);

impl Pass<'_> {
    /// Retires what is to be retired, and finishes what earlier passes began.
    pub(crate) async fn retire(&mut self, client: &mut Client) -> Result<()> {
        self.leave_at = Instant::now() + self.patience();
        let begun: Vec<Recorded> = self.recorded(client).await?;
        for window in begun.iter().filter(|window| window.state == WindowState::Retiring) {
            self.tell_retired(window, "left", 0);
        }
        for window in &begun {
            if self.is_too_old(window) && !self.record_retired(client, window, "age").await? {
                return Ok(());
            }
        }
        let mut going: Vec<Recorded> = self.recorded(client).await?;
        going.retain(|window| window.state == WindowState::Retiring);
        for window in &going {
            self.empty(client, window).await?;
        }
        self.relieve(client).await?;
        // One at a time: the server knows one pending detach of a parent.
        let mut last: Vec<Recorded> = self.recorded(client).await?;
        last.retain(|window| window.state == WindowState::Retiring);
        last.sort_by_key(|window| (window.standing != Standing::Pending, window.start));
        for window in last {
            if Instant::now() > self.leave_at || !self.remove(client, window).await? {
                break;
            }
        }
        self.forget_strangers(client).await
    }

    fn is_too_old(&self, window: &Recorded) -> bool {
        let Some(keep) = self.table.policy.keep else { return false };
        // One that somebody else has detached is theirs: kept for some reason.
        window.window().is_some() && window.stop.saturating_add(keep) <= self.now
    }

    fn tell_retired(&mut self, window: &Recorded, why: &'static str, bytes: i64) {
        let window = self.named(window);
        self.did.retired.push(Retired { window, why, bytes, gone: false });
    }

    /// Step 1. `false`: the pass ends here.
    async fn record_retired(
        &mut self,
        client: &mut Client,
        window: &Recorded,
        why: &'static str,
    ) -> Result<bool> {
        if !self.step() {
            return Ok(false);
        }
        let leaves: Vec<u32> = window.leaves.iter().map(|one| one.leaf.relid).collect();
        let bytes = "SELECT coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(l::pg_catalog.regclass)), 0)::pg_catalog.int8
                       FROM pg_catalog.unnest($1::pg_catalog.oid[]) l";
        let bytes: i64 = get(&client.query_one(bytes, &[&leaves]).await.map_err(server_error)?, 0)?;
        self.wait_at_most(client, self.gently()).await?;
        let tx = client.transaction().await.map_err(server_error)?;
        let relid = self.table.relid;
        let sql = format!(
            "UPDATE {} SET retired_to = greatest(retired_to, $2) WHERE relid OPERATOR(pg_catalog.=) $1",
            self.ledger.table("windowed")
        );
        tx.execute(&sql, &[&relid, &window.stop]).await.map_err(server_error)?;
        let sql = format!(
            "UPDATE {} SET state = 'retiring'
              WHERE relid OPERATOR(pg_catalog.=) $1 AND start OPERATOR(pg_catalog.=) $2",
            self.ledger.table("windows")
        );
        tx.execute(&sql, &[&relid, &window.start]).await.map_err(server_error)?;
        tx.commit().await.map_err(server_error)?;
        self.tell_retired(window, why, bytes);
        Ok(true)
    }

    /// Step 2. Whether the leaves are empty now. Where queries over all windows follow each other without a gap the lock
    /// may never be had; the window goes all the same: once it is detached nobody finds it any more.
    async fn empty(&mut self, client: &mut Client, window: &Recorded) -> Result<bool> {
        if window.standing != Standing::Attached || window.leaves.is_empty() {
            return Ok(true);
        }
        if Instant::now() > self.leave_at || !self.step() {
            return Ok(false);
        }
        let leaves = sql_list(window.leaves.iter().map(|one| &one.leaf));
        // The first leaf is locked while the last is waited for.
        let count = u32::try_from(window.leaves.len()).unwrap_or(u32::MAX);
        let timeout = (self.options.lock_timeout / count).max(SHORTEST_TIMEOUT);
        let what = format!("truncate {}", window.top.name);
        match self.try_sql(client, &what, &format!("TRUNCATE {leaves}"), timeout, self.patience() / 10).await
        {
            // What cannot be emptied goes when it is detached: a foreign key may refer to it.
            Err(error) if !client.is_closed() => {
                self.did.notes.push(cannot(&what, &error));
                Ok(false)
            }
            outcome => outcome,
        }
    }

    /// Steps 3 and 4. Whether it is gone.
    async fn remove(&mut self, client: &mut Client, mut window: Recorded) -> Result<bool> {
        let parent = self.table.name.to_string();
        let name = window.top.qualified();
        // Attached, pending, detached: two tries to get from each to the next.
        for _ in 0..6 {
            self.make_ahead(client).await?;
            if Instant::now() > self.leave_at || !self.step() {
                return Ok(false);
            }
            let detach = match window.standing {
                Standing::Attached => format!("ALTER TABLE {parent} DETACH PARTITION {name} CONCURRENTLY"),
                Standing::Pending => format!("ALTER TABLE {parent} DETACH PARTITION {name} FINALIZE"),
                Standing::Detached => return self.drop_table(client, &window).await,
                Standing::Foreign | Standing::Gone => return Ok(true),
            };
            let what = format!("detach {}", window.top.name);
            // ShareUpdateExclusive on the parent, then waits for transactions: nobody queues behind either. The lock on
            // the partition itself comes when no query that goes through the parent can know it.
            let timeout = self.gently();
            match self.try_sql(client, &what, &detach, timeout, timeout).await {
                Ok(_) => {}
                Err(error) if error.sqlstate_text() == Some("55000") => {
                    // Interrupted after its first half, or another one is pending.
                    let pending = self.state_of(client, &window).await?;
                    if pending.is_none_or(|now| now.standing == window.standing) {
                        self.did.notes.push(cannot(&what, &error));
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
            let before = window.standing;
            match self.state_of(client, &window).await? {
                Some(now) if now.standing == before => return Ok(false),
                Some(now) => window = now,
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    async fn state_of(&self, client: &mut Client, window: &Recorded) -> Result<Option<Recorded>> {
        Ok(self.recorded(client).await?.into_iter().find(|now| now.start == window.start))
    }

    /// Step 4. The table and what is recorded of it go in one transaction.
    async fn drop_table(&mut self, client: &mut Client, window: &Recorded) -> Result<bool> {
        let sql = format!(
            "BEGIN; DROP TABLE {};
             DELETE FROM {} WHERE relid OPERATOR(pg_catalog.=) {}::pg_catalog.oid
                AND start OPERATOR(pg_catalog.=) {}::pg_catalog.int8; COMMIT",
            window.top.qualified(),
            self.ledger.table("windows"),
            self.table.relid,
            window.start
        );
        let what = format!("drop {}", window.top.name);
        let timeout = self.options.lock_timeout;
        let done = match self.try_dropping(client, &what, &sql, timeout).await {
            Ok(done) => done,
            Err(error) => {
                self.did.notes.push(cannot(&what, &error));
                false
            }
        };
        if done && let Some(told) = self.did.retired.iter_mut().find(|told| told.window.start == window.start)
        {
            told.gone = true;
        }
        Ok(done)
    }

    /// A script with its own BEGIN leaves a failed transaction open when it fails.
    async fn try_dropping(
        &mut self,
        client: &mut Client,
        what: &str,
        sql: &str,
        timeout: Duration,
    ) -> Result<bool> {
        self.wait_at_most(client, timeout).await?;
        let mut turn = crate::turn::Turn::new(what, self.patience() / 10);
        let done = loop {
            let Err(error) = client.batch_execute(sql).await.map_err(server_error) else { break true };
            client.batch_execute("ROLLBACK").await.map_err(server_error)?;
            if turn.again(&error).await {
                continue;
            }
            if crate::turn::is_about_a_lock(&error) {
                break false;
            }
            return Err(error);
        };
        self.did.waits.extend(turn.told(done));
        Ok(done)
    }

    /// Removes what is recorded of windows that somebody else has dropped or detached: the table is theirs then.
    async fn forget_strangers(&mut self, client: &mut Client) -> Result<()> {
        for window in self.recorded(client).await? {
            if window.standing == Standing::Foreign {
                let (name, from) = (&window.top.name, self.table.scale().text(window.start));
                self.did.notes.push(format!(
                    "window {from} ({name}) is left alone: a table of it was renamed or dropped by somebody else"
                ));
                continue;
            }
            let gone = window.standing == Standing::Gone;
            let detached = window.standing == Standing::Detached && window.state != WindowState::Retiring;
            if !(gone || detached) || !self.step() {
                continue;
            }
            let sql = format!(
                "DELETE FROM {} WHERE relid OPERATOR(pg_catalog.=) $1 AND start OPERATOR(pg_catalog.=) $2",
                self.ledger.table("windows")
            );
            client.execute(&sql, &[&self.table.relid, &window.start]).await.map_err(server_error)?;
            let (name, from) = (&window.top.name, self.table.scale().text(window.start));
            self.did
                .notes
                .push(format!("window {from} ({name}) was dropped, detached or renamed by somebody else"));
        }
        Ok(())
    }

    /// Retires the oldest windows of tablespaces that are too full.
    async fn relieve(&mut self, client: &mut Client) -> Result<()> {
        let policy = self.table.policy.clone();
        if policy.max_size.is_none() && policy.min_free.is_none() {
            return Ok(());
        }
        // Read again: what went by age takes no room any more.
        let windows = self.recorded(client).await?;
        let mut table = self.table.clone();
        table.windows = windows.iter().filter_map(Recorded::window).collect();
        let sizes = space::sizes(client, &table).await?;
        let mut taken: BTreeMap<&str, i64> = BTreeMap::new();
        for size in &sizes {
            *taken.entry(&size.tablespace).or_default() += size.bytes;
        }
        let spaces: Vec<&str> = taken.keys().copied().collect();
        // Those that have ended, the oldest first: never the one that is being written.
        let mut ended: Vec<&Recorded> =
            windows.iter().filter(|w| w.window().is_some() && w.stop <= self.now).collect();
        for tablespace in spaces {
            while policy.max_size.is_some_and(|max| taken.get(tablespace).is_some_and(|bytes| *bytes > max)) {
                let Some(window) = self.retire_oldest(client, &mut ended, &sizes, tablespace, "size").await?
                else {
                    break;
                };
                // It gave back room wherever it had leaves.
                for size in sizes.iter().filter(|size| has_leaf(window, size.relid)) {
                    *taken.entry(&size.tablespace).or_default() -= size.bytes;
                }
            }
            while let Some(min) = policy.min_free {
                let free = match space::free(client, tablespace).await {
                    Ok(free) => free,
                    Err(error) => {
                        self.did.notes.push(error.fact().to_owned());
                        break;
                    }
                };
                if free >= min.unsigned_abs()
                    || self.retire_oldest(client, &mut ended, &sizes, tablespace, "space").await?.is_none()
                {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Retires the oldest of these windows that takes room in a tablespace, and gives it. `None`: there is none, or its
    /// leaves cannot be emptied now.
    async fn retire_oldest<'w>(
        &mut self,
        client: &mut Client,
        ended: &mut Vec<&'w Recorded>,
        sizes: &[LeafSize],
        tablespace: &str,
        why: &'static str,
    ) -> Result<Option<&'w Recorded>> {
        let takes_room = |window: &&Recorded| {
            let here = |size: &&LeafSize| size.tablespace == tablespace && has_leaf(window, size.relid);
            sizes.iter().filter(here).any(|size| size.bytes > 0)
        };
        let Some(i) = ended.iter().position(takes_room) else { return Ok(None) };
        let window = ended.remove(i);
        if !self.record_retired(client, window, why).await? || !self.empty(client, window).await? {
            return Ok(None);
        }
        Ok(Some(window))
    }
}

fn has_leaf(window: &Recorded, relid: u32) -> bool {
    window.leaves.iter().any(|one| one.leaf.relid == relid)
}

fn cannot(what: &str, error: &Error) -> String {
    format!("cannot {what}: {}", error.fact())
}
