//! Watches that live queries do not suffer, by two signals: what others read from and write to the device, and how many
//! of the server's sessions wait for I/O. Each is compared with the quiet moments between the measurements.

use super::budget::counted;
use inrush_core::{Code, Error, Result};
use inrush_sink::connect::connect;
use inrush_sink::conninfo::ConnInfo;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Foreign reads and writes a second that are traffic; fewer are noise.
const TRAFFIC: f64 = 50.0;
/// Foreign reads and writes to be expected before their absence says something.
const EXPECTED: f64 = 20.0;
/// Looks at the server's sessions before their mean says something.
const LOOKS: u32 = 4;
/// Between two looks at the server's sessions: so short that most measurements have enough of them, and the next depth
/// is not begun before it is known how this one was borne.
const EVERY: Duration = Duration::from_millis(20);
/// How many quiet moments count together.
const MOMENTS: usize = 3;

/// What others did in some time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Window {
    /// Seconds.
    pub(super) seconds: f64,
    /// Reads and writes of others on the device; `None` where that cannot be seen.
    pub(super) foreign: Option<f64>,
    /// Looks at the server's sessions.
    pub(super) looks: u32,
    /// Sessions that waited for I/O, summed over the looks.
    pub(super) waiting: u32,
}

impl Window {
    fn add(&mut self, other: &Window) {
        self.seconds += other.seconds;
        self.foreign = match (self.foreign, other.foreign) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.looks += other.looks;
        self.waiting += other.waiting;
    }

    /// Foreign reads and writes a second.
    fn rate(&self) -> Option<f64> {
        self.foreign.filter(|_| self.seconds > 0.0).map(|count| count / self.seconds)
    }

    /// Sessions that waited for I/O, on average.
    fn mean(&self) -> Option<f64> {
        (self.looks >= LOOKS).then(|| f64::from(self.waiting) / f64::from(self.looks))
    }
}

/// Whether live queries suffer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Judged {
    /// They do not, or there are none.
    Well,
    /// Too little was seen to say.
    Unknown,
    /// They do: with figures, for people.
    Suffering(String),
}

/// Compares what others did during measurements with what they do in quiet moments.
pub(super) fn judge(quiet: &Window, during: &Window) -> Judged {
    let mut unknown = false;
    if let (Some(before), Some(now)) = (quiet.rate(), during.rate())
        && before > TRAFFIC
    {
        if before * during.seconds < EXPECTED {
            unknown = true;
        } else if now < before / 2.0 {
            return Judged::Suffering(format!(
                "others got {now:.0} reads and writes a second through, where they had {before:.0} before"
            ));
        }
    }
    if let Some(before) = quiet.mean() {
        match during.mean() {
            None => unknown = true,
            Some(now) if now >= before + 1.0 && now >= 2.0 * before => {
                return Judged::Suffering(format!(
                    "{now:.1} sessions of the server waited for I/O on average, where {before:.1} did before"
                ));
            }
            Some(_) => {}
        }
    }
    if unknown { Judged::Unknown } else { Judged::Well }
}

/// What the device and this process have done so far.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Instant,
    device: Option<Device>,
}

/// Counters of a device (Documentation/admin-guide/iostats.rst), and of what of it was ours.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Device {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    ours: u64,
}

/// The text of /sys/dev/block/M:m/stat.
fn parsed(stat: &str, ours: u64) -> Option<Device> {
    let fields: Vec<u64> = stat.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // Sectors are of 512 bytes, whatever the device's are.
    let (reads, sectors, writes) = (*fields.first()?, *fields.get(2)?, *fields.get(4)?);
    Some(Device { reads, read_bytes: sectors * 512, writes, ours })
}

/// The watcher.
#[derive(Debug)]
pub(super) struct Watch {
    stat: Option<PathBuf>,
    session: Option<Session>,
    /// The last quiet moments, oldest first.
    moments: VecDeque<Window>,
    /// What was seen since the last judgement.
    during: Window,
    /// Bytes of a foreign read in quiet moments.
    foreign_read_bytes: f64,
}

impl Watch {
    /// Of a device, by its number, and of a server.
    pub(super) fn new(device_number: Option<&str>, live: Option<&ConnInfo>) -> Result<Watch> {
        let stat = device_number.map(|number| PathBuf::from(format!("/sys/dev/block/{number}/stat")));
        Ok(Watch {
            stat: stat.filter(|path| path.exists() && counted().is_some()),
            session: live.map(Session::open).transpose()?,
            moments: VecDeque::new(),
            during: Window::default(),
            foreign_read_bytes: 8192.0,
        })
    }

    /// Whether there is anything to watch.
    pub(super) fn sees(&self) -> bool {
        self.stat.is_some() || self.session.is_some()
    }

    /// Seconds between two quiet moments: fewer where a server is watched, which may begin to work at any time.
    pub(super) fn interval(&self) -> f64 {
        if self.session.is_some() { 2.5 } else { 5.0 }
    }

    /// Why the server can no longer be watched.
    pub(super) fn lost(&self) -> Option<String> {
        self.session.as_ref().and_then(|session| session.seen().lost.clone())
    }

    /// A moment that a window begins at.
    pub(super) fn begin(&self) -> Begin {
        let device = self.stat.as_ref().and_then(|path| {
            let text = std::fs::read_to_string(path).ok()?;
            parsed(&text, counted()?)
        });
        Begin(Mark { at: Instant::now(), device })
    }

    fn since(&self, begin: &Begin, foreign_read_bytes: f64) -> Window {
        let (from, to) = (begin.0, self.begin().0);
        let foreign = from.device.zip(to.device).map(|(from, to)| {
            let read = to.read_bytes.saturating_sub(from.read_bytes);
            let foreign = read.saturating_sub(to.ours.saturating_sub(from.ours));
            #[allow(clippy::cast_precision_loss)] // of seconds
            let reads = foreign as f64 / foreign_read_bytes.max(512.0);
            #[allow(clippy::cast_precision_loss)] // of seconds
            let writes = to.writes.saturating_sub(from.writes) as f64;
            reads + writes
        });
        let (looks, waiting) =
            self.session.as_ref().map_or((0, 0), |session| session.between(from.at, to.at));
        Window { seconds: to.at.duration_since(from.at).as_secs_f64(), foreign, looks, waiting }
    }

    /// A quiet moment has ended. `afresh`: what was seen in earlier ones counts no more.
    pub(super) fn quiet(&mut self, begin: &Begin, afresh: bool) {
        if let (Some(from), Some(to)) = (begin.0.device, self.begin().0.device) {
            let (reads, bytes) =
                (to.reads.saturating_sub(from.reads), to.read_bytes.saturating_sub(from.read_bytes));
            if reads > 0 {
                #[allow(clippy::cast_precision_loss)] // of seconds
                let mean = bytes as f64 / reads as f64;
                self.foreign_read_bytes = mean;
            }
        }
        if afresh {
            self.moments.clear();
        }
        self.moments.push_back(self.since(begin, self.foreign_read_bytes));
        while self.moments.len() > MOMENTS {
            self.moments.pop_front();
        }
    }

    /// A measurement has ended.
    pub(super) fn measured(&mut self, begin: &Begin) {
        let window = self.since(begin, self.foreign_read_bytes);
        self.during.add(&window);
    }

    /// Whether live queries suffered in what was measured since the last answer that was not `Unknown`.
    pub(super) fn judge(&mut self) -> Judged {
        let mut quiet = Window::default();
        self.moments.iter().for_each(|moment| quiet.add(moment));
        let judged = judge(&quiet, &self.during);
        if judged != Judged::Unknown {
            self.during = Window::default();
        }
        judged
    }
}

/// The begin of a window.
#[derive(Debug)]
pub(super) struct Begin(Mark);

/// Sessions of the server that wait for I/O, other than the one that asks. Background processes are left out: with
/// io_method = worker those read for sessions, which wait meanwhile.
const LOOK: &str = "
    SELECT count(*) FILTER (WHERE wait_event_type OPERATOR(pg_catalog.=) 'IO')
      FROM pg_catalog.pg_stat_activity
     WHERE pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
       AND backend_type OPERATOR(pg_catalog.=) 'client backend' AND state OPERATOR(pg_catalog.=) 'active'";

/// Looks at a server's sessions, in a thread of its own.
#[derive(Debug)]
struct Session {
    seen: Arc<Mutex<Seen>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    looks: VecDeque<(Instant, u32)>,
    lost: Option<String>,
}

impl Session {
    /// Connects, and begins to look.
    fn open(info: &ConnInfo) -> Result<Session> {
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
        let session = Session { seen, over, thread: Some(thread) };
        match is_ready.recv_timeout(Duration::from_secs(30)) {
            Ok(Ok(())) => Ok(session),
            Ok(Err(error)) => Err(error),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(Error::new(Code::Connect, "the server that is to be watched does not answer")
                    .hint("Measure without a server, or when it answers."))
            }
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks in some time, and how many waited in all of them together.
    fn between(&self, from: Instant, to: Instant) -> (u32, u32) {
        let seen = self.seen();
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
async fn look(info: &ConnInfo, seen: &Mutex<Seen>, over: &AtomicBool, ready: &SyncSender<Result<()>>) {
    let opened = async {
        let connected = connect(info, "inrush tune").await?;
        match connected.client.prepare(LOOK).await {
            Ok(statement) => Ok((connected, statement)),
            Err(error) => Err(connected.failure(&error).into_error()),
        }
    };
    let (connected, statement) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    while !over.load(Relaxed) {
        let answer = connected.client.query_one(&statement, &[]).await;
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match answer.and_then(|row| row.try_get::<_, i64>(0)) {
            Ok(waiting) => {
                seen.looks.push_back((Instant::now(), u32::try_from(waiting).unwrap_or(u32::MAX)));
                // A minute's worth.
                if seen.looks.len() > 2000 {
                    seen.looks.pop_front();
                }
            }
            Err(error) => {
                seen.lost = Some(connected.failure(&error).error().fact().to_owned());
                return;
            }
        }
        drop(seen);
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(seconds: f64, foreign: f64) -> Window {
        Window { seconds, foreign: Some(foreign), ..Window::default() }
    }

    fn waits(looks: u32, waiting: u32) -> Window {
        Window { seconds: f64::from(looks) / 20.0, foreign: None, looks, waiting }
    }

    #[test]
    fn others_whose_traffic_falls_below_half_suffer() {
        let quiet = traffic(2.0, 2000.0);
        assert!(matches!(judge(&quiet, &traffic(1.0, 490.0)), Judged::Suffering(text)
            if text.contains("490") && text.contains("1000")));
        assert_eq!(judge(&quiet, &traffic(1.0, 510.0)), Judged::Well);
        // So short that hardly any was to be expected.
        assert_eq!(judge(&quiet, &traffic(0.01, 0.0)), Judged::Unknown);
        // Noise is no traffic.
        assert_eq!(judge(&traffic(2.0, 90.0), &traffic(1.0, 0.0)), Judged::Well);
        assert_eq!(judge(&Window::default(), &traffic(1.0, 0.0)), Judged::Well);
    }

    #[test]
    fn sessions_that_wait_longer_suffer() {
        assert!(matches!(judge(&waits(20, 0), &waits(10, 10)), Judged::Suffering(_)));
        assert!(matches!(judge(&waits(20, 20), &waits(10, 20)), Judged::Suffering(_)));
        // One more than before, but not twice as many; twice as many, but not one more.
        assert_eq!(judge(&waits(20, 60), &waits(10, 40)), Judged::Well);
        assert_eq!(judge(&waits(20, 10), &waits(10, 14)), Judged::Well);
        assert_eq!(judge(&waits(20, 0), &waits(3, 40)), Judged::Unknown);
        // Nothing to compare with.
        assert_eq!(judge(&waits(2, 0), &waits(10, 100)), Judged::Well);
    }

    #[test]
    fn one_signal_that_says_so_is_enough() {
        let quiet = Window { looks: 20, waiting: 0, ..traffic(1.0, 1000.0) };
        let slow = Window { looks: 10, waiting: 30, ..traffic(0.5, 600.0) };
        assert!(matches!(judge(&quiet, &slow), Judged::Suffering(text) if text.contains("3.0 sessions")));
        let starved = Window { looks: 2, waiting: 0, ..traffic(0.5, 100.0) };
        assert!(matches!(judge(&quiet, &starved), Judged::Suffering(text) if text.contains("200")));
        let unseen = Window { looks: 2, waiting: 0, ..traffic(0.5, 600.0) };
        assert_eq!(judge(&quiet, &unseen), Judged::Unknown);
    }

    #[test]
    fn windows_add_up_until_they_say_something() {
        let mut watch = Watch::new(None, None).unwrap();
        assert!(!watch.sees());
        watch.moments.push_back(waits(20, 0));
        watch.during.add(&waits(2, 6));
        assert_eq!(watch.judge(), Judged::Unknown);
        watch.during.add(&waits(2, 6));
        assert!(matches!(watch.judge(), Judged::Suffering(text) if text.contains("3.0 sessions")));
        assert_eq!(watch.during, Window::default());
    }

    #[test]
    fn counters_of_a_device_are_read() {
        let text =
            " 5364987   131187 212472634  6674757  6139012  2549273 1515591128  7657459        0  1368176\n";
        let device = parsed(text, 7).unwrap();
        assert_eq!((device.reads, device.read_bytes), (5_364_987, 212_472_634 * 512));
        assert_eq!((device.writes, device.ours), (6_139_012, 7));
        assert_eq!(parsed("1 2", 0), None);
    }
}
