//! What the black-box tests of `inrush` share: the command run with a time limit, and random numbers with a
//! seed that is printed and can be given.

#![allow(dead_code)] // each test binary uses its part

use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The program under test.
pub const INRUSH: &str = env!("CARGO_BIN_EXE_inrush");

/// `inrush` in a directory, without any variable of the developer that says which server to use.
pub fn inrush(dir: &Path) -> Command {
    let mut command = Command::new(INRUSH);
    without_server_variables(&mut command);
    command.current_dir(dir);
    command
}

/// Keeps the developer's servers out of a test.
pub fn without_server_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("PG") || name == "DATABASE_URL" {
            command.env_remove(name.as_ref());
        }
    }
}

/// What a command left behind.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    /// Ends the test with what the command said unless it ended with this code.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Outcome {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Whether the program crashed instead of giving an error.
    pub fn panicked(&self) -> bool {
        self.stderr.contains("panicked at") || self.stderr.contains("[internal]") || self.code == Some(101)
    }
}

/// A command that runs in a process group of its own, so that it can be ended with everything it started.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: std::thread::JoinHandle<Vec<u8>>,
    stderr: std::thread::JoinHandle<Vec<u8>>,
}

impl Running {
    /// Starts `command`; `stdin` is written to its standard input by a thread.
    pub fn start(command: &mut Command, stdin: Option<Vec<u8>>) -> Running {
        let mut child = command
            .process_group(0)
            .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("to start the command");
        if let (Some(bytes), Some(mut pipe)) = (stdin, child.stdin.take()) {
            // It may end before it has read everything.
            std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        Running { child, stdout, stderr }
    }

    /// Waits for its end until `deadline`; `None` if it still runs.
    pub fn wait_until(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait().expect("to wait for our own child") {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a signal to the command alone.
    pub fn signal(&self, signal: Signal) {
        // It has not been waited for, or it has and then its number is not used: `Child` keeps it.
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
    }

    /// Ends it and everything it started with SIGKILL, if it still runs.
    pub fn kill9(mut self) -> Outcome {
        if self.child.try_wait().expect("to wait for our own child").is_none() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        self.finish()
    }

    /// What it left behind; it has to be at its end or about to end.
    pub fn finish(mut self) -> Outcome {
        let status = self.child.wait().expect("to wait for our own child");
        let text = |reader: std::thread::JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&reader.join().expect("a reader of output")).into_owned()
        };
        Outcome {
            code: status.code(),
            signal: status.signal(),
            stdout: text(self.stdout),
            stderr: text(self.stderr),
        }
    }
}

/// Runs `command` to its end.
///
/// # Panics
/// If it takes longer than `limit`: a hang is a failure.
#[track_caller]
pub fn run(command: &mut Command, stdin: Option<Vec<u8>>, limit: Duration) -> Outcome {
    let shown = format!("{command:?}");
    let mut running = Running::start(command, stdin);
    if running.wait_until(Instant::now() + limit).is_none() {
        let outcome = running.kill9();
        panic!("still running after {limit:?}: {shown}\n{outcome:#?}");
    }
    running.finish()
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Numbers from a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Numbers from `INRUSH_SEED`, else from the clock; the seed is printed, so that a failure can be had again.
    pub fn from_environment(test: &str) -> Random {
        let seed = match std::env::var("INRUSH_SEED") {
            Ok(text) => text.parse().expect("INRUSH_SEED is a number"),
            Err(_) => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_nanos() as u64 % 1_000_000_007),
        };
        // Not eprintln!: the test runner shows captured output of failed tests only.
        let _ = writeln!(std::io::stderr(), "{test}: INRUSH_SEED={seed}");
        Random(seed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
