//! Watches that live queries do not suffer, by two signals: what others read from and write to the device, and how many
//! of the server's sessions wait for I/O. Each is compared with the quiet moments between the measurements.

use super::budget::counted;
use super::sessions::Session;
use inrush_core::Result;
use inrush_sink::conninfo::ConnInfo;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Instant;

/// Foreign reads and writes a second that are traffic; fewer are noise.
const TRAFFIC: f64 = 50.0;
/// Foreign reads and writes to be expected before their absence says something.
const EXPECTED: f64 = 20.0;
/// Looks at the server's sessions before their mean says something.
const LOOKS: u32 = 4;
/// How many quiet moments count together.
const MOMENTS: usize = 8;

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
    /// Traffic that flowed before was missed. Others suffer if it comes back when nothing is measured; else it has ended
    /// by itself.
    Missed {
        /// Reads and writes a second before.
        before: f64,
        /// With figures, for people.
        text: String,
    },
}

/// Compares what others did during measurements with what they do in quiet moments.
pub(super) fn judge(quiet: &Window, during: &Window) -> Judged {
    let (mut unknown, mut missed) = (false, None);
    if let (Some(before), Some(now)) = (quiet.rate(), during.rate())
        && before > TRAFFIC
    {
        if before * during.seconds < EXPECTED {
            unknown = true;
        } else if now < before / 2.0 {
            let text = format!(
                "others got {now:.0} reads and writes a second through, where they had {before:.0} before"
            );
            missed = Some(Judged::Missed { before, text });
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
    missed.unwrap_or(if unknown { Judged::Unknown } else { Judged::Well })
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

    /// Of a file with counters of a device.
    #[cfg(test)]
    pub(super) fn of_counters(stat: PathBuf) -> Watch {
        Watch { stat: Some(stat), ..Watch::of_windows(&[], Window::default()) }
    }

    /// Of what was seen elsewhere.
    #[cfg(test)]
    pub(super) fn of_windows(quiet: &[Window], during: Window) -> Watch {
        let moments = quiet.iter().copied().collect();
        Watch { stat: None, session: None, moments, during, foreign_read_bytes: 8192.0 }
    }

    /// Whether there is anything to watch.
    pub(super) fn sees(&self) -> bool {
        self.stat.is_some() || self.session.is_some()
    }

    /// What is watched, and what cannot be, in words.
    pub(super) fn words(&self) -> String {
        let device = match self.stat {
            Some(_) => "what others read from and write to the device",
            None => "not the device, which does not count what it does",
        };
        let sessions = match &self.session {
            None => "no server's sessions, for none was named",
            Some(session) if session.all => "the server's sessions that wait for I/O",
            Some(_) => {
                "of the server's sessions only those of this role (a member of pg_read_all_stats sees all)"
            }
        };
        format!("watched: {device}; {sessions}")
    }

    /// Seconds between two quiet moments: fewer where a server is watched, which may begin to work at any time.
    pub(super) fn interval(&self) -> f64 {
        if self.session.is_some() { 2.5 } else { 5.0 }
    }

    /// Why the server can no longer be watched.
    pub(super) fn lost(&self) -> Option<String> {
        self.session.as_ref().and_then(Session::lost)
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

    /// Something was written. The device's counters do not tell whose writes they are of, so they say nothing.
    pub(super) fn wrote(&mut self, begin: &Begin) {
        let window = self.since(begin, self.foreign_read_bytes);
        self.during.add(&Window { foreign: None, ..window });
    }

    /// Whether live queries suffered in what was measured since the last answer that was not `Unknown`.
    pub(super) fn judge(&mut self) -> Judged {
        let mut quiet = Window::default();
        self.moments.iter().for_each(|moment| quiet.add(moment));
        quiet.foreign = self.calmest().map(|rate| rate * quiet.seconds);
        let judged = judge(&quiet, &self.during);
        if judged != Judged::Unknown {
            self.during = Window::default();
        }
        judged
    }

    /// Foreign reads and writes a second in the calmest quiet moment. Traffic in bursts (write-back, a build) pauses by
    /// itself: only what flowed then, too, is missed.
    fn calmest(&self) -> Option<f64> {
        self.moments.iter().filter_map(Window::rate).min_by(f64::total_cmp)
    }

    /// Whether what was missed has ended by itself: it does not flow in the quiet moments either, which began afresh
    /// after it was missed, or not half of it.
    pub(super) fn ended_by_itself(&self, judged: &Judged) -> bool {
        match judged {
            Judged::Missed { before, .. } => self.calmest().is_none_or(|rate| rate < before / 2.0),
            Judged::Well | Judged::Unknown | Judged::Suffering(_) => false,
        }
    }
}

/// The begin of a window.
#[derive(Debug)]
pub(super) struct Begin(Mark);

#[cfg(test)]
mod tests {
    use super::*;
    use inrush_core::Code;
    use inrush_testkit::{Postgres, ServerOptions, StopMode, require_server};
    use rustix::process::{Pid, Signal};
    use std::process::Stdio;
    use std::time::Duration;

    fn traffic(seconds: f64, foreign: f64) -> Window {
        Window { seconds, foreign: Some(foreign), ..Window::default() }
    }

    fn waits(looks: u32, waiting: u32) -> Window {
        Window { seconds: f64::from(looks) / 20.0, foreign: None, looks, waiting }
    }

    #[test]
    fn others_whose_traffic_falls_below_half_suffer() {
        let quiet = traffic(2.0, 2000.0);
        assert!(matches!(judge(&quiet, &traffic(1.0, 490.0)), Judged::Missed { before: 1000.0, text }
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
        assert!(matches!(judge(&quiet, &starved), Judged::Missed { text, .. } if text.contains("200")));
        // Sessions that wait need no confirmation, whatever the traffic says.
        let both = Window { looks: 10, waiting: 30, ..traffic(0.5, 0.0) };
        assert!(matches!(judge(&quiet, &both), Judged::Suffering(text) if text.contains("3.0 sessions")));
        let unseen = Window { looks: 2, waiting: 0, ..traffic(0.5, 600.0) };
        assert_eq!(judge(&quiet, &unseen), Judged::Unknown);
    }

    #[test]
    fn traffic_that_pauses_by_itself_is_not_missed() {
        let steady = [traffic(0.25, 250.0), traffic(0.25, 260.0), traffic(0.25, 240.0)];
        let during = traffic(0.5, 100.0);
        assert!(matches!(Watch::of_windows(&steady, during).judge(), Judged::Missed { .. }));
        let bursts = [traffic(0.25, 5000.0), traffic(0.25, 60.0), traffic(0.25, 3000.0)];
        assert_eq!(Watch::of_windows(&bursts, traffic(0.5, 100.0)).judge(), Judged::Well);
    }

    #[test]
    fn traffic_that_is_missed_must_come_back_for_others_to_suffer() {
        let judged = judge(&traffic(1.0, 160.0), &traffic(0.5, 0.0));
        assert!(
            matches!(&judged, Judged::Missed { text, .. } if text.contains("had 160 before")),
            "{judged:?}"
        );
        let ended = |quiet: &[Window]| Watch::of_windows(quiet, Window::default()).ended_by_itself(&judged);
        assert!(!ended(&[traffic(0.25, 40.0), traffic(0.25, 21.0)]));
        assert!(ended(&[traffic(0.25, 0.0), traffic(0.25, 0.0)]));
        // Another burst is not what flowed all the time.
        assert!(ended(&[traffic(0.25, 400.0), traffic(0.25, 5.0)]));
        // Sessions that wait are no traffic.
        let waiting = judge(&waits(20, 0), &waits(10, 10));
        assert!(!Watch::of_windows(&[traffic(0.25, 0.0)], Window::default()).ended_by_itself(&waiting));
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

    fn info(dsn: &str) -> ConnInfo {
        inrush_sink::conninfo::resolve(Some(dsn), &|_| None).expect("settings").expect("a server")
    }

    fn signal(pid: &str, signal: Signal) {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// A session of the server that reads, and is stopped in the middle of a read: the server says that it waits for I/O
    /// until it may go on.
    fn stopped_in_a_read(server: &Postgres, pid: &str) {
        let waits = format!(
            "SELECT wait_event_type, state, wait_event, query FROM pg_stat_activity WHERE pid = {pid}"
        );
        let mut seen = String::new();
        for attempt in 0..2000 {
            signal(pid, Signal::STOP);
            seen = server.psql(&waits);
            if seen.starts_with("IO|") {
                return;
            }
            signal(pid, Signal::CONT);
            // Longer now and then: where others have the processors it may not have gone on by then.
            std::thread::sleep(Duration::from_millis(1 + attempt % 20));
        }
        panic!("session {pid} was never seen to read: {seen}");
    }

    fn sessions_are_seen(version: u32) {
        require_server!(version);
        let server = Postgres::start(&ServerOptions {
            version: version.into(),
            conf: &[("shared_buffers", "1MB"), ("max_parallel_workers_per_gather", "0")],
            ..ServerOptions::default()
        });
        // A table for each: whoever wants the page that a stopped session reads waits for that session.
        for table in ["t0", "t1"] {
            let rows = "SELECT i, repeat('x', 500) AS pad FROM generate_series(1, 100000) i";
            server.psql(&format!("CREATE TABLE {table} AS {rows}"));
        }
        // What the owner of a database puts before pg_catalog is not called.
        server.psql(
            "CREATE SCHEMA evil;
             CREATE AGGREGATE evil.count(*) (SFUNC = pg_catalog.int8inc, STYPE = bigint, INITCOND = '1000');
             ALTER DATABASE postgres SET search_path = evil, pg_catalog, public",
        );
        let mut watch = Watch::new(None, Some(&info(&server.url()))).unwrap();
        assert!(watch.sees());
        let begin = watch.begin();
        std::thread::sleep(Duration::from_millis(500));
        watch.quiet(&begin, false);
        assert_eq!(watch.moments[0].waiting, 0);
        assert!(watch.moments[0].looks >= LOOKS, "{:?}", watch.moments);

        // Hardly anything of the tables is in shared buffers.
        let mut clients: Vec<std::process::Child> = (0..2)
            .map(|number| {
                let sql = format!(
                    "SET application_name = 'reader'; DO $$ DECLARE n int; BEGIN LOOP
                       SELECT pg_catalog.count(*) INTO n FROM public.t{number}; END LOOP; END $$"
                );
                server
                    .psql_command("postgres")
                    .args(["-q", "-c", &sql])
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut pids = Vec::new();
        while pids.len() < 2 {
            let list =
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'reader' AND query LIKE 'SET%'";
            pids = server.psql(list).lines().map(str::to_owned).collect();
        }
        pids.iter().for_each(|pid| stopped_in_a_read(&server, pid));
        let begin = watch.begin();
        std::thread::sleep(Duration::from_millis(500));
        watch.measured(&begin);
        let judged = watch.judge();
        pids.iter().for_each(|pid| signal(pid, Signal::CONT));
        server
            .psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'reader'");
        clients.iter_mut().for_each(|client| drop(client.wait()));
        assert!(matches!(&judged, Judged::Suffering(text) if text.contains("2.0 sessions")), "{judged:?}");

        // A server that goes is noticed.
        assert_eq!(watch.lost(), None);
        server.stop(StopMode::Fast);
        let began = Instant::now();
        while watch.lost().is_none() {
            assert!(began.elapsed() < Duration::from_secs(30), "the loss of the server was not noticed");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn sessions_of_15_that_wait_are_seen() {
        sessions_are_seen(15);
    }

    #[test]
    fn sessions_of_18_that_wait_are_seen() {
        sessions_are_seen(18);
    }

    #[test]
    fn what_a_role_cannot_see_is_said() {
        require_server!(16);
        let server = Postgres::start(&ServerOptions { version: 16.into(), ..ServerOptions::default() });
        server.psql("CREATE ROLE plain LOGIN; CREATE ROLE monitor LOGIN; GRANT pg_monitor TO monitor");
        let words = |role: &str| {
            let url = server.url().replace("postgres@", &format!("{role}@"));
            Watch::new(None, Some(&info(&url))).unwrap().words()
        };
        assert!(words("plain").contains("only those of this role"), "{}", words("plain"));
        assert!(words("monitor").ends_with("sessions that wait for I/O"), "{}", words("monitor"));
        assert!(Watch::new(None, None).unwrap().words().contains("none was named"));
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error() {
        let error = Watch::new(None, Some(&info("postgresql://postgres@127.0.0.1:1/x"))).unwrap_err();
        assert_eq!(error.code(), Code::Connect);
    }
}
