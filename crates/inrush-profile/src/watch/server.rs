//! The connection that watches: what it asks, and when.

use super::figures::{Found, Look, Size};
use super::picture::Hidden;
use super::session::{Relation, Session, SessionId, Target};
use super::statement::WrittenName;
use super::{Watch, WatchedServer};
use crate::blockers;
use crate::counters::Counters;
use crate::events::WaitEvent;
use crate::platform::{self, CpuTimes};
use inrush_core::{Code, Error, Result};
use inrush_sink::connect::Connected;
use inrush_sink::failure::server_error;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

/// Between two searches for sessions at work.
const SEARCH_EVERY: f64 = 0.5;
/// Between two readings of processor times: the kernel counts in steps of some milliseconds.
const CPU_EVERY: f64 = 0.25;
/// Between two readings of locks, sizes and counters, and two questions who blocks.
const READ_EVERY: f64 = 1.0;
/// Names are asked for again after so long: tables are renamed and made anew.
const NAMES_LAST: f64 = 10.0;
/// An answer that takes longer will not come.
const PATIENCE: Duration = Duration::from_secs(15);

/// This session is ours, so its settings may be, too: no timeout of the role ends it, and it waits for nobody's
/// lock.
const SETTINGS: &str = "
    SET statement_timeout = '10s';
    SET lock_timeout = '100ms';
    SET idle_session_timeout = 0;
    SET search_path = pg_catalog, pg_temp";

const ABOUT: &str = "
    SELECT pg_catalog.current_setting('server_version'), pg_catalog.current_database()::text,
           extract(timezone FROM pg_catalog.now())::int4, session_user::text,
           pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')";

/// Sessions that may be at work: what COPY and CREATE INDEX report, texts that look like it, and those that were
/// at work before ($1). The statement itself is judged by `Session::work`.
const SEARCH: &str = "
    SELECT a.pid, (extract(epoch FROM a.backend_start) * 1000000)::int8, a.usename::text, a.datname::text,
           coalesce(a.application_name, ''), pg_catalog.host(a.client_addr), a.state, a.query,
           (extract(epoch FROM a.xact_start) * 1000000)::int8,
           extract(epoch FROM pg_catalog.clock_timestamp() - a.query_start)::float8,
           extract(epoch FROM pg_catalog.clock_timestamp() - a.state_change)::float8,
           c.relid, i.relid, i.param13
      FROM pg_catalog.pg_stat_activity a
           LEFT JOIN pg_catalog.pg_stat_get_progress_info('COPY') c
                  ON c.pid OPERATOR(pg_catalog.=) a.pid AND c.param5 OPERATOR(pg_catalog.=) 1
           LEFT JOIN pg_catalog.pg_stat_get_progress_info('CREATE INDEX') i
                  ON i.pid OPERATOR(pg_catalog.=) a.pid
     WHERE a.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
       AND a.backend_type OPERATOR(pg_catalog.=) 'client backend' AND a.datname IS NOT NULL
       AND (a.state OPERATOR(pg_catalog.<>) 'idle'
            OR a.state_change OPERATOR(pg_catalog.>)
               (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '1 second'::interval))
       AND (c.relid IS NOT NULL OR i.relid IS NOT NULL OR a.pid OPERATOR(pg_catalog.=) ANY ($1::int4[])
            OR a.query OPERATOR(pg_catalog.~*) '(copy|insert|merge|into|refresh|create)')";

/// What each session waits for, and how far its COPY is. See `LOOK` of the sampler about the functions.
const LOOK: &str = "
    SELECT b.pid, pg_catalog.pg_stat_get_backend_wait_event_type(b.id),
           pg_catalog.pg_stat_get_backend_wait_event(b.id), c.param3 OPERATOR(pg_catalog.+) c.param4, c.param1
      FROM (SELECT id, pg_catalog.pg_stat_get_backend_pid(id) AS pid
              FROM pg_catalog.pg_stat_get_backend_idset() AS id) b
           LEFT JOIN pg_catalog.pg_stat_get_progress_info('COPY') c
                  ON c.pid OPERATOR(pg_catalog.=) b.pid AND c.param5 OPERATOR(pg_catalog.=) 1
     WHERE b.pid OPERATOR(pg_catalog.=) ANY ($1::int4[])";

/// A relation and its root, as `relation()` reads them.
const NAMED: &str = "
           c.oid, pg_catalog.format('%I.%I', n.nspname, c.relname), r.oid,
           pg_catalog.format('%I.%I', rn.nspname, r.relname)
      FROM pg_catalog.pg_class c
           JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
           JOIN pg_catalog.pg_class r
             ON r.oid OPERATOR(pg_catalog.=) coalesce(pg_catalog.pg_partition_root(c.oid), c.oid)
           JOIN pg_catalog.pg_namespace rn ON rn.oid OPERATOR(pg_catalog.=) r.relnamespace";

/// What sessions write to. INSERT and COPY lock the table, and each partition when its first row comes.
const LOCKS: &str = "
           JOIN pg_catalog.pg_locks l ON l.relation OPERATOR(pg_catalog.=) c.oid
     WHERE l.pid OPERATOR(pg_catalog.=) ANY ($1::int4[]) AND l.mode OPERATOR(pg_catalog.=) 'RowExclusiveLock'
       AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d
            WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
       AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,f}')
       AND n.nspname OPERATOR(pg_catalog.<>) 'pg_catalog'";

/// The tables of a name, those of schema public first: the search_path of a foreign session is not known.
const WRITTEN: &str = "
     WHERE c.relname OPERATOR(pg_catalog.=) $2::text::name
       AND ($1::text IS NULL OR n.nspname OPERATOR(pg_catalog.=) $1::text::name)
       AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,f,m}')
       AND n.nspname OPERATOR(pg_catalog.<>) ALL ('{pg_catalog,information_schema}')
     ORDER BY n.nspname OPERATOR(pg_catalog.<>) 'public', c.oid LIMIT 1";

/// Sizes and counted rows. pg_relation_size locks the relation for a moment: it is not asked where somebody has, or
/// wants, the relation for himself, as TRUNCATE in the transaction of a load does.
const SIZES: &str = "
    WITH locked AS MATERIALIZED (
         SELECT l.relation FROM pg_catalog.pg_locks l
          WHERE l.mode OPERATOR(pg_catalog.=) 'AccessExclusiveLock' AND l.relation IS NOT NULL)
    SELECT w.oid,
           CASE WHEN w.oid OPERATOR(pg_catalog.=) ANY (SELECT relation FROM locked) THEN NULL
                ELSE pg_catalog.pg_relation_size(w.oid) END,
           pg_catalog.pg_stat_get_tuples_inserted(w.oid)
      FROM pg_catalog.unnest($1::oid[]) AS w (oid)";

/// Sessions whose statements this role may not see, and how many of them run COPY.
const HIDDEN: &str = "
    SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity a
             WHERE a.query OPERATOR(pg_catalog.=) '<insufficient privilege>' AND a.datid IS NOT NULL),
           (SELECT count(*) FROM pg_catalog.pg_stat_get_progress_info('COPY') c WHERE c.relid IS NULL)";

/// Watches until the connection fails: why.
pub(super) async fn work(watch: &Watch, connected: Connected) -> Error {
    let begun = match in_time(Eye::open(watch, connected)).await {
        Ok(mut eye) => eye.work().await,
        Err(error) => Err(error),
    };
    match begun {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

struct Eye<'w> {
    watch: &'w Watch,
    connected: Connected,
    search: Statement,
    look: Statement,
    locks: Statement,
    named: Statement,
    written: Statement,
    sizes: Statement,
    database: String,
    sees_all: bool,
    /// Last readings of processor times of sessions whose process is one of this machine.
    cpu: HashMap<SessionId, Option<CpuTimes>>,
    own_cpu: Option<CpuTimes>,
    own_cpu_before: f64,
    names: HashMap<u32, Option<Relation>>,
    by_name: HashMap<WrittenName, Option<Relation>>,
    names_since: f64,
}

impl<'w> Eye<'w> {
    async fn open(watch: &'w Watch, connected: Connected) -> Result<Eye<'w>> {
        let client = &connected.client;
        client.batch_execute(SETTINGS).await.map_err(server_error)?;
        if connected.server_version_num >= 170_000 {
            client.batch_execute("SET transaction_timeout = 0").await.map_err(server_error)?;
        }
        let about = client.query_one(ABOUT, &[]).await.map_err(server_error)?;
        let prepare = async |text: &str| client.prepare(text).await.map_err(server_error);
        let (search, look, sizes) = (prepare(SEARCH).await?, prepare(LOOK).await?, prepare(SIZES).await?);
        let locks = prepare(&format!("SELECT DISTINCT l.pid, {NAMED}{LOCKS}")).await?;
        let named =
            prepare(&format!("SELECT {NAMED} WHERE c.oid OPERATOR(pg_catalog.=) ANY ($1::oid[])")).await?;
        let written = prepare(&format!("SELECT {NAMED}{WRITTEN}")).await?;
        let (database, role): (String, String) = (about.get(1), about.get(3));
        let local = platform::is_backend(connected.backend_pid, &role, &database);
        let own_cpu = platform::cpu_times(connected.backend_pid).filter(|_| local);
        let own_cpu_before = watch.server().and_then(|server| server.cpu_seconds).unwrap_or_default();
        watch.set_server(|server| {
            *server = Some(WatchedServer {
                host: connected.host.to_string(),
                version: about.get(0),
                database: database.clone(),
                utc_offset: about.get(2),
                cpu_seconds: own_cpu.map(|_| own_cpu_before),
            });
        });
        watch.figures().trouble(None);
        Ok(Eye {
            watch,
            search,
            look,
            locks,
            named,
            written,
            sizes,
            database,
            sees_all: about.get(4),
            connected,
            cpu: HashMap::new(),
            own_cpu,
            own_cpu_before,
            names: HashMap::new(),
            by_name: HashMap::new(),
            names_since: 0.0,
        })
    }

    async fn work(&mut self) -> Result<std::convert::Infallible> {
        let interval = 1.0 / f64::from(self.watch.options.hz.clamp(1, 1000));
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(interval));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What is done less often is spread, so that no look is late because of all of it.
        let (mut search_at, mut cpu_at, mut read_at) = (0.0, 0.0, 0.0);
        loop {
            ticks.tick().await;
            let now = self.watch.now();
            if now >= search_at {
                search_at = now + SEARCH_EVERY;
                in_time(self.search()).await?;
            } else if now >= read_at {
                read_at = now + READ_EVERY;
                in_time(self.read()).await?;
            }
            in_time(self.look(interval)).await?;
            if now >= cpu_at {
                cpu_at = now + CPU_EVERY;
                self.split_cpu();
            }
        }
    }

    /// Finds who is at work.
    async fn search(&mut self) -> Result<()> {
        let before = self.watch.figures().pids();
        let rows = self.rows(&self.search, &[&before]).await?;
        let mut found = Vec::new();
        {
            let figures = self.watch.figures();
            for session in rows.iter().filter_map(session) {
                if let Some(work) = session.work(figures.work_of(session.id)) {
                    found.push((session, work));
                }
            }
        }
        let targets = self.targets(&found).await?;
        let found = found.into_iter().zip(targets);
        let found = found.map(|((session, work), target)| Found { session, work, target }).collect();
        let now = self.watch.now();
        self.watch.figures().found(now, found);
        Ok(())
    }

    /// The table of each.
    async fn targets(&mut self, found: &[(Session, super::session::Work)]) -> Result<Vec<Target>> {
        let now = self.watch.now();
        if now - self.names_since > NAMES_LAST {
            self.names_since = now;
            self.names.clear();
            self.by_name.clear();
        }
        let here: Vec<_> = found.iter().filter(|(session, _)| session.database == self.database).collect();
        let copied: Vec<u32> = here.iter().filter_map(|(_, work)| work.relation).collect();
        self.learn_names(&copied).await?;
        let pids: Vec<i32> = here.iter().map(|(session, _)| session.id.pid).collect();
        let locked = if pids.is_empty() { HashMap::new() } else { self.locked(&pids).await? };
        let mut targets = Vec::with_capacity(found.len());
        for (session, work) in found {
            targets.push(self.target(session, work, &locked).await?);
        }
        Ok(targets)
    }

    async fn target(
        &mut self,
        session: &Session,
        work: &super::session::Work,
        locked: &HashMap<i32, Vec<Relation>>,
    ) -> Result<Target> {
        if session.database != self.database {
            return Ok(Target::written(&session.database, false, work.written.as_ref()));
        }
        let locked = locked.get(&session.id.pid).map_or(&[][..], Vec::as_slice);
        if let Some(relation) = work.relation.and_then(|oid| self.names.get(&oid)?.clone()) {
            // Partitions it has come to, and the table itself.
            let mut own: Vec<Relation> =
                locked.iter().filter(|other| other.root == relation.root).cloned().collect();
            if own.iter().all(|other| other.oid != relation.oid) {
                own.push(relation.clone());
            }
            let target = Target::locked(&own, None);
            return Ok(target
                .map(|target| Target { name: relation.name, ..target })
                .unwrap_or_else(|| Target::written(&session.database, true, work.written.as_ref())));
        }
        if let Some(target) = Target::locked(locked, work.written.as_ref()) {
            return Ok(target);
        }
        // Between two statements there are no locks.
        if work.between
            && let Some(target) = self.watch.figures().target_of(session.id)
        {
            return Ok(target);
        }
        let Some(written) = &work.written else {
            return Ok(Target::written(&session.database, true, None));
        };
        if !self.by_name.contains_key(written) {
            let (schema, relation) = (&written.schema, &written.relation);
            let rows = self.rows(&self.written, &[schema, relation]).await?;
            self.by_name.insert(written.clone(), rows.first().map(|row| relation_of(row, 0)));
        }
        let known = self.by_name.get(written).cloned().flatten();
        Ok(known
            .and_then(|relation| Target::locked(&[relation], None))
            .unwrap_or_else(|| Target::written(&session.database, true, Some(written))))
    }

    async fn learn_names(&mut self, oids: &[u32]) -> Result<()> {
        let unknown: Vec<u32> = oids.iter().copied().filter(|oid| !self.names.contains_key(oid)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let rows = self.rows(&self.named, &[&unknown]).await?;
        // A table that was made in a transaction still open has no name for others.
        self.names.extend(unknown.into_iter().map(|oid| (oid, None)));
        for relation in rows.iter().map(|row| relation_of(row, 0)) {
            self.names.insert(relation.oid, Some(relation));
        }
        Ok(())
    }

    async fn locked(&self, pids: &[i32]) -> Result<HashMap<i32, Vec<Relation>>> {
        let mut locked: HashMap<i32, Vec<Relation>> = HashMap::new();
        for row in self.rows(&self.locks, &[&pids]).await? {
            locked.entry(row.get(0)).or_default().push(relation_of(&row, 1));
        }
        Ok(locked)
    }

    /// Sees what those at work wait for.
    async fn look(&self, interval: f64) -> Result<()> {
        let pids = self.watch.figures().pids();
        let mut looks = Vec::new();
        if !pids.is_empty() {
            for row in self.rows(&self.look, &[&pids]).await? {
                let part = |i: usize| row.get::<_, Option<&str>>(i).unwrap_or_default();
                let count = |i: usize| row.get::<_, Option<i64>>(i).map(i64::unsigned_abs);
                let event = WaitEvent::new(part(1), part(2));
                looks.push(Look { pid: row.get(0), event, copied: count(3).zip(count(4)) });
            }
        }
        let now = self.watch.now();
        self.watch.figures().look(now, interval, looks);
        Ok(())
    }

    /// Reads sizes and counters, and asks who blocks.
    async fn read(&mut self) -> Result<()> {
        let counters =
            tolerated(Counters::read(&self.connected.client, self.connected.server_version_num).await)?;
        let relations = self.watch.figures().relations();
        let sizes: Vec<Size> = match relations.is_empty() {
            true => Vec::new(),
            false => self.rows(&self.sizes, &[&relations]).await?.iter().map(size).collect(),
        };
        let locked = self.watch.figures().locked();
        let blockers = match locked.is_empty() {
            true => None,
            false => tolerated(blockers::look(&self.connected.client, &locked, &[]).await)?,
        };
        let hidden = if self.sees_all { None } else { self.hidden().await? };
        let now = self.watch.now();
        let mut figures = self.watch.figures();
        if let Some(counters) = counters {
            figures.counters(now, counters);
        }
        figures.sizes(now, &sizes);
        figures.blockers(&blockers.unwrap_or_default());
        figures.hidden(hidden);
        Ok(())
    }

    async fn hidden(&self) -> Result<Option<Hidden>> {
        let row = tolerated(self.connected.client.query_one(HIDDEN, &[]).await.map_err(server_error))?;
        let count = |row: &Row, i: usize| row.get::<_, i64>(i).unsigned_abs();
        Ok(row
            .map(|row| Hidden { sessions: count(&row, 0), copies: count(&row, 1) })
            .filter(|hidden| hidden.sessions > 0))
    }

    /// Tells running from waiting for a processor, where the server runs on this machine.
    fn split_cpu(&mut self) {
        let titles = self.watch.figures().titles();
        self.cpu.retain(|id, _| titles.iter().any(|(known, _, _)| known == id));
        for (id, role, database) in titles {
            let first = |_: &SessionId| {
                platform::cpu_times(id.pid).filter(|_| platform::is_backend(id.pid, &role, &database))
            };
            let before = *self.cpu.entry(id).or_insert_with_key(first);
            let Some((before, now)) = before.zip(platform::cpu_times(id.pid)) else { continue };
            self.cpu.insert(id, Some(now));
            let (ran, queued) = ((now.ran - before.ran).max(0.0), (now.queued - before.queued).max(0.0));
            if ran + queued > 0.0 {
                self.watch.figures().queued(id, queued / (ran + queued));
            }
        }
        if let Some((first, now)) = self.own_cpu.zip(platform::cpu_times(self.connected.backend_pid)) {
            let seconds = self.own_cpu_before + now.ran - first.ran;
            self.watch.set_server(|server| {
                if let Some(server) = server {
                    server.cpu_seconds = Some(seconds);
                }
            });
        }
    }

    /// Rows of a query; none where the server would not give them this time, an error where it is gone.
    async fn rows(&self, statement: &Statement, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let rows = self.connected.client.query(statement, parameters).await;
        let rows = rows.map_err(|error| self.connected.failure(&error).into_error());
        Ok(tolerated(rows)?.unwrap_or_default())
    }
}

/// Answers that do not come will not: the network may be cut without anybody having said so.
async fn in_time<T>(answers: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(PATIENCE, answers).await.unwrap_or_else(|_| {
        let fact = format!("the server has not answered for {} s", PATIENCE.as_secs());
        Err(Error::new(Code::ConnectionLost, fact))
    })
}

/// What a statement that timed out would have said is left out; what was said is gone with the connection.
fn tolerated<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code() == Code::ConnectionLost => Err(error),
        Err(error) => {
            tracing::debug!(%error, "left out");
            Ok(None)
        }
    }
}

/// A session that this role may see.
fn session(row: &Row) -> Option<Session> {
    let text = |i: usize| row.get::<_, Option<String>>(i);
    Some(Session {
        id: SessionId { pid: row.get(0), started: row.get::<_, Option<i64>>(1)? },
        user: text(2).unwrap_or_default(),
        database: text(3)?,
        application: text(4).unwrap_or_default(),
        client: text(5),
        state: text(6)?,
        query: text(7)?,
        transaction: row.get(8),
        statement_seconds: row.get::<_, Option<f64>>(9).unwrap_or_default(),
        state_seconds: row.get::<_, Option<f64>>(10).unwrap_or_default(),
        copies_into: row.get(11),
        indexes: row
            .get::<_, Option<u32>>(12)
            .map(|table| (table, row.get::<_, Option<i64>>(13).unwrap_or_default().unsigned_abs())),
    })
}

fn relation_of(row: &Row, first: usize) -> Relation {
    Relation {
        oid: row.get(first),
        name: row.get(first + 1),
        root: row.get(first + 2),
        root_name: row.get(first + 3),
    }
}

fn size(row: &Row) -> Size {
    let count = |i: usize| row.get::<_, Option<i64>>(i).map(i64::unsigned_abs);
    Size { relation: row.get(0), bytes: count(1), inserted: count(2).unwrap_or_default() }
}
