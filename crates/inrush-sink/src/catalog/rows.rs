//! The query behind a [`Target`] and how its answer is read.

use super::Target;
use super::access::{Access, Foreign, Leaf, Trigger};
use inrush_core::{
    BaseType, Code, Column, Default, Error, Generated, Identity, PgType, RelKind, Result, Table, TypeKind,
    quote_ident,
};
use serde::Deserialize;
use std::collections::HashMap;

/// One row with one JSON text, or none. `$1` is the quoted name.
///
/// An array is what format_type takes for one (format_type.c): a type with an element, subscripted as arrays are,
/// and not one of the fixed vectors (int2vector), which are stored plain.
/// pg_partition_tree gives no row for a table that is no partition, so a table that stores rows itself is added.
pub(super) const TARGET: &str = "
WITH RECURSIVE rel AS MATERIALIZED (
    SELECT c.*, n.nspname
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
    WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)::pg_catalog.oid
), att AS MATERIALIZED (
    SELECT a.*
    FROM rel JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) rel.oid
    WHERE a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
), types(oid) AS (
    SELECT a.atttypid FROM att a
    UNION
    SELECT x.part
    FROM types
    JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) types.oid,
    LATERAL (VALUES (t.typbasetype), (t.typelem)) x(part)
    WHERE x.part OPERATOR(pg_catalog.<>) 0::pg_catalog.oid
), leaf AS (
    SELECT c.*, n.nspname
    FROM rel, LATERAL (
        SELECT p.relid::pg_catalog.oid AS oid
        FROM pg_catalog.pg_partition_tree(rel.oid::pg_catalog.regclass) p
        WHERE p.isleaf AND rel.relkind OPERATOR(pg_catalog.=) 'p'::pg_catalog.\"char\"
        UNION ALL
        SELECT rel.oid WHERE rel.relkind OPERATOR(pg_catalog.=) 'r'::pg_catalog.\"char\"
            OR rel.relkind OPERATOR(pg_catalog.=) 'f'::pg_catalog.\"char\"
    ) l
    JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) l.oid
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
    WHERE c.relkind OPERATOR(pg_catalog.<>) 'p'::pg_catalog.\"char\"
)
SELECT pg_catalog.json_build_object(
    'oid', rel.oid::pg_catalog.int8,
    'schema', rel.nspname,
    'name', rel.relname,
    'kind', rel.relkind::pg_catalog.text,
    'unlogged', rel.relpersistence OPERATOR(pg_catalog.=) 'u'::pg_catalog.\"char\",
    'owned', pg_catalog.pg_has_role(rel.relowner, 'USAGE'),
    'insert', pg_catalog.has_table_privilege(rel.oid, 'INSERT'),
    'truncate', pg_catalog.has_table_privilege(rel.oid, 'TRUNCATE'),
    'select', pg_catalog.has_table_privilege(rel.oid, 'SELECT'),
    'row_security', pg_catalog.row_security_active(rel.oid),
    'is_partition', rel.relispartition,
    'foreign_insert', CASE WHEN rel.relkind OPERATOR(pg_catalog.=) 'f'::pg_catalog.\"char\" THEN
        (pg_catalog.pg_relation_is_updatable(rel.oid::pg_catalog.regclass, false) OPERATOR(pg_catalog.&) 8)
            OPERATOR(pg_catalog.<>) 0 END,
    'columns', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
            'name', a.attname,
            'attnum', a.attnum,
            'type', a.atttypid::pg_catalog.int8,
            'typmod', a.atttypmod,
            'not_null', a.attnotnull,
            'has_default', a.atthasdef,
            'type_default', t.typdefault IS NOT NULL,
            'generated', a.attgenerated::pg_catalog.text,
            'identity', a.attidentity::pg_catalog.text,
            'insert', pg_catalog.has_column_privilege(rel.oid, a.attnum, 'INSERT')
        ) ORDER BY a.attnum)
        FROM att a JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) a.atttypid),
    'types', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
            'oid', t.oid::pg_catalog.int8,
            'schema', n.nspname,
            'name', t.typname,
            'shown', pg_catalog.format_type(t.oid, NULL),
            'kind', t.typtype::pg_catalog.text,
            'base', t.typbasetype::pg_catalog.int8,
            'typmod', t.typtypmod,
            'element', CASE WHEN t.typtype OPERATOR(pg_catalog.=) 'b'::pg_catalog.\"char\"
                AND t.typsubscript OPERATOR(pg_catalog.=) 'pg_catalog.array_subscript_handler'::pg_catalog.regproc::pg_catalog.oid
                AND t.typstorage OPERATOR(pg_catalog.<>) 'p'::pg_catalog.\"char\"
                THEN t.typelem::pg_catalog.int8 ELSE 0 END
        ))
        FROM types
        JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) types.oid
        JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) t.typnamespace),
    'triggers', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
            'name', g.tgname,
            'bits', g.tgtype,
            'enabled', g.tgenabled OPERATOR(pg_catalog.=) 'O'::pg_catalog.\"char\"
                OR g.tgenabled OPERATOR(pg_catalog.=) 'A'::pg_catalog.\"char\"
        ) ORDER BY g.tgname)
        FROM pg_catalog.pg_trigger g
        WHERE g.tgrelid OPERATOR(pg_catalog.=) rel.oid AND NOT g.tgisinternal),
    'foreign_keys', (
        SELECT pg_catalog.json_agg(k.conname ORDER BY k.conname)
        FROM pg_catalog.pg_constraint k
        WHERE k.conrelid OPERATOR(pg_catalog.=) rel.oid
            AND k.contype OPERATOR(pg_catalog.=) 'f'::pg_catalog.\"char\"),
    'leaves', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
            'oid', leaf.oid::pg_catalog.int8,
            'relfilenode', leaf.relfilenode::pg_catalog.int8,
            'schema', leaf.nspname,
            'name', leaf.relname,
            'unlogged', leaf.relpersistence OPERATOR(pg_catalog.=) 'u'::pg_catalog.\"char\",
            'foreign', leaf.relkind OPERATOR(pg_catalog.=) 'f'::pg_catalog.\"char\",
            'insert', pg_catalog.has_table_privilege(leaf.oid, 'INSERT'),
            'row_security', pg_catalog.row_security_active(leaf.oid),
            'triggers', EXISTS (
                SELECT FROM pg_catalog.pg_trigger g
                WHERE g.tgrelid OPERATOR(pg_catalog.=) leaf.oid AND NOT g.tgisinternal)
        ) ORDER BY leaf.oid)
        FROM leaf)
)::pg_catalog.text
FROM rel";

/// Schema and name of the tables a user may have meant, at most 10000.
pub(super) const NAMES: &str = "
SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,v,f}'::pg_catalog.\"char\"[])
  AND NOT c.relispartition
  AND NOT n.nspname OPERATOR(pg_catalog.=) ANY ('{pg_catalog,information_schema,pg_toast}'::pg_catalog.name[])
  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
LIMIT 10000";

#[derive(Deserialize)]
struct RawTarget {
    oid: u32,
    schema: String,
    name: String,
    kind: String,
    unlogged: bool,
    owned: bool,
    insert: bool,
    truncate: bool,
    select: bool,
    row_security: bool,
    is_partition: bool,
    foreign_insert: Option<bool>,
    columns: Option<Vec<RawColumn>>,
    types: Option<Vec<RawType>>,
    triggers: Option<Vec<Trigger>>,
    foreign_keys: Option<Vec<String>>,
    leaves: Option<Vec<Leaf>>,
}

#[derive(Deserialize)]
struct RawColumn {
    name: String,
    attnum: i16,
    #[serde(rename = "type")]
    ty: u32,
    typmod: i32,
    not_null: bool,
    has_default: bool,
    type_default: bool,
    generated: String,
    identity: String,
    insert: bool,
}

#[derive(Deserialize)]
struct RawType {
    oid: u32,
    schema: String,
    name: String,
    shown: String,
    kind: String,
    base: u32,
    typmod: i32,
    element: u32,
}

/// Reads the answer to [`TARGET`].
pub(super) fn read(text: &str) -> Result<Target> {
    let raw: RawTarget = serde_json::from_str(text)
        .map_err(|e| Error::new(Code::Internal, format!("the catalog's answer cannot be read: {e}")))?;
    let kind = kind(&raw)?;
    let types: HashMap<u32, RawType> =
        raw.types.unwrap_or_default().into_iter().map(|t| (t.oid, t)).collect();
    let mut columns = Vec::new();
    let mut insert_columns = Vec::new();
    for column in raw.columns.unwrap_or_default() {
        if column.insert {
            insert_columns.push(column.name.clone());
        }
        let generated = match column.generated.as_str() {
            "s" => Generated::Stored,
            "v" => Generated::Virtual,
            _ => Generated::No,
        };
        // The catalog keeps the expression of a generated column as its default.
        let has_default = generated == Generated::No && (column.has_default || column.type_default);
        columns.push(Column {
            ty: pg_type(column.ty, &types)?,
            name: column.name,
            attnum: column.attnum,
            typmod: column.typmod,
            not_null: column.not_null,
            default: if has_default { Default::Expression } else { Default::None },
            generated,
            identity: match column.identity.as_str() {
                "a" => Identity::Always,
                "d" => Identity::ByDefault,
                _ => Identity::No,
            },
        });
    }
    Ok(Target {
        table: Table {
            oid: raw.oid,
            schema: raw.schema,
            name: raw.name,
            kind,
            unlogged: raw.unlogged,
            columns,
        },
        access: Access {
            owned: raw.owned,
            insert: raw.insert,
            insert_columns,
            truncate: raw.truncate,
            select: raw.select,
            row_security: raw.row_security,
            is_partition: raw.is_partition,
            triggers: raw.triggers.unwrap_or_default(),
            foreign_keys: raw.foreign_keys.unwrap_or_default(),
            foreign: raw.foreign_insert.map(|insert| Foreign { insert }),
            leaves: raw.leaves.unwrap_or_default(),
        },
    })
}

fn kind(raw: &RawTarget) -> Result<RelKind> {
    let (what, hint) = match raw.kind.as_str() {
        "r" => return Ok(RelKind::Table),
        "p" => return Ok(RelKind::Partitioned),
        "v" => return Ok(RelKind::View),
        "f" => return Ok(RelKind::Foreign),
        "m" => ("a materialized view", "Load the tables it is made from, then REFRESH MATERIALIZED VIEW."),
        "S" => ("a sequence", "Set its value with setval()."),
        "i" | "I" => ("an index", "Name the table."),
        "c" => ("a composite type", "Create a table of it: CREATE TABLE ... OF."),
        "t" => ("a TOAST table", "Name the table it belongs to."),
        _ => ("not a table", "Name a table, a partitioned table, a foreign table or a view."),
    };
    let name = format!("{}.{}", quote_ident(&raw.schema), quote_ident(&raw.name));
    Err(Error::new(Code::Table, format!("{name} is {what} and cannot be loaded into"))
        .sqlstate("42809")
        .hint(hint))
}

/// Builds a type from its parts. Ends because the catalog has no cycles among base types and elements: a domain or an
/// array can only be created over a type that is there.
fn pg_type(oid: u32, types: &HashMap<u32, RawType>) -> Result<PgType> {
    if let Some(base) = BaseType::from_oid(oid) {
        return Ok(PgType::base(base));
    }
    let raw = types
        .get(&oid)
        .ok_or_else(|| Error::new(Code::Internal, format!("the catalog did not describe type {oid}")))?;
    if raw.element != 0 {
        let element = pg_type(raw.element, types)?;
        return Ok(PgType {
            oid,
            name: format!("{}[]", element.name),
            kind: TypeKind::Array { element: Box::new(element) },
        });
    }
    // format_type leaves the schema out where the search_path makes it unnecessary; a name must not depend on that.
    let name = match raw.schema.as_str() {
        "pg_catalog" => raw.shown.clone(),
        schema => format!("{}.{}", quote_ident(schema), quote_ident(&raw.name)),
    };
    let kind = match raw.kind.as_str() {
        "e" => TypeKind::Enum,
        "d" => TypeKind::Domain { base: Box::new(pg_type(raw.base, types)?), typmod: raw.typmod },
        _ => TypeKind::Other,
    };
    Ok(PgType { oid, name, kind })
}
