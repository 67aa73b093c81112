//! A whole bench, small: what is measured, what is caught, what is kept.

use inrush_bench::{Case, Options, Place, Record, beside, keep, ladders, render, run};
use inrush_testkit::Installation;
use std::path::Path;
use std::sync::OnceLock;

const CASE: &str = r#"
name = "small"
about = "a <test> & \"more\""
data = "c2"
rows = 20_000
columns = "id int, info text"
baseline = "psql"
ladder_base = "plain"
synchronous_commit = ["off"]

[settings]
shared_buffers = "16MB"

[[goal]]
contender = "csv"
against = "psql"
ratio = 0.0001

[[rung]]
name = "plain"
contenders = ["psql", "csv", "half", "others", "broken", "limit", "absent", "insert"]
published = { mbps = 10 }

[[rung]]
name = "levers"
about = "Everything at once"
unlogged = true
pre_extended = true
index = ["CREATE INDEX ON {table} (id)"]
sessions = [1, 3]
contenders = ["psql", "parts"]
settings = { work_mem = "5MB" }

[[rung]]
name = "blocks"
block_size = 65536
contenders = ["psql"]
published = { mbps = 30 }

[[published]]
what = "text <over> csv"
contender = "psql"
against = "csv"
synchronous_commit = "off"
ratio = 3

[[contender]]
name = "psql"
input = "text"
version = "psql --version"
command = '''psql -Xq -v ON_ERROR_STOP=1 -d "$DSN" -c "\copy $TABLE from '$TEXT'"'''

[[contender]]
name = "csv"
input = "csv"
command = '''psql -Xq -v ON_ERROR_STOP=1 -d "$DSN" -c "\copy $TABLE from '$CSV' with (format csv)"'''

[[contender]]
name = "half"
input = "text"
command = '''psql -Xq -v ON_ERROR_STOP=1 -d "$DSN" -c "\copy $TABLE from '$TEXT_1'"'''

[[contender]]
name = "others"
input = "text"
command = '''
sed s/info/other/ "$TEXT" > "$SCRATCH/t"
psql -Xq -v ON_ERROR_STOP=1 -d "$DSN" -c "\copy $TABLE from '$SCRATCH/t'"
'''

[[contender]]
name = "broken"
input = "text"
command = "echo no luck >&2; exit 7"

[[contender]]
name = "insert"
input = "insert-7"
rows = 100
command = 'psql -Xq -v ON_ERROR_STOP=1 -d "$DSN" -f "$SQL"'

[[contender]]
name = "parts"
input = "csv"
command = '''
for part in "$PARTS"/csv.*; do
    psql -Xq -v ON_ERROR_STOP=1 -d "$DSN" -c "\copy $TABLE from '$part' with (format csv)" || exit
done
test "$(ls "$PARTS"/text.* | wc -l)" = "$SESSIONS"
'''

[[contender]]
name = "limit"
input = "text"
server = false
command = 'cp "$TEXT" "$SCRATCH/copy"'

[[contender]]
name = "absent"
input = "csv"
needs = ["no-such-program"]
command = "no-such-program"
"#;

fn small_run(dir: &Path, rungs: &[&str]) -> Record {
    let path = dir.join("small.toml");
    std::fs::write(&path, CASE).unwrap();
    let case = Case::find(path.to_str().unwrap()).unwrap();
    let options = Options {
        rows: None,
        runs: 1,
        servers: Vec::new(),
        versions: vec![Installation::all().first().expect("a server for tests").major()],
        rungs: rungs.iter().map(|&rung| rung.to_owned()).collect(),
        only: Vec::new(),
        inrush: "/no/inrush".into(),
        command: "inrush bench small.toml".to_owned(),
    };
    run(case, &options, &|_| ()).unwrap()
}

/// All rungs, run once for the tests that only look.
fn whole_run() -> &'static Record {
    static RECORD: OnceLock<Record> = OnceLock::new();
    RECORD.get_or_init(|| small_run(tempfile::tempdir().unwrap().path(), &[]))
}

/// The one place of a record with this rung and number of sessions.
fn place(record: &Record, rung: &str, sessions: Option<u32>) -> Place {
    let mut places = record.places().into_iter();
    let place = places.find(|place| place.rung == rung && place.sessions == sessions).unwrap();
    assert!(!places.any(|other| other.rung == rung && other.sessions == sessions));
    place
}

/// Whether every element is closed in its order and every attribute is quoted; how many there are.
fn elements(page: &str) -> usize {
    let (mut open, mut count) = (Vec::new(), 0);
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a page for browsers");
    while let Some(begin) = rest.find('<') {
        assert!(!rest[..begin].contains('>'), "a stray > before {}", &rest[begin..][..40]);
        let end = begin + rest[begin..].find('>').expect("a tag ends");
        let tag = &rest[begin + 1..end];
        rest = &rest[end + 1..];
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed in another order");
            continue;
        }
        count += 1;
        if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap());
        }
    }
    assert!(open.is_empty(), "{open:?}");
    count
}

#[test]
fn measures_checks_and_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let record = small_run(dir.path(), &["plain"]);
    let plain = place(&record, "plain", None);
    let failure = |name: &str| {
        let runs: Vec<_> = record.runs.iter().filter(|run| run.contender == name).collect();
        assert_eq!(runs.len(), 1, "{name}");
        runs[0].failure.clone().unwrap_or_default()
    };
    assert_eq!(failure("psql"), "");
    assert_eq!(failure("csv"), "");
    assert_eq!(failure("limit"), "");
    assert!(failure("half").contains("rows instead of 20000"));
    assert_eq!(failure("others"), "other rows than the baseline's");
    assert!(failure("broken").contains("no luck"));
    assert_eq!(failure("insert"), "");
    assert_eq!(record.absent.len(), 1);

    let one = record.of(&plain, "psql").next().unwrap();
    assert_eq!(one.rows, 20_000);
    assert!(one.seconds > 0.0 && one.durable_seconds > one.seconds);
    assert!(one.wal_bytes > record.text_bytes && one.client_peak_bytes > 1 << 20, "{one:?}");
    assert!(record.of(&plain, "half").next().is_none(), "a failed run counts");

    let text = render::text(&record);
    assert!(text.contains("reached: plain: PostgreSQL") && text.contains("left out: absent"), "{text}");
    assert!(text.contains("half, run 1: 1"), "{text}");

    let first = keep(&record, dir.path()).unwrap();
    let second = keep(&record, dir.path()).unwrap();
    assert!(first.ends_with("small.json") && second.ends_with("small-2.json"));
    let readme = std::fs::read_to_string(first.with_file_name("README.md")).unwrap();
    assert!(readme.contains("[small.json](small.json)") && readme.contains("[small-2.json](small-2.json)"));
    let read: Record = serde_json::from_slice(&std::fs::read(second).unwrap()).unwrap();
    assert_eq!(read.runs.len(), record.runs.len());
}

#[test]
fn rungs_have_their_tables_sessions_and_servers() {
    let record = whole_run();
    // One server for each set of settings; the rung with unheard-of blocks is left out, and says so.
    assert_eq!(record.servers.len(), 2);
    assert_eq!(record.absent.iter().filter(|absent| absent.rung.as_deref() == Some("blocks")).count(), 1);
    assert!(render::text(record).contains("left out: rung blocks: no server with 64 KB blocks"));

    let plain = place(record, "plain", None);
    let psql = record.of(&plain, "psql").next().unwrap();
    assert!(psql.grown_bytes.unwrap() > record.text_bytes && psql.input_bytes == Some(record.text_bytes));
    for sessions in [1, 3] {
        let levers = place(record, "levers", Some(sessions));
        for name in ["psql", "parts"] {
            assert_eq!(record.of(&levers, name).count(), 1, "one run, of its own number of sessions");
            let one = record.of(&levers, name).next().unwrap_or_else(|| panic!("no run of {name} counts"));
            assert_eq!((one.server, one.rows), (1, 20_000));
            // Unlogged, and its pages were there: no WAL of the rows, and hardly a new page.
            assert!(one.wal_bytes < record.text_bytes / 2, "{one:?}");
            assert!(one.grown_bytes.unwrap() <= 2 * 8192, "{one:?}");
        }
    }

    // Fewer rows are compared by rows a second.
    let insert = record.case.contender("insert").unwrap();
    assert_eq!(
        (record.of(&plain, "insert").next().unwrap().rows, record.rows_for(&plain, insert)),
        (100, 100)
    );
    let rate = |name| record.rows_per_second(&plain, name).unwrap();
    let ratio = record.ratio(&plain, insert).unwrap();
    assert!((ratio - rate("insert") / rate("psql")).abs() < 1e-9 && ratio < 1.0, "{ratio}");

    let ladders = ladders(record);
    assert_eq!(ladders.len(), 1, "of the sessions: nothing climbs from plain");
    assert!(ladders[0].lines.iter().any(|line| line.rung == "levers x3" && line.ours.is_some()));
    assert!((beside(record)[0].ours.unwrap() - rate("psql") / rate("csv")).abs() < 1e-9);
}

#[test]
fn a_page_is_whole_and_needs_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let record = whole_run();
    let page = render::html(record);
    assert!(elements(&page) > 100);
    for contender in &record.case.contenders {
        assert!(page.contains(&format!(">{}", contender.name)), "{} is missing", contender.name);
    }
    for part in
        ["a &lt;test&gt; &amp; &quot;more&quot;", "text &lt;over&gt; csv", "<polyline", ">failed</text>"]
    {
        assert!(page.contains(part), "{part} is missing");
    }
    // Nothing from elsewhere; the names of the two XML languages are not fetched.
    let links = page.matches("http").count();
    assert_eq!(links, page.matches("http://www.w3.org/").count());
    assert!(!page.contains("<script") && !page.contains("url(") && !page.contains("src="));

    let kept = keep(record, dir.path()).unwrap();
    assert_eq!(std::fs::read_to_string(kept.with_extension("html")).unwrap(), page);
}

/// A record as it was kept before there were rungs: version-1.json is a part of one.
#[test]
fn records_of_version_1_are_still_read() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("c1.json"), include_str!("version-1.json")).unwrap();
    inrush_bench::pages(dir.path()).unwrap();
    let readme = std::fs::read_to_string(dir.path().join("README.md")).unwrap();
    assert!(
        readme.contains("| inrush-binary-2 | 5 | 1.52 | 1.51-1.57 | 2.03 | 656771 | 282 | 1.76 |"),
        "{readme}"
    );
    assert!(readme.contains("inrush-binary-2 2.03 times psql-text, wanted 1.8"));
    elements(&std::fs::read_to_string(dir.path().join("c1.html")).unwrap());
}
