//! What need not wait until the control connection has read the catalog: the first lanes connect, and the head of
//! the first input is looked at. On a quiet machine that is a third of what a load takes before its first row.

use crate::create::head;
use crate::format::sniff_sample;
use crate::levers::LeverOptions;
use crate::options::{LedgerChoice, Options, Via};
use crate::plan::single_unit;
use crate::session::connect_lane;
use inrush_core::{Code, Error, Result};
use inrush_decode::sniff::Sniffed;
use inrush_sink::catalog::direct::load_library_if_there;
use inrush_sink::connect::Connected;
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::ledger::UnitLedger;
use inrush_source::{Input, InputKind, InputSpec};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Connections that are opened so early at most.
const MOST: usize = 4;
/// How long the end of a load that did not begin waits for one of them.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection for a lane, and the runtime that drives it.
pub(crate) struct Line {
    pub connected: Connected,
    pub runtime: Runtime,
}

impl Line {
    /// Connects, and has the session do what a lane begins with. What fails of that will fail again, and be said then.
    fn open(options: &Options, conninfo: &ConnInfo) -> Result<Line> {
        let runtime = runtime()?;
        let connected = runtime.block_on(async {
            let connected = connect_lane(conninfo).await?;
            if matches!(options.via, Via::Auto | Via::Direct) {
                let _ = load_library_if_there(&connected.client).await;
            }
            if let LedgerChoice::Schema(schema) = &options.ledger {
                let _ = UnitLedger::look_ahead(&connected.client, schema).await;
            }
            Ok::<_, Error>(connected)
        })?;
        Ok(Line { connected, runtime })
    }
}

/// What drives the connection of one lane.
pub(crate) fn runtime() -> Result<Runtime> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|e| Error::new(Code::Internal, format!("cannot start a lane's runtime: {e}")))
}

/// A connection that is being opened.
pub(crate) struct Opening(Receiver<Line>);

impl Opening {
    /// Opens it in a thread of its own.
    fn start(options: &Options, conninfo: &ConnInfo) -> Option<Opening> {
        let (options, conninfo) = (options.clone(), conninfo.clone());
        let (sender, receiver) = sync_channel(1);
        let open = move || {
            if let Ok(line) = Line::open(&options, &conninfo) {
                // If it is not wanted any more it comes back, and is closed.
                let _ = sender.send(line);
            }
        };
        std::thread::Builder::new().name("inrush connecting".into()).spawn(open).ok()?;
        Some(Opening(receiver))
    }

    /// Waits for it. `None` if it could not be opened: that is said when it is tried again.
    pub fn line(self) -> Option<Line> {
        self.0.recv().ok()
    }
}

/// The first lanes' connections.
pub(crate) struct Lines(Vec<Opening>);

impl Lines {
    /// Begins to connect the first lanes, `lanes` if nothing else is asked for and the inputs are worth it; none where
    /// levers are pulled before there are lanes: they take connections of their own, of which there may be few.
    pub fn open(options: &Options, conninfo: &ConnInfo, specs: &[InputSpec], lanes: usize) -> Lines {
        let one = options.one_transaction() || options.on_conflict.is_some();
        let lanes = if options.levers != LeverOptions::default() {
            0
        } else if one || length(specs).is_some_and(|bytes| bytes <= single_unit(&options.limits)) {
            1
        } else {
            options.jobs.unwrap_or(lanes)
        };
        Lines((0..lanes.min(MOST)).map_while(|_| Opening::start(options, conninfo)).collect())
    }

    /// The next of them.
    pub fn take(&mut self) -> Option<Opening> {
        self.0.pop()
    }

    /// Closes those that are left, each when it is there.
    pub fn close(&mut self) {
        self.0.clear();
    }
}

/// Bytes of the inputs as they stand on disk, if all are files.
fn length(specs: &[InputSpec]) -> Option<u64> {
    let lengths = specs.iter().map(|spec| match &spec.kind {
        InputKind::File(path) => Some(path.metadata().ok()?.len()),
        _ => None,
    });
    lengths.sum()
}

impl Drop for Lines {
    fn drop(&mut self) {
        // A connection that the end of the process cuts off in its first steps may be a line in the server's log; but a
        // lock that somebody holds is not waited for.
        for opening in self.0.drain(..) {
            let _ = opening.0.recv_timeout(PATIENCE);
        }
    }
}

/// An input and what its head shows of its format.
pub(crate) struct Head {
    pub input: Input,
    /// Its first bytes.
    pub sample: Vec<u8>,
    pub sniffed: Sniffed,
}

impl Head {
    /// Looks at an input that was opened.
    pub fn of(options: &Options, spec: &InputSpec, mut input: Input) -> Result<Head> {
        let (sample, complete) = head(&mut input)?;
        let sniffed = sniff_sample(options, &spec.name, &sample, complete)?;
        Ok(Head { input, sample, sniffed })
    }
}

/// The head of the first input, that is being looked at if it is a file.
#[derive(Default)]
pub(crate) struct FirstHead(Mutex<Option<(InputSpec, JoinHandle<Result<Head>>)>>);

impl FirstHead {
    /// Begins to look.
    pub fn of(options: &Options, specs: &[InputSpec]) -> FirstHead {
        let first = specs.first().filter(|spec| matches!(spec.kind, InputKind::File(_)));
        let looking = first.and_then(|spec| {
            let (options, spec) = (options.clone(), spec.clone());
            let look = {
                let spec = spec.clone();
                move || Head::of(&options, &spec, Input::open(&spec, &options.limits)?)
            };
            Some((spec, std::thread::Builder::new().name("inrush head".into()).spawn(look).ok()?))
        });
        FirstHead(Mutex::new(looking))
    }

    /// What was seen, if it is the head of this input; only once.
    pub fn take(&self, spec: &InputSpec) -> Option<Result<Head>> {
        let mut looking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, thread) = looking.take_if(|(of, _)| of == spec)?;
        thread.join().ok()
    }
}
