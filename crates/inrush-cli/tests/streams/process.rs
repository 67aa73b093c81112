//! The process under test.

use crate::harness::without_server_variables;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take that has to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A port that nobody listens on now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// `inrush serve` with a configuration.
pub struct Serve {
    child: Child,
    log: PathBuf,
    stopped: bool,
}

impl Serve {
    /// Starts it; what it says goes to a file that later ones append to.
    pub fn start(dir: &Path, config: &str) -> Serve {
        Serve::start_named(dir, "serve", config)
    }

    pub fn start_named(dir: &Path, name: &str, config: &str) -> Serve {
        Serve::with_input(dir, name, config, Stdio::null())
    }

    pub fn with_input(dir: &Path, name: &str, config: &str, stdin: Stdio) -> Serve {
        let path = dir.join(format!("{name}.toml"));
        std::fs::write(&path, config).expect("to write a configuration");
        let log = dir.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).expect("a log");
        let mut command = Command::new(crate::harness::INRUSH);
        without_server_variables(&mut command);
        let child = command
            .arg("serve")
            .arg(&path)
            .current_dir(dir)
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("to start the command");
        Serve { child, log, stopped: false }
    }

    /// Its standard input.
    pub fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("a pipe")
    }

    /// Waits until it listens.
    pub fn wait_for(&mut self, port: u16) {
        let deadline = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(self.child.try_wait().expect("our child").is_none(), "it ended: {}", self.log());
            assert!(Instant::now() < deadline, "it does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it has said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        // It has not been waited for: the number is its own.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    pub fn kill9(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.stopped = true;
    }

    /// The most memory it has had, in bytes (proc(5), VmHWM).
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("our child");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
    }

    /// Asks it to stop, and gives its exit code.
    pub fn stop(mut self) -> i32 {
        self.signal(Signal::TERM);
        let code = self.wait();
        if code != 0 {
            // Whoever expected something else finds the reason in the output.
            eprintln!("stopped with {code}: {}", self.log());
        }
        code
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                self.stopped = true;
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "it does not stop: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if !self.stopped {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// Waits until something is so.
#[track_caller]
pub fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < deadline, "does not happen: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
