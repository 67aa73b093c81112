//! `--fast`: levers chosen by the state of the table, and by the wait profile of the first seconds.
//!
//! Chosen are only levers that weaken neither durability nor uniqueness nor any other check: indexes that nothing
//! depends on are made at the end, and autovacuum is kept away where a load is long enough for it to come.
//!
//! An index costs each row a descent and a write to a page that is seldom the last one; made at the end it costs a
//! sort of all rows, those that were there before included. So it pays where more comes than was there. Where that is
//! not plain from the sizes, the first seconds say how long the load will take as it is.

use super::{Hand, LeverOptions, Pulled, autovacuum, indexes};
use crate::job::Job;
use crate::plan::Plan;
use inrush_core::Result;
use inrush_profile::Class;
use inrush_sink::catalog::Target;
use inrush_sink::connect::connect;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Input below which dropping and making indexes costs more than it brings.
const WORTH_INDEXES: u64 = 16 << 20;
/// Input below which autovacuum hardly comes (it looks once a minute), and a VACUUM at the end only costs.
const WORTH_VACUUM: u64 = 4 << 30;
/// Seconds of the load after which its profile is looked at.
const FIRST_SECONDS: Duration = Duration::from_secs(3);
/// Bytes of table that one process sorts and writes to an index in a second; measured 60 to 120 MB/s for btrees
/// on md5 texts and integers.
const INDEXED_PER_SECOND: f64 = 60e6;
/// Of the time with indexes, what at least goes to them where the server is the limit.
const INDEX_SHARE: f64 = 0.5;

/// What to do about the indexes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Choice {
    /// Drop them before the first row.
    Now,
    /// See how fast it goes with them.
    Later,
    /// Leave them.
    Leave,
}

/// By sizes alone: `input` bytes come (None: not known), `table` bytes are there.
fn by_size(input: Option<u64>, table: u64) -> Choice {
    match input {
        Some(input) if input < WORTH_INDEXES => Choice::Leave,
        Some(input) if table <= input / 2 => Choice::Now,
        _ => Choice::Later,
    }
}

/// By time: whether making `indexes` at the end is sooner than going on with them. `left` seconds are to go,
/// `table` bytes will be there at the end.
#[allow(clippy::cast_precision_loss)] // an estimate
fn pays(left: f64, table: f64, indexes: usize, hands: usize) -> bool {
    let rounds = indexes.div_ceil(hands.max(1)) as f64;
    left * INDEX_SHARE > table * rounds / INDEXED_PER_SECOND
}

/// What the sizes alone decide, before the first row.
pub(super) async fn at_once(
    client: &mut Client,
    hand: &mut Hand<'_>,
    target: &Target,
) -> Result<Vec<Pulled>> {
    let asked: &LeverOptions = &hand.options.levers;
    let mut pulled = Vec::new();
    if !target.access.owned {
        (hand.notice)("--fast: nothing is chosen: only the owner of the table may change it");
        return Ok(pulled);
    }
    let state = target.state(client).await?;
    let input = hand.bytes;
    let table = u64::try_from(state.bytes).unwrap_or_default();
    let size = |bytes: u64| format!("{} MB", bytes.div_ceil(1_000_000));
    if !asked.quiet_autovacuum && input.is_some_and(|input| input >= WORTH_VACUUM) {
        let why = format!("chosen by --fast: {} come", size(input.unwrap_or_default()));
        pulled.extend(autovacuum::pull(client, hand, target).await?.map(|p| Pulled { why: Some(why), ..p }));
    }
    let deferrable = indexes::deferrable(&state).count();
    if asked.defer_indexes.is_none() && deferrable > 0 && by_size(input, table) == Choice::Now {
        let why = format!(
            "chosen by --fast: {} come to the {} that are there",
            size(input.unwrap_or_default()),
            size(table)
        );
        pulled.extend(indexes::pull(client, hand, &[]).await?.map(|p| Pulled { why: Some(why), ..p }));
    }
    if pulled.is_empty() && deferrable == 0 {
        (hand.notice)("--fast: the table has no index that could be made later");
    }
    Ok(pulled)
}

/// Looks at the profile of the first seconds, and drops the indexes in the middle of the load where that pays. The
/// server lets units in flight end and has the others wait for it.
pub(crate) async fn after_first_seconds(
    job: &Job,
    options: &crate::options::Options,
    notice: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Pulled>> {
    let asked = &options.levers;
    let Some((ledger, load)) = &job.ledger else { return Ok(Vec::new()) };
    if !asked.fast || asked.defer_indexes.is_some() {
        return Ok(Vec::new());
    }
    let started = Instant::now();
    while started.elapsed() < FIRST_SECONDS {
        if job.progress.over.load(Relaxed) {
            return Ok(Vec::new());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut connected = connect(&job.conninfo, "inrush load: levers").await?;
    let client = &mut connected.client;
    let name = inrush_sink::catalog::TableName {
        schema: Some(job.plan.table.schema.clone()),
        name: job.plan.table.name.clone(),
    };
    let target = inrush_sink::catalog::describe(client, &name).await?;
    let state = target.state(client).await?;
    let deferrable = indexes::deferrable(&state).count();
    if !target.access.owned || deferrable == 0 {
        return Ok(Vec::new());
    }
    let times = job.progress.recorder.times();
    let sum = times.sum();
    let waiting = if sum > 0.0 { (times.of(Class::Client) + times.of(Class::Network)) / sum } else { 0.0 };
    if waiting > 0.5 {
        notice(&format!(
            "--fast: the indexes stay: the server waits for rows {:.0} % of the time",
            waiting * 100.0
        ));
        return Ok(Vec::new());
    }
    let Some((left, grown)) = estimate(&job.plan, job) else { return Ok(Vec::new()) };
    #[allow(clippy::cast_precision_loss)] // an estimate
    let table = state.bytes as f64 + grown;
    if !pays(left, table, deferrable, job.plan.hands()) {
        notice(&format!(
            "--fast: the indexes stay: {left:.0} s are left, and making {deferrable} of them over {:.0} MB takes about as long",
            table / 1e6
        ));
        return Ok(Vec::new());
    }
    let (mut load, mut table_of_load) = (load.clone(), job.plan.table.clone());
    let mut hand = Hand {
        options,
        ledger,
        load: &mut load,
        table: &mut table_of_load,
        resumed: true,
        bytes: None,
        notice,
    };
    let why = format!(
        "chosen by --fast after {:.0} s: the server spent {:.0} % of its time on the rows, and {left:.0} s were left",
        job.progress.started.elapsed().as_secs_f64(),
        (1.0 - waiting) * 100.0
    );
    let pulled = indexes::pull(client, &mut hand, &[]).await?;
    Ok(pulled.map(|p| Pulled { why: Some(why), ..p }).into_iter().collect())
}

/// Seconds to go at the rate so far, and bytes by which the table will still grow. `None` where the end is not known.
#[allow(clippy::cast_precision_loss)] // an estimate
fn estimate(plan: &Plan, job: &Job) -> Option<(f64, f64)> {
    let total: u64 = plan.inputs.iter().map(|input| input.stored_len()).sum::<Option<u64>>()?;
    let read = job.progress.bytes_read.load(Relaxed).min(total);
    let seconds = job.progress.started.elapsed().as_secs_f64();
    if read == 0 {
        return None;
    }
    let left = (total - read) as f64;
    let sent_per_read = job.progress.bytes_out.load(Relaxed) as f64 / read as f64;
    Some((left * seconds / read as f64, left * sent_per_read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_decide_where_they_are_plain() {
        assert_eq!(by_size(Some(1 << 20), 0), Choice::Leave);
        assert_eq!(by_size(Some(1 << 30), 0), Choice::Now);
        assert_eq!(by_size(Some(1 << 30), 1 << 29), Choice::Now);
        assert_eq!(by_size(Some(1 << 30), 1 << 30), Choice::Later);
        assert_eq!(by_size(None, 0), Choice::Later);
    }

    #[test]
    fn time_decides_otherwise() {
        // A tenth more for a large table: going on is sooner.
        assert!(!pays(60.0, 10e9, 3, 2));
        // As much again: making them anew is.
        assert!(pays(600.0, 10e9, 1, 2));
        assert!(!pays(10.0, 1e9, 1, 1));
    }
}
