//! COPY binary is cut between tuples.

use inrush_core::{Code, Limits, Result};
use inrush_source::{Borders, Cut, Cutter, DoneRange, Input};
use proptest::prelude::*;
use std::io::Cursor;

type Row = Vec<Option<Vec<u8>>>;

fn header(flags: i32, extension: &[u8]) -> Vec<u8> {
    let mut bytes = b"PGCOPY\n\xff\r\n\0".to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend((extension.len() as i32).to_be_bytes());
    bytes.extend(extension);
    bytes
}

fn tuple(row: &Row) -> Vec<u8> {
    let mut bytes = (row.len() as i16).to_be_bytes().to_vec();
    for field in row {
        match field {
            None => bytes.extend((-1i32).to_be_bytes()),
            Some(field) => {
                bytes.extend((field.len() as i32).to_be_bytes());
                bytes.extend(field);
            }
        }
    }
    bytes
}

fn cutter(bytes: &[u8], chunk: usize, max_record: usize) -> Result<Cutter> {
    let limits = Limits { chunk, max_record, ..Limits::default() };
    let input = Input::from_reader("test", Box::new(Cursor::new(bytes.to_vec())), &limits)?;
    Cutter::new(input, 0, Borders::Binary, false, &limits)
}

fn all(mut cutter: Cutter) -> Result<Vec<Cut>> {
    let mut cuts = Vec::new();
    while let Some(cut) = cutter.next()? {
        cuts.push(cut);
    }
    Ok(cuts)
}

proptest! {
    #[test]
    fn tuples_stay_whole(
        rows in prop::collection::vec(
            prop::collection::vec(
                prop::option::of(prop::collection::vec(any::<u8>(), 0..60)), 0..5), 0..30),
        chunk in 1..300usize,
        max_record in prop_oneof![19..150usize, Just(10_000)],
        trailer: bool,
    ) {
        let mut file = header(0, b"");
        let tuples: Vec<Vec<u8>> = rows.iter().map(tuple).collect();
        file.extend(tuples.concat());
        if trailer {
            file.extend((-1i16).to_be_bytes());
        }
        let cuts = all(cutter(&file, chunk, max_record).expect("header")).expect("well formed");
        let mut rest = &tuples[..];
        let (mut at, mut record) = (19u64, 1);
        for cut in cuts {
            match cut {
                Cut::Chunk(chunk) => {
                    let (these, others) = rest.split_at(chunk.records as usize);
                    prop_assert_eq!(&chunk.bytes, &these.concat());
                    prop_assert_eq!((chunk.start, chunk.first_record, chunk.first_line), (at, record, 1));
                    prop_assert!(these.iter().all(|t| t.len() <= max_record));
                    at += chunk.bytes.len() as u64;
                    record += chunk.records;
                    rest = others;
                }
                Cut::TooLong(long) => {
                    prop_assert_eq!((long.start, long.record, long.lines), (at, record, 0));
                    prop_assert_eq!(long.len as usize, rest[0].len());
                    prop_assert!(rest[0].len() > max_record && rest[0].starts_with(&long.head));
                    at += long.len;
                    record += 1;
                    rest = &rest[1..];
                }
            }
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn cut_off_or_damaged_never_panics(
        cut in 0..200usize,
        at in 0..200usize,
        byte: u8,
        chunk in 1..100usize,
        max_record in 19..100usize,
    ) {
        let row: Row = vec![Some(b"abc".to_vec()), None, Some(vec![7; 30])];
        let mut file = header(0, b"ext");
        for _ in 0..4 {
            file.extend(tuple(&row));
        }
        file.extend((-1i16).to_be_bytes());
        let len = file.len();
        file[at % len] = byte;
        file.truncate(cut % len);
        if let Ok(cutter) = cutter(&file, chunk, max_record)
            && let Err(error) = all(cutter)
        {
            prop_assert_eq!(error.code(), Code::Format);
            prop_assert!(error.position().is_some());
        }
    }
}

#[test]
fn the_header_is_checked_as_the_server_does() -> Result<()> {
    let row: Row = vec![Some(b"abc".to_vec())];
    let file = [header(0, b"extension"), tuple(&row), (-1i16).to_be_bytes().to_vec()].concat();
    let open = cutter(&file, 100, 1000)?;
    assert_eq!((open.header().map(<[u8]>::len), open.data_start()), (Some(28), 28));
    assert_eq!(all(open)?.len(), 1);
    for (bytes, fact) in [
        (b"".to_vec(), "signature"),
        (b"PGCOPY\n\xff\n\0".to_vec(), "signature"),
        (header(0, b"")[..15].to_vec(), "missing length"),
        (header(1 << 16, b""), "WITH OIDS"),
        (header(1 << 20, b""), "critical flags"),
        ([&header(0, b"")[..15], &(-5i32).to_be_bytes()].concat(), "wrong length"),
        ([&header(0, b"")[..15], &50i32.to_be_bytes()].concat(), "wrong length"),
    ] {
        let error = cutter(&bytes, 100, 1000).expect_err("refused");
        assert_eq!(error.code(), Code::Format);
        assert!(error.fact().contains(fact), "{error}");
    }
    // Low flag bits are to be ignored.
    assert!(cutter(&header(0xff, b""), 100, 1000).is_ok());
    Ok(())
}

#[test]
fn what_cannot_be_framed_is_an_error_at_its_place() -> Result<()> {
    let row: Row = vec![Some(b"abc".to_vec())];
    let good = [header(0, b""), tuple(&row), tuple(&row)].concat();
    let fact = |file: &[u8]| -> Result<(String, u64)> {
        let error = all(cutter(file, 100, 1000)?).expect_err("refused");
        Ok((error.fact().to_owned(), error.position().and_then(|p| p.byte).unwrap_or(0)))
    };
    assert_eq!(fact(&[&good[..], &(-2i16).to_be_bytes()].concat())?, ("row field count is -2".into(), 37));
    assert_eq!(
        fact(&[&good[..], &1i16.to_be_bytes(), &(-2i32).to_be_bytes()].concat())?,
        ("invalid field size -2".into(), 39)
    );
    assert_eq!(fact(&good[..good.len() - 1])?.0, "unexpected EOF in COPY data");
    assert_eq!(
        fact(&[&good[..], &(-1i16).to_be_bytes(), b"more"].concat())?,
        ("received copy data after EOF marker".into(), 39)
    );
    // Whole rows in front of the place where it was cut off come first.
    let mut cut_off = cutter(&good[..good.len() - 1], 100, 1000)?;
    assert!(matches!(cut_off.next()?, Some(Cut::Chunk(c)) if c.records == 1));
    assert!(cut_off.next().is_err());
    // Rows loaded before are passed over.
    let mut resumed = cutter(&good, 100, 1000)?;
    resumed.skip(vec![DoneRange { start: 19, end: 28, lines: 0, records: 1 }])?;
    assert!(matches!(&all(resumed)?[..], [Cut::Chunk(c)] if c.start == 28 && c.first_record == 2));
    Ok(())
}
