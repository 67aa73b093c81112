//! Fetching a server. It needs the network, so it runs only when asked to: INRUSH_TEST_FETCH=1.

#![cfg(feature = "fetch")]

use inrush_local::{Local, Options, Origin, Progress, State, StopMode};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_fetched_server_starts_and_keeps_its_version() {
    if std::env::var_os("INRUSH_TEST_FETCH").is_none_or(|value| value != "1") {
        let _ = writeln!(std::io::stderr(), "SKIPPED: needs the network (set INRUSH_TEST_FETCH=1)");
        return;
    }
    let parent = tempfile::Builder::new().prefix("inrush-fetch-").tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(parent.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let dir = parent.path().join("root");
    let local = Local::open(&Options { dir: Some(dir.clone()), fetch: true }).unwrap();
    let mut seen = Vec::new();
    let started =
        local.ensure_started(&mut |progress| seen.push(progress)).map_err(|error| error.to_string()).unwrap();
    let fetched = seen.iter().any(|p| matches!(p, Progress::Fetched { bytes, .. } if *bytes > 1_000_000));
    assert!(fetched && matches!(seen[0], Progress::Fetching { .. }), "{seen:?}");
    let status = local.status().unwrap();
    assert!(matches!(status.state, State::Running { .. }));
    let server = status.server.unwrap();
    assert_eq!((server.origin(), server.version()), (Origin::Fetched, started.version.clone()));
    assert_eq!(local.prompt(&["-c".into(), "SELECT version()".into()]).unwrap(), 0);

    // The second time it is there; and for a data directory of this version it is preferred to installed ones.
    assert!(local.stop(StopMode::Fast).unwrap());
    let installed_too = Local::open(&Options { dir: Some(dir.clone()), fetch: false }).unwrap();
    let mut seen = Vec::new();
    let again = installed_too.ensure_started(&mut |progress| seen.push(progress)).unwrap();
    assert!(matches!(&seen[..], [Progress::Starting { .. }]), "{seen:?}");
    assert_eq!(again.version.split('.').next(), started.version.split('.').next());

    assert!(local.destroy().unwrap());
    assert!(!dir.exists());
}
