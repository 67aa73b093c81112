use super::{Conditions, LeverAdvice, advise, major_version};
use crate::plan::WirePath;
use crate::report::made_up::{profile, settings};
use inrush_profile::{
    Blocker, Class, ClientShare, Counters, EventShare, Profile, WalCounters, setting_bytes,
};

fn conditions(profile: &Profile) -> Conditions<'_> {
    Conditions {
        profile,
        server_major: Some(15),
        path: WirePath::CopyBinary,
        extension_missing: false,
        connections: 8,
        connections_free: true,
        processors: 4,
        commit_share: 0.0,
        max_rate: false,
        compressions: vec!["none"],
        unlogged: false,
        partitioned: false,
        indexes: Some(0),
        deferrable: Some(0),
        foreign_keys: None,
        used: &[],
    }
}

fn names(levers: &[LeverAdvice]) -> Vec<&str> {
    levers.iter().map(|lever| lever.lever.as_str()).collect()
}

fn lever<'a>(levers: &'a [LeverAdvice], name: &str) -> &'a LeverAdvice {
    levers.iter().find(|lever| lever.lever == name).unwrap_or_else(|| panic!("{name} among {levers:?}"))
}

fn blocker(own: bool, application: &str) -> Blocker {
    Blocker {
        pid: 42,
        application: Some(application.into()),
        state: None,
        open_seconds: None,
        relation: None,
        own,
        waited_seconds: 3.0,
    }
}

#[test]
fn the_limit_comes_first_and_little_time_is_not_worth_a_lever() {
    // Waiting for a processor was named, together with the processor time behind it; WAL alone took more.
    let profile =
        profile(&[(Class::CpuQueue, 0.3), (Class::Wal, 0.4), (Class::Cpu, 0.26), (Class::Network, 0.04)]);
    let levers = advise(&conditions(&profile));
    let classes: Vec<Class> = levers.iter().map(|lever| lever.addresses).collect();
    let mut order = classes.clone();
    order.dedup();
    assert_eq!(order, [Class::CpuQueue, Class::Wal, Class::Cpu]);
    let mut sorted = names(&levers);
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), levers.len(), "each once");
}

#[test]
fn extension_locks() {
    let mut profile = profile(&[(Class::ExtendLock, 0.71), (Class::Client, 0.04)]);
    let levers = advise(&conditions(&profile));
    assert_eq!(names(&levers), ["--jobs", "PostgreSQL 16", "partitions", "block size"]);
    assert!(levers[0].how.contains("--jobs 4"), "{levers:?}");
    profile.settings = settings(&[("block_size", "32768")]);
    let one =
        Conditions { server_major: Some(16), partitioned: true, connections: 1, ..conditions(&profile) };
    assert!(advise(&one).is_empty(), "{:?}", advise(&one));
}

#[test]
fn wal() {
    let mut profile = profile(&[(Class::Wal, 0.6)]);
    assert_eq!(names(&advise(&conditions(&profile))), ["--unlogged", "wal_buffers", "wal_level = minimal"]);
    let waits = Conditions { commit_share: 0.3, ..conditions(&profile) };
    let levers = advise(&waits);
    assert!(lever(&levers, "--sync-commit off").cost.contains("last transactions"));
    assert!(lever(&levers, "--unlogged").cost.contains("1.6 times"));

    profile.counters = Some(Counters {
        wal: WalCounters { bytes: 1_000_000_000, full_page_images: 50_000, ..WalCounters::default() },
        checkpoints_requested: 4,
        ..Counters::default()
    });
    let levers = advise(&conditions(&profile));
    assert!(lever(&levers, "max_wal_size").how.ends_with("(now 1GB)"));
    lever(&levers, "wal_compression");

    profile.settings = settings(&[
        ("synchronous_commit", "off"),
        ("wal_buffers", "256MB"),
        ("wal_compression", "lz4"),
        ("wal_level", "minimal"),
    ]);
    let levers = advise(&Conditions { commit_share: 0.3, ..conditions(&profile) });
    assert_eq!(names(&levers), ["--unlogged", "max_wal_size", "--truncate"]);
    assert!(levers[0].cost.contains("without WAL"), "{levers:?}");

    // An unlogged table has no rows in WAL; where the load made it so, it says that it did.
    assert!(!names(&advise(&Conditions { unlogged: true, ..conditions(&profile) })).contains(&"--unlogged"));
    let used = ["--unlogged".to_owned()];
    let levers = advise(&Conditions { unlogged: true, used: &used, ..conditions(&profile) });
    assert!(lever(&levers, "--unlogged").used);
    assert!(!lever(&levers, "max_wal_size").used);
}

#[test]
fn processors() {
    let mut profile = profile(&[(Class::Cpu, 0.9)]);
    profile.cpu_queue_seen = true;
    assert_eq!(names(&advise(&conditions(&profile))), ["--freeze"]);
    let much = Conditions {
        path: WirePath::CopyText,
        deferrable: Some(3),
        foreign_keys: Some(1),
        connections: 2,
        ..conditions(&profile)
    };
    let levers = advise(&much);
    assert_eq!(
        names(&levers),
        ["--via copy-binary", "--defer-indexes", "--defer-foreign-keys", "--jobs", "--freeze"]
    );
    assert!(lever(&levers, "--jobs").how.contains("--jobs 4"));
    assert!(lever(&levers, "--defer-indexes").what.contains("3 indexes"));
    let unknown = Conditions { deferrable: None, ..conditions(&profile) };
    assert!(lever(&advise(&unknown), "--defer-indexes").what.contains("where the table has any"));
    // A partitioned table takes none of the levers that are for one table.
    assert!(advise(&Conditions { partitioned: true, ..unknown }).is_empty());
    // All rows in one transaction, and a server elsewhere, whose processors nobody has counted.
    assert!(!names(&advise(&Conditions { connections_free: false, ..much })).contains(&"--jobs"));
    profile.cpu_queue_seen = false;
    assert!(!names(&advise(&Conditions { connections: 2, ..conditions(&profile) })).contains(&"--jobs"));
}

#[test]
fn too_few_processors() {
    let mut profile = profile(&[(Class::CpuQueue, 0.6)]);
    profile.cpu_queue_seen = true;
    let levers = advise(&conditions(&profile));
    assert_eq!(names(&levers), ["--jobs", "another machine for the client"]);
    assert!(levers[0].how.contains("--jobs 4"));
    let four = Conditions { connections: 4, ..conditions(&profile) };
    assert_eq!(names(&advise(&four)), ["another machine for the client"]);
}

#[test]
fn an_extension_that_is_missing() {
    let mut profile = profile(&[(Class::Cpu, 0.9)]);
    let missing = Conditions { extension_missing: true, ..conditions(&profile) };
    let levers = advise(&missing);
    assert_eq!(names(&levers), ["the extension inrush", "--freeze"]);
    assert!(levers[0].cost.contains("superuser") && levers[0].how.contains("CREATE EXTENSION inrush"));
    let text = Conditions { path: WirePath::CopyText, ..missing };
    assert_eq!(names(&advise(&text)), ["--via copy-binary", "the extension inrush", "--freeze"]);
    for server_major in [None, Some(14), Some(19)] {
        let other = Conditions { server_major, extension_missing: true, ..conditions(&profile) };
        assert_eq!(names(&advise(&other)), ["--freeze"], "{server_major:?}");
    }
    // It spares processor time, and of the other limits none.
    profile = self::profile(&[(Class::CpuQueue, 0.9)]);
    profile.cpu_queue_seen = true;
    let missing = Conditions { extension_missing: true, connections: 1, ..conditions(&profile) };
    assert_eq!(names(&advise(&missing)), ["another machine for the client", "the extension inrush"]);
    for class in [Class::Wal, Class::ExtendLock, Class::DataIo, Class::Replica, Class::Network] {
        profile = self::profile(&[(class, 0.9)]);
        let missing = Conditions { extension_missing: true, ..conditions(&profile) };
        assert!(!names(&advise(&missing)).contains(&"the extension inrush"), "{class:?}");
    }
}

#[test]
fn fewer_or_more_connections_but_not_both() {
    let mut profile = profile(&[(Class::ExtendLock, 0.5), (Class::Cpu, 0.5)]);
    profile.cpu_queue_seen = true;
    let levers = advise(&Conditions { connections: 2, ..conditions(&profile) });
    let jobs: Vec<_> = levers.iter().filter(|lever| lever.lever == "--jobs").collect();
    assert_eq!((jobs.len(), jobs[0].addresses), (1, Class::ExtendLock));
}

#[test]
fn locks() {
    let mut profile = profile(&[(Class::Lock, 0.8)]);
    assert!(advise(&conditions(&profile)).is_empty());
    profile.blockers = vec![blocker(false, "nightly report")];
    let levers = advise(&conditions(&profile));
    assert_eq!(names(&levers), ["process 42"]);
    assert!(levers[0].what.contains("nightly report") && levers[0].how.contains("pg_terminate_backend(42)"));
    profile.blockers = vec![blocker(false, "")];
    assert_eq!(names(&advise(&conditions(&profile))), ["--quiet-autovacuum", "process 42"]);
    profile.blockers = vec![blocker(true, "inrush load")];
    assert_eq!(names(&advise(&conditions(&profile))), ["distinct keys"]);
    profile.blockers.clear();
    profile.events = vec![EventShare {
        kind: "LWLock".into(),
        event: "BufferContent".into(),
        class: Class::Lock,
        seconds: 300.0,
        share: 0.6,
    }];
    let levers = advise(&Conditions { deferrable: Some(1), ..conditions(&profile) });
    assert_eq!(names(&levers), ["--defer-indexes", "--jobs"]);
}

#[test]
fn data_files_and_replicas() {
    let mut data = profile(&[(Class::DataIo, 0.8)]);
    assert_eq!(names(&advise(&conditions(&data))), ["a faster disk"]);
    data.cpu_queue_seen = true;
    data.counters = Some(Counters { checkpoints_requested: 2, ..Counters::default() });
    let levers = advise(&Conditions { indexes: None, ..conditions(&data) });
    assert_eq!(names(&levers), ["max_wal_size", "shared_buffers", "--drop-cache", "a faster disk"]);

    let replica = profile(&[(Class::Replica, 0.8)]);
    let levers = advise(&conditions(&replica));
    assert_eq!(names(&levers), ["larger units"]);
    assert!(levers[0].what.contains("synchronous_standby_names"));
}

#[test]
fn client_and_network() {
    let mut client = profile(&[(Class::Client, 0.9)]);
    client.client = ClientShare { input: 9.0, encode: 1.0, send: 1.0 };
    let slow = Conditions { compressions: vec!["none", "bzip2"], max_rate: true, ..conditions(&client) };
    assert_eq!(names(&advise(&slow)), ["--max-rate", "zstd or lz4", "faster storage for the input"]);
    let zstd = Conditions { compressions: vec!["zstd"], ..conditions(&client) };
    assert_eq!(names(&advise(&zstd)), ["faster storage for the input"]);
    client.client = ClientShare { input: 1.0, encode: 9.0, send: 1.0 };
    assert_eq!(names(&advise(&Conditions { connections: 2, ..conditions(&client) })), ["--jobs"]);
    assert!(advise(&conditions(&client)).is_empty());
    client.client = ClientShare { input: 1.0, encode: 1.0, send: 9.0 };
    client.cpu_queue_seen = true;
    let text = Conditions { path: WirePath::CopyText, ..conditions(&client) };
    assert_eq!(names(&advise(&text)), ["--via copy-binary", "--jobs", "another machine for the client"]);

    let network = profile(&[(Class::Network, 0.9)]);
    let text = Conditions { path: WirePath::CopyText, ..conditions(&network) };
    assert_eq!(names(&advise(&text)), ["a client nearer to the server", "--via copy-binary"]);
}

#[test]
fn what_servers_say() {
    assert_eq!(
        ["8192", "512kB", "16MB", "1GB"].map(setting_bytes),
        [8192, 512 << 10, 16 << 20, 1 << 30].map(Some)
    );
    assert_eq!(["", "-1", "many"].map(setting_bytes), [None; 3]);
    assert_eq!(major_version("15.18 (Debian 15.18-1)"), Some(15));
    assert_eq!(major_version("19beta1"), Some(19));
    assert_eq!(major_version(""), None);
}
