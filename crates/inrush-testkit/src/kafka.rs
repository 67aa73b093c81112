use crate::{Installation, free_port, wait_for_exit};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a broker may take to start: a JVM on a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// The directory that `tests/kafka.sh` fills.
const JARS: &str = "kafka-4.3.1";

/// Sixteen bytes in Base64; each cluster has one node, so they may all be called the same.
const CLUSTER: &str = "aW5ydXNoLXRlc3Qta2Fmaw";

/// What it says when it takes connections.
const STARTED: &str = "Kafka Server started";

/// A throw-away Kafka broker that is its own controller, on ports of the loopback address. Topics are made when they are
/// first named. Dropping it kills it and removes its directory; if the test process dies instead, a guard does both.
#[derive(Debug)]
pub struct Kafka {
    jars: PathBuf,
    port: u16,
    broker: Mutex<Option<Child>>,
    /// Ends with its standard input, which is ours alone: it sees the death of this process in any form.
    guard: Child,
    // Removed by `Drop` below it: the broker is gone by then.
    dir: TempDir,
}

impl Kafka {
    /// Starts a broker whose topics have so many partitions.
    ///
    /// # Panics
    /// If there is none (see [`crate::require_kafka!`]) or it does not start; the message has its log.
    pub fn start(partitions: u32) -> Kafka {
        let jars = Kafka::jars().unwrap_or_else(|| panic!("this test {}", needs()));
        let dir = tempfile::Builder::new().prefix("inrush-kafka-").tempdir().expect("a directory");
        let guard = guard(dir.path());
        let mut kafka = Kafka { jars, port: 0, broker: Mutex::new(None), guard, dir };
        // A port that was free a moment ago may be taken by now: choose again.
        for _ in 0..5 {
            kafka.port = free_port();
            kafka.format(partitions);
            match kafka.launch() {
                Ok(child) => {
                    kafka.broker = Mutex::new(Some(child));
                    return kafka;
                }
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("Kafka does not start:\n{log}"),
            }
        }
        panic!("no free port to be had");
    }

    /// The broker that all tests of the process share, with four partitions to a topic, started by the first that asks.
    /// Use it with topics and groups of one test, and do not kill it.
    ///
    /// # Panics
    /// As [`Kafka::start`].
    pub fn shared() -> &'static Kafka {
        static SHARED: OnceLock<Kafka> = OnceLock::new();
        // Never dropped: the guard process ends it when this process ends.
        SHARED.get_or_init(|| Kafka::start(4))
    }

    /// Whether there is a broker; if not, says on standard error that the test is skipped (or panics when
    /// `INRUSH_TEST_REQUIRE_KAFKA` is set). Use it through [`crate::require_kafka!`].
    ///
    /// # Panics
    /// As said above.
    pub fn have_or_say_skipped() -> bool {
        if Kafka::jars().is_some() {
            return true;
        }
        assert!(std::env::var_os("INRUSH_TEST_REQUIRE_KAFKA").is_none(), "this test {}", needs());
        // Not eprintln!: the test runner shows captured output of failed tests only.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {}", needs());
        false
    }

    fn jars() -> Option<PathBuf> {
        let java = Command::new("java").arg("-version").stderr(Stdio::null()).stdout(Stdio::null()).status();
        let jars = Installation::servers_dir().join(JARS);
        (jars.is_dir() && java.is_ok_and(|status| status.success())).then_some(jars)
    }

    /// Where clients begin, as `bootstrap.servers` names it.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Everything it has logged so far.
    pub fn log(&self) -> String {
        let log = fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Kills it as the kernel would. What it has acknowledged is in files by then, though not on the disk.
    pub fn kill9(&self) {
        if let Some(mut child) = self.lock().take() {
            let _ = child.kill();
            wait_for_exit(&mut child);
        }
    }

    /// Stops it from doing anything, without a word to anybody: its connections stay, and nobody gets an answer.
    ///
    /// # Panics
    /// If it does not run.
    pub fn freeze(&self) {
        let broker = self.lock();
        let pid = Pid::from_child(broker.as_ref().expect("a broker that runs"));
        kill_process(pid, Signal::STOP).expect("our own child");
    }

    /// Starts it again with the same port and data, killing it first if it runs.
    ///
    /// # Panics
    /// If it does not start; the message has its log.
    pub fn restart(&self) {
        self.kill9();
        match self.launch() {
            Ok(child) => *self.lock() = Some(child),
            Err(log) => panic!("Kafka does not start again:\n{log}"),
        }
    }

    /// Writes the configuration and makes an empty data directory.
    fn format(&self, partitions: u32) {
        let (dir, port, controller) = (self.dir.path(), self.port, free_port());
        let _ = fs::remove_dir_all(dir.join("data"));
        let properties = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
             log.dirs={data}\n\
             num.partitions={partitions}\n\
             offsets.topic.num.partitions=1\n\
             offsets.topic.replication.factor=1\n\
             transaction.state.log.num.partitions=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             share.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\n\
             group.min.session.timeout.ms=500\n\
             log.retention.check.interval.ms=500\n\
             log.segment.delete.delay.ms=100\n\
             broker.heartbeat.interval.ms=200\n\
             broker.session.timeout.ms=1000\n",
            data = dir.join("data").display(),
        );
        fs::write(dir.join("server.properties"), properties).expect("to write server.properties");
        let formatted = self
            .java()
            .args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"])
            .arg(dir.join("server.properties"))
            .output()
            .expect("to run java");
        assert!(formatted.status.success(), "StorageTool: {}", String::from_utf8_lossy(&formatted.stderr));
    }

    /// Java with what both programs need: a small heap, and a start that does not wait for the better compiler.
    fn java(&self) -> Command {
        // Writes its own number before it becomes java: the guard has no moment in which it does not know.
        const SCRIPT: &str = r#"echo $$ > "$0/pid"; exec java "$@""#;
        let mut command = Command::new("sh");
        command
            .args(["-c", SCRIPT])
            .arg(self.dir.path())
            // The guard knows the process by this.
            .arg(format!("-Dinrush.test={}", self.dir.path().display()))
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"])
            .arg("-Dorg.slf4j.simpleLogger.showDateTime=true")
            .arg("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
            .arg("-cp")
            .arg(self.jars.join("*"))
            .env_remove("JAVA_TOOL_OPTIONS")
            .current_dir(self.dir.path());
        command
    }

    /// One attempt to start; the new part of the log when it fails.
    fn launch(&self) -> Result<Child, String> {
        let path = self.dir.path().join("log");
        let log = fs::File::options().create(true).append(true).open(&path).map_err(|e| e.to_string())?;
        let logged = usize::try_from(log.metadata().map_or(0, |m| m.len())).unwrap_or(0);
        let mut child = self
            .java()
            .arg("kafka.Kafka")
            .arg(self.dir.path().join("server.properties"))
            // Out of the terminal's group: Ctrl-C reaches the test, and the guard stops the broker.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|e| e.to_string())?)
            .stderr(log)
            .spawn()
            .map_err(|e| format!("sh cannot be run: {e}"))?;
        let began = Instant::now();
        loop {
            let all = self.log();
            let new = all.get(logged..).unwrap_or(&all);
            if new.contains(STARTED) {
                return Ok(child);
            }
            let ended = child.try_wait().map_err(|e| e.to_string())?.is_some();
            if ended || began.elapsed() > PATIENCE {
                if !ended {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                return Err(new.to_owned());
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        // A test that panicked while it held the lock leaves a valid state behind.
        self.broker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // Nobody needs its data any more.
        self.kill9();
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

fn needs() -> String {
    format!("needs a Kafka broker: Java, and {JARS} (run tests/kafka.sh)")
}

/// Starts the process that cleans up after this one, however it ends: it waits for the end of its standard input, whose
/// other end closes with this process. The number in the file is believed only while a process of that number has been
/// started for this directory.
fn guard(dir: &Path) -> Child {
    const SCRIPT: &str = r#"
        trap '' INT TERM HUP
        read -r _
        if read -r pid < "$1/pid" && ps -ww -o args= -p "$pid" | grep -qF -e "-Dinrush.test=$1 "; then
            kill -KILL "$pid"
        fi
        rm -rf "$1"
    "#;
    Command::new("sh")
        .args(["-c", SCRIPT, "inrush-test-guard"])
        .arg(dir)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("to run sh")
}
