//! Storages for tests, with the figures of real ones: a local disk, one with a latency of 1 ms, one with a cap.

use super::measured::{Depth, Measured, Mechanism, Replay, Sequential, Storage, VERSION};

const AHEADS: [u32; 10] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];

fn curve(iops: &[f64], p99_us: &[f64]) -> Vec<Depth> {
    iops.iter()
        .zip(p99_us)
        .enumerate()
        .map(|(n, (iops, p99_us))| {
            let depth = 1 << n;
            Depth {
                depth,
                iops: *iops,
                p50_us: f64::from(depth) / iops * 1e6,
                p99_us: *p99_us,
                passes: vec![*iops, iops * 0.98],
            }
        })
        .collect()
}

fn replays(mechanism: Mechanism, density: f64, page_us: &[f64]) -> Vec<Replay> {
    AHEADS
        .iter()
        .zip(page_us)
        .map(|(ahead, page_us)| Replay {
            mechanism,
            density,
            ahead: *ahead,
            page_us: *page_us,
            passes: vec![*page_us, page_us * 1.03],
        })
        .collect()
}

fn sequential(direct: [f64; 2], buffered: f64) -> Vec<Sequential> {
    let one = |buffered, request_bytes, rate: f64| Sequential {
        buffered,
        request_bytes,
        bytes_per_second: rate,
        passes: vec![rate],
    };
    vec![one(false, 128 << 10, direct[0]), one(false, 1 << 20, direct[1]), one(true, 8192, buffered)]
}

fn measured(random: Vec<Depth>, sequential: Vec<Sequential>, replays: Vec<Replay>) -> Measured {
    Measured {
        version: VERSION,
        at: "2026-11-22T12:00:00Z".into(),
        storage: Storage {
            directory: "/data".into(),
            device: Some("/dev/vda".into()),
            read_ahead_kb: Some(8192),
            ..Storage::default()
        },
        scratch_bytes: 512 << 20,
        read_bytes: 1 << 30,
        seconds: 40.0,
        random,
        sequential,
        replays,
        cached_page_us: Some(2.0),
        ..Measured::default()
    }
}

/// The disk of scan-io's machine: depth pays until 32.
pub fn local() -> Measured {
    let random = curve(
        &[16_900.0, 29_200.0, 40_900.0, 50_900.0, 57_700.0, 64_000.0, 67_000.0, 69_000.0],
        &[77.0, 110.0, 160.0, 220.0, 400.0, 2_500.0, 4_000.0, 8_000.0],
    );
    let mut all =
        replays(Mechanism::Advice, 0.5, &[16.5, 67.8, 40.3, 37.1, 24.8, 18.4, 15.7, 15.4, 12.5, 12.4]);
    all.extend(replays(
        Mechanism::Advice,
        0.1,
        &[70.0, 75.0, 50.0, 33.0, 24.0, 18.0, 16.0, 15.5, 15.0, 15.0],
    ));
    all.extend(replays(
        Mechanism::Advice,
        0.01,
        &[87.0, 130.0, 77.0, 32.0, 25.0, 18.0, 18.5, 17.0, 18.0, 17.5],
    ));
    for (workers, scale) in [(3, 1.6), (32, 1.0)] {
        for (density, us) in [(0.5, 13.0), (0.1, 16.0), (0.01, 17.0)] {
            let page_us =
                [40.0, 60.0, 40.0, 30.0, us * scale, us * scale, us * scale, us * scale, us * scale, us];
            all.extend(replays(Mechanism::Workers { workers }, density, &page_us));
        }
    }
    measured(random, sequential([820e6, 1169e6], 1_100e6), all)
}

/// 1 ms for each read, any number at once.
pub fn slow() -> Measured {
    let iops = [900.0, 1_800.0, 3_600.0, 7_200.0, 14_300.0, 28_000.0, 50_000.0, 60_000.0];
    let p99_us = [1_200.0, 1_200.0, 1_250.0, 1_300.0, 1_400.0, 1_500.0, 1_900.0, 4_000.0];
    let random = curve(&iops, &p99_us);
    let mut all = Vec::new();
    for density in [0.5, 0.1, 0.01] {
        all.extend(replays(
            Mechanism::Advice,
            density,
            &[400.0, 1_120.0, 560.0, 280.0, 141.0, 72.0, 37.0, 22.0, 22.5, 23.0],
        ));
        all.extend(replays(
            Mechanism::Workers { workers: 3 },
            density,
            &[1_100.0, 1_100.0, 560.0, 370.0, 365.0, 360.0, 365.0, 362.0, 361.0, 360.0],
        ));
        all.extend(replays(
            Mechanism::Workers { workers: 32 },
            density,
            &[1_100.0, 1_100.0, 560.0, 280.0, 140.0, 71.0, 40.0, 38.0, 38.0, 38.0],
        ));
    }
    let mut measured = measured(random, sequential([100e6, 300e6], 150e6), all);
    measured.storage.read_ahead_kb = Some(128);
    measured
}

/// 3,000 reads a second, whatever is in flight.
pub fn capped() -> Measured {
    let random = curve(
        &[2_950.0, 3_000.0, 3_000.0, 3_000.0, 3_000.0, 3_000.0],
        &[400.0, 700.0, 1_400.0, 2_700.0, 5_400.0, 11_000.0],
    );
    let mut all = replays(
        Mechanism::Advice,
        0.5,
        &[43.0, 330.0, 331.0, 331.0, 332.0, 331.0, 330.0, 331.0, 331.0, 331.0],
    );
    all.extend(replays(
        Mechanism::Advice,
        0.1,
        &[700.0, 360.0, 335.0, 333.0, 332.0, 331.0, 330.0, 331.0, 331.0, 331.0],
    ));
    all.extend(replays(
        Mechanism::Advice,
        0.01,
        &[780.0, 470.0, 340.0, 333.0, 332.0, 331.0, 330.0, 331.0, 331.0, 331.0],
    ));
    let mut measured = measured(random, sequential([375e6, 400e6], 380e6), all);
    measured.storage.read_ahead_kb = Some(128);
    measured
}
