//! Starts everything, and stops it in order: inputs, splitters, lanes, gate.

mod check;

pub use check::check;

use crate::buffers::Buffers;
use crate::config::{Config, Via};
use crate::gate;
use crate::inputs::http::{self, HttpInput};
use crate::inputs::{self, Common, Feeder};
use crate::lane::{Lane, LaneSettings, Lanes};
use crate::metrics::Metrics;
use crate::part::Source;
use crate::pressure::Memory;
use crate::session::APPLICATION;
use crate::spill::{self, SpillLog};
use crate::split::{self, Splitter};
use crate::target::{Registry, Settings};
use crate::{admin, maintain, systemd, waits};
use inrush_cluster::NodeMap;
use inrush_core::{Code, Error, Result};
use inrush_sink::conninfo::{self, ConnInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// What a process is told from outside.
#[derive(Debug, Clone)]
pub struct Switch {
    stop: watch::Sender<bool>,
    reloaded: watch::Sender<Option<Arc<Config>>>,
    aborted: Arc<AtomicBool>,
}

impl Switch {
    /// A process that runs.
    pub fn new() -> Switch {
        Switch {
            stop: watch::Sender::new(false),
            reloaded: watch::Sender::new(None),
            aborted: Arc::default(),
        }
    }

    /// Takes nothing more in; what has come in is stored.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Takes over of a configuration what can be changed while it runs.
    pub fn reload(&self, config: Config) {
        self.reloaded.send_replace(Some(Arc::new(config)));
    }

    /// Waits for nothing any more: what is not stored is given up, and was not acknowledged.
    pub fn abort(&self) {
        self.stop();
        self.aborted.store(true, Relaxed);
    }
}

impl Default for Switch {
    fn default() -> Switch {
        Switch::new()
    }
}

/// What a process did before it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Rows committed.
    pub rows: u64,
    /// Rows refused: dead letters.
    pub rejects: u64,
    /// Whether something was given up.
    pub aborted: bool,
}

/// The server of a configuration.
///
/// # Errors
/// Code `usage` or `connect`, where none is named or it is named wrongly.
pub fn server(config: &Config) -> Result<ConnInfo> {
    let env = |name: &str| std::env::var(name).ok();
    let mut server = conninfo::resolve(config.server.to.as_deref(), &env)?.ok_or_else(|| {
        Error::new(Code::Connect, "no server is named")
            .hint("Say server.to = \"postgres://...\" in the configuration, or set DATABASE_URL.")
    })?;
    // Whoever takes over a partition finds the sessions of the reader before by how their names begin.
    if let Some(own) = &mut server.application_name
        && !own.starts_with(APPLICATION)
    {
        *own = format!("{APPLICATION}: {own}");
    }
    Ok(server)
}

/// Drains the spill of a configuration, and takes nothing in.
///
/// # Errors
/// Where there is no spill, or it cannot be opened.
pub fn drain(config: &Config, switch: &Switch) -> Result<Stopped> {
    if config.spill.is_none() {
        return Err(Error::new(Code::Usage, "the configuration has no [spill]").hint(
            "Give the configuration of the `inrush serve` that spilled: its spill.dir names the directory.",
        ));
    }
    start(config, switch, true)
}

/// Serves until it is told to stop.
///
/// # Errors
/// Where an input cannot begin: an address in use, a missing certificate. A server that is away is no error.
pub fn run(config: &Config, switch: &Switch) -> Result<Stopped> {
    start(config, switch, false)
}

fn start(config: &Config, switch: &Switch, only_drain: bool) -> Result<Stopped> {
    let conninfo = server(config)?;
    // The threads are one per core at least; splitters have their own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores().max(2))
        .thread_name("inrush-serve")
        .enable_all()
        .build()
        .map_err(|e| Error::new(Code::Internal, format!("no runtime: {e}")))?;
    let handle = runtime.handle().clone();
    let stopped = runtime.block_on(serve(config, conninfo, switch, &handle, only_drain));
    // All that is to be stored is. What still asks somebody, as a claim a broker that is away, is left behind.
    runtime.shutdown_background();
    stopped
}

/// What the registry must know of a process with this configuration.
fn settings(config: &Config, conninfo: &ConnInfo) -> Result<Settings> {
    Ok(Settings {
        conninfo: conninfo.clone(),
        ledger: config.server.ledger.clone(),
        via: config.server.via,
        bypass: config.server.bypass,
        nodes: NodeMap::parse(&config.server.nodes)?,
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

async fn serve(
    config: &Config,
    conninfo: ConnInfo,
    switch: &Switch,
    handle: &tokio::runtime::Handle,
    only_drain: bool,
) -> Result<Stopped> {
    let (spill, spill_thread) = match &config.spill {
        Some(spill) => {
            let (log, thread) = SpillLog::open(spill)?;
            (Some(log), Some(thread))
        }
        None => (None, None),
    };
    let metrics = Arc::new(Metrics::default());
    metrics.windows_ahead.store(-1, Relaxed);
    let memory = usize::try_from(config.limits.memory.0).unwrap_or(usize::MAX);
    let memory = Memory::new(memory);
    let registry = Arc::new(Registry::new(settings(config, &conninfo)?));

    waits::start(&metrics.recorder, &conninfo, &metrics);
    let (gate, commits) = mpsc::unbounded_channel();
    let standby = gate::standby_wanted(config.server.acknowledge, &conninfo);
    let gate_task = tokio::spawn(gate::run(conninfo.clone(), standby, commits));
    let mut lane_tasks = JoinSet::new();
    let mut senders = Vec::new();
    for number in 0..config.server.lanes as usize {
        let (sender, works) = mpsc::unbounded_channel();
        senders.push(sender);
        let lane = Lane {
            number,
            settings: LaneSettings {
                conninfo: conninfo.clone(),
                ledger: config.server.ledger.clone(),
                sync_commit: config.server.synchronous_commit,
                extension: config.server.via == Via::Auto,
                nodes: registry.settings.nodes.clone(),
                batch: config.batch,
                reject_limit: config.limits.rejects_per_minute,
                memory: memory.clone(),
                patience: config.limits.wait.0,
                standby: standby != Some(false),
            },
            registry: Arc::clone(&registry),
            metrics: Arc::clone(&metrics),
            gate: gate.clone(),
            works,
            held: std::collections::VecDeque::new(),
            aborted: Arc::clone(&switch.aborted),
            gauge: metrics.recorder.lanes.add(),
            session: None,
            nodes: None,
            lost: None,
        };
        lane_tasks.spawn(lane.run());
    }
    drop(gate);
    let lanes = Lanes::new(senders, Arc::clone(&switch.aborted));
    let blocks = Buffers::new(split::MESSAGE);
    let mut splitters = Vec::new();
    let mut threads = Vec::new();
    for number in 0..cores() {
        let (sender, mut parts) = mpsc::unbounded_channel();
        splitters.push(sender);
        let splitter = Splitter::new(
            Arc::clone(&registry),
            handle.clone(),
            lanes.clone(),
            Arc::clone(&metrics),
            &config.limits,
            blocks.clone(),
        );
        let thread = std::thread::Builder::new()
            .name(format!("inrush-split-{number}"))
            .spawn(move || splitter.run(&mut parts))
            .map_err(|e| Error::new(Code::Internal, format!("no thread for a splitter: {e}")))?;
        threads.push(thread);
    }
    drop(lanes);
    let common = Common {
        memory,
        registry: Arc::clone(&registry),
        metrics: Arc::clone(&metrics),
        lanes: config.server.lanes,
        limits: config.limits,
        spill: spill.clone(),
        stop: switch.stop.subscribe(),
    };
    let feeder = Feeder::new(splitters, common);
    let release_task = tokio::spawn(release_idle([blocks, feeder.buffers.clone()]));

    let mut inputs = start_inputs(config, &feeder, switch, only_drain).await?;
    let side = start_side(config, &feeder).await?;
    systemd::tell("READY=1");
    let mut stop = switch.stop.subscribe();
    let mut failed = None;
    tokio::select! {
        () = async { let _ = stop.wait_for(|stop| *stop).await.map(|_| ()); } => {}
        ended = inputs_end(&mut inputs), if !only_drain => failed = ended,
        () = drained(spill.as_ref()), if only_drain => {}
    }
    switch.stop();
    systemd::tell("STOPPING=1");
    metrics.stopping.store(true, Relaxed);
    metrics.recorder.end();
    tracing::info!("stopping: what has come in is stored first");
    let in_order = async {
        let mut failed = None;
        while let Some(ended) = inputs.join_next().await {
            failed = failed.or(ended.ok().and_then(Result::err));
        }
        drop((feeder, spill));
        // The other holders of a feeder.
        side.abort_all().await;
        while lane_tasks.join_next().await.is_some() {}
        let _ = gate_task.await;
        failed
    };
    release_task.abort();
    let mut in_order = std::pin::pin!(in_order);
    let mut given_up = false;
    if let Ok(late) = tokio::time::timeout(config.limits.stop.0, in_order.as_mut()).await {
        failed = failed.or(late);
    } else {
        tracing::warn!("not everything could be stored in time; it was not acknowledged");
        given_up = true;
        switch.abort();
        // Lanes look at it within a second; a statement that hangs is left behind.
        let _ = tokio::time::timeout(Duration::from_secs(6), in_order).await;
    }
    if !given_up {
        for thread in threads.into_iter().chain(spill_thread) {
            let _ = thread.join();
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    Ok(Stopped {
        rows: metrics.rows.load(Relaxed),
        rejects: metrics.rejects(),
        aborted: given_up || switch.aborted.load(Relaxed),
    })
}

/// Gives memory back when less of it is needed.
async fn release_idle(pools: [Buffers; 2]) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        pools.iter().for_each(Buffers::release_idle);
    }
}

/// Waits until the spill is empty.
async fn drained(spill: Option<&SpillLog>) {
    while spill.is_some_and(|spill| !spill.is_empty()) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until all inputs have ended by themselves, as standard input does, or one has failed.
async fn inputs_end(inputs: &mut JoinSet<Result<()>>) -> Option<Error> {
    while let Some(ended) = inputs.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Some(error),
            Err(e) => return Some(Error::new(Code::Internal, format!("an input broke: {e}"))),
        }
    }
    None
}

fn source(kind: &str, name: &str, into: &crate::config::Into, metrics: &Metrics) -> Arc<Source> {
    let source = Arc::new(Source {
        name: format!("{kind}:{name}"),
        into: into.clone(),
        counters: crate::metrics::InputCounters::default(),
    });
    metrics.add_input(&source);
    if into.unlogged {
        tracing::warn!(
            input = source.name,
            "its tables are unlogged: what is accepted is lost if the database crashes"
        );
    }
    source
}

async fn start_inputs(
    config: &Config,
    feeder: &Feeder,
    switch: &Switch,
    only_drain: bool,
) -> Result<JoinSet<Result<()>>> {
    let mut inputs = JoinSet::new();
    if only_drain {
        // Their names and tables are all that counts.
        for (name, into) in config.inputs() {
            let (kind, name) = name.split_once(':').unwrap_or_default();
            source(kind, name, into, &feeder.metrics);
        }
        return Ok(inputs);
    }
    for http in &config.http {
        let source = source("http", &http.name, &http.into, &feeder.metrics);
        let input = Arc::new(HttpInput::new(http.clone(), Arc::clone(&source), feeder.clone())?);
        let listener = http::open(&http.name, &http.listen).await?;
        let address = listener.address();
        tracing::info!(input = source.name, %address, tls = http.tls_cert.is_some(), "listening");
        inputs.spawn(reload(Arc::clone(&input), switch.reloaded.subscribe(), switch.stop.subscribe()));
        inputs.spawn(async move {
            http::serve(input, listener).await;
            Ok(())
        });
    }
    for kafka in &config.kafka {
        let source = source("kafka", &kafka.name, &kafka.into, &feeder.metrics);
        inputs.spawn(inputs::kafka::run(kafka.clone(), source, feeder.clone()));
    }
    for tail in &config.tail {
        let source = source("tail", &tail.name, &tail.into, &feeder.metrics);
        inputs.spawn(inputs::tail::run(tail.clone(), source, feeder.clone()));
    }
    if let Some(stdin) = &config.stdin {
        let source = source("stdin", &stdin.name, &stdin.into, &feeder.metrics);
        inputs.spawn(inputs::stdin::run(stdin.clone(), source, feeder.clone()));
    }
    Ok(inputs)
}

/// Has an input take over what a configuration that is read again says of it.
async fn reload(
    input: Arc<HttpInput>,
    mut reloaded: watch::Receiver<Option<Arc<Config>>>,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    loop {
        tokio::select! {
            _ = async { stop.wait_for(|stop| *stop).await.map(|_| ()) } => return Ok(()),
            changed = reloaded.changed() => if changed.is_err() { return Ok(()) },
        }
        let config = reloaded.borrow_and_update().clone();
        let Some(config) = config else { continue };
        match config.http.iter().find(|http| http.name == input.config.name) {
            None => tracing::warn!(
                input = input.source.name,
                "is not in the configuration any more; it goes on until a restart"
            ),
            Some(http) => match input.reload(http) {
                Ok(()) => {
                    tracing::info!(input = input.source.name, "tokens and certificates were read again");
                }
                Err(error) => {
                    tracing::error!(input = input.source.name, error = error.fact(), "was not changed");
                }
            },
        }
    }
}

/// What runs beside the inputs and ends with them.
struct Side(JoinSet<()>);

impl Side {
    async fn abort_all(mut self) {
        self.0.abort_all();
        while self.0.join_next().await.is_some() {}
    }
}

async fn start_side(config: &Config, feeder: &Feeder) -> Result<Side> {
    let mut side = JoinSet::new();
    if let Some(admin) = &config.admin {
        let listener = admin::listen(&admin.listen).await?;
        let address = listener.local_addr().map_or(admin.listen.clone(), |address| address.to_string());
        tracing::info!(%address, "metrics and health");
        side.spawn(admin::serve(listener, feeder.clone()));
    }
    if let Some(spill) = &feeder.spill {
        side.spawn(spill::drain(spill.clone(), feeder.clone()));
    }
    let metrics = Arc::clone(&feeder.metrics);
    side.spawn(waits::watch(Arc::clone(&metrics.recorder), metrics));
    let inputs = config.inputs().into_iter();
    let named = inputs.filter_map(|(_, into)| Some((into.table.clone()?, into.clone())));
    let tables = named.filter(|(table, _)| !table.contains('{')).collect();
    side.spawn(maintain::run(feeder.clone(), config.windows, tables));
    Ok(Side(side))
}
