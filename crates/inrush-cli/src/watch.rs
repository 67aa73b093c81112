//! `inrush watch`: who loads on a server, and what the time goes to.

mod clock;
mod lines;
mod screen;
mod view;

use crate::args::WatchArgs;
use crate::say;
use crate::server::{IfAbsent, Server};
use inrush_core::{Code, Error, Result};
use inrush_profile::watch::Watch;
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Seconds that the figures on the screen are of.
const RECENT: f64 = 5.0;

pub fn run(args: &WatchArgs) -> Result<ExitCode> {
    let draw = !args.json && stdout().is_terminal();
    let server = Server::find(&args.server, IfAbsent::Refuse, &say::note)?;
    let watch = Arc::new(Watch::new(args.options(RECENT)));
    let running = {
        let watch = Arc::clone(&watch);
        std::thread::spawn(move || watch.run(&server.conninfo))
    };
    let mut session = Session {
        watch,
        running: Some(running),
        asked_to_end: asked_to_end()?,
        until: None,
        interval: Duration::from_secs_f64(args.interval),
    };
    session.wait_for_server()?;
    session.until = args.for_.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    if draw {
        screen::show(&mut session)?;
    } else {
        lines::print(&mut session, args.json)?;
    }
    // Not waited for: it may hang on a server that does not answer, and holds nothing worth keeping.
    session.watch.end();
    Ok(ExitCode::SUCCESS)
}

/// A watch that runs on a thread of its own, and when it ends.
struct Session {
    watch: Arc<Watch>,
    running: Option<JoinHandle<Result<()>>>,
    /// A signal has come.
    asked_to_end: Arc<AtomicBool>,
    until: Option<Instant>,
    interval: Duration,
}

impl Session {
    /// Waits until the first connection stands.
    fn wait_for_server(&mut self) -> Result<()> {
        while self.watch.server().is_none() {
            if self.asked_to_end.load(Relaxed) {
                return Err(Error::new(Code::Interrupted, "stopped before the server was reached"));
            }
            self.check()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Why the watching thread has ended, if it has.
    fn check(&mut self) -> Result<()> {
        match self.running.take_if(|thread| thread.is_finished()).map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::new(Code::Internal, "the thread that watches has crashed")),
        }
    }

    /// Whether it is time to stop.
    fn is_over(&self) -> bool {
        self.asked_to_end.load(Relaxed) || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// The server's time of day: its time zone, this machine's clock.
    fn clock(&self) -> clock::Moment {
        clock::Moment::now(self.watch.server().map_or(0, |server| server.utc_offset))
    }
}

/// Becomes true with the first SIGINT or SIGTERM.
fn asked_to_end() -> Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends the process as if nobody listened.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&asked))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&asked)))
            .map_err(|e| Error::new(Code::Internal, format!("cannot listen for signals: {e}")))?;
    }
    Ok(asked)
}

/// A rate for people.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate is neither negative nor huge
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}
