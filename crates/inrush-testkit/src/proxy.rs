//! A proxy between a client and a throw-away server that breaks connections at chosen moments.
//!
//! It listens on a port of 127.0.0.1 and on a Unix socket, and forwards to the server. It reads the frontend's messages
//! as they pass, so it knows when a COMMIT, or any other statement, goes by. TLS would hide them: leave `ssl` off on
//! the server, or connect with sslmode=disable.

mod frontend;
mod stream;

use crate::Postgres;
use frontend::{Frontend, is_commit};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
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

/// Where the server listens.
#[derive(Debug)]
enum Target {
    Unix(PathBuf),
    Tcp(String, u16),
}

/// A statement that a trap is set on.
#[derive(Debug, Clone)]
pub struct Statement {
    like: Like,
    behind: Option<String>,
    skip: u64,
}

#[derive(Debug, Clone)]
enum Like {
    Commit,
    With(String),
    Whole(String),
}

impl Statement {
    fn new(like: Like) -> Statement {
        Statement { like, behind: None, skip: 0 }
    }

    /// That starts with COMMIT or END.
    pub fn commit() -> Statement {
        Statement::new(Like::Commit)
    }

    /// Whose text has this in it.
    pub fn with(text: &str) -> Statement {
        Statement::new(Like::With(text.to_owned()))
    }

    /// Whose text is this.
    pub fn whole(text: &str) -> Statement {
        Statement::new(Like::Whole(text.to_owned()))
    }

    /// Only once one that has this in its text has gone by.
    pub fn behind(self, text: &str) -> Statement {
        Statement { behind: Some(text.to_owned()), ..self }
    }

    /// After so many others of this kind have gone by.
    pub fn skip(self, skip: u64) -> Statement {
        Statement { skip, ..self }
    }

    /// Whether this statement is the one; counts what goes by.
    fn is(&mut self, sql: &str) -> bool {
        if let Some(behind) = &self.behind {
            if sql.contains(behind.as_str()) {
                self.behind = None;
            }
            return false;
        }
        let like = match &self.like {
            Like::Commit => is_commit(sql),
            Like::With(text) => sql.contains(text.as_str()),
            Like::Whole(text) => sql == text,
        };
        if like && self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        like
    }
}

#[derive(Debug)]
struct Shared {
    target: Target,
    state: Mutex<State>,
    /// Notified on every change of `state`.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closing: bool,
    /// Nothing is forwarded, on connections old and new.
    frozen: bool,
    /// What to do, and at which statement.
    trap: Option<(Trap, Statement)>,
    /// A trap has gone off since it was set.
    sprung: bool,
    /// The server has answered the statement that it went off at.
    answered: bool,
    /// Bytes towards the server until everything is cut.
    budget: Option<u64>,
    /// Bytes per second towards the server, and when the next may go.
    rate: Option<(u64, Instant)>,
    next_id: u64,
    links: HashMap<u64, Link>,
    accepted: u64,
    forwarded: u64,
}

/// What to do at a statement.
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
    /// The held statement may go although the connection is frozen.
    deliver: bool,
    /// The statement of the trap was sent here.
    trapped: bool,
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
        Proxy::to(Target::Unix(target))
    }

    /// A proxy in front of a server that listens here.
    ///
    /// # Panics
    /// As [`Proxy::start`].
    pub fn to_address(host: &str, port: u16) -> Proxy {
        Proxy::to(Target::Tcp(host.to_owned(), port))
    }

    fn to(target: Target) -> Proxy {
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

    /// Freezes all connections that are open when this statement goes by, right after it was forwarded: the server does
    /// it, and no client sees the answer. Connections made later work. Statements are those of Query messages, and of
    /// Execute messages with what was prepared.
    pub fn freeze_after(&self, statement: Statement) {
        self.set_trap(Trap::After, statement);
    }

    /// As [`Proxy::freeze_after`], but the statement itself is held back. [`Proxy::deliver_held`] lets it go later, even
    /// when its client is long dead.
    pub fn freeze_before(&self, statement: Statement) {
        self.set_trap(Trap::Before, statement);
    }

    /// [`Proxy::freeze_after`] for the next COMMIT.
    pub fn freeze_after_commit(&self) {
        self.freeze_after_a_later_commit(0);
    }

    /// As [`Proxy::freeze_after_commit`], after `skip` others have gone by.
    pub fn freeze_after_a_later_commit(&self, skip: u64) {
        self.freeze_after(Statement::commit().skip(skip));
    }

    /// [`Proxy::freeze_before`] for the next COMMIT.
    pub fn freeze_before_commit_reaches(&self) {
        self.freeze_before_a_later_commit_reaches(0);
    }

    /// As [`Proxy::freeze_before_commit_reaches`], after `skip` others have gone by.
    pub fn freeze_before_a_later_commit_reaches(&self, skip: u64) {
        self.freeze_before(Statement::commit().skip(skip));
    }

    /// Waits until the trap that was set last goes off; false if it does not within `patience`.
    pub fn wait_for_trap(&self, patience: Duration) -> bool {
        self.wait(patience, |state| !state.sprung)
    }

    /// Waits until the server has answered the statement of the trap that was set last.
    pub fn wait_for_answer(&self, patience: Duration) -> bool {
        self.wait(patience, |state| !state.answered)
    }

    fn wait(&self, patience: Duration, until_not: impl Fn(&State) -> bool) -> bool {
        let waited =
            self.shared.changed.wait_timeout_while(self.shared.lock(), patience, |state| until_not(state));
        !until_not(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Sends the statement that was held back to the server; everything else stays frozen.
    pub fn deliver_held(&self) {
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

    fn set_trap(&self, trap: Trap, statement: Statement) {
        self.change(|state| {
            state.trap = Some((trap, statement));
            state.sprung = false;
            state.answered = false;
            state.links.values_mut().for_each(|link| link.trapped = false);
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
        let server = match &self.target {
            Target::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Target::Tcp(host, port) => TcpStream::connect((host.as_str(), *port)).map(|server| {
                let _ = server.set_nodelay(true);
                Stream::Tcp(server)
            }),
        };
        let mut state = self.lock();
        if state.closing {
            return false;
        }
        state.accepted += 1;
        let Ok(server) = server else { return true };
        let Some(ends) = client.pair(&server).zip(client.pair(&server)) else { return true };
        let id = state.next_id;
        state.next_id += 1;
        state.links.insert(id, Link { client, server, frozen: false, deliver: false, trapped: false });
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
                let trap = piece.statement.as_deref().and_then(|statement| self.spring(id, statement));
                let sent = match trap {
                    // Frozen by `spring` already, so the answer cannot slip through; the statement goes
                    // all the same.
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
            let mut state = self.lock();
            if state.links.get(&id).is_some_and(|link| link.trapped) && !state.answered {
                state.answered = true;
                self.changed.notify_all();
            }
            drop(state);
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

    /// The trap that a statement has just run into, if one is set; every open connection is frozen then.
    fn spring(&self, id: u64, statement: &str) -> Option<Trap> {
        let mut state = self.lock();
        let (trap, mut on) = state.trap.take()?;
        if !on.is(statement) {
            state.trap = Some((trap, on));
            return None;
        }
        state.sprung = true;
        for link in state.links.values_mut() {
            link.frozen = true;
            link.deliver = false;
        }
        if let Some(link) = state.links.get_mut(&id) {
            link.trapped = true;
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
