//! Files that are not what they should be: an error with a code and a hint, nothing loaded, no panic.

use crate::{arrow_file, arrow_stream, load, load_well, parquet};
use arrow_array::{Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray, UnionArray};
use arrow_schema::{DataType, Field, Schema, UnionFields};
use inrush_core::{Code, Error};
use inrush_testkit::{Database, Postgres, Version, require_server};
use parquet::file::properties::WriterProperties;
use std::path::Path;
use std::sync::Arc;

fn rows() -> RecordBatch {
    let ids = Int64Array::from_iter_values(0..1000);
    let texts = StringArray::from_iter_values((0..1000).map(|i| format!("row {i}")));
    RecordBatch::try_from_iter([("id", Arc::new(ids) as Arc<dyn Array>), ("s", Arc::new(texts) as _)])
        .expect("columns of equal length")
}

/// The error of a load that must fail, whether before or while it runs.
#[track_caller]
fn error_of(database: &Database<'_>, path: &Path) -> Error {
    match load(database, &[path], |options| options.again = true) {
        Err(error) => error,
        Ok(finished) => finished.error.expect("it must fail"),
    }
}

fn table(database: &Database<'_>) {
    database.psql("CREATE TABLE t (id bigint, s text)");
}

#[test]
fn cut_off_anywhere() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    table(&database);
    let dir = tempfile::tempdir().expect("directory");
    let path = |name: &str| dir.path().join(name);
    parquet(&path("p"), &[rows()], WriterProperties::default());
    arrow_file(&path("a"), &[rows()], Default::default());
    arrow_stream(&path("s"), &[rows()]);
    for name in ["p", "a", "s"] {
        let whole = std::fs::read(path(name)).expect("read");
        for keep in [8, 9, 12, 100, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
            // A stream may end without its mark.
            if name == "s" && keep >= whole.len() - 9 {
                continue;
            }
            let cut = path(&format!("{name}-{keep}"));
            std::fs::write(&cut, &whole[..keep]).expect("write");
            let error = error_of(&database, &cut);
            assert_eq!(error.code(), Code::Format, "{name} {keep}: {error}");
            assert!(error.hint_text().is_some() && error.position().is_some(), "{name} {keep}: {error}");
        }
    }
    assert_eq!(database.psql("SELECT count(*) FROM t"), "0");
}

#[test]
fn what_a_message_declares_is_not_believed() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    table(&database);
    let dir = tempfile::tempdir().expect("directory");
    let path = |name: &str| dir.path().join(name);
    let zstd = arrow_ipc::writer::IpcWriteOptions::default();
    let zstd = zstd.try_with_compression(Some(arrow_ipc::CompressionType::ZSTD)).expect("codec");
    arrow_file(&path("a"), &[rows()], zstd);
    let mut bytes = std::fs::read(path("a")).expect("read");
    // The uncompressed length of the ids, 8000 bytes, before their zstd frame.
    let at = bytes
        .windows(12)
        .position(|w| w[..8] == 8000u64.to_le_bytes() && w[8..] == [0x28, 0xb5, 0x2f, 0xfd])
        .expect("a compressed buffer");
    bytes[at..at + 8].copy_from_slice(&(1u64 << 46).to_le_bytes());
    std::fs::write(path("bomb"), &bytes).expect("write");
    let error = error_of(&database, &path("bomb"));
    assert_eq!(error.code(), Code::Format);
    assert!(error.fact().contains("limit") && error.hint_text().is_some(), "{error}");

    std::fs::write(path("meta"), [0xff, 0xff, 0xff, 0xff, 0xf8, 0xff, 0xff, 0x7f]).expect("write");
    let error = error_of(&database, &path("meta"));
    assert_eq!(error.code(), Code::Format, "{error}");
}

#[test]
fn wrong_or_nothing_inside() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    table(&database);
    let dir = tempfile::tempdir().expect("directory");
    let path = |name: &str| dir.path().join(name);
    for (name, bytes) in [
        ("magic", &b"PAR1"[..]),
        ("both", b"PAR1PAR1"),
        ("arrow", b"ARROW1\0\0ARROW1"),
        ("crypt", b"PAREPARE"),
    ] {
        std::fs::write(path(name), bytes).expect("write");
        let error = error_of(&database, &path(name));
        assert_eq!(error.code(), Code::Format, "{name}: {error}");
        assert!(error.hint_text().is_some(), "{name}: {error}");
    }
    for name in ["empty", "other"] {
        std::fs::write(path(name), if name == "empty" { "" } else { "a,b\n" }).expect("write");
        for format in ["parquet", "arrow"] {
            let stated = |options: &mut inrush_load::Options| options.stated.format = Some(format.to_owned());
            let error = load(&database, &[&path(name)], stated).expect_err("not of the format");
            assert!(matches!(error.code(), Code::Format | Code::Clash), "{name} {format}: {error}");
            assert!(error.hint_text().is_some(), "{name} {format}: {error}");
        }
    }
    // No rows are no error; no columns are.
    parquet(&path("none.parquet"), &[rows().slice(0, 0)], WriterProperties::default());
    arrow_file(&path("none.arrow"), &[rows().slice(0, 0)], Default::default());
    arrow_stream(&path("none.arrows"), &[rows().slice(0, 0)]);
    for name in ["none.parquet", "none.arrow", "none.arrows"] {
        assert_eq!(load_well(&database, &[&path(name)], |_| ()).report.totals.rows, 0);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(3));
    let bare =
        RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).expect("no columns");
    arrow_file(&path("bare"), std::slice::from_ref(&bare), Default::default());
    arrow_stream(&path("bares"), &[bare]);
    for name in ["bare", "bares"] {
        let error = error_of(&database, &path(name));
        assert!(error.fact().contains("no columns"), "{error}");
    }
}

#[test]
fn types_without_a_counterpart_are_named() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    table(&database);
    let dir = tempfile::tempdir().expect("directory");
    let fields = UnionFields::try_new([0], [Field::new("i", DataType::Int64, true)]).expect("union");
    let ids: Arc<dyn Array> = Arc::new(Int64Array::from(vec![1]));
    let union = UnionArray::try_new(fields, vec![0].into(), None, vec![ids]).expect("union");
    let batch = RecordBatch::try_from_iter([("id", Arc::new(union) as Arc<dyn Array>)]).expect("column");
    let path = dir.path().join("u.arrow");
    arrow_file(&path, &[batch], Default::default());
    let error = error_of(&database, &path);
    assert_eq!(error.code(), Code::Columns);
    assert_eq!(error.fact(), "field \"id\" has the type union, which has no counterpart in PostgreSQL");
}

#[test]
fn files_that_need_a_position_are_not_read_from_a_stream() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    table(&database);
    let dir = tempfile::tempdir().expect("directory");
    let path = |name: &str| dir.path().join(name);
    parquet(&path("p"), &[rows()], WriterProperties::default());
    arrow_stream(&path("s"), &[rows()]);
    for name in ["p", "s"] {
        let whole = std::fs::read(path(name)).expect("read");
        let file = std::fs::File::create(path(&format!("{name}.lz4"))).expect("create");
        let mut encoder = lz4_flex::frame::FrameEncoder::new(file);
        std::io::Write::write_all(&mut encoder, &whole).expect("write");
        encoder.finish().expect("finish");
    }
    let error = error_of(&database, &path("p.lz4"));
    assert_eq!(error.fact(), "a Parquet file is read by position and cannot be inside of lz4");
    load_well(&database, &[&path("s.lz4")], |_| ());
    assert_eq!(database.psql("SELECT count(*), sum(id) FROM t"), "1000|499500");
}
