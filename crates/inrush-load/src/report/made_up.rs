//! Reports of loads that never were.

use super::{InputReport, Outcome, Report, Stages, Totals, VERSION};
use crate::plan::WirePath;
use inrush_core::{CsvDialect, Format};
use inrush_profile::{
    Blocker, Class, ClassShare, ClassTimes, ClientShare, Counters, EventShare, Limit, Profile, Series,
    TableIo, WalCounters,
};
use std::collections::BTreeMap;

/// A load of a few rows that nobody looked at.
pub(crate) fn report() -> Report {
    Report {
        version: VERSION,
        inrush: "0.1.0".into(),
        started: "2026-11-21T03:11:52Z".into(),
        outcome: Outcome::Loaded,
        error: None,
        dry_run: false,
        load: Some(7),
        resumed: false,
        table: "public.trips".into(),
        server: "15.18 (Debian 15.18-1)".into(),
        inputs: vec![InputReport {
            name: "trips.csv".into(),
            format: Format::Csv(CsvDialect::default()),
            compression: "none".into(),
            bytes: Some(430_000_000),
            columns: vec!["id".into(), "note".into()],
        }],
        path: WirePath::CopyBinary,
        path_reason: "every column has a client encoder; the server parses nothing".into(),
        cluster: None,
        atomic: false,
        totals: Totals { seconds: 60.0, bytes_in: 6_000_000_000, rows: 14_000_000, ..Totals::default() },
        stages: Stages { read: 6.0, encode: 21.0, send: 90.0, commit: 3.5, wait: 0.4, put_back: 0.0 },
        pulled: Vec::new(),
        profile: None,
        levers: Vec::new(),
        notes: Vec::new(),
    }
}

/// What was seen of a minute with eight connections, with these shares of backend time; the first one was the limit.
pub(crate) fn profile(shares: &[(Class, f64)]) -> Profile {
    let seconds = 480.0;
    let share =
        |(class, share): &(Class, f64)| ClassShare { class: *class, seconds: share * seconds, share: *share };
    let mut split: Vec<ClassShare> = shares.iter().map(share).collect();
    split.sort_by(|a, b| b.share.total_cmp(&a.share));
    let limit = shares.first().map(|(class, share)| Limit {
        class: *class,
        share: *share,
        sentence: format!("{}: {:.0} % of backend time", class.in_words(), share * 100.0),
        checkpoint_every_seconds: None,
    });
    Profile {
        hz: 50,
        samples: 2990,
        backend_seconds: seconds,
        unseen_seconds: 0.1,
        server_cpu_seconds: Some(0.3),
        limit,
        split,
        cpu_queue_seen: false,
        client: ClientShare { input: 1.0, encode: 4.0, send: 9.5 },
        events: Vec::new(),
        blockers: Vec::new(),
        counters: None,
        settings: settings(&[]),
        series: series(shares),
    }
}

/// Settings as they often are, with some others.
pub(crate) fn settings(others: &[(&str, &str)]) -> BTreeMap<String, String> {
    let usual = [
        ("block_size", "8192"),
        ("max_wal_size", "1GB"),
        ("synchronous_commit", "on"),
        ("wal_buffers", "16MB"),
        ("wal_compression", "off"),
        ("wal_level", "replica"),
    ];
    usual.iter().chain(others).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// As many steps as there can be, with throughput that goes up and down.
fn series(shares: &[(Class, f64)]) -> Series {
    let mut series = Series { step_seconds: 0.1, ..Series::default() };
    for step in 0..600u32 {
        let wave = 1.0 + 0.3 * (f64::from(step) / 25.0).sin();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let amount = |most: f64| (most * wave / 1.3) as u64;
        series.bytes_in.push(amount(13e6));
        series.rows.push(if step % 10 == 9 { amount(300_000.0) } else { 0 });
        series.wal_bytes.push(amount(10e6));
        let mut times = ClassTimes::default();
        for (n, (class, share)) in (0u32..).zip(shares) {
            let wave = 1.0 + 0.5 * (f64::from(step) / 40.0 + f64::from(n)).sin();
            times.add(*class, 0.8 * share * wave);
        }
        series.waits.push(times);
    }
    series
}

/// A report with everything a report can have.
pub(crate) fn full_report() -> Report {
    let shares = [
        (Class::ExtendLock, 0.31),
        (Class::Wal, 0.19),
        (Class::Cpu, 0.14),
        (Class::DataIo, 0.1),
        (Class::CpuQueue, 0.08),
        (Class::Lock, 0.06),
        (Class::Client, 0.05),
        (Class::Replica, 0.04),
        (Class::Network, 0.02),
        (Class::Other, 0.01),
    ];
    let event = |kind: &str, event: &str, class, share| EventShare {
        kind: kind.into(),
        event: event.into(),
        class,
        seconds: share * 480.0,
        share,
    };
    let mut profile = profile(&shares);
    profile.cpu_queue_seen = true;
    profile.events = vec![
        event("Lock", "extend", Class::ExtendLock, 0.31),
        event("", "", Class::Cpu, 0.22),
        event("IO", "WALSync", Class::Wal, 0.15),
        event("LWLock", "WALWrite", Class::Wal, 0.04),
        event("IO", "DataFileExtend", Class::DataIo, 0.1),
        event("IPC", "SyncRep", Class::Replica, 0.04),
    ];
    profile.events.extend((0..30).map(|n| event("Extension", &format!("Rare{n}"), Class::Other, 0.0003)));
    profile.blockers = vec![Blocker {
        pid: 4711,
        application: Some("the holder".into()),
        state: Some("idle in transaction".into()),
        open_seconds: Some(312.0),
        relation: Some("public.trips".into()),
        own: false,
        waited_seconds: 14.0,
    }];
    profile.counters = Some(Counters {
        wal: WalCounters {
            bytes: 6_100_000_000,
            records: 812_345,
            full_page_images: 150_000,
            buffers_full: 31_000,
        },
        checkpoints_timed: 0,
        checkpoints_requested: 5,
        checkpoint_write_seconds: 41.2,
        checkpoint_sync_seconds: 2.9,
        table_io: Some(TableIo {
            extends: 9000,
            extend_bytes: 5_900_000_000,
            writes: 700_000,
            ..TableIo::default()
        }),
    });
    let mut report = report();
    report.totals.connections = 8;
    report.totals.units = 410;
    report.totals.retries = 2;
    report.totals.rejects = 3;
    report.outcome = Outcome::LoadedWithRejects;
    report.notes = vec!["trips.csv was written to while it was being loaded".into()];
    report.profile = Some(profile);
    report
}
