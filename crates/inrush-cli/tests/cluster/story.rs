//! A load into a table on several servers that are all behind proxies, and what is done to it.

use crate::harness::{Outcome, Running, inrush, run};
use crate::loads::{Files, PATIENCE, Place, end, has_rows, settled};
use inrush_testkit::proxy::{Proxy, Statement};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Commands until the load must be done once nothing is killed any more.
const TRIES: usize = 4;

const ROWS: u32 = 4_000;

/// In the statement by which a node notes that it has a unit.
const MARK: &str = "marks (gid) VALUES";

/// The statements of a unit's end, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    NodePrepares,
    GuardPrepares,
    LedgerCommits,
    NodeCommits,
    GuardCommits,
    // Where nodes prepare nothing.
    NodeMarks,
    LedgerDecides,
    NodeCommitsMarked,
}

pub const STEPS: [Step; 5] =
    [Step::NodePrepares, Step::GuardPrepares, Step::LedgerCommits, Step::NodeCommits, Step::GuardCommits];

/// Those of a unit whose nodes prepare nothing.
pub const STEPS_WITH_MARKS: [Step; 3] = [Step::NodeMarks, Step::LedgerDecides, Step::NodeCommitsMarked];

/// Whether the statement has reached its server, and done its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Before,
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// kill -9 of the client.
    Client,
    /// The same; the servers do not hear of it, and the statement arrives during the next run.
    LateStatement,
    Coordinator,
    Node,
    /// Every connection is reset.
    Cut,
    ClientAndCoordinator,
    ClientAndNode,
    Everything,
}

impl Fault {
    fn kills_client(self) -> bool {
        !matches!(self, Fault::Coordinator | Fault::Node | Fault::Cut)
    }
}

/// What comes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// `inrush recover`, then the same command.
    Recover,
    /// The same command at once.
    Again,
}

type Meanwhile<'c> = Box<dyn Fn(&dyn Place) -> String + Sync + 'c>;

/// A table `t` on servers that are all behind proxies, and a file for it.
pub struct Story<'c> {
    pub place: Box<dyn Place + 'c>,
    pub coordinator: Proxy,
    /// With the addresses by which the coordinator knows them.
    pub nodes: Vec<(String, Proxy)>,
    pub files: Files,
    args: Vec<String>,
    /// What is done while the client is dead and nothing settled; gives what is to be told of it.
    pub meanwhile: Option<Meanwhile<'c>>,
    /// The table has become another meanwhile: a load that goes on wants to be told so.
    resume: AtomicBool,
}

impl<'c> Story<'c> {
    /// For a table `t (id int PRIMARY KEY, info text)`.
    pub fn new(place: Box<dyn Place + 'c>, more: &[&str]) -> Story<'c> {
        let files = Files::new();
        let file: String = (1..=ROWS).map(|id| format!("{id},info {id}\n")).collect();
        files.write("t.csv", file);
        let units = ["--chunk", "2K", "--unit-bytes", "10K", "--unit-millis", "50"];
        let args = ["load", "t.csv", "--table", "t", "--no-header"].iter().chain(&units).chain(more);
        Story {
            coordinator: place.coordinator_proxy(),
            nodes: place.node_proxies(),
            place,
            files,
            args: args.map(|arg| (*arg).to_owned()).collect(),
            meanwhile: None,
            resume: AtomicBool::new(false),
        }
    }

    pub fn command(&self, words: &[String]) -> std::process::Command {
        let mut command = inrush(self.files.path());
        command.args(words).args(["--to", &self.place.url_via(self.coordinator.port())]);
        for (address, proxy) in &self.nodes {
            command.args(["--node", &format!("{address}=127.0.0.1:{}", proxy.port())]);
        }
        command
    }

    pub fn start(&self) -> Running {
        let mut command = self.command(&self.args);
        if self.resume.load(Relaxed) {
            command.arg("--resume");
        }
        Running::start(&mut command, None)
    }

    pub fn recover(&self, told: &mut String) {
        let recovered = run(&mut self.command(&["recover".into()]), None, PATIENCE);
        let _ = writeln!(told, "  recover: {}", summary(&recovered));
        recovered.expect_code(0);
    }

    pub fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        std::iter::once(&self.coordinator).chain(self.nodes.iter().map(|(_, proxy)| proxy))
    }

    /// Sets the trap, in the second unit: one has been told of when the next is decided.
    fn set(&self, step: Step, side: Side) -> &Proxy {
        let (proxy, statement) = match step {
            Step::NodePrepares => (&self.nodes[1].1, Statement::with("PREPARE TRANSACTION").skip(1)),
            Step::GuardPrepares => (&self.coordinator, Statement::with("PREPARE TRANSACTION").skip(1)),
            Step::LedgerCommits => {
                (&self.coordinator, Statement::whole("COMMIT").behind("PREPARE TRANSACTION").skip(1))
            }
            Step::NodeCommits => (&self.nodes[1].1, Statement::with("COMMIT PREPARED").skip(1)),
            Step::GuardCommits => (&self.coordinator, Statement::with("COMMIT PREPARED").skip(1)),
            Step::NodeMarks => (&self.nodes[1].1, Statement::with(MARK).skip(1)),
            // The guard ends with such a one, too.
            Step::LedgerDecides => {
                (&self.coordinator, Statement::whole("COMMIT").behind("prepared (gid, load_id").skip(2))
            }
            Step::NodeCommitsMarked => (&self.nodes[1].1, Statement::whole("COMMIT").behind(MARK).skip(1)),
        };
        match side {
            Side::Before => proxy.freeze_before(statement),
            Side::After => proxy.freeze_after(statement),
        }
        proxy
    }

    pub fn crash(&self, coordinator: bool, node: bool) {
        self.place.crash(coordinator, node);
        // What a proxy holds back hides it.
        self.cut();
    }

    /// Every connection is reset; new ones work.
    pub fn cut(&self) {
        self.proxies().for_each(|proxy| {
            proxy.cut();
            proxy.thaw();
        });
    }

    /// One load with a fault at a step, and what must be true afterwards.
    pub fn at(&self, step: Step, side: Side, fault: Fault, then: Then) {
        let mut told = format!("{fault:?} {side:?} {step:?}, then {then:?}\n");
        let proxy = self.set(step, side);
        let running = self.start();
        if !proxy.wait_for_trap(Duration::from_secs(30)) {
            let outcome = running.kill9();
            panic!("no such statement\n{told}{outcome:#?}");
        }
        if side == Side::After {
            assert!(proxy.wait_for_answer(Duration::from_secs(30)), "no answer\n{told}");
        }
        let outcome = match fault {
            Fault::LateStatement => {
                let outcome = running.kill9();
                let next = self.start();
                std::thread::sleep(Duration::from_millis(700));
                proxy.deliver_held();
                let next = end(next);
                let _ = writeln!(told, "  next: {}", summary(&next));
                assert!(!next.panicked(), "{told}");
                self.cut();
                outcome
            }
            _ if fault.kills_client() => {
                let outcome = running.kill9();
                self.cut();
                let (coordinator, node) = match fault {
                    Fault::ClientAndCoordinator => (true, false),
                    Fault::ClientAndNode => (false, true),
                    Fault::Everything => (true, true),
                    _ => (false, false),
                };
                if coordinator || node {
                    self.crash(coordinator, node);
                }
                self.locked(step, side, &told);
                outcome
            }
            Fault::Cut => {
                self.cut();
                end(running)
            }
            _ => {
                self.crash(fault == Fault::Coordinator, fault == Fault::Node);
                end(running)
            }
        };
        let _ = writeln!(told, "  {}", summary(&outcome));
        assert!(!outcome.panicked(), "{told}");
        if !fault.kills_client() {
            // It comes back by itself.
            assert_eq!(outcome.code, Some(0), "{told}");
        }
        std::thread::scope(|scope| {
            let meanwhile = self.meanwhile.as_ref().map(|what| {
                let done = scope.spawn(|| what(&*self.place));
                // It should have come to wait.
                std::thread::sleep(Duration::from_millis(500));
                done
            });
            if then == Then::Recover {
                self.recover(&mut told);
                assert_eq!(self.place.prepared(), Vec::<String>::new(), "{told}");
                if !STEPS_WITH_MARKS.contains(&step) {
                    let left = self.place.sql("SELECT count(*) FROM inrush_ledger.prepared");
                    assert_eq!(left, "0", "rows in inrush_ledger.prepared: {told}");
                }
                if self.meanwhile.is_none() {
                    self.place.sql("SET lock_timeout = '5s'; BEGIN; LOCK TABLE t; COMMIT");
                }
            }
            self.until_done(outcome.code == Some(0), &mut told);
            if let Some(done) = meanwhile {
                let _ = writeln!(told, "  meanwhile: {}", done.join().expect("what was done meanwhile"));
            }
        });
        self.check(&told);
        eprintln!("{told}");
    }

    /// While a unit is undecided, or not everybody knows that it is, nobody may change what is spread where.
    fn locked(&self, step: Step, side: Side, told: &str) {
        if (step, side) < (Step::GuardPrepares, Side::After)
            || (step, side) >= (Step::GuardCommits, Side::After)
        {
            return;
        }
        for statement in ["LOCK TABLE t", "ALTER TABLE t ADD x int", "DROP TABLE t"] {
            let waited = self.place.try_psql(&format!("SET lock_timeout = '50ms'; BEGIN; {statement}"));
            let refused = waited.expect_err(&format!("{statement}: nobody holds the table\n{told}"));
            assert!(refused.contains("lock timeout"), "{refused}\n{told}");
        }
    }

    /// The same command until it says that all is done.
    pub fn until_done(&self, mut done: bool, told: &mut String) {
        for _ in 0..TRIES {
            let outcome = end(self.start());
            let _ = writeln!(told, "  again: {}", summary(&outcome));
            assert!(!outcome.panicked(), "{told}");
            if outcome.stderr.contains("--resume") {
                self.resume.store(true, Relaxed);
            }
            if outcome.code == Some(0) {
                if done {
                    return;
                }
                // Once more: it must know that there is nothing to do.
                done = true;
            }
        }
        panic!("not done after {TRIES} more times\n{told}");
    }

    pub fn check(&self, told: &str) {
        has_rows(&*self.place, ROWS, told);
        assert_eq!(self.place.misplaced("t"), 0, "{told}");
        let counted = self.place.sql("SELECT sum(rows) FROM inrush_ledger.units");
        assert_eq!(counted, ROWS.to_string(), "{told}");
        assert_eq!(self.place.sql("SELECT state FROM inrush_ledger.loads"), "done", "{told}");
        settled(&*self.place, told);
    }
}

pub fn summary(outcome: &Outcome) -> String {
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    format!("{:?} {:?} {} | {}", outcome.code, outcome.signal, first(&outcome.stdout), outcome.stderr.trim())
}
