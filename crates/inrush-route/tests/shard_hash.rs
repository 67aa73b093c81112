//! Hashes of distribution columns, against what a Citus cluster gave once and what servers give now.

use inrush_core::{BaseType, PgType};
use inrush_route::{HashKind, Shard, Shards, shard_hash};
use inrush_testkit::{Database, Postgres, Version, citus_vectors, require_server};

/// Base type, send function, and the hash function of its operator class, or one that does the same where SQL may not call
/// it: hashchar() for booleans, hashtext() for bytes.
#[rustfmt::skip]
const TYPES: &[(BaseType, &str, &str)] = &[
    (BaseType::Bool, "boolsend", "hashchar(CASE WHEN v THEN chr(1) ELSE '' END::\"char\")"),
    (BaseType::Int2, "int2send", "hashint2(v)"),
    (BaseType::Int4, "int4send", "hashint4(v)"),
    (BaseType::Int8, "int8send", "hashint8(v)"),
    (BaseType::Oid, "oidsend", "hashoid(v)"),
    (BaseType::Float4, "float4send", "hashfloat4(v)"),
    (BaseType::Float8, "float8send", "hashfloat8(v)"),
    (BaseType::Numeric, "numeric_send", "hash_numeric(v)"),
    (BaseType::Text, "textsend", "hashtext(v)"),
    (BaseType::Varchar, "varcharsend", "hashtext(v::text)"),
    (BaseType::Bpchar, "bpcharsend", "hashbpchar(v)"),
    (BaseType::Name, "namesend", "hashname(v)"),
    (BaseType::Bytea, "byteasend", "hashtext(convert_from(v, 'UTF8'))"),
    (BaseType::Uuid, "uuid_send", "uuid_hash(v)"),
    (BaseType::Date, "date_send", "hashint4(v - '2000-01-01'::date)"),
    (BaseType::Time, "time_send", "time_hash(v)"),
    (BaseType::Interval, "interval_send", "interval_hash(v)"),
    (BaseType::Timestamp, "timestamp_send", "timestamp_hash(v)"),
    (BaseType::Timestamptz, "timestamptz_send", "timestamp_hash(v AT TIME ZONE 'UTC')"),
];

fn of(name: &str) -> &'static (BaseType, &'static str, &'static str) {
    let found =
        TYPES.iter().find(|(base, ..)| base.sql() == name || format!("{base:?}").eq_ignore_ascii_case(name));
    found.unwrap_or_else(|| panic!("type {name}"))
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hexadecimal"))
        .collect()
}

fn literal(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// 32 shards of equal width, as Citus makes them.
fn uniform() -> Shards {
    let width = 1_i64 << 27;
    let start = |i: i64| i64::from(i32::MIN) + i * width;
    let shard = |i: i64| Shard {
        id: i.unsigned_abs(),
        min: i32::try_from(start(i)).expect("in range"),
        max: i32::try_from(start(i + 1) - 1).expect("in range"),
    };
    Shards::new((0..32).map(shard).collect()).expect("shards")
}

#[test]
fn as_citus_placed_rows() {
    require_server!(15);
    let server = Postgres::shared(Version::Major(15));
    let database = server.fresh_database();
    let shards = uniform();
    let records = citus_vectors::records();
    assert_eq!(records.len(), 132);
    for record in &records {
        let [ty, column, value, hash, index, min, max] = record.as_slice() else { panic!("{record:?}") };
        let (base, send, _) = of(ty);
        let sent = database.psql(&format!(
            "SET timezone = 'UTC'; SELECT encode({send}({}::{column}), 'hex')",
            literal(value)
        ));
        let kind = HashKind::of(&PgType::base(*base), -1).expect("a type with a hash");
        let found = shard_hash(kind, &bytes(&sent)).expect("a hash");
        assert_eq!(found.to_string(), *hash, "{ty} {value:?}");
        let shard = shards.find(found).expect("a shard");
        assert_eq!(
            (shard.id.to_string(), shard.min.to_string(), shard.max.to_string()),
            (index.clone(), min.clone(), max.clone()),
            "{ty} {value:?}"
        );
    }
}

#[test]
fn as_the_oldest_server_hashes() {
    require_server!(15);
    hashes(15);
}

#[test]
fn as_18_hashes() {
    require_server!(18);
    hashes(18);
}

fn hashes(version: u32) {
    let server = Postgres::shared(Version::Major(version));
    let database = server.fresh_database();
    for (base, send, function) in TYPES {
        one_type(&database, *base, send, function);
    }
}

fn one_type(database: &Database<'_>, base: BaseType, send: &str, function: &str) {
    let value = match base {
        BaseType::Int2 => "(random() * 65535 - 32768)::smallint",
        BaseType::Int4 => "(random() * 4294967295 - 2147483648)::integer",
        BaseType::Int8 => "(random() * 1e18)::bigint * (i % 3 - 1) - i",
        BaseType::Bool => "i % 2 = 0",
        BaseType::Oid => "(random() * 4294967295)::bigint::oid",
        BaseType::Float4 => {
            "CASE i WHEN 1 THEN 'NaN' WHEN 2 THEN '-0' WHEN 3 THEN 'inf' ELSE random() * 10 ^ (i % 30 - 15) END::real"
        }
        BaseType::Name => "substr(md5(i::text), 1, i % 33)::name",
        BaseType::Bytea => "convert_to(substr(md5(i::text) || 'äöü€', 1, i % 40), 'UTF8')",
        BaseType::Time => "'0:0'::time + random() * interval '1 day'",
        BaseType::Interval => {
            "make_interval(months => (random() * 1000 - 500)::integer, days => i - 100, secs => random() * 1e6)"
        }
        BaseType::Float8 => {
            "CASE i WHEN 1 THEN 'NaN' WHEN 2 THEN '-0' WHEN 3 THEN '-inf' ELSE random() * 10 ^ (i % 300 - 150) END::float8"
        }
        BaseType::Numeric => {
            "CASE i WHEN 1 THEN 'NaN' WHEN 2 THEN '0' WHEN 3 THEN 'Infinity' \
             ELSE ((random() - .5) * 10 ^ (i % 30 - 10))::numeric * 10 ^ (i % 9 - 4)::numeric END::numeric"
        }
        BaseType::Uuid => "md5(random()::text)::uuid",
        BaseType::Date => "'2000-01-01'::date + (random() * 1e6 - 5e5)::integer",
        BaseType::Timestamp => "'2000-01-01'::timestamp + (random() - .5) * interval '1000 years'",
        BaseType::Timestamptz => "now() - random() * interval '100 years'",
        _ => "rpad(substr(md5(i::text) || 'äöü€', 1, i % 40), i % 43)",
    };
    let rows = database.psql(&format!(
        "SELECT encode({send}(v), 'hex') || ' ' || {function}
           FROM (SELECT ({value})::{} AS v FROM generate_series(1, 400) i) x",
        base.sql()
    ));
    let kind = HashKind::of(&PgType::base(base), -1).expect("a type with a hash");
    let mut count = 0;
    for line in rows.lines() {
        let (hex, hash) = line.split_once(' ').expect("two fields");
        let found = shard_hash(kind, &bytes(hex)).expect("a hash");
        assert_eq!(found.to_string(), hash, "{base:?} {hex}");
        count += 1;
    }
    assert_eq!(count, 400, "{base:?}");
}
