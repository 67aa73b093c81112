//! `inrush explain`

use super::{ServerArgs, values};
use clap::Args;
use inrush_core::{Code, Error, Result};
use inrush_tune::explain::{ColdWish, Options};
use inrush_tune::io::Measured;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Scan the largest table of a query in every way, and say which is fastest and why
///
/// Has the planner scan it sequentially, by index, by bitmap and by BRIN, at the current and at another
/// effective_io_concurrency, warm and, on the server's machine, cold; shows times, device reads and pages
/// beside what the planner believed. Only a query that reads is run, in read-only transactions that are
/// rolled back.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  inrush explain 'SELECT sum(fare) FROM trips WHERE zone = 19'
  inrush explain --concurrency 32 --cold 'SELECT ...'
  inrush explain --report scans.html \"$(cat query.sql)\"

Cold runs take the table out of everybody's caches: a terminal is asked first,
else --cold or --yes has to be said. They need the client on the server's
machine, as the server's account or root.")]
pub struct ExplainArgs {
    /// The query: one SELECT, WITH, VALUES or TABLE that only reads
    #[arg(value_name = "QUERY")]
    pub query: String,

    #[command(flatten)]
    pub server: ServerArgs,

    /// Give up a run that takes longer
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = timeout)]
    pub timeout: f64,

    /// Refuse a query whose tables, with TOAST and the indexes it uses, are larger together
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = max_size)]
    pub max_size: u64,

    /// Runs of each way, warm and cold each; three are needed for a verdict
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,

    /// Measure with everything in memory only
    #[arg(long)]
    pub warm_only: bool,

    /// Measure cold, too, without asking; an error where that is not possible
    #[arg(long, conflicts_with = "warm_only")]
    pub cold: bool,

    /// Agree to cold runs without being asked
    #[arg(long, short)]
    pub yes: bool,

    /// Another effective_io_concurrency to run beside the current one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub concurrency: Option<u32>,

    /// What the storage can do, as JSON of `inrush tune io`, for predictions
    #[arg(long, value_name = "FILE")]
    pub storage: Option<PathBuf>,

    /// Leave parallel workers and JIT as the server has them [default: both off]
    #[arg(long)]
    pub parallel: bool,

    /// Run the query though it calls volatile functions or reads foreign tables: what that does outside of the
    /// database is not undone
    #[arg(long)]
    pub allow_volatile: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Write the report as JSON to this file, or as a page if its name ends in .html; may be repeated
    #[arg(long, value_name = "FILE")]
    pub report: Vec<PathBuf>,
}

impl ExplainArgs {
    /// What the library needs of them.
    ///
    /// # Errors
    /// `source-open` and `format` for the file of --storage.
    pub fn options(&self) -> Result<Options> {
        let cold = match (self.warm_only, self.cold, self.yes) {
            (true, ..) => ColdWish::Never,
            (_, true, _) => ColdWish::Required,
            (.., true) => ColdWish::Agreed,
            _ => ColdWish::Ask,
        };
        Ok(Options {
            query: self.query.clone(),
            timeout: Duration::from_secs_f64(self.timeout),
            max_bytes: self.max_size,
            runs: self.runs,
            cold,
            parallel: self.parallel,
            allow_volatile: self.allow_volatile,
            concurrency: self.concurrency,
            storage: self.storage.as_deref().map(storage).transpose()?,
            store: None,
        })
    }
}

/// Seconds that a run may take: the server counts them as milliseconds in 31 bits, and a day is long enough.
fn timeout(text: &str) -> Result<f64, String> {
    match values::seconds(text) {
        Ok(seconds) if seconds <= 86_400.0 => Ok(seconds),
        _ => Err("seconds are needed, from 0.1 to 86400 (a day)".to_owned()),
    }
}

/// What a run may read; there always is a bound.
fn max_size(text: &str) -> Result<u64, String> {
    match values::bytes(text)? {
        0 => Err("no query reads nothing: give what a run may read, as 4GiB".to_owned()),
        some => Ok(some),
    }
}

/// Reads what the storage can do from a file.
fn storage(path: &Path) -> Result<Measured> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::new(Code::SourceOpen, format!("cannot read {}: {e}", path.display())))?;
    let wrong = |what: String| {
        Error::new(Code::Format, format!("{} is no measurement of storage: {what}", path.display()))
            .hint("`inrush tune io --json` prints one.")
    };
    let mut json: serde_json::Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    // The report of `inrush tune io` has one for each tablespace: the first one that was measured counts.
    if let Some(targets) = json.get_mut("targets").and_then(serde_json::Value::as_array_mut) {
        let measured = targets.iter_mut().filter_map(|target| target.get_mut("measured"));
        json = measured.map(serde_json::Value::take).find(|one| !one.is_null()).unwrap_or_default();
    }
    let measured: Measured = serde_json::from_value(json).map_err(|e| wrong(e.to_string()))?;
    if measured.version != inrush_tune::io::measured::VERSION {
        return Err(wrong(format!("version {}", measured.version)));
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_a_run() {
        assert_eq!((timeout("0.1"), timeout("86400")), (Ok(0.1), Ok(86_400.0)));
        for wrong in ["0", "86401", "3000000", "1e9", "nan", "x", ""] {
            assert!(timeout(wrong).is_err_and(|said| said.contains("86400")), "{wrong}");
        }
        assert_eq!(max_size("1MiB"), Ok(1 << 20));
        assert!(max_size("0").is_err_and(|said| said.contains("as 4GiB")) && max_size("x").is_err());
    }
}
