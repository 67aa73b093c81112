//! Where the time went, in situations made for it: the sentence of the report against the figures of a sampler that
//! is not ours.

mod harness;

use harness::{Running, inrush};
use inrush_testkit::fixtures::{Case, Form};
use inrush_testkit::proxy::Proxy;
use inrush_testkit::{Database, Postgres, ServerOptions, Version, require_server};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

/// One load at a time: two samplers agree on what goes on, not on which of eight loads a machine lets run next.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at pg_stat_activity a hundred times a second from the first connection of a load to a second after its last; if
/// it sees none, as of a load that is over at once, for five seconds. Holds advisory lock 1 once it looks.
const WATCHER: &str = "
    SET client_min_messages = error;
    CREATE TEMP TABLE looks (kind text, event text);
    SELECT FROM pg_advisory_lock(1);
    DO $$
    DECLARE seen int; silent int := 0; ever boolean := false; looks_left int := 500;
    BEGIN
      LOOP
        PERFORM pg_stat_clear_snapshot();
        INSERT INTO looks SELECT coalesce(wait_event_type, ''), coalesce(wait_event, '') FROM pg_stat_activity
         WHERE application_name = 'inrush load' AND datname = current_database();
        GET DIAGNOSTICS seen = ROW_COUNT;
        ever := ever OR seen > 0;
        silent := CASE WHEN seen = 0 AND ever THEN silent + 1 ELSE 0 END;
        looks_left := looks_left - 1;
        EXIT WHEN silent > 60 OR NOT ever AND looks_left < 0;
        PERFORM pg_sleep(0.01);
      END LOOP;
    END $$;
    SELECT kind, event, count(*) FROM looks GROUP BY 1, 2";

const WATCHER_LOOKS: &str = "
    SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 1
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Shares by what a person would make of the events, without our code.
fn shares(looks: &str) -> BTreeMap<&'static str, f64> {
    let mut counts = BTreeMap::new();
    let mut sum = 0.0;
    for line in looks.lines() {
        let mut fields = line.split('|');
        let (kind, event) = (fields.next().unwrap(), fields.next().unwrap());
        let count: f64 = fields.next().unwrap().parse().unwrap();
        let what = match (kind, event) {
            ("", _) | (_, "") => "running",
            ("Client", _) => "rows",
            ("Lock", "extend") => "extend-lock",
            (_, event) if event.to_lowercase().starts_with("wal") => "wal",
            ("IO", _) => "data-io",
            _ => "lock",
        };
        *counts.entry(what).or_default() += count;
        sum += count;
    }
    counts.values_mut().for_each(|count| *count /= sum);
    counts
}

/// The name [`shares`] has for a class of ours.
fn plain(class: &str) -> &str {
    match class {
        "cpu" | "cpu-queue" => "running",
        "client" | "network" => "rows",
        other => other,
    }
}

/// A load that was watched: its report, what it said, and the shares by the other sampler.
struct Watched {
    report: Value,
    stderr: String,
    others: BTreeMap<&'static str, f64>,
}

impl Watched {
    fn limit(&self) -> &str {
        self.report["profile"]["limit"]["class"]
            .as_str()
            .unwrap_or_else(|| panic!("no limit: {}", self.report))
    }

    fn sentence(&self) -> &str {
        self.report["profile"]["limit"]["sentence"].as_str().unwrap()
    }

    fn share(&self, name: &str) -> f64 {
        let split = self.report["profile"]["split"].as_array().unwrap();
        let of = |share: &&Value| plain(share["class"].as_str().unwrap()) == name;
        split.iter().filter(of).map(|share| share["share"].as_f64().unwrap()).sum()
    }

    /// The sentence names what the other sampler saw most of. Two that are as good as equal may change places.
    #[track_caller]
    fn agrees(&self) {
        let mut ranked: Vec<_> = self.others.iter().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(a.1));
        eprintln!("{} | {:?} | ours {}", self.sentence(), ranked, self.report["profile"]["split"]);
        let named = plain(self.limit());
        let theirs = self.others.get(named).copied().unwrap_or_default();
        assert!(theirs > ranked[0].1 - 0.1, "{} named, the others saw {ranked:?}", self.sentence());
        assert!((self.share(named) - theirs).abs() < 0.2, "{named}: {} and {theirs}", self.share(named));
    }
}

fn watched(database: &Database<'_>, url: &str, dir: &Path, args: &[&str]) -> Watched {
    let mut watcher = database.server().psql_command(database.name());
    let watcher = watcher.args(["-XqAt", "-c", WATCHER]).stdout(Stdio::piped()).spawn().expect("psql");
    let late = Instant::now() + PATIENCE;
    while database.psql(WATCHER_LOOKS) == "0" {
        assert!(Instant::now() < late, "the watcher does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut command = inrush(dir);
    command.args([
        "load",
        "rows.csv",
        "-t",
        "t",
        "--no-header",
        "--no-analyze",
        "--report",
        "r.json",
        "--to",
        url,
    ]);
    let mut load = Running::start(command.args(args), None);
    let ended = load.wait_until(Instant::now() + PATIENCE).is_some();
    let outcome = if ended { load.finish() } else { load.kill9() };
    outcome.expect_code(0);
    let looks = watcher.wait_with_output().expect("the watcher's answer");
    let report = std::fs::read_to_string(dir.join("r.json")).expect("a report");
    Watched {
        report: serde_json::from_str(&report).expect("JSON"),
        stderr: outcome.stderr,
        others: shares(&String::from_utf8_lossy(&looks.stdout)),
    }
}

/// A directory with `rows` rows of case C1, and the table for them.
fn place(database: &Database<'_>, rows: u64, kind: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let file = File::create(dir.path().join("rows.csv")).expect("a file");
    Case::C1.write(Form::Csv, rows, 1, file).expect("rows");
    database.psql(&format!("CREATE {kind} TABLE t ({})", Case::C1.columns()));
    dir
}

fn durable_server(version: impl Into<Version>, conf: &[(&str, &str)]) -> Postgres {
    Postgres::start(&ServerOptions {
        version: version.into(),
        conf,
        durable: true,
        ..ServerOptions::default()
    })
}

#[test]
fn many_sessions_and_one_table() {
    require_server!(15);
    let _alone = alone();
    let server = durable_server(15, &[("shared_buffers", "256MB"), ("max_wal_size", "4GB")]);
    for kind in ["UNLOGGED", ""] {
        let database = server.fresh_database();
        // Seconds: of one second two samplers see different halves while the machine has other work.
        let dir = place(&database, 3_000_000, kind);
        let load = watched(&database, &database.url(), dir.path(), &["--jobs", "8"]);
        load.agrees();
        // One relation, eight sessions: they do meet at its end, whatever else there is.
        assert!(load.others.contains_key("extend-lock"), "{:?}", load.others);
    }
}

#[test]
fn commits_that_wait_for_the_disk() {
    require_server!(15);
    let _alone = alone();
    let server = durable_server(15, &[]);
    let database = server.fresh_database();
    // Long enough for two samplers to see the same.
    let dir = place(&database, 240_000, "");
    // A transaction for each few rows: what is left to wait for is the sync of WAL.
    let small = ["--jobs", "4", "--chunk", "4KiB", "--unit-bytes", "4KiB", "--unit-millis", "1"];
    watched(&database, &database.url(), dir.path(), &small).agrees();
}

#[test]
fn checkpoints_one_after_the_other() {
    require_server!(15);
    let _alone = alone();
    let server = durable_server(15, &[("max_wal_size", "32MB"), ("min_wal_size", "32MB")]);
    let database = server.fresh_database();
    let dir = place(&database, 1_600_000, "");
    let load = watched(&database, &database.url(), dir.path(), &["--jobs", "2"]);
    load.agrees();
    assert!(load.sentence().contains("with a checkpoint every"), "{}", load.sentence());
    assert!(load.sentence().contains("max_wal_size of 32MB"), "{}", load.sentence());
}

#[test]
fn somebody_holds_a_lock() {
    let _alone = alone();
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = place(&database, 20_000, "");
    let mut holder = database.server().psql_command(database.name());
    let mut holder =
        holder.args(["-XqAt"]).env("PGAPPNAME", "the holder").stdin(Stdio::piped()).spawn().unwrap();
    let mut input = holder.stdin.take().unwrap();
    input.write_all(b"BEGIN; LOCK TABLE t IN EXCLUSIVE MODE;\n").unwrap();
    while database.psql("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND granted") == "0" {
        std::thread::sleep(Duration::from_millis(10));
    }
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(4));
        input.write_all(b"COMMIT;\n").unwrap();
    });
    let load = watched(&database, &database.url(), dir.path(), &["--jobs", "2"]);
    release.join().unwrap();
    holder.wait().unwrap();
    load.agrees();
    assert_eq!(load.limit(), "lock");
    assert!(load.stderr.contains("waiting for a lock on t held by process"), "{}", load.stderr);
    let blocker = &load.report["profile"]["blockers"][0];
    assert_eq!(blocker["application"], "the holder");
    assert_eq!(
        (blocker["state"].as_str(), blocker["own"].as_bool()),
        (Some("idle in transaction"), Some(false))
    );
}

#[test]
fn a_slow_client() {
    let _alone = alone();
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = place(&database, 20_000, "");
    let slow = ["--jobs", "2", "--max-rate", "4MB", "--chunk", "64KiB"];
    let load = watched(&database, &database.url(), dir.path(), &slow);
    load.agrees();
    assert_eq!(load.limit(), "client");
    assert!(load.sentence().contains("until input was read"), "{}", load.sentence());
}

#[test]
fn a_full_network() {
    let _alone = alone();
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = place(&database, 20_000, "");
    let proxy = Proxy::start(database.server());
    // Some seconds: connecting and the end of it are to weigh little.
    proxy.throttle(2_000_000);
    let load = watched(&database, &database.tcp_url_via(proxy.port()), dir.path(), &["--jobs", "2"]);
    load.agrees();
    assert_eq!(load.limit(), "network");
}

#[test]
fn a_short_load_and_one_that_is_not_sampled() {
    let _alone = alone();
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = place(&database, 10_000, "");
    let load = watched(&database, &database.url(), dir.path(), &["--sample-hz", "0", "--max-rate", "10MB"]);
    assert!(load.report["profile"].is_null());
    database.psql("TRUNCATE t");
    std::fs::write(dir.path().join("rows.csv"), "1,,,,,,,,,,,,,\n").unwrap();
    let load = watched(&database, &database.url(), dir.path(), &["--again"]);
    assert!(load.report["profile"]["limit"].is_null());
}

/// Every field of the page is there, and every field that is there is on the page.
#[test]
fn the_profile_is_as_documented() {
    let _alone = alone();
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = place(&database, 10_000, "");
    let load = watched(&database, &database.url(), dir.path(), &["--max-rate", "8MB", "--chunk", "64KiB"]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/profile.md");
    let page = std::fs::read_to_string(page).unwrap();
    let profile = load.report["profile"].as_object().unwrap();
    let documented: Vec<&str> = page
        .split("## As JSON")
        .nth(1)
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(field, _)| field.trim_end_matches("[]"))
        .collect();
    for field in profile.keys() {
        assert!(documented.contains(&field.as_str()), "{field} is not in docs/profile.md");
    }
    for field in documented {
        assert!(profile.contains_key(field) || field == "blockers", "docs/profile.md has {field}");
    }
    for share in profile["split"].as_array().unwrap() {
        let class = share["class"].as_str().unwrap();
        assert!(page.contains(&format!("| `{class}` |")), "{class} is not in docs/profile.md");
    }
    let series = profile["series"]["bytes_in"].as_array().unwrap();
    let bytes: u64 = series.iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(Some(bytes), load.report["totals"]["bytes_in"].as_u64());
}
