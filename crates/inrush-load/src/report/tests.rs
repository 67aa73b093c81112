use super::made_up::{full_report, profile, report};
use super::{Failure, Outcome, Report, utc};
use crate::levers::Pulled;
use crate::levers::advice::LeverAdvice;
use inrush_core::Position;
use inrush_profile::Class;
use roxmltree::{Document, Node, ParsingOptions};

/// The page as a strict parser sees it.
fn parsed(page: &str) -> Document<'_> {
    Document::parse_with_options(page, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() })
        .unwrap_or_else(|e| panic!("{e} in {page}"))
}

fn named<'a>(document: &'a Document<'_>, name: &str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|node| node.has_tag_name(name)).collect()
}

fn words(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
}

fn headings(document: &Document<'_>) -> Vec<String> {
    named(document, "h2").into_iter().map(words).collect()
}

fn json_in(document: &Document<'_>) -> serde_json::Value {
    let script =
        document.descendants().find(|node| node.attribute("id") == Some("report")).expect("the report");
    serde_json::from_str(script.text().expect("JSON")).expect("JSON")
}

fn lever(name: &str, addresses: Class, used: bool) -> LeverAdvice {
    LeverAdvice {
        lever: name.into(),
        addresses,
        what: format!("what {name} does"),
        cost: format!("what {name} costs"),
        how: format!("inrush load ... {name}"),
        used,
    }
}

#[test]
fn a_page_has_every_section_in_order() {
    let mut report = full_report();
    report.levers = vec![lever("--jobs", Class::ExtendLock, false), lever("--unlogged", Class::Wal, true)];
    report.pulled = vec![Pulled {
        lever: "defer-indexes".into(),
        what: "3 indexes".into(),
        why: Some("by --fast".into()),
    }];
    report.stages.put_back = 4.0;
    let page = report.html();
    let document = parsed(&page);
    let expected = [
        "Throughput",
        "Where the server's time went",
        "What the client did",
        "Whose locks it waited for",
        "What the server counted",
        "Levers",
        "Settings in force",
        "Inputs",
        "Notes",
    ];
    assert_eq!(headings(&document), expected);
    let html = document.root_element();
    assert_eq!(html.attribute("lang"), Some("en"));
    assert_eq!(words(named(&document, "h1")[0]), "14,000,000 rows into public.trips (load 7)");
    let sentence = "relation extension locks: 31 % of backend time";
    assert!(document.descendants().any(|node| node.has_tag_name("span") && words(node) == sentence));
    assert_eq!(named(&document, "figure").len(), 4);
    // A layer for each class, named in the legend.
    for class in Class::ALL {
        let style = format!("c-{}", class.name());
        let layers = document.descendants().filter(|node| node.attribute("class") == Some(&style));
        assert!(layers.filter(|node| node.has_tag_name("path")).count() == 1, "{style}");
        let legend = document.descendants().find(|node| node.attribute("data-class") == Some(class.name()));
        assert!(words(legend.expect("a legend")).contains(class.in_words()), "{style}");
    }
    for text in [
        "--unlogged",
        "--defer-indexes: 3 indexes (by --fast)",
        "taking levers back",
        "in use",
        "what --jobs costs",
        "150,000",
        "process 4711",
        "wal_buffers",
        "trips.csv",
    ] {
        assert!(words(html).contains(text), "{text}");
    }
    assert!(words(html).contains("11 more"), "36 events, 25 shown");
    assert_eq!(json_in(&document), serde_json::to_value(&report).unwrap());
}

#[test]
fn a_page_stands_alone_and_says_what_its_drawings_show() {
    let page = full_report().html();
    let document = parsed(&page);
    for node in document.descendants().filter(Node::is_element) {
        for name in ["src", "href", "srcset", "action"] {
            assert_eq!(node.attribute(name), None, "{node:?}");
        }
        let image = node.has_tag_name("svg") && node.attribute("aria-hidden").is_none();
        assert!(!image || named_child(node, "title").is_some_and(|title| !title.is_empty()), "{node:?}");
    }
    assert!(!page.contains("@import") && !page.contains("url("));
    let ids: Vec<&str> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    assert_eq!(ids.len(), ids.iter().collect::<std::collections::BTreeSet<_>>().len(), "{ids:?}");
    // Six hundred steps and ten classes.
    assert!(page.len() < 300_000, "{} bytes", page.len());
}

fn named_child(node: Node<'_, '_>, name: &str) -> Option<String> {
    node.children().find(|child| child.has_tag_name(name)).map(words)
}

#[test]
fn names_of_anybody_stay_text() {
    let nasty = "<script>alert('x')</script>&\"\u{1}\0]]>-->";
    let mut report = full_report();
    report.table = nasty.into();
    report.server = nasty.into();
    report.inputs[0].name = nasty.into();
    report.inputs[0].columns = vec![nasty.into()];
    report.path_reason = nasty.into();
    report.notes = vec![nasty.into()];
    report.pulled = vec![Pulled { lever: nasty.into(), what: nasty.into(), why: Some(nasty.into()) }];
    report.levers = vec![lever(nasty, Class::Wal, false)];
    report.error = Some(Failure {
        code: "server".into(),
        fact: nasty.into(),
        sqlstate: Some(nasty.into()),
        position: Some(Position { column: Some(nasty.into()), line: Some(3), ..Position::source(nasty) }),
        hint: Some(nasty.into()),
    });
    let profile = report.profile.as_mut().unwrap();
    profile.settings.insert(nasty.into(), nasty.into());
    profile.blockers[0].application = Some(nasty.into());
    profile.blockers[0].relation = Some(nasty.into());
    profile.events[0].event = nasty.into();
    profile.limit.as_mut().unwrap().sentence = nasty.into();
    let page = report.html();
    assert!(!page.contains("<script>alert"), "{page}");
    let document = parsed(&page);
    // The report and the read-outs, and no script of anybody else.
    assert_eq!(named(&document, "script").len(), 2);
    assert_eq!(json_in(&document)["table"], nasty);
    let shown = nasty.replace('\u{1}', "␁").replace('\0', "␀");
    assert!(words(named(&document, "title")[0]).contains(&shown), "{page}");
    assert!(words(named(&document, "h1")[0]).contains(&shown));
}

#[test]
fn a_page_without_profile_says_why() {
    let says = |report: &Report| {
        let page = report.html();
        let document = parsed(&page);
        assert!(named(&document, "figure").is_empty());
        assert_eq!(
            headings(&document),
            ["Where the server's time went", "What the client did", "Inputs"],
            "the rest is there"
        );
        words(document.descendants().find(|node| node.attribute("id") == Some("no-charts")).expect("why"))
    };
    let mut report = report();
    assert!(says(&report).contains("--sample-hz 0"));
    report.outcome = Outcome::AlreadyLoaded;
    assert!(says(&report).contains("Nothing was loaded"));
    report.dry_run = true;
    assert!(says(&report).contains("dry run"));
}

#[test]
fn a_page_of_a_failure_has_the_error() {
    let mut report = report();
    report.outcome = Outcome::Failed;
    report.error = Some(Failure {
        code: "rejects".into(),
        fact: "more bad rows than allowed".into(),
        sqlstate: Some("22P02".into()),
        position: Some(Position { line: Some(12), ..Position::source("a.csv") }),
        hint: Some("Allow more with --max-rejects.".into()),
    });
    let page = report.html();
    let all = words(parsed(&page).root_element());
    for text in ["failed:", "error[rejects]", "more bad rows", "22P02", "a.csv:12", "hint: Allow more"] {
        assert!(all.contains(text), "{text}");
    }
}

#[test]
fn figures_of_nothing_are_drawn() {
    let mut report = full_report();
    report.totals.seconds = 0.0;
    let profile = report.profile.as_mut().unwrap();
    profile.series = inrush_profile::Series { step_seconds: 0.1, ..Default::default() };
    profile.split.clear();
    profile.limit = None;
    let page = report.html();
    parsed(&page);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    let profile = report.profile.as_mut().unwrap();
    profile.series.bytes_in.push(0);
    profile.series.rows.push(0);
    profile.series.wal_bytes.push(0);
    profile.series.waits.push(inrush_profile::ClassTimes::default());
    let page = report.html();
    assert_eq!(named(&parsed(&page), "figure").len(), 3);
    assert!(!page.contains("NaN"), "{page}");
}

#[test]
fn the_text_names_three_unused_levers_of_the_limit() {
    let mut report = report();
    report.profile = Some(profile(&[(Class::Wal, 0.6), (Class::Cpu, 0.4)]));
    report.levers = vec![
        lever("--a", Class::Wal, false),
        lever("--b", Class::Wal, true),
        lever("--c", Class::Cpu, false),
        lever("--d", Class::Wal, false),
        lever("--e", Class::Wal, false),
        lever("--f", Class::Wal, false),
    ];
    let text = report.text();
    let levers: Vec<&str> = text.lines().filter(|line| line.starts_with("  levers ")).collect();
    let expected = ["--a", "--d", "--e"]
        .map(|name| format!("  levers      {name}: what {name} does (what {name} costs)"));
    assert_eq!(levers, expected);
    report.profile = None;
    assert!(!report.text().contains("levers"));
}

#[test]
fn moments_are_written_as_others_do() {
    assert_eq!(utc(0), "1970-01-01T00:00:00Z");
    assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
    assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    assert_eq!(utc(1_798_761_599), "2026-12-31T23:59:59Z");
}
