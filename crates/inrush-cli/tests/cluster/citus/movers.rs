//! Shards that move, split, or become another table's while rows come, and whatever dies meanwhile.

use super::server::{Citus, require_citus};
use crate::harness::Random;
use crate::loads::{Place, end, wait_until};
use crate::story::{Fault, STEPS, Side, Story, Then, summary};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// A mover may wait for a unit, and no longer: loosely, on a busy machine.
const SOON: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mover {
    MoveBlocking,
    MoveLogical,
    SplitBlocking,
    SplitLogical,
    Alter,
    Undistribute,
}

pub(super) const MOVERS: [Mover; 6] = [
    Mover::MoveBlocking,
    Mover::MoveLogical,
    Mover::SplitBlocking,
    Mover::SplitLogical,
    Mover::Alter,
    Mover::Undistribute,
];

impl Mover {
    /// Does it to some shard of `t`, or to the table; gives what it was, and how long it took.
    pub(super) fn run(self, place: &dyn Place) -> String {
        let mode = if matches!(self, Mover::MoveLogical | Mover::SplitLogical) {
            "force_logical"
        } else {
            "block_writes"
        };
        let some = "FROM (SELECT s.shardid, s.shardminvalue::bigint lo, s.shardmaxvalue::bigint hi, n.nodename, n.nodeport,
                                 n.nodeid, m.nodename AS toname, m.nodeport AS toport, m.nodeid AS toid
                            FROM pg_dist_shard s JOIN pg_dist_placement p USING (shardid) JOIN pg_dist_node n USING (groupid),
                                 pg_dist_node m
                           WHERE s.logicalrelid = 't'::regclass AND m.groupid NOT IN (0, n.groupid)
                             AND m.noderole = 'primary' ORDER BY random() LIMIT 1 OFFSET 0) x";
        let sql = match self {
            Mover::MoveBlocking | Mover::MoveLogical => format!(
                "SELECT citus_move_shard_placement(shardid, nodename, nodeport, toname, toport, '{mode}') {some}"
            ),
            Mover::SplitBlocking | Mover::SplitLogical => format!(
                "SELECT citus_split_shard_by_split_points(shardid, ARRAY[((lo + hi) / 2)::text], ARRAY[nodeid, toid]::int[],
                                                          '{mode}') {some}"
            ),
            Mover::Alter => {
                let count = place.sql("SELECT count(*) + 1 FROM pg_dist_shard WHERE logicalrelid = 't'::regclass");
                format!("SELECT alter_distributed_table('t', shard_count := {count}, cascade_to_colocated := false)")
            }
            Mover::Undistribute => "SELECT undistribute_table('t')".into(),
        };
        let began = Instant::now();
        match place.try_psql(&sql) {
            Ok(_) => format!("{self:?} took {:?}", began.elapsed()),
            // Servers may forbid the library of Citus that it needs.
            Err(error) if error.contains("output plugin") => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: {self:?} is not to be had on this cluster");
                format!("no {self:?}")
            }
            Err(error) => panic!("{self:?} failed after {:?}: {error}", began.elapsed()),
        }
    }

    /// Afterwards the table has another OID.
    fn replaces_table(self) -> bool {
        matches!(self, Mover::Alter | Mover::Undistribute)
    }
}

pub(super) fn table(citus: &Citus) {
    citus.sql(
        "DROP TABLE IF EXISTS t; DROP SCHEMA IF EXISTS inrush_ledger CASCADE; SET citus.shard_count = 4;
         CREATE TABLE t (id int PRIMARY KEY, info text); SELECT create_distributed_table('t', 'id', colocate_with := 'none')",
    );
}

/// Whoever moves shards while clients work waits for a unit, and nothing is lost, doubled or misplaced.
#[test]
fn movers_during_loads() {
    let citus = require_citus!();
    let mut random = Random::from_environment("citus movers");
    for mover in MOVERS {
        table(&citus);
        let story = Story::new(Box::new(&citus), &["--jobs", "2", "--max-rate", "25K"]);
        let mut told = format!("{mover:?}\n");
        let mut running = story.start();
        let mut moved = 0;
        wait_until("rows come", || citus.sql("SELECT count(*) > 0 FROM t") == "t");
        loop {
            std::thread::sleep(Duration::from_millis(200 + random.below(500)));
            if running.wait_until(Instant::now()).is_some() {
                break;
            }
            let began = Instant::now();
            let _ = writeln!(told, "  {}", mover.run(&citus));
            // What it does itself takes its time, too.
            assert!(began.elapsed() < SOON, "{told}");
            moved += 1;
            if mover.replaces_table() || moved == 3 {
                break;
            }
        }
        let outcome = end(running);
        let _ = writeln!(told, "  {}", summary(&outcome));
        assert!(moved > 0, "the load was over before anything moved\n{told}");
        assert!(!outcome.panicked(), "{told}");
        if !mover.replaces_table() {
            outcome.expect_code(0);
        }
        story.until_done(outcome.code == Some(0), &mut told);
        if mover.replaces_table() {
            // A load into a table that is here now does not ask what nodes were told.
            story.recover(&mut told);
        }
        story.check(&told);
        eprintln!("{told}");
    }
}

/// Clients killed at every step; a mover comes before anything is settled.
fn killed_before(mover: Mover) {
    let citus = require_citus!();
    for (number, step) in STEPS.iter().enumerate() {
        for side in [Side::Before, Side::After] {
            table(&citus);
            let mut story = Story::new(Box::new(&citus), &["--jobs", "1"]);
            story.meanwhile = Some(Box::new(move |place| mover.run(place)));
            let then =
                if number % 2 == usize::from(side == Side::Before) { Then::Recover } else { Then::Again };
            story.at(*step, side, Fault::Client, then);
        }
    }
}

#[test]
fn a_client_killed_before_a_move() {
    killed_before(Mover::MoveBlocking);
}

#[test]
fn a_client_killed_before_a_logical_move() {
    killed_before(Mover::MoveLogical);
}

#[test]
fn a_client_killed_before_a_split() {
    killed_before(Mover::SplitBlocking);
}

#[test]
fn a_client_killed_before_a_logical_split() {
    killed_before(Mover::SplitLogical);
}

#[test]
fn a_client_killed_before_the_table_is_altered() {
    killed_before(Mover::Alter);
}

#[test]
fn a_client_killed_before_the_table_is_undistributed() {
    killed_before(Mover::Undistribute);
}

fn at_every_step(fault: Fault, then: Then) {
    let citus = require_citus!();
    for step in STEPS {
        for side in [Side::Before, Side::After] {
            if fault == Fault::LateStatement && side == Side::After {
                continue;
            }
            table(&citus);
            Story::new(Box::new(&citus), &["--jobs", "1"]).at(step, side, fault, then);
        }
    }
}

#[test]
fn the_client() {
    at_every_step(Fault::Client, Then::Recover);
}

#[test]
fn the_client_and_its_statement_arrives_late() {
    at_every_step(Fault::LateStatement, Then::Again);
}

#[test]
fn the_network() {
    at_every_step(Fault::Cut, Then::Again);
}

#[test]
fn a_worker() {
    at_every_step(Fault::Node, Then::Again);
}

#[test]
fn the_coordinator() {
    at_every_step(Fault::Coordinator, Then::Again);
}

#[test]
fn the_client_and_the_coordinator() {
    at_every_step(Fault::ClientAndCoordinator, Then::Recover);
}
