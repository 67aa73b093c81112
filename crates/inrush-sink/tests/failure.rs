//! What COPY's errors say about rows, on a real server.

use inrush_sink::connect::{self, Connected};
use inrush_sink::conninfo;
use inrush_sink::failure::{self, Failure};
use inrush_testkit::{Postgres, require_server};

/// Format, data, SQLSTATE, line, whether the line is exact, column.
type Case = (&'static str, String, &'static str, Option<u64>, bool, Option<&'static str>);

async fn open(dsn: &str) -> Connected {
    let info = conninfo::resolve(Some(dsn), &|_| None).expect("settings").expect("a server");
    connect::connect(&info, "failure test").await.expect("connection")
}

#[tokio::test]
async fn failures_of_copy_name_the_row() {
    require_server!(15);
    let database = Postgres::shared(15).fresh_database();
    database.psql(
        r#"CREATE TABLE keys (k int PRIMARY KEY);
           CREATE TABLE "line 7" (id int PRIMARY KEY, "column" int CHECK ("column" < 10), n text NOT NULL, k int REFERENCES keys, d int UNIQUE DEFERRABLE INITIALLY DEFERRED);
           CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN IF NEW.n = 'raise' THEN RAISE EXCEPTION 'not this one'; END IF;
                 IF NEW.n = 'own' THEN RAISE EXCEPTION 'own code' USING ERRCODE = 'IN001'; END IF;
                 IF NEW.n = 'bug' THEN PERFORM * FROM not_there; END IF;
                 RETURN NEW; END $$;
           CREATE TRIGGER t BEFORE INSERT ON "line 7" FOR EACH ROW EXECUTE FUNCTION f();
           CREATE INDEX ON "line 7" (n);"#,
    );
    let connected = open(&database.url()).await;
    let columns = ["id", "column", "n", "k", "d"];
    let long = {
        let mut seed = 1u32;
        (0..9000)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                char::from(b'a' + (seed >> 24) as u8 % 26)
            })
            .collect::<String>()
    };
    let cases: Vec<Case> = vec![
        ("csv", "1,1,a,,\n2,x,a,,\n".into(), "22P02", Some(2), true, Some("column")),
        // Physical lines, but not those inside the first record: the server does not know its line end yet.
        ("csv", "1,1,\"a\nb\",,\n2,1,a,,\nx,1,a,,\n".into(), "22P02", Some(3), true, Some("id")),
        ("csv", "1,1,a,,\n2,1,\"a\nb\",,\nx,1,a,,\n".into(), "22P02", Some(4), true, Some("id")),
        ("csv", "1,1,a,,\n2,1,,,\n3,1,a,,\n".into(), "23502", Some(2), true, Some("n")),
        ("csv", "1,1,a,,\n2,99,a,,\n3,1,a,,\n".into(), "23514", Some(2), true, None),
        ("csv", "1,1,a,,\n2,2,b,,\n1,1,a,,\n4,4,d,,\n".into(), "23505", Some(3), true, None),
        ("csv", "1,1,a,,\n2,1,a\n".into(), "22P04", Some(2), true, None),
        ("csv", "1,1,a,,,,\n".into(), "22P04", Some(1), true, None),
        ("csv", "1,1,a,5,\n".into(), "23503", None, false, None),
        ("csv", "1,1,raise,,\n".into(), "P0001", Some(1), true, None),
        ("csv", "1,1,own,,\n".into(), "IN001", Some(1), true, None),
        ("csv", format!("1,1,a,,\n2,1,{long},,\n3,1,a,,\n"), "54000", Some(2), false, None),
        (
            "text",
            "1\t1\ta\t\\N\t\\N\n2\t99999999999\ta\t\\N\t\\N\n".into(),
            "22003",
            Some(2),
            true,
            Some("column"),
        ),
        (
            "text",
            "1\t1\tCOPY line 7, line 99, column id\t\\N\t\\N\nline 98, column id: \"\t1\ta\t\\N\t\\N\n"
                .into(),
            "22P02",
            Some(2),
            true,
            Some("id"),
        ),
        ("text", "1\t1\t\\xff\t\\N\t\\N\n".into(), "22021", Some(1), true, None),
    ];
    for (format, data, sqlstate, line, exact, column) in cases {
        let error = copy(&connected, format, &data).await.expect_err("refused");
        let Failure::Row(row) = failure::of_copy(&error, "line 7", &columns) else {
            panic!("{data:?}: {:?}", failure::of_copy(&error, "line 7", &columns));
        };
        assert_eq!(row.sqlstate, sqlstate, "{data:?}");
        assert_eq!(
            (row.line, row.line_exact, row.column.as_deref()),
            (line, exact, column),
            "{data:?}: {row:?} {error:?}"
        );
        assert!(row.reason.len() < 1000 && row.error.sqlstate_text() == Some(sqlstate), "{row:?}");
    }
    let error = copy(&connected, "csv", "1,1,bug,,\n").await.expect_err("refused");
    assert!(matches!(failure::of_copy(&error, "line 7", &columns), Failure::Fatal(_)), "{error:?}");

    // Binary: a NULL in a NOT NULL column, and an integer of the wrong length.
    let header = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
    let mut data = header.to_vec();
    data.extend_from_slice(&[0, 5, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0]);
    let error = copy_bytes(&connected, "binary", data).await.expect_err("refused");
    match failure::of_copy(&error, "line 7", &columns) {
        Failure::Row(row) => {
            assert_eq!((row.line, row.column.as_deref()), (Some(1), Some("column")), "{row:?}");
        }
        other => panic!("{other:?}"),
    }

    // Deferred to the commit: about rows, without a line.
    connected.client.batch_execute("BEGIN").await.expect("BEGIN");
    copy(&connected, "csv", "1,1,a,,1\n2,1,a,,1\n").await.expect("checked later");
    let error = connected.client.batch_execute("COMMIT").await.expect_err("refused");
    assert!(
        matches!(failure::of_commit(&error), Failure::Row(row) if row.line.is_none() && row.sqlstate == "23505")
    );
}

async fn copy(connected: &Connected, format: &str, data: &str) -> Result<u64, tokio_postgres::Error> {
    copy_bytes(connected, format, data.as_bytes().to_vec()).await
}

async fn copy_bytes(
    connected: &Connected,
    format: &str,
    data: Vec<u8>,
) -> Result<u64, tokio_postgres::Error> {
    use futures_util::SinkExt;
    let sink = connected.client.copy_in(&format!("COPY \"line 7\" FROM STDIN (FORMAT {format})")).await?;
    let mut sink = std::pin::pin!(sink);
    sink.send(bytes::Bytes::from(data)).await?;
    sink.finish().await
}
