use super::super::advice::{Context, SystemSetting, Tablespace, judge};
use super::super::made_up::{capped, local, slow};
use super::super::measured::{Engine, Measured, Mechanism, Stop, StopReason, Storage, Tail};
use super::super::report::{Applied, Before, Report, Server, TablespaceOption, Target, VERSION};
use super::super::verdict::Verdict;
use super::{capital, prose, sentence};
use crate::advise::apply::Change;
use roxmltree::{Document, Node, ParsingOptions};

/// The page as a strict parser sees it.
fn parsed(page: &str) -> Document<'_> {
    Document::parse_with_options(page, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() })
        .unwrap_or_else(|e| panic!("{e} in {page}"))
}

fn words(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
}

fn all(document: &Document<'_>, name: &str) -> Vec<String> {
    document.descendants().filter(|node| node.has_tag_name(name)).map(words).collect()
}

fn option(name: &str, value: &str) -> TablespaceOption {
    TablespaceOption { name: name.into(), value: value.into() }
}

fn server(version_num: u32) -> Server {
    let new = version_num >= 180_000;
    Server {
        version_num,
        version: if new { "18.4" } else { "15.18 (Debian 15.18-1)" }.into(),
        role: "postgres".into(),
        io_method: new.then(|| "worker".to_owned()),
        io_methods: if new { vec!["sync".into(), "worker".into()] } else { Vec::new() },
        io_workers: new.then_some(3),
        io_max_concurrency: new.then_some(64),
        shared_buffers: Some(128 << 20),
        ..Server::default()
    }
}

/// What would be said of a storage below a server whose scans have this effective_io_concurrency.
fn report(measured: Measured, version_num: u32, concurrency: &str) -> Report {
    let server = server(version_num);
    let tablespace = Tablespace {
        name: "pg_default".into(),
        settings: vec![
            option("effective_io_concurrency", concurrency),
            option("maintenance_io_concurrency", "10"),
            option("random_page_cost", "4"),
            option("seq_page_cost", "1"),
        ],
        may_alter: true,
        system: vec![SystemSetting { name: "io_workers", may: true, obstacle: None }],
        ..Tablespace::default()
    };
    let verdict = Verdict::of(&measured);
    let judged = judge(&Context {
        measured: &measured,
        verdict: &verdict,
        server: &server,
        versions: None,
        tablespace: Some(&tablespace),
    });
    let target = Target {
        tablespace: Some("pg_default".into()),
        options: Vec::new(),
        directory: Some("/data".into()),
        measured: Some(measured),
        not_measured: None,
        verdict,
        advice: judged.advice,
        already_right: judged.right,
        undecided: judged.undecided,
        scans: judged.scans,
        dense: judged.dense,
        before: None,
    };
    Report {
        version: VERSION,
        inrush: "0.1.0".into(),
        started: "2026-11-22T19:19:43Z".into(),
        server: Some(server),
        targets: vec![target],
        notes: Vec::new(),
        applied: None,
    }
}

#[test]
fn a_page_says_what_was_set() {
    let mut report = report(local(), 150_018, "1");
    assert!(!report.html().contains("What was set"));
    let not_applied = report.targets[0].advice.split_off(1);
    report.applied = Some(Applied {
        changes: vec![Change {
            setting: "effective_io_concurrency of tablespace <one>".into(),
            before: "1".into(),
            value: "128".into(),
            now: "128".into(),
            overruled: None,
        }],
        not_applied,
        why: Some("role app may not".into()),
    });
    let page = report.html();
    assert!(page.contains("tablespace &lt;one&gt;: 1 -&gt; 128"), "{page}");
    assert!(page.contains("not set") && page.contains("ole app may not"), "{page}");
    roxmltree::Document::parse(&page.replace("<!DOCTYPE html>", "")).expect("well-formed");
}

#[test]
fn a_page_says_what_to_set_and_shows_why() {
    let report = report(slow(), 180_004, "16");
    let page = report.html();
    let document = parsed(&page);
    assert_eq!(all(&document, "h1"), ["Storage of tablespace pg_default: latency-bound"]);
    assert_eq!(all(&document, "h2"), ["Tablespace pg_default", "The server"]);
    let parts = all(&document, "h3");
    let expected = [
        "What to set",
        "Options of the tablespace",
        "Random reads",
        "Scans with gaps",
        "From front to back",
        "What is known of it",
    ];
    let there = |name: &str| parts.iter().position(|part| part == name);
    let places: Vec<_> =
        expected.iter().map(|name| there(name).unwrap_or_else(|| panic!("{name}"))).collect();
    assert!(places.is_sorted(), "{parts:?}");
    // The advice, its lines and who gives them.
    let everything = words(document.root_element());
    for one in &report.targets[0].advice {
        assert!(everything.contains(one.setting) && everything.contains(&one.lines[0]), "{}", one.setting);
    }
    assert!(everything.contains("What --apply does") && everything.contains("times as fast"));
    // Reads and latency, and a chart for each mechanism; that of this server comes first, with both marks.
    let charts: Vec<_> = document.descendants().filter(|node| node.has_tag_name("figure")).collect();
    let titles: Vec<String> = document
        .descendants()
        .filter(|node| node.has_tag_name("figcaption"))
        .map(|node| words(node).split("  ").next().unwrap_or_default().trim().to_owned())
        .collect();
    assert_eq!(charts.len(), 5, "{titles:?}");
    assert!(titles[2].starts_with("3 I/O workers (PostgreSQL 18), as this server reads"), "{titles:?}");
    assert!(titles[3].starts_with("32 I/O workers (PostgreSQL 18) "), "{titles:?}");
    let of = |chart: usize| words(charts[chart]);
    assert!(of(0).contains("knee: 128") && of(2).contains("now: 16"), "{}", of(2));
    assert!(of(3).contains("advised: 32") && !of(3).contains("now: "), "{}", of(3));
    // What neither is nor would be is folded away.
    let folded = charts[4].parent_element().map(|parent| parent.tag_name().name().to_owned());
    assert_eq!(folded.as_deref(), Some("details"));
    let json =
        document.descendants().find(|node| node.attribute("id") == Some("report")).expect("the report");
    let json: serde_json::Value = serde_json::from_str(json.text().expect("JSON")).expect("JSON");
    // By way of text on both sides: a figure read back may differ in its last bit.
    let expected = serde_json::to_string(&report).expect("JSON");
    let expected: serde_json::Value = serde_json::from_str(&expected).expect("JSON");
    assert!(json == expected, "the JSON on the page is another");
}

#[test]
fn a_page_stands_alone_and_says_what_its_drawings_show() {
    for measured in [local(), slow(), capped()] {
        let page = report(measured, 150_018, "1").html();
        let document = parsed(&page);
        for node in document.descendants().filter(Node::is_element) {
            for name in ["src", "href", "srcset", "action"] {
                assert_eq!(node.attribute(name), None, "{node:?}");
            }
            let image = node.has_tag_name("svg") && node.attribute("aria-hidden").is_none();
            let title = node.children().find(|child| child.has_tag_name("title"));
            assert!(!image || title.is_some_and(|title| !words(title).is_empty()), "{node:?}");
            let chart = node.has_tag_name("figure");
            assert!(!chart || node.descendants().any(|child| child.has_tag_name("table")), "{node:?}");
        }
        assert_eq!(all(&document, "script").len(), 1, "its JSON");
        assert!(!page.contains("@import") && !page.contains("url("));
        let shown = page.split_once("<main>").expect("a page").1.split_once("<footer>").expect("an end").0;
        assert!(!shown.contains("NaN") && !shown.contains("inf ") && !shown.contains("None"), "{shown}");
        assert!(page.len() < 200_000, "{} bytes", page.len());
    }
}

#[test]
fn a_refused_verdict_is_said_plainly() {
    let mut noisy = local();
    noisy.random[0].passes = vec![16_900.0, 9_000.0];
    noisy.stopped = Some(Stop { reason: StopReason::Time, text: "60 s were over".into() });
    let page = report(noisy, 150_018, "1").html();
    let document = parsed(&page);
    let everything = words(document.root_element());
    assert_eq!(all(&document, "h1"), ["Storage of tablespace pg_default: cannot tell"]);
    for text in [
        "Cannot tell: no setting is advised.",
        "No verdict. The passes at depth 1 differ by 61 %",
        "The probe ended early: 60 s were over.",
        "no knee is known",
        "posix_fadvise page by page (PostgreSQL until 17), as this server reads",
    ] {
        assert!(everything.contains(text), "{text}");
    }
    assert!(
        page.contains("<div class=\"limit error\">") && !all(&document, "h3").contains(&"What to set".into())
    );
}

#[test]
fn what_was_not_measured_is_not_drawn() {
    let mut report = report(Measured::default(), 150_018, "1");
    report.targets[0].options = vec![option("effective_io_concurrency", "7")];
    let page = report.html();
    let document = parsed(&page);
    let everything = words(document.root_element());
    assert!(all(&document, "figure").is_empty());
    for text in ["several depths were not measured", "gaps were not measured", "Sequential reads were not"] {
        assert!(everything.contains(text), "{text}");
    }
    assert!(everything.contains("mask the settings of the same names"), "it is known without measuring");

    report.targets[0].measured = None;
    report.targets[0].not_measured = Some("the server is on another machine. See `--path`.".into());
    report.notes = vec!["give `--path` on that machine".into()];
    let page = report.html();
    let document = parsed(&page);
    let everything = words(document.root_element());
    assert_eq!(all(&document, "h1"), ["Storage of tablespace pg_default: not measured"]);
    assert!(everything.contains("Nothing was measured: the server is on another machine. See --path."));
    assert!(all(&document, "code").contains(&"--path".to_owned()) && everything.contains("Notes"));

    report.targets.clear();
    report.server = None;
    assert_eq!(all(&parsed(&report.html()), "h1"), ["Storage: nothing was measured"]);
}

#[test]
fn what_a_server_was_asked_for_is_not_called_a_direct_read() {
    let mut measured = slow();
    measured.engine = Engine::Server;
    measured.scratch_bytes = 0;
    measured.sequential.clear();
    measured.cached_page_us = None;
    measured.storage = Storage { directory: "table public.t".into(), ..Storage::default() };
    measured.replays.retain(|one| one.density < 0.05 && one.mechanism == Mechanism::Advice);
    for one in &mut measured.random {
        (one.p50_us, one.p99_us) = (0.0, 0.0);
    }
    let mut report = report(measured.clone(), 150_018, "1");
    report.targets[0].before = Some(Before {
        verdict: Verdict::of(&measured),
        measured,
        settings: vec![option("effective_io_concurrency", "1")],
        settings_now: vec![option("effective_io_concurrency", "64")],
        changes: Vec::new(),
    });
    let page = report.html();
    let document = parsed(&page);
    let everything = words(document.root_element());
    for text in
        ["Measured: table public.t.", "by bitmap heap scans of the server", "single reads could not be seen"]
    {
        assert!(everything.contains(text), "{text}");
    }
    let shown = page.split_once("<main>").expect("a page").1.split_once("<footer>").expect("an end").0;
    assert!(!shown.contains("scratch file") && !shown.contains("past the page cache"), "{shown}");
    assert!(
        !shown.contains("Latency of a read") && everything.contains("99 of 100 answered there withinnot")
    );
    // One density was measured, and so one is compared.
    assert_eq!(everything.matches("before: 1").count(), 1);
}

#[test]
fn before_and_after_stand_side_by_side() {
    let mut report = report(local(), 150_018, "128");
    let mut then = local();
    then.at = "2026-11-21T10:00:00Z".into();
    then.random[0].iops = 15_000.0;
    report.targets[0].before = Some(Before {
        verdict: Verdict::of(&then),
        measured: then,
        settings: vec![option("effective_io_concurrency", "1"), option("random_page_cost", "4")],
        settings_now: vec![option("effective_io_concurrency", "128"), option("random_page_cost", "4")],
        changes: vec!["effective_io_concurrency was 1 and is 128".into()],
    });
    let page = report.html();
    let document = parsed(&page);
    assert!(all(&document, "h3").contains(&"Before and after".to_owned()));
    let rows: Vec<Vec<String>> = document
        .descendants()
        .filter(|node| node.has_tag_name("tr"))
        .map(|row| row.children().filter(|cell| cell.has_tag_name("td")).map(words).collect())
        .collect();
    let row = |of: &[&str]| rows.iter().any(|row| row.iter().map(String::as_str).eq(of.iter().copied()));
    assert!(row(&["effective_io_concurrency", "1", "128"]), "{rows:?}");
    assert!(row(&["one random read", "66.7\u{a0}µs", "59.2\u{a0}µs"]), "{rows:?}");
    let everything = words(document.root_element());
    assert!(everything.contains("Measured before on 2026-11-21 10:00:00 UTC"), "{everything}");
    // Half of the pages: 67.8 and 12.5 microseconds in the replays.
    assert!(everything.contains("before: 1") && everything.contains("5.4 times as fast"), "{everything}");
    // The curve of then is drawn into that of now.
    let first = document.descendants().find(|node| node.has_tag_name("figure")).expect("a chart");
    let legend: Vec<String> = first.descendants().filter(|node| node.has_tag_name("li")).map(words).collect();
    assert_eq!(legend, ["now", "before"]);
}

#[test]
fn names_of_anybody_stay_text() {
    let nasty = "<script>alert('x')</script>&\"\u{1}\0]]>-->`";
    let mut report = report(local(), 150_018, "1");
    report.notes = vec![nasty.into()];
    report.started = nasty.into();
    report.inrush = nasty.into();
    let server = report.server.as_mut().expect("a server");
    server.version = nasty.into();
    server.role = nasty.into();
    let target = &mut report.targets[0];
    target.tablespace = Some(nasty.into());
    target.options = vec![option(nasty, nasty)];
    target.verdict.text = nasty.into();
    target.advice[0].why = nasty.into();
    target.advice[0].lines = vec![nasty.into()];
    target.advice[0].now = Some(nasty.into());
    target.advice[0].obstacle = Some(nasty.into());
    target.advice[0].expected[0].name = nasty.into();
    let measured = target.measured.as_mut().expect("measured");
    measured.storage.device = Some(nasty.into());
    measured.storage.directory = nasty.into();
    measured.storage.file_system_note = Some(nasty.into());
    measured.stopped = Some(Stop { reason: StopReason::Bytes, text: nasty.into() });
    let page = report.html();
    assert!(!page.contains("<script>alert"), "{page}");
    assert_eq!(all(&parsed(&page), "script").len(), 1);
}

#[test]
fn a_directory_and_several_tablespaces() {
    let mut report = report(local(), 150_018, "1");
    report.targets[0].measured.as_mut().expect("measured").tail =
        Some(Tail { depth: 32, seconds: 15.0, first_iops: 60_000.0, last_iops: 3_000.0 });
    let mut directory = report.targets[0].clone();
    directory.tablespace = None;
    directory.advice.truncate(2);
    for one in &mut directory.advice {
        (one.versions, one.now, one.applied) = (Some("PostgreSQL 15 to 17"), None, false);
    }
    let mut newer = directory.advice[0].clone();
    newer.versions = Some("PostgreSQL 18");
    newer.obstacle = Some("the file is another's".into());
    directory.advice.push(newer);
    report.targets.push(directory);
    let page = report.html();
    let everything = words(parsed(&page).root_element());
    assert!(everything.contains("Storage of 2 tablespaces") && everything.contains("No. With 32 reads"));

    report.server = None;
    report.targets.remove(0);
    let page = report.html();
    let everything = words(parsed(&page).root_element());
    for text in ["Storage of /data: saturating local", "no server was asked", "not asked"] {
        assert!(everything.contains(text), "{text}");
    }
    let gist = "PostgreSQL 15 to 17: set effective_io_concurrency = 128, maintenance_io_concurrency = 128. \
                PostgreSQL 18: set effective_io_concurrency = 128.";
    assert!(everything.contains(gist), "{everything}");
    // Lines stand together where the same is to be said of them.
    assert_eq!(page.matches("<pre>").count(), 2 + usize::from(everything.contains("SET LOCAL")));
    assert!(page.contains("<p class=\"soft\">PostgreSQL 15 to 17</p>\n<pre>"), "{page}");
    assert!(
        page.contains("<p class=\"soft\">PostgreSQL 18: the file is another&#39;s.</p>\n<pre>"),
        "{page}"
    );
    assert!(
        !everything.contains("Options of the tablespace") && !everything.contains("as this server reads")
    );
}

#[test]
fn facts_become_sentences() {
    assert_eq!(sentence("latency-bound: 900 reads"), "Latency-bound: 900 reads.");
    assert_eq!(sentence("io_workers is the cap."), "io_workers is the cap.");
    assert_eq!(sentence("IOPS-capped: so"), "IOPS-capped: so.");
    assert_eq!(sentence(""), "");
    assert_eq!(capital("/data"), "/data");
    assert_eq!(prose("see `a < b`, `c`"), "see <code>a &lt; b</code>, <code>c</code>");
    assert_eq!(prose("one ` alone"), "one ` alone");
}
