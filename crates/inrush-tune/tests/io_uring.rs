//! `tune io` on a server that can read with io_uring, which `scripts/postgres.sh uring` builds.

use inrush_sink::connect;
use inrush_sink::conninfo;
use inrush_testkit::{Postgres, ServerOptions, Version, require_server};
use inrush_tune::advise::facts;
use inrush_tune::io::measured::{Mechanism, StopReason};
use inrush_tune::io::report::{Report, Target};
use inrush_tune::io::run::{self, Connection, Request};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use tokio::sync::Mutex;

/// What the kernel counts of reads is counted for the whole process: one probe at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

const VERSION: Version = Version::IoUring(18);

async fn measure(server: &Postgres) -> Report {
    let conninfo = conninfo::resolve(Some(&server.url()), &|_| None).expect("settings").expect("a server");
    let mut connected = connect::connect(&conninfo, "tune test").await.expect("connection");
    let facts = facts::read(&connected.client).await.expect("facts");
    let request = Request { tablespaces: vec!["pg_default".into()], seconds: 20.0, ..Request::default() };
    // Others use this disk, too: a probe that ended for their sake is made again.
    for _ in 0..5 {
        let connection = Connection { client: &mut connected.client, conninfo: &conninfo, facts: &facts };
        let ended = AtomicBool::new(false);
        let report = run::server(&request, connection, &ended, &mut |_| {}).await.expect("a report");
        let stopped = report.targets[0].measured.as_ref().and_then(|measured| measured.stopped.as_ref());
        if stopped.is_none_or(|stop| stop.reason != StopReason::LiveQueries) {
            return report;
        }
    }
    panic!("others use the disk too much for this test");
}

fn mechanisms(target: &Target) -> BTreeSet<Mechanism> {
    let measured = target.measured.as_ref().expect("it was measured");
    // Of one by one there is advice of 0 only, for index scans.
    assert!(measured.stopped.is_none(), "{:?}", measured.stopped);
    measured.replays.iter().filter(|one| one.ahead > 0).map(|one| one.mechanism).collect()
}

#[tokio::test]
async fn its_reads_are_those_that_are_replayed() {
    require_server!(VERSION);
    let _alone = ALONE.lock().await;
    let conf = [("io_method", "io_uring"), ("shared_buffers", "16MB")];
    let server =
        Postgres::start(&ServerOptions { version: VERSION, conf: &conf, ..ServerOptions::default() });
    let report = measure(&server).await;
    let target = &report.targets[0];
    assert_eq!(mechanisms(target), [Mechanism::IoUring].into());
    // Nobody else reads for it.
    let names = || {
        target.advice.iter().map(|one| one.setting).chain(target.already_right.iter().map(|one| one.setting))
    };
    assert!(names().all(|name| name != "io_workers" && name != "io_method"), "{:?}", target.advice);
    let html = report.html();
    assert!(html.contains("io_method io_uring"));
}

#[tokio::test]
async fn where_it_could_be_had_it_is_replayed_beside_workers() {
    require_server!(VERSION);
    let _alone = ALONE.lock().await;
    let server = Postgres::start(&ServerOptions { version: VERSION, ..ServerOptions::default() });
    let report = measure(&server).await;
    let workers = |workers| Mechanism::Workers { workers };
    assert_eq!(mechanisms(&report.targets[0]), [workers(3), workers(32), Mechanism::IoUring].into());
}
