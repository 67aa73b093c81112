//! Partitions on other servers: foreign tables of `postgres_fdw`.

use crate::find::Found;
use crate::node::{Address, Node};
use crate::raw::Raw;
use crate::topology::{Kind, Map, Place, Topology};
use inrush_core::{Code, Error, PgType, Result, Table, quote_ident};
use inrush_route::{Bound, End, HashKind, Partitions, Range, RangeKind, Ranges, parse_range};
use inrush_sink::failure::server_error;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

/// The key: one row.
pub(crate) const KEY: &str = "
    SELECT p.partstrat::text, p.partexprs IS NOT NULL,
           (SELECT pg_catalog.array_agg(a.attname::text ORDER BY k.place)
              FROM pg_catalog.unnest(p.partattrs::int2[]) WITH ORDINALITY k(attnum, place)
              JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = k.attnum),
           -- Operator classes that are not the types' own, and collations that do not compare by bytes.
           EXISTS (SELECT 1 FROM pg_catalog.unnest(p.partclass::oid[]) o(id)
                     JOIN pg_catalog.pg_opclass c ON c.oid = o.id WHERE NOT c.opcdefault),
           EXISTS (SELECT 1 FROM pg_catalog.unnest(p.partcollation::oid[]) l(id)
                     JOIN pg_catalog.pg_collation c ON c.oid = l.id WHERE NOT c.collisdeterministic),
           EXISTS (SELECT 1 FROM pg_catalog.unnest(p.partcollation::oid[]) l(id)
                     LEFT JOIN pg_catalog.pg_collation c ON c.oid = l.id
                    WHERE l.id <> 0
                      AND NOT (CASE c.collprovider WHEN 'd' THEN d.datlocprovider ELSE c.collprovider END = 'c'
                               AND CASE c.collprovider WHEN 'd' THEN d.datcollate ELSE c.collcollate END
                                   IN ('C', 'POSIX'))),
           EXISTS (SELECT 1 FROM pg_catalog.pg_trigger g
                    WHERE NOT g.tgisinternal AND g.tgtype & 5 = 5 AND g.tgenabled IN ('O', 'A')
                      AND g.tgrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(p.partrelid)))
      FROM pg_catalog.pg_partitioned_table p, pg_catalog.pg_database d
     WHERE p.partrelid = pg_catalog.to_regclass($1) AND d.datname = pg_catalog.current_database()";

/// The partitions. Options of a mapping can be read by the role it is for, and by superusers; one without options looks like one
/// that may not be read (system_views.sql, pg_user_mappings, has the condition).
pub(crate) const LEAVES: &str = "
    SELECT c.oid, c.relkind::text, ns.nspname::text, c.relname::text, pg_catalog.pg_get_expr(c.relpartbound, c.oid),
           s.srvname::text, w.fdwname::text, f.ftoptions, s.srvoptions, m.umoptions,
           (SELECT pg_catalog.array_agg(v.x ORDER BY a.attnum, v.n)
              FROM pg_catalog.pg_attribute a, pg_catalog.unnest(a.attfdwoptions) o,
                   pg_catalog.unnest(ARRAY[a.attname::text, pg_catalog.substr(o, 13)]) WITH ORDINALITY v(x, n)
             WHERE a.attrelid = c.oid AND NOT a.attisdropped AND o LIKE 'column\\_name=%')
      FROM pg_catalog.pg_inherits i
      JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
      JOIN pg_catalog.pg_namespace ns ON ns.oid = c.relnamespace
      LEFT JOIN pg_catalog.pg_foreign_table f ON f.ftrelid = c.oid
      LEFT JOIN pg_catalog.pg_foreign_server s ON s.oid = f.ftserver
      LEFT JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = s.srvfdw
      LEFT JOIN LATERAL (SELECT CASE WHEN u.umoptions IS NULL
                                           AND (pg_catalog.current_setting('is_superuser')::bool OR pg_catalog.pg_has_role(s.srvowner, 'USAGE')
                                                OR u.umuser <> 0 AND pg_catalog.has_server_privilege(s.oid, 'USAGE'))
                                      THEN '{}' ELSE u.umoptions END AS umoptions
                            FROM pg_catalog.pg_user_mappings u
                          WHERE u.srvid = s.oid AND (u.usename = current_user OR u.umuser = 0)
                          ORDER BY u.umuser = 0 LIMIT 1) m ON true
     WHERE i.inhparent = pg_catalog.to_regclass($1) AND NOT i.inhdetachpending
     ORDER BY c.oid";

/// Servers that partitions are on.
const SERVERS: &str = "
    SELECT DISTINCT s.srvname::text, s.srvoptions, m.umoptions
      FROM pg_catalog.pg_foreign_table f
      JOIN pg_catalog.pg_class c ON c.oid = f.ftrelid AND c.relispartition
      JOIN pg_catalog.pg_foreign_server s ON s.oid = f.ftserver
      JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = s.srvfdw AND w.fdwname = 'postgres_fdw'
      JOIN LATERAL (SELECT CASE WHEN u.umoptions IS NULL
                                      AND (pg_catalog.current_setting('is_superuser')::bool OR pg_catalog.pg_has_role(s.srvowner, 'USAGE')
                                           OR u.umuser <> 0 AND pg_catalog.has_server_privilege(s.oid, 'USAGE'))
                                 THEN '{}' ELSE u.umoptions END AS umoptions
                       FROM pg_catalog.pg_user_mappings u
                     WHERE u.srvid = s.oid AND (u.usename = current_user OR u.umuser = 0)
                     ORDER BY u.umuser = 0 LIMIT 1) m ON true";

fn through(why: impl Into<String>) -> Result<Found> {
    Ok(Found::Coordinator(why.into()))
}

/// Where the partitions of a table are; [`Found::Here`] if none is on another server.
pub(crate) async fn read<C: GenericClient>(client: &C, table: &Table) -> Result<Found> {
    let name = table.qualified();
    let leaves = client.query_typed(LEAVES, &[(&name, Type::TEXT)]).await.map_err(server_error)?;
    if !leaves.iter().any(|leaf| leaf.get::<_, &str>(1) == "f") {
        return Ok(Found::Here);
    }
    let keys = client.query_typed(KEY, &[(&name, Type::TEXT)]).await.map_err(server_error)?;
    let Some(key) = keys.first() else { return Ok(Found::Here) };
    let names: Vec<String> = key.get::<_, Option<Vec<String>>>(2).unwrap_or_default();
    if key.get(1) {
        return through("its partition key has an expression");
    }
    if key.get(3) || key.get(4) {
        return through("its partition key has an operator class or a collation of its own");
    }
    if key.get(6) {
        return through("it has triggers for rows");
    }
    let mut topology = Topology {
        kind: Kind::Partitions,
        keys: names,
        map: Map::One,
        places: Vec::new(),
        nodes: Vec::new(),
    };
    for leaf in &leaves {
        match place(leaf, &mut topology.nodes) {
            Ok(place) => topology.places.push(place),
            Err(why) => return through(why),
        }
    }
    let bounds: Vec<&str> =
        leaves.iter().map(|leaf| leaf.get::<_, Option<&str>>(4).unwrap_or_default()).collect();
    let map = match key.get::<_, &str>(0) {
        "h" => bounds
            .iter()
            .map(|bound| Bound::parse(bound))
            .collect::<Option<Vec<_>>>()
            .map(|b| Map::Hash(Partitions::new(b))),
        "r" if topology.keys.len() == 1 => {
            let column = table.column(&topology.keys[0]);
            let Some(column) = column else { return through("its partition key is no column") };
            let Some(kind) = HashKind::of(&column.ty, column.typmod).and_then(RangeKind::of) else {
                return through(format!(
                    "the order of its partition key's type {} is not known here",
                    column.ty.name
                ));
            };
            if key.get(5) {
                return through("its partition key has a collation that does not order by bytes");
            }
            ranges(client, kind, &column.ty, &bounds).await?
        }
        "r" => return through("it is partitioned by range of several columns"),
        _ => return through("it is partitioned by list"),
    };
    let Some(map) = map else { return through("the bounds of its partitions cannot be read here") };
    topology.map = map;
    Ok(Found::Direct(Box::new(topology)))
}

/// `name=value` of an array of options.
pub(crate) fn option<'a>(options: &'a [String], name: &str) -> Option<&'a str> {
    options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
}

pub(crate) fn options(row: &Row, column: usize) -> Vec<String> {
    row.get::<_, Option<Vec<String>>>(column).unwrap_or_default()
}

fn place(leaf: &Row, nodes: &mut Vec<Node>) -> std::result::Result<Place, String> {
    let (schema, name): (String, String) = (leaf.get(2), leaf.get(3));
    let shown = format!("{}.{}", quote_ident(&schema), quote_ident(&name));
    let id = u64::from(leaf.get::<_, u32>(0));
    let mut number = |node: Node| {
        nodes.iter().position(|known| *known == node).unwrap_or_else(|| {
            nodes.push(node);
            nodes.len() - 1
        })
    };
    match leaf.get(1) {
        "r" => {
            let node = number(Node::coordinator());
            return Ok(Place { schema, name, node, id, renamed: Vec::new() });
        }
        "f" => {}
        _ => return Err(format!("its partition {shown} is partitioned, too")),
    }
    if leaf.get::<_, Option<&str>>(6) != Some("postgres_fdw") {
        return Err(format!("its partition {shown} is not a foreign table of postgres_fdw"));
    }
    let table = options(leaf, 7);
    let server = options(leaf, 8);
    let updatable = option(&table, "updatable").or(option(&server, "updatable"));
    if updatable.is_some_and(|value| matches!(value, "false" | "off" | "no" | "0")) {
        return Err(format!("its partition {shown} is not to be written to (option updatable)"));
    }
    let Some(mapping) = leaf.get::<_, Option<Vec<String>>>(9) else {
        return Err(format!(
            "the user mapping of server {} has no options that this role may read",
            leaf.get::<_, &str>(5)
        ));
    };
    let node = number(Node { name: leaf.get(5), address: Some(address(&server, &mapping)) });
    let renamed: Option<Vec<String>> = leaf.get(10);
    Ok(Place {
        schema: option(&table, "schema_name").map_or(schema, str::to_owned),
        name: option(&table, "table_name").map_or(name, str::to_owned),
        node,
        id,
        renamed: renamed
            .unwrap_or_default()
            .chunks_exact(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect(),
    })
}

/// As postgres_fdw connects (its options host, hostaddr, port, dbname, user and password).
pub(crate) fn address(server: &[String], mapping: &[String]) -> Address {
    let of = |name| option(server, name).map(str::to_owned);
    Address {
        host: of("hostaddr").or(of("host")).unwrap_or_else(|| "localhost".into()),
        port: of("port").and_then(|port| port.parse().ok()).unwrap_or(5432),
        dbname: of("dbname"),
        user: option(mapping, "user").map(str::to_owned),
        password: option(mapping, "password").map(str::to_owned),
    }
}

/// Servers that partitions are on, as far as this role has a mapping for them.
pub(crate) async fn nodes<C: GenericClient>(client: &C) -> Result<Vec<Node>> {
    let rows = client.query_typed(SERVERS, &[]).await.map_err(server_error)?;
    Ok(rows
        .iter()
        .map(|row| Node { name: row.get(0), address: Some(address(&options(row, 1), &options(row, 2))) })
        .collect())
}

/// The ranges, with their values as the server reads them.
pub(crate) async fn ranges<C: GenericClient>(
    client: &C,
    kind: RangeKind,
    ty: &PgType,
    bounds: &[&str],
) -> Result<Option<Map>> {
    let mut texts = Vec::new();
    let mut ends = Vec::new();
    let mut default = None;
    for (at, bound) in bounds.iter().enumerate() {
        if *bound == "DEFAULT" {
            default = Some(at);
            continue;
        }
        let Some((from, to)) = parse_range(bound) else { return Ok(None) };
        ends.push((at, from.is_some(), to.is_some()));
        texts.extend(from);
        texts.extend(to);
    }
    let sql = format!(
        "SELECT x.v::{} FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY x(v, n) ORDER BY x.n",
        ty.name
    );
    let rows = client.query(&sql, &[&texts]).await.map_err(server_error)?;
    let mut values = rows.iter().map(|row| row.get::<_, Raw>(0).0);
    let mut end = |there: bool, without: End| -> Result<End> {
        if !there {
            return Ok(without);
        }
        let value =
            values.next().ok_or_else(|| Error::new(Code::Internal, "a bound of a partition is missing"))?;
        Ok(End::Value(value))
    };
    let mut ranges = Vec::new();
    for (at, from, to) in ends {
        ranges.push((Range { from: end(from, End::Min)?, to: end(to, End::Max)? }, at));
    }
    Ok(Ranges::new(kind, ranges, default).map(Map::Ranges))
}
