//! A whole bench, small: what is measured, what is caught, what is kept.

use inrush_bench::{Case, Options, Record, keep, render, run};
use inrush_testkit::Installation;

const CASE: &str = r#"
name = "small"
about = "a test"
data = "c2"
rows = 2000
columns = "id int, info text"
baseline = "psql"
synchronous_commit = ["off"]

[settings]
shared_buffers = "16MB"

[[goal]]
contender = "csv"
against = "psql"
ratio = 0.0001

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

fn small_run(dir: &std::path::Path) -> Record {
    let path = dir.join("small.toml");
    std::fs::write(&path, CASE).unwrap();
    let case = Case::find(path.to_str().unwrap()).unwrap();
    let options = Options {
        rows: None,
        runs: 1,
        servers: Vec::new(),
        versions: vec![Installation::all().first().expect("a server for tests").major()],
        only: Vec::new(),
        inrush: "/no/inrush".into(),
        command: "inrush bench small.toml".to_owned(),
    };
    run(case, &options, &|_| ()).unwrap()
}

#[test]
fn measures_checks_and_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let record = small_run(dir.path());
    let failure = |name: &str| {
        let runs: Vec<_> = record.runs.iter().filter(|run| run.contender == name).collect();
        assert_eq!(runs.len(), 1, "{name}");
        runs[0].failure.clone().unwrap_or_default()
    };
    assert_eq!(failure("psql"), "");
    assert_eq!(failure("csv"), "");
    assert_eq!(failure("limit"), "");
    assert!(failure("half").contains("rows instead of 2000"));
    assert_eq!(failure("others"), "other rows than the baseline's");
    assert!(failure("broken").contains("no luck"));
    assert_eq!(record.absent.len(), 1);

    let one = record.of(0, "off", "psql").next().unwrap();
    assert_eq!(one.rows, 2000);
    assert!(one.seconds > 0.0 && one.durable_seconds > one.seconds);
    assert!(one.wal_bytes > record.text_bytes && one.client_peak_bytes > 1 << 20, "{one:?}");
    assert!(record.of(0, "off", "half").next().is_none(), "a failed run counts");

    let text = render::text(&record);
    assert!(text.contains("reached: PostgreSQL") && text.contains("left out: absent"), "{text}");
    assert!(text.contains("failed, not counted: half"), "{text}");

    let first = keep(&record, dir.path()).unwrap();
    let second = keep(&record, dir.path()).unwrap();
    assert!(first.ends_with("small.json") && second.ends_with("small-2.json"));
    let readme = std::fs::read_to_string(first.with_file_name("README.md")).unwrap();
    assert!(readme.contains("[small.json](small.json)") && readme.contains("[small-2.json](small-2.json)"));
    let read: Record = serde_json::from_slice(&std::fs::read(second).unwrap()).unwrap();
    assert_eq!(read.runs.len(), record.runs.len());
}
