//! quote_ident against the server's own.

use inrush_core::quote_ident;
use inrush_testkit::{Installation, Postgres, Version};

/// Names that are no key words of any version.
const NAMES: &[&str] =
    &["c_1", "public", "Ab", "a b", "a\"b", "1a", "größe", "_", "$a", "a$", "é", "x'y", ""];

#[test]
fn quotes_what_every_server_quotes() {
    let mut quoted_by_none: Option<Vec<String>> = None;
    for installation in Installation::all() {
        let server = Postgres::shared(Version::Major(installation.major()));
        for name in NAMES {
            let literal = name.replace('\'', "''");
            let theirs = server.psql(&format!("SELECT quote_ident('{literal}')"));
            assert_eq!(quote_ident(name), theirs, "PostgreSQL {}", installation.major());
        }
        let words = server.psql("SELECT word || ' ' || quote_ident(word) FROM pg_get_keywords()");
        let mut only_ours = Vec::new();
        for line in words.lines() {
            let (word, theirs) = line.split_once(' ').expect("two columns");
            let ours = quote_ident(word);
            if ours != theirs {
                assert_eq!(theirs, word, "{word} must be quoted for PostgreSQL {}", installation.major());
                only_ours.push(word.to_owned());
            }
        }
        quoted_by_none = Some(match quoted_by_none {
            None => only_ours,
            Some(before) => before.into_iter().filter(|word| only_ours.contains(word)).collect(),
        });
    }
    // What is quoted here without need in every version does not belong into the list.
    let have_newest = Installation::all().iter().any(|one| one.major() >= 18);
    if let Some(words) = quoted_by_none.filter(|words| have_newest && !words.is_empty()) {
        panic!("quoted without need: {words:?}");
    }
}
