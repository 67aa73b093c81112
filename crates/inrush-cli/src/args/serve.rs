//! `inrush serve`

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Live streams into PostgreSQL: HTTP, Kafka, files that grow, standard input
///
/// Rows go into tables as they come: a unit is committed when enough rows have gathered or the first has waited long
/// enough (200 ms). What is acknowledged is on disk. Runs until it is told to stop.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Begin with:
  inrush serve --example > serve.toml
  inrush serve --check serve.toml
  inrush serve serve.toml

Signals: SIGTERM and SIGINT stop it once everything that came in is stored; a second one at once.
SIGHUP reads the configuration again: tokens and certificates of HTTP inputs.
Under systemd it says when it is ready (Type=notify).")]
pub struct ServeArgs {
    /// The configuration, TOML
    #[arg(value_name = "CONFIG", required_unless_present = "example")]
    pub config: Option<PathBuf>,

    /// Check the configuration, and whether the server and the tables can be reached; then stop
    #[arg(long)]
    pub check: bool,

    /// Print a commented configuration
    #[arg(long, conflicts_with_all = ["config", "check"])]
    pub example: bool,

    /// How log lines look
    #[arg(long, value_name = "FORM", value_enum, default_value_t = LogForm::Text)]
    pub log: LogForm,

    /// Log more; twice: everything
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogForm {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}
