//! The commands around a load, from outside: local, sniff, loads, recover, and what every command has in common.

use inrush_testkit::fixtures::{Case, Form};
use inrush_testkit::{Database, Postgres, Version};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const INRUSH: &str = env!("CARGO_BIN_EXE_inrush");

/// A directory for files and for an embedded server, which goes with it.
struct Place {
    dir: TempDir,
    /// DATABASE_URL of its commands; none: the embedded server.
    url: Option<String>,
}

impl Place {
    fn new(database: Option<&Database<'_>>) -> Place {
        let dir = tempfile::tempdir().expect("a directory");
        // As root, the account of the embedded server passes through it.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).expect("own directory");
        Place { dir, url: database.map(Database::url) }
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, content).expect("own directory");
        path
    }

    fn prepared(&self, mut command: Command) -> Command {
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("PG") || name.starts_with("INRUSH_") || name == "DATABASE_URL" {
                command.env_remove(name);
            }
        }
        command.envs(self.url.as_ref().map(|url| ("DATABASE_URL", url)));
        command.env("INRUSH_LOCAL_DIR", self.dir.path().join("local"));
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    fn inrush(&self, words: &[&str]) -> Command {
        let mut command = self.prepared(Command::new(INRUSH));
        command.args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Said {
        Said::by(self.inrush(words).output().expect("the command runs"))
    }

    /// A line as a user would paste it.
    fn paste(&self, line: &str) -> Said {
        let bin = Path::new(INRUSH).parent().expect("a directory").display().to_string();
        let mut command = self.prepared(Command::new("sh"));
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{bin}:{path}")).args(["-c", line]);
        Said::by(command.output().expect("a shell"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.dir.path().join("local").exists() {
            self.run(&["local", "destroy", "--yes"]);
        }
    }
}

struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn by(output: Output) -> Said {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        let said = Said {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        };
        assert!(!said.err.contains("panicked"), "{}", said.err);
        assert!(!said.err.contains('\u{1b}'), "colours without a terminal: {}", said.err);
        said
    }

    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    #[track_caller]
    fn fails(self, code: &str) -> String {
        assert_eq!(self.code, 2, "{}{}", self.out, self.err);
        assert!(self.err.contains(&format!("error[{code}]: ")), "{}", self.err);
        self.err
    }

    #[track_caller]
    fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).expect("JSON")
    }
}

#[test]
fn the_life_of_an_embedded_server() {
    let place = Place::new(None);
    assert!(place.run(&["local", "status"]).ok().starts_with("there is no embedded server yet"));
    assert_eq!(place.run(&["local", "status", "--json"]).json()["state"], "absent");
    // Who only looks creates no server.
    assert!(place.run(&["loads", "list"]).fails("connect").contains("hint: Name a server"));
    assert!(!place.dir.path().join("local/data").exists());

    place.file("a.csv", "id,name\n1,x\n2,y\n");
    let loaded = place.run(&["load", "a.csv"]);
    assert!(loaded.err.contains("creating an embedded PostgreSQL"), "{}", loaded.err);
    let report = loaded.ok();
    let look = report.lines().find_map(|line| line.strip_prefix("look at it with: ")).expect("a way to look");
    assert!(place.paste(&look.replace("LIMIT 10", "ORDER BY id")).ok().contains("(2 rows)"));
    assert_eq!(place.run(&["local", "psql", "-c", "SELECT 1", "-At"]).ok(), "1\n");
    assert_eq!(place.run(&["local", "psql", "-c", "SELECT x"]).code, 1);

    let url = place.run(&["local", "url"]).ok();
    assert!(url.starts_with("postgresql://") && url.lines().count() == 1, "{url}");
    let status = place.run(&["local", "status", "--json"]).json();
    assert_eq!((status["state"].as_str(), status["url"].as_str()), (Some("running"), Some(url.trim())));
    assert!(status["bytes"].as_u64().is_some_and(|n| n > 1_000_000), "{status}");
    assert!(place.run(&["local", "start"]).ok().contains("runs already"));

    assert_eq!(place.run(&["local", "stop"]).ok(), "stopped\n");
    assert_eq!(place.run(&["local", "stop"]).ok(), "it did not run\n");
    assert!(place.run(&["local", "status"]).ok().starts_with("stopped"));
    // It is started again for whoever looks.
    assert!(place.run(&["loads", "list"]).ok().contains("public.a"));

    place.run(&["local", "destroy"]).fails("usage");
    assert!(place.dir.path().join("local/data").exists());
    assert_eq!(place.run(&["local", "destroy", "--yes"]).ok(), "removed\n");
    assert_eq!(place.run(&["local", "status", "--json"]).json()["state"], "absent");
}

#[test]
fn what_sniff_prints_can_be_pasted() {
    let server = Postgres::shared(Version::Any);
    let files = [
        ("plain.csv", "id,name,at\n1,\"a, b\",2024-01-01\n2,,2024-01-02\n"),
        ("odd names.csv", "ctid;Größe;a,b;order;it's\n1;2.5;x;\"q;\"\"q\";t\n2;;y;z;f\n"),
        ("tabs.tsv", "1\tx\n2\ty\n"),
        ("pg.txt", "1\tx\\ty\n2\t\\N\n"),
        ("keys.ndjson", "{\"id\":1,\"tableoid\":\"x\",\"v\":[1,2]}\n{\"id\":2,\"tableoid\":null}\n"),
    ];
    for (name, content) in files {
        let database = server.fresh_database();
        let place = Place::new(Some(&database));
        place.file(name, content);
        let sniffed = place.run(&["sniff", name, "--table", "public.pasted"]).ok();
        let (_, rest) = sniffed.split_once("CREATE TABLE").expect("a statement");
        let (create, command) = rest.split_once(";\n\n").expect("a command behind it");
        database.psql(&format!("CREATE TABLE{create}"));
        place.paste(command).ok();
        assert_eq!(database.psql("SELECT count(*) FROM public.pasted"), "2", "{sniffed}");
        // The columns that hold something are those the file has something for.
        let json = place.run(&["sniff", name, "--table", "public.pasted", "--json"]).json();
        let columns = json["columns"].as_array().expect("columns");
        let types = database.psql(
            "SELECT string_agg(attname || ':' || format_type(atttypid, atttypmod), ',' ORDER BY attnum)
               FROM pg_attribute WHERE attrelid = 'public.pasted'::regclass AND attnum > 0",
        );
        assert_eq!(types.matches(':').count(), columns.len(), "{types}");
        let words: Vec<&str> =
            json["command"].as_array().expect("words").iter().filter_map(|w| w.as_str()).collect();
        assert_eq!(words[..3], ["inrush", "load", name]);
        // The same command again loads nothing.
        assert!(place.paste(command).ok().contains("nothing loaded"));
    }
}

#[test]
fn sniff_names_both_sides_of_a_clash() {
    let place = Place::new(None);
    place.file("a.csv", "id,name\n1,x\n");
    let error = place.run(&["sniff", "a.csv", "--format", "parquet"]).fails("clash");
    assert!(error.contains("parquet") && error.contains("signature"), "{error}");
    place.file("p.parquet", "PAR1 and no more");
    place.run(&["sniff", "p.parquet"]).fails("format");
    place.run(&["sniff", "missing.csv"]).fails("source-open");
}

#[test]
fn loads_are_listed_shown_undone_and_forgotten() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let place = Place::new(Some(&database));
    assert_eq!(place.run(&["loads", "list"]).ok(), "nothing has been loaded here\n");
    assert_eq!(place.run(&["loads", "list", "--json"]).json(), serde_json::json!([]));
    place.run(&["loads", "show", "1"]).fails("ledger");
    assert_eq!(place.run(&["loads", "prune"]).ok(), "0 loads forgotten; their rows stay\n");

    database.psql("CREATE TABLE t (id int PRIMARY KEY, name text)");
    place.file("a.csv", "1,x\n2,y\n");
    place.file("b.csv", "3,z\nfour,z\n5,z\n");
    place.run(&["load", "a.csv", "-t", "t", "--no-header", "--load-id", "first"]).ok();
    let rejected = place.run(&["load", "b.csv", "-t", "t", "--no-header", "--max-rejects", "1"]);
    assert_eq!(rejected.code, 1, "{}", rejected.err);

    let list = place.run(&["loads", "list"]).ok();
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("ID  STATE  TABLE"), "{list}");
    assert!(lines[1].contains("b.csv") && lines[2].contains("first") && lines.len() == 3, "{list}");
    assert_eq!(place.run(&["loads", "list", "-n", "1", "--json"]).json().as_array().map(Vec::len), Some(1));

    let shown = place.run(&["loads", "show", "first"]).ok();
    assert!(shown.contains("load 1 (first): done") && shown.contains("2 rows in 1 range"), "{shown}");
    let json = place.run(&["loads", "show", "1", "--json"]).json();
    assert_eq!((json["rows"].as_i64(), json["state"].as_str()), (Some(2), Some("done")));
    assert_eq!(json["command"][0], place.dir.path().join("a.csv").display().to_string());

    let text = place.run(&["loads", "rejects", "2"]).ok();
    assert!(text.contains("b.csv:2") && text.contains("22P02") && text.contains("four,z"), "{text}");
    assert_eq!(place.run(&["loads", "rejects", "2", "--raw"]).ok(), "four,z\n");
    let reject = place.run(&["loads", "rejects", "2", "--json"]).json();
    assert_eq!((reject["line"].as_i64(), reject["column"].as_str()), (Some(2), Some("id")));

    // A row that was changed since is not the load's any more.
    database.psql("UPDATE t SET name = 'new' WHERE id = 1");
    place.run(&["loads", "undo", "first"]).fails("ledger");
    assert_eq!(database.psql("SELECT count(*) FROM t"), "4");
    assert!(place.run(&["loads", "undo", "first", "--partial"]).ok().contains("1 rows removed"));
    assert_eq!(place.run(&["loads", "undo", "2", "--json"]).json()["removed"], 2);
    assert_eq!(database.psql("SELECT string_agg(id::text, ',') FROM t"), "1");
    place.run(&["loads", "undo", "2"]).fails("ledger");

    assert_eq!(
        place.run(&["loads", "prune", "--older-than", "1d"]).ok(),
        "0 loads forgotten; their rows stay\n"
    );
    assert_eq!(place.run(&["loads", "prune", "--older-than", "0", "--json"]).json()["forgotten"], 2);
    assert_eq!(place.run(&["loads", "list"]).ok(), "nothing has been loaded here\n");
}

/// A catalog as Citus has it, as far as a load asks it, with the table in it as a reference table; its rows stay where they
/// are. What Citus itself does is tested in tests/cluster/citus.rs.
fn listed_by_citus(database: &Database<'_>, table: &str) {
    database.psql(&format!(
        "SET allow_system_table_mods = on; SET client_min_messages = error;
         CREATE TABLE IF NOT EXISTS pg_catalog.pg_dist_partition
           (logicalrelid regclass, partmethod \"char\", partkey text, colocationid int, repmodel \"char\");
         CREATE TABLE IF NOT EXISTS pg_catalog.pg_dist_shard
           (logicalrelid regclass, shardid bigint, shardminvalue text, shardmaxvalue text);
         CREATE TABLE IF NOT EXISTS pg_catalog.pg_dist_placement (shardid bigint, groupid int);
         CREATE TABLE IF NOT EXISTS pg_catalog.pg_dist_local_group (groupid int);
         CREATE TABLE IF NOT EXISTS pg_catalog.pg_dist_node (groupid int, nodename text, nodeport int,
           noderole text, isactive bool, nodecluster text);
         CREATE OR REPLACE FUNCTION pg_catalog.column_to_column_name(regclass, text) RETURNS text
           LANGUAGE sql AS 'SELECT NULL::text';
         CREATE OR REPLACE FUNCTION pg_catalog.shard_name(regclass, bigint) RETURNS text
           LANGUAGE sql AS 'SELECT $1::text';
         INSERT INTO pg_catalog.pg_dist_partition VALUES ('{table}', 'n', NULL, 1, 't')"
    ));
}

#[test]
fn what_is_in_shards_is_not_judged_by_this_servers_transactions() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let place = Place::new(Some(&database));
    database.psql("CREATE TABLE t (id int); CREATE UNLOGGED TABLE u (id int); CREATE TABLE apart (id int)");
    place.file("a.csv", "1\n2\n");
    let load = |table: &str, more: &[&str]| {
        place.run(&[&["load", "a.csv", "-t", table, "--no-header"][..], more].concat())
    };
    load("t", &[]).ok();
    listed_by_citus(&database, "t");
    listed_by_citus(&database, "u");
    for partial in [&[][..], &["--partial"][..]] {
        let error = place.run(&[&["loads", "undo", "1"][..], partial].concat()).fails("ledger");
        assert!(error.contains("are in shards of t"), "{error}");
    }
    assert_eq!(database.psql("SELECT count(*) FROM t"), "2");
    assert!(load("t", &["--again", "--unlogged"]).fails("table").contains("Citus has the rows"));
    assert!(load("u", &[]).fails("table").contains("is unlogged, and Citus has its rows"));
    load("u", &["--no-ledger"]).ok();
    load("t", &["--again"]).ok();
    load("apart", &["--unlogged"]).ok();
    assert_eq!(database.psql("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u)"), "4|2");
}

#[test]
fn nothing_is_called_undone_of_which_nothing_was_removed() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let place = Place::new(Some(&database));
    database.psql("CREATE TABLE t (id int)");
    place.file("a.csv", "1\n2\n");
    place.run(&["load", "a.csv", "-t", "t", "--no-header"]).ok();
    database.psql("UPDATE t SET id = id");
    let error = place.run(&["loads", "undo", "1", "--partial"]).fails("ledger");
    assert!(error.contains("no row of load 1 is as it was loaded, 2 were recorded"), "{error}");
    assert!(place.run(&["load", "a.csv", "-t", "t", "--no-header"]).ok().contains("nothing loaded"));
}

/// A file of more than one commit unit, and how many rows it has.
fn large_file(place: &Place) -> usize {
    let rows = 700_000;
    let path = place.dir.path().join("large.csv");
    let mut file = std::io::BufWriter::new(fs::File::create(path).expect("own directory"));
    for i in 0..rows {
        writeln!(file, "{i},some text of row {i} to fill it").expect("room on the disk");
    }
    rows
}

/// Starts a slow load of the large file into `t` and waits until some of it is committed.
fn half_done(place: &Place, database: &Database<'_>) -> Child {
    let words = [
        "load",
        "large.csv",
        "-t",
        "t",
        "--no-header",
        "--max-rate",
        "6M",
        "--unit-millis",
        "200",
        "--chunk",
        "256K",
    ];
    let child = place.inrush(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let began = Instant::now();
    while database.psql("SELECT count(*) FROM t") == "0" {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is committed");
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

fn kill(mut child: Child) {
    child.kill().expect("our child");
    child.wait().expect("our child");
}

#[test]
fn recover_finishes_or_undoes_a_dead_load() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let place = Place::new(Some(&database));
    assert!(place.run(&["recover"]).ok().starts_with("nothing is open"));
    database.psql("CREATE TABLE t (id int, name text)");
    let rows = large_file(&place).to_string();
    kill(half_done(&place, &database));
    // The server notices within moments that the client has gone.
    let began = Instant::now();
    while place.run(&["recover", "--json"]).json()[0]["load"]["running"] != 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "connections of a dead client stay");
    }
    let said = place.run(&["recover"]).ok();
    assert!(said.contains("inrush recover --finish 1") && said.contains("inrush recover --undo 1"), "{said}");
    place.run(&["recover", "--finish", "7"]).fails("ledger");
    assert_ne!(database.psql("SELECT count(*) FROM t"), rows);
    let finished = place.run(&["recover", "--finish", "1", "--", "--jobs", "2"]).ok();
    assert!(finished.contains("of an earlier run were there and skipped"), "{finished}");
    assert_eq!(
        database.psql("SELECT count(*) || ' ' || count(DISTINCT id) FROM t"),
        format!("{rows} {rows}")
    );
    assert!(place.run(&["recover"]).ok().starts_with("nothing is open"));
    place.run(&["recover", "--finish", "1"]).fails("usage");

    database.psql("CREATE TABLE kept (id int, name text); INSERT INTO kept VALUES (-1, 'mine')");
    database.psql("DROP TABLE t; ALTER TABLE kept RENAME TO t");
    place.run(&["loads", "prune", "--older-than", "0"]).ok();
    let child = {
        let words =
            ["load", "large.csv", "-t", "t", "--no-header", "--max-rate", "6M", "--unit-millis", "200"];
        let mut command = place.inrush(&words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    let began = Instant::now();
    while database.psql("SELECT count(*) FROM t") == "1" {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is committed");
        std::thread::sleep(Duration::from_millis(50));
    }
    kill(child);
    assert!(place.run(&["recover", "--undo", "2"]).ok().contains("load 2 undone"));
    assert_eq!(database.psql("SELECT string_agg(name, ',') FROM t"), "mine");
}

#[test]
fn recover_ends_the_connections_of_a_client_that_is_silent() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let place = Place::new(Some(&database));
    database.psql("CREATE TABLE t (id int, name text)");
    let rows = large_file(&place).to_string();
    let child = half_done(&place, &database);
    let pid = rustix::process::Pid::from_child(&child);
    // As a machine that has gone to sleep: its connections stay.
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("our child");
    assert!(place.run(&["recover", "--finish"]).ok().is_empty(), "a load that is worked on is left alone");
    std::thread::sleep(Duration::from_secs(2));
    let said = place.run(&["recover", "--silent", "1"]);
    assert!(said.err.contains("ended"), "{}{}", said.out, said.err);
    place.run(&["recover", "--finish", "--silent", "1"]).ok();
    assert_eq!(
        database.psql("SELECT count(*) || ' ' || count(DISTINCT id) FROM t"),
        format!("{rows} {rows}")
    );
    // It wakes up and finds itself fenced: nothing comes twice.
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("our child");
    let output = child.wait_with_output().expect("our child");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(database.psql("SELECT count(*) FROM t"), rows);
}

#[test]
fn a_reader_that_has_gone_breaks_nothing() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let place = Place::new(Some(&database));
    place.file("a.csv", "id\n1\n2\n");
    for words in [&["load", "a.csv"][..], &["loads", "list"], &["man"], &["completions", "bash"], &["codes"]]
    {
        let mut child =
            place.inrush(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        drop(child.stdout.take());
        assert_eq!(Said::by(child.wait_with_output().expect("our child")).code, 0, "{words:?}");
    }
    assert_eq!(database.psql("SELECT count(*) FROM a"), "2");
}

/// The paths of all fields, `[]` for the elements of a list.
fn fields(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                found.push(path.clone());
                // Dialect and position have the fields of their kind; the profile has a page of its own.
                if !["inputs[].format", "error.position", "profile"].contains(&path.as_str()) {
                    fields(value, &path, found);
                }
            }
        }
        serde_json::Value::Array(list) => {
            list.iter().for_each(|value| fields(value, &format!("{path}[]"), found));
        }
        _ => {}
    }
}

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn the_report_is_as_documented() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let place = Place::new(Some(&database));
    database.psql("CREATE TABLE t (id int, name text)");
    place.file("good.csv", &"1,x\n".repeat(20_000));
    place.file("bad.csv", "1,x\nx,x\n");
    // Slow enough to be sampled.
    let slow = ["--max-rate", "160KB", "--chunk", "4KiB"];
    let good = place
        .run(&[&["load", "good.csv", "-t", "t", "--drop-cache", "--report", "-"], &slow[..]].concat())
        .json();
    assert_eq!((good["version"].as_i64(), good["outcome"].as_str()), (Some(1), Some("loaded")));
    assert_eq!(good["totals"]["rows"], 20_000);
    place.run(&["load", "bad.csv", "-t", "t", "--report", "r.json", "--quiet"]).fails("rejects");
    let bad = fs::read_to_string(place.dir.path().join("r.json")).expect("a report of the failure");
    let bad: serde_json::Value = serde_json::from_str(&bad).expect("JSON");
    assert_eq!((bad["outcome"].as_str(), bad["error"]["code"].as_str()), (Some("failed"), Some("rejects")));
    let mut found = Vec::new();
    for report in [&good, &bad] {
        fields(report, "", &mut found);
    }
    let page = page("report.md");
    for field in &found {
        assert!(page.contains(&format!("| `{field}` |")), "{field} is not in docs/report.md");
    }
    let documented = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    for (field, _) in documented {
        assert!(found.iter().any(|found| found == field), "docs/report.md has {field}, the report has not");
    }
    // Before anything is loaded.
    let error = place
        .run(&["load", "good.csv", "-t", "t", "--again", "--report", "no/such/dir.json"])
        .fails("output");
    assert!(error.contains("no/such/dir.json"), "{error}");
    assert_eq!(database.psql("SELECT count(*) FROM t"), "20000");
}

#[test]
fn two_files_at_once_under_one_load_id() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let place = Place::new(Some(&database));
    database.psql("CREATE TABLE t (id int)");
    place.file("a.csv", "1\n");
    place.file("b.csv", "2\n");
    for i in 0..8 {
        let id = format!("at-once-{i}");
        let both = ["a.csv", "b.csv"].map(|file| {
            let mut load = place.inrush(&["load", file, "-t", "t", "--load-id", &id]);
            load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("inrush")
        });
        let mut both = both.map(|load| Said::by(load.wait_with_output().expect("an end")));
        both.sort_by_key(|said| said.code);
        let [loaded, refused] = both;
        loaded.ok();
        // Which it is depends on whether the first had committed anything when the second came.
        let code = if refused.err.contains("error[fenced]") { "fenced" } else { "source-changed" };
        refused.fails(code);
        assert_eq!(database.psql("SELECT count(*) FROM t"), format!("{}", i + 1));
    }
}

#[test]
fn the_wal_writer_is_woken_where_wal_is_written() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let place = Place::new(Some(&database));
    let file = fs::File::create(place.dir.path().join("c1.csv")).expect("a file");
    Case::C1.write(Form::CsvHeader, 60_000, 1, file).expect("rows");
    let nudges = |table: &str| {
        let report = place.run(&["load", "c1.csv", "-t", table, "--report", "-", "--jobs", "2"]).json();
        report["totals"]["wal_nudges"].as_u64().expect("a number")
    };
    assert!(nudges("logged") > 0, "26 MB of WAL, and the WAL writer was never woken");
    database.psql("CREATE UNLOGGED TABLE unlogged (LIKE logged)");
    assert_eq!(nudges("unlogged"), 0);
    assert_eq!(
        database.psql("SELECT (SELECT count(*) FROM logged), (SELECT count(*) FROM unlogged)"),
        "60000|60000"
    );
}

#[test]
fn the_page_of_errors_is_that_of_the_program() {
    let place = Place::new(None);
    assert_eq!(
        place.run(&["codes", "--markdown"]).ok(),
        page("errors.md"),
        "run: inrush codes --markdown > docs/errors.md"
    );
}

#[test]
fn completions_and_man_pages() {
    let place = Place::new(None);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completions", shell]).ok();
        assert!(script.contains("max-rejects"), "{shell}");
        if shell == "bash" {
            place.file("c.bash", &script);
            place.paste("bash -n c.bash").ok();
        }
    }
    assert!(place.run(&["man"]).ok().contains(".TH inrush 1"));
    place.run(&["man", "pages"]).ok();
    for page in ["inrush.1", "inrush-load.1", "inrush-loads-undo.1", "inrush-local-psql.1"] {
        let text = fs::read_to_string(place.dir.path().join("pages").join(page)).expect(page);
        assert!(text.contains(&format!(".TH {} 1", page.trim_end_matches(".1"))), "{page}: {}", &text[..200]);
    }
}
