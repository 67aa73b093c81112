//! BRIN: summarized by us, behind the head and at the end.
//!
//! A range without a summary costs a writer nothing but a look; one with a summary has to be read, compared and perhaps
//! changed for every row, and all writers of a table do so under one buffer's lock. So the ranges that are being written
//! have none, and those behind get theirs here: autovacuum's queue has 256 places for the whole server.
//!
//! Building and summarizing lock a leaf with ShareUpdateExclusive: no writer and no reader waits.

use crate::maintain::Pass;
use crate::policy::IndexKind;
use crate::read::{Leaf, Recorded, RecordedLeaf, WindowState, get};
use inrush_core::{Result, quote_ident};
use inrush_sink::failure::server_error;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_postgres::Client;

/// Blocks behind the end of an open leaf that are left alone: a server extends a table by up to 64 blocks for each
/// writer that waits, at most 512 (hio.c), and fills them in any order.
pub(crate) const MARGIN_BLOCKS: i64 = 1024;
/// Ranges summarized by one statement: its lock keeps autovacuum away from the leaf.
const BATCH_RANGES: i64 = 256;

/// A BRIN index of a leaf.
struct Brin {
    index: u32,
    pages: i64,
}

impl Pass<'_> {
    /// Closes windows that have ended: the index is built where it comes late, every range is summarized.
    pub(crate) async fn close(&mut self, client: &mut Client) -> Result<()> {
        let after = self.close_after();
        for window in self.standing(client, WindowState::Open).await? {
            if window.stop.saturating_add(after) > self.now {
                continue;
            }
            let mut done = true;
            for leaf in &window.leaves {
                self.make_ahead(client).await?;
                done &= self.step() && self.finish_leaf(client, leaf, &window).await?;
            }
            if !done || !self.step() {
                continue;
            }
            let sql = format!(
                "UPDATE {} SET state = 'closed' WHERE relid OPERATOR(pg_catalog.=) $1
                    AND start OPERATOR(pg_catalog.=) $2 AND state OPERATOR(pg_catalog.=) 'open'",
                self.ledger.table("windows")
            );
            client.execute(&sql, &[&self.table.relid, &window.start]).await.map_err(server_error)?;
            let named = self.named(&window);
            self.did.closed.push(named);
        }
        Ok(())
    }

    /// Builds what is missing on a leaf that has ended, and summarizes all of it, the last range that is not full
    /// included. `false`: a lock could not be had, or the pass has no time left.
    async fn finish_leaf(
        &mut self,
        client: &mut Client,
        leaf: &RecordedLeaf,
        window: &Recorded,
    ) -> Result<bool> {
        if self.table.policy.index == IndexKind::BrinAtClose && !self.build(client, &leaf.leaf).await? {
            return Ok(false);
        }
        let indexes = self.brin_indexes(client, &[leaf.leaf.relid]).await?;
        let Some(indexes) = indexes.get(&leaf.leaf.relid) else { return Ok(true) };
        let blocks =
            self.blocks(client, &[leaf.leaf.relid]).await?.get(&leaf.leaf.relid).copied().unwrap_or(0);
        if !self.advance(client, leaf, window.start, indexes, blocks).await? {
            return Ok(false);
        }
        for brin in indexes {
            let sql = format!("SELECT pg_catalog.brin_summarize_new_values({})", brin.index);
            match self.summarize(client, &leaf.leaf, &sql).await? {
                Some(ranges) => self.did.summarized += ranges,
                None => return Ok(false),
            }
        }
        self.record_summarized(client, leaf, window.start, blocks).await?;
        Ok(true)
    }

    /// Summarizes full ranges of open windows behind their heads, and what late rows have added to closed ones.
    pub(crate) async fn summarize_behind(&mut self, client: &mut Client) -> Result<()> {
        let mut windows = self.recorded(client).await?;
        windows.retain(|window| window.window().is_some() && window.start <= self.now);
        let leaves: Vec<u32> =
            windows.iter().flat_map(|w| w.leaves.iter().map(|one| one.leaf.relid)).collect();
        let indexes = self.brin_indexes(client, &leaves).await?;
        let indexed: Vec<u32> = indexes.keys().copied().collect();
        let blocks = self.blocks(client, &indexed).await?;
        for window in &windows {
            for leaf in &window.leaves {
                let Some(indexes) = indexes.get(&leaf.leaf.relid) else { continue };
                let blocks = blocks.get(&leaf.leaf.relid).copied().unwrap_or(0);
                let done = match window.state {
                    WindowState::Closed if blocks > leaf.summarized_to => {
                        self.step() && self.finish_leaf(client, leaf, window).await?
                    }
                    WindowState::Open => {
                        self.advance(client, leaf, window.start, indexes, blocks - MARGIN_BLOCKS).await?
                    }
                    _ => true,
                };
                if !done && self.began.elapsed() > self.options.budget {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Summarizes the full ranges of a leaf before a block, in batches, and records how far it came.
    async fn advance(
        &mut self,
        client: &mut Client,
        leaf: &RecordedLeaf,
        window: i64,
        indexes: &[Brin],
        before: i64,
    ) -> Result<bool> {
        let widest = indexes.iter().map(|brin| brin.pages).max().unwrap_or(1);
        let mut from = leaf.summarized_to;
        while before - from >= widest {
            if self.began.elapsed() > self.options.budget || !self.step() {
                return Ok(false);
            }
            self.make_ahead(client).await?;
            let to = before.min(from + widest * BATCH_RANGES);
            for brin in indexes {
                // From the begin of the range that `from` is in: what is summarized already is passed over.
                let pages = brin.pages;
                let sql = format!(
                    "SELECT pg_catalog.sum(pg_catalog.brin_summarize_range({}, b))::pg_catalog.int4
                       FROM pg_catalog.generate_series({}::pg_catalog.int8, {}, {pages}) b",
                    brin.index,
                    from / pages * pages,
                    to - pages
                );
                match self.summarize(client, &leaf.leaf, &sql).await? {
                    Some(ranges) => self.did.summarized += ranges,
                    None => return Ok(false),
                }
            }
            // A range that `to` lies in is not full yet for the widest index: it comes with the next batch.
            from = to - to % widest;
            self.record_summarized(client, leaf, window, from).await?;
        }
        Ok(true)
    }

    /// Runs a statement that summarizes, and gives its number; `None` if the lock could not be had.
    async fn summarize(&mut self, client: &mut Client, leaf: &Leaf, sql: &str) -> Result<Option<u64>> {
        self.wait_at_most(client, self.gently()).await?;
        let mut turn = crate::turn::Turn::new(format!("summarize {}", leaf.name), self.patience());
        let ranges = loop {
            match client.query_one(sql, &[]).await.map_err(server_error) {
                Ok(row) => break Some(get::<Option<i32>>(&row, 0)?.unwrap_or(0)),
                Err(error) if turn.again(&error).await => {}
                Err(error) if crate::turn::is_about_a_lock(&error) => break None,
                Err(error) => return Err(error),
            }
        };
        // How long it takes is mostly work: only tries that failed are waits.
        if let Some(wait) = turn.told(ranges.is_some()).filter(|wait| wait.tries > 1 || !wait.done) {
            self.did.waits.push(wait);
        }
        Ok(ranges.map(|ranges| u64::from(ranges.unsigned_abs())))
    }

    async fn record_summarized(
        &self,
        client: &mut Client,
        leaf: &RecordedLeaf,
        window: i64,
        blocks: i64,
    ) -> Result<()> {
        let sql = format!(
            "UPDATE {} SET summarized_of = $5,
                    summarized_to = CASE WHEN summarized_of OPERATOR(pg_catalog.=) $5
                                         THEN greatest(summarized_to, $4) ELSE $4 END
              WHERE relid OPERATOR(pg_catalog.=) $1 AND start OPERATOR(pg_catalog.=) $2
                AND leaf OPERATOR(pg_catalog.=) $3",
            self.ledger.table("windows")
        );
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&self.table.relid, &window, &leaf.leaf.relid, &blocks, &leaf.file];
        client.execute(&sql, &parameters).await.map(|_| ()).map_err(server_error)
    }

    /// The index of a leaf that has been without one. Concurrently: late rows are not kept waiting. What an interrupted
    /// build has left is invalid, and goes first.
    async fn build(&mut self, client: &mut Client, leaf: &Leaf) -> Result<bool> {
        let there = client
            .query(
                "SELECT c.relname::pg_catalog.text, i.indisvalid
                   FROM pg_catalog.pg_index i
                   JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid
                   JOIN pg_catalog.pg_am m ON m.oid OPERATOR(pg_catalog.=) c.relam
                        AND m.amname OPERATOR(pg_catalog.=) 'brin'
                   JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid
                        AND a.attnum OPERATOR(pg_catalog.=) i.indkey[0]
                  WHERE i.indrelid OPERATOR(pg_catalog.=) $1 AND a.attname OPERATOR(pg_catalog.=) $2",
                &[&leaf.relid, &self.table.time_column],
            )
            .await
            .map_err(server_error)?;
        let timeout = self.for_an_index();
        let what = format!("index {}", leaf.name);
        for row in &there {
            if get::<bool>(row, 1)? {
                return Ok(true);
            }
            let index = quote_ident(get(row, 0)?);
            let sql = format!("DROP INDEX CONCURRENTLY {}.{index}", quote_ident(&leaf.schema));
            if !self.try_sql(client, &what, &sql, timeout, timeout).await? {
                return Ok(false);
            }
        }
        let sql = format!(
            "CREATE INDEX CONCURRENTLY ON {} USING brin ({}) WITH (pages_per_range = {}, autosummarize = off)",
            leaf.qualified(),
            quote_ident(&self.table.time_column),
            self.table.policy.pages_per_range
        );
        // One try: another would leave another invalid index beside. The next pass removes this one.
        self.try_sql(client, &what, &sql, timeout, Duration::ZERO).await
    }

    /// The valid BRIN indexes of leaves.
    async fn brin_indexes(&self, client: &mut Client, leaves: &[u32]) -> Result<BTreeMap<u32, Vec<Brin>>> {
        let rows = client
            .query(
                "SELECT i.indrelid, i.indexrelid,
                        coalesce((SELECT o.option_value::pg_catalog.int8
                                    FROM pg_catalog.pg_options_to_table(c.reloptions) o
                                   WHERE o.option_name OPERATOR(pg_catalog.=) 'pages_per_range'), 128)
                   FROM pg_catalog.pg_index i
                   JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid
                   JOIN pg_catalog.pg_am m ON m.oid OPERATOR(pg_catalog.=) c.relam
                        AND m.amname OPERATOR(pg_catalog.=) 'brin'
                  WHERE i.indrelid OPERATOR(pg_catalog.=) ANY ($1) AND i.indisvalid ORDER BY 1, 2",
                &[&leaves],
            )
            .await
            .map_err(server_error)?;
        let mut indexes: BTreeMap<u32, Vec<Brin>> = BTreeMap::new();
        for row in &rows {
            let brin = Brin { index: get(row, 1)?, pages: get(row, 2)? };
            indexes.entry(get(row, 0)?).or_default().push(brin);
        }
        Ok(indexes)
    }

    /// Lengths of leaves in blocks.
    async fn blocks(&self, client: &mut Client, leaves: &[u32]) -> Result<BTreeMap<u32, i64>> {
        let rows = client
            .query(
                "SELECT c.oid, coalesce(pg_catalog.pg_relation_size(c.oid::pg_catalog.regclass), 0)
                             OPERATOR(pg_catalog./) pg_catalog.current_setting('block_size')::pg_catalog.int8
                   FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) ANY ($1)",
                &[&leaves],
            )
            .await
            .map_err(server_error)?;
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
    }
}
