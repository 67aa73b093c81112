//! Whatever dies, at every step of a unit on several servers: the same command again, and the table equals the file.
//!
//! `INRUSH_LONG=1` has every fault on both sides of every step. `INRUSH_KILLS` says how many times something is killed at random (8 unless told otherwise), `INRUSH_SEED` which
//! random numbers are used.

use crate::harness::Random;
use crate::loads::end;
use crate::story::{Fault, STEPS, STEPS_WITH_MARKS, Side, Step, Story, Then, summary};
use inrush_testkit::proxy::{Proxy, Statement};
use inrush_testkit::{Cluster, ClusterOptions, Version, require_server};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// A table by hash on this cluster.
fn story<'c>(cluster: &'c Cluster, more: &[&str]) -> Story<'c> {
    let database = cluster.fresh_database();
    database.by_hash("t", "id int, info text", "id", 5, "PRIMARY KEY (id)");
    Story::new(Box::new(database), more)
}

/// A fault at every step, on both sides of it.
fn at_every_step(version: Version, fault: Fault, then: Then) {
    at_steps(&ClusterOptions { version, ..ClusterOptions::default() }, &STEPS, fault, then);
}

/// The same with servers as they are unless told otherwise: they prepare nothing.
fn at_every_step_with_marks(fault: Fault, then: Then) {
    at_steps(&ClusterOptions { prepared: 0, ..ClusterOptions::default() }, &STEPS_WITH_MARKS, fault, then);
}

fn at_steps(options: &ClusterOptions<'_>, steps: &[Step], fault: Fault, then: Then) {
    let cluster = Cluster::start(options);
    // Where it is not asked for more, a client dies at half of the steps and sides, and servers, which take the longest, at a
    // quarter: at others for each fault.
    let part = match fault {
        _ if std::env::var_os("INRUSH_LONG").is_some() => 1,
        Fault::Client | Fault::LateStatement => 2,
        _ => 4,
    };
    if part > 1 {
        eprintln!("{fault:?}: one in {part} of the steps; INRUSH_LONG=1 has all");
    }
    for (number, step) in steps.iter().enumerate() {
        for (turn, side) in [Side::Before, Side::After].into_iter().enumerate() {
            if !(2 * number + turn + number / 2 + fault as usize).is_multiple_of(part) {
                continue;
            }
            // Before the next message nobody sees the answer of a statement that was prepared.
            let unseen = *step == Step::NodeMarks;
            if (fault == Fault::LateStatement || unseen) && side == Side::After {
                continue;
            }
            story(&cluster, &["--jobs", "1"]).at(*step, side, fault, then);
        }
    }
}

#[test]
fn the_client_then_recover() {
    at_every_step(Version::Any, Fault::Client, Then::Recover);
}

#[test]
fn the_client_then_the_same_command() {
    at_every_step(Version::Any, Fault::Client, Then::Again);
}

#[test]
fn the_client_and_its_statement_arrives_late() {
    at_every_step(Version::Any, Fault::LateStatement, Then::Again);
}

#[test]
fn the_coordinator() {
    at_every_step(Version::Any, Fault::Coordinator, Then::Again);
}

#[test]
fn a_node() {
    at_every_step(Version::Any, Fault::Node, Then::Again);
}

#[test]
fn the_network() {
    at_every_step(Version::Any, Fault::Cut, Then::Again);
}

#[test]
fn the_client_and_the_coordinator() {
    at_every_step(Version::Any, Fault::ClientAndCoordinator, Then::Recover);
}

#[test]
fn the_client_and_a_node() {
    at_every_step(Version::Any, Fault::ClientAndNode, Then::Again);
}

#[test]
fn everything_on_18() {
    require_server!(18);
    at_every_step(Version::Major(18), Fault::Everything, Then::Recover);
}

#[test]
fn the_client_where_nothing_is_prepared() {
    at_every_step_with_marks(Fault::Client, Then::Again);
    at_every_step_with_marks(Fault::Client, Then::Recover);
}

#[test]
fn a_late_statement_where_nothing_is_prepared() {
    at_every_step_with_marks(Fault::LateStatement, Then::Again);
}

#[test]
fn servers_where_nothing_is_prepared() {
    at_every_step_with_marks(Fault::Node, Then::Again);
    at_every_step_with_marks(Fault::Coordinator, Then::Again);
}

#[test]
fn everything_where_nothing_is_prepared() {
    at_every_step_with_marks(Fault::Cut, Then::Again);
    at_every_step_with_marks(Fault::Everything, Then::Recover);
}

/// What is done to a load at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Client,
    Coordinator,
    Node,
    Cut,
    /// The network is lost, then the client dies.
    Frozen,
    /// As [`Fault::LateStatement`], at any statement of any server that commits or prepares.
    Late,
    All,
}

const MOMENTS: &[Moment] = &[
    Moment::Client,
    Moment::Late,
    Moment::Coordinator,
    Moment::Cut,
    Moment::Node,
    Moment::Frozen,
    Moment::Client,
    Moment::All,
];

#[test]
fn every_row_exactly_once_whatever_dies() {
    at_random("cluster kill", &ClusterOptions::default());
}

#[test]
fn every_row_exactly_once_where_nothing_is_prepared() {
    at_random("cluster kill, nothing prepared", &ClusterOptions { prepared: 0, ..ClusterOptions::default() });
}

fn at_random(test: &str, options: &ClusterOptions<'_>) {
    let kills: usize = std::env::var("INRUSH_KILLS").map_or(8, |n| n.parse().expect("INRUSH_KILLS"));
    let mut random = Random::from_environment(test);
    let cluster = Cluster::start(options);
    let mut killed = 0;
    while killed < kills {
        let jobs = random.pick(&["1", "2", "4"]);
        let rate = (60_000 * 1000 / (300 + random.below(1200))).to_string();
        let story = story(&cluster, &["--jobs", jobs, "--max-rate", &rate]);
        let mut told = format!("{jobs} jobs, {rate} bytes/s\n");
        let mut done = false;
        for _ in 0..1 + random.below(3) {
            done = story.moment(MOMENTS[killed % MOMENTS.len()], &mut random, &mut told);
            killed += 1;
            if done {
                break;
            }
        }
        if random.one_in(2) {
            story.recover(&mut told);
        }
        story.until_done(done, &mut told);
        story.check(&told);
        eprintln!("{told}");
    }
}

impl Story<'_> {
    /// Starts the load and does it harm; whether it was done all the same.
    fn moment(&self, moment: Moment, random: &mut Random, told: &mut String) -> bool {
        let wait = Duration::from_millis(50 + random.below(1500));
        let _ = write!(told, "  {moment:?} after {wait:?}");
        let which = random.below(1 + self.nodes.len() as u64) as usize;
        let proxy = self.proxies().nth(which).expect("one of them");
        if moment == Moment::Late {
            let statement = random.pick(&["PREPARE TRANSACTION", "COMMIT PREPARED", "COMMIT"]);
            proxy.freeze_before(Statement::with(statement).skip(random.below(20)));
        }
        let mut running = self.start();
        let mut trapped = false;
        if moment == Moment::Late {
            trapped = proxy.wait_for_trap(Duration::from_secs(3));
        } else {
            running.wait_until(Instant::now() + wait);
        }
        let outcome = match moment {
            Moment::Client => running.kill9(),
            Moment::All => {
                let outcome = running.kill9();
                self.crash(true, true);
                outcome
            }
            Moment::Coordinator | Moment::Node => {
                self.crash(moment == Moment::Coordinator, moment == Moment::Node);
                end(running)
            }
            Moment::Cut => {
                proxy.cut();
                end(running)
            }
            Moment::Frozen => {
                self.proxies().for_each(Proxy::freeze);
                std::thread::sleep(Duration::from_millis(50));
                let outcome = running.kill9();
                self.cut();
                outcome
            }
            Moment::Late => {
                let outcome = running.kill9();
                if !trapped {
                    proxy.thaw();
                }
                let next = self.start();
                std::thread::sleep(Duration::from_millis(random.below(2500)));
                proxy.deliver_held();
                let next = end(next);
                let _ = write!(told, ", next: {}", summary(&next));
                assert!(!next.panicked(), "{told}");
                self.cut();
                outcome
            }
        };
        let _ = writeln!(told, ": {}", summary(&outcome));
        assert!(!outcome.panicked(), "{told}");
        outcome.code == Some(0)
    }
}
