use super::*;
use crate::target::Way;
use inrush_core::{BaseType, Column, Generated, Identity, PgType, RelKind, Table};
use inrush_sink::catalog::TableName;
use inrush_windows::{IndexKind, Late, Leaf as WindowLeaf, Policy, TimeKind, Window, WindowState, Windowed};

const HOUR: i64 = 3_600_000_000;

/// A table with lanes by the hash of k, with these windows, retired up to here.
fn target(windows: Vec<Window>, retired_to: i64, version: u64) -> Arc<Target> {
    let column = |(attnum, name, of): (i16, &str, BaseType)| Column {
        name: name.to_owned(),
        attnum,
        ty: PgType::base(of),
        typmod: -1,
        not_null: false,
        default: inrush_core::Default::None,
        generated: Generated::No,
        identity: Identity::No,
    };
    let columns = [(1, "at", BaseType::Timestamptz), (2, "k", BaseType::Int4)].map(column).to_vec();
    let table = Table {
        oid: 1,
        schema: "public".into(),
        name: "t".into(),
        kind: RelKind::Partitioned,
        unlogged: false,
        columns,
    };
    let policy = Policy {
        width: HOUR,
        keep: None,
        max_size: None,
        min_free: None,
        ahead: 2,
        lanes: 2,
        key_column: Some("k".into()),
        tablespaces: Vec::new(),
        unlogged: false,
        index: IndexKind::None,
        pages_per_range: 128,
        late: Late::Overflow,
        idle_us: 0,
    };
    let windowed = Windowed {
        relid: 1,
        name: TableName { schema: Some("public".into()), name: "t".into() },
        time_column: "at".into(),
        time_kind: TimeKind::Timestamptz,
        unit: None,
        policy,
        retired_to: Some(retired_to),
        windows,
        overflow: Some(WindowLeaf { relid: 9, schema: "public".into(), name: "t_late".into(), lane: 0 }),
    };
    let session = inrush_encode::Session::from_settings("UTC", "postgres", "on");
    Arc::new(Target::new("t".into(), "t", table, Some(windowed), Way::Here, session, version))
}

/// The leaf's OID and the number in its window of a row with this key, at 2001-01-01 00:30.
fn spots(target: &Arc<Target>) -> Vec<(u32, u32)> {
    let into = Into::default();
    let mut reader = Reader::new(target, &into, &Reading::Ndjson, &[]).unwrap();
    let mut fields = Fields::new();
    let spot = |k: i32| {
        let record = format!("{{\"at\":\"2001-01-01 00:30:00+00\",\"k\":{k}}}\n");
        reader.begin(record.as_bytes());
        reader.next(record.as_bytes(), &mut fields).unwrap().result.unwrap();
        match reader.spot(&Record { input: record.as_bytes(), fields: &fields }) {
            Spot::Leaf(leaf, number, _) => (reader.leaf(leaf).relid, number),
            _ => panic!("no leaf"),
        }
    };
    (0..20).map(spot).collect()
}

/// Rows that are read again come to the lane they came to before, or what it has of them says nothing.
#[test]
fn a_late_row_keeps_its_number() {
    let start = 366 * 24 * HOUR;
    let leaf = |lane| WindowLeaf { relid: 2 + lane, schema: "public".into(), name: format!("l{lane}"), lane };
    let window =
        Window { start, end: start + HOUR, state: WindowState::Closed, leaves: vec![leaf(0), leaf(1)] };
    let before = spots(&target(vec![window], start, 1));
    let after = spots(&target(Vec::new(), start + HOUR, 2));
    assert!(before.iter().any(|(_, number)| *number == 0) && before.iter().any(|(_, number)| *number == 1));
    for ((leaf, number), (late, same)) in before.into_iter().zip(after) {
        assert_eq!((leaf, late, number), (2 + number, 9, same));
    }
}
