//! Probes of the disk that the tests run on: what they keep to, what they leave, and how they end. Nothing here depends on
//! how fast that disk is.
#![cfg(target_os = "linux")]

use inrush_core::Code;
use inrush_sink::conninfo;
use inrush_testkit::slow_disk::LatencyLayer;
use inrush_testkit::{Postgres, ServerOptions, ServerUser, require_server};
use inrush_tune::io::measured::{Mechanism, StopReason, spread};
use inrush_tune::io::probe::{Plan, Progress, run};
use inrush_tune::io::{Measured, storage};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What the kernel counts of reads is counted for the whole process: one probe at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory on a disk: /tmp may be in memory. Others may write into it.
fn directory() -> TempDir {
    let directory = tempfile::Builder::new().prefix("probe-").tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    directory
}

fn small(directory: &Path) -> Plan {
    Plan { seconds: 8.0, read_bytes: 200_000_000, scratch_bytes: 32 << 20, ..Plan::new(directory) }
}

fn probe(plan: &Plan) -> inrush_core::Result<Measured> {
    run(plan, None, &AtomicBool::new(false), &mut |_| {})
}

/// Others use this disk, too: a probe that ended for their sake is made again.
fn undisturbed(mut attempt: impl FnMut() -> Measured) -> Measured {
    for _ in 0..5 {
        let measured = attempt();
        if measured.stopped.as_ref().is_none_or(|stop| stop.reason != StopReason::LiveQueries) {
            return measured;
        }
    }
    panic!("others use the disk too much for this test");
}

fn entries(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn everything_is_measured_within_the_limits() {
    let _alone = alone();
    let directory = directory();
    let workers = Mechanism::Workers { workers: 3 };
    let plan = Plan {
        mechanisms: vec![Mechanism::Advice, Mechanism::CombinedAdvice, workers],
        ..small(directory.path())
    };
    let (mut shares, mut began) = (Vec::new(), Instant::now());
    let measured = undisturbed(|| {
        shares.clear();
        began = Instant::now();
        let measured = run(&plan, None, &AtomicBool::new(false), &mut |progress: Progress| {
            assert!(!progress.text.is_empty());
            shares.push(progress.done);
        });
        measured.unwrap()
    });

    // Two windows of the kernel's read-ahead may be read beyond the limit.
    let windows = measured.storage.read_ahead_kb.unwrap_or(0) * 1024 * 2;
    assert!(measured.read_bytes <= plan.read_bytes + windows, "{}", measured.read_bytes);
    assert!(measured.read_bytes > 1 << 20);
    assert!(measured.scratch_bytes <= plan.scratch_bytes && measured.scratch_bytes >= 8 << 20);
    assert!(measured.seconds <= plan.seconds + 1.0 && measured.seconds <= began.elapsed().as_secs_f64());
    assert!(
        shares.windows(2).all(|pair| pair[0] <= pair[1])
            && shares.iter().all(|share| (0.0..=1.0).contains(share))
    );
    assert!(entries(directory.path()).is_empty());

    assert_eq!(measured.storage.directory, directory.path().canonicalize().unwrap().display().to_string());
    assert!(measured.at.ends_with('Z') && measured.at.len() == 20);
    let depths: Vec<u32> = measured.random.iter().map(|one| one.depth).collect();
    assert!(depths.starts_with(&[1, 2, 4, 8, 16, 32]), "{depths:?}");
    for one in &measured.random {
        assert!(
            one.iops > 0.0 && one.p50_us > 0.0 && one.p99_us >= one.p50_us && !one.passes.is_empty(),
            "{one:?}"
        );
    }
    let sequential: Vec<(bool, u64)> =
        measured.sequential.iter().map(|one| (one.buffered, one.request_bytes)).collect();
    assert_eq!(sequential, [(false, 128 << 10), (false, 1 << 20), (true, 8192)]);
    assert!(measured.cached_page_us.unwrap() > 0.0);
    if measured.stopped.is_none() {
        for mechanism in &plan.mechanisms {
            let replays: Vec<(f64, u32)> = measured
                .replays
                .iter()
                .filter(|one| one.mechanism == *mechanism)
                .map(|one| (one.density, one.ahead))
                .collect();
            // No session has more than 64 reads of workers in flight.
            let wanted = if *mechanism == workers { 28 } else { 34 };
            assert_eq!(replays.len(), wanted, "{mechanism:?}: {replays:?}");
            assert_eq!((replays[0], replays[wanted - 1]), ((0.01, 0), (1.0, 64)));
        }
    }
    assert!(measured.replays.iter().all(|one| one.page_us > 0.0 && !one.passes.is_empty()));
    // What is kept as JSON comes back, but for the last bits of numbers.
    let back: Measured = serde_json::from_str(&serde_json::to_string(&measured).unwrap()).unwrap();
    assert_eq!((back.version, &back.at, &back.storage), (1, &measured.at, &measured.storage));
    assert_eq!((back.random.len(), back.replays.len()), (measured.random.len(), measured.replays.len()));
}

/// But on storage where reads are counted out, or slow.
#[test]
fn bytes_are_kept_for_replays_that_differ() {
    let _alone = alone();
    let directory = directory();
    let plan = Plan {
        mechanisms: vec![Mechanism::Advice],
        seconds: 30.0,
        read_bytes: 1 << 30,
        ..small(directory.path())
    };
    let measured = undisturbed(|| probe(&plan).unwrap());
    let (one, many) = (measured.iops(1).unwrap(), measured.iops(16).unwrap_or(0.0));
    if measured.stopped.is_some() || one < 500.0 || many < 2.0 * one {
        println!("SKIPPED: this disk is slow, limited or busy: {one:.0} and {many:.0} reads a second");
        return;
    }
    let differs = |passes: &[f64]| spread(passes).is_some_and(|apart| apart > 0.25);
    let first = |passes: &[f64]| differs(&passes[..passes.len().min(2)]);
    let all = &measured.replays;
    let again = all.iter().filter(|one| one.passes.len() > 2).count();
    assert!(again > 0 || !all.iter().any(|one| first(&one.passes)), "{all:?}");
    assert!(all.iter().all(|one| (2..=5).contains(&one.passes.len())), "{all:?}");
}

#[test]
fn bytes_that_are_used_up_end_it_and_what_was_measured_stays() {
    let _alone = alone();
    let directory = directory();
    let plan = Plan { read_bytes: 3 << 20, ..small(directory.path()) };
    let measured = undisturbed(|| probe(&plan).unwrap());
    let windows = measured.storage.read_ahead_kb.unwrap_or(0) * 1024 * 2;
    assert!(measured.read_bytes <= plan.read_bytes + windows, "{}", measured.read_bytes);
    assert_eq!(measured.stopped.unwrap().reason, StopReason::Bytes);
    assert!(!measured.random.is_empty());
    assert!(entries(directory.path()).is_empty());
}

#[test]
fn time_that_is_used_up_ends_it() {
    let _alone = alone();
    let directory = directory();
    let measured = probe(&Plan { seconds: 1.5, ..small(directory.path()) }).unwrap();
    assert!(measured.seconds < 4.0, "{}", measured.seconds);
    let measured = probe(&Plan { seconds: 0.0, ..small(directory.path()) }).unwrap();
    assert_eq!(measured.stopped.unwrap().reason, StopReason::Time);
    assert_eq!((measured.read_bytes, measured.scratch_bytes), (0, 0));
    assert!(entries(directory.path()).is_empty());
}

#[test]
fn whoever_wants_it_to_end_waits_for_a_moment_only() {
    let _alone = alone();
    let directory = directory();
    for at in ["written", "random reads, 4", "front to back", "of the pages"] {
        let mut took = None;
        let measured = undisturbed(|| {
            let (ended, mut since) = (AtomicBool::new(false), None);
            let measured = run(&small(directory.path()), None, &ended, &mut |progress: Progress| {
                if progress.text.contains(at) && since.is_none() {
                    ended.store(true, Relaxed);
                    since = Some(Instant::now());
                }
            });
            took = since.map(|since| since.elapsed());
            measured.unwrap()
        });
        // Nobody but the machine may take longer: ten times what is promised.
        assert!(took.expect("the step") < Duration::from_secs(2), "{at}: {took:?}");
        assert_eq!(measured.stopped.unwrap().reason, StopReason::Interrupted, "{at}");
        assert_eq!(measured.random.is_empty(), at == "written", "{at}");
        assert!(entries(directory.path()).is_empty());
    }
}

/// Not a test of its own: what the tests below start as another process, to kill it or to run it as another account.
#[test]
fn child() {
    let Ok(directory) = std::env::var("INRUSH_TEST_PROBE") else { return };
    let outcome = run(&Plan::new(directory), None, &AtomicBool::new(false), &mut |progress: Progress| {
        eprintln!("STEP {}", progress.text);
    });
    match outcome {
        Ok(measured) => eprintln!("MEASURED {}", measured.random.len()),
        Err(error) => eprintln!("FAILED {error}"),
    }
}

fn another(directory: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env("INRUSH_TEST_PROBE", directory).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
fn a_probe_that_is_killed_leaves_nothing() {
    let _alone = alone();
    let directory = directory();
    for at in ["STEP the scratch file is written, 10", "STEP random reads, 2", "STEP 1 % of the pages"] {
        let mut reached = false;
        // It does not come that far where others use the disk too much.
        for _ in 0..5 {
            let mut child = another(directory.path()).spawn().unwrap();
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            reached = reached || lines.any(|line| line.is_ok_and(|line| line.starts_with(at)));
            child.kill().unwrap();
            child.wait().unwrap();
            if reached {
                break;
            }
        }
        assert!(reached, "{at}");
        assert!(entries(directory.path()).is_empty(), "{at}");
    }
}

#[test]
fn a_second_start_removes_what_an_earlier_one_left() {
    let _alone = alone();
    let directory = directory();
    for name in ["pgsql_tmp_inrush_4000000_17", "pgsql_tmp4000.0"] {
        fs::write(directory.path().join(name), "left").unwrap();
    }
    probe(&Plan { seconds: 1.0, ..small(directory.path()) }).unwrap();
    assert_eq!(entries(directory.path()), ["pgsql_tmp4000.0"]);
}

#[test]
fn an_ordinary_account_may_measure_where_it_may_write() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "SKIPPED: only root can become another account; every other test here runs as an ordinary one"
        );
        return;
    }
    let directory = directory();
    // A program that others may execute, wherever this one is.
    let program = directory.path().join("program");
    fs::copy("/proc/self/exe", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let theirs = directory.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    ServerUser::get().own(&theirs).unwrap();
    let ours = directory.path().join("ours");
    fs::create_dir(&ours).unwrap();
    let said = |place: &Path| {
        let mut command = Command::new(&program);
        command.args(["--exact", "child", "--nocapture"]).env("INRUSH_TEST_PROBE", place).current_dir("/");
        let output = ServerUser::get().run(&mut command).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let measured = said(&theirs);
    assert!(measured.contains("MEASURED"), "{measured}");
    assert!(entries(&theirs).is_empty());
    let refused = said(&ours);
    assert!(refused.contains("FAILED error[output]") && refused.contains("Permission denied"), "{refused}");
    assert!(refused.contains("hint: Run it as the server's account"), "{refused}");
}

#[test]
fn an_account_without_more_threads_is_measured_by_the_kernel() {
    let _alone = alone();
    let tools = ["timeout", "prlimit"]
        .iter()
        .all(|tool| Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok());
    if !rustix::process::geteuid().is_root() || !tools {
        eprintln!("SKIPPED: root, timeout and prlimit are needed to limit what another account may do");
        return;
    }
    let directory = directory();
    let program = directory.path().join("program");
    fs::copy("/proc/self/exe", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let theirs = directory.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    ServerUser::get().own(&theirs).unwrap();
    let mut command = Command::new("timeout");
    command.args(["60", "prlimit", "--nproc=1"]).arg(&program);
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env("INRUSH_TEST_PROBE", &theirs).current_dir("/");
    let output = ServerUser::get().run(&mut command).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("MEASURED"), "{:?}: {said}", output.status);
}

#[test]
fn what_is_in_memory_or_no_directory_is_refused() {
    let error = probe(&Plan::new("/no/such/directory")).unwrap_err();
    assert_eq!(error.code(), Code::Usage);
    let error = probe(&Plan::new(env!("CARGO_MANIFEST_DIR").to_owned() + "/Cargo.toml")).unwrap_err();
    assert!(error.fact().ends_with("is not a directory"), "{error}");
    if storage::look(Path::new("/dev/shm")).is_ok_and(|seen| seen.file_system.as_deref() == Some("tmpfs")) {
        let error = probe(&Plan::new("/dev/shm")).unwrap_err();
        assert!(error.fact().contains("in memory") && error.hint_text().is_some(), "{error}");
    } else {
        eprintln!("SKIPPED: there is no tmpfs at /dev/shm");
    }
}

/// A file system of so many MiB in a file, until it is dropped. `None` where none can be made.
struct Small {
    at: TempDir,
    image: TempDir,
}

impl Small {
    fn make(mib: u64, mkfs: &str, option: &str) -> Option<Small> {
        let (at, image) = (directory(), directory());
        let path = image.path().join("image");
        let file = fs::File::options().create_new(true).write(true).mode(0o600).open(&path).unwrap();
        file.set_len(mib << 20).unwrap();
        let ran = |command: &mut Command| {
            command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        let made = ran(Command::new(mkfs).arg(&path))
            && ran(Command::new("mount").args(["-o", option]).arg(&path).arg(at.path()));
        if !made {
            eprintln!("SKIPPED: {mkfs} and mount -o {option} need root, and are not possible here");
        }
        made.then(|| Small { at, image })
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at.path()).status();
        let _ = fs::remove_file(self.image.path().join("image"));
    }
}

#[test]
fn a_small_file_system_is_refused_with_figures() {
    let _alone = alone();
    let Some(small) = Small::make(100, "mkfs.ext4", "loop") else { return };
    let error = probe(&Plan::new(small.at.path())).unwrap_err();
    assert_eq!(error.code(), Code::Output);
    assert!(
        error.fact().contains("too few") && error.hint_text().is_some_and(|hint| hint.contains("800 MiB")),
        "{error}"
    );
}

#[test]
fn a_file_system_that_cannot_be_written_is_refused() {
    let _alone = alone();
    // Also where there would not be room.
    for mib in [2000, 100] {
        let Some(small) = Small::make(mib, "mkfs.ext4", "loop,ro") else { return };
        let error = probe(&Plan::new(small.at.path())).unwrap_err();
        assert_eq!(error.code(), Code::Output);
        assert!(error.fact().contains("Read-only") && error.hint_text().is_some(), "{error}");
    }
    let error = probe(&Plan::new("/proc/1")).unwrap_err();
    assert!(error.fact().starts_with("no scratch file can be written in /proc/1"), "{error}");
}

#[test]
fn a_file_system_without_files_without_names_is_measured_and_left_clean() {
    let _alone = alone();
    let Some(fat) = Small::make(2000, "mkfs.vfat", "loop") else { return };
    let measured = probe(&Plan { seconds: 4.0, ..small(fat.at.path()) }).unwrap();
    assert_eq!(measured.storage.file_system.as_deref(), Some("vfat"));
    assert!(!measured.random.is_empty() && measured.scratch_bytes <= 20 << 20);
    assert!(entries(fat.at.path()).is_empty());
}

/// Ends the queries however the test ends: the scope waits for them.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_server_at_work_is_watched() {
    require_server!(16);
    let _alone = alone();
    let server = Postgres::start(&ServerOptions {
        version: 16.into(),
        conf: &[("shared_buffers", "1MB")],
        ..ServerOptions::default()
    });
    server.psql("CREATE TABLE t AS SELECT i, repeat('x', 500) AS pad FROM generate_series(1, 200000) i");
    let info = conninfo::resolve(Some(&server.url()), &|_| None).unwrap().unwrap();
    let directory = directory();
    let (over, mut watchers) = (AtomicBool::new(false), Vec::new());
    let watcher = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'inrush tune'";
    let measured = std::thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    server.psql("SELECT count(*) FROM t");
                }
            });
        }
        let plan = Plan { seconds: 15.0, ..small(directory.path()) };
        let measured = run(&plan, Some(&info), &AtomicBool::new(false), &mut |progress: Progress| {
            if progress.text.starts_with("random reads") {
                watchers.push(server.psql(watcher));
            }
        });
        measured.unwrap()
    });
    // Whether these queries suffer depends on the machine. It ends by itself or because of them, and has a curve.
    assert!(!measured.random.is_empty());
    assert!(measured.watched.unwrap().contains("sessions that wait for I/O"));
    assert!(watchers.iter().all(|count| count == "1"), "{watchers:?}");
    if let Some(stop) = measured.stopped {
        assert!([StopReason::LiveQueries, StopReason::Time].contains(&stop.reason), "{stop:?}");
    }
    // The session that watched is gone soon after.
    let began = Instant::now();
    while server.psql(watcher) != "0" {
        assert!(began.elapsed() < Duration::from_secs(10), "the session that watched is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn slow_storage_has_whole_densities_in_few_seconds() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: storage is slowed by a file system of FUSE, which needs root and /dev/fuse");
        return;
    }
    let directory = directory();
    let place = |name: &str| directory.path().join(name);
    fs::create_dir(place("backing")).unwrap();
    fs::create_dir(place("at")).unwrap();
    let _layer =
        LatencyLayer::mount(&place("backing"), &place("at"), Duration::from_millis(10)).expect("a slow disk");
    let plan = Plan { seconds: 20.0, scratch_bytes: 64 << 20, ..Plan::new(place("at")) };
    let measured = probe(&plan).unwrap();
    let aheads = |density: f64| -> Vec<u32> {
        let of = measured.replays.iter().filter(|one| (one.density - density).abs() < 1e-9);
        of.map(|one| one.ahead).collect()
    };
    assert_eq!(aheads(0.01), [0, 1, 4, 16, 64, 256], "{:?}", measured.stopped);
    for density in [0.1, 0.5, 1.0] {
        let aheads = aheads(density);
        assert!(aheads.is_empty() || aheads.starts_with(&[0, 1]), "{density}: {aheads:?}");
    }
}
