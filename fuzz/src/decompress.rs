//! Compressed bytes nobody vouches for.

use crate::choices::Choices;
use inrush_core::{Code, Limits, Result};
use inrush_source::{Compression, Input};
use std::io::{Cursor, Read};

/// Uncompressed bytes looked at: a bomb needs no more to show what it does to memory.
const MOST: usize = 4 << 20;

/// What the formats begin with; a fuzzer that has to find it first looks at little else. With the headers of
/// gzip and lz4 (whose checksum must be right) in full.
const BEGINNINGS: [&[u8]; 7] = [
    b"",
    b"\x1f\x8b\x08\0\0\0\0\0\0\x03",
    b"\x28\xb5\x2f\xfd",
    b"\x04\x22\x4d\x18\x40\x40\xc0",
    b"\x04\x22\x4d\x18\x60\x40\x82",
    b"BZh9\x31\x41\x59\x26\x53\x59",
    b"\xfd7zXZ\0\0\0\xff\x12\xd9\x41",
];

/// First bytes: which beginning, bytes read at a time (two bytes).
pub fn decompress(input: &[u8]) {
    let mut choices = Choices::of(input);
    let beginning = choices.pick(&BEGINNINGS);
    let step = choices.number().max(1);
    let bytes = [beginning, choices.rest()].concat();
    let (compression, out, end) = read(&bytes, step);
    assert_eq!(compression, Compression::detect(&bytes));
    if compression == Compression::None {
        assert!(end.is_ok() && out == bytes);
        return;
    }
    if let Err(error) = &end {
        assert_eq!(error.code(), Code::SourceCompression, "{error}");
        assert!(error.position().and_then(|p| p.byte).is_some());
    }
    // What comes does not depend on how much is read at a time, or on what was peeked at; but how much of it
    // comes before damage does.
    let mut peeked = open(&bytes);
    let ahead = peeked.peek(out.len().min(100_000)).expect("peeking never fails");
    let (again, other_end) = drain(peeked, 10_000);
    assert_eq!(end.is_ok(), other_end.is_ok());
    let both = again.len().min(out.len());
    assert!(again[..both] == out[..both] && again.starts_with(&ahead));
    assert!(again.len() == out.len() || end.is_err());

    if compression == Compression::Lz4 && end.is_ok() && out.len() < MOST {
        let mut judged = Vec::new();
        let judge = lz4_flex::frame::FrameDecoder::new(&bytes[..]).read_to_end(&mut judged);
        // It reads one frame, and takes none that is to be skipped.
        if judge.is_ok() {
            assert!(out.starts_with(&judged));
        }
    }
}

fn open(bytes: &[u8]) -> Input {
    Input::from_reader("fuzzed", Box::new(Cursor::new(bytes.to_vec())), &Limits::default())
        .expect("damage is told when it is read")
}

fn read(bytes: &[u8], step: usize) -> (Compression, Vec<u8>, Result<()>) {
    let input = open(bytes);
    let compression = input.compression();
    let (out, end) = drain(input, step);
    (compression, out, end)
}

/// The first bytes, up to the end, to damage or to [`MOST`].
fn drain(mut input: Input, step: usize) -> (Vec<u8>, Result<()>) {
    let mut out = Vec::new();
    let mut piece = vec![0; step];
    while out.len() < MOST {
        let want = step.min(MOST - out.len());
        match input.read(&mut piece[..want]) {
            Ok(0) => {
                assert!(matches!(input.read(&mut piece), Ok(0)), "it goes on behind the end");
                break;
            }
            Ok(n) => out.extend_from_slice(&piece[..n]),
            Err(error) => {
                assert!(input.read(&mut piece).is_err(), "an error that was forgotten");
                return (out, Err(error));
            }
        }
        assert_eq!(input.position(), out.len() as u64);
    }
    (out, Ok(()))
}
