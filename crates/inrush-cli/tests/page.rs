//! The report as a page, from outside.

mod harness;

use harness::{inrush, run};
use inrush_testkit::{Postgres, Version};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// The JSON that a page holds.
fn report_in(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"report\">").expect("a report");
    serde_json::from_str(rest.split_once("</script>").expect("its end").0).expect("JSON")
}

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn a_page_beside_the_json() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    database.psql("CREATE TABLE \"<script>x</script>\" (id int, name text)");
    let file = "<script>y<.csv";
    let rows: String = (0..60_000).map(|i| format!("{i},some text of row {i} to fill it\n")).collect();
    fs::write(dir.path().join(file), rows).expect("own directory");
    let url = database.url();
    let words = ["load", file, "-t", "\"<script>x</script>\"", "--no-header", "--to", &url];
    let slow = ["--max-rate", "2MB", "--chunk", "64KiB", "--unit-bytes", "256KiB"];
    let reports = ["--report", "r.json", "--report", "r.HTML", "--report", "again.json"];
    let words = [&words[..], &slow, &reports].concat();
    let outcome = run(inrush(dir.path()).args(&words), None, PATIENCE);
    outcome.expect_code(0);

    let report: Value = serde_json::from_str(&read(dir.path(), "r.json")).expect("JSON");
    assert_eq!(read(dir.path(), "again.json"), read(dir.path(), "r.json"));
    let page = read(dir.path(), "r.HTML");
    assert_eq!(report_in(&page), report);
    let sentence = report["profile"]["limit"]["sentence"].as_str().expect("a limit");
    assert!(page.contains(&format!("<span>{sentence}</span>")), "{sentence} is not on the page");
    assert!(page.contains("<figure>") && page.contains("<h2>Levers</h2>"), "{page}");
    assert!(!page.contains("<script>x") && !page.contains("<script>y"), "names are no markup");

    // The text, too, names what would help: the load was held back on request.
    let said = outcome.stdout.lines().find(|line| line.starts_with("  levers ")).expect("a lever");
    assert!(said.contains("--max-rate: the load was held to this rate on request"), "{said}");
    assert_eq!(report["levers"][0]["lever"], "--max-rate");
    assert_eq!(report["levers"][0]["addresses"], "client");
    let loaded = database.psql("SELECT count(*) FROM \"<script>x</script>\"");
    assert_eq!(loaded, "60000");
}

#[test]
fn a_page_of_what_failed_or_was_done_before() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    database.psql("CREATE TABLE t (id int)");
    fs::write(dir.path().join("bad.csv"), "1\nx\n").expect("own directory");
    fs::write(dir.path().join("good.csv"), "1\n").expect("own directory");
    let url = database.url();
    let load = |file: &str, more: &[&str]| {
        let words = ["load", file, "-t", "t", "--no-header", "--to", &url, "--report", "r.html"];
        run(inrush(dir.path()).args([&words[..], more].concat()), None, PATIENCE)
    };
    load("bad.csv", &[]).expect_code(2);
    let page = read(dir.path(), "r.html");
    assert!(page.contains("<b>error[rejects]</b>") && page.contains("bad.csv:2"), "{page}");

    // Standard output has the JSON as before, and nothing else.
    let outcome = load("good.csv", &["--report", "-", "--sample-hz", "0"]);
    let json: Value = serde_json::from_str(&outcome.expect_code(0).stdout).expect("JSON");
    let page = read(dir.path(), "r.html");
    assert_eq!(report_in(&page), json);
    assert!(page.contains("id=\"no-charts\"") && !page.contains("<figure>"), "{page}");

    load("good.csv", &[]).expect_code(0);
    assert!(read(dir.path(), "r.html").contains("Nothing was loaded"));
}

#[test]
fn a_report_that_cannot_be_written_keeps_no_other_from_being_written() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    database.psql("CREATE TABLE t (id int)");
    fs::write(dir.path().join("good.csv"), "1\n").expect("own directory");
    let url = database.url();
    let words = ["load", "good.csv", "-t", "t", "--no-header", "--to", &url];
    let reports = ["--report", "/dev/full", "--report", "r.html"];
    let outcome = run(inrush(dir.path()).args([&words[..], &reports].concat()), None, PATIENCE);
    assert!(outcome.expect_code(2).stderr.contains("error[output]: cannot write /dev/full"), "{outcome:?}");
    assert!(read(dir.path(), "r.html").ends_with("</html>\n"));
    // Before anything is loaded.
    let reports = ["--again", "--report", "r.json", "--report", "no/such/dir.html"];
    let outcome = run(inrush(dir.path()).args([&words[..], &reports].concat()), None, PATIENCE);
    assert!(outcome.expect_code(2).stderr.contains("no/such/dir.html"), "{outcome:?}");
    assert_eq!(database.psql("SELECT count(*) FROM t"), "1");
}
