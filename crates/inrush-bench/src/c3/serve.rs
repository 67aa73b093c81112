//! `inrush serve` as a child.

use crate::c3::{ServeSettings, http};
use crate::machine;
use inrush_core::{Code, Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// What to start.
#[derive(Debug)]
pub struct Wanted<'w> {
    pub inrush: &'w Path,
    /// An empty place of its own.
    pub dir: &'w Path,
    pub dsn: &'w str,
    pub schema: &'w str,
    pub ledger: &'w str,
    pub via: &'w str,
    pub unlogged: bool,
    pub linger: &'w str,
    pub settings: &'w ServeSettings,
    /// Reads standard input into this table instead of HTTP.
    pub stdin_into: Option<&'w str>,
}

/// One that runs.
#[derive(Debug)]
pub struct Serve {
    child: Child,
    log: PathBuf,
    /// Where senders connect to.
    pub socket: PathBuf,
    admin: u16,
    ended: bool,
    /// What was known of it last: nothing is told of a process that has been waited for.
    last: (Option<f64>, Option<u64>),
}

impl Serve {
    /// Starts one, and waits until it is ready.
    pub fn start(wanted: &Wanted<'_>) -> Result<Serve> {
        let failed = |e: std::io::Error| Error::new(Code::Local, format!("inrush serve cannot be run: {e}"));
        let admin = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()).map_err(failed)?.port();
        let socket = wanted.dir.join("http.sock");
        let input = match wanted.stdin_into {
            Some(table) => {
                format!("[stdin]\nname = \"bench\"\nformat = \"csv\"\ninto.table = {table:?}\n")
            }
            None => format!(
                "[[http]]\nname = \"bench\"\nlisten = {:?}\ntimeout = \"120s\"\n",
                format!("unix:{}", socket.display())
            ),
        };
        let config = format!(
            "[server]\nto = {:?}\nlanes = {}\nvia = {:?}\nledger = {:?}\n[batch]\nlinger = {:?}\n[limits]\nmemory = {:?}\n\
             [admin]\nlisten = \"127.0.0.1:{admin}\"\n[windows]\nevery = \"1s\"\n\
             {input}into.schema = {:?}\ninto.unlogged = {}\n",
            wanted.dsn,
            wanted.settings.lanes,
            wanted.via,
            wanted.ledger,
            wanted.linger,
            wanted.settings.memory,
            wanted.schema,
            wanted.unlogged,
        );
        let path = wanted.dir.join("serve.toml");
        std::fs::write(&path, config).map_err(failed)?;
        let log = wanted.dir.join("serve.log");
        let mut command = Command::new(wanted.inrush);
        crate::server::remove_server_variables(&mut command);
        let child = command
            .arg("serve")
            .arg(&path)
            .stdin(if wanted.stdin_into.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::null())
            .stderr(File::create(&log).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let mut serve = Serve { child, log, socket, admin, ended: false, last: (None, None) };
        let began = Instant::now();
        let ready = |serve: &Serve| {
            http::get(serve.admin, "/ready").is_ok_and(|answer| answer.status == 200)
                && (wanted.stdin_into.is_some() || UnixStream::connect(&serve.socket).is_ok())
        };
        while !ready(&serve) {
            if serve.child.try_wait().map_err(failed)?.is_some() || began.elapsed() > PATIENCE {
                return Err(Error::new(
                    Code::Local,
                    format!("inrush serve does not start: {}", serve.said()),
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(serve)
    }

    /// Its standard input.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// What it has said, or the end of it.
    pub fn said(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(3)..].join("; ")
    }

    /// CPU seconds so far.
    pub fn cpu(&self) -> Option<f64> {
        if self.ended { self.last.0 } else { machine::process_cpu(self.child.id()) }
    }

    /// The most memory so far.
    pub fn peak(&self) -> Option<u64> {
        if self.ended { self.last.1 } else { machine::process_peak(self.child.id()) }
    }

    /// Rows committed so far.
    pub fn rows(&self) -> Option<u64> {
        figure(&http::get(self.admin, "/metrics").ok()?.body, "inrush_rows_total ")
    }

    /// Within how many seconds 99 % of the rows were visible: the end of a step of its histogram.
    pub fn visible_p99(&self) -> Option<f64> {
        let page = http::get(self.admin, "/metrics").ok()?.body;
        let count: f64 = figure(&page, "inrush_visible_seconds_count ")?;
        page.lines().find_map(|line| {
            let (bound, below) =
                line.strip_prefix("inrush_visible_seconds_bucket{le=\"")?.split_once("\"} ")?;
            (below.trim().parse::<f64>().ok()? >= count * 0.99).then(|| bound.parse().ok()).flatten()
        })
    }

    /// Waits for its end; after standard input has ended.
    pub fn wait(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            // Of a process that has ended, and not been waited for, the CPU is still told, the memory is not.
            self.last = (self.cpu(), self.peak().or(self.last.1));
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    self.ended = true;
                    return if status.success() {
                        Ok(())
                    } else {
                        Err(Error::new(Code::Local, format!("inrush serve: {status}: {}", self.said())))
                    };
                }
                Ok(None) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(2)),
                _ => {
                    let fact = format!("inrush serve does not end: {}", self.said());
                    return Err(Error::new(Code::Local, fact));
                }
            }
        }
    }

    /// Stops it.
    pub fn stop(&mut self) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        // It has not been waited for: the number is its own.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.wait()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn figure<T: std::str::FromStr>(page: &str, name: &str) -> Option<T> {
    page.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}
