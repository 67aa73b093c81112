//! `inrush advise`

use super::LedgerArgs;
use clap::Args;

/// Say what limits bulk loads on a server, and what to change
///
/// Reads the server's settings and counters, its replicas, slots and archiver, and, where the server is on this machine
/// and its directory can be looked at, devices, free space and memory. Says for each change what it gives, what it
/// costs, and whether a reload is enough. Nothing is changed without --apply.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  inrush advise            what to change, and the lines that do it
  inrush advise --apply    make the changes that need no restart
  inrush advise --undo     take them back

Advice that gives up durability or more is an option: it is shown and never applied.")]
pub struct AdviseArgs {
    /// Make the changes that need no restart and give nothing up; what was there before is recorded
    #[arg(long, conflicts_with = "undo")]
    pub apply: bool,

    /// Take back what --apply has changed, unless somebody has changed it since
    #[arg(long)]
    pub undo: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub ledger: LedgerArgs,
}
