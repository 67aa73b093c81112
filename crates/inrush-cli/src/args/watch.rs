//! `inrush watch`

use super::{ServerArgs, values};
use clap::Args;
use inrush_profile::watch::{Wanted, WatchOptions};

/// Show who loads on a server and what the time goes to: COPY, INSERT and others, live
///
/// Looks at any server, whoever loads and with whatever: per table and per session, rows and bytes per second, what
/// the sessions wait for, who blocks them, and one sentence that names the limit. On a terminal it draws;
/// elsewhere it prints a line per table and interval.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Keys: q quits, space pauses, t and b hide tables and backends, arrows scroll, r begins the figures anew.

Roles see the statements of their own sessions; members of pg_read_all_stats or pg_monitor see all.

Examples:
  inrush watch --to postgresql://me@db/shop
  inrush watch --table trips                 only who loads into trips
  inrush watch --json --for 60 > a-minute.jsonl")]
pub struct WatchArgs {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Draw or print every so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = values::seconds)]
    pub interval: f64,

    /// Look at the sessions so many times a second
    #[arg(long, value_name = "N", default_value_t = WatchOptions::DEFAULT_HZ, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub hz: u32,

    /// End after so many seconds, with a summary
    #[arg(long = "for", value_name = "SECONDS", value_parser = values::seconds)]
    pub for_: Option<f64>,

    /// Only this table, with or without schema; may be given again
    #[arg(long, short, value_name = "NAME")]
    pub table: Vec<String>,

    /// Only the session of this server process; may be given again
    #[arg(long, value_name = "N")]
    pub pid: Vec<i32>,

    /// Print a JSON object per interval, and one for the summary
    #[arg(long)]
    pub json: bool,
}

impl WatchArgs {
    /// What the library needs of them. `at_least`: seconds that pictures are wanted of in any case.
    pub fn options(&self, at_least: f64) -> WatchOptions {
        WatchOptions {
            hz: self.hz,
            keep: self.interval.max(at_least),
            wanted: Wanted { tables: self.table.clone(), pids: self.pid.clone() },
        }
    }
}
