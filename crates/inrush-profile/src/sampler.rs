//! The sampling connection, and what it fills.

use crate::blockers::{self, Blocker};
use crate::class::{Class, ClassTimes};
use crate::counters::Counters;
use crate::events::{EventTimes, WaitEvent};
use crate::lanes::{Lanes, Stage};
use crate::limit::Limit;
use crate::platform::{self, CpuTimes};
use crate::profile::{ClassShare, ClientShare, EventShare, Profile};
use crate::series::Series;
use inrush_core::{Code, Error, Result};
use inrush_sink::connect::{Connected, connect};
use inrush_sink::conninfo::{ConnInfo, Endpoint};
use inrush_sink::failure::server_error;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_postgres::Statement;

/// How to sample.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerOptions {
    /// Looks per second.
    pub hz: u32,
    /// Time before the sampler connects: what is over by then was not worth a connection.
    pub after: Duration,
    /// application_name of the connection.
    pub application: &'static str,
}

impl SamplerOptions {
    /// Looks per second unless somebody says otherwise.
    pub const DEFAULT_HZ: u32 = 50;
}

/// What is asked each time. The functions behind pg_stat_activity, not the view: it joins three catalogs and makes
/// text of addresses. They answer for backends of roles that this one belongs to. In 15 a backend's number is its
/// place in the snapshot of this statement (backend_status.c, pgstat_read_current_status): numbers cannot be kept
/// between looks.
///
/// The sleep of at most $2 seconds is before the wait events are read, which are those of that moment. A question that
/// comes through the network that the rows come through arrives just behind some of them: without the sleep the
/// backends would be seen at work too often.
const LOOK: &str = "
    SELECT pid, pg_catalog.pg_stat_get_backend_wait_event_type(id),
           pg_catalog.pg_stat_get_backend_wait_event(id)
      FROM (SELECT id, pg_catalog.pg_stat_get_backend_pid(id) AS pid
              FROM pg_catalog.pg_stat_get_backend_idset() AS id) b
     CROSS JOIN pg_catalog.pg_sleep(pg_catalog.random() OPERATOR(pg_catalog.*) $2)
     WHERE pid OPERATOR(pg_catalog.=) ANY ($1::int4[])";

/// Settings that matter for loading. Not from pg_settings, which makes a row of every setting there is.
const SETTINGS: &str = "
    SELECT name, setting
      FROM (SELECT name, pg_catalog.current_setting(name, true) AS setting
              FROM pg_catalog.unnest(ARRAY[
                'archive_mode', 'autovacuum', 'block_size', 'checkpoint_completion_target', 'checkpoint_timeout',
                'commit_delay', 'data_checksums', 'fsync', 'full_page_writes', 'io_method', 'maintenance_work_mem',
                'max_wal_size', 'shared_buffers', 'synchronous_commit', 'synchronous_standby_names', 'wal_buffers',
                'wal_compression', 'wal_level', 'wal_sync_method', 'wal_writer_delay', 'wal_writer_flush_after'
              ]) AS name) s
     WHERE setting IS NOT NULL";

/// Between two readings of processor times: the kernel counts in steps of some milliseconds.
const CPU_EVERY: f64 = 0.1;
/// Between two readings of counters, and two questions who blocks.
const COUNTERS_EVERY: f64 = 1.0;

/// What has been seen so far. Shared: lanes report to it, the sampler fills it, displays read it.
#[derive(Debug)]
pub struct Recorder {
    /// The lanes to watch.
    pub lanes: Lanes,
    started: Instant,
    over: AtomicBool,
    ended: Notify,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    hz: u32,
    samples: u64,
    first: Option<f64>,
    times: ClassTimes,
    /// Time without wait event that has not been split yet into running and waiting for a processor.
    running: f64,
    cpu_queue_seen: bool,
    events: EventTimes,
    client: ClientShare,
    blockers: Vec<Blocker>,
    counters: Option<(Counters, f64)>,
    counters_now: Option<(Counters, f64)>,
    settings: BTreeMap<String, String>,
    series: Series,
    counted: (u64, u64),
    server_cpu: Option<f64>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            lanes: Lanes::default(),
            started: Instant::now(),
            over: AtomicBool::new(false),
            ended: Notify::new(),
            seen: Mutex::new(Seen {
                hz: 0,
                samples: 0,
                first: None,
                times: ClassTimes::default(),
                running: 0.0,
                cpu_queue_seen: false,
                events: EventTimes::default(),
                client: ClientShare::default(),
                blockers: Vec::new(),
                counters: None,
                counters_now: None,
                settings: BTreeMap::new(),
                series: Series::new(),
                counted: (0, 0),
                server_cpu: None,
            }),
        }
    }
}

impl Recorder {
    /// Ends [`run`].
    pub fn end(&self) {
        self.over.store(true, Relaxed);
        self.ended.notify_one();
    }

    /// Backend time so far, by class.
    pub fn times(&self) -> ClassTimes {
        self.seen().times
    }

    /// What all samples come to. `None` if there was none.
    pub fn profile(&self) -> Option<Profile> {
        let seen = self.seen();
        let first = seen.first?;
        let sum = seen.times.sum();
        let share = |seconds: f64| if sum > 0.0 { seconds / sum } else { 0.0 };
        let split: Vec<ClassShare> = seen
            .times
            .ranked()
            .into_iter()
            .map(|(class, seconds)| ClassShare { class, seconds, share: share(seconds) })
            .collect();
        let events = seen.events.ranked();
        let counters = seen.counters.as_ref().zip(seen.counters_now.as_ref());
        let counted_seconds = counters.map_or(0.0, |(first, last)| last.1 - first.1);
        let counters = counters.map(|(first, last)| last.0.since(&first.0));
        Some(Profile {
            hz: seen.hz,
            samples: seen.samples,
            backend_seconds: sum,
            unseen_seconds: first,
            server_cpu_seconds: seen.server_cpu,
            limit: Limit::of(
                seen.samples,
                &split,
                seen.client,
                counters.as_ref(),
                counted_seconds,
                &seen.settings,
            ),
            split,
            cpu_queue_seen: seen.cpu_queue_seen,
            client: seen.client,
            events: events
                .into_iter()
                .map(|(event, class, seconds)| EventShare {
                    kind: event.kind.to_string(),
                    event: event.name.to_string(),
                    class,
                    seconds,
                    share: share(seconds),
                })
                .collect(),
            blockers: seen.blockers.clone(),
            counters,
            settings: seen.settings.clone(),
            series: seen.series.clone(),
        })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds since the load began.
    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

/// Samples until [`Recorder::end`]. Blocks: meant for a thread of its own.
///
/// `counted` gives input bytes and committed rows so far; `notice` is told once whose lock is waited for. An error
/// means that this was not possible, or no longer; the load goes on without.
pub fn run(
    recorder: &Recorder,
    conninfo: &ConnInfo,
    options: &SamplerOptions,
    counted: &dyn Fn() -> (u64, u64),
    notice: &dyn Fn(&str),
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(Code::Internal, format!("cannot start the sampler's runtime: {e}")))?;
    runtime.block_on(async {
        tokio::select! {
            () = recorder.ended.notified() => return Ok(()),
            () = tokio::time::sleep(options.after) => {}
        }
        let mut told = Vec::new();
        loop {
            let connected = connect(conninfo, options.application).await?;
            let mut sampler = Sampler::new(recorder, options, connected).await?;
            match sampler.work(counted, notice, &mut told).await {
                Ok(()) => return Ok(()),
                // The server was restarted, or somebody ended this connection: the lanes come back, too.
                Err(error) => tracing::debug!(%error, "the sampler's connection failed"),
            }
            tokio::select! {
                () = recorder.ended.notified() => return Ok(()),
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    })
}

struct Sampler<'a> {
    recorder: &'a Recorder,
    connected: Connected,
    look: Statement,
    interval: Duration,
    /// Whether bytes go through a network, or through a Unix socket.
    network: bool,
    /// Whether the server runs on this machine, as far as is known.
    local: Option<bool>,
    role: String,
    database: String,
    /// Last readings of processor times by backend.
    cpu: HashMap<i32, CpuTimes>,
    own_cpu: Option<CpuTimes>,
    last_look: Option<f64>,
    last_cpu: f64,
    last_counters: f64,
    /// Backends in a lock wait at the last look: only a wait that lasts is asked about.
    locked: Vec<i32>,
}

impl<'a> Sampler<'a> {
    async fn new(
        recorder: &'a Recorder,
        options: &SamplerOptions,
        connected: Connected,
    ) -> Result<Sampler<'a>> {
        let client = &connected.client;
        let look = client.prepare(LOOK).await.map_err(server_error)?;
        let settings = client.query(SETTINGS, &[]).await.map_err(server_error)?;
        // The title of a process has the role that logged in.
        let names = client
            .query_one("SELECT session_user::text, pg_catalog.current_database()::text", &[])
            .await
            .map_err(server_error)?;
        let counters = Counters::read(client, connected.server_version_num).await?;
        let now = recorder.now();
        {
            let mut seen = recorder.seen();
            seen.hz = options.hz;
            seen.settings = settings.iter().map(|row| (row.get(0), row.get(1))).collect();
            if seen.counters.is_none() {
                seen.counters = Some((counters.clone(), now));
            }
            seen.counters_now = Some((counters, now));
        }
        let own_cpu = platform::cpu_times(connected.backend_pid);
        Ok(Sampler {
            recorder,
            look,
            interval: Duration::from_secs_f64(1.0 / f64::from(options.hz.clamp(1, 1000))),
            network: !matches!(connected.host.endpoint, Endpoint::Unix(_)),
            local: None,
            role: names.get(0),
            database: names.get(1),
            connected,
            cpu: HashMap::new(),
            own_cpu,
            last_look: None,
            last_cpu: now,
            last_counters: now,
            locked: Vec::new(),
        })
    }

    async fn work(
        &mut self,
        counted: &dyn Fn() -> (u64, u64),
        notice: &dyn Fn(&str),
        told: &mut Vec<i32>,
    ) -> Result<()> {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.recorder.over.load(Relaxed) {
            tokio::select! {
                () = self.recorder.ended.notified() => break,
                _ = ticks.tick() => {}
            }
            let lanes = self.recorder.lanes.now();
            let waits = self.look(&lanes).await?;
            let now = self.recorder.now();
            self.count(&lanes, &waits, now, counted());
            if now - self.last_cpu >= CPU_EVERY {
                self.split_cpu(&lanes, now);
            }
            if now - self.last_counters >= COUNTERS_EVERY {
                self.last_counters = now;
                self.read_counters().await?;
                self.who_blocks(&lanes, &waits, notice, told).await?;
            }
        }
        let now = self.recorder.now();
        self.split_cpu(&self.recorder.lanes.now(), now);
        let (bytes, rows) = counted();
        self.recorder.seen().count_input(now, bytes, rows);
        self.read_counters().await?;
        if self.local == Some(true)
            && let (Some(first), Some(last)) = (self.own_cpu, platform::cpu_times(self.connected.backend_pid))
        {
            let mut seen = self.recorder.seen();
            seen.server_cpu = Some(seen.server_cpu.unwrap_or_default() + last.ran - first.ran);
        }
        Ok(())
    }

    /// What each backend waits for now.
    async fn look(&self, lanes: &[(i32, Stage)]) -> Result<HashMap<i32, WaitEvent>> {
        let pids: Vec<i32> = lanes.iter().map(|(pid, _)| *pid).collect();
        let sleep = self.interval.as_secs_f64() / 2.0;
        let rows = self.connected.client.query(&self.look, &[&pids, &sleep]).await.map_err(server_error)?;
        Ok(rows
            .iter()
            .map(|row| {
                let part = |i: usize| row.get::<_, Option<&str>>(i).unwrap_or_default();
                (row.get(0), WaitEvent::new(part(1), part(2)))
            })
            .collect())
    }

    /// Gives the time since the last look to what is seen now.
    fn count(
        &mut self,
        lanes: &[(i32, Stage)],
        waits: &HashMap<i32, WaitEvent>,
        now: f64,
        (bytes, rows): (u64, u64),
    ) {
        let interval = self.interval.as_secs_f64();
        // A look that came late stands for what it missed, but not for a sleep of the machine.
        let time = self.last_look.map_or(interval, |last| (now - last).clamp(0.0, interval * 10.0));
        self.last_look = Some(now);
        let mut seen = self.recorder.seen();
        seen.samples += 1;
        seen.first.get_or_insert((now - time).max(0.0));
        let mut step = ClassTimes::default();
        for (pid, stage) in lanes {
            let Some(event) = waits.get(pid) else { continue };
            let class = Class::of(event, Some(*stage), self.network);
            seen.events.add(event, class, time);
            match class {
                Class::Cpu => seen.running += time,
                _ => step.add(class, time),
            }
            if class == Class::Client {
                match stage {
                    Stage::Input => seen.client.input += time,
                    Stage::Encode => seen.client.encode += time,
                    Stage::Send | Stage::Answer => seen.client.send += time,
                }
            }
        }
        seen.add_times(now, &step);
        seen.count_input(now, bytes, rows);
    }

    /// Splits the time without wait event since the last call by what the kernel says of the backends.
    fn split_cpu(&mut self, lanes: &[(i32, Stage)], now: f64) {
        self.last_cpu = now;
        if self.local.is_none()
            && let Some((pid, _)) = lanes.first()
        {
            self.local = Some(platform::is_backend(*pid, &self.role, &self.database));
        }
        let (mut ran, mut queued) = (0.0, 0.0);
        if self.local == Some(true) {
            for (pid, _) in lanes {
                let Some(times) = platform::cpu_times(*pid) else { continue };
                if let Some(before) = self.cpu.insert(*pid, times) {
                    ran += (times.ran - before.ran).max(0.0);
                    queued += (times.queued - before.queued).max(0.0);
                }
            }
        }
        let mut seen = self.recorder.seen();
        let mut times = ClassTimes::default();
        times.add(Class::Cpu, std::mem::take(&mut seen.running));
        if ran + queued > 0.0 {
            times.split_cpu(queued / (ran + queued));
            seen.cpu_queue_seen = true;
        }
        seen.add_times(now, &times);
    }

    async fn read_counters(&mut self) -> Result<()> {
        let counters = Counters::read(&self.connected.client, self.connected.server_version_num).await?;
        let now = self.recorder.now();
        let mut seen = self.recorder.seen();
        if let Some((before, at)) = &seen.counters_now {
            let (bytes, at) = (counters.since(before).wal.bytes, *at);
            seen.series.add_wal(at, now, bytes);
        }
        seen.counters_now = Some((counters, now));
        Ok(())
    }

    /// Asks who blocks the backends that have been waiting for a lock since the last question.
    async fn who_blocks(
        &mut self,
        lanes: &[(i32, Stage)],
        waits: &HashMap<i32, WaitEvent>,
        notice: &dyn Fn(&str),
        told: &mut Vec<i32>,
    ) -> Result<()> {
        let waiting: Vec<i32> = waits
            .iter()
            .filter(|(_, event)| &*event.kind == "Lock" && &*event.name != "extend")
            .map(|(pid, _)| *pid)
            .collect();
        let long: Vec<i32> = waiting.iter().copied().filter(|pid| self.locked.contains(pid)).collect();
        self.locked = waiting;
        if long.is_empty() {
            return Ok(());
        }
        let own: Vec<i32> = lanes.iter().map(|(pid, _)| *pid).collect();
        for (_, blocker) in blockers::look(&self.connected.client, &long, &own).await? {
            if !told.contains(&blocker.pid) {
                told.push(blocker.pid);
                notice(&format!("waiting for {blocker}"));
            }
            let mut seen = self.recorder.seen();
            match seen.blockers.iter_mut().find(|b| b.pid == blocker.pid && b.relation == blocker.relation) {
                Some(known) => known.waited_seconds += COUNTERS_EVERY,
                None => {
                    seen.blockers.push(Blocker { waited_seconds: 2.0 * COUNTERS_EVERY, ..blocker });
                }
            }
        }
        Ok(())
    }
}

impl Seen {
    fn add_times(&mut self, now: f64, times: &ClassTimes) {
        self.times.merge(times);
        self.series.add(now, 0, 0, times);
    }

    fn count_input(&mut self, now: f64, bytes: u64, rows: u64) {
        let (before, rows_before) = std::mem::replace(&mut self.counted, (bytes, rows));
        // Units that are sent again are taken off.
        let (bytes, rows) = (bytes.saturating_sub(before), rows.saturating_sub(rows_before));
        self.series.add(now, bytes, rows, &ClassTimes::default());
    }
}
