//! What the packages say of versions and licences is what the sources say.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What is between two texts, of which the first comes once.
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no {after:?} behind {before:?}")).0
}

/// The major versions that debian/pgversions lists.
fn versions() -> Vec<u32> {
    let numbers = read("debian/pgversions");
    numbers.lines().filter(|l| !l.starts_with('#')).map(|l| l.parse().expect("a number")).collect()
}

#[test]
fn the_changelog_has_the_version_of_the_command() {
    assert_eq!(between(&read("debian/changelog"), "inrush (", ")"), env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_extension_has_the_script_of_its_version() {
    let control = read("extension/inrush.control");
    let script = format!("sql/inrush--{}.sql", between(&control, "default_version = '", "'"));
    assert!(!read(&format!("extension/{script}")).is_empty());
    assert!(read("extension/Makefile").contains(&script), "{script} is not installed");
}

#[test]
fn packages_are_for_the_versions_that_the_sources_take() {
    let versions = versions();
    let source = read("extension/src/compat.h");
    let first = between(&source, "PG_VERSION_NUM < ", " ").parse::<u32>().expect("a number");
    assert_eq!(first / 10_000, versions[0]);
    let last = between(&source, "PG_VERSION_NUM >= ", "\n").parse::<u32>().expect("a number");
    assert_eq!(last / 10_000 - 1, *versions.last().expect("a version"));
}

/// `debian/control` is what `pg_buildext updatecontrol` makes where 15 is the only version, as in Debian 12.
#[test]
fn control_is_what_its_template_gives() {
    assert_eq!(read("debian/control"), read("debian/control.in").replace("PGVERSION", "15"));
}

#[test]
fn copyright_has_the_licences_of_the_sources() {
    let copyright = read("debian/copyright");
    // A field of several lines: each is indented, and an empty one has a dot.
    let words = |text: &str| {
        text.split_whitespace().filter(|word| *word != ".").map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let ours = words(&copyright);
    for (file, name) in [("LICENSE-MIT", "License: Expat "), ("extension/LICENSE", "License: PostgreSQL ")] {
        let text = read(file);
        let (_, terms) = text.split_once("\n\nPermission ").expect("a permission behind title and copyright");
        let field = format!("{name}Permission {}", words(terms));
        assert!(ours.contains(&field), "{file} is not in debian/copyright");
    }
    let workspace = read("Cargo.toml");
    assert_eq!(between(&workspace, "\nlicense = \"", "\""), "MIT OR Apache-2.0");
    assert!(copyright.contains("\nLicense: Expat or Apache-2.0\n"));
}
