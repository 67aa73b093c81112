//! Reads extension/test/golden/frames.txt, which says itself what is in it.

use inrush_encode::frames::{FrameLayout, HEADER, frames};

/// One case of the file.
pub struct Case {
    pub name: String,
    /// SQL that makes the table `a`.
    pub table: String,
    /// The COPY's column list.
    pub columns: Vec<String>,
    pub layout: FrameLayout,
    /// Rows as COPY text, without the line ends.
    pub rows: Vec<String>,
    pub payload: Vec<u8>,
}

impl Case {
    /// The frames of the payload.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        let block = [&[0; HEADER][..], &self.payload].concat();
        frames(&block).map(|range| block[range].to_vec()).collect()
    }
}

/// Every case.
pub fn cases() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../extension/test/golden/frames.txt");
    let text = std::fs::read_to_string(path).expect("the golden frames");
    let cases: Vec<Case> = text.split("\ncase ").skip(1).map(case).collect();
    assert!(!cases.is_empty(), "there are cases");
    cases
}

fn case(text: &str) -> Case {
    let (name, rest) = text.split_once('\n').expect("a name and lines");
    let (mut table, mut columns, mut described) = (String::new(), Vec::new(), Vec::new());
    let (mut rows, mut payload) = (Vec::new(), Vec::new());
    for line in rest.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (what, value) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "sql" => table += value,
            "columns" => columns.extend(value.split(' ').map(str::to_owned)),
            "plan" => described.push(value),
            "row" => rows.push(repeated(value)),
            "payload" => payload.extend(value.split(' ').flat_map(bytes)),
            _ => panic!("{name}: {line}"),
        }
    }
    let plan = format!(
        r#"{{"version": 1, "refusal": null, "fingerprint": "0000000000000000", "encoding": "UTF8",
        "block_size": 8192, "max_align": 8, "toast_threshold": 2032, "columns": [{}]}}"#,
        described.join(", ")
    );
    let layout = FrameLayout::parse(&plan).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    Case { name: name.to_owned(), table, columns, layout, rows, payload }
}

/// Text in which `<x*3>` stands for xxx.
fn repeated(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, repeat)) = rest.split_once('<') {
        let (repeat, after) = repeat.split_once('>').expect("closed");
        let (what, times) = repeat.split_once('*').expect("a count");
        out += before;
        out += &what.repeat(times.parse().expect("a number"));
        rest = after;
    }
    out + rest
}

/// Bytes in hexadecimal; `78*3` stands for 787878.
fn bytes(text: &str) -> Vec<u8> {
    let (hex, times) = text.split_once('*').unwrap_or((text, "1"));
    let byte = |pair: &[u8; 2]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal")
    };
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty(), "{text}");
    pairs.iter().map(byte).collect::<Vec<_>>().repeat(times.parse().expect("a number"))
}
