//! One contender for some time: what is made for it, what watches it, what it leaves.

use crate::c3::blocks::Block;
use crate::c3::psql::Session;
use crate::c3::published::{self, Done};
use crate::c3::senders::{Senders, Told};
use crate::c3::serve::{self, Serve};
use crate::c3::{Case, Contender, Kind, Purpose, Query, Rung, Turn, ask};
use crate::server::{LEDGER, SCHEMA, Server, remove_server_variables};
use crate::{machine, measure};
use inrush_core::{Code, Error, Excerpt, Result};
use inrush_testkit::Installation;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Seconds of which each has its own figure.
const SECONDS_KEPT: usize = 3600;
/// Questions that a turn keeps.
const QUERIES_KEPT: f64 = 2000.0;

/// Where turns take place.
#[derive(Debug)]
pub struct Stage<'s> {
    pub case: &'s Case,
    pub installation: &'s Installation,
    pub server: &'s Server,
    pub inrush: &'s Path,
    /// For sockets, scripts and logs.
    pub dir: &'s Path,
}

/// A turn to be.
#[derive(Debug, Clone)]
pub struct Wanted<'w> {
    pub rung: &'w Rung,
    pub contender: &'w Contender,
    pub purpose: Purpose,
    pub seconds: f64,
    /// Rows a second.
    pub paced_to: Option<f64>,
}

/// What the threads beside it share.
#[derive(Debug, Default)]
struct Shared {
    /// Rows acknowledged.
    rows: AtomicU64,
    /// The contender is to end.
    stop: AtomicBool,
    /// It has ended.
    ended: AtomicBool,
    truncated_bytes: AtomicU64,
    truncated: AtomicU64,
}

impl Shared {
    /// Sleeps until then; false if the contender has ended before.
    fn sleep_until(&self, then: Instant) -> bool {
        while !self.ended.load(Relaxed) {
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
        false
    }
}

impl Stage<'_> {
    /// Does it. What the contender does wrong is in the turn; an error is of the server or this machine.
    pub fn turn(&self, wanted: &Wanted<'_>) -> Result<Turn> {
        let server = self.server;
        server.clear()?;
        let tables = self.make_tables(wanted)?;
        server.checkpoint()?;
        let mut serve = match wanted.contender.kind {
            Kind::ServeHttp | Kind::ServeStdin => Some(self.start_serve(wanted)?),
            _ => None,
        };

        let shared = Shared::default();
        let load_average = machine::load_average();
        let wal_before = server.wal_position()?;
        let (busy_before, server_before) = (machine::busy(), server.cpu());
        let serve_before = serve.as_ref().and_then(Serve::cpu);
        let began = Instant::now();
        let (outcome, seconds_and_minutes, kept, mut queries) = thread::scope(|scope| {
            let sampler = scope.spawn(|| sample(&shared, began));
            let keeper = scope.spawn(|| self.keep_small(&shared, wanted));
            let questions = scope.spawn(|| self.questions(&shared, &tables[0], wanted, began));
            let outcome = self.contend(wanted, &tables, serve.as_mut(), &shared, began);
            shared.ended.store(true, Relaxed);
            (outcome, sampler.join(), keeper.join(), questions.join())
        });
        let (busy_after, server_after) = (machine::busy(), server.cpu());
        let wall = began.elapsed().as_secs_f64();
        let wal = server.wal_position()?.saturating_sub(wal_before);
        let serve_cpu =
            serve.as_ref().and_then(Serve::cpu).zip(serve_before).map(|(after, before)| after - before);
        let serve_peak = serve.as_ref().and_then(Serve::peak);
        let visible = serve.as_ref().filter(|_| wanted.contender.kind == Kind::ServeHttp);
        let visible_p99_at_most = visible.and_then(Serve::visible_p99);
        let mut failures = Vec::new();
        let (done, told) = outcome.unwrap_or_else(|e| {
            failures.push(e.to_string());
            (Done { rows: shared.rows.load(Relaxed), seconds: wall, cpu: 0.0 }, None)
        });
        if wanted.purpose == Purpose::Window && failures.is_empty() {
            // The passes that sum up what has been written; one a second.
            thread::sleep(Duration::from_secs(3));
            queries = Ok(self.ask_three(&tables[0], began));
        }
        // Of one that reads standard input this is too late, and of no use.
        if let Some(Err(e)) = serve.as_mut().map(Serve::stop) {
            failures.push(e.to_string());
        }
        if let Ok(Err(e)) = kept {
            failures.push(e.to_string());
        }
        let queries = queries.unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_else(|e| {
            failures.push(e.to_string());
            Vec::new()
        });
        let truncated = u32::try_from(shared.truncated.load(Relaxed)).unwrap_or(u32::MAX);
        let mut counted = None;
        if truncated == 0 && wanted.purpose == Purpose::Top {
            let rows = self.count(&tables)?;
            counted = Some(rows);
            if rows != done.rows {
                failures.push(format!("{rows} rows instead of {}", done.rows));
            }
        }
        let server_cpu = server_before.zip(server_after).map(|(before, after)| after - before);
        let known = done.cpu + server_cpu.unwrap_or(0.0) + serve_cpu.unwrap_or(0.0);
        let (each_second, each_minute) = seconds_and_minutes.unwrap_or_default();
        Ok(Turn {
            server: 0,
            rung: wanted.rung.name.clone(),
            round: 0,
            contender: wanted.contender.name.clone(),
            purpose: wanted.purpose,
            seconds: done.seconds,
            rows: done.rows,
            counted,
            each_second,
            each_minute,
            client_cpu_seconds: done.cpu,
            serve_cpu_seconds: serve_cpu,
            serve_peak_bytes: serve_peak,
            server_cpu_seconds: server_cpu,
            wal_bytes: wal,
            disk_bytes: self.size()? + shared.truncated_bytes.load(Relaxed),
            truncated,
            foreign_cores: busy_before
                .zip(busy_after)
                .map(|(before, after)| ((after - before - known) / wall.max(0.01)).max(0.0)),
            load_average,
            paced_to: wanted.paced_to,
            answers: told.as_ref().and_then(|told| told.answers.times()),
            visible_p99_at_most,
            told_to_come_back: told.map(|told| told.to_come_back.load(Relaxed)),
            queries,
            failure: failures.into_iter().next(),
        })
    }

    /// The tables of a turn, by their names.
    fn make_tables(&self, wanted: &Wanted<'_>) -> Result<Vec<String>> {
        let (case, rung) = (self.case, wanted.rung);
        let kind = wanted.contender.kind;
        let count = match kind {
            _ if wanted.purpose == Purpose::Window => 1,
            Kind::PgbenchConstants | Kind::PgbenchData => case.clients,
            Kind::Copy | Kind::ServeStdin => 1,
            Kind::ServeHttp => case.serve.tables,
        };
        let names: Vec<String> = (0..count.max(1)).map(|n| format!("{SCHEMA}.t{n}")).collect();
        self.server.sql(&format!("CREATE SCHEMA {SCHEMA}"))?;
        for name in &names {
            if !matches!(kind, Kind::ServeHttp | Kind::ServeStdin) {
                let unlogged = if rung.unlogged { "UNLOGGED " } else { "" };
                self.server.sql(&format!(
                    "CREATE {unlogged}TABLE {name} ({}); ALTER TABLE {name} ALTER info SET STORAGE PLAIN; \
                     CREATE INDEX ON {name} USING brin (crt_time) WITH (pages_per_range = {})",
                    case.columns, case.pages_per_range
                ))?;
                continue;
            }
            let mut command = Command::new(self.inrush);
            remove_server_variables(&mut command);
            command
                .args(["table", "create", name, &case.columns, "--time", "crt_time", "--window", "1h"])
                .args(["--storage", "info=plain", "--pages-per-range"])
                .arg(case.serve.pages_per_range.to_string())
                .args(["--to", self.server.dsn(), "--ledger", LEDGER]);
            if rung.unlogged {
                command.arg("--unlogged");
            }
            if kind == Kind::ServeStdin {
                // Two columns there are; the time is the shorter one to hash.
                command.args(["--lanes", &case.serve.lanes.to_string(), "--key", "crt_time"]);
            }
            let output = command
                .output()
                .map_err(|e| Error::new(Code::Local, format!("inrush table cannot be run: {e}")))?;
            if !output.status.success() {
                let said = Excerpt(output.stderr.trim_ascii()).to_string();
                return Err(Error::new(Code::Local, format!("inrush table create: {said}")));
            }
        }
        Ok(names)
    }

    fn start_serve(&self, wanted: &Wanted<'_>) -> Result<Serve> {
        let settings = &self.case.serve;
        let linger = match wanted.purpose {
            Purpose::Top | Purpose::Long => settings.linger.as_str(),
            Purpose::Paced => settings.paced_linger.as_str(),
            // Rows that come out of order would be as far apart in this table as those of many seconds in a whole hour.
            Purpose::Window => "5ms",
        };
        Serve::start(&serve::Wanted {
            inrush: self.inrush,
            dir: self.dir,
            dsn: self.server.dsn(),
            schema: SCHEMA,
            ledger: LEDGER,
            via: wanted.contender.via.as_deref().unwrap_or("auto"),
            unlogged: wanted.rung.unlogged,
            linger,
            settings,
            stdin_into: (wanted.contender.kind == Kind::ServeStdin).then_some("inrush_bench.t0"),
        })
    }

    fn contend(
        &self,
        wanted: &Wanted<'_>,
        tables: &[String],
        serve: Option<&mut Serve>,
        shared: &Shared,
        began: Instant,
    ) -> Result<(Done, Option<Told>)> {
        let (case, kind) = (self.case, wanted.contender.kind);
        let until = began + Duration::from_secs_f64(wanted.seconds);
        let none = || Error::new(Code::Internal, "serve does not run");
        match kind {
            Kind::PgbenchConstants | Kind::PgbenchData => {
                let file = self.dir.join("pgbench.sql");
                std::fs::write(&file, published::script(case, kind, SCHEMA))
                    .map_err(|e| Error::new(Code::Output, format!("cannot write {}: {e}", file.display())))?;
                let (server, seconds) = (self.server, wanted.seconds);
                published::pgbench(self.installation, server, case, kind, &file, seconds, &shared.rows)
                    .map(|done| (done, None))
            }
            Kind::Copy => {
                let (stop, rows) = (&shared.stop, &shared.rows);
                published::copy(self.installation, self.server, case, &tables[0], until, stop, rows)
                    .map(|done| (done, None))
            }
            Kind::ServeStdin => {
                let serve = serve.ok_or_else(none)?;
                let mut done = published::stdin(serve, case, until, &shared.stop, &shared.rows)?;
                serve.wait()?;
                done.seconds = began.elapsed().as_secs_f64();
                Ok((done, None))
            }
            Kind::ServeHttp => {
                let serve = serve.ok_or_else(none)?;
                let row = Block::row_bytes(case.info_bytes);
                let full = ((case.serve.body_kib << 10) / row).max(1);
                let (connections, rows) = match (wanted.purpose, wanted.paced_to) {
                    (Purpose::Window, _) => (4, ((256 << 10) / row).max(1)),
                    (_, Some(rate)) => {
                        // Two bodies a second of each sender.
                        let connections = case.serve.paced_connections;
                        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rows of a body
                        let rows = (rate / 2.0 / f64::from(connections)) as usize;
                        (connections, rows.clamp(1, full))
                    }
                    _ => (case.serve.connections, full),
                };
                let senders = Senders {
                    socket: &serve.socket,
                    tables: u32::try_from(tables.len()).unwrap_or(1),
                    connections,
                    block: Block::csv(rows, case.info_bytes, true),
                    paced_to: wanted.paced_to,
                };
                let cpu = measure::own_cpu_seconds();
                let told = senders.run(until, &shared.stop, &shared.rows);
                let done = Done {
                    rows: shared.rows.load(Relaxed),
                    seconds: began.elapsed().as_secs_f64(),
                    cpu: measure::own_cpu_seconds() - cpu,
                };
                let failure = told.failure.lock().ok().and_then(|mut failure| failure.take());
                match failure {
                    Some(e) => Err(Error::new(Code::Local, format!("{e}; serve: {}", serve.said()))),
                    None => Ok((done, Some(told))),
                }
            }
        }
    }

    /// Truncates the tables when they have reached their bound, or ends the turn if that is what it is for.
    fn keep_small(&self, shared: &Shared, wanted: &Wanted<'_>) -> Result<()> {
        let mut session = Session::open(self.server)?;
        let window = wanted.purpose == Purpose::Window;
        let bound = (if window { self.case.window_mib } else { self.case.bound_mib }) << 20;
        let mut next = Instant::now();
        loop {
            next += Duration::from_millis(500);
            if !shared.sleep_until(next) {
                return Ok(());
            }
            let size: u64 = session.ask(SIZE)?.parse().unwrap_or(0);
            if size < bound {
                continue;
            }
            if window {
                shared.stop.store(true, Relaxed);
                return Ok(());
            }
            shared.truncated_bytes.fetch_add(size, Relaxed);
            // Leaves, one at a time: who holds one of them waits for nothing that is held here.
            for leaf in session.ask(LEAVES)?.split_whitespace() {
                session.ask(&format!("TRUNCATE {leaf}"))?;
            }
            shared.truncated.fetch_add(1, Relaxed);
        }
    }

    /// Asks now and then, in turns that are not compared with others.
    fn questions(
        &self,
        shared: &Shared,
        table: &str,
        wanted: &Wanted<'_>,
        began: Instant,
    ) -> Result<Vec<Query>> {
        let mut queries = Vec::new();
        if wanted.purpose != Purpose::Long {
            return Ok(queries);
        }
        let mut session = Session::open(self.server)?;
        let pause = Duration::from_secs_f64((wanted.seconds / QUERIES_KEPT).max(5.0));
        let mut next = began;
        loop {
            next = (next + pause).max(Instant::now());
            if !shared.sleep_until(next) {
                return Ok(queries);
            }
            queries.extend(ask::ask(&mut session, table, began.elapsed().as_secs_f64())?);
        }
    }

    fn ask_three(&self, table: &str, began: Instant) -> Result<Vec<Query>> {
        let mut session = Session::open(self.server)?;
        let mut queries = Vec::new();
        for _ in 0..3 {
            queries.extend(ask::ask(&mut session, table, began.elapsed().as_secs_f64())?);
        }
        Ok(queries)
    }

    fn count(&self, tables: &[String]) -> Result<u64> {
        let counts: Vec<String> =
            tables.iter().map(|table| format!("(SELECT count(*) FROM {table})")).collect();
        Ok(self.server.sql(&format!("SELECT {}", counts.join(" + ")))?.parse().unwrap_or(0))
    }

    fn size(&self) -> Result<u64> {
        Ok(self.server.sql(SIZE)?.parse().unwrap_or(0))
    }
}

/// Bytes of everything in the schema.
const SIZE: &str = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class \
    WHERE relkind = 'r' AND relnamespace = 'inrush_bench'::regnamespace";

/// What has rows.
const LEAVES: &str = "SELECT string_agg(oid::regclass::text, ' ') FROM pg_class \
    WHERE relkind = 'r' AND relnamespace = 'inrush_bench'::regnamespace";

/// Rows of each second and of each minute.
fn sample(shared: &Shared, began: Instant) -> (Vec<u64>, Vec<u64>) {
    let (mut seconds, mut minutes) = (Vec::new(), Vec::new());
    let (mut before, mut minute, mut passed) = (0, 0, 0_u64);
    loop {
        passed += 1;
        if !shared.sleep_until(began + Duration::from_secs(passed)) {
            return (seconds, minutes);
        }
        let now = shared.rows.load(Relaxed);
        let rows = now.saturating_sub(before);
        before = now;
        minute += rows;
        if seconds.len() < SECONDS_KEPT {
            seconds.push(rows);
        }
        if passed.is_multiple_of(60) {
            minutes.push(std::mem::take(&mut minute));
        }
    }
}
