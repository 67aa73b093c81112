//! Partitions by range, against where servers put real rows.

use inrush_core::{BaseType, PgType};
use inrush_route::{End, HashKind, Range, RangeKind, Ranges, parse_range};
use inrush_testkit::{Database, Postgres, Version, require_server};

/// Column type, base type, send function, and an expression for value i. Text that is not ordered by its bytes is not
/// known here.
#[rustfmt::skip]
const COLUMNS: &[(&str, BaseType, &str, &str)] = &[
    ("smallint", BaseType::Int2, "int2send", "(random() * 65535 - 32768)::smallint"),
    ("integer", BaseType::Int4, "int4send", "(random() * 4294967295 - 2147483648)::integer"),
    ("bigint", BaseType::Int8, "int8send", "(random() * 1e18)::bigint * (i % 3 - 1) - i"),
    ("oid", BaseType::Oid, "oidsend", "(random() * 4294967295)::bigint::oid"),
    ("date", BaseType::Date, "date_send", "CASE i WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity' ELSE '2000-01-01'::date + (random() * 4e5 - 2e5)::integer END"),
    ("timestamp", BaseType::Timestamp, "timestamp_send", "'2000-01-01'::timestamp + (random() - .5) * interval '1000 years'"),
    ("timestamptz", BaseType::Timestamptz, "timestamptz_send", "CASE i WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity' ELSE '2000-01-01'::timestamptz + (random() - .5) * interval '1000 years' END"),
    ("uuid", BaseType::Uuid, "uuid_send", "md5(random()::text)::uuid"),
    ("bytea", BaseType::Bytea, "byteasend", "substr(decode(md5(random()::text), 'hex'), 1, i % 5)"),
    (r#"text COLLATE "C""#, BaseType::Text, "textsend", r"substr('''\äöü€,)(' || md5(random()::text), 1 + i % 8, i % 11)"),
    (r#"varchar COLLATE "C""#, BaseType::Varchar, "varcharsend", "substr(md5(random()::text), 1, i % 4)"),
];

/// How many bounds there are, and values to look for besides them.
const BOUNDS: usize = 12;
const VALUES: usize = 300;

#[test]
fn as_the_oldest_server_routes() {
    require_server!(15);
    routes(15);
}

#[test]
fn as_18_routes() {
    require_server!(18);
    routes(18);
}

fn routes(version: u32) {
    let server = Postgres::shared(Version::Major(version));
    let database = server.fresh_database();
    for (i, column) in COLUMNS.iter().enumerate() {
        // With and without ranges that have no end, and with holes.
        for bounded in [false, true] {
            one_column(&database, &format!("t{i}_{bounded}"), column, bounded);
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hexadecimal"))
        .collect()
}

fn one_column(database: &Database<'_>, table: &str, column: &(&str, BaseType, &str, &str), bounded: bool) {
    let &(ty, base, send, value) = column;
    let plain = ty.split(' ').next().expect("a type");
    let literals = database.psql(&format!(
        "CREATE TABLE {table} (v {ty}) PARTITION BY RANGE (v);
         CREATE TABLE {table}_default PARTITION OF {table} DEFAULT;
         CREATE TABLE {table}_raw AS SELECT i, ({value})::{plain} AS v FROM generate_series(1, {VALUES}) i;
         -- In the order of the type, and each once.
         SELECT quote_literal(v) FROM (SELECT DISTINCT v::{ty} AS v FROM
             (SELECT v FROM {table}_raw ORDER BY random() LIMIT {BOUNDS}) y) x ORDER BY v"
    ));
    let literals: Vec<&str> = literals.lines().collect();
    let mut sql = String::new();
    let mut add = |number: usize, from: &str, to: &str| {
        sql += &format!(
            "CREATE TABLE {table}_{number} PARTITION OF {table} FOR VALUES FROM ({from}) TO ({to});\n"
        );
    };
    for (number, two) in literals.windows(2).enumerate().filter(|(number, _)| number % 3 != 2) {
        add(number, two[0], two[1]);
    }
    if !bounded {
        add(BOUNDS, "MINVALUE", literals[0]);
        add(BOUNDS + 1, literals[literals.len() - 1], "MAXVALUE");
    }
    database.psql(&sql);
    let kind = HashKind::of(&PgType::base(base), -1).and_then(RangeKind::of).expect("a type with an order");
    let partitions = database.psql(&format!(
        "SELECT c.oid::regclass || ' ' || pg_get_expr(c.relpartbound, c.oid)
           FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
          WHERE i.inhparent = '{table}'::regclass ORDER BY c.oid"
    ));
    let (mut names, mut ranges, mut default) = (Vec::new(), Vec::new(), None);
    for (at, line) in partitions.lines().enumerate() {
        let (name, bound) = line.split_once(' ').expect("a name and a bound");
        names.push(name.to_owned());
        if bound == "DEFAULT" {
            default = Some(at);
            continue;
        }
        let (from, to) = parse_range(bound).unwrap_or_else(|| panic!("{bound}"));
        let end = |value: Option<String>, without: End| {
            value.map_or(without, |value| {
                let literal = format!("'{}'", value.replace('\'', "''"));
                End::Value(bytes(
                    &database.psql(&format!("SELECT encode({send}({literal}::{plain}), 'hex')")),
                ))
            })
        };
        ranges.push((Range { from: end(from, End::Min), to: end(to, End::Max) }, at));
    }
    let with = Ranges::new(kind, ranges.clone(), default).expect("ranges");
    let without = Ranges::new(kind, ranges, None).expect("ranges");
    // The bounds themselves are among the values.
    let rows = database.psql(&format!(
        "INSERT INTO {table} SELECT v FROM {table}_raw;
         SELECT tableoid::regclass || ' ' || encode({send}(v), 'hex') FROM {table}"
    ));
    let mut outside = 0;
    for line in rows.lines() {
        let (name, hex) = line.split_once(' ').expect("a name and a value");
        let value = bytes(hex);
        let there = names.iter().position(|known| known == name);
        assert_eq!(with.find(Some(&value)), there, "{ty}: {hex} is in {name} of {partitions}");
        assert_eq!(without.find(Some(&value)), there.filter(|_| there != default), "{ty}: {hex}");
        outside += usize::from(there == default);
    }
    assert_eq!(rows.lines().count(), VALUES, "{ty}");
    assert!(outside > 0 && outside < VALUES, "{ty}: {outside} rows in no range");
    assert_eq!((with.find(None), without.find(None)), (default, None));
}
