//! The units of a lane on several servers.

use super::SpreadPlan;
use crate::job::Job;
use crate::lane::Lane;
use crate::plan::{Plan, WirePath};
use crate::progress::Stop;
use crate::session::GONE;
use crate::unit::{Mends, Unit};
use inrush_cluster::{Begun, Drive, Reach, RowShape, Scatter, Watch, Writer};
use inrush_core::{Code, Error, Result};
use inrush_encode::frames::BlockWriter;
use inrush_sink::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio_postgres::Client;

/// The load's one table, among those of a lane.
const TABLE: usize = 0;

impl Watch for Job {
    fn waits(&self) {
        self.tell("somebody moves or alters the table, or waits for it: the load goes on when he is done");
    }

    fn is_stopped(&self) -> bool {
        self.progress.stopping() == Stop::Abort
    }

    fn sent(&self, bytes: u64) {
        self.progress.bytes_out.fetch_add(bytes, Relaxed);
    }
}

/// What sends the rows of a lane to nodes, if they are sent there.
pub(crate) async fn scatter(job: &Job, lane: usize, client: &Client) -> Result<Option<Scatter>> {
    let (Some(spread), Some((ledger, load))) = (&job.plan.spread, &job.ledger) else { return Ok(None) };
    let writer = Writer { origin: ledger.origin(client).await?, load: load.id, epoch: load.epoch, lane };
    let reach = Reach {
        coordinator: job.conninfo.clone(),
        map: spread.map.clone(),
        ledger: ledger.clone(),
        ending: spread.ending,
        settings: spread.settings.clone(),
        direct: job.plan.path == WirePath::Direct,
        nudges: true,
        patience: Duration::from_secs(job.plan.limits.reconnect_secs),
        gone: GONE,
    };
    let mut scatter = Scatter::new(reach, writer, Drive::own()?);
    let table = scatter.add_table(&spread.aim);
    debug_assert_eq!(table, TABLE);
    for shape in row_shapes(&job.plan, spread) {
        scatter.add_shape(table, shape).map_err(|why| changed(&job.plan, &why))?;
    }
    Ok(Some(scatter))
}

/// The shapes of a plan, in their order.
fn row_shapes<'p>(plan: &'p Plan, spread: &'p SpreadPlan) -> impl Iterator<Item = RowShape> + 'p {
    plan.shapes.iter().zip(&spread.fills).enumerate().map(|(number, (shape, fills))| RowShape {
        columns: shape.columns.clone(),
        fills: Arc::clone(fills),
        wire: plan.wire_of(number),
        blocks: plan.layouts.get(number).map(|layout| BlockWriter::new(layout)),
    })
}

impl Lane<'_> {
    /// Takes the guard, and reads behind it where rows belong.
    pub(crate) async fn begin_spread(&mut self, unit: &mut Unit) -> Result<(), Failure> {
        let Some(spread) = &mut self.spread else { return Ok(()) };
        let lacking = unit.mends.as_mut().map(|mends| &mut mends.lacking);
        match spread.begin(self.job, &[TABLE], lacking).await? {
            Begun::Ready => Ok(()),
            Begun::Otherwise(_, why) => Err(Failure::Fatal(changed(&self.job.plan, &why))),
        }
    }

    /// [`Lane::commit`] where the rows are on several nodes.
    pub(crate) async fn commit_spread(&mut self, unit: &mut Unit) -> Result<(), Failure> {
        let (Some(spread), Some((ledger, _)), Some(unit_ledger)) =
            (&mut self.spread, &self.job.ledger, &self.session.ledger)
        else {
            return Ok(());
        };
        let client = &self.session.connected.client;
        // A constraint that is checked so late may refuse a row, as with COMMIT.
        unit.commit_sent = true;
        let prepared = spread.prepare(&unit.record.ranges).await?;
        if unit.mends.is_none() {
            unit_ledger.record(client, &unit.record).await?;
            if let Some(prepared) = &prepared {
                ledger.decide(client, prepared, spread.to_forget()).await?;
            }
        }
        let committed = client.batch_execute("COMMIT").await;
        committed.map_err(|e| self.session.copy_failure(self.job, 0, &e))?;
        spread.committed();
        self.tell_spread(unit).await
    }

    /// Has every node told of a unit that the ledger has. [`Failure::Retry`]: some lack it, and are to be sent it again.
    pub(crate) async fn tell_spread(&mut self, unit: &mut Unit) -> Result<(), Failure> {
        let Some(spread) = &mut self.spread else { return Ok(()) };
        let Some(lacking) = spread.tell(self.job).await? else { return Ok(()) };
        let fact = format!("{} did not get the rows of a unit", lacking.nodes.join(", "));
        let earlier = unit.mends.as_ref().is_some_and(|mends| mends.earlier);
        unit.mends = Some(Mends { lacking, earlier });
        Err(Failure::Retry(Error::new(Code::ConnectionLost, fact)))
    }
}

fn changed(plan: &Plan, why: &str) -> Error {
    let table = plan.table.qualified();
    let fact = format!("{table} is not spread as it was when the load began: {why}");
    Error::new(Code::Table, fact).hint("Give the same command again: what was committed is skipped.")
}
