//! Whatever dies, whenever: the same command again, and the table equals the file.
//!
//! `INRUSH_KILLS` says how many times something is killed (16 unless told otherwise), `INRUSH_SEED` which
//! random numbers are used.

mod harness;

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::{Outcome, Random, Running, inrush};
use inrush_testkit::proxy::Proxy;
use inrush_testkit::{Database, Installation, Postgres, ServerOptions, StopMode, Version};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long one command may take; a server that was killed may recover meanwhile.
const PATIENCE: Duration = Duration::from_secs(90);

/// Commands until the load must be done once nothing is killed any more.
const TRIES: usize = 4;

/// What is done to a running load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// kill -9 of the client.
    Client,
    /// The client is asked to stop.
    Interrupt,
    /// `pg_ctl stop -m immediate`, and a start.
    Server,
    /// kill -9 of every server process, and a start.
    ServerKilled,
    /// Every connection is reset at a moment.
    Cut,
    /// Every connection is reset after a number of bytes.
    CutAfter,
    /// The network is lost, then the client dies.
    Frozen,
    /// The network is lost after a COMMIT went by; then the client dies.
    AfterCommit,
    /// A COMMIT is held back, the client dies, and the COMMIT arrives during the next run.
    LateCommit,
}

const FAULTS: &[Fault] = &[
    Fault::Client,
    Fault::Server,
    Fault::Cut,
    Fault::AfterCommit,
    Fault::LateCommit,
    Fault::CutAfter,
    Fault::Client,
    Fault::Interrupt,
    Fault::ServerKilled,
    Fault::Frozen,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Gzip,
    Stdin,
}

/// A file, and what of it must be in the table and among the rejects.
struct Load {
    kind: Kind,
    bytes: Vec<u8>,
    good: String,
    /// Number of the record and SQLSTATE.
    rejects: Vec<(u64, &'static str)>,
    args: Vec<String>,
    path: PathBuf,
    unlogged: bool,
}

#[test]
fn every_row_exactly_once_whatever_dies() {
    let kills: usize = std::env::var("INRUSH_KILLS").map_or(16, |n| n.parse().expect("INRUSH_KILLS"));
    let mut random = Random::from_environment("kill");
    let direct = Installation::have_or_say_skipped(Version::WithExtension(15));
    let version = if direct { Version::WithExtension(15) } else { Version::Any };
    let server = Postgres::start(&ServerOptions { version, ..ServerOptions::default() });
    let mut killed = 0;
    let mut round = 0;
    let mut tally = String::new();
    while killed < kills {
        let database = server.fresh_database();
        let dir = tempfile::tempdir().expect("a directory");
        // Half of the loads take the direct path.
        let direct = direct && round % 2 == 1;
        let mut load = make_load(&mut random, dir.path());
        if direct {
            database.psql("CREATE EXTENSION inrush");
            let via = load.args.iter().position(|arg| arg == "--via").expect("--via") + 1;
            load.args[via] = "direct".into();
        }
        let proxy = Proxy::start(&server);
        database.psql(&format!(
            "CREATE {} TABLE t (id int PRIMARY KEY, info text, made timestamp, CONSTRAINT small CHECK (id < 1000000)); \
             CREATE TABLE expected (LIKE t);\n\\copy expected FROM '{}' (FORMAT csv)",
            if load.unlogged { "UNLOGGED" } else { "" },
            write(dir.path(), "good.csv", load.good.as_bytes()).display(),
        ));
        let story =
            Story { server: &server, database: &database, proxy: &proxy, load: &load, dir: dir.path() };
        let mut told = format!(
            "round {round}{}: {:?}, {} bytes, {:?}\n",
            if direct { ", direct" } else { "" },
            load.kind,
            load.bytes.len(),
            load.args
        );
        let faults = 1 + random.below(3);
        for _ in 0..faults {
            // Every kind comes up, however few there are.
            let fault = FAULTS[killed % FAULTS.len()];
            let done = story.fault(fault, &mut random, &mut told);
            killed += 1;
            if done {
                break;
            }
        }
        proxy.thaw();
        if server.pid().is_none() {
            server.restart();
        }
        story.until_done(&mut told);
        story.check(&told);
        let _ = write!(tally, "{told}");
        round += 1;
    }
    eprintln!("{killed} kills in {round} loads\n{tally}");
}

#[test]
fn a_crash_that_empties_an_unlogged_table() {
    let server = Postgres::start(&ServerOptions::default());
    let database = server.fresh_database();
    database.psql("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)");
    let dir = tempfile::tempdir().expect("a directory");
    let file: String = (1..=20_000).map(|id| format!("{id}\n")).collect();
    write(dir.path(), "t.csv", file.as_bytes());
    let start = || {
        let mut command = inrush(dir.path());
        command.args(["load", "t.csv", "--no-header", "--to", &database.url(), "--jobs", "2"]);
        command.args(["--chunk", "1000", "--unit-millis", "1", "--unit-bytes", "2K", "--max-rate", "60K"]);
        Running::start(&mut command, None)
    };
    let count = || database.try_psql("SELECT count(*), count(DISTINCT id) FROM t").unwrap_or_default();
    let until_done = || {
        for _ in 0..TRIES {
            let mut running = start();
            assert!(running.wait_until(Instant::now() + PATIENCE).is_some(), "it hangs");
            if running.finish().code == Some(0) {
                return;
            }
        }
        panic!("not done after {TRIES} times");
    };

    // In the middle of the load: the client comes back and must not take the rows before the crash for loaded.
    let mut running = start();
    let deadline = Instant::now() + PATIENCE;
    while !count().starts_with(|c| ('1'..='9').contains(&c)) {
        assert!(Instant::now() < deadline, "nothing comes");
    }
    server.stop(StopMode::Immediate);
    server.restart();
    assert!(running.wait_until(Instant::now() + PATIENCE).is_some(), "it hangs");
    let outcome = running.finish();
    if outcome.code == Some(0) {
        assert_eq!(count(), "20000|20000", "{outcome:#?}");
    }
    until_done();
    assert_eq!(count(), "20000|20000", "{outcome:#?}");

    // After the load: the ledger has forgotten it together with the table.
    server.stop(StopMode::Immediate);
    server.restart();
    assert_eq!(count(), "0|0");
    until_done();
    assert_eq!(count(), "20000|20000");
}

/// A file of random size and kind, and how it is loaded.
fn make_load(random: &mut Random, dir: &Path) -> Load {
    let kind = random.pick(&[Kind::Plain, Kind::Plain, Kind::Gzip, Kind::Stdin]);
    let rows = 200 + random.below(random.clone().pick(&[2_000, 20_000]));
    let with_rejects = random.one_in(3);
    let crlf = random.one_in(4);
    let end = if crlf { "\r\n" } else { "\n" };
    let (mut file, mut good) = (String::from("id,info,made\n").replace('\n', end), String::new());
    let mut rejects = Vec::new();
    for id in 1..=rows {
        let info = match random.below(6) {
            0 => format!("\"two{end}lines, {}\"", random.next()),
            1 => String::new(),
            2 => format!("\"a \"\"quote\"\" {}\"", random.below(1000)),
            _ => format!("info{:x}", random.next()),
        };
        let made = ["2024-01-01 00:00:00", "infinity", "1999-12-31 23:59:59.5"][random.below(3) as usize];
        match if with_rejects { random.below(200) } else { 200 } {
            0 => {
                rejects.push((id, "22P04"));
                let _ = write!(file, "{id},{info}{end}");
            }
            1 => {
                rejects.push((id, "23514"));
                let _ = write!(file, "{},{info},{made}{end}", id + 1_000_000);
            }
            2 => {
                rejects.push((id, "22007"));
                let _ = write!(file, "{id},{info},never{end}");
            }
            _ => {
                let _ = write!(file, "{id},{info},{made}{end}");
                let _ = write!(good, "{id},{info},{made}{end}");
            }
        }
    }
    let bytes = match kind {
        Kind::Gzip => {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(file.as_bytes()).and_then(|()| gzip.finish()).expect("to compress")
        }
        _ => file.into_bytes(),
    };
    let path = write(dir, "t.csv", &bytes);
    let rate = (bytes.len() as u64 * 1000 / (200 + random.below(800))).max(1);
    let mut args: Vec<String> = [
        "load",
        if kind == Kind::Stdin { "-" } else { "t.csv" },
        "--table",
        "t",
        "--rejects",
        "bad.csv",
        "--jobs",
        random.pick(&["1", "2", "4"]),
        "--chunk",
        random.pick(&["200", "2000", "20000"]),
        "--unit-millis",
        random.pick(&["1", "10", "100"]),
        "--unit-bytes",
        random.pick(&["1K", "10K", "1M"]),
        "--via",
        random.pick(&["auto", "copy-text"]),
        "--max-rejects",
        "100000",
    ]
    .map(str::to_owned)
    .into();
    args.push("--max-rate".to_owned());
    args.push(rate.to_string());
    if random.one_in(8) {
        args.push("--atomic".to_owned());
    }
    let unlogged = random.one_in(6);
    Load { kind, bytes, good, rejects, args, path, unlogged }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("to write a file");
    path
}

struct Story<'a> {
    server: &'a Postgres,
    database: &'a Database<'a>,
    proxy: &'a Proxy,
    load: &'a Load,
    dir: &'a Path,
}

impl Story<'_> {
    fn start(&self) -> Running {
        let mut command = inrush(self.dir);
        command.args(&self.load.args).args(["--to", &self.database.tcp_url_via(self.proxy.port())]);
        let stdin = (self.load.kind == Kind::Stdin).then(|| self.load.bytes.clone());
        Running::start(&mut command, stdin)
    }

    /// Starts the load and does it harm; whether it was done all the same.
    fn fault(&self, fault: Fault, random: &mut Random, told: &mut String) -> bool {
        // From the first connection to somewhat past the expected end.
        let moment = Duration::from_millis(20 + random.below(900));
        let _ = write!(told, "  {fault:?} after {moment:?}");
        match fault {
            Fault::CutAfter => self.proxy.cut_after(random.below(2 * self.load.bytes.len() as u64)),
            // The first few COMMITs are of the ledger being made and the load being recorded.
            Fault::AfterCommit => self.proxy.freeze_after_a_later_commit(random.below(20)),
            Fault::LateCommit => self.proxy.freeze_before_a_later_commit_reaches(random.below(20)),
            _ => {}
        }
        let mut running = self.start();
        let trapped = match fault {
            Fault::AfterCommit | Fault::LateCommit => self.proxy.wait_for_trap(Duration::from_secs(5)),
            _ => {
                running.wait_until(Instant::now() + moment);
                false
            }
        };
        let ended = running.wait_until(Instant::now()).is_some();
        let outcome = match fault {
            Fault::Client | Fault::AfterCommit => running.kill9(),
            Fault::LateCommit => {
                let outcome = running.kill9();
                if !trapped {
                    // The trap must not catch the next run.
                    self.proxy.thaw();
                }
                let next = self.start();
                std::thread::sleep(Duration::from_millis(random.below(3500)));
                self.proxy.deliver_held();
                self.end(next, told);
                outcome
            }
            Fault::Frozen => {
                self.proxy.freeze();
                std::thread::sleep(Duration::from_millis(50));
                let outcome = running.kill9();
                if random.one_in(2) {
                    self.proxy.cut();
                }
                self.proxy.thaw();
                outcome
            }
            Fault::Interrupt => {
                running.signal(Signal::INT);
                self.end(running, told)
            }
            Fault::Server | Fault::ServerKilled => {
                if fault == Fault::Server {
                    self.server.stop(StopMode::Immediate);
                } else {
                    self.server.kill9();
                }
                std::thread::sleep(Duration::from_millis(random.below(300)));
                self.server.restart();
                self.end(running, told)
            }
            Fault::Cut => {
                self.proxy.cut();
                self.end(running, told)
            }
            Fault::CutAfter => self.end(running, told),
        };
        if !trapped {
            self.proxy.thaw();
        }
        let _ = writeln!(told, ": {}{}", if ended { "after its end, " } else { "" }, summary(&outcome));
        assert!(!outcome.panicked(), "{told}\n{outcome:#?}");
        matches!(outcome.code, Some(0 | 1))
    }

    fn end(&self, mut running: Running, told: &str) -> Outcome {
        if running.wait_until(Instant::now() + PATIENCE).is_none() {
            let outcome = running.kill9();
            panic!("it hangs\n{told}\n{outcome:#?}\n{}", self.server.log());
        }
        running.finish()
    }

    /// The same command until it says that all is done.
    fn until_done(&self, told: &mut String) {
        let code = if self.load.rejects.is_empty() { 0 } else { 1 };
        for _ in 0..TRIES {
            let before = self.state();
            let outcome = self.end(self.start(), told);
            let _ = writeln!(told, "  again: {}", summary(&outcome));
            assert!(!outcome.panicked(), "{told}\n{outcome:#?}");
            match outcome.code {
                Some(found) if found == code => return,
                // It had been finished; a stream cannot be compared as a whole, so it is not taken as the same.
                Some(2) if before == "done" && self.load.kind == Kind::Stdin => return,
                Some(0) if before == "done" => return,
                _ => {}
            }
        }
        panic!("not done after {TRIES} more times\n{told}");
    }

    fn state(&self) -> String {
        self.database
            .try_psql("SELECT state FROM inrush_ledger.loads ORDER BY id DESC LIMIT 1")
            .unwrap_or_default()
    }

    fn check(&self, told: &str) {
        let differences = self.database.psql(
            "SELECT 'lost', count(*) FROM (TABLE expected EXCEPT ALL TABLE t) x
              UNION ALL SELECT 'too many', count(*) FROM (TABLE t EXCEPT ALL TABLE expected) x ORDER BY 1",
        );
        assert_eq!(differences, "lost|0\ntoo many|0", "{told}\nfile: {}", self.load.path.display());
        let suffix = if self.load.unlogged { "_unlogged" } else { "" };
        let counted = self.database.psql(&format!(
            "SELECT (SELECT sum(rows) FROM inrush_ledger.units{suffix}) = (SELECT count(*) FROM t),
                    (SELECT count(*) FROM inrush_ledger.rejects{suffix}), (SELECT state FROM inrush_ledger.loads ORDER BY id DESC LIMIT 1)"
        ));
        assert_eq!(counted, format!("t|{}|done", self.load.rejects.len()), "{told}");
        let reasons = std::fs::read_to_string(self.dir.join("bad.csv.jsonl")).expect("bad.csv.jsonl");
        let found: Vec<(u64, String)> = reasons
            .lines()
            .map(|line| {
                let reject: serde_json::Value = serde_json::from_str(line).expect("a reject is JSON");
                (
                    reject["record"].as_u64().unwrap_or_default(),
                    reject["sqlstate"].as_str().unwrap_or_default().to_owned(),
                )
            })
            .collect();
        let expected: Vec<(u64, String)> =
            self.load.rejects.iter().map(|(record, state)| (*record, (*state).to_owned())).collect();
        assert_eq!(found, expected, "{told}");
    }
}

fn summary(outcome: &Outcome) -> String {
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    format!("{:?} {:?} {} | {}", outcome.code, outcome.signal, first(&outcome.stdout), outcome.stderr.trim())
}
