//! The ledger's tables: made, brought up to date, refused.

use inrush_core::Code;
use inrush_sink::connect::{self, Connected};
use inrush_sink::conninfo;
use inrush_sink::ledger::Ledger;
use inrush_testkit::{Postgres, require_server};

/// What versions 2, 3 and 4 have added.
const OF_2: &str = "DROP TABLE inrush_ledger.levers, inrush_ledger.settings";
const OF_3: &str = "DROP TABLE inrush_ledger.windowed, inrush_ledger.windows, inrush_ledger.partitions,
     inrush_ledger.offsets, inrush_ledger.offsets_unlogged, inrush_ledger.requests, inrush_ledger.requests_unlogged,
     inrush_ledger.progress, inrush_ledger.progress_unlogged, inrush_ledger.dead_letters,
     inrush_ledger.dead_letters_unlogged";

const OF_4: &str = "DROP TABLE inrush_ledger.origin, inrush_ledger.prepared, inrush_ledger.marks";

fn make_old(version: i32) -> String {
    let newer: String = [(4, OF_4), (3, OF_3), (2, OF_2)]
        .iter()
        .filter(|(added, _)| *added > version)
        .map(|(_, drop)| format!("{drop};"))
        .collect();
    format!("{newer} UPDATE inrush_ledger.version SET version = {version}")
}

async fn open(dsn: &str) -> Connected {
    let info = conninfo::resolve(Some(dsn), &|_| None).expect("settings").expect("a server");
    connect::connect(&info, "ledger test").await.expect("connection")
}

#[tokio::test]
async fn an_older_ledger_is_brought_up_to_date() {
    require_server!(15);
    let database = Postgres::shared(15).fresh_database();
    let mut first = open(&database.url()).await;
    let mut second = open(&database.url()).await;
    Ledger::open(&mut first.client, "inrush_ledger", true).await.unwrap().unwrap();
    let shape = "SELECT string_agg(table_name || '.' || column_name || ' ' || data_type, E'\\n'
                                   ORDER BY table_name, ordinal_position)
                   FROM information_schema.columns WHERE table_schema = 'inrush_ledger'";
    let made = database.psql(shape);
    database.psql("INSERT INTO inrush_ledger.units VALUES (1, 0, 0, 9, 1, 2, 0, 2, 2, '{3}')");
    for version in [1, 2, 3, 1, 2, 3] {
        database.psql(&make_old(version));
        let (a, b) = tokio::join!(
            Ledger::open(&mut first.client, "inrush_ledger", true),
            Ledger::open(&mut second.client, "inrush_ledger", false)
        );
        assert!(a.unwrap().is_some() && b.unwrap().is_some());
        assert_eq!(database.psql(shape), made);
    }
    assert_eq!(database.psql("SELECT rows FROM inrush_ledger.units").trim(), "2");
}

#[tokio::test]
async fn only_its_owner_brings_it_up_to_date() {
    require_server!(15);
    let database = Postgres::shared(15).fresh_database();
    let mut owner = open(&database.url()).await;
    Ledger::open(&mut owner.client, "inrush_ledger", true).await.unwrap().unwrap();
    let role = format!("ledger_{}", std::process::id());
    database.psql(&format!(
        "{}; CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA inrush_ledger TO {role};
         GRANT ALL ON ALL TABLES IN SCHEMA inrush_ledger TO {role}",
        make_old(1)
    ));
    let mut other = open(&database.url().replace("postgres@", &format!("{role}@"))).await;
    let refused = Ledger::open(&mut other.client, "inrush_ledger", true).await.unwrap_err();
    database.psql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    assert_eq!(refused.code(), Code::Ledger);
    assert!(refused.hint_text().unwrap().contains("owner"), "{refused:?}");
}

#[tokio::test]
async fn a_newer_ledger_is_refused() {
    require_server!(15);
    let database = Postgres::shared(15).fresh_database();
    let mut owner = open(&database.url()).await;
    Ledger::open(&mut owner.client, "inrush_ledger", true).await.unwrap().unwrap();
    database.psql("UPDATE inrush_ledger.version SET version = 99");
    let refused = Ledger::open(&mut owner.client, "inrush_ledger", true).await.unwrap_err();
    assert!(refused.fact().contains("99"), "{refused:?}");
}
