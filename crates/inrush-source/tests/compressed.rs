//! Every compression: whole, in several parts, cut off and damaged.

use inrush_core::{Code, Eol, Limits, Result};
use inrush_source::{Borders, Compression, Cut, Cutter, Input, InputKind, InputSpec, Reread};
use std::io::{Cursor, Write};

const CSV: Borders = Borders::Csv { quote: b'"', escape: b'"', eol: Eol::Lf };

const ALL: [Compression; 5] =
    [Compression::Gzip, Compression::Zstd, Compression::Lz4, Compression::Bzip2, Compression::Xz];

fn compress(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    let done = "compressing into memory";
    match compression {
        Compression::None => bytes.to_vec(),
        Compression::Gzip => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            out.write_all(bytes).expect(done);
            out.finish().expect(done)
        }
        Compression::Zstd => {
            let mut out = zstd::stream::Encoder::new(Vec::new(), 3).expect(done);
            // As the zstd tool does.
            out.include_checksum(true).expect(done);
            out.write_all(bytes).expect(done);
            out.finish().expect(done)
        }
        Compression::Lz4 => lz4(bytes, lz4_flex::frame::FrameInfo::new().content_checksum(true)),
        Compression::Bzip2 => {
            let mut out = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
            out.write_all(bytes).expect(done);
            out.finish().expect(done)
        }
        Compression::Xz => {
            let mut out = liblzma::write::XzEncoder::new(Vec::new(), 1);
            out.write_all(bytes).expect(done);
            out.finish().expect(done)
        }
    }
}

fn lz4(bytes: &[u8], info: lz4_flex::frame::FrameInfo) -> Vec<u8> {
    let mut out = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    out.write_all(bytes).expect("compressing into memory");
    out.finish().expect("compressing into memory")
}

fn read(compressed: &[u8], limits: &Limits) -> Result<(Compression, Vec<u8>)> {
    let mut input = Input::from_reader("test", Box::new(Cursor::new(compressed.to_vec())), limits)?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; 10_000];
    loop {
        match input.read(&mut piece)? {
            0 => break,
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
    assert_eq!(input.position(), bytes.len() as u64);
    Ok((input.compression(), bytes))
}

/// Lines that do not compress to nothing.
fn lines(n: u32) -> Vec<u8> {
    let mut state = 1u32;
    let mut text = String::new();
    for i in 0..n {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(&format!("{i},{},\"{:x}\"\n", state >> 8, u64::from(state) * 77));
    }
    text.into_bytes()
}

#[test]
fn whole_and_in_several_parts() -> Result<()> {
    let (one, two) = (lines(40_000), lines(3));
    for compression in ALL {
        let whole = compress(compression, &one);
        assert_eq!(read(&whole, &Limits::default())?, (compression, one.clone()));
        let parts = [whole, compress(compression, b""), compress(compression, &two)].concat();
        assert_eq!(read(&parts, &Limits::default())?, (compression, [one.clone(), two.clone()].concat()));
        assert_eq!(read(&compress(compression, b""), &Limits::default())?, (compression, Vec::new()));
    }
    Ok(())
}

#[test]
fn every_kind_of_lz4_frame() -> Result<()> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameInfo};
    let mut bytes = lines(60_000);
    // A part that cannot be compressed is stored as it is.
    let mut state = 1u64;
    bytes.extend((0..200_000).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    }));
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB] {
            for sums in [false, true] {
                let info = FrameInfo::new()
                    .block_mode(mode)
                    .block_size(size)
                    .block_checksums(sums)
                    .content_checksum(sums)
                    .content_size(sums.then_some(bytes.len() as u64));
                let (_, got) = read(&lz4(&bytes, info), &Limits::default())?;
                assert!(got == bytes, "{mode:?} {size:?} {sums}");
            }
        }
    }
    Ok(())
}

#[test]
fn cut_off_anywhere_is_an_error() {
    let bytes = lines(60);
    for compression in ALL {
        let whole = compress(compression, &bytes);
        let two = [whole.clone(), whole.clone()].concat();
        for (file, border) in [(&whole, 0), (&two, whole.len())] {
            for len in 1..file.len() {
                if len == border {
                    continue;
                }
                match read(&file[..len], &Limits::default()) {
                    // Too short to be told from text.
                    Ok((Compression::None, got)) => assert!(len < 10 && got == file[..len]),
                    Ok(_) => panic!("{compression:?} cut off after {len} bytes went unnoticed"),
                    Err(error) => {
                        assert_eq!(error.code(), Code::SourceCompression, "{error}");
                        assert!(error.fact().contains("cut off"), "{len}: {error}");
                        let at = error.position().and_then(|p| p.byte).expect("how far it came");
                        assert!(at <= 2 * bytes.len() as u64);
                        let file = Box::new(Cursor::new(file[..len].to_vec()));
                        let input = Input::from_reader("test", file, &Limits::default());
                        // Without a line end the header would be the whole sample.
                        let borders = Borders::Csv { quote: b'"', escape: b'"', eol: Eol::Cr };
                        let error = input.and_then(|i| Cutter::new(i, 0, borders, true, &Limits::default()));
                        assert_eq!(error.expect_err("half a header").code(), Code::SourceCompression);
                    }
                }
            }
        }
    }
}

#[test]
fn lz4_cut_off_between_blocks_is_an_error() {
    // Without checksums nothing but the missing end mark tells.
    let bytes = vec![b'x'; 300_000];
    let info = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
    let whole = lz4(&bytes, info);
    for len in 11..whole.len() {
        let error = read(&whole[..len], &Limits::default()).expect_err("cut off");
        assert!(error.fact().contains("cut off"), "{len}: {error}");
    }
}

#[test]
fn damaged_anywhere_is_never_passed_off_as_whole() {
    let bytes = lines(60);
    for compression in ALL {
        let whole = compress(compression, &bytes);
        for at in 0..whole.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                match read(&damaged, &Limits::default()) {
                    Err(error) => assert_eq!(error.code(), Code::SourceCompression, "{error}"),
                    // Damage to the magic number makes it something else; damage to fields without meaning
                    // (a time, the bits that fill up the last byte) makes no difference.
                    Ok((Compression::None, _)) => {}
                    Ok((_, got)) => assert!(got == bytes, "{compression:?} byte {at}"),
                }
            }
        }
        // Something else behind it.
        let error = read(&[whole, b"something else".to_vec()].concat(), &Limits::default());
        match error {
            Err(error) => assert_eq!(error.code(), Code::SourceCompression),
            Ok(_) => panic!("{compression:?}: trailing garbage went unnoticed"),
        }
    }
}

#[test]
fn records_before_the_damage_come_first_and_the_error_says_where() -> Result<()> {
    let bytes = lines(100_000);
    let whole = compress(Compression::Zstd, &bytes);
    let half = whole[..whole.len() / 2].to_vec();
    let compressed = half.len() as u64;
    let input = Input::from_reader("a.zst", Box::new(Cursor::new(half)), &Limits::default())?;
    let limits = Limits { chunk: 10_000, ..Limits::default() };
    let mut cutter = Cutter::new(input, 0, CSV, false, &limits)?;
    let mut end = 0;
    let error = loop {
        match cutter.next() {
            Ok(Some(Cut::Chunk(chunk))) => {
                assert_eq!(chunk.bytes, &bytes[end..end + chunk.bytes.len()]);
                end += chunk.bytes.len();
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(end > bytes.len() / 4);
    assert!(error.position().and_then(|p| p.byte).is_some_and(|b| b >= end as u64), "{error}");
    assert!(error.fact().contains(&format!("after {compressed} compressed bytes")), "{error}");
    Ok(())
}

#[test]
fn a_bomb_is_refused() {
    // A gigabyte of zeros, made without holding it.
    let mut out = zstd::stream::Encoder::new(Vec::new(), 1).expect("an encoder");
    let block = vec![0; 1 << 20];
    for _ in 0..1040 {
        out.write_all(&block).expect("compressing into memory");
    }
    let bomb = out.finish().expect("compressing into memory");
    let mut input = Input::from_reader(
        "bomb",
        Box::new(Cursor::new(bomb)),
        &Limits { max_ratio: 100, ..Limits::default() },
    )
    .expect("nothing wrong yet");
    let mut piece = vec![0; 1 << 20];
    let error = loop {
        match input.read(&mut piece) {
            Ok(n) => assert!(n > 0, "the bomb went off"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), Code::SourceCompression);
    assert!(error.fact().contains("max-ratio 100"), "{error}");
    assert!(input.position() <= (1 << 30) + (1 << 20));
}

#[test]
fn more_memory_than_the_limit_is_refused() {
    // "hello", whose header asks for a dictionary of 4 GiB; an empty frame with a window of 2 GiB.
    let xz = b"\xfd7zXZ\x00\x00\x00\xff\x12\xd9A\x02\x00!\x01(\x00\x00\x00\xe6\xa0\x11\xb3\
               \x01\x00\x05hello\x0a\x00\x00\x00\x00\x01\x16\x06\xc9\xa5}\xd5\x06r\x9ez\x01\x00\x00\x00\x00\x00YZ";
    let zstd = b"\x28\xb5\x2f\xfd\0\xa8\x01\0\0";
    for (name, file, limit) in [("xz", &xz[..], "256 MiB"), ("zstd", zstd, "128 MiB")] {
        let error = read(file, &Limits::default()).expect_err("refused");
        assert_eq!(error.code(), Code::SourceCompression);
        assert!(error.fact().contains(name) && error.fact().contains(limit), "{error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("inrush load -")), "{error}");
    }
}

#[test]
fn files_tell_what_they_are() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let bytes = lines(1000);
    let open = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).expect("write");
        let spec = InputSpec { name: name.to_owned(), kind: InputKind::File(path) };
        Input::open(&spec, &Limits::default())
    };
    let mut gzip = open("misnamed.csv", &compress(Compression::Gzip, &bytes))?;
    assert_eq!(gzip.compression(), Compression::Gzip);
    assert!(!gzip.is_seekable() && Reread::of(&gzip)?.is_none());
    assert_eq!(gzip.peek(usize::MAX)?, bytes);
    let progress = gzip.consumed();
    assert_eq!(Some(progress.get()), gzip.len());

    let mut plain = open("plain.csv", &bytes)?;
    assert!(plain.is_seekable() && plain.len() == Some(bytes.len() as u64));
    assert_eq!(plain.peek(10)?, bytes[..10]);
    assert_eq!(plain.consumed().get(), 0);
    let again = Reread::of(&plain)?.expect("a plain file");
    let mut buffer = vec![1; 3];
    again.read_range(5, 105, &mut buffer)?;
    assert_eq!(buffer, &bytes[5..105]);
    plain.identity().unchanged()?;
    std::fs::write(dir.path().join("plain.csv"), &bytes[1..]).expect("write");
    assert_eq!(again.read_range(5, 105, &mut buffer).expect_err("changed").code(), Code::SourceChanged);
    Ok(())
}
