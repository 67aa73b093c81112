//! A proxy between a client and a throw-away server that breaks connections at chosen moments.
//!
//! It listens on a port of 127.0.0.1 and on a Unix socket, and forwards to the server's Unix socket. It reads
//! the frontend's messages as they pass, so it knows when a COMMIT goes by. TLS would hide them: leave `ssl`
//! off on the server.

mod frontend;
mod stream;

use crate::Postgres;
use frontend::Frontend;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use stream::Stream;
use tempfile::TempDir;

/// A running proxy. Dropping it cuts every connection.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    port: u16,
    dir: TempDir,
}

#[derive(Debug)]
struct Shared {
    /// The Unix socket of the server.
    target: PathBuf,
    state: Mutex<State>,
    /// Notified on every change of `state`.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closing: bool,
    /// Nothing is forwarded, on connections old and new.
    frozen: bool,
    /// What to do at a COMMIT, and how many go by before it.
    trap: Option<(Trap, u64)>,
    /// A trap has gone off since it was set.
    sprung: bool,
    /// Bytes towards the server until everything is cut.
    budget: Option<u64>,
    /// Bytes per second towards the server, and when the next may go.
    rate: Option<(u64, Instant)>,
    next_id: u64,
    links: HashMap<u64, Link>,
    accepted: u64,
    forwarded: u64,
}

/// What to do at the next COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trap {
    /// Hold it back.
    Before,
    /// Forward it, and nothing after it.
    After,
}

/// One connection. Both streams are owned here and cloned by the two threads that forward.
#[derive(Debug)]
struct Link {
    client: Stream,
    server: Stream,
    frozen: bool,
    /// The held COMMIT may go although the connection is frozen.
    deliver: bool,
}

impl Proxy {
    /// A proxy in front of `server`, forwarding.
    ///
    /// # Panics
    /// If no port or directory is to be had.
    pub fn start(server: &Postgres) -> Proxy {
        Proxy::to_socket(server.socket_dir().join(format!(".s.PGSQL.{}", server.port())))
    }

    /// A proxy in front of the Unix socket `target`.
    ///
    /// # Panics
    /// As [`Proxy::start`].
    pub fn to_socket(target: PathBuf) -> Proxy {
        let tcp = TcpListener::bind(("127.0.0.1", 0)).expect("a free port of the loopback address");
        let port = tcp.local_addr().expect("a bound socket has an address").port();
        let closed = std::fs::Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new()
            .permissions(closed)
            .prefix("inrush-proxy-")
            .tempdir_in("/tmp")
            .expect("a directory");
        let unix = UnixListener::bind(dir.path().join(format!(".s.PGSQL.{port}"))).expect("a Unix socket");
        let shared = Arc::new(Shared { target, state: Mutex::default(), changed: Condvar::new() });
        let for_tcp = Arc::clone(&shared);
        thread::spawn(move || {
            for client in tcp.incoming().map_while(Result::ok) {
                if !for_tcp.accept(Stream::Tcp(client)) {
                    break;
                }
            }
        });
        let for_unix = Arc::clone(&shared);
        thread::spawn(move || {
            for client in unix.incoming().map_while(Result::ok) {
                if !for_unix.accept(Stream::Unix(client)) {
                    break;
                }
            }
        });
        Proxy { shared, port, dir }
    }

    /// The port, of the TCP socket and in the name of the Unix socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the Unix socket.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Resets every open connection, on both sides. New ones are accepted.
    pub fn cut(&self) {
        self.change(State::cut);
    }

    /// Forwards `bytes` more bytes towards the server, counted over all connections, then cuts as
    /// [`Proxy::cut`] does, once.
    pub fn cut_after(&self, bytes: u64) {
        self.change(|state| state.budget = Some(bytes));
    }

    /// Stops forwarding in both directions and keeps all sockets open, as a lost network does. New
    /// connections are accepted and get no answer either.
    pub fn freeze(&self) {
        self.change(|state| state.frozen = true);
    }

    /// Freezes all connections that are open when the next COMMIT goes by, right after it was forwarded: the
    /// server commits, and no client sees the answer. Connections made later work. A COMMIT is a Query or an
    /// Execute with a statement that starts with COMMIT or END.
    pub fn freeze_after_commit(&self) {
        self.set_trap(Trap::After, 0);
    }

    /// As [`Proxy::freeze_after_commit`], after `skip` others have gone by.
    pub fn freeze_after_a_later_commit(&self, skip: u64) {
        self.set_trap(Trap::After, skip);
    }

    /// As [`Proxy::freeze_after_commit`], but the COMMIT itself is held back. [`Proxy::deliver_held_commit`]
    /// lets it go later, even when its client is long dead.
    pub fn freeze_before_commit_reaches(&self) {
        self.set_trap(Trap::Before, 0);
    }

    /// As [`Proxy::freeze_before_commit_reaches`], after `skip` others have gone by.
    pub fn freeze_before_a_later_commit_reaches(&self, skip: u64) {
        self.set_trap(Trap::Before, skip);
    }

    /// Waits until the trap that was set last goes off; false if it does not within `patience`.
    pub fn wait_for_commit(&self, patience: Duration) -> bool {
        let state = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(state, patience, |state| !state.sprung);
        waited.unwrap_or_else(PoisonError::into_inner).0.sprung
    }

    /// Sends the COMMIT that was held back to the server; everything else stays frozen.
    pub fn deliver_held_commit(&self) {
        self.change(|state| state.links.values_mut().for_each(|link| link.deliver = true));
    }

    /// Limits what goes towards the server, over all connections together.
    pub fn throttle(&self, bytes_per_second: u64) {
        self.change(|state| state.rate = Some((bytes_per_second.max(1), Instant::now())));
    }

    /// Back to plain forwarding: what was held back goes out, traps and limits are forgotten.
    pub fn thaw(&self) {
        self.change(|state| {
            state.frozen = false;
            state.trap = None;
            state.budget = None;
            state.rate = None;
            state.links.values_mut().for_each(|link| link.frozen = false);
        });
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }

    /// Bytes forwarded towards the server so far.
    pub fn forwarded(&self) -> u64 {
        self.shared.lock().forwarded
    }

    fn set_trap(&self, trap: Trap, skip: u64) {
        self.change(|state| {
            state.trap = Some((trap, skip));
            state.sprung = false;
        });
    }

    fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut self.shared.lock());
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.change(|state| {
            state.closing = true;
            state.cut();
        });
        // Wakes the accepting threads, which then see that it is over.
        drop(std::net::TcpStream::connect(("127.0.0.1", self.port)));
        drop(UnixStream::connect(self.dir.path().join(format!(".s.PGSQL.{}", self.port))));
    }
}

impl State {
    fn cut(&mut self) {
        self.budget = None;
        for (_, link) in self.links.drain() {
            link.client.reset();
            link.server.reset();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection over; false when the proxy closes.
    fn accept(self: &Arc<Self>, client: Stream) -> bool {
        // No server: the client sees its connection closed, as it would see one refused.
        let server = UnixStream::connect(&self.target).map(Stream::Unix);
        let mut state = self.lock();
        if state.closing {
            return false;
        }
        state.accepted += 1;
        let Ok(server) = server else { return true };
        let Some(ends) = client.pair(&server).zip(client.pair(&server)) else { return true };
        let id = state.next_id;
        state.next_id += 1;
        state.links.insert(id, Link { client, server, frozen: false, deliver: false });
        drop(state);
        let ((client_in, server_out), (client_out, server_in)) = ends;
        let (up, down) = (Arc::clone(self), Arc::clone(self));
        thread::spawn(move || {
            up.forward_up(id, &client_in, &server_out);
            server_out.finish();
        });
        thread::spawn(move || {
            down.forward_down(id, &server_in, &client_out);
            client_out.finish();
            down.lock().links.remove(&id);
            // The other direction may still wait for its client.
            server_in.reset();
        });
        true
    }

    /// Client to server, until the client ends or the link is cut.
    fn forward_up(&self, id: u64, mut from: &Stream, to: &Stream) {
        let mut buffer = vec![0; 64 << 10];
        let mut frontend = Frontend::default();
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            frontend.feed(&buffer[..n]);
            while let Some(piece) = frontend.take() {
                let trap = if piece.is_commit { self.spring() } else { None };
                let sent = match trap {
                    // Frozen by `spring` already, so the answer cannot slip through; the COMMIT goes all
                    // the same.
                    Some(Trap::After) => self.send(id, &piece.bytes, to),
                    Some(Trap::Before) => {
                        self.wait_while(id, |state, link| (state.frozen || link.frozen) && !link.deliver)
                            && self.send(id, &piece.bytes, to)
                    }
                    None => {
                        self.wait_while(id, |state, link| state.frozen || link.frozen)
                            && self.send(id, &piece.bytes, to)
                    }
                };
                if !sent {
                    return;
                }
            }
        }
        // The client is gone. A lost network would not tell the server.
        self.wait_while(id, |state, link| state.frozen || link.frozen);
    }

    /// Server to client.
    fn forward_down(&self, id: u64, mut from: &Stream, mut to: &Stream) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            if !self.wait_while(id, |state, link| state.frozen || link.frozen)
                || to.write_all(&buffer[..n]).is_err()
            {
                return;
            }
        }
        self.wait_while(id, |state, link| state.frozen || link.frozen);
    }

    /// Writes towards the server within the rate and the budget; false when the link is cut.
    fn send(&self, id: u64, bytes: &[u8], mut to: &Stream) -> bool {
        for part in bytes.chunks(16 << 10) {
            let mut state = self.lock();
            let mut part = part;
            if let Some(budget) = &mut state.budget {
                part = &part[..part.len().min(usize::try_from(*budget).unwrap_or(usize::MAX))];
                *budget -= part.len() as u64;
            }
            let last = state.budget == Some(0);
            state.forwarded += part.len() as u64;
            let mut pause = Duration::ZERO;
            if let Some((rate, next)) = &mut state.rate {
                let now = Instant::now();
                pause = next.saturating_duration_since(now);
                *next = now.max(*next) + Duration::from_secs_f64(part.len() as f64 / *rate as f64);
            }
            if !state.links.contains_key(&id) {
                return false;
            }
            drop(state);
            thread::sleep(pause);
            if to.write_all(part).is_err() {
                return false;
            }
            if last {
                self.lock().cut();
                self.changed.notify_all();
                return false;
            }
        }
        true
    }

    /// The trap that a COMMIT has just run into, if one is set; every open connection is frozen then.
    fn spring(&self) -> Option<Trap> {
        let mut state = self.lock();
        let (trap, skip) = state.trap.take()?;
        if let Some(left) = skip.checked_sub(1) {
            state.trap = Some((trap, left));
            return None;
        }
        state.sprung = true;
        for link in state.links.values_mut() {
            link.frozen = true;
            link.deliver = false;
        }
        drop(state);
        self.changed.notify_all();
        Some(trap)
    }

    /// Waits as long as `held`; false when the link has been cut.
    fn wait_while(&self, id: u64, held: impl Fn(&State, &Link) -> bool) -> bool {
        let waits = |state: &mut State| state.links.get(&id).is_some_and(|link| held(state, link));
        let state = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        state.links.contains_key(&id)
    }
}
