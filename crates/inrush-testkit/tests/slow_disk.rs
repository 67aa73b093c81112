//! Slow storage is as slow as it says, and bears a server. Needs root.

#![cfg(target_os = "linux")]

use inrush_testkit::slow_disk::{IopsCap, LatencyLayer, NAME, clean_up};
use inrush_testkit::{Postgres, ServerOptions, ServerUser, require_server};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_millis(20);
const PAGE: usize = 8192;

/// Says so past the capture of the test runner.
fn skipped() -> bool {
    if rustix::process::geteuid().is_root() {
        return false;
    }
    let _ = writeln!(std::io::stderr(), "SKIPPED: mounting needs root");
    true
}

/// A directory with two more, `backing` and `at`, of the server's account.
fn directories() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("inrush-test-").tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["backing", "at"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        ServerUser::get().own(&dir.path().join(name)).unwrap();
    }
    dir
}

fn layer(dir: &tempfile::TempDir) -> LatencyLayer {
    LatencyLayer::mount(&dir.path().join("backing"), &dir.path().join("at"), DELAY).unwrap()
}

fn mounted(at: &Path) -> bool {
    let at = at.canonicalize().unwrap_or(at.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

#[test]
fn each_read_waits_and_many_wait_at_once() {
    if skipped() {
        return;
    }
    let dir = directories();
    fs::write(dir.path().join("backing/f"), vec![7; 64 * 32 * PAGE]).unwrap();
    let layer = layer(&dir);
    let file = File::open(layer.at().join("f")).unwrap();
    let advice = rustix::fs::Advice::Random;
    rustix::fs::fadvise(&file, 0, None, advice).unwrap();
    let mut page = [0; PAGE];
    let began = Instant::now();
    for n in 0..10 {
        file.read_exact_at(&mut page, n * 32 * PAGE as u64).unwrap();
        assert_eq!(page, [7; PAGE]);
    }
    assert!(began.elapsed() >= 10 * DELAY, "{:?}", began.elapsed());
    let reads = layer.reads();
    assert!(reads.count >= 10, "{reads:?}");

    // What waits does not make others wait: 48 of them in turn would be 960 ms.
    let began = Instant::now();
    let file = &file;
    thread::scope(|scope| {
        for n in 12..60 {
            scope.spawn(move || file.read_exact_at(&mut [0; PAGE], n * 32 * PAGE as u64).unwrap());
        }
    });
    assert!(began.elapsed() >= DELAY && began.elapsed() < 24 * DELAY, "{:?}", began.elapsed());
    // What is in the page cache costs nothing.
    let reads = layer.reads();
    file.read_exact_at(&mut page, 0).unwrap();
    assert_eq!(layer.reads(), reads);
    let at = layer.at().to_owned();
    drop(layer);
    // The open file keeps the layer, but nobody finds it any more.
    assert!(!mounted(&at) && fs::read_dir(&at).unwrap().next().is_none());
}

#[test]
fn names_rights_and_sizes_are_those_of_the_backing_directory() {
    if skipped() {
        return;
    }
    let dir = directories();
    let layer = layer(&dir);
    let at = layer.at();
    let backing = dir.path().join("backing");
    let file = File::create(at.join("a")).unwrap();
    file.write_all_at(b"0123456789", 5).unwrap();
    fs::rename(at.join("a"), at.join("b")).unwrap();
    fs::hard_link(at.join("b"), at.join("c")).unwrap();
    fs::remove_file(at.join("b")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(backing.join("c")).unwrap(), b"x\0\0\0\x000123456789");
    fs::remove_file(at.join("c")).unwrap();
    // Gone, and still open.
    file.set_len(3).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 3);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 1 << 20);
    fs::create_dir(at.join("d")).unwrap();
    fs::set_permissions(at.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    ServerUser::get().own(&at.join("d")).unwrap();
    std::os::unix::fs::symlink("d/of", at.join("link")).unwrap();
    assert_eq!(fs::read_link(at.join("link")).unwrap(), Path::new("d/of"));
    for n in 0..300 {
        fs::write(at.join(format!("d/{n}")), "").unwrap();
    }
    assert_eq!(fs::read_dir(at.join("d")).unwrap().count(), 300);
    let owned = fs::metadata(backing.join("d")).unwrap();
    assert_eq!(owned.mode() & 0o7777, 0o700);
    // Somebody else's is not to be read.
    let mut cat = Command::new("setpriv");
    cat.args(["--reuid=12345", "--regid=12345", "--clear-groups", "ls"]).arg(at.join("d"));
    assert!(!cat.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    fs::remove_dir_all(at.join("d")).unwrap();
    assert!(!backing.join("d").exists());
}

#[test]
fn a_server_has_a_tablespace_there() {
    require_server!(15);
    if skipped() {
        return;
    }
    let dir = directories();
    let layer = layer(&dir);
    let server = Postgres::start(&ServerOptions { version: 15.into(), ..ServerOptions::default() });
    server.psql(&format!("CREATE TABLESPACE slow LOCATION '{}'", layer.at().display()));
    server.psql(
        "CREATE TABLE t TABLESPACE slow AS SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i; \
         CREATE INDEX i ON t (i) TABLESPACE slow; VACUUM t; CHECKPOINT",
    );
    server.restart();
    assert_eq!(server.psql("SELECT count(*) FROM t WHERE repeat ~ 'x'"), "20000");
    server.psql("TRUNCATE t; DROP TABLE t; DROP TABLESPACE slow");
}

#[test]
fn a_disk_with_a_limit_is_slow_for_its_group() {
    if skipped() {
        return;
    }
    let dir = directories();
    let (at, iops) = (dir.path().join("at"), 100);
    let cap = match IopsCap::mount(&at, 64 << 20, iops) {
        Ok(cap) => cap,
        // A container may have neither.
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: no disk with a limit: {e}");
            return;
        }
    };
    let file = at.join("f");
    fs::write(&file, vec![7; 300 * PAGE]).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    let (name, number) = cap.device().unwrap();
    assert_eq!(fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap().trim(), number);
    // Past the page cache, page by page, by a process that waits for a line until it is in the group.
    let script = "read -r go && exec dd if=\"$1\" of=/dev/null bs=8k count=300 iflag=direct status=none";
    let mut child =
        Command::new("sh").args(["-c", script, "sh"]).arg(&file).stdin(Stdio::piped()).spawn().unwrap();
    cap.add(child.id()).unwrap();
    let began = Instant::now();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    // Three seconds; the kernel gives some of it in advance.
    assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());
    let group = cap.group().to_owned();
    assert!(group.exists());
    drop(cap);
    assert!(!group.exists() && !mounted(&at), "something is left");
    assert!(!loops().contains(&dir.path().display().to_string()));
}

/// The files of all loop devices.
fn loops() -> String {
    let blocks = fs::read_dir("/sys/block").unwrap().flatten();
    blocks.filter_map(|block| fs::read_to_string(block.path().join("loop/backing_file")).ok()).collect()
}

#[test]
fn what_a_killed_process_leaves_is_removed() {
    if skipped() {
        return;
    }
    if let Some(role) = std::env::var_os(ROLE) {
        // The process that is killed.
        let dir = Path::new(&role);
        let _layer = LatencyLayer::mount(&dir.join("backing"), &dir.join("at"), DELAY).unwrap();
        let _cap = IopsCap::mount(&dir.join("disk"), 32 << 20, 100);
        fs::write(dir.join("ready"), "").unwrap();
        thread::sleep(Duration::from_secs(60));
        return;
    }
    let dir = directories();
    fs::create_dir(dir.path().join("disk")).unwrap();
    let mut child = again("what_a_killed_process_leaves_is_removed", dir.path());
    let began = Instant::now();
    while !(dir.path().join("ready").exists() && mounted(&dir.path().join("at"))) {
        assert!(child.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(20));
    }
    // A layer that lives stays.
    let other = directories();
    let alive = layer(&other);
    child.kill().unwrap();
    child.wait().unwrap();
    let (at, disk) = (dir.path().join("at"), dir.path().join("disk"));
    // Any other test may have done so by now.
    clean_up().unwrap();
    assert!(!mounted(&at) && !mounted(&disk) && mounted(alive.at()));
    assert!(!loops().contains(&dir.path().display().to_string()));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(NAME)), "{left:?}");
}

const ROLE: &str = "INRUSH_TEST_SLOW_DISK_KILLED";

/// This program once more, for one test.
fn again(test: &str, dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(ROLE, dir).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}
