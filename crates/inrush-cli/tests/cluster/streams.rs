//! `inrush serve` into tables on several servers: a file that grows, servers that are all behind proxies, and what is
//! done to them.

use crate::loads::{Files, Place, has_rows, settled};
use crate::process::{Serve, wait_until};
use crate::story::{Fault, STEPS, Side, Step};
use inrush_testkit::proxy::{Proxy, Statement};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

/// A table `t (id int PRIMARY KEY, info text)`, or one like it, and a file for it.
pub struct Stream<'c> {
    pub place: &'c dyn Place,
    coordinator: Proxy,
    nodes: Vec<(String, Proxy)>,
    files: Files,
    file: Mutex<File>,
    more: String,
}

impl<'c> Stream<'c> {
    /// `more` stands in the configuration, in its section `[server]`.
    pub fn new(place: &'c dyn Place, more: &str) -> Stream<'c> {
        let files = Files::new();
        let file = Mutex::new(File::create(files.path().join("rows.csv")).expect("a file"));
        let this = Stream {
            coordinator: place.coordinator_proxy(),
            nodes: place.node_proxies(),
            place,
            files,
            file,
            more: more.to_owned(),
        };
        this.write("id,info\n");
        this
    }

    pub fn start(&self) -> Serve {
        self.start_with(1, "")
    }

    /// With so many lanes and more inputs.
    pub fn start_with(&self, lanes: usize, inputs: &str) -> Serve {
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|(address, proxy)| format!("\"{address}=127.0.0.1:{}\"", proxy.port()))
            .collect();
        let config = format!(
            "[server]\nto = \"{}\"\nlanes = {lanes}\nnodes = [{}]\n{}\n[batch]\nlinger = \"20ms\"\n[windows]\nevery = \"1s\"\n\
             [[tail]]\nname = \"rows\"\nfiles = \"{}/rows.csv\"\nformat = \"csv\"\ninto.table = \"t\"\n{inputs}",
            self.place.url_via(self.coordinator.port()),
            nodes.join(", "),
            self.more,
            self.files.path().display()
        );
        Serve::start(self.files.path(), &config)
    }

    /// More of the file.
    pub fn write(&self, text: &str) {
        self.file.lock().expect("not poisoned").write_all(text.as_bytes()).expect("to write");
    }

    pub fn rows(&self, ids: Range<u32>) {
        self.write(&ids.map(|id| format!("{id},info {id}\n")).collect::<String>());
    }

    #[track_caller]
    pub fn wait_for(&self, rows: u32, told: &str) {
        let mut last = String::new();
        wait_until(&format!("{rows} rows; {told}"), || {
            // A server may be down.
            last = self.place.try_psql("SELECT count(*) FROM t").unwrap_or_default();
            last == rows.to_string()
        });
    }

    /// The table has the rows from 1 to so many, each once and where it belongs, and nothing is left of how they came.
    #[track_caller]
    pub fn check(&self, rows: u32, told: &str) {
        has_rows(self.place, rows, told);
        assert_eq!(self.place.misplaced("t"), 0, "{told}");
        assert_eq!(self.place.sql("SELECT count(*) FROM inrush_ledger.dead_letters"), "0", "{told}");
        settled(self.place, told);
    }

    fn proxy(&self, step: Step) -> (&Proxy, Statement) {
        match step {
            Step::NodePrepares => (&self.nodes[1].1, Statement::with("PREPARE TRANSACTION")),
            Step::GuardPrepares => (&self.coordinator, Statement::with("PREPARE TRANSACTION")),
            Step::LedgerCommits => {
                (&self.coordinator, Statement::whole("COMMIT").behind("PREPARE TRANSACTION"))
            }
            Step::NodeCommits => (&self.nodes[1].1, Statement::with("COMMIT PREPARED")),
            Step::GuardCommits => (&self.coordinator, Statement::with("COMMIT PREPARED")),
            Step::NodeMarks | Step::LedgerDecides | Step::NodeCommitsMarked => unreachable!("of loads"),
        }
    }

    /// Every connection is reset; new ones work.
    fn cut(&self) {
        for proxy in std::iter::once(&self.coordinator).chain(self.nodes.iter().map(|(_, proxy)| proxy)) {
            proxy.cut();
            proxy.thaw();
        }
    }

    /// A stream with a fault at a step of its second unit, and what must be true afterwards.
    pub fn at(&self, step: Step, side: Side, fault: Fault) {
        let mut told = format!("{fault:?} {side:?} {step:?}\n");
        let mut serve = self.start();
        self.rows(1..201);
        self.wait_for(200, &told);
        let (proxy, statement) = self.proxy(step);
        match side {
            Side::Before => proxy.freeze_before(statement),
            Side::After => proxy.freeze_after(statement),
        }
        self.rows(201..501);
        assert!(proxy.wait_for_trap(Duration::from_secs(30)), "no such statement\n{told}");
        if side == Side::After {
            assert!(proxy.wait_for_answer(Duration::from_secs(30)), "no answer\n{told}");
        }
        match fault {
            Fault::LateStatement => {
                serve.kill9();
                serve = self.start();
                std::thread::sleep(Duration::from_millis(700));
                proxy.deliver_held();
                std::thread::sleep(Duration::from_millis(300));
                self.cut();
            }
            Fault::Client => {
                serve.kill9();
                self.cut();
                serve = self.start();
            }
            Fault::ClientAndCoordinator | Fault::ClientAndNode | Fault::Everything => {
                serve.kill9();
                self.cut();
                self.place.crash(fault != Fault::ClientAndNode, fault != Fault::ClientAndCoordinator);
                serve = self.start();
            }
            Fault::Cut => self.cut(),
            Fault::Coordinator | Fault::Node => {
                self.place.crash(fault == Fault::Coordinator, fault == Fault::Node);
                self.cut();
            }
        }
        self.rows(501..701);
        self.wait_for(700, &told);
        let _ = writeln!(told, "{}", serve.log());
        assert_eq!(serve.stop(), 0, "{told}");
        let mut rows = 700;
        if fault == Fault::LateStatement {
            // The dead client's sessions were there when the next one began: one that begins later ends what it left.
            let again = self.start();
            self.rows(701..711);
            rows = 710;
            self.wait_for(rows, &told);
            assert_eq!(again.stop(), 0, "{told}");
        }
        self.check(rows, &told);
        eprintln!("{fault:?} {side:?} {step:?}: ok");
    }
}

/// A fault at some of the steps, each on one of its sides; `INRUSH_LONG=1` has all. `fresh` makes the table anew.
pub fn at_steps(place: &dyn Place, fault: Fault, fresh: &dyn Fn()) {
    let long = std::env::var_os("INRUSH_LONG").is_some();
    if !long {
        eprintln!("{fault:?}: one side of each step; INRUSH_LONG=1 has both");
    }
    for (number, step) in STEPS.into_iter().enumerate() {
        for (turn, side) in [Side::Before, Side::After].into_iter().enumerate() {
            let wanted = long || (number + turn + fault as usize).is_multiple_of(2);
            if !wanted || (fault == Fault::LateStatement && side == Side::After) {
                continue;
            }
            fresh();
            Stream::new(place, "").at(step, side, fault);
        }
    }
}
