//! The embedded PostgreSQL: a durable server of the user's own, found or fetched, and started on demand.
//!
//! # Where things are
//! Everything is under one directory, the *root*: `INRUSH_LOCAL_DIR`, else as root `/var/lib/inrush-local`
//! (the server cannot run as root, and the account it runs as cannot enter root's home), else
//! `$XDG_DATA_HOME/inrush/local`, else `~/.local/share/inrush/local`.
//!
//! | in the root | what |
//! |---|---|
//! | `data/` | the data directory, of the account the server runs as |
//! | `socket/` | the Unix socket, mode 0700. If its path would be longer than a socket's may be, it is in `/tmp/inrush-UID-HASH/` instead. Not in `XDG_RUNTIME_DIR`: that is emptied at logout, and the server outlives it |
//! | `local.conf` | settings, sized for the machine when it was made; may be edited. ALTER SYSTEM wins over it |
//! | `log/server.log` | the server's log |
//! | `servers/` | servers that were fetched |
//! | `lock` | held while something is started, stopped or removed |
//!
//! # Who may connect
//! The server listens on no network address. Whoever can open the socket may connect without a password, and
//! the 0700 directory around it lets in the account the server runs as, and root.

mod account;
mod create;
mod find;
mod local;
mod paths;
mod postmaster;
mod prompt;
mod runtime;
mod statements;
mod table;

#[cfg(feature = "fetch")]
mod fetch;

pub use find::{Origin, Server};
pub use local::{Local, Options, Progress, Started, State, Status, StopMode};
