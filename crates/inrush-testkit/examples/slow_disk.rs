//! Shows a directory with slow reads, until it gets SIGINT or SIGTERM:
//!
//! ```sh
//! cargo run -p inrush-testkit --example slow_disk -- BACKING AT 1ms
//! cargo run -p inrush-testkit --example slow_disk -- cap AT 2G 3000     # ext4 with 3000 reads a second
//! cargo run -p inrush-testkit --example slow_disk -- clean              # removes what killed ones have left
//! ```
//!
//! Both need root. `cap` prints the control group in which a process is slow: write its number into
//! `cgroup.procs` there.

use inrush_testkit::slow_disk::{IopsCap, LatencyLayer, clean_up};
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;
use std::io::{Error, Result};
use std::path::Path;
use std::time::Duration;

const USAGE: &str =
    "usage: slow_disk BACKING AT DELAY (as 1ms, 500us) | slow_disk cap AT SIZE IOPS | slow_disk clean";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["clean"] => clean_up(),
        ["cap", at, size, iops] => {
            let iops = iops.parse().map_err(|_| Error::other(USAGE))?;
            let cap = IopsCap::mount(Path::new(at), bytes(size)?, iops)?;
            println!("{} has {iops} reads a second for processes of {}", at, cap.group().display());
            wait()
        }
        [backing, at, delay] => {
            let layer = LatencyLayer::mount(Path::new(backing), Path::new(at), duration(delay)?)?;
            println!("{backing} is at {at}, each read {delay} slower");
            wait()?;
            println!("{:?}", layer.reads());
            Ok(())
        }
        _ => Err(Error::other(USAGE)),
    }
}

/// Until a signal comes.
fn wait() -> Result<()> {
    Signals::new(TERM_SIGNALS)?.forever().next();
    Ok(())
}

fn duration(text: &str) -> Result<Duration> {
    let parts = text.strip_suffix("ms").map(|n| (n, 1000)).or(text.strip_suffix("us").map(|n| (n, 1)));
    let value = parts.and_then(|(n, unit)| Some(n.parse::<u64>().ok()? * unit));
    value.map(Duration::from_micros).ok_or_else(|| Error::other(USAGE))
}

fn bytes(text: &str) -> Result<u64> {
    let parts = text.strip_suffix('G').map(|n| (n, 30)).or(text.strip_suffix('M').map(|n| (n, 20)));
    let value = parts.and_then(|(n, shift)| Some(n.parse::<u64>().ok()? << shift));
    value.ok_or_else(|| Error::other(USAGE))
}
