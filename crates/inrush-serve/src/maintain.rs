//! What has to be done now and then: windows made, closed and retired; keys of requests forgotten.

use crate::config::{Into, Windows};
use crate::inputs::Feeder;
use crate::session::connect_control;
use crate::settle;
use crate::target::Way;
use inrush_core::{Code, Error, Result};
use inrush_sink::connect::Connected;
use inrush_sink::ledger::Ledger;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

/// A round that has summarized so many ranges has the next one come soon: at hundreds of megabytes a second, what is
/// written between two usual rounds is a good part of a window, and queries read all of it.
const MANY_RANGES: u64 = 32;
/// When it comes then.
const SOON: Duration = Duration::from_secs(1);

/// How often keys are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(600);

/// When what is not done every time was done last.
#[derive(Default)]
struct Done {
    /// Keys and dead letters forgotten.
    forgot: Option<Instant>,
    /// What dead processes have left on several servers ended.
    settled: Option<Instant>,
}

/// Works until it is dropped.
pub(crate) async fn run(feeder: Feeder, windows: Windows, tables: Vec<(String, Into)>) {
    let mut connection: Option<(Connected, Ledger)> = None;
    let mut done = Done::default();
    loop {
        let every = windows.every.0;
        let pause = match round(&feeder, &mut connection, windows, &tables, &mut done).await {
            Ok(summarized) if summarized >= MANY_RANGES => every.min(SOON),
            Ok(_) => every,
            Err(error) => {
                feeder.metrics.maintenance_failures.fetch_add(1, Relaxed);
                feeder.metrics.note_error(&error);
                tracing::warn!(error = error.fact(), "windows could not be maintained");
                connection = None;
                every
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Gives how many ranges of BRIN indexes it has summarized.
async fn round(
    feeder: &Feeder,
    connection: &mut Option<(Connected, Ledger)>,
    windows: Windows,
    tables: &[(String, Into)],
    done: &mut Done,
) -> Result<u64> {
    let settings = &feeder.registry.settings;
    if connection.as_ref().is_none_or(|(connected, _)| connected.client.is_closed()) {
        let mut connected = connect_control(&settings.conninfo).await?;
        let ledger = Ledger::open(&mut connected.client, &settings.ledger, true)
            .await?
            .ok_or_else(|| Error::new(Code::Ledger, "the ledger could not be made"))?;
        *connection = Some((connected, ledger));
    }
    let Some((connected, ledger)) = connection else { return Ok(0) };
    if done.forgot.is_none_or(|at| at.elapsed() > FORGET_EVERY) {
        let limits = &feeder.limits;
        ledger.forget_requests(&connected.client, limits.remember_keys.0.as_secs_f64()).await?;
        if let Some(keep) = limits.keep_dead_letters {
            ledger.forget_dead_letters(&connected.client, keep.0.as_secs_f64()).await?;
        }
        done.forgot = Some(Instant::now());
    }
    // Their windows are made before the first row comes.
    for (table, into) in tables {
        if let Err(error) = feeder.registry.find(table, into).await {
            tracing::debug!(table, error = error.fact(), "not looked after yet");
        }
    }
    let on_nodes = feeder.registry.all().iter().any(|target| target.way != Way::Here);
    if on_nodes && done.settled.is_none_or(|at| at.elapsed() > settle::EVERY) {
        if let Err(error) = settle::settle(connected, ledger, settings).await {
            feeder.metrics.note_error(&error);
            tracing::warn!(error = error.fact(), "what dead processes have left was not ended");
        }
        done.settled = Some(Instant::now());
    }
    let mut live = HashSet::new();
    let mut ahead = i64::MAX;
    let mut summarized = 0;
    for target in feeder.registry.all() {
        live.insert(target.root.relid);
        if windows.maintain && target.windows.is_some() {
            let options = inrush_windows::Options::default();
            let client = &mut connected.client;
            match inrush_windows::maintain(client, ledger, target.root.relid, None, &options).await {
                Ok(maintained) => {
                    summarized += maintained.summarized;
                    feeder.metrics.windows_retired.fetch_add(maintained.retired.len() as u64, Relaxed);
                    for note in &maintained.notes {
                        tracing::debug!(table = target.table.qualified(), note, "maintenance");
                    }
                }
                Err(error) if connected.client.is_closed() => return Err(error),
                // The others have their turn.
                Err(error) => {
                    feeder.metrics.maintenance_failures.fetch_add(1, Relaxed);
                    feeder.metrics.note_error(&error);
                    let table = target.table.qualified();
                    tracing::warn!(table, error = error.fact(), "windows could not be maintained");
                }
            }
        }
        let Some(target) = feeder.registry.look_again(&target).await? else { continue };
        let Some(windows) = &target.windows else { continue };
        live.extend(windows.leaves.keys());
        let now = windows.windowed.instant(SystemTime::now());
        let coming = windows.windowed.windows.iter().filter(|window| window.start > now).count();
        ahead = ahead.min(i64::try_from(coming).unwrap_or(i64::MAX));
    }
    feeder.metrics.windows_ahead.store(if ahead == i64::MAX { -1 } else { ahead }, Relaxed);
    feeder.registry.keep_layouts(&live);
    Ok(summarized)
}
