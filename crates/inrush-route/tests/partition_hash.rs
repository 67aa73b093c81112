//! Hashes of partition keys, against what PostgreSQL 15 gave once and what servers give now.

use inrush_core::{BaseType, PgType, TypeKind};
use inrush_route::{HashKind, partition_hash};
use inrush_testkit::{Database, Postgres, Version, require_server};
use std::fmt::Write;

fn kind(base: BaseType) -> HashKind {
    HashKind::of(&PgType::base(base), -1).expect("a type with a hash")
}

/// Type, value and row hash, from PostgreSQL 15.20: proven there with real tuple routing and
/// `satisfies_hash_partition`.
#[rustfmt::skip]
const VECTORS: &[(&str, &str, u64)] = &[
    ("int4", "0", 901916981443598768),
    ("int4", "1", 11274504255086170040),
    ("int4", "-1", 288437243775528869),
    ("int4", "2", 16968177202474426746),
    ("int4", "42", 12669485132091644514),
    ("int4", "100", 16889660449545884249),
    ("int4", "-100", 9055519186282809999),
    ("int4", "1000000", 9404234410391201931),
    ("int4", "2147483647", 17701988066039669119),
    ("int4", "-2147483648", 10244051894435199606),
    ("int8", "0", 901916981443598768),
    ("int8", "1", 11274504255086170040),
    ("int8", "-1", 288437243775528869),
    ("int8", "42", 12669485132091644514),
    ("int8", "4294967296", 11274504255086170040),
    ("int8", "-4294967296", 901916981443598768),
    ("int8", "1000000000000", 2122319339643472789),
    ("int8", "9223372036854775807", 10244051894435199606),
    ("int8", "-9223372036854775808", 17701988066039669119),
    ("int8", "7", 7014080962610971927),
    ("text", "", 18051608080690800806),
    ("text", "a", 17047028206024085342),
    ("text", "A", 4640421020580682667),
    ("text", "hello", 2670230039693765524),
    ("text", "hello world", 12969806090253790600),
    ("text", "0123456789ab", 18118932120903792684),
    ("text", "0123456789abc", 14442216475819065531),
    ("text", "naïve café", 4992584210586712376),
    ("text", "日本語", 15701977905405603006),
    ("text", "x y z", 2106638728255001522),
    ("uuid", "00000000-0000-0000-0000-000000000000", 24427445038037925),
    ("uuid", "ffffffff-ffff-ffff-ffff-ffffffffffff", 5156523127093460353),
    ("uuid", "123e4567-e89b-12d3-a456-426614174000", 4053376898952622981),
    ("uuid", "550e8400-e29b-41d4-a716-446655440000", 1837617939103458761),
    ("(int4,text)", "1,x", 15611108208836950582),
    ("(int4,text)", "2,y", 794731888000431991),
    ("(int4,text)", "None,x", 6168220285300744303),
    ("(int4,text)", "1,None", 11274504255086170040),
    ("(int4,text)", "None,None", 0),
    ("(int4,text)", "77,hello", 12646082742058232647),
];

#[test]
fn kept_hashes() {
    let int4 =
        |text: &str| (text != "None").then(|| text.parse::<i32>().expect("a number").to_be_bytes().to_vec());
    let text = |text: &str| (text != "None").then(|| text.as_bytes().to_vec());
    for &(ty, value, expected) in VECTORS {
        let values = match ty {
            "int4" => vec![(kind(BaseType::Int4), int4(value))],
            "int8" => {
                let number: i64 = value.parse().expect("a number");
                vec![(kind(BaseType::Int8), Some(number.to_be_bytes().to_vec()))]
            }
            "text" => vec![(kind(BaseType::Text), text(value))],
            "uuid" => {
                let digits = value.replace('-', "");
                let uuid = u128::from_str_radix(&digits, 16).expect("hexadecimal");
                vec![(kind(BaseType::Uuid), Some(uuid.to_be_bytes().to_vec()))]
            }
            _ => {
                let (number, word) = value.split_once(',').expect("two values");
                vec![(kind(BaseType::Int4), int4(number)), (kind(BaseType::Text), text(word))]
            }
        };
        let values: Vec<_> = values.iter().map(|(kind, value)| (*kind, value.as_deref())).collect();
        assert_eq!(partition_hash(&values), Some(expected), "{ty} {value}");
    }
}

#[test]
fn bytes_that_are_no_value_have_no_hash() {
    for base in BaseType::ALL {
        let Some(kind) = HashKind::of(&PgType::base(*base), -1) else { continue };
        let any_length = matches!(kind, HashKind::Text | HashKind::Bytea | HashKind::Bpchar)
            || matches!(kind, HashKind::Varchar { .. });
        assert_eq!(partition_hash(&[(kind, Some(b"seven b"))]).is_some(), any_length, "{base:?}");
        assert_eq!(partition_hash(&[(kind, None)]), Some(0));
    }
    let short = HashKind::Varchar { limit: Some(2) };
    assert_eq!(short.hash("äö  ".as_bytes(), 1), short.hash("äö".as_bytes(), 1));
    assert_eq!(short.hash("äöü".as_bytes(), 1), None);
    assert_eq!(short.hash(b"ab\xff", 1), None);
    for base in [BaseType::Jsonb, BaseType::Inet, BaseType::Timetz] {
        assert_eq!(HashKind::of(&PgType::base(base), -1), None);
    }
}

#[test]
fn types_without_a_hash_say_why() {
    let numeric = PgType::base(BaseType::Numeric);
    assert_eq!(HashKind::why_not(&numeric, -1), None);
    let why = HashKind::why_not(&numeric, (10 << 16 | 2) + 4).expect("a reason");
    assert_eq!(why, "keys of type numeric are not hashed here: the server rounds them first");
    for base in BaseType::ALL {
        let ty = PgType::base(*base);
        assert_eq!(HashKind::why_not(&ty, -1).is_none(), HashKind::of(&ty, -1).is_some(), "{base:?}");
    }
    let array = TypeKind::Array { element: Box::new(PgType::base(BaseType::Int4)) };
    for (kind, word) in [(TypeKind::Enum, "number"), (array, "element"), (TypeKind::Other, "server")] {
        let ty = PgType { oid: 1, name: "mood".into(), kind };
        let domain = TypeKind::Domain { base: Box::new(ty), typmod: -1 };
        let domain = PgType { oid: 2, name: "over".into(), kind: domain };
        let why = HashKind::why_not(&domain, -1).expect("a reason");
        assert!(why.contains("over") && why.contains(word), "{why}");
    }
}

type ColumnCase = (&'static str, BaseType, i32, &'static str, &'static str);

/// Column type, base type, modifier, send function, and an expression for value i of the type without modifier.
#[rustfmt::skip]
const COLUMNS: &[ColumnCase] = &[
    ("boolean", BaseType::Bool, -1, "boolsend", "i % 2 = 0"),
    ("smallint", BaseType::Int2, -1, "int2send", "(random() * 65535 - 32768)::smallint"),
    ("integer", BaseType::Int4, -1, "int4send", "(random() * 4294967295 - 2147483648)::integer"),
    ("bigint", BaseType::Int8, -1, "int8send", "(random() * 1e18)::bigint * (i % 3 - 1) - i"),
    ("oid", BaseType::Oid, -1, "oidsend", "(random() * 4294967295)::bigint::oid"),
    ("real", BaseType::Float4, -1, "float4send", "CASE i WHEN 1 THEN 'NaN' WHEN 2 THEN '-0' WHEN 3 THEN 'inf' WHEN 4 THEN '0' ELSE random() * 10 ^ (i % 30 - 15) END::real"),
    ("double precision", BaseType::Float8, -1, "float8send", "CASE i WHEN 1 THEN 'NaN' WHEN 2 THEN '-0' WHEN 3 THEN '-inf' WHEN 4 THEN '0' ELSE random() * 10 ^ (i % 300 - 150) END::float8"),
    ("text", BaseType::Text, -1, "textsend", "substr(repeat(md5(i::text) || 'äöü€', 2), i % 13, i % 40)"),
    ("varchar", BaseType::Varchar, -1, "varcharsend", "substr(md5(i::text), 1, i % 33)"),
    ("varchar(3)", BaseType::Varchar, 7, "varcharsend", "rpad(substr('ä' || md5(i::text), 1, i % 4), 5)"),
    ("character(12)", BaseType::Bpchar, 16, "textsend", "rpad(substr(md5(i::text), 1, i % 12), i % 15)"),
    ("name", BaseType::Name, -1, "namesend", "substr(md5(i::text), 1, i % 33)::name"),
    ("bytea", BaseType::Bytea, -1, "byteasend", "substr(decode(md5(i::text) || md5(i::text), 'hex'), 1, i % 33)"),
    ("uuid", BaseType::Uuid, -1, "uuid_send", "md5(random()::text)::uuid"),
    ("date", BaseType::Date, -1, "date_send", "CASE i WHEN 1 THEN 'infinity' ELSE '2000-01-01'::date + (random() * 1e6 - 5e5)::integer END"),
    ("time", BaseType::Time, -1, "time_send", "'0:0'::time + random() * interval '1 day'"),
    ("time(2)", BaseType::Time, 2, "time_send", "'0:0'::time + random() * interval '1 day'"),
    ("timestamp", BaseType::Timestamp, -1, "timestamp_send", "CASE i WHEN 1 THEN '-infinity' ELSE '2000-01-01'::timestamp + (random() - .5) * interval '1000 years' END"),
    ("timestamp(3)", BaseType::Timestamp, 3, "timestamp_send", "CASE i WHEN 1 THEN 'infinity' ELSE '2000-01-01'::timestamp + (random() - .5) * interval '1000 years' END"),
    ("timestamptz", BaseType::Timestamptz, -1, "timestamptz_send", "now() - random() * interval '100 years'"),
    ("timestamptz(0)", BaseType::Timestamptz, 0, "timestamptz_send", "now() - random() * interval '100 years'"),
    ("numeric", BaseType::Numeric, -1, "numeric_send", "CASE i WHEN 1 THEN 'NaN' WHEN 2 THEN '0' WHEN 3 THEN '-0.000' WHEN 4 THEN 'Infinity' WHEN 5 THEN '-Infinity' ELSE ((random() - .5) * 10 ^ (i % 30 - 10))::numeric * 10 ^ (i % 9 - 4)::numeric END::numeric"),
    ("interval", BaseType::Interval, -1, "interval_send", "make_interval(months => (random() * 1000 - 500)::integer, days => i - 100, secs => random() * 1e6)"),
];

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
        one_column(&database, i, column);
    }
    two_columns(&database);
    for (number, columns) in COLUMNS.windows(4).enumerate() {
        four_columns(&database, number, columns);
    }
}

/// A modulus of which the remainder says as much of the hash as the server takes.
const MODULUS: u64 = i32::MAX as u64;

fn one_column(database: &Database<'_>, i: usize, column: &ColumnCase) {
    let &(ty, base, typmod, send, value) = column;
    let base_name = base.sql();
    // The bytes are those of the value before the modifier: that is what COPY binary would carry.
    let sent = database.psql(&format!(
        "CREATE TABLE p{i} (v {ty}) PARTITION BY HASH (v);
         CREATE TABLE p{i}_0 PARTITION OF p{i} FOR VALUES WITH (modulus 2, remainder 0);
         CREATE TABLE p{i}_1 PARTITION OF p{i} FOR VALUES WITH (modulus 2, remainder 1);
         CREATE TABLE raw{i} AS SELECT i, ({value})::{} AS v FROM generate_series(1, 400) i;
         SELECT i || ' ' || encode({send}(v), 'hex') FROM raw{i}",
        if base == BaseType::Bpchar { "text" } else { base_name },
    ));
    let kind = HashKind::of(&PgType::base(base), typmod).expect("a type with a hash");
    let mut rows = Vec::new();
    for line in sent.lines() {
        let (number, hex) = line.split_once(' ').expect("two fields");
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hexadecimal"))
            .collect();
        let hash = partition_hash(&[(kind, Some(&bytes))]).expect("a hash");
        rows.push(format!("({number}, {}, {})", hash % MODULUS, hash % 2));
    }
    assert_eq!(rows.len(), 400);
    let wrong = database.psql(&format!(
        "CREATE TABLE r{i} (i integer, remainder integer, half integer);
         INSERT INTO r{i} VALUES {};
         SELECT string_agg(i || ': ' || v, ', ') FROM raw{i} JOIN r{i} USING (i)
         WHERE NOT satisfies_hash_partition('p{i}'::regclass, {MODULUS}, remainder, v::{ty});
         -- Real routing: the partitions themselves take what they are given, or refuse it.
         INSERT INTO p{i}_0 SELECT v FROM raw{i} JOIN r{i} USING (i) WHERE half = 0;
         INSERT INTO p{i}_1 SELECT v FROM raw{i} JOIN r{i} USING (i) WHERE half = 1;",
        rows.join(",")
    ));
    assert_eq!(wrong, "", "{ty}");
}

fn two_columns(database: &Database<'_>) {
    database.psql("CREATE TABLE two (a integer, b text) PARTITION BY HASH (a, b)");
    let mut checks = String::from("SELECT bool_and(ok) FROM (VALUES (true)");
    for i in 0..200_i32 {
        let (a, b) = ((i % 3 != 0).then_some(i * 7919), (i % 5 != 0).then(|| format!("key {i}")));
        let bytes = a.map(i32::to_be_bytes);
        let values = [
            (kind(BaseType::Int4), bytes.as_ref().map(<[u8; 4]>::as_slice)),
            (kind(BaseType::Text), b.as_deref().map(str::as_bytes)),
        ];
        let hash = partition_hash(&values).expect("a hash");
        let (a, b) =
            (a.map_or("NULL".into(), |a| a.to_string()), b.map_or("NULL".into(), |b| format!("'{b}'")));
        let remainder = hash % MODULUS;
        write!(
            checks,
            ", (satisfies_hash_partition('two'::regclass, {MODULUS}, {remainder}, {a}::integer, {b}::text))"
        )
        .expect("a string");
    }
    assert_eq!(database.psql(&(checks + ") AS checks (ok)")), "t");
}

/// Keys of four columns of different types, each of them NULL now and then.
fn four_columns(database: &Database<'_>, number: usize, columns: &[ColumnCase]) {
    let each = |form: &dyn Fn(usize, &ColumnCase) -> String| {
        columns.iter().enumerate().map(|(at, column)| form(at, column)).collect::<Vec<_>>().join(", ")
    };
    let declared = each(&|at, (ty, ..)| format!("c{at} {ty}"));
    let names = each(&|at, _| format!("c{at}"));
    // Without modifier, as in COPY binary; spaces at the end of a bare character would be lost.
    let values = each(&|at, (_, base, _, _, value)| {
        let ty = if *base == BaseType::Bpchar { "text" } else { base.sql() };
        format!("CASE WHEN (i + {at}) % 7 > 0 THEN ({value})::{ty} END AS c{at}")
    });
    let sent = each(&|at, (.., send, _)| format!("COALESCE(encode({send}(c{at}), 'hex'), '-')"));
    let rows = database.psql(&format!(
        "CREATE TABLE four{number} ({declared}) PARTITION BY HASH ({names});
         CREATE TABLE four{number}_raw AS SELECT i, {values} FROM generate_series(1, 60) i;
         SELECT concat_ws(' ', i, {sent}) FROM four{number}_raw"
    ));
    let mut remainders = Vec::new();
    for line in rows.lines() {
        let mut fields = line.split(' ');
        let row = fields.next().expect("a number");
        let values: Vec<Option<Vec<u8>>> = fields
            .map(|hex| {
                let byte = |at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hexadecimal");
                (hex != "-").then(|| (0..hex.len() / 2).map(byte).collect())
            })
            .collect();
        let key: Vec<_> = columns
            .iter()
            .zip(&values)
            .map(|((_, base, typmod, ..), value)| {
                (HashKind::of(&PgType::base(*base), *typmod).expect("a type with a hash"), value.as_deref())
            })
            .collect();
        assert_eq!(key.len(), 4, "{line}");
        remainders.push(format!("({row}, {})", partition_hash(&key).expect("a hash") % MODULUS));
    }
    assert_eq!(remainders.len(), 60);
    let casts = each(&|at, (ty, ..)| format!("c{at}::{ty}"));
    let wrong = database.psql(&format!(
        "SELECT string_agg(i::text, ', ') FROM four{number}_raw JOIN (VALUES {}) r (i, remainder) USING (i)
          WHERE NOT satisfies_hash_partition('four{number}'::regclass, {MODULUS}, remainder, {casts})",
        remainders.join(",")
    ));
    assert_eq!(wrong, "", "{declared}");
}
