//! The cutter against a simple-minded reading of the same bytes.

mod reference;

use inrush_core::{Chunk, Code, Eol, Limits, Result};
use inrush_source::{Borders, Cut, Cutter, DoneRange, Input, InputKind, InputSpec, detect_eol};
use proptest::prelude::*;
use std::io::{Cursor, Read};
use std::path::Path;

const CSV: Borders = Borders::Csv { quote: b'"', escape: b'"', eol: Eol::Lf };
const TEXT: Borders = Borders::Text { eol: Eol::Lf };

fn limits(chunk: usize, max_record: usize) -> Limits {
    Limits { chunk, max_record, ..Limits::default() }
}

fn stream(bytes: &[u8]) -> Input {
    Input::from_reader("test", Box::new(Cursor::new(bytes.to_vec())), &Limits::default()).expect("in memory")
}

/// Gives its bytes in pieces of 1 to 7.
struct Dribble(Cursor<Vec<u8>>);

impl Read for Dribble {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = (self.0.position() % 7 + 1) as usize;
        let n = n.min(buf.len());
        self.0.read(&mut buf[..n])
    }
}

fn file(path: &Path) -> Input {
    let spec = InputSpec { name: path.display().to_string(), kind: InputKind::File(path.to_owned()) };
    Input::open(&spec, &Limits::default()).expect("a file just written")
}

fn all(cutter: &mut Cutter) -> Result<Vec<Cut>> {
    let mut cuts = Vec::new();
    while let Some(cut) = cutter.next()? {
        cuts.push(cut);
    }
    assert!(cutter.next()?.is_none());
    Ok(cuts)
}

fn chunks(input: Input, borders: Borders, header: bool, limits: &Limits) -> Result<Vec<Chunk>> {
    let mut cutter = Cutter::new(input, 0, borders, header, limits)?;
    Ok(all(&mut cutter)?
        .into_iter()
        .map(|cut| match cut {
            Cut::Chunk(chunk) => chunk,
            Cut::TooLong(long) => panic!("{long:?}"),
        })
        .collect())
}

/// Checks what the cutter gives for `bytes`, none of which was loaded before.
fn check(bytes: &[u8], cuts: &[Cut], borders: Borders, max_record: usize) {
    reference::check(bytes, 0, &reference::records(bytes, borders).0, cuts, max_record, |_| false);
}

fn soup() -> impl Strategy<Value = Vec<u8>> {
    let special = prop::sample::select(b"\"\"\\\\\n\n\r,.'a\0\xff".to_vec());
    let piece = prop_oneof![
        6 => special.prop_map(|c| vec![c]),
        1 => prop::sample::select(vec!["\n\\.\n", "\r\n\\.\r\n", "\r\\.\r"]).prop_map(|m| m.into()),
        1 => (0..150usize).prop_map(|n| vec![b'x'; n]),
        1 => (0..150usize).prop_map(|n| vec![b'\\'; n]),
    ];
    prop::collection::vec(piece, 0..200).prop_map(|pieces| pieces.concat())
}

fn dialect() -> impl Strategy<Value = Borders> {
    let eol = prop::sample::select(vec![Eol::Lf, Eol::CrLf, Eol::Cr]);
    let csv = (prop::sample::select(b"\"'a".to_vec()), prop::sample::select(b"\"\\'".to_vec()), eol.clone());
    prop_oneof![
        2 => eol.clone().prop_map(|eol| Borders::Csv { quote: b'"', escape: b'"', eol }),
        2 => csv.prop_map(|(quote, escape, eol)| Borders::Csv { quote, escape, eol }),
        2 => eol.prop_map(|eol| Borders::Text { eol }),
        1 => Just(Borders::Lines),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn cuts_anything_where_the_reference_does(
        bytes in soup(),
        borders in dialect(),
        chunk in prop_oneof![1..200usize, Just(1 << 16)],
        max_record in prop_oneof![1..100usize, 100..1000usize, Just(1 << 20)],
    ) {
        let limits = limits(chunk, max_record);
        let mut cutter = Cutter::new(stream(&bytes), 0, borders, false, &limits).expect("text");
        let cuts = all(&mut cutter).expect("text never fails");
        check(&bytes, &cuts, borders, max_record);
        let (records, marker) = reference::records(&bytes, borders);
        let end = records.last().map_or(0, |r| r.end);
        match marker {
            Some(after) => {
                let ignored = cutter.ignored().expect("the marker was there");
                prop_assert_eq!(ignored.start as usize, after);
                prop_assert_eq!(ignored.len as usize, bytes.len() - after);
            }
            None => {
                prop_assert_eq!(cutter.ignored(), None);
                prop_assert_eq!(end, bytes.len());
            }
        }
    }

    #[test]
    fn passes_over_what_was_loaded(
        bytes in soup(),
        borders in dialect(),
        chunk in 1..300usize,
        max_record in prop_oneof![10..100usize, Just(1 << 20)],
        picks in prop::collection::vec(any::<bool>(), 1..64),
    ) {
        let (records, _) = reference::records(&bytes, borders);
        let picked = |i: usize| picks[i % picks.len()];
        let mut done: Vec<DoneRange> = Vec::new();
        for (_, r) in records.iter().enumerate().filter(|(i, _)| picked(*i)) {
            let range =
                DoneRange { start: r.start as u64, end: r.end as u64, lines: r.lines, records: 1 };
            match done.last_mut() {
                // Some neighbours joined, some not.
                Some(last) if last.end == range.start && r.start % 2 == 0 => {
                    last.end = range.end;
                    last.lines += range.lines;
                    last.records += 1;
                }
                _ => done.push(range),
            }
        }
        let path = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(path.path(), &bytes).expect("write");
        for input in [stream(&bytes), file(path.path())] {
            let mut cutter =
                Cutter::new(input, 0, borders, false, &limits(chunk, max_record)).expect("text");
            cutter.skip(done.clone()).expect("true ranges");
            let cuts = all(&mut cutter).expect("true ranges");
            reference::check(&bytes, 0, &records, &cuts, max_record, picked);
        }
    }
}

#[test]
fn small_things() -> Result<()> {
    let l = limits(10, 1000);
    let simple = |bytes: &[u8], borders, header| -> Result<Vec<(u64, u64, u64, String)>> {
        Ok(chunks(stream(bytes), borders, header, &l)?
            .into_iter()
            .map(|c| (c.start, c.first_line, c.records, String::from_utf8_lossy(&c.bytes).into_owned()))
            .collect())
    };
    assert!(simple(b"", CSV, false)?.is_empty());
    assert!(simple(b"", CSV, true)?.is_empty());
    assert!(simple(b"a,b\n", CSV, true)?.is_empty());
    assert!(simple(b"a,b", CSV, true)?.is_empty());
    assert!(simple(b"\xef\xbb\xbf", CSV, true)?.is_empty());
    assert_eq!(simple(b"1,2", CSV, false)?, [(0, 1, 1, "1,2".into())]);
    assert_eq!(simple(b"a,b\n1,2", CSV, true)?, [(4, 2, 1, "1,2".into())]);
    assert_eq!(simple(b"\xef\xbb\xbfa\n1\n", CSV, true)?, [(5, 2, 1, "1\n".into())]);
    assert_eq!(simple(b"\"a\nb\"\n1\n", CSV, true)?, [(6, 3, 1, "1\n".into())]);
    let crlf = Borders::Csv { quote: b'"', escape: b'"', eol: Eol::CrLf };
    assert_eq!(
        simple(b"1,\"\r\n\"\r\n2,b\r\n", crlf, false)?,
        [(0, 1, 1, "1,\"\r\n\"\r\n".into()), (8, 3, 1, "2,b\r\n".into())]
    );
    assert_eq!(simple(b"1\n\"2\n3\n", CSV, false)?, [(0, 1, 2, "1\n\"2\n3\n".into())]);
    assert_eq!(simple(b"1\n\\.\n2\n", TEXT, false)?, [(0, 1, 1, "1\n".into())]);
    assert_eq!(simple(b"a\\\n\\.\n2\n", TEXT, false)?, [(0, 1, 2, "a\\\n\\.\n2\n".into())]);
    Ok(())
}

#[test]
fn the_header_is_kept_as_it_stands() -> Result<()> {
    let l = limits(4, 1000);
    let long = format!("{}\r\n1\r\n", "c,".repeat(400));
    let borders = Borders::Csv { quote: b'"', escape: b'"', eol: Eol::CrLf };
    let mut cutter = Cutter::new(stream(long.as_bytes()), 0, borders, true, &l)?;
    assert_eq!(cutter.header().map(<[u8]>::len), Some(802));
    assert_eq!(cutter.data_start(), 802);
    assert_eq!(all(&mut cutter)?.len(), 1);
    let error = Cutter::new(stream(&[b'x'; 2000]), 0, CSV, true, &l).expect_err("header over the limit");
    assert_eq!(error.code(), Code::RecordTooLong);
    Ok(())
}

#[test]
fn other_encodings_are_named() {
    for (bytes, name) in [
        (&b"\xff\xfea\0"[..], "UTF-16LE"),
        (b"\xfe\xff\0a", "UTF-16BE"),
        (b"\xff\xfe\0\0", "UTF-32LE"),
        (b"\0\0\xfe\xff", "UTF-32BE"),
    ] {
        let error = Cutter::new(stream(bytes), 0, CSV, false, &Limits::default()).expect_err("not UTF-8");
        assert_eq!(error.code(), Code::Encoding);
        assert!(error.fact().contains(name), "{error}");
    }
}

#[test]
fn a_slow_pipe_is_cut_as_a_file_is() -> Result<()> {
    let bytes = "1,\"a\nb\"\n22,c\n".repeat(50).into_bytes();
    let input =
        Input::from_reader("pipe", Box::new(Dribble(Cursor::new(bytes.clone()))), &Limits::default())?;
    let mut cutter = Cutter::new(input, 3, CSV, false, &limits(100, 1000))?;
    let cuts = all(&mut cutter)?;
    check(&bytes, &cuts, CSV, 1000);
    assert!(cuts.len() >= 7);
    assert!(cuts.iter().all(|c| matches!(c, Cut::Chunk(c) if c.input == 3 && c.bytes.len() <= 100)));
    Ok(())
}

#[test]
fn a_file_that_shrinks_is_noticed() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "1,2\n".repeat(1000)).expect("write");
    let mut cutter = Cutter::new(file(&path), 0, CSV, false, &limits(100, 1000))?;
    assert!(cutter.next()?.is_some());
    let handle = std::fs::OpenOptions::new().write(true).open(&path).expect("open");
    handle.set_len(1002).expect("truncate");
    let error = all(&mut cutter).expect_err("the end is gone");
    assert_eq!(error.code(), Code::SourceChanged);
    assert_eq!(error.position().and_then(|p| p.byte), Some(1002));
    Ok(())
}

#[test]
fn wrong_ranges_are_refused() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "1,2\n3,4\n").expect("write");
    let range = |start, end| DoneRange { start, end, lines: 1, records: 1 };
    let run = |input: Input, ranges: &[DoneRange]| -> Result<Vec<Cut>> {
        let mut cutter = Cutter::new(input, 0, CSV, false, &limits(100, 1000))?;
        cutter.skip(ranges.to_vec())?;
        all(&mut cutter)
    };
    for wrong in [vec![range(4, 12)], vec![range(2, 4)], vec![range(0, 4), range(6, 8)]] {
        for input in [file(&path), stream(b"1,2\n3,4\n")] {
            let error = run(input, &wrong).expect_err("not what was loaded");
            assert_eq!(error.code(), Code::SourceChanged, "{error}");
        }
    }
    assert_eq!(run(file(&path), &[range(4, 8), range(0, 4)]).expect_err("order").code(), Code::Internal);
    assert!(run(file(&path), &[range(0, 4), range(4, 8)])?.is_empty());
    // The data ends before what was loaded begins.
    let mut cutter = Cutter::new(stream(b"1\n\\.\n2\n"), 0, TEXT, false, &limits(100, 1000))?;
    cutter.skip(vec![range(5, 7)])?;
    assert_eq!(all(&mut cutter).expect_err("marker").code(), Code::SourceChanged);
    Ok(())
}

#[test]
fn buffers_go_round() -> Result<()> {
    let bytes = "1,2\n".repeat(1000).into_bytes();
    let mut cutter = Cutter::new(stream(&bytes), 0, CSV, false, &limits(400, 1000))?;
    let mut addresses = std::collections::HashSet::new();
    while let Some(Cut::Chunk(chunk)) = cutter.next()? {
        addresses.insert(chunk.bytes.as_ptr() as usize);
        cutter.pool().give(chunk.bytes);
    }
    assert!(addresses.len() <= 2, "{} buffers", addresses.len());
    Ok(())
}

#[test]
fn the_line_end_can_be_found_by_peeking() -> Result<()> {
    let mut input = stream(b"a,b\r\n1,2\r\n");
    let sample = input.peek(1000)?;
    assert_eq!(sample, b"a,b\r\n1,2\r\n");
    assert_eq!(detect_eol(&sample, CSV), Some(Eol::CrLf));
    assert_eq!(input.peek(3)?, b"a,b");
    assert_eq!(chunks(input, CSV, false, &limits(100, 100))?[0].records, 2);
    Ok(())
}
