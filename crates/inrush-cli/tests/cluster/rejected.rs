//! Rows that a table on several servers does not take:
//! `t (id int PRIMARY KEY, info text CHECK (info <> 'bad'), made date)`.

use crate::loads::{Files, Place};
use std::fmt::Write as _;

/// Lines of the file.
pub const LINES: u64 = 3_000;

/// What the file `t.csv` has.
pub struct Written {
    pub text: String,
    /// Lines and SQLSTATEs of the rows that are not taken.
    pub expected: Vec<(u64, String)>,
}

/// Writes the file, and puts its good rows into the table `expected`. `no_key` is the SQLSTATE of a row without a key.
pub fn write(place: &dyn Place, files: &Files, no_key: &str) -> Written {
    let (mut text, mut good, mut expected) = (String::new(), String::new(), Vec::new());
    for line in 1..=LINES {
        let (row, why) = match line {
            40 => ("x,info,2024-01-01".to_owned(), "22P02"),
            700 => ("7,info,2024-01-01".to_owned(), "23505"),
            1400 => (format!("{line},bad,2024-01-01"), "23514"),
            1401 => (format!("{line},info,never"), "22007"),
            2222 => (format!("{line},info"), "22P04"),
            2300 => (",info,2024-01-01".to_owned(), no_key),
            2999 => ("99999999999,info,2024-01-01".to_owned(), "22003"),
            _ => (format!("{line},info {line},2024-01-01"), ""),
        };
        let _ = writeln!(text, "{row}");
        if why.is_empty() {
            let _ = writeln!(good, "{row}");
        } else {
            expected.push((line, why.to_owned()));
        }
    }
    files.write("t.csv", &text);
    files.write("good.csv", &good);
    place.sql("CREATE TABLE expected (id int, info text, made date)");
    place.sql(&format!("\\copy expected FROM '{}' (FORMAT csv)", files.path().join("good.csv").display()));
    Written { text, expected }
}

/// Lines and SQLSTATEs of rejects.
pub fn reasons(files: &Files, name: &str) -> Vec<(u64, String)> {
    let parsed = files.read(&format!("{name}.jsonl"));
    parsed
        .lines()
        .map(|line| {
            let reject: serde_json::Value = serde_json::from_str(line).expect("a reject is JSON");
            (
                reject["line"].as_u64().unwrap_or_default(),
                reject["sqlstate"].as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect()
}
