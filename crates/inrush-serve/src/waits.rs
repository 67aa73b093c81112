//! What the lanes' backends spend their time on: sampled all the time, told by `/metrics` and `/ready`.

use crate::metrics::Metrics;
use inrush_profile::{Class, ClassTimes, Recorder, SamplerOptions};
use inrush_sink::conninfo::ConnInfo;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Looks per second: enough for shares of seconds, and cheap.
const HZ: u32 = 10;

/// Over what time `/ready` says what the limit was.
const SPAN: Duration = Duration::from_secs(10);

/// A share of the backends' time from which on a wait is worth a word.
const WORTH_A_WORD: f64 = 0.2;

/// Samples on a thread of its own until the recorder is ended.
pub(crate) fn start(recorder: &Arc<Recorder>, conninfo: &ConnInfo, metrics: &Arc<Metrics>) {
    let (recorder, conninfo, metrics) = (Arc::clone(recorder), conninfo.clone(), Arc::clone(metrics));
    let sampling = std::thread::Builder::new().name("inrush-waits".to_owned()).spawn(move || {
        let options =
            SamplerOptions { hz: HZ, after: Duration::from_secs(1), application: "inrush serve: sampler" };
        let counted = || (metrics.bytes_sent.load(Relaxed), metrics.rows.load(Relaxed));
        while let Err(error) = inrush_profile::run(&recorder, &conninfo, &options, &counted, &|_| {}) {
            tracing::debug!(%error, "not sampled");
            std::thread::sleep(Duration::from_secs(5));
            if metrics.stopping.load(Relaxed) {
                return;
            }
        }
    });
    if let Err(error) = sampling {
        tracing::warn!(%error, "no thread for the sampler");
    }
}

/// Says again and again what the limit was, until it is dropped.
pub(crate) async fn watch(recorder: Arc<Recorder>, metrics: Arc<Metrics>) {
    let mut before = recorder.times();
    loop {
        tokio::time::sleep(SPAN).await;
        let now = recorder.times();
        let words = in_words(&now.since(&before));
        *metrics.limit.lock().unwrap_or_else(PoisonError::into_inner) = words;
        before = now;
    }
}

/// What backends waited for most, with its share.
fn in_words(times: &ClassTimes) -> String {
    let all = times.sum();
    if all <= 0.0 {
        return String::new();
    }
    match times.ranked().first() {
        Some((class, seconds)) if seconds / all >= WORTH_A_WORD => {
            format!("{}: {:.0} % of backend time", class.in_words(), seconds / all * 100.0)
        }
        _ => String::new(),
    }
}

/// Backend time by class, for Prometheus.
pub(crate) fn prometheus(times: &ClassTimes) -> String {
    let mut out = String::from(
        "# HELP inrush_backend_seconds_total Time of the lanes' backends, by what it went to (sampled).\n\
         # TYPE inrush_backend_seconds_total counter\n",
    );
    for class in Class::ALL {
        let _ = writeln!(
            out,
            "inrush_backend_seconds_total{{class=\"{}\"}} {:.1}",
            class.name(),
            times.of(class)
        );
    }
    out
}
