//! `COPY ... (FORMAT inrush)` that does not end well, in every protocol: the session is in the state that any failed
//! statement leaves it in, nothing is stored, and the server keeps nothing.

mod session;
mod wire;

use inrush_testkit::{Database, Postgres, ServerOptions, Version, require_server};
use session::{Driver, Refused, Session};
use std::time::{Duration, Instant};
use wire::{Protocol, Wire};

const COPY: &str = "COPY t (id, note) FROM STDIN (FORMAT inrush)";
/// In each block.
const ROWS: usize = 250;
const BLOCKS: usize = 8;

/// Where everything happens: a table, a good stream for it, and a session that looks on.
struct Scene<'s> {
    database: Database<'s>,
    blocks: Vec<Vec<u8>>,
    protocol: Option<Protocol>,
}

impl<'s> Scene<'s> {
    fn new(server: &'s Postgres, protocol: Option<Protocol>) -> Scene<'s> {
        let database = server.fresh_database();
        database.psql(
            "CREATE EXTENSION inrush_test CASCADE; CREATE TABLE t (id int, note text); CREATE INDEX ON t (id)",
        );
        let count = ROWS * BLOCKS;
        // More than fits a group of pages, so that rows of a stream are in the table when it fails.
        let hex = database.psql(&format!(
            "SELECT encode(inrush_test.blocks('t', $$SELECT i, repeat('x', 600) FROM generate_series(1, {count}) i$$,
                                              '{{id,note}}', {ROWS}), 'hex')"
        ));
        let stream: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"))
            .collect();
        let mut blocks = Vec::new();
        let mut rest = stream.as_slice();
        while !rest.is_empty() {
            let length = u32::from_le_bytes(rest[20..24].try_into().expect("four bytes")) as usize;
            let (block, behind) = rest.split_at(64 + length);
            blocks.push(block.to_vec());
            rest = behind;
        }
        assert_eq!(blocks.len(), BLOCKS);
        Scene { database, blocks, protocol }
    }

    fn session(&self) -> Box<dyn Session> {
        let mut session: Box<dyn Session> = match self.protocol {
            None => Box::new(Driver::connect(&self.database.url())),
            Some(way) => Box::new(Wire::connect(self.database.server().port(), self.database.name(), way)),
        };
        session.run("SELECT inrush.version()");
        session
    }

    /// The stream, with zeros for the last value of one block.
    fn broken(&self, which: usize) -> Vec<Vec<u8>> {
        let mut blocks = self.blocks.clone();
        let block = &mut blocks[which];
        let at = block.len() - 605;
        block[at..].fill(0);
        blocks
    }

    /// Until the server has taken these bytes and waits for more.
    fn arrive(&self, bytes: usize) {
        let until = Instant::now() + Duration::from_secs(60);
        let query = "SELECT bytes_processed || ' ' || wait_event FROM pg_stat_progress_copy
                     JOIN pg_stat_activity USING (pid) WHERE relid = 't'::regclass";
        let wanted = format!("{bytes} ClientRead");
        while self.database.psql(query) != wanted {
            assert!(
                Instant::now() < until,
                "the server has not taken {bytes} bytes: {}",
                self.database.psql(query)
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The first blocks, and that they have arrived.
    fn half(&self, session: &mut dyn Session) {
        for block in &self.blocks[..BLOCKS / 2] {
            session.send(block);
        }
        self.arrive(self.blocks[..BLOCKS / 2].iter().map(Vec::len).sum());
    }

    fn rest(&self, session: &mut dyn Session) {
        for block in &self.blocks[BLOCKS / 2..] {
            session.send(block);
        }
    }

    /// Seen from outside: nothing stored, nothing locked, no COPY shown.
    fn untouched(&self, what: &str) {
        assert_eq!(self.database.psql("SELECT count(*) FROM t"), "0", "{what}");
        assert_eq!(
            self.database.psql("SET enable_seqscan = off; SELECT count(*) FROM t WHERE id > 0"),
            "0",
            "{what}"
        );
        assert_eq!(self.database.psql("SELECT count(*) FROM pg_stat_progress_copy"), "0", "{what}");
        self.database.psql("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE NOWAIT; ROLLBACK");
    }
}

/// How a COPY fails, with the SQLSTATE; the session has begun it. `None` where the driver drops the answer.
type Failing = fn(&Scene<'_>, &mut dyn Session) -> Option<Refused>;

fn bad_block(scene: &Scene<'_>, session: &mut dyn Session, which: usize) -> Option<Refused> {
    for block in scene.broken(which) {
        session.send(&block);
    }
    let refused = session.end().expect_err("a bad block");
    assert!(refused.message.starts_with("invalid "), "{refused:?}");
    Some(refused)
}

fn first_block(scene: &Scene<'_>, session: &mut dyn Session) -> Option<Refused> {
    bad_block(scene, session, 0)
}

fn middle_block(scene: &Scene<'_>, session: &mut dyn Session) -> Option<Refused> {
    bad_block(scene, session, BLOCKS / 2)
}

fn last_block(scene: &Scene<'_>, session: &mut dyn Session) -> Option<Refused> {
    bad_block(scene, session, BLOCKS - 1)
}

/// The stream ends in the middle of a block.
fn short_stream(scene: &Scene<'_>, session: &mut dyn Session) -> Option<Refused> {
    scene.half(session);
    session.send(&scene.blocks[0][..1000]);
    Some(session.end().expect_err("half a block"))
}

fn copy_fail(scene: &Scene<'_>, session: &mut dyn Session) -> Option<Refused> {
    scene.half(session);
    session.give_up();
    None
}

/// Before the first byte.
fn copy_fail_at_once(_: &Scene<'_>, session: &mut dyn Session) -> Option<Refused> {
    session.give_up();
    None
}

fn cancelled(scene: &Scene<'_>, session: &mut dyn Session) -> Option<Refused> {
    scene.half(session);
    session.cancel();
    // As in any COPY, a backend that waits for data hears of it with the next message. The driver does not wait until
    // its request has arrived.
    let until = Instant::now() + Duration::from_secs(60);
    while scene.database.psql("SELECT count(*) FROM pg_stat_progress_copy") != "0" {
        assert!(Instant::now() < until, "the COPY is not cancelled");
        session.send(&scene.blocks[0]);
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(session.end().expect_err("a cancelled COPY"))
}

fn timed_out(scene: &Scene<'_>, session: &mut dyn Session) -> Option<Refused> {
    for block in &scene.blocks[..BLOCKS / 2] {
        session.send(block);
    }
    std::thread::sleep(Duration::from_millis(600));
    scene.rest(session);
    Some(session.end().expect_err("a COPY that takes too long"))
}

const FAILING: [(&str, Failing, &str); 8] = [
    ("a bad first block", first_block, "22P04"),
    ("a bad middle block", middle_block, "22P04"),
    ("a bad last block", last_block, "22P04"),
    ("a stream that ends too early", short_stream, "22P04"),
    ("CopyFail", copy_fail, "57014"),
    ("CopyFail at once", copy_fail_at_once, "57014"),
    ("a cancel", cancelled, "57014"),
    ("statement_timeout", timed_out, "57014"),
];

/// Each failure by itself, in a transaction, and behind a savepoint; one session goes through all of them.
fn failures(scene: &Scene<'_>) {
    let mut session = scene.session();
    let session = session.as_mut();
    for (what, failing, sqlstate) in FAILING {
        let what = &format!("{what} ({:?})", scene.protocol);
        // For the COPY alone: a slow machine must not be cut off anywhere else.
        let timeout = if what.starts_with("statement_timeout") { "500ms" } else { "0" };
        let fail = |session: &mut dyn Session| {
            session.run(&format!("SET statement_timeout = '{timeout}'"));
            session.begin(COPY).unwrap_or_else(|refused| panic!("{what}: {refused:?}"));
            if let Some(refused) = failing(scene, session) {
                assert_eq!(refused.sqlstate, sqlstate, "{what}: {refused:?}");
            }
        };

        fail(session);
        session.run("SET statement_timeout = 0");
        assert_eq!(session.one("SELECT 'goes on'"), "goes on", "{what}");
        scene.untouched(what);

        session.run("BEGIN");
        session.run("INSERT INTO t VALUES (-1, 'before')");
        fail(session);
        let refused = session.query("SELECT 1").expect_err("an aborted transaction");
        assert_eq!(refused.sqlstate, "25P02", "{what}: {refused:?}");
        assert_eq!(scene.database.psql("SELECT count(*) FROM pg_stat_progress_copy"), "0", "{what}");
        session.run("ROLLBACK");
        assert_eq!(session.one("SELECT count(*) FROM t"), "0", "{what}");
        scene.untouched(what);

        // A savepoint undoes the COPY and nothing else, and the next one goes on from there.
        session.run("BEGIN");
        session.run("INSERT INTO t VALUES (-1, 'before')");
        session.run("SAVEPOINT s");
        fail(session);
        assert_eq!(session.query("SELECT 1").expect_err("aborted").sqlstate, "25P02", "{what}");
        session.run("ROLLBACK TO s");
        session.run("SET statement_timeout = 0");
        assert_eq!(session.one("SELECT sum(id) || ' ' || count(*) FROM t"), "-1 1", "{what}");
        session.begin(COPY).expect("COPY");
        for block in &scene.blocks {
            session.send(block);
        }
        assert_eq!(session.end().expect("rows"), (ROWS * BLOCKS) as u64, "{what}");
        session.run("COMMIT");
        assert_eq!(session.one("SELECT count(*) FROM t"), (ROWS * BLOCKS + 1).to_string(), "{what}");
        session.run("TRUNCATE t");
    }
}

/// What pg_stat_progress_copy says while a COPY waits for more, beside what it says of the server's own.
fn progress(scene: &Scene<'_>) {
    let mut session = scene.session();
    session.begin(COPY).expect("COPY");
    scene.half(session.as_mut());
    // Half a message more is taken, and no row of it.
    session.send(&scene.blocks[0][..100]);
    let bytes = scene.blocks[..BLOCKS / 2].iter().map(Vec::len).sum::<usize>() + 100;
    scene.arrive(bytes);
    let query =
        "SELECT datname = current_database(), relid::regclass, command, type, bytes_processed, bytes_total,
                        tuples_processed, tuples_excluded FROM pg_stat_progress_copy";
    let rows = ROWS * BLOCKS / 2;
    assert_eq!(scene.database.psql(query), format!("t|t|COPY FROM|PIPE|{bytes}|0|{rows}|0"));
    session.send(&scene.blocks[0][100..]);
    assert_eq!(session.end().expect("rows"), (rows + ROWS) as u64);
    assert_eq!(scene.database.psql("SELECT count(*) FROM pg_stat_progress_copy"), "0");
    session.run("TRUNCATE t");
}

/// Timeouts of sessions that do nothing mean nothing in a COPY, for it is a statement that runs.
fn idle_timeouts(scene: &Scene<'_>) {
    // In one message with the COPY: between two messages the session is idle, on a slow machine for too long.
    if scene.protocol != Some(Protocol::Simple) {
        return;
    }
    let mut session = scene.session();
    let sets = "SET idle_in_transaction_session_timeout = '50ms'; SET idle_session_timeout = '50ms'";
    session.begin(&format!("{sets}; {COPY}")).expect("COPY");
    scene.half(session.as_mut());
    std::thread::sleep(Duration::from_millis(200));
    scene.rest(session.as_mut());
    assert_eq!(session.end().expect("rows"), (ROWS * BLOCKS) as u64);
    scene.database.psql("TRUNCATE t");
}

/// A lock that cannot be had is an error before the server asks for data.
fn lock_timeout(scene: &Scene<'_>) {
    let mut other = scene.session();
    other.run("BEGIN");
    other.run("LOCK TABLE t IN SHARE MODE");
    let mut session = scene.session();
    session.run("SET lock_timeout = '50ms'");
    session.run("BEGIN");
    session.run("SAVEPOINT s");
    assert_eq!(session.begin(COPY).expect_err("a lock").sqlstate, "55P03");
    // tokio-postgres sends the end of a COPY that was never begun, and takes its answer for the next statement's.
    if scene.protocol.is_some() {
        session.run("ROLLBACK TO s");
        other.run("ROLLBACK");
        session.begin(COPY).expect("COPY");
        session.send(&scene.blocks[0]);
        assert_eq!(session.end().expect("rows"), ROWS as u64);
        session.run("ROLLBACK");
    }
}

/// The administrator ends a session that waits for data: at once, for nobody may ever send more.
fn terminated(scene: &Scene<'_>) {
    for started in [false, true] {
        let mut session = scene.session();
        let pid = session.one("SELECT pg_backend_pid()");
        session.run("BEGIN");
        session.begin(COPY).expect("COPY");
        if started {
            scene.half(session.as_mut());
        } else {
            scene.arrive(0);
        }
        ended(scene, session.as_mut(), &pid, &format!("SELECT pg_terminate_backend({pid})"), "57P01");
    }
}

/// From 17 on a transaction may be limited; then the session ends, with the next message if it waits for one.
fn transaction_timeout(scene: &Scene<'_>) {
    if scene.database.psql("SHOW server_version_num").parse::<u32>().expect("a number") < 170_000 {
        return;
    }
    let mut session = scene.session();
    let pid = session.one("SELECT pg_backend_pid()");
    session.run("SET transaction_timeout = '1s'");
    session.begin(COPY).expect("COPY");
    session.send(&scene.blocks[0]);
    std::thread::sleep(Duration::from_millis(1200));
    session.send(&scene.blocks[1]);
    ended(scene, session.as_mut(), &pid, "SELECT 1", "25P04");
}

/// The session's backend goes, with this error; the connection is lost and the table as it was.
fn ended(scene: &Scene<'_>, session: &mut dyn Session, pid: &str, by: &str, sqlstate: &str) {
    scene.database.psql(by);
    let until = Instant::now() + Duration::from_secs(60);
    while scene.database.psql(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")) != "0" {
        assert!(Instant::now() < until, "the backend is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    let refused = session.end().expect_err("a session that was ended");
    // A socket that was closed may take the last message with it.
    assert!(refused.sqlstate == sqlstate || refused.sqlstate.is_empty(), "{refused:?}");
    assert!(session.query("SELECT 1").is_err());
    scene.untouched(by);
}

fn everything(major: u32) {
    let version = Version::WithExtension(major);
    let server = Postgres::start(&ServerOptions { version, ..ServerOptions::default() });
    for protocol in [None, Some(Protocol::Simple), Some(Protocol::EarlySync), Some(Protocol::LateSync)] {
        let scene = Scene::new(&server, protocol);
        progress(&scene);
        failures(&scene);
        idle_timeouts(&scene);
        lock_timeout(&scene);
        terminated(&scene);
        transaction_timeout(&scene);
    }
    // A leak of buffers, locks or snapshots is a warning.
    let log = server.log();
    let odd: Vec<_> = log
        .lines()
        .filter(|line| ["WARNING", "PANIC", "TRAP", "signal 11", "signal 6"].iter().any(|w| line.contains(w)))
        .collect();
    assert!(odd.is_empty(), "{odd:#?}");
}

#[test]
fn a_failed_copy_leaves_the_session_usable_on_15() {
    require_server!(Version::WithExtension(15));
    everything(15);
}

#[test]
fn a_failed_copy_leaves_the_session_usable_on_16() {
    require_server!(Version::WithExtension(16));
    everything(16);
}

#[test]
fn a_failed_copy_leaves_the_session_usable_on_18() {
    require_server!(Version::WithExtension(18));
    everything(18);
}
