//! Hostile files: a clear error with code, position and hint, nothing half done, no panic, no hang.

mod harness;

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::{Outcome, inrush, run};
use inrush_testkit::{Database, Postgres, Version};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a bad record's error ends with when no reject is allowed.
const REPAIR: &str =
    "hint: Repair the record, or let bad rows pass with --max-rejects N and keep them with --rejects FILE.";

struct Place {
    database: Database<'static>,
    dir: tempfile::TempDir,
}

impl Place {
    /// A database with `t (a int, b text)`, and a directory.
    fn new() -> Place {
        let database = Postgres::shared(Version::Any).fresh_database();
        database.psql("CREATE TABLE t (a int, b text)");
        Place { database, dir: tempfile::tempdir().expect("a directory") }
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Place {
        std::fs::write(self.dir.path().join(name), bytes).expect("to write a file");
        self
    }

    fn load(&self, args: &[&str]) -> Outcome {
        let mut command = inrush(self.dir.path());
        command.args(["load", "--table", "t", "--to", &self.database.url()]).args(args);
        let outcome = run(&mut command, None, PATIENCE);
        assert!(!outcome.panicked(), "{outcome:#?}");
        outcome
    }

    /// Loads; the error must be exactly this, and no row may be there.
    #[track_caller]
    fn refused(&self, args: &[&str], error: &str) {
        let outcome = self.load(args);
        outcome.expect_code(2);
        assert_eq!(outcome.stderr.trim_end(), error.trim(), "{outcome:#?}");
        assert_eq!(self.count(), 0, "nothing half done");
    }

    fn count(&self) -> u64 {
        self.database.psql("SELECT count(*) FROM t").parse().expect("a number")
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).and_then(|()| gzip.finish()).expect("to compress")
}

fn rows(n: usize) -> String {
    (1..=n).map(|i| format!("{i},row number {i}\n")).collect()
}

#[test]
fn too_few_and_too_many_fields() {
    for (record, fact, column) in [
        ("3", "missing data for column \"b\"", ", column b"),
        ("3,x,y", "extra data after last expected column", ""),
    ] {
        for via in ["copy-text", "copy-binary"] {
            let place = Place::new();
            place.write("t.csv", format!("1,x\n2,y\n{record}\n4,z\n"));
            place.refused(
                &["t.csv", "--no-header", "--via", via],
                &format!("error[rejects]: {fact} (SQLSTATE 22P04)\n  at: t.csv:3 (record 3, byte 8{column})\n{REPAIR}"),
            );
        }
    }
}

#[test]
fn truncated_in_the_middle_of_a_record() {
    let place = Place::new();
    place.write("t.csv", &rows(1000).as_bytes()[..5003]);
    let outcome = place.load(&["t.csv", "--no-header", "--chunk", "100"]);
    // What is left of a record may be a record: only its last field is shorter then, as COPY would see it.
    assert!(matches!(outcome.code, Some(0 | 2)), "{outcome:#?}");
    let place = Place::new();
    place.write("t.csv", "1,x\n2,y\n3");
    place.refused(
        &["t.csv", "--no-header"],
        &format!("error[rejects]: missing data for column \"b\" (SQLSTATE 22P04)\n  at: t.csv:3 (record 3, byte 8, column b)\n{REPAIR}"),
    );
}

#[test]
fn a_truncated_binary_file() {
    let place = Place::new();
    place.database.psql("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) g");
    let mut psql = place.database.server().psql_command(place.database.name());
    let whole = psql.args(["-qc", "COPY t TO STDOUT (FORMAT binary)"]).output().expect("psql").stdout;
    place.database.psql("TRUNCATE t");
    for cut in [0, 5, 18, 30, whole.len() / 2, whole.len() - 3] {
        place.write("t.bin", &whole[..cut]);
        let outcome = place.load(&["t.bin", "--format", "binary"]);
        outcome.expect_code(2);
        assert!(
            // Without the whole signature it is not known to be one.
            outcome.stderr.contains("error[format]: ")
                || (cut < 11 && outcome.stderr.contains("error[clash]: ")),
            "{cut}: {outcome:#?}"
        );
        assert_eq!(place.count(), 0, "cut at {cut}");
    }
    // Without its trailer a file is whole for COPY (copyfromparse.c, NextCopyFrom), and so it is here.
    for (cut, rows) in [(19, 0), (whole.len() - 2, 100)] {
        place.write("t.bin", &whole[..cut]);
        place.load(&["t.bin", "--format", "binary"]).expect_code(0);
        assert_eq!(place.count(), rows, "cut at {cut}");
    }
}

#[test]
fn invalid_utf8() {
    for via in ["copy-text", "copy-binary"] {
        let place = Place::new();
        place.write("t.csv", b"1,x\n2,a\xe9b\n3,y\n");
        place.refused(
            &["t.csv", "--no-header", "--via", via],
            &format!("error[rejects]: invalid byte sequence for encoding \"UTF8\": 0xe9 0x62 0x0a (SQLSTATE 22021)\n  at: t.csv:2 (record 2, byte 4)\n{REPAIR}"),
        );
    }
}

#[test]
fn nul_bytes() {
    for via in ["copy-text", "copy-binary"] {
        for chunk in ["1", "4MiB"] {
            let place = Place::new();
            place.write("t.csv", b"1,x\n2,a\0b\n3,y\n");
            place.refused(
                &["t.csv", "--no-header", "--via", via, "--chunk", chunk],
                &format!("error[rejects]: invalid byte sequence for encoding \"UTF8\": 0x00 (SQLSTATE 22021)\n  at: t.csv:2 (record 2, byte 4)\n{REPAIR}"),
            );
        }
    }
}

#[test]
fn a_record_over_the_limit() {
    for via in ["copy-text", "copy-binary"] {
        let place = Place::new();
        place.write("t.csv", format!("1,x\n2,{}\n3,y\n", "long".repeat(1000)));
        place.refused(
            &["t.csv", "--no-header", "--max-record", "1000", "--via", via],
            &format!("error[rejects]: record of 4003 bytes is longer than --max-record (1000 bytes) (SQLSTATE 54000)\n  at: t.csv:2 (record 2, byte 4)\n{REPAIR}"),
        );
        let outcome = place.load(&[
            "t.csv",
            "--no-header",
            "--max-record",
            "1000",
            "--max-rejects",
            "1",
            "--rejects",
            "bad.csv",
            "--chunk",
            "64",
            "--via",
            via,
        ]);
        outcome.expect_code(1);
        assert_eq!(place.database.psql("TABLE t"), "1|x\n3|y");
    }
}

#[test]
fn an_unbalanced_quote() {
    for chunk in ["1", "100", "4MiB"] {
        let place = Place::new();
        place.write("t.csv", "1,x\n2,\"y\n3,z\n4,z\n");
        place.refused(
            &["t.csv", "--no-header", "--chunk", chunk],
            &format!("error[rejects]: unterminated CSV quoted field (SQLSTATE 22P04)\n  at: t.csv:2 (record 2, byte 4)\n{REPAIR}"),
        );
        let outcome = place.load(&[
            "t.csv",
            "--no-header",
            "--chunk",
            chunk,
            "--max-rejects",
            "1",
            "--rejects",
            "bad.csv",
        ]);
        outcome.expect_code(1);
        assert_eq!(place.database.psql("TABLE t"), "1|x");
        let bad = std::fs::read_to_string(place.dir.path().join("bad.csv")).expect("bad.csv");
        assert_eq!(bad, "2,\"y\n3,z\n4,z\n");
    }
}

#[test]
fn an_unbalanced_quote_of_a_large_file_is_bounded() {
    let place = Place::new();
    place.write("t.csv", format!("1,x\n2,\"y\n{}", rows(200_000)));
    place.refused(
        &["t.csv", "--no-header", "--max-record", "1MiB"],
        &format!("error[rejects]: record of 4777795 bytes is longer than --max-record (1048576 bytes) (SQLSTATE 54000)\n  at: t.csv:2 (record 2, byte 4)\n{REPAIR}"),
    );
}

#[test]
fn nothing_in_it() {
    let place = Place::new();
    place.write("t.csv", "").write("h.csv", "a,b\n").write("e.csv.gz", gzip(b""));
    std::fs::create_dir(place.dir.path().join("empty")).expect("a directory");
    for file in ["t.csv", "h.csv", "e.csv.gz"] {
        let outcome = place.load(&[file, "--header"]);
        outcome.expect_code(0);
        assert!(outcome.stdout.starts_with("0 rows into public.t"), "{outcome:#?}");
    }
    let outcome = place.load(&["t.csv", "--no-header", "--again"]);
    outcome.expect_code(0);
    place.refused(
        &["empty"],
        "error[source-open]: there is no file in this directory\n  at: empty\nhint: Name a directory with files in it, or the files themselves.",
    );
    place.refused(
        &["x*.csv"],
        "error[source-open]: no file matches the pattern\n  at: x*.csv\nhint: Look with 'ls x*.csv' what is there; hidden files are matched only by a pattern that begins with a dot.",
    );
    place.refused(
        &["tt.csv"],
        "error[source-open]: no such file\n  at: tt.csv\nhint: There is t.csv; was that meant?",
    );
}

#[test]
fn unreadable() {
    let place = Place::new();
    place.write("t.csv", "1,x\n");
    let path = place.dir.path().join("t.csv");
    let mut permissions = std::fs::metadata(&path).expect("t.csv").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0);
    std::fs::set_permissions(&path, permissions).expect("to close t.csv");
    let error = "error[source-open]: could not open: permission denied\n  at: t.csv\nhint: The file is there; its permissions keep this user out.";
    if !rustix::process::geteuid().is_root() {
        return place.refused(&["t.csv", "--no-header"], error);
    }
    // Root reads everything: another account, which reaches the server through TCP.
    let reachable = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", harness::INRUSH, "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !reachable {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: unreadable file: as root, needs setpriv and a program other accounts can run"
        );
        return;
    }
    let mut open = std::fs::metadata(place.dir.path()).expect("the directory").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut open, 0o755);
    std::fs::set_permissions(place.dir.path(), open).expect("to open the directory");
    let mut command = Command::new("setpriv");
    harness::without_server_variables(&mut command);
    command
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            harness::INRUSH,
            "load",
            "t.csv",
            "--no-header",
        ])
        .args(["--table", "t", "--to", &place.database.tcp_url_via(place.database.server().port())])
        .env("HOME", "/nonexistent")
        .current_dir(place.dir.path());
    let outcome = run(&mut command, None, PATIENCE);
    outcome.expect_code(2);
    assert_eq!(outcome.stderr.trim_end(), error);
}

#[test]
fn a_file_that_is_cut_or_vanishes_while_it_is_loaded() {
    for vanish in [false, true] {
        let place = Place::new();
        let whole = rows(20_000);
        place.write("t.csv", &whole).write("u.csv", rows(10));
        let path = place.dir.path().join("t.csv");
        let mut command = inrush(place.dir.path());
        command.args([
            "load",
            "u.csv",
            "t.csv",
            "--table",
            "t",
            "--no-header",
            "--to",
            &place.database.url(),
        ]);
        command.args(["--max-rate", "200K", "--chunk", "2000", "--unit-millis", "10", "--unit-bytes", "4K"]);
        let mut running = harness::Running::start(&mut command, None);
        // Open and under way.
        let deadline = std::time::Instant::now() + PATIENCE;
        while place
            .database
            .try_psql("SELECT count(*) FROM t")
            .is_ok_and(|n| n.parse::<u64>().is_ok_and(|n| n < 100))
        {
            assert!(std::time::Instant::now() < deadline, "nothing comes");
        }
        if vanish {
            std::fs::remove_file(&path).expect("to remove t.csv");
        } else {
            std::fs::write(&path, &whole[..whole.len() / 50]).expect("to cut t.csv");
        }
        assert!(running.wait_until(deadline).is_some(), "it hangs");
        let outcome = running.finish();
        assert!(!outcome.panicked(), "{outcome:#?}");
        if vanish {
            // The open file is still there; what was promised is loaded.
            outcome.expect_code(0);
            assert_eq!(place.count(), 20_010);
        } else {
            outcome.expect_code(2);
            assert!(outcome.stderr.contains("error[source-changed]: "), "{outcome:#?}");
            assert!(outcome.stderr.contains("\n  at: "), "{outcome:#?}");
            assert!(outcome.stderr.contains("\nhint: "), "{outcome:#?}");
            // Whole units are there, and the ledger knows them.
            let same = "SELECT (SELECT count(*) FROM t) = (SELECT sum(rows) FROM inrush_ledger.units)";
            assert_eq!(place.database.psql(same), "t");
            // The file comes back: the rest is loaded.
            place.write("t.csv", &whole);
            let outcome = place.load(&["u.csv", "t.csv", "--no-header", "--resume"]);
            outcome.expect_code(0);
            assert_eq!(place.database.psql("SELECT count(*), count(DISTINCT b) FROM t"), "20010|20000");
        }
    }
}

#[test]
fn compressed_and_cut_off() {
    let whole = gzip(rows(5000).as_bytes());
    for cut in [12, whole.len() / 2, whole.len() - 4] {
        let place = Place::new();
        place.write("t.csv.gz", &whole[..cut]);
        let outcome = place.load(&["t.csv.gz", "--no-header"]);
        outcome.expect_code(2);
        assert!(outcome.stderr.contains("error[source-compression]: "), "{cut}: {outcome:#?}");
        assert!(outcome.stderr.contains("  at: t.csv.gz (byte "), "{cut}: {outcome:#?}");
        assert_eq!(
            place.database.psql(
                "SELECT (SELECT count(*) FROM t) = (SELECT coalesce(sum(rows), 0) FROM inrush_ledger.units)"
            ),
            "t"
        );
        let place = Place::new();
        place.write("t.csv.gz", &whole[..cut]);
        place.load(&["t.csv.gz", "--no-header", "--atomic"]).expect_code(2);
        assert_eq!(place.count(), 0, "{cut}");
    }
}

#[test]
fn compressed_and_damaged() {
    let mut bytes = gzip(rows(5000).as_bytes());
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    let place = Place::new();
    place.write("t.csv.gz", &bytes);
    let outcome = place.load(&["t.csv.gz", "--no-header", "--atomic"]);
    outcome.expect_code(2);
    assert!(
        outcome.stderr.contains("error[source-compression]: ") || outcome.stderr.contains("error[rejects]: "),
        "{outcome:#?}"
    );
    assert_eq!(place.count(), 0);
}

#[test]
fn a_gzip_bomb() {
    // Members compress alone: one is made and repeated. A record without end is cut at its limit.
    let member = gzip(&vec![b'x'; 32 << 20]);
    let place = Place::new();
    place.write("t.csv.gz", member.repeat(8));
    place.refused(
        &["t.csv.gz", "--no-header", "--columns", "b", "--max-record", "1MiB", "--quiet"],
        &format!(
            "error[rejects]: record of 268435456 bytes is longer than --max-record (1048576 bytes) (SQLSTATE 54000)\n  at: t.csv.gz:1 (record 1, byte 0)\n{REPAIR}"
        ),
    );
}

#[test]
fn a_zstd_bomb() {
    // More than a gigabyte, and more than a thousand times the file: 17 frames of 64 lines of a megabyte each.
    let line = [vec![b'x'; (1 << 20) - 1], vec![b'\n']].concat();
    let frame = zstd::encode_all(&line.repeat(64)[..], 1).expect("to compress");
    let place = Place::new();
    place.write("t.csv.zst", frame.repeat(17));
    let outcome =
        place.load(&["t.csv.zst", "--no-header", "--columns", "-", "--set", "b=y", "--atomic", "--quiet"]);
    outcome.expect_code(2);
    assert!(outcome.stderr.contains("error[source-compression]: "), "{outcome:#?}");
    assert!(outcome.stderr.contains("  at: t.csv.zst (byte "), "{outcome:#?}");
    assert_eq!(place.count(), 0);
}

#[test]
fn hostile_json() {
    for (line, what) in [
        ("{\"a\": 1", "cut off"),
        ("{\"a\": 1} x", "more behind it"),
        ("[1]", "no object"),
        ("{\"a\": \"\\ud800\"}", "half a surrogate"),
        ("{\"b\": \"\\u0000\"}", "a NUL"),
        (&"[".repeat(100_000), "deep"),
    ] {
        let place = Place::new();
        place.write("t.ndjson", format!("{{\"a\": 1, \"b\": \"x\"}}\n{line}\n{{\"a\": 3}}\n"));
        let outcome = place.load(&["t.ndjson", "--max-rejects", "1", "--rejects", "bad.ndjson"]);
        outcome.expect_code(1);
        assert_eq!(place.database.psql("SELECT a FROM t"), "1\n3", "{what}");
        let bad = std::fs::read_to_string(place.dir.path().join("bad.ndjson")).expect("bad.ndjson");
        assert_eq!(bad, format!("{line}\n"), "{what}");
    }
}

#[test]
fn a_directory_and_a_socket() {
    let place = Place::new();
    let path = place.dir.path().join("s");
    let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    place.refused(&["s"], "error[source-open]: it is neither a file nor a pipe\n  at: s");
    assert!(Path::new(harness::INRUSH).exists());
}
