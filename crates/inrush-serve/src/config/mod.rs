//! The configuration of `inrush serve`: TOML, read strictly.

mod env;
mod sense;
mod units;

pub use units::{Size, Span};

use inrush_core::{Code, Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A commented configuration, for `--example`.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Everything a process serves.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where rows go.
    #[serde(default)]
    pub server: Server,
    /// When a unit is committed.
    #[serde(default)]
    pub batch: Batch,
    /// Named bounds.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// Where metrics and health are told; nowhere if it is not there.
    pub admin: Option<Admin>,
    /// What is kept on disk while the server cannot take it.
    pub spill: Option<SpillConfig>,
    /// Windows: made, closed, retired.
    #[serde(default)]
    pub windows: Windows,
    /// HTTP inputs.
    #[serde(default)]
    pub http: Vec<Http>,
    /// Kafka inputs.
    #[serde(default)]
    pub kafka: Vec<Kafka>,
    /// Files that grow.
    #[serde(default)]
    pub tail: Vec<Tail>,
    /// Standard input.
    pub stdin: Option<Stdin>,
}

/// `[server]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// As psql names it; without it DATABASE_URL and the PG* environment count.
    pub to: Option<String>,
    /// Schema of the ledger.
    pub ledger: String,
    /// Connections that write.
    pub lanes: u32,
    /// `synchronous_commit` of the sessions; without it the server's own.
    pub synchronous_commit: Option<SyncCommit>,
    /// Never the extension's path, even where it is there.
    pub via: Via,
    /// Rows of tables that are spread over several servers go straight to where they belong.
    pub bypass: bool,
    /// Other ways to these servers than those the coordinator knows: `HOST[:PORT]=HOST[:PORT]`.
    pub nodes: Vec<String>,
    /// When rows are acknowledged. Without it: with several hosts in `to`, and a standby to be seen, when that has them.
    pub acknowledge: Option<Acknowledge>,
}

/// When rows are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acknowledge {
    /// When they are on the disk of the server that was written to.
    Local,
    /// When they are on the disk of a standby, too.
    Standby,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            to: None,
            ledger: "inrush_ledger".to_owned(),
            lanes: 4,
            synchronous_commit: None,
            via: Via::Auto,
            bypass: true,
            nodes: Vec::new(),
            acknowledge: None,
        }
    }
}

/// How rows go to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// Through the extension where it takes the leaf.
    Auto,
    /// COPY as every server has it.
    Copy,
}

/// `synchronous_commit`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum SyncCommit {
    Off,
    Local,
    RemoteWrite,
    On,
    RemoteApply,
}

impl SyncCommit {
    /// As SET takes it.
    pub fn sql(self) -> &'static str {
        match self {
            SyncCommit::Off => "off",
            SyncCommit::Local => "local",
            SyncCommit::RemoteWrite => "remote_write",
            SyncCommit::On => "on",
            SyncCommit::RemoteApply => "remote_apply",
        }
    }
}

/// `[batch]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Rows of a unit at most, but for the last part.
    pub rows: u64,
    /// Bytes of a unit at most, but for the last part.
    pub bytes: Size,
    /// Bytes of a unit that is worth its commit: it waits for no more of them.
    pub enough: Size,
    /// How long the first row of a smaller unit waits for others.
    pub linger: Span,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            rows: 500_000,
            bytes: Size(32 << 20),
            enough: Size(4 << 20),
            linger: Span(Duration::from_millis(200)),
        }
    }
}

/// `[limits]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Memory for rows that are not committed.
    pub memory: Size,
    /// How long a sender waits for memory before it is told to come back.
    pub wait: Span,
    /// Refused rows per minute from which on an input is stopped; 0 for no limit.
    pub rejects_per_minute: u64,
    /// How long keys of requests are remembered.
    pub remember_keys: Span,
    /// How long dead letters are kept; for ever if it is not there.
    pub keep_dead_letters: Option<Span>,
    /// How long a stop waits for what is under way.
    pub stop: Span,
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig {
            memory: Size(256 << 20),
            wait: Span(Duration::from_secs(5)),
            rejects_per_minute: 100_000,
            remember_keys: Span(Duration::from_secs(2 * 86400)),
            keep_dead_letters: None,
            stop: Span(Duration::from_secs(30)),
        }
    }
}

/// `[admin]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Address of /metrics, /health and /ready.
    pub listen: String,
}

/// `[spill]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpillConfig {
    /// Directory, of this process alone.
    pub dir: PathBuf,
    /// Bytes at most.
    #[serde(default = "spill_max")]
    pub max: Size,
    /// Bytes of a segment.
    #[serde(default = "spill_segment")]
    pub segment: Size,
}

fn spill_max() -> Size {
    Size(10 << 30)
}

fn spill_segment() -> Size {
    Size(64 << 20)
}

/// `[windows]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Windows {
    /// Whether this process maintains the tables it writes into.
    pub maintain: bool,
    /// How often.
    pub every: Span,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows { maintain: true, every: Span(Duration::from_secs(10)) }
    }
}

/// `into` of an input: which table, which columns.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Into {
    /// The table; `{table}`, `{topic}`, `{measurement}` and `{tag:NAME}` stand for what a path, a topic or a line says.
    pub table: Option<String>,
    /// Tables that the input may name: `calls`, `metrics_*`. Without it every table of the schema.
    pub tables: Option<Vec<String>>,
    /// Schema of tables that the input names.
    pub schema: Option<String>,
    /// Column = key of the input.
    pub columns: BTreeMap<String, String>,
    /// Column = value, the same for all rows.
    pub constants: BTreeMap<String, String>,
    /// What happens to keys that no column takes.
    pub unknown: Unknown,
    /// Makes tables that are missing.
    pub create: Option<CreateTable>,
    /// The tables are unlogged: accepted rows are lost if the database crashes.
    pub unlogged: bool,
}

/// Keys that no column takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// Left out.
    #[default]
    Ignore,
    /// The row is refused.
    Reject,
    /// Become columns.
    Add,
}

/// How missing tables are made.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTable {
    /// Name of the time column.
    #[serde(default = "time_column")]
    pub time: String,
    /// Width of a window.
    pub window: Span,
    /// How long rows are kept; for ever if it is not there.
    pub keep: Option<Span>,
}

fn time_column() -> String {
    "time".to_owned()
}

/// `[[http]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Names the input, in the ledger too: a new name is a new input.
    pub name: String,
    /// Address.
    pub listen: String,
    /// Who may send: `Authorization: Bearer TOKEN` or `Token TOKEN`. Without it everybody who can connect.
    #[serde(default)]
    pub tokens: Vec<String>,
    /// Certificate chain and key, PEM: then it is HTTPS.
    pub tls_cert: Option<PathBuf>,
    /// The key.
    pub tls_key: Option<PathBuf>,
    /// Bytes of a body at most, decompressed.
    #[serde(default = "max_body")]
    pub max_body: Size,
    /// Seconds until a request must have arrived.
    #[serde(default = "request_timeout")]
    pub timeout: Span,
    /// Connections at once.
    #[serde(default = "max_connections")]
    pub max_connections: usize,
    /// Whether a body without a key is stored once, too, however often the same bytes come.
    #[serde(default)]
    pub once_by_content: bool,
    /// Where rows go.
    #[serde(default)]
    pub into: Into,
}

fn max_body() -> Size {
    Size(256 << 20)
}

fn request_timeout() -> Span {
    Span(Duration::from_secs(60))
}

fn max_connections() -> usize {
    1024
}

/// Formats of inputs that do not say themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormatName {
    /// One JSON object per line.
    Ndjson,
    /// CSV.
    Csv,
    /// Influx line protocol.
    Line,
}

/// `[[kafka]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kafka {
    /// Names the input, in the ledger too.
    pub name: String,
    /// Bootstrap servers.
    pub brokers: String,
    /// Topics.
    pub topics: Vec<String>,
    /// Consumer group.
    pub group: String,
    /// Format of a message's value.
    #[serde(default = "ndjson")]
    pub format: FormatName,
    /// Columns of CSV, which has no header.
    #[serde(default)]
    pub csv_columns: Vec<String>,
    /// Where a partition without an offset begins.
    #[serde(default)]
    pub start: Start,
    /// Settings of librdkafka, as `security.protocol`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Where rows go.
    #[serde(default)]
    pub into: Into,
}

fn ndjson() -> FormatName {
    FormatName::Ndjson
}

/// Where an input begins that has not been read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// With the first there is.
    #[default]
    Earliest,
    /// With what comes from now on.
    Latest,
}

/// `[[tail]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tail {
    /// Names the input, in the ledger too.
    pub name: String,
    /// Files, with wildcards.
    pub files: String,
    /// Format of a line.
    pub format: FormatName,
    /// Columns of CSV without a header.
    #[serde(default)]
    pub csv_columns: Vec<String>,
    /// Where rows go.
    #[serde(default)]
    pub into: Into,
}

/// `[stdin]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stdin {
    /// Names the input.
    #[serde(default = "stdin_name")]
    pub name: String,
    /// Format of a line.
    pub format: FormatName,
    /// Columns of CSV without a header.
    #[serde(default)]
    pub csv_columns: Vec<String>,
    /// Where rows go.
    #[serde(default)]
    pub into: Into,
}

fn stdin_name() -> String {
    "stdin".to_owned()
}

impl Config {
    /// Reads a configuration; `env` gives variables of the environment.
    ///
    /// # Errors
    /// Code `usage`, with the line, for what is not TOML, keys that nobody knows and values that make no sense.
    pub fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Config> {
        let wrong = |e: &toml::de::Error| {
            let line = e.span().map(|span| text[..span.start].matches('\n').count() + 1);
            let place = line.map_or(String::new(), |line| format!("line {line} of "));
            let hint = e.span().and_then(|span| brackets(&text[span.start..]));
            Error::new(Code::Usage, format!("{place}the configuration: {}", e.message())).hint(
                hint.unwrap_or_else(|| {
                    "`inrush serve --example` prints a commented configuration.".to_owned()
                }),
            )
        };
        // Once as it stands, which knows the lines; then with the environment in it, which does not.
        let mut value = toml::Value::Table(toml::from_str::<toml::Table>(text).map_err(|e| wrong(&e))?);
        env::fill_in(&mut value, env)?;
        let config = match toml::from_str::<Config>(text) {
            Err(e) => match value.clone().try_into::<Config>() {
                // It was a variable that made the difference.
                Ok(config) => config,
                Err(_) => return Err(wrong(&e)),
            },
            Ok(_) => value.try_into::<Config>().map_err(|e| wrong(&e))?,
        };
        config.make_sense()?;
        Ok(config)
    }

    /// Every input, as kind and name, and where its rows go.
    pub fn inputs(&self) -> Vec<(String, &Into)> {
        let mut all: Vec<(String, &Into)> = Vec::new();
        all.extend(self.http.iter().map(|i| (format!("http:{}", i.name), &i.into)));
        all.extend(self.kafka.iter().map(|i| (format!("kafka:{}", i.name), &i.into)));
        all.extend(self.tail.iter().map(|i| (format!("tail:{}", i.name), &i.into)));
        all.extend(self.stdin.iter().map(|i| (format!("stdin:{}", i.name), &i.into)));
        all
    }
}

/// What helps where an error is about a whole section, which begins the text: its brackets may be the other ones.
fn brackets(text: &str) -> Option<String> {
    let several = ["http", "kafka", "tail"].into_iter();
    let two = several
        .filter(|kind| text.starts_with(&format!("[{kind}]")))
        .map(|kind| format!("Write [[{kind}]], with two brackets: there may be several."));
    let once = ["server", "batch", "limits", "admin", "spill", "windows", "stdin"].into_iter();
    let one = once
        .filter(|kind| text.starts_with(&format!("[[{kind}]]")))
        .map(|kind| format!("Write [{kind}], with one bracket: there is only one."));
    two.chain(one).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        Config::parse(text, &|name| (name == "LANES_TOKEN").then(|| "s3cret".to_owned()))
    }

    #[test]
    fn the_example_is_a_configuration() {
        let env = |name: &str| Some(format!("value of {name}"));
        let config = Config::parse(EXAMPLE, &env).expect("valid");
        assert!(!config.http.is_empty());
    }

    #[test]
    fn mistakes_have_a_line() {
        let wrong = |text: &str| parse(text).expect_err("refused").to_string();
        let typo = wrong("[batch]\nrows = 1\nlingr = '1s'\n");
        assert!(typo.contains("line 3") && typo.contains("lingr"), "{typo}");
        let unit = wrong("[batch]\nlinger = '1 week'\n");
        assert!(unit.contains("line 2") && unit.contains("no duration"), "{unit}");
        let long = wrong("[batch]\nlinger = '365001d'\n");
        assert!(long.contains("line 2") && long.contains("too long"), "{long}");
        for (text, hint) in [
            ("[batch]\nrows = 1\n[http]\nname = 'a'\n", "Write [[http]], with two brackets"),
            ("[batch]\nrows = 1\n[kafka]\n", "Write [[kafka]], with two brackets"),
            ("[batch]\nrows = 1\n[tail]\n", "Write [[tail]], with two brackets"),
            ("[batch]\nrows = 1\n[[stdin]]\nformat = 'csv'\n", "Write [stdin], with one bracket"),
            ("[batch]\nrows = 1\n[[http]]\nnam = 'a'\n", "`inrush serve --example`"),
        ] {
            let error = parse(text).expect_err("refused");
            assert!(error.fact().contains("line "), "{error}");
            assert!(error.hint_text().is_some_and(|said| said.contains(hint)), "{error}");
        }
    }

    #[test]
    fn the_environment_is_filled_in() {
        let config =
            parse("[[http]]\nname = 'a'\nlisten = ':1'\ntokens = ['${LANES_TOKEN}']\n").expect("valid");
        assert_eq!(config.http[0].tokens, ["s3cret"]);
        assert!(parse("[[http]]\nname = 'a'\nlisten = '${NOT_SET}'\n").is_err());
    }
}
