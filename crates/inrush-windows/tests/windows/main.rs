//! Windowed tables on real servers.

mod brin;
mod load;
mod making;
mod others;
mod retiring;

use inrush_sink::catalog::TableName;
use inrush_sink::connect::{self, Connected};
use inrush_sink::conninfo;
use inrush_sink::ledger::Ledger;
use inrush_testkit::{Database, Postgres};
use inrush_windows::{
    Body, Create, Created, IndexKind, Late, Maintained, Options, Span, Windowed, create, maintain, read,
};
use std::time::{Duration, SystemTime};

const HOUR: Duration = Duration::from_secs(3600);

/// A database with a ledger, and a session in it.
struct Place {
    database: Database<'static>,
    session: Connected,
    ledger: Ledger,
}

async fn open(dsn: &str) -> Connected {
    let info = conninfo::resolve(Some(dsn), &|_| None).expect("settings").expect("a server");
    connect::connect(&info, "windows test").await.expect("connection")
}

impl Place {
    async fn new(version: u32) -> Place {
        let database = Postgres::shared(version).fresh_database();
        let mut session = open(&database.url()).await;
        let ledger = Ledger::open(&mut session.client, "inrush_ledger", true).await.unwrap().unwrap();
        Place { database, session, ledger }
    }

    async fn create(&mut self, spec: &Create) -> Created {
        create(&mut self.session.client, &self.ledger, spec).await.unwrap()
    }

    async fn refused(&mut self, spec: &Create) -> inrush_core::Error {
        let error = create(&mut self.session.client, &self.ledger, spec).await.unwrap_err();
        let hint = error.hint_text().unwrap_or_default();
        assert!(hint.ends_with('.'), "a hint is a sentence: {error}");
        assert!(!error.fact().ends_with('.'), "{error}");
        // Nothing half made.
        assert_eq!(
            self.psql("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"),
            "0"
        );
        assert_eq!(self.psql("SELECT count(*) FROM inrush_ledger.windowed"), "0");
        error
    }

    async fn maintain_with(&mut self, relid: u32, now: SystemTime, options: &Options) -> Maintained {
        maintain(&mut self.session.client, &self.ledger, relid, now, options).await.unwrap()
    }

    async fn maintain(&mut self, relid: u32, now: SystemTime) -> Maintained {
        self.maintain_with(relid, now, &Options::default()).await
    }

    async fn read(&mut self, relid: u32) -> Windowed {
        read(&self.session.client, &self.ledger, relid).await.unwrap().unwrap()
    }

    fn psql(&self, sql: &str) -> String {
        self.database.psql(sql)
    }

    /// Rows at this time, through the parent as anybody would.
    fn insert(&self, at: SystemTime, rows: u32) {
        let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        self.psql(&format!(
            "INSERT INTO calls SELECT to_timestamp({seconds}), g, 'row ' || g FROM generate_series(1, {rows}) g"
        ));
    }

    /// Partitions of a table, pending ones included.
    fn partitions(&self) -> String {
        self.psql("SELECT count(*) FROM pg_inherits WHERE inhparent = 'calls'::regclass")
    }

    /// Tables in the schema, whatever they are.
    fn tables(&self) -> String {
        self.psql("SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace")
    }
}

/// A table `calls` with windows of an hour, kept for a day, two ahead.
fn calls() -> Create {
    Create {
        name: TableName { schema: None, name: "calls".into() },
        body: Body::Columns("at timestamptz NOT NULL, device int, info text".into()),
        time_column: "at".into(),
        unit: None,
        window: Some(span("1h")),
        keep: Some(span("1d")),
        max_size: None,
        min_free: None,
        ahead: 2,
        lanes: 1,
        key_column: None,
        tablespaces: Vec::new(),
        unlogged: false,
        index: IndexKind::Brin,
        pages_per_range: 128,
        storage: Vec::new(),
        late: Late::Reject,
        idle: span("10s"),
    }
}

fn laned(lanes: u32) -> Create {
    Create { lanes, key_column: Some("device".into()), ..calls() }
}

/// Ends those who work until they are told to stop, also when the test fails.
struct Stop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

fn on_this_thread<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Runs something to its end on a thread of its own. Its future can be sent there: so can `maintain`.
fn alone<T: Send>(work: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| on_this_thread(work)).join().unwrap())
}

fn span(text: &str) -> Span {
    Span::parse(text).unwrap()
}
