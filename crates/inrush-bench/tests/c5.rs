//! Case C5, tiny: what is measured, and what is left of it. How fast anything is does not matter here.

use inrush_bench::c5::{self, Case, Options, Record};
use inrush_testkit::require_server;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

fn options(version: u32, rung: &str) -> Options {
    Options {
        runs: Some(1),
        rows: Some(40_000),
        versions: vec![version],
        rungs: vec![rung.to_owned()],
        only: Vec::new(),
        inrush: PathBuf::from("/nowhere/inrush"),
        command: "inrush bench c5".to_owned(),
    }
}

/// Few values of effective_io_concurrency: a turn has a restart.
fn small() -> Case {
    let mut case = Case::built_in().unwrap();
    case.fio_ms = 50;
    for scan in &mut case.scans {
        scan.concurrency.retain(|value| [0, 1, 16].contains(value));
        if let Some(brief) = &mut scan.brief {
            brief.retain(|value| *value == 16);
        }
    }
    case
}

fn run(case: Case, options: &Options) -> Record {
    c5::run(case, options, &|line| println!("{line}")).unwrap()
}

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let _ = writeln!(std::io::stderr(), "SKIPPED: slow storage needs root");
    }
    root
}

fn is_mounted(what: &str) -> bool {
    // Others may have layers of their own here.
    let ours = format!("inrush-slow-disk-{}-", std::process::id());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.starts_with(&ours) && line.contains(what))
}

/// Without `inrush tune io` everything is measured, and the record says why nothing is recommended.
fn assert_whole(record: &Record, rung: &str, servers: &[&str]) {
    for turn in &record.turns {
        assert_eq!(turn.failure, None, "{turn:?}");
        assert!(turn.seconds > 0.0 && turn.warm_seconds.is_some() && turn.cpu_seconds.is_some(), "{turn:?}");
        assert!(turn.resident < 0.01 && turn.pages_read > 0, "{turn:?}");
        assert_eq!(turn.rung, rung);
    }
    let seen: Vec<_> =
        servers.iter().filter(|server| record.turns.iter().any(|turn| turn.server == **server)).collect();
    assert_eq!(seen.len(), servers.len(), "{:?}", record.absent);
    let full = servers[0];
    let turn = |scan: &str, value: u32| {
        let found = record
            .turns
            .iter()
            .find(|turn| turn.server == full && turn.scan == scan && turn.concurrency == value);
        found.unwrap_or_else(|| panic!("no turn of {scan} with {value}"))
    };
    // The same rows, whichever way: 0.775 % of 40,000, and 1 % of the events.
    let (seq, bitmap) = (record.of(rung, full, "dense seq", None).next().unwrap(), turn("dense bitmap", 16));
    assert_eq!(
        (seq.rows, seq.plan.as_str(), bitmap.plan.as_str()),
        (bitmap.rows, "Seq Scan", "Bitmap Heap Scan")
    );
    assert!((200..420).contains(&bitmap.rows), "{bitmap:?}");
    let pages = record.storage[0].bytes[&format!("tbx_{rung}")] / 8192;
    assert_eq!(pages, 40_000_u64.div_ceil(97));
    let share = bitmap.exact_pages.unwrap() * 100 / pages;
    assert!((45..61).contains(&share) && bitmap.lossy_pages == Some(0), "{share} %: {bitmap:?}");
    let brin = turn("events brin", 16);
    assert_eq!(brin.rows, record.of(rung, full, "events index", None).next().unwrap().rows);
    assert!(brin.lossy_pages.unwrap() > 0 && brin.exact_pages == Some(0), "{brin:?}");
    // A year of seven, three discounts of eleven, 23 quantities of 50: not the dates alone.
    let q6 = turn("q6 bitmap", 16);
    assert!(q6.rows > 0 && q6.rows == record.of(rung, full, "q6 seq", None).next().unwrap().rows, "{q6:?}");
    let asked = &record.storage[0].asked;
    assert!(
        asked.target.is_none() && asked.absent.as_ref().unwrap().contains("/nowhere/inrush"),
        "{asked:?}"
    );
    assert!(!record.predictions.is_empty() && record.predictions.iter().all(|it| it.predicted.is_none()));
    let text = c5::text(record);
    assert!(text.contains("no recommendation: ") && text.contains("nothing is predicted"), "{text}");
    assert!(record.ended_early.is_none());
}

#[test]
fn scans_are_cold_and_kept() {
    require_server!(15);
    let record = run(small(), &options(15, "local"));
    assert_whole(&record, "local", &["15"]);
    // A device that counts has the pages that bitmap scans asked for.
    if record.storage[0].counted.starts_with("device") {
        let turn = record.of("local", "15", "dense bitmap", Some(1)).next().unwrap();
        assert!(turn.device_reads.unwrap() > 100, "{turn:?}");
    }
    let out = tempfile::tempdir().unwrap();
    let path = c5::keep(&record, out.path()).unwrap();
    let kept: Record = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(kept.turns.len(), record.turns.len());
    let readme = fs::read_to_string(path.with_file_name("README.md")).unwrap();
    assert!(readme.contains("## c5: ") && readme.contains("### local: 53 % of the pages"), "{readme}");
}

#[test]
fn methods_of_18_take_turns_on_slow_reads() {
    require_server!(18);
    if !root() {
        return;
    }
    let mut case = small();
    // A tenth of a millisecond is enough to be counted.
    case.rungs[1].delay_ms = Some(0.1);
    let record = run(case, &options(18, "latency"));
    assert_whole(&record, "latency", &["18 worker 3", "18 worker 32", "18 sync"]);
    assert_eq!(record.storage[0].counted, "the layer");
    for turn in &record.turns {
        assert!(turn.device_reads.unwrap() > 0 && turn.device_bytes.unwrap() >= 8192, "{turn:?}");
    }
    assert!(!is_mounted("fuse"));
}

#[test]
fn a_limit_is_gone_afterwards() {
    require_server!(15);
    if !root() {
        return;
    }
    let mut options = options(15, "capped");
    options.only = vec!["sparse".to_owned(), "dense seq".to_owned()];
    let record = match c5::run(small(), &options, &|line| println!("{line}")) {
        Ok(record) => record,
        // A container may have no loop devices; then there is nothing else to run.
        Err(error) => {
            assert!(error.to_string().contains("nothing could be run"), "{error}");
            let _ = writeln!(std::io::stderr(), "SKIPPED: {error}");
            return;
        }
    };
    assert!(record.turns.iter().all(|turn| turn.failure.is_none()), "{:?}", record.turns);
    assert!(record.storage[0].counted.starts_with("device 7:"), "{}", record.storage[0].counted);
    let groups = Path::new("/sys/fs/cgroup/blkio");
    let left: Vec<_> = fs::read_dir(groups)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&format!("inrush-slow-disk-{}-", std::process::id())))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn without_root_slow_storage_is_left_out() {
    if rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: root can have slow storage");
        return;
    }
    require_server!(15);
    let error = c5::run(small(), &options(15, "latency"), &|_| ()).unwrap_err().to_string();
    assert!(error.contains("needs root"), "{error}");
}
