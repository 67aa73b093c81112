use crate::account::{Account, cannot};
use crate::find::Server;
use crate::local::StopMode;
use crate::paths::{PORT, Paths};
use inrush_core::{Code, Error, Result};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Crash recovery may take long, and the server is alive while it does.
const START_PATIENCE: Duration = Duration::from_secs(600);
/// How long the processes of a killed server may take to notice that it is gone.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(30);
/// `pg_ctl stop` waits as long.
const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// A log larger than this is put aside at the next start.
const LOG_MAX: u64 = 16 << 20;
const POLL: Duration = Duration::from_millis(20);

/// A postmaster that runs on our data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Postmaster {
    pub(crate) pid: Pid,
    /// It takes connections.
    pub(crate) ready: bool,
}

/// The postmaster that runs on our data directory, if one does.
///
/// postmaster.pid alone does not say so: after a crash it stays, and after a reboot its number may belong to
/// any process. So that process must have our data directory on its command line.
pub(crate) fn running(paths: &Paths) -> Option<Postmaster> {
    let text = fs::read_to_string(paths.data.join("postmaster.pid")).ok()?;
    let mut lines = text.lines();
    let pid = Pid::from_raw(lines.next()?.trim().parse().ok()?)?;
    // Line 8 is the state (pidfile.h, LOCK_FILE_LINE_PM_STATUS); it is not there yet when it has just started.
    let ready = lines.nth(6).is_some_and(|state| state.trim() == "ready");
    test_kill_process(pid).ok()?;
    let arguments = command_line(pid)?;
    let data = paths.data.as_os_str().as_bytes();
    arguments.windows(data.len()).any(|part| part == data).then_some(Postmaster { pid, ready })
}

/// The directory of the programs that the server runs from, or ran from last: postmaster.opts has its command
/// line (postmaster.c, `CreateOptsFile`).
pub(crate) fn last_bin(paths: &Paths) -> Option<std::path::PathBuf> {
    let text = fs::read_to_string(paths.data.join("postmaster.opts")).ok()?;
    Some(Path::new(text.split(" \"").next()?).parent()?.to_owned())
}

/// Starts the server and waits until it takes connections. The caller holds the lock, and no server runs.
pub(crate) fn start(paths: &Paths, server: &Server, account: &Account) -> Result<()> {
    remove_stale_socket(paths)?;
    let began = Instant::now();
    loop {
        match launch(paths, server, account)? {
            Ok(()) => return Ok(()),
            // Processes of a killed server still hold its shared memory (sysv_shmem.c).
            Err(log) if log.contains("shared memory block") && began.elapsed() < ORPHAN_PATIENCE => {
                sleep(POLL * 10);
            }
            Err(log) => {
                let reason =
                    log.lines().find_map(|line| line.split_once("FATAL:")).map_or("", |(_, reason)| reason);
                let reason = if reason.is_empty() { "no reason given" } else { reason.trim() };
                return Err(Error::new(Code::Local, format!("the embedded server does not start: {reason}"))
                    .hint(format!("More is in {}.", paths.server_log().display())));
            }
        }
    }
}

/// Asks the server to stop and waits until it has.
pub(crate) fn stop(paths: &Paths, postmaster: Postmaster, mode: StopMode) -> Result<()> {
    let signal = match mode {
        StopMode::Smart => Signal::TERM,
        StopMode::Fast => Signal::INT,
        StopMode::Immediate => Signal::QUIT,
    };
    let stays = |why: String| {
        let fact = format!("the embedded server (process {}) {why}", postmaster.pid.as_raw_nonzero());
        Error::new(Code::Local, fact).hint("Try `inrush local stop --mode immediate`.")
    };
    kill_process(postmaster.pid, signal).map_err(|error| stays(format!("cannot be stopped: {error}")))?;
    let began = Instant::now();
    while running(paths).is_some_and(|now| now.pid == postmaster.pid) {
        if began.elapsed() > STOP_PATIENCE {
            return Err(stays(format!("has not stopped after {} seconds", STOP_PATIENCE.as_secs())));
        }
        sleep(POLL);
    }
    Ok(())
}

/// One attempt. The inner error is what the server logged before it gave up.
fn launch(paths: &Paths, server: &Server, account: &Account) -> Result<Result<(), String>> {
    let log_path = paths.server_log();
    if fs::metadata(&log_path).is_ok_and(|found| found.len() > LOG_MAX) {
        let _ = fs::rename(&log_path, paths.log_dir.join("server.log.old"));
    }
    let log = fs::File::options().create(true).append(true).open(&log_path);
    let log = log.map_err(|error| cannot("write", &log_path, &error))?;
    let logged = log.metadata().map_or(0, |found| found.len());
    let stdout = log.try_clone().map_err(|error| cannot("write", &log_path, &error))?;
    let mut command = account.command(&server.bin.join("postgres"));
    if let Some(pid) = stale_pid(paths) {
        // The one number besides its own and its parent's that the server does not take for another
        // postmaster (miscinit.c, `CreateLockFile`); pg_ctl names the shell that runs it so.
        command.env("PG_GRANDPARENT_PID", pid);
    }
    let mut child = command
        .arg("-D")
        .arg(&paths.data)
        .arg(setting("config_file", &paths.conf))
        .arg(setting("unix_socket_directories", &paths.socket_dir))
        .args(["--listen_addresses=", &format!("--port={PORT}")])
        // Out of the terminal's group: Ctrl-C is for Inrush alone.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(log)
        .spawn()
        .map_err(|error| cannot("run", &server.bin.join("postgres"), &error))?;
    let began = Instant::now();
    let pid = Pid::from_child(&child);
    while running(paths) != Some(Postmaster { pid, ready: true }) {
        if has_ended(&mut child) {
            return Ok(Err(text_from(&log_path, logged)));
        }
        if began.elapsed() > START_PATIENCE {
            let fact = format!("the embedded server is not ready after {} seconds", START_PATIENCE.as_secs());
            let hint = format!("It goes on starting; {} says what it does.", log_path.display());
            return Err(Error::new(Code::Local, fact).hint(hint));
        }
        sleep(POLL);
    }
    Ok(Ok(()))
}

/// `--name=value`. A value that is a list, as unix_socket_directories is, takes one with commas or quotes as
/// a quoted identifier (varlena.c, `SplitDirectoriesString`).
fn setting(name: &str, path: &Path) -> std::ffi::OsString {
    let value = path.to_string_lossy();
    let plain = name == "config_file" || !value.contains([',', '"', ' ']);
    let value = if plain { value.into_owned() } else { format!("\"{}\"", value.replace('"', "\"\"")) };
    format!("--{name}={value}").into()
}

/// Removes the socket and its lock file, which a server that was killed leaves behind: the number in it may
/// be some living process's by now, and then the server would not start. None runs on this directory, as the
/// caller knows. postmaster.pid stays: by the shared memory named in it the server sees processes that
/// outlived a killed postmaster.
fn remove_stale_socket(paths: &Paths) -> Result<()> {
    let socket = paths.socket_dir.join(format!(".s.PGSQL.{PORT}"));
    for path in [socket.with_extension(format!("{PORT}.lock")), socket] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(cannot("remove", &path, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The number in a postmaster.pid that no server of ours belongs to.
fn stale_pid(paths: &Paths) -> Option<String> {
    let text = fs::read_to_string(paths.data.join("postmaster.pid")).ok()?;
    Some(text.lines().next()?.trim().to_owned()).filter(|pid| pid.parse::<u32>().is_ok())
}

fn has_ended(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}

/// The file from `offset` on, at most 64 KiB.
fn text_from(path: &Path, offset: u64) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = fs::File::open(path) {
        let _ = file.seek(SeekFrom::Start(offset));
        let _ = file.take(64 << 10).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The command line of a process, from /proc or ps; `None` when there is none, as for one that has ended and
/// only waits to be collected.
fn command_line(pid: Pid) -> Option<Vec<u8>> {
    let pid = pid.as_raw_nonzero();
    let bytes = if Path::new("/proc/self/cmdline").exists() {
        fs::read(format!("/proc/{pid}/cmdline")).ok()?
    } else {
        Command::new("ps").args(["-ww", "-o", "args=", "-p", &pid.to_string()]).output().ok()?.stdout
    };
    Some(bytes).filter(|bytes| !bytes.is_empty())
}
