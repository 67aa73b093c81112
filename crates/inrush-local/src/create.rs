use crate::account::{Account, cannot};
use crate::find::Server;
use crate::paths::Paths;
use inrush_core::{Code, Error, Result, quote_ident};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The database that loads go to.
pub(crate) const DATABASE: &str = "inrush";

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Creates the data directory, with the superuser role of the user's own name and the database. It gets its
/// name when it is complete: what a kill leaves half made is removed by the next attempt.
pub(crate) fn create(paths: &Paths, server: &Server, account: &Account) -> Result<()> {
    let fresh = paths.root.join("data.new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).map_err(|error| cannot("remove", &fresh, &error))?;
    }
    account.private_dir(&fresh)?;
    // By code point in UTF-8: fast, and the same on every machine. 17 has it built in (initdb.c); before, it is
    // the C library's, which may lack it.
    let builtin: &[&str] = &["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"];
    let mut locales: Vec<&[&str]> = vec![&["--locale=C.UTF-8"], &["--locale=C"]];
    if server.major >= 17 {
        locales.insert(0, builtin);
    }
    let mut result = Err(Error::new(Code::Internal, "no locale to try"));
    for locale in locales {
        let mut initdb = account.command(&server.bin.join("initdb"));
        initdb.arg("-D").arg(&fresh).args(["-U", account.role(), "-A", "trust", "-E", "UTF8"]);
        initdb.args(["--data-checksums", "--no-instructions"]).args(locale);
        result = run(&mut initdb, "");
        if result.is_ok() {
            break;
        }
    }
    result?;
    // The server in its single-user mode, as initdb uses it: no client is needed. It reads a statement a line.
    let mut single = account.command(&server.bin.join("postgres"));
    single.args(["--single", "-c", "exit_on_error=on", "-D"]).arg(&fresh).arg("template1");
    run(&mut single, &format!("CREATE DATABASE {}\n", quote_ident(DATABASE)))?;
    write_conf(paths)?;
    fs::rename(&fresh, &paths.data).map_err(|error| cannot("create", &paths.data, &error))
}

/// Writes local.conf, unless it is there.
pub(crate) fn write_conf(paths: &Paths) -> Result<()> {
    if paths.conf.exists() {
        return Ok(());
    }
    let text = conf(memory(), free_space(&paths.root));
    let partial = paths.conf.with_extension("conf.new");
    fs::write(&partial, text)
        // The account the server runs as reads it; the directory keeps others out where it is the user's own.
        .and_then(|()| fs::set_permissions(&partial, fs::Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(&partial, &paths.conf))
        .map_err(|error| cannot("write", &paths.conf, &error))
}

/// Settings for a server that loads, on a machine it shares with other work. It stays durable: fsync,
/// full_page_writes and synchronous_commit are left on, wal_level at its default.
fn conf(memory: u64, free_space: u64) -> String {
    let shared_buffers = (memory / 4).clamp(128 * MIB, 2 * GIB) / MIB;
    let maintenance = (memory / 16).clamp(64 * MIB, GIB) / MIB;
    let cache = (memory / 2).max(256 * MIB) / MIB;
    // Full-page images after each checkpoint are most of the WAL of a load, so: few of them. But the WAL may
    // fill a tenth of the free space at most.
    let max_wal = (free_space / 10).clamp(GIB, 16 * GIB) / MIB;
    format!(
        "\
# Settings of Inrush's embedded server, sized for this machine when the server was created.
# Edit them here (then: inrush local stop); ALTER SYSTEM wins over this file.
# Where it listens is not up to this file: the Unix socket only.
include = 'data/postgresql.conf'

shared_buffers = {shared_buffers}MB
effective_cache_size = {cache}MB
maintenance_work_mem = {maintenance}MB
wal_buffers = 64MB
max_wal_size = {max_wal}MB
checkpoint_timeout = 15min
checkpoint_completion_target = 0.9
log_line_prefix = '%m [%p] %q%u@%d '
log_checkpoints = on
"
    )
}

/// Bytes of memory: the machine's, or the control group's when that is less; 4 GiB where neither is told.
fn memory() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let kilobytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(kilobytes.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    });
    let machine = machine.or_else(|| {
        let output = Command::new("sysctl").args(["-n", "hw.memsize"]).output().ok()?;
        std::str::from_utf8(&output.stdout).ok()?.trim().parse().ok()
    });
    let group =
        fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    machine.unwrap_or(4 * GIB).min(group.unwrap_or(u64::MAX))
}

fn free_space(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}

/// Runs a program to its end with `input` on its standard input; what it complained about, if it failed.
fn run(command: &mut Command, input: &str) -> Result<()> {
    let name = Path::new(command.get_program()).to_owned();
    let failed = |error: std::io::Error| cannot("run", &name, &error);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may end without reading; its exit code says more than a broken pipe.
        let _ = stdin.write_all(input.as_bytes());
    }
    let Output { status, stderr, .. } = child.wait_with_output().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&stderr);
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let reason = lines()
        .find(|line| line.contains("error:") || line.contains("FATAL:"))
        .or_else(|| lines().next_back());
    Err(Error::new(
        Code::Local,
        format!("{} failed: {}", name.display(), reason.unwrap_or("no reason given")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_machine_within_bounds() {
        let small = conf(512 * MIB, 2 * GIB);
        assert!(
            small.contains("shared_buffers = 128MB") && small.contains("max_wal_size = 1024MB"),
            "{small}"
        );
        let large = conf(256 * GIB, 4096 * GIB);
        assert!(
            large.contains("shared_buffers = 2048MB") && large.contains("max_wal_size = 16384MB"),
            "{large}"
        );
        assert!(memory() > 64 * MIB);
        assert!(free_space(Path::new("/")) > 0);
    }

    #[test]
    fn a_program_that_fails_says_why() {
        let error =
            run(Command::new("sh").args(["-c", "echo noise; echo 'x: error: no room' >&2; exit 1"]), "");
        assert_eq!(error.unwrap_err().fact(), "sh failed: x: error: no room");
    }
}
