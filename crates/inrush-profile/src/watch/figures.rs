//! What has been seen of foreign sessions so far, put together. Knows no connection: it is handed what was seen
//! and the time, in seconds since the beginning.

use super::picture::{BackendFigures, Hidden, Picture, TableFigures};
use super::session::{Session, SessionId, TableKey, Target, Work};
use super::statement::Kind;
use super::tally::{Course, Running, Tally};
use crate::blockers::Blocker;
use crate::class::{Class, ClassTimes};
use crate::counters::Counters;
use crate::events::WaitEvent;
use std::collections::{BTreeMap, BTreeSet};

/// Sessions and tables that are remembered; of more, those that took least time and are gone are forgotten.
const MAX_REMEMBERED: usize = 1000;
/// What tables grew by is told over at least so many seconds: the server counts INSERTed rows once a second.
const GROWTH_OVER: f64 = 3.0;

/// Which sessions and tables are wanted: all, unless some are named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Tables, with or without schema.
    pub tables: Vec<String>,
    /// Processes.
    pub pids: Vec<i32>,
}

impl Wanted {
    fn has(&self, found: &Found) -> bool {
        let called = |name: &str, wanted: &str| {
            name == wanted || name.strip_suffix(wanted).is_some_and(|schema| schema.ends_with(['.', ' ']))
        };
        (self.pids.is_empty() || self.pids.contains(&found.session.id.pid))
            && (self.tables.is_empty()
                || self
                    .tables
                    .iter()
                    .any(|t| called(&found.target.name, t) || called(&found.target.root_name, t)))
    }
}

/// A session at work, and its table.
#[derive(Debug, Clone)]
pub struct Found {
    /// The session.
    pub session: Session,
    /// What it does.
    pub work: Work,
    /// What it does it to.
    pub target: Target,
}

/// A look at one session.
#[derive(Debug, Clone)]
pub struct Look {
    /// Process id of the backend.
    pub pid: i32,
    /// What it waits for.
    pub event: WaitEvent,
    /// Rows stored or left out, and bytes read, by the COPY that runs.
    pub copied: Option<(u64, u64)>,
}

/// A reading of a relation's size and of the rows inserted into it.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// OID.
    pub relation: u32,
    /// Bytes, unless somebody has locked everybody else out.
    pub bytes: Option<u64>,
    /// Rows inserted, as the server has counted them.
    pub inserted: u64,
}

#[derive(Debug)]
struct Backend {
    session: Session,
    work: Work,
    table: TableKey,
    present: bool,
    tally: Course<Tally>,
    running: Running,
    /// Rows and bytes of the COPY at the last look.
    copied: Option<(u64, u64)>,
    indexed: u64,
    event: Option<WaitEvent>,
    blockers: Vec<Blocker>,
}

#[derive(Debug)]
struct Table {
    name: String,
    root_name: String,
    kinds: BTreeSet<Kind>,
    tally: Course<Tally>,
    /// Bytes grown and rows inserted, by the readings of its relations.
    growth: Course<(u64, u64)>,
    /// What sessions write to, with the last readings.
    relations: BTreeMap<u32, Option<Size>>,
}

/// What has been seen so far.
#[derive(Debug)]
pub struct Figures {
    wanted: Wanted,
    /// Seconds that the past is kept for.
    keep: f64,
    looked: Option<f64>,
    /// When sessions were last looked for.
    searched: f64,
    looks: Course<u64>,
    all: Course<Tally>,
    backends: BTreeMap<SessionId, Backend>,
    tables: BTreeMap<TableKey, Table>,
    hidden: Option<Hidden>,
    trouble: Option<String>,
    cpu_queue_seen: bool,
    counters: Option<(f64, Counters)>,
    counters_now: Option<(f64, Counters)>,
    wal: Course<u64>,
}

impl Figures {
    /// Nothing seen yet. Pictures may be had of up to `keep` seconds, and of everything.
    pub fn new(wanted: Wanted, keep: f64) -> Figures {
        Figures {
            wanted,
            keep,
            looked: None,
            searched: 0.0,
            looks: Course::new(0.0, 0),
            all: Course::new(0.0, Tally::default()),
            backends: BTreeMap::new(),
            tables: BTreeMap::new(),
            hidden: None,
            trouble: None,
            cpu_queue_seen: false,
            counters: None,
            counters_now: None,
            wal: Course::new(0.0, 0),
        }
    }

    /// Begins anew: what was counted is forgotten, who is at work is not.
    pub fn reset(&mut self, now: f64) {
        self.backends.retain(|_, backend| backend.present);
        let keys: BTreeSet<&TableKey> = self.backends.values().map(|backend| &backend.table).collect();
        self.tables.retain(|key, _| keys.contains(key));
        for backend in self.backends.values_mut() {
            backend.tally = Course::new(now, Tally::default());
        }
        for table in self.tables.values_mut() {
            table.tally = Course::new(now, Tally::default());
            table.growth = Course::new(now, (0, 0));
        }
        self.looks = Course::new(now, 0);
        self.all = Course::new(now, Tally::default());
        self.wal = Course::new(now, 0);
        self.counters = self.counters_now.clone();
    }

    /// What a session did when it was last seen at work.
    pub fn work_of(&self, id: SessionId) -> Option<&Work> {
        self.backends.get(&id).map(|backend| &backend.work)
    }

    /// The table of a session that is known, as it was found.
    pub fn target_of(&self, id: SessionId) -> Option<Target> {
        let backend = self.backends.get(&id)?;
        let table = self.tables.get(&backend.table)?;
        Some(Target {
            key: backend.table.clone(),
            name: table.name.clone(),
            root_name: table.root_name.clone(),
            relations: Vec::new(),
        })
    }

    /// Processes at work.
    pub fn pids(&self) -> Vec<i32> {
        self.present().map(|backend| backend.session.id.pid).collect()
    }

    /// Process, role and database of those at work.
    pub fn titles(&self) -> Vec<(SessionId, String, String)> {
        let title = |b: &Backend| (b.session.id, b.session.user.clone(), b.session.database.clone());
        self.present().map(title).collect()
    }

    /// Processes in a lock wait that others than the table's end are behind.
    pub fn locked(&self) -> Vec<i32> {
        self.present()
            .filter(|b| b.event.as_ref().is_some_and(|e| &*e.kind == "Lock" && &*e.name != "extend"))
            .map(|b| b.session.id.pid)
            .collect()
    }

    /// Relations whose size matters.
    pub fn relations(&self) -> Vec<u32> {
        let keys: BTreeSet<&TableKey> = self.present().map(|backend| &backend.table).collect();
        let tables = self.tables.iter().filter(|(key, _)| keys.contains(key));
        tables.flat_map(|(_, table)| table.relations.keys().copied()).collect()
    }

    fn present(&self) -> impl Iterator<Item = &Backend> {
        self.backends.values().filter(|backend| backend.present)
    }

    /// These are at work now, and no others.
    pub fn found(&mut self, now: f64, found: Vec<Found>) {
        self.backends.values_mut().for_each(|backend| backend.present = false);
        for one in found {
            if self.wanted.has(&one) {
                self.found_one(now, one);
            }
        }
        for backend in self.backends.values_mut().filter(|backend| !backend.present) {
            backend.copied = None;
            backend.event = None;
            backend.blockers.clear();
        }
        self.searched = now;
        self.forget();
    }

    fn found_one(&mut self, now: f64, Found { session, work, target }: Found) {
        let table = self.tables.entry(target.key.clone()).or_insert_with(|| Table {
            name: target.name.clone(),
            root_name: target.root_name.clone(),
            kinds: BTreeSet::new(),
            tally: Course::new(now, Tally::default()),
            growth: Course::new(now, (0, 0)),
            relations: BTreeMap::new(),
        });
        if table.name != target.name {
            table.name.clone_from(&target.root_name);
        }
        table.kinds.insert(work.kind);
        for relation in &target.relations {
            table.relations.entry(*relation).or_default();
        }
        let indexed = session.indexes.map_or(0, |(_, entries)| entries);
        let since_search = now - self.searched;
        let backend = self.backends.entry(session.id).or_insert_with(|| Backend {
            // What a COPY did before anybody watched does not count; one that has just begun counts in full.
            copied: (session.statement_seconds <= since_search).then_some((0, 0)),
            indexed,
            session: session.clone(),
            work: work.clone(),
            table: target.key.clone(),
            present: true,
            tally: Course::new(now, Tally::default()),
            running: Running::default(),
            event: None,
            blockers: Vec::new(),
        });
        let new = indexed.saturating_sub(backend.indexed);
        backend.tally.now.rows += new;
        table.tally.now.rows += new;
        if !backend.present {
            // It was away, and may have copied elsewhere.
            backend.copied = (session.statement_seconds <= since_search).then_some((0, 0));
        }
        (backend.indexed, backend.present) = (indexed, true);
        (backend.session, backend.work, backend.table) = (session, work, target.key);
    }

    /// Forgets who took least time, where there are too many.
    fn forget(&mut self) {
        while self.backends.len() > MAX_REMEMBERED {
            let gone = self.backends.iter().filter(|(_, backend)| !backend.present);
            let least = gone.min_by(|a, b| a.1.tally.now.times.sum().total_cmp(&b.1.tally.now.times.sum()));
            let Some(id) = least.map(|(id, _)| *id) else { break };
            self.backends.remove(&id);
        }
        while self.tables.len() > MAX_REMEMBERED {
            let keys: BTreeSet<&TableKey> = self.present().map(|backend| &backend.table).collect();
            let gone = self.tables.iter().filter(|(key, _)| !keys.contains(key));
            let least = gone.min_by(|a, b| a.1.tally.now.times.sum().total_cmp(&b.1.tally.now.times.sum()));
            let Some(key) = least.map(|(key, _)| key.clone()) else { break };
            self.tables.remove(&key);
        }
    }

    /// Gives the time since the last look to what is seen now. `interval` is what was meant to lie between them.
    pub fn look(&mut self, now: f64, interval: f64, looks: Vec<Look>) {
        // A look that came late stands for what it missed, but not for a sleep of the machine.
        let time = self.looked.map_or(interval, |last| (now - last).clamp(0.0, interval * 10.0));
        self.looked = Some(now);
        self.looks.now += 1;
        for look in looks {
            let backend = self.backends.values_mut().find(|b| b.present && b.session.id.pid == look.pid);
            let Some(backend) = backend else { continue };
            let class = Class::of(&look.event, None, false);
            let mut times = ClassTimes::default();
            backend.running.add(&mut times, class, time);
            let (rows, bytes) = copied_since(backend.copied, look.copied);
            // Between two COPYs nothing is in progress: the next one begins with nothing.
            backend.copied = Some(look.copied.unwrap_or_default());
            backend.event = Some(look.event);
            let table = self.tables.get_mut(&backend.table).map(|table| &mut table.tally.now);
            for tally in [Some(&mut backend.tally.now), table, Some(&mut self.all.now)].into_iter().flatten()
            {
                tally.times.merge(&times);
                tally.looks += 1;
                tally.rows += rows;
                tally.bytes += bytes;
            }
        }
        // Enough to know to some twentieths what was when.
        if self.all.ago(now, 0.0).0 >= (self.keep / 20.0).max(0.2) {
            self.remember(now);
        }
    }

    fn remember(&mut self, now: f64) {
        let keep = self.keep;
        self.looks.remember(now, keep);
        self.all.remember(now, keep);
        self.backends.values_mut().for_each(|backend| backend.tally.remember(now, keep));
        self.tables.values_mut().for_each(|table| table.tally.remember(now, keep));
    }

    /// Of the time this session could have run, the share for which it waited for a processor.
    pub fn queued(&mut self, id: SessionId, share: f64) {
        self.cpu_queue_seen = true;
        if let Some(backend) = self.backends.get_mut(&id) {
            backend.running = Running { queued: share.clamp(0.0, 1.0) };
        }
    }

    /// Readings of relations.
    pub fn sizes(&mut self, now: f64, sizes: &[Size]) {
        let keep = self.keep.max(GROWTH_OVER);
        for table in self.tables.values_mut() {
            let mut read = false;
            if table.relations.values().all(Option::is_none) {
                table.growth = Course::new(now, (0, 0));
            }
            for size in sizes {
                let Some(last) = table.relations.get_mut(&size.relation) else { continue };
                read = true;
                // The first reading is where it begins. One that is smaller was truncated.
                let before = last.unwrap_or(*size);
                if let (Some(before), Some(after)) = (before.bytes, size.bytes) {
                    table.growth.now.0 += after.saturating_sub(before);
                }
                table.growth.now.1 += size.inserted.saturating_sub(before.inserted);
                *last = Some(Size { bytes: size.bytes.or(before.bytes), ..*size });
            }
            if read {
                table.growth.remember(now, keep);
            }
        }
    }

    /// Counters of the server.
    pub fn counters(&mut self, now: f64, counters: Counters) {
        if let Some((_, before)) = &self.counters_now {
            self.wal.now += counters.since(before).wal.bytes;
        } else {
            self.wal = Course::new(now, 0);
        }
        self.counters.get_or_insert_with(|| (now, counters.clone()));
        self.counters_now = Some((now, counters));
        self.wal.remember(now, self.keep);
    }

    /// Who blocks whom.
    pub fn blockers(&mut self, blockers: &[(i32, Blocker)]) {
        for backend in self.backends.values_mut() {
            let pid = backend.session.id.pid;
            let mine = blockers.iter().filter(|(waiting, _)| *waiting == pid);
            backend.blockers = mine.map(|(_, blocker)| blocker.clone()).collect();
        }
    }

    /// What this role may not see.
    pub fn hidden(&mut self, hidden: Option<Hidden>) {
        self.hidden = hidden;
    }

    /// What is wrong with the connection. Nobody is seen at work while something is.
    pub fn trouble(&mut self, trouble: Option<String>) {
        if trouble.is_some() {
            self.backends.values_mut().for_each(|backend| backend.present = false);
            self.looked = None;
            // Counters of a server that was restarted begin again.
            self.counters_now = None;
        }
        self.trouble = trouble;
    }

    /// What has been seen in the last `seconds`; `None`: since the beginning.
    pub fn picture(&mut self, now: f64, seconds: Option<f64>) -> Picture {
        let window = seconds.unwrap_or(f64::INFINITY);
        let total = seconds.is_none();
        let (elapsed, all) = ago(&self.all, now, window);
        let (_, looks) = if total { (0.0, 0) } else { self.looks.ago(now, window) };
        let counters = self.counters.as_ref().zip(self.counters_now.as_ref());
        let counted = counters.map(|((from, first), (to, last))| (last.since(first), to - from));
        let forced = counted.as_ref().map(|(c, seconds)| (c.checkpoints_requested, *seconds));
        let wal = {
            // From reading to reading: since the last one nobody knows.
            let last = self.wal.last();
            let since_began = (last - self.wal.began(), 0);
            let (seconds, before) = if total { since_began } else { self.wal.ago(last, window.max(1.0)) };
            (self.counters_now.is_some() && seconds > 0.0).then(|| per_second(self.wal.now - before, seconds))
        };
        let picture = Picture {
            seconds: elapsed,
            looks_per_second: per_second(self.looks.now - looks, elapsed),
            trouble: self.trouble.clone(),
            hidden: self.hidden,
            cpu_queue_seen: self.cpu_queue_seen,
            wal_bytes_per_second: wal,
            counters: counted.map(|(c, _)| c),
            all: all.together(self.present().count(), forced),
            tables: self.table_figures(now, window, forced),
            backends: self.backend_figures(now, window, forced),
        };
        if !total {
            self.remember(now);
        }
        picture
    }

    fn table_figures(&self, now: f64, window: f64, forced: Option<(u64, f64)>) -> Vec<TableFigures> {
        let mut tables: Vec<TableFigures> = Vec::new();
        for (key, table) in &self.tables {
            let sessions = self.present().filter(|backend| backend.table == *key).count();
            let (seconds, tally) = ago(&table.tally, now, window);
            if tally.looks == 0 && sessions == 0 {
                continue;
            }
            let (grown_seconds, grown) = ago_growth(&table.growth, window.max(GROWTH_OVER));
            let copies = table.kinds.contains(&Kind::Copy);
            let progress = copies || table.kinds.contains(&Kind::CreateIndex);
            let inserted = !progress && !table.relations.is_empty();
            let sizes: Vec<u64> = table.relations.values().filter_map(|size| (*size)?.bytes).collect();
            let figure = |n: u64, seconds: f64| (seconds > 0.0).then(|| per_second(n, seconds));
            tables.push(TableFigures {
                table: table.name.clone(),
                kinds: table.kinds.iter().copied().collect(),
                rows: match () {
                    () if progress => Some(table.tally.now.rows),
                    () if inserted => Some(table.growth.now.1),
                    () => None,
                },
                rows_per_second: match () {
                    () if progress => figure(tally.rows, seconds),
                    () if inserted => figure(grown.1, grown_seconds),
                    () => None,
                },
                bytes: copies.then_some(table.tally.now.bytes),
                bytes_per_second: figure(tally.bytes, seconds).filter(|_| copies),
                relation_bytes: (!sizes.is_empty()).then(|| sizes.iter().sum()),
                relation_growth_per_second: figure(grown.0, grown_seconds).filter(|_| !sizes.is_empty()),
                time: tally.together(sessions, forced),
            });
        }
        tables.sort_by(|a, b| {
            b.time.backend_seconds.total_cmp(&a.time.backend_seconds).then_with(|| a.table.cmp(&b.table))
        });
        tables
    }

    fn backend_figures(&self, now: f64, window: f64, forced: Option<(u64, f64)>) -> Vec<BackendFigures> {
        let mut backends = Vec::new();
        for backend in self.backends.values() {
            let (_, tally) = ago(&backend.tally, now, window);
            // Those that are gone stay in the figures of everything.
            if !backend.present && (window.is_finite() || tally.looks == 0) {
                continue;
            }
            let session = &backend.session;
            let kind = backend.work.kind;
            let event = backend.event.as_ref().filter(|e| !e.kind.is_empty() && !e.name.is_empty());
            backends.push(BackendFigures {
                pid: session.id.pid,
                at_work: backend.present,
                user: session.user.clone(),
                application: session.application.clone(),
                client: session.client.clone(),
                database: session.database.clone(),
                table: self.tables.get(&backend.table).map_or_else(String::new, |t| t.name.clone()),
                kind,
                statement_seconds: (backend.present && !backend.work.between)
                    .then_some(session.statement_seconds),
                rows: matches!(kind, Kind::Copy | Kind::CreateIndex).then_some(backend.tally.now.rows),
                bytes: (kind == Kind::Copy).then_some(backend.tally.now.bytes),
                waiting_for: event.map(|event| format!("{}/{}", event.kind, event.name)),
                blocked_by: backend.blockers.clone(),
                time: tally.together(usize::from(backend.present), forced),
            });
        }
        backends
    }
}

/// Rows and bytes since the last look at a COPY. One with less than before is another one.
fn copied_since(before: Option<(u64, u64)>, now: Option<(u64, u64)>) -> (u64, u64) {
    match (before, now) {
        (Some((rows, bytes)), Some((r, b))) if r >= rows && b >= bytes => (r - rows, b - bytes),
        (Some(_), Some(now)) => now,
        _ => (0, 0),
    }
}

/// What was counted in the last `window` seconds, and how many these were.
fn ago(course: &Course<Tally>, now: f64, window: f64) -> (f64, Tally) {
    if window.is_infinite() {
        return ((now - course.began()).max(0.0), course.now);
    }
    let (seconds, before) = course.ago(now, window);
    (seconds, course.now.since(&before))
}

/// The same of readings that come once a second: up to the last one.
fn ago_growth(course: &Course<(u64, u64)>, window: f64) -> (f64, (u64, u64)) {
    if window.is_infinite() {
        return (course.last() - course.began(), course.now);
    }
    let (seconds, before) = course.ago(course.last(), window);
    (seconds, (course.now.0 - before.0, course.now.1 - before.1))
}

#[allow(clippy::cast_precision_loss)] // a rate for people
fn per_second(n: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { n as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests;
