use super::*;
use crate::watch::picture::share_of;

fn target(oid: u32, name: &str) -> Target {
    Target {
        key: TableKey::Relation(oid),
        name: name.into(),
        root_name: "public.root".into(),
        relations: vec![oid],
    }
}

fn found(pid: i32, kind: Kind, target: Target) -> Found {
    let session = Session {
        id: SessionId { pid, started: 0 },
        user: "u".into(),
        database: "d".into(),
        application: "psql".into(),
        client: None,
        state: "active".into(),
        query: String::new(),
        transaction: Some(1),
        statement_seconds: 60.0,
        state_seconds: 60.0,
        copies_into: None,
        indexes: None,
    };
    let work = Work { kind, written: None, relation: None, between: false, transaction: Some(1) };
    Found { session, work, target }
}

fn look(pid: i32, event: (&str, &str), copied: Option<(u64, u64)>) -> Look {
    Look { pid, event: WaitEvent::new(event.0, event.1), copied }
}

const EXTEND: (&str, &str) = ("Lock", "extend");
const RUNS: (&str, &str) = ("", "");

#[test]
fn time_goes_to_session_table_and_all() {
    let mut figures = Figures::new(Wanted::default(), 5.0);
    figures.found(
        0.0,
        vec![
            found(1, Kind::Copy, target(7, "public.t")),
            found(2, Kind::Copy, target(7, "public.t")),
            found(3, Kind::Insert, target(8, "public.u")),
        ],
    );
    for tenth in 1..=100u64 {
        let at = tenth as f64 / 10.0;
        let copied = Some((1000 + tenth * 10, 50_000 + tenth * 1000));
        // One of them extends three quarters of the time.
        let one = if tenth % 4 == 0 { RUNS } else { EXTEND };
        figures.look(
            at,
            0.1,
            vec![look(1, one, copied), look(2, RUNS, copied), look(3, ("Client", "ClientRead"), None)],
        );
    }
    let picture = figures.picture(10.0, None);
    assert!((picture.all.backend_seconds - 30.0).abs() < 1e-6, "{}", picture.all.backend_seconds);
    let shares: f64 = picture.all.split.iter().map(|share| share.share).sum();
    assert!((shares - 1.0).abs() < 1e-9);
    assert_eq!((picture.looks_per_second, picture.all.sessions), (10.0, 3));
    let [t, u] = &picture.tables[..] else { panic!("{:?}", picture.tables) };
    assert_eq!((&*t.table, t.time.sessions, t.kinds_in_words()), ("public.t", 2, "COPY".to_owned()));
    assert!((share_of(&t.time.split, Class::ExtendLock) - 0.375).abs() < 1e-6);
    // What was copied before anybody watched does not count.
    assert_eq!((t.rows, t.bytes), (Some(2 * 990), Some(2 * 99_000)));
    assert_eq!(t.rows_per_second, Some(198.0));
    assert_eq!((u.rows, u.bytes), (Some(0), None));
    let sentence = &u.time.limit.as_ref().unwrap().sentence;
    assert_eq!(sentence, "the client or the network: 100 % of backend time");
    let first = &picture.backends[0];
    assert_eq!((first.pid, first.waiting_for.as_deref()), (1, None));
    assert!((share_of(&first.time.split, Class::ExtendLock) - 0.75).abs() < 1e-6);
}

#[test]
fn a_picture_is_of_the_last_seconds() {
    let mut figures = Figures::new(Wanted::default(), 5.0);
    figures.found(0.0, vec![found(1, Kind::Copy, target(7, "public.t"))]);
    for tenth in 1..=200u32 {
        let event = if tenth <= 100 { EXTEND } else { RUNS };
        figures.look(f64::from(tenth) / 10.0, 0.1, vec![look(1, event, None)]);
    }
    let recent = figures.picture(20.0, Some(5.0));
    assert_eq!(share_of(&recent.all.split, Class::Cpu), 1.0);
    assert!((recent.seconds - 5.0).abs() < 0.4, "{}", recent.seconds);
    let all = figures.picture(20.0, None);
    assert!((share_of(&all.all.split, Class::ExtendLock) - 0.5).abs() < 1e-6);
    figures.reset(20.0);
    assert_eq!(figures.picture(20.0, None).all.backend_seconds, 0.0);
    assert_eq!(figures.pids(), [1]);
}

#[test]
fn copies_one_after_the_other_are_added_up() {
    assert_eq!(copied_since(None, Some((5, 50))), (0, 0));
    assert_eq!(copied_since(Some((5, 50)), Some((8, 80))), (3, 30));
    assert_eq!(copied_since(Some((8, 80)), None), (0, 0));
    assert_eq!(copied_since(Some((0, 0)), Some((2, 20))), (2, 20));
    // Nobody looked between them.
    assert_eq!(copied_since(Some((8, 80)), Some((2, 20))), (2, 20));
}

#[test]
fn waiting_for_a_processor_is_told_from_running() {
    let mut figures = Figures::new(Wanted::default(), 5.0);
    figures.found(0.0, vec![found(1, Kind::Copy, target(7, "t"))]);
    assert!(!figures.picture(0.0, None).cpu_queue_seen);
    figures.queued(SessionId { pid: 1, started: 0 }, 0.25);
    figures.look(0.1, 0.1, vec![look(1, RUNS, None)]);
    let picture = figures.picture(0.1, None);
    assert!(picture.cpu_queue_seen);
    assert!((share_of(&picture.all.split, Class::CpuQueue) - 0.25).abs() < 1e-6);
}

#[test]
fn rows_of_inserts_are_those_the_server_counts() {
    let mut figures = Figures::new(Wanted::default(), 5.0);
    figures.found(0.0, vec![found(1, Kind::Insert, target(7, "public.t"))]);
    let size = |bytes, inserted| [Size { relation: 7, bytes, inserted }];
    figures.sizes(0.0, &size(Some(8192), 100));
    figures.look(1.0, 0.1, vec![look(1, RUNS, None)]);
    figures.sizes(1.0, &size(None, 300));
    figures.sizes(2.0, &size(Some(3 * 8192), 400));
    let table = figures.picture(2.0, None).tables.remove(0);
    assert_eq!((table.rows, table.relation_bytes), (Some(300), Some(3 * 8192)));
    assert_eq!((table.rows_per_second, table.relation_growth_per_second), (Some(150.0), Some(8192.0)));
    // Truncated.
    figures.sizes(3.0, &size(Some(0), 400));
    assert_eq!(figures.picture(3.0, None).tables[0].relation_bytes, Some(0));
}

#[test]
fn partitions_of_several_sessions_are_shown_as_their_root() {
    let mut figures = Figures::new(Wanted::default(), 5.0);
    let leaf = |oid, name: &str| Target { key: TableKey::Relation(10), ..target(oid, name) };
    figures.found(0.0, vec![found(1, Kind::Copy, leaf(11, "public.p1"))]);
    assert_eq!(figures.picture(0.0, Some(1.0)).tables[0].table, "public.p1");
    let both = [found(1, Kind::Copy, leaf(11, "public.p1")), found(2, Kind::Copy, leaf(12, "public.p2"))];
    figures.found(0.5, both.to_vec());
    let tables = figures.picture(0.5, Some(1.0)).tables;
    assert_eq!((tables.len(), &*tables[0].table, tables[0].time.sessions), (1, "public.root", 2));
}

#[test]
fn only_who_is_wanted() {
    let names = |wanted: Wanted| {
        let mut figures = Figures::new(wanted, 5.0);
        let all = [(1, "public.t"), (2, "s.t"), (3, "public.not"), (4, "other: t")];
        figures.found(
            0.0,
            all.map(|(pid, name)| {
                found(pid, Kind::Copy, Target { root_name: name.into(), ..target(pid.unsigned_abs(), name) })
            })
            .to_vec(),
        );
        figures.pids()
    };
    let table = |name: &str| Wanted { tables: vec![name.into()], pids: vec![] };
    assert_eq!(names(table("t")), [1, 2, 4]);
    assert_eq!(names(table("s.t")), [2]);
    assert_eq!(names(Wanted { tables: vec![], pids: vec![3] }), [3]);
    assert_eq!(names(Wanted::default()).len(), 4);
}

#[test]
fn what_is_gone_is_forgotten_in_the_end() {
    let mut figures = Figures::new(Wanted::default(), 5.0);
    for pid in 1..3000 {
        let at = f64::from(pid);
        figures.found(at, vec![found(pid, Kind::Insert, target(7, "public.t"))]);
        figures.look(at, 0.1, vec![look(pid, RUNS, None)]);
    }
    assert_eq!(figures.backends.len(), MAX_REMEMBERED);
    assert_eq!(figures.pids(), [2999]);
    figures.trouble(Some("gone".into()));
    assert_eq!(figures.pids(), [0i32; 0]);
    assert_eq!(figures.picture(3000.0, Some(5.0)).trouble.as_deref(), Some("gone"));
}
