use super::super::made_up::{capped, local, slow};
use super::super::measured::Replay;
use super::super::report::DiskShare;
use super::*;

fn server(version_num: u32) -> Server {
    let new = version_num >= 180_000;
    Server {
        version_num,
        io_method: new.then(|| "worker".to_owned()),
        io_methods: if new { vec!["sync".into(), "worker".into()] } else { Vec::new() },
        io_workers: new.then_some(3),
        io_max_concurrency: new.then_some(64),
        ..Server::default()
    }
}

fn tablespace(concurrency: &str) -> Tablespace {
    let setting = |name: &str, value: &str| TablespaceOption { name: name.into(), value: value.into() };
    Tablespace {
        name: "pg_default".into(),
        settings: vec![
            setting("effective_io_concurrency", concurrency),
            setting("maintenance_io_concurrency", "10"),
            setting("random_page_cost", "4"),
            setting("seq_page_cost", "1"),
        ],
        may_alter: true,
        system: vec![SystemSetting { name: "io_workers", may: true, obstacle: None }],
        ..Tablespace::default()
    }
}

fn judged(measured: &Measured, server: &Server, tablespace: &Tablespace) -> Judged {
    let verdict = Verdict::of(measured);
    judge(&Context { measured, verdict: &verdict, server, versions: None, tablespace: Some(tablespace) })
}

fn advised<'a>(judged: &'a Judged, setting: &str) -> Option<&'a Advice> {
    judged.advice.iter().find(|one| one.setting == setting)
}

#[test]
fn one_is_never_left_on_a_local_disk() {
    let judged = judged(&local(), &server(150_018), &tablespace("1"));
    let advice = advised(&judged, "effective_io_concurrency").unwrap();
    assert_eq!((advice.advised.as_str(), advice.applied), ("128", true));
    assert_eq!(advice.lines, ["ALTER TABLESPACE pg_default SET (effective_io_concurrency = 128);"]);
    assert!(advice.why.contains("1 is slower than none at all"), "{}", advice.why);
    let half = advice.expected.iter().find(|scan| scan.density == 0.5).unwrap();
    assert!(half.now_seconds > 3.0 * half.then_seconds, "{half:?}");
    assert!(advised(&judged, "io_workers").is_none());
}

#[test]
fn what_is_as_good_stays() {
    let judged = judged(&local(), &server(150_018), &tablespace("200"));
    assert!(advised(&judged, "effective_io_concurrency").is_none());
    assert!(
        judged.right.iter().any(|right| right.setting == "effective_io_concurrency" && right.now == "200")
    );
}

#[test]
fn workers_are_the_cap_of_a_slow_storage() {
    let judged = judged(&slow(), &server(180_001), &tablespace("16"));
    let advice = &judged.advice[0];
    assert_eq!((advice.setting, advice.advised.as_str()), ("io_workers", "32"));
    assert!(advice.why.starts_with("io_workers is the cap"), "{}", advice.why);
    assert!(advice.expected.iter().all(|scan| scan.now_seconds > 5.0 * scan.then_seconds), "{advice:?}");
    assert_eq!(advised(&judged, "effective_io_concurrency").unwrap().advised, "32");
    // 128 reads in flight are more than workers can do.
    let method = advised(&judged, "io_method").unwrap();
    assert_eq!((method.advised.as_str(), method.applied), ("sync", false));
    assert!(judged.scans.iter().all(|scan| scan.now_seconds > 5.0 * scan.then_seconds));
}

#[test]
fn io_uring_is_advised_for_what_was_measured_of_it() {
    let of = |measured: &Measured, workers| {
        let mut server = server(180_001);
        server.io_methods = ["sync", "worker", "io_uring"].map(str::to_owned).into();
        server.io_workers = Some(workers);
        let judged = judged(measured, &server, &tablespace("16"));
        advised(&judged, "io_method").cloned()
    };
    let with = |times: f64| {
        let mut measured = slow();
        let workers = |one: &&Replay| one.mechanism == Mechanism::Workers { workers: 32 };
        let rings: Vec<Replay> = measured.replays.iter().filter(workers).cloned().collect();
        measured.replays.extend(rings.into_iter().map(|one| Replay {
            mechanism: Mechanism::IoUring,
            page_us: one.page_us / times,
            ..one
        }));
        measured
    };
    for workers in [3, 32] {
        let better = of(&with(2.0), workers).unwrap();
        assert_eq!((better.advised.as_str(), better.applied), ("io_uring", false));
        assert!(better.why.contains("38 us with 32 workers and 19 us with io_uring"), "{}", better.why);
        assert!(better.expected.iter().all(|scan| scan.now_seconds > 1.3 * scan.then_seconds), "{better:?}");
        // Measured, and no better: no restart for that.
        assert_eq!(of(&with(1.1), workers), None);
        // Not measured.
        let unknown = of(&slow(), workers).unwrap();
        assert!(unknown.advised == "io_uring" && unknown.expected.is_empty(), "{unknown:?}");
    }
}

#[test]
fn a_cap_gets_little_depth_and_dense_scans_another_way() {
    let judged = judged(&capped(), &server(150_018), &tablespace("16"));
    assert!(advised(&judged, "effective_io_concurrency").is_none(), "{:?}", judged.advice);
    let dense = judged.dense.unwrap();
    assert!((0.05..0.10).contains(&dense.above), "{dense:?}");
    assert!(dense.lines.contains(&"SET LOCAL enable_bitmapscan = off;".to_owned()));
    let deep = super::tests::judged(&capped(), &server(150_018), &tablespace("1"));
    let advice = advised(&deep, "effective_io_concurrency").unwrap();
    assert!(["2", "4"].contains(&advice.advised.as_str()), "{advice:?}");
}

#[test]
fn the_cost_of_a_random_page_knows_what_is_cached() {
    let (mut known, space) = (server(150_018), tablespace("128"));
    let unknown = judged(&local(), &known, &space);
    let advice = advised(&unknown, "random_page_cost").unwrap();
    assert!(!advice.applied && advice.why.contains("assumed"), "{advice:?}");
    assert_eq!(advice.advised, "1.7");
    known.shared_miss = Some(0.5);
    known.disk_share = Some(DiskShare { share: 0.9, how: "measured".into() });
    let measured = judged(&local(), &known, &space);
    assert!(advised(&measured, "random_page_cost").is_none_or(|advice| advice.applied));
    known.shared_miss = Some(1.0);
    known.disk_share = Some(DiskShare { share: 1.0, how: "measured".into() });
    let all = judged(&slow(), &known, &space);
    assert!(all.right.iter().any(|right| right.setting == "random_page_cost" && right.now == "4"), "{all:?}");
}

#[test]
fn options_of_the_tablespace_hold() {
    let mut space = tablespace("128");
    space.options.push(TablespaceOption { name: "effective_io_concurrency".into(), value: "1".into() });
    let judged = judged(&local(), &server(150_018), &space);
    assert_eq!(advised(&judged, "effective_io_concurrency").unwrap().now.as_deref(), Some("1"));
}

#[test]
fn nothing_is_advised_without_a_verdict() {
    let mut noisy = local();
    noisy.random[0].passes = vec![16_900.0, 9_000.0];
    assert_eq!(judged(&noisy, &server(150_018), &tablespace("1")), Judged::default());
    let mut replays = local();
    replays.replays.iter_mut().for_each(|one| one.passes = vec![one.page_us, one.page_us * 2.0]);
    let refused = judged(&replays, &server(150_018), &tablespace("16"));
    assert!(advised(&refused, "effective_io_concurrency").is_none());
    assert!(refused.undecided[0].why.contains("cannot be told"), "{refused:?}");
    // What is many times better is better even so.
    let clear = judged(&replays, &server(150_018), &tablespace("1"));
    assert!(advised(&clear, "effective_io_concurrency").is_some());
}

#[test]
fn small_read_ahead_is_seen_and_a_large_one_left() {
    let judged = judged(&slow(), &server(150_018), &tablespace("64"));
    let advice = advised(&judged, "read_ahead_kb").unwrap();
    assert!(!advice.applied && advice.lines[0].starts_with("blockdev --setra"), "{advice:?}");
    let judged = super::tests::judged(&local(), &server(150_018), &tablespace("64"));
    assert!(judged.right.iter().any(|right| right.setting == "read_ahead_kb"));
}

#[test]
fn a_standby_and_a_role_without_rights_get_lines_only() {
    let mut standby = server(150_018);
    standby.standby = true;
    let judged = judged(&local(), &standby, &tablespace("1"));
    assert!(judged.advice.iter().all(|advice| !advice.applied));
    let mut space = tablespace("1");
    space.may_alter = false;
    let judged = super::tests::judged(&local(), &server(150_018), &space);
    assert!(!advised(&judged, "effective_io_concurrency").unwrap().may);
}

#[test]
fn through_a_server_workers_are_seen_to_be_the_cap_and_no_more() {
    let mut scans = slow();
    scans.engine = super::super::measured::Engine::Server;
    scans.replays.retain(|one| one.mechanism == Mechanism::Workers { workers: 3 });
    scans.random.iter_mut().for_each(|one| one.iops = one.iops.min(2_500.0));
    let verdict = Verdict::of(&scans);
    assert_eq!(verdict.class, Class::CannotTell);
    assert!(verdict.refused.unwrap().contains("the 3 io_workers of the server"));
    let judged = judged(&scans, &server(180_001), &tablespace("16"));
    assert_eq!(judged.advice.len(), 1);
    assert_eq!((judged.advice[0].setting, judged.advice[0].advised.as_str()), ("io_workers", "32"));
    // Where the storage is no slower than that, nothing is said.
    scans.random.iter_mut().for_each(|one| one.iops *= 10.0);
    assert!(
        !super::tests::judged(&scans, &server(180_001), &tablespace("16"))
            .advice
            .iter()
            .any(|one| one.setting == "io_workers")
    );
}
