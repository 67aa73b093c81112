//! Clients that send statements for some seconds, each a thread with sessions of its own.

use crate::c4::batch::Batches;
use crate::c4::cluster::{Cluster, Spent, runtime};
use crate::c4::rows::Op;
use crate::c4::sessions::Sessions;
use crate::c4::tables::Tables;
use crate::c4::{Contender, Hold, Job, To};
use crate::random::Random;
use crate::{machine, measure};
use inrush_cluster::Topology;
use inrush_core::{Code, Error, Result, Table};
use inrush_sink::conninfo::ConnInfo;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Statements that each client has sent before the clock starts: sessions then know the shards, and the coordinator's sessions
/// have theirs to the workers.
const WARM: u32 = 64;

/// What the clients of a turn know.
#[derive(Debug)]
pub struct Work {
    pub job: Job,
    pub contender: Contender,
    /// As SQL names what statements are for.
    pub table: String,
    /// The spread table.
    pub spread: Table,
    pub topology: Topology,
    pub coordinator: ConnInfo,
    /// Rows of the wide table.
    rows: u32,
    seconds: f64,
    threads: u32,
    workers: Vec<ConnInfo>,
    nodes: Vec<ConnInfo>,
    ids: AtomicI32,
    /// Statements whose transactions have committed, those of the warm-up included.
    stored: AtomicU64,
    stop: AtomicBool,
}

/// What a turn took.
#[derive(Debug)]
pub struct Sent {
    pub seconds: f64,
    /// Committed within these seconds.
    pub operations: u64,
    /// Committed at all.
    pub stored: u64,
    pub client_cpu: f64,
    pub coordinator_cpu: Option<f64>,
    pub workers_cpu: Option<f64>,
    pub foreign_cores: Option<f64>,
    pub failure: Option<String>,
}

/// How long, and how many at once.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub seconds: f64,
    pub threads: u32,
    /// Rows of the wide table.
    pub rows: u32,
}

impl Work {
    /// What is to be sent into the tables of a rung.
    pub fn new(tables: &Tables<'_>, job: Job, contender: &Contender, extent: Extent) -> Result<Work> {
        let cluster = tables.cluster();
        let (spread, topology) = cluster.topology(&tables.table())?;
        let node = |node: &inrush_cluster::Node| node.conninfo(&cluster.info, &cluster.map);
        let plain = contender.to == Some(To::Plain);
        Ok(Work {
            job,
            contender: contender.clone(),
            table: if plain { Tables::plain() } else { tables.table() },
            spread,
            coordinator: cluster.info.clone(),
            rows: extent.rows,
            seconds: extent.seconds,
            threads: extent.threads,
            workers: cluster.workers().iter().map(|server| server.info.clone()).collect(),
            nodes: topology.nodes.iter().map(node).collect::<Result<_>>()?,
            topology,
            ids: AtomicI32::new(1),
            stored: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    /// Where a client connects to.
    pub fn endpoints(&self, thread: u32) -> Vec<&ConnInfo> {
        match self.contender.to {
            None | Some(To::Coordinator) => vec![&self.coordinator],
            Some(To::Worker) => vec![&self.workers[thread as usize % self.workers.len()]],
            Some(To::Plain) => vec![&self.workers[0]],
            Some(To::Shard) => self.nodes.iter().collect(),
        }
    }

    /// Whether the time is over.
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// The next statement's values.
    pub fn next(&self, random: &mut Random) -> Op {
        Op::next(self.job, random, || self.ids.fetch_add(1, Relaxed), self.rows)
    }

    /// Sends until the time is over. An error is what keeps it from beginning.
    pub fn run(&self, cluster: &Cluster) -> Result<Sent> {
        // Clients wait at the first until all are ready, and at the second until what was spent so far is known.
        let (ready, go) = (Barrier::new(self.threads as usize + 1), Barrier::new(self.threads as usize + 1));
        thread::scope(|scope| {
            let clients: Vec<_> = (0..self.threads)
                .map(|n| {
                    scope.spawn({
                        let (ready, go) = (&ready, &go);
                        move || self.client(n, ready, go)
                    })
                })
                .collect();
            ready.wait();
            let warm = self.stored.load(Relaxed);
            let before = Before::now(cluster);
            go.wait();
            let began = Instant::now();
            let end = began + Duration::from_secs_f64(self.seconds);
            // A client that fails ends the turn.
            while !self.stop.load(Relaxed) && Instant::now() < end {
                thread::sleep(Duration::from_millis(20).min(end.saturating_duration_since(Instant::now())));
            }
            self.stop.store(true, Relaxed);
            let mut failure = None;
            for client in clients {
                match client.join() {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        let text = error.to_string();
                        failure.get_or_insert(text);
                    }
                    Err(_) => return Err(Error::new(Code::Internal, "a client of the bench died")),
                }
            }
            let seconds = began.elapsed().as_secs_f64();
            let taken = before.taken(cluster, seconds);
            let stored = self.stored.load(Relaxed);
            Ok(Sent {
                seconds,
                operations: stored - warm,
                stored,
                client_cpu: taken.client,
                coordinator_cpu: taken.coordinator,
                workers_cpu: taken.workers,
                foreign_cores: taken.foreign_cores,
                failure,
            })
        })
    }

    /// One client from its beginning to its end.
    fn client(&self, thread: u32, ready: &Barrier, go: &Barrier) -> Result<()> {
        let mut random = Random(u64::from(thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let begun = runtime().and_then(|runtime| {
            let client = runtime.block_on(async {
                let mut client = Client::open(self, thread).await?;
                let mut sent = 0;
                while sent < WARM {
                    sent += client.transaction(self, &mut random).await?;
                }
                Ok(client)
            })?;
            Ok((runtime, client))
        });
        if begun.is_err() {
            self.stop.store(true, Relaxed);
        }
        // The others wait for this one, whatever has become of it.
        ready.wait();
        go.wait();
        let (runtime, mut client) = begun?;
        let done = runtime.block_on(async {
            while !self.stop.load(Relaxed) {
                client.transaction(self, &mut random).await?;
            }
            Ok(())
        });
        if done.is_err() {
            self.stop.store(true, Relaxed);
        }
        done
    }
}

/// What a client sends through.
enum Client {
    Each(Sessions),
    Batches(Box<Batches>),
}

impl Client {
    async fn open(work: &Work, thread: u32) -> Result<Client> {
        if work.contender.guard == Hold::Coordinator {
            return Batches::open(work, thread).await.map(|batches| Client::Batches(Box::new(batches)));
        }
        Sessions::open(work, thread).await.map(Client::Each)
    }

    /// Sends a transaction, and gives its statements.
    async fn transaction(&mut self, work: &Work, random: &mut Random) -> Result<u32> {
        let statements = work.contender.transaction;
        match self {
            Client::Batches(batches) => batches.one(work, random).await?,
            Client::Each(sessions) if statements == 1 => sessions.one(work, &work.next(random)).await?,
            Client::Each(sessions) if work.contender.together => {
                let ops: Vec<Op> = (0..statements).map(|_| work.next(random)).collect();
                sessions.together(work, &ops).await?;
            }
            Client::Each(sessions) => {
                sessions.say("BEGIN").await?;
                for _ in 0..statements {
                    sessions.one(work, &work.next(random)).await?;
                }
                sessions.say("COMMIT").await?;
            }
        }
        work.stored.fetch_add(u64::from(statements), Relaxed);
        Ok(statements)
    }
}

/// What had been spent when the clock started.
#[derive(Debug)]
pub struct Before {
    spent: Spent,
    client: f64,
    busy: Option<f64>,
}

/// What was spent since.
#[derive(Debug)]
pub struct Taken {
    pub coordinator: Option<f64>,
    pub workers: Option<f64>,
    /// Of this program.
    pub client: f64,
    pub foreign_cores: Option<f64>,
}

impl Before {
    /// Now.
    pub fn now(cluster: &Cluster) -> Before {
        Before { busy: machine::busy(), spent: cluster.spent(), client: measure::own_cpu_seconds() }
    }

    /// Since then.
    pub fn taken(&self, cluster: &Cluster, seconds: f64) -> Taken {
        let (client, spent, busy) = (measure::own_cpu_seconds(), cluster.spent(), machine::busy());
        let less = |after: Option<f64>, before: Option<f64>| after.zip(before).map(|(a, b)| a - b);
        let coordinator = less(spent.coordinator, self.spent.coordinator);
        let workers = less(spent.workers, self.spent.workers);
        let client = client - self.client;
        let ours = coordinator.zip(workers).map(|(coordinator, workers)| coordinator + workers + client);
        let foreign =
            less(busy, self.busy).zip(ours).map(|(busy, ours)| ((busy - ours) / seconds.max(0.01)).max(0.0));
        Taken { coordinator, workers, client, foreign_cores: foreign }
    }
}
