//! Parquet and Arrow files, written here with the crates that others use, loaded into a server and compared
//! with what the server makes of the same values as text.

mod hostile;
mod load;
mod types;

use arrow_array::RecordBatch;
use inrush_core::Result;
use inrush_load::{Finished, Options, Progress, run};
use inrush_sink::conninfo::resolve;
use inrush_testkit::Database;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Writes a Parquet file.
fn parquet(path: &Path, batches: &[RecordBatch], properties: WriterProperties) {
    let file = File::create(path).expect("create");
    let mut writer = ArrowWriter::try_new(file, batches[0].schema(), Some(properties)).expect("writer");
    for batch in batches {
        writer.write(batch).expect("write");
    }
    writer.close().expect("close");
}

/// Writes an Arrow file.
fn arrow_file(path: &Path, batches: &[RecordBatch], options: arrow_ipc::writer::IpcWriteOptions) {
    let file = File::create(path).expect("create");
    let schema = batches[0].schema();
    let mut writer =
        arrow_ipc::writer::FileWriter::try_new_with_options(file, &schema, options).expect("writer");
    for batch in batches {
        writer.write(batch).expect("write");
    }
    writer.finish().expect("finish");
}

/// Writes an Arrow stream.
fn arrow_stream(path: &Path, batches: &[RecordBatch]) {
    let file = File::create(path).expect("create");
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(file, &batches[0].schema()).expect("writer");
    for batch in batches {
        writer.write(batch).expect("write");
    }
    writer.finish().expect("finish");
}

/// Loads files into a table as the command does.
fn load(database: &Database<'_>, files: &[&Path], change: impl Fn(&mut Options)) -> Result<Finished> {
    let mut options = Options::new(files.iter().map(|f| f.display().to_string()).collect());
    options.table = Some("t".to_owned());
    options.jobs = Some(2);
    change(&mut options);
    let info = resolve(Some(&database.url()), &|_| None)?.expect("a server is named");
    run(&options, &info, &Arc::new(Progress::new()), &|_| ())
}

/// As [`load`], and it must go well.
#[track_caller]
fn load_well(database: &Database<'_>, files: &[&Path], change: impl Fn(&mut Options)) -> Finished {
    let finished = load(database, files, change).unwrap_or_else(|error| panic!("{error}"));
    assert!(finished.error.is_none(), "{:?}", finished.error);
    finished
}
