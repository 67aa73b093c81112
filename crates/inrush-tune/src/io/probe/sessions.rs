//! Looks at a server's sessions: how many of them wait for I/O.

use inrush_core::{Code, Error, Result};
use inrush_sink::connect::connect;
use inrush_sink::conninfo::ConnInfo;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks at the server's sessions: so short that most measurements have enough of them, and the next depth
/// is not begun before it is known how this one was borne.
const EVERY: Duration = Duration::from_millis(20);

/// Sessions of the server that wait for I/O, other than the one that asks. Background processes are left out: with
/// io_method = worker those read for sessions, which wait meanwhile.
const LOOK: &str = "
    SELECT pg_catalog.count(*) FILTER (WHERE wait_event_type OPERATOR(pg_catalog.=) 'IO')
      FROM pg_catalog.pg_stat_activity
     WHERE pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
       AND backend_type OPERATOR(pg_catalog.=) 'client backend' AND state OPERATOR(pg_catalog.=) 'active'";

/// Whether sessions of other roles show what they do.
const ALL: &str = "SELECT pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')";

/// Looks at a server's sessions, in a thread of its own.
#[derive(Debug)]
pub(super) struct Session {
    seen: Arc<Mutex<Seen>>,
    /// Whether sessions of all roles are seen.
    pub(super) all: bool,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    looks: VecDeque<(Instant, u32)>,
    lost: Option<String>,
}

impl Seen {
    /// So many sessions wait now.
    fn saw(&mut self, waiting: u32) {
        self.looks.push_back((Instant::now(), waiting));
        // Those of a quarter of a minute or more: no window is longer.
        if self.looks.len() > 2000 {
            self.looks.pop_front();
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Connects, and begins to look.
    pub(super) fn open(info: &ConnInfo) -> Result<Session> {
        let (seen, over) = (Arc::new(Mutex::<Seen>::default()), Arc::new(AtomicBool::new(false)));
        let (ready, is_ready) = sync_channel(1);
        let thread = {
            let (info, seen, over) = (info.clone(), Arc::clone(&seen), Arc::clone(&over));
            std::thread::Builder::new().name("live".to_owned()).spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                match runtime {
                    Ok(runtime) => runtime.block_on(look(&info, &seen, &over, &ready)),
                    Err(error) => {
                        let _ = ready.send(Err(Error::new(Code::Connect, error.to_string())));
                    }
                }
            })
        };
        let thread = thread.map_err(|error| {
            Error::new(Code::Connect, format!("no thread can be made to watch the server: {error}"))
                .hint("Allow this account more processes, or measure without a server.")
        })?;
        let mut session = Session { seen, all: false, over, thread: Some(thread) };
        match is_ready.recv_timeout(Duration::from_secs(30)) {
            Ok(Ok(all)) => {
                session.all = all;
                Ok(session)
            }
            Ok(Err(error)) => Err(error),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(Error::new(Code::Connect, "the server that is to be watched does not answer")
                    .hint("Measure without a server, or when it answers."))
            }
        }
    }

    /// Why the server can no longer be looked at.
    pub(super) fn lost(&self) -> Option<String> {
        lock(&self.seen).lost.clone()
    }

    /// Looks in some time, and how many waited in all of them together.
    pub(super) fn between(&self, from: Instant, to: Instant) -> (u32, u32) {
        let seen = lock(&self.seen);
        let mut sums = (0, 0);
        for (_, waiting) in seen.looks.iter().filter(|(at, _)| (from..=to).contains(at)) {
            sums.0 += 1;
            sums.1 += waiting;
        }
        sums
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        // Not waited for when it hangs in a server that does not answer: it holds nothing but its connection.
        if let Some(thread) = self.thread.take().filter(JoinHandle::is_finished) {
            let _ = thread.join();
        }
    }
}

/// Looks until it is over or the server is lost.
async fn look(info: &ConnInfo, seen: &Mutex<Seen>, over: &AtomicBool, ready: &SyncSender<Result<bool>>) {
    let opened = async {
        let connected = connect(info, "inrush tune").await?;
        let asked = async {
            let all = connected.client.query_one(ALL, &[]).await?.try_get::<_, bool>(0)?;
            Ok((connected.client.prepare(LOOK).await?, all))
        };
        match asked.await {
            Ok((statement, all)) => Ok((connected, statement, all)),
            Err(error) => Err(connected.failure(&error).into_error()),
        }
    };
    let (connected, statement, all) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(all));
    while !over.load(Relaxed) {
        let answer = connected.client.query_one(&statement, &[]).await;
        match answer.and_then(|row| row.try_get::<_, i64>(0)) {
            Ok(waiting) => lock(seen).saw(u32::try_from(waiting).unwrap_or(u32::MAX)),
            Err(error) => {
                lock(seen).lost = Some(connected.failure(&error).error().fact().to_owned());
                return;
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}
