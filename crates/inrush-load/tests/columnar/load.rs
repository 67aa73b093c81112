//! Many rows: spans, rejects, resuming, columns.

use crate::{arrow_file, arrow_stream, load, load_well, parquet};
use arrow_array::{Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use inrush_load::{ColumnSpec, MaxRejects, Via};
use inrush_testkit::{Cluster, Postgres, Version, require_server};
use parquet::file::properties::WriterProperties;
use std::path::Path;
use std::sync::Arc;

fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let ids = Int64Array::from_iter_values(range.clone());
    let texts = StringArray::from_iter_values(range.map(|i| format!("row {i}")));
    RecordBatch::try_from_iter([("id", Arc::new(ids) as Arc<dyn Array>), ("s", Arc::new(texts) as _)])
        .expect("columns of equal length")
}

const ROWS: i64 = 150_000;

fn write_all(dir: &Path, step: i64) -> [std::path::PathBuf; 3] {
    let paths = ["many.parquet", "many.arrow", "many.arrows"].map(|name| dir.join(name));
    let batches: Vec<RecordBatch> = (0..ROWS)
        .step_by(usize::try_from(step).expect("positive"))
        .map(|i| rows(i..(i + step).min(ROWS)))
        .collect();
    parquet(
        &paths[0],
        &batches,
        WriterProperties::builder().set_max_row_group_row_count(Some(100_000)).build(),
    );
    arrow_file(&paths[1], &batches, arrow_ipc::writer::IpcWriteOptions::default());
    arrow_stream(&paths[2], &batches);
    paths
}

#[test]
fn every_row_once_and_bad_ones_by_number() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("directory");
    for (i, file) in write_all(dir.path(), 70_000).iter().enumerate() {
        database.psql(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id bigint PRIMARY KEY CHECK (id NOT IN (5, 70000, 149999)), s text)",
        );
        let rejects = dir.path().join(format!("rejects-{i}"));
        let finished = load(&database, &[file], |options| {
            options.max_rejects = MaxRejects::Count(3);
            options.rejects = Some(rejects.clone());
            options.limits.unit_millis = Some(50);
        })
        .unwrap_or_else(|error| panic!("{error}"));
        assert!(finished.error.is_none(), "{:?}", finished.error);
        assert_eq!(finished.report.totals.rejects, 3, "{}", file.display());
        assert_eq!(
            database.psql("SELECT count(*), count(DISTINCT id), min(id), max(id), count(*) FILTER (WHERE s = 'row ' || id) FROM t"),
            "149997|149997|0|149998|149997"
        );
        let mut kept: Vec<String> =
            std::fs::read_to_string(&rejects).expect("rejects").lines().map(str::to_owned).collect();
        kept.sort();
        assert_eq!(
            kept,
            [
                r#"{"id":149999,"s":"row 149999"}"#,
                r#"{"id":5,"s":"row 5"}"#,
                r#"{"id":70000,"s":"row 70000"}"#
            ]
        );
        let reasons =
            std::fs::read_to_string(dir.path().join(format!("rejects-{i}.jsonl"))).expect("reasons");
        for record in ["\"record\":6,", "\"record\":70001,", "\"record\":150000,"] {
            assert!(reasons.contains(record), "{record} in {reasons}");
        }
        // The same command again loads nothing.
        let again = load_well(&database, &[file], |options| {
            options.max_rejects = MaxRejects::Count(3);
            options.limits.unit_millis = Some(50);
        });
        assert_eq!(again.report.totals.rows, 0);
        assert_eq!(database.psql("SELECT count(*) FROM t"), "149997");
    }
}

/// Rows of columns find their nodes by what they are in COPY binary; those that nodes refuse are rejects like others.
#[test]
fn rows_for_several_servers() {
    require_server!(Version::Any);
    let database = Cluster::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("directory");
    for file in write_all(dir.path(), 70_000) {
        database.psql("DROP TABLE IF EXISTS t CASCADE; DROP FOREIGN TABLE IF EXISTS t_0, t_1, t_2");
        database.everywhere("DROP TABLE IF EXISTS t_0, t_1, t_2");
        database.by_hash("t", "id bigint, s text", "id", 3, "CHECK (id NOT IN (5, 70000, 149999))");
        let finished = load(database.coordinator(), &[&file], |options| {
            options.max_rejects = MaxRejects::Count(3);
            options.limits.unit_millis = Some(50);
            options.audit = true;
        })
        .unwrap_or_else(|error| panic!("{error}"));
        assert!(finished.error.is_none(), "{:?}", finished.error);
        assert_eq!(finished.report.totals.rejects, 3, "{}", file.display());
        let cluster = finished.report.cluster.expect("it is one");
        assert!(cluster.bypassed && cluster.audit.is_some_and(|audit| audit.misplaced == 0));
        assert_eq!(
            database
                .psql("SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE s = 'row ' || id) FROM t"),
            "149997|149997|149997"
        );
        assert_eq!(database.prepared(), Vec::<String>::new());
    }
}

#[test]
fn a_load_that_stopped_goes_on_behind_what_it_has() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("directory");
    for file in write_all(dir.path(), 20_000) {
        database.psql(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id bigint, s text, CONSTRAINT c CHECK (id <> 140000))",
        );
        let first = load(&database, &[&file], |options| {
            options.jobs = Some(1);
            options.limits.unit_bytes = 1;
            options.limits.unit_bytes_kept = 1;
            options.limits.chunk = 1;
        })
        .unwrap_or_else(|error| panic!("{error}"));
        assert!(first.error.is_some());
        let before: i64 = database.psql("SELECT count(*) FROM t").parse().expect("number");
        assert!(before > 0 && before < ROWS, "{before} rows of {}", file.display());
        database.psql("ALTER TABLE t DROP CONSTRAINT c");
        let second = load_well(&database, &[&file], |_| ());
        assert_eq!(i64::try_from(second.report.totals.rows).expect("fits"), ROWS - before);
        assert_eq!(database.psql("SELECT count(*), count(DISTINCT id) FROM t"), "150000|150000");
    }
}

#[test]
fn columns_are_found_by_name_mapped_and_set() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("few.parquet");
    parquet(&file, &[rows(0..2)], WriterProperties::default());
    database.psql("CREATE TABLE t (d int DEFAULT 9, s text, k text, \"ID\" int, src text)");
    load_well(&database, &[&file], |options| {
        options.constants = vec![("k".into(), "x".into())];
        options.filename_column = Some("src".into());
    });
    let name = file.display();
    assert_eq!(
        database.psql("SELECT * FROM t ORDER BY 4"),
        format!("9|row 0|x|0|{name}\n9|row 1|x|1|{name}")
    );
    database.psql("DROP TABLE t; CREATE TABLE t (a text)");
    load_well(&database, &[&file], |options| {
        options.columns = Some(vec![ColumnSpec::Named { column: "a".into(), field: "id".into() }]);
    });
    assert_eq!(database.psql("SELECT a FROM t ORDER BY 1"), "0\n1");
    database.psql("DROP TABLE t; CREATE TABLE t (id int)");
    let error = load(&database, &[&file], |_| ()).expect_err("s has no column");
    assert!(error.fact().contains("no column for field \"s\""), "{error}");
}

#[test]
fn values_out_of_range_are_refused_by_the_server() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("big.parquet");
    let values = UInt64Array::from(vec![1, u64::MAX, 2]);
    let batch = RecordBatch::try_from_iter([("id", Arc::new(values) as Arc<dyn Array>)]).expect("one column");
    parquet(&file, &[batch], WriterProperties::default());
    for via in [Via::CopyBinary, Via::CopyText] {
        database.psql("DROP TABLE IF EXISTS t; CREATE TABLE t (id bigint)");
        let rejects = dir.path().join("rejects");
        load_well(&database, &[&file], |options| {
            options.via = via;
            options.again = true;
            options.max_rejects = MaxRejects::Count(1);
            options.rejects = Some(rejects.clone());
        });
        assert_eq!(database.psql("SELECT id FROM t ORDER BY 1"), "1\n2");
        let reasons = std::fs::read_to_string(dir.path().join("rejects.jsonl")).expect("reasons");
        assert!(
            reasons.contains("value \\\"18446744073709551615\\\" is out of range for type bigint"),
            "{reasons}"
        );
        assert!(reasons.contains("\"record\":2,") && reasons.contains("\"column\":\"id\""), "{reasons}");
    }
}

#[test]
fn a_missing_table_gets_the_types_of_the_file() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("directory");
    for file in write_all(dir.path(), 100_000) {
        load_well(&database, &[&file], |_| ());
        assert_eq!(
            database.psql("SELECT count(*), min(pg_typeof(id)::text), min(pg_typeof(s)::text) FROM t"),
            "150000|bigint|text",
            "{}",
            file.display()
        );
        database.psql("DROP TABLE t");
        let mut options = inrush_load::Options::new(vec![file.display().to_string()]);
        options.jobs = Some(2);
        let rehearsed =
            inrush_load::dry_run(&options, Arc::default()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(rehearsed.report.totals.rows, 150_000, "{}", file.display());
    }
}

#[test]
fn a_file_that_changes_while_it_is_loaded_stops_the_load() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("directory");
    let [file, ..] = write_all(dir.path(), 100_000);
    // The trigger gives the test time: the file is written again while the first rows are on their way.
    database.psql(
        "CREATE TABLE t (id bigint, s text);
         CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN IF new.id = 10 THEN PERFORM pg_sleep(1); END IF; RETURN new; END $$;
         CREATE TRIGGER w BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION wait()",
    );
    let bytes = std::fs::read(&file).expect("read");
    let writer = std::thread::spawn({
        let file = file.clone();
        move || {
            std::thread::sleep(std::time::Duration::from_millis(500));
            std::fs::write(file, bytes).expect("write");
        }
    });
    let outcome = load(&database, &[&file], |options| options.jobs = Some(1));
    writer.join().expect("writer");
    let error = match outcome {
        Err(error) => error,
        Ok(finished) => finished.error.expect("the file has changed"),
    };
    assert_eq!(error.code(), inrush_core::Code::SourceChanged, "{error}");
}
