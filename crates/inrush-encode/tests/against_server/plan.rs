//! What `inrush.plan()` answers (docs/format-inrush.md), read from the catalog: for servers without the extension.

use inrush_encode::frames::FrameLayout;
use tokio_postgres::Client;

/// The types under all domains, with the type modifiers that apply; then a column as the plan has it.
const PLAN: &str = r#"
    WITH RECURSIVE under AS (
        SELECT attnum, atttypid AS ty, atttypmod AS typmod FROM pg_attribute
        WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped
      UNION ALL
        SELECT attnum, typbasetype, typtypmod FROM under JOIN pg_type ON pg_type.oid = under.ty WHERE typtype = 'd'),
    base AS (
        SELECT under.*, typtype = 'e' AS is_enum,
            typtype = 'e' OR typname IN ('int2', 'int4', 'int8', 'oid', 'char', 'bool', 'float4', 'float8', 'money',
                'date', 'timestamp', 'timestamptz', 'time', 'timetz', 'uuid', 'macaddr', 'macaddr8', 'pg_lsn', 'point',
                'name', 'text', 'varchar', 'bpchar', 'bytea', 'numeric')
            OR typname = 'interval' AND typmod = -1 AS native
        FROM under JOIN pg_type ON pg_type.oid = under.ty WHERE typtype <> 'd'),
    attributes AS (
        SELECT a.attnum, jsonb_build_object('name', attname, 'type', atttypid::bigint,
            'class', CASE WHEN attisdropped THEN 'dropped' WHEN native THEN 'native' ELSE 'receive' END,
            'sent', NOT attisdropped AND attname = ANY ($2::text[]),
            'base_type', coalesce(ty, 0)::bigint, 'typmod', coalesce(typmod, -1),
            'length', CASE WHEN native OR attisdropped THEN attlen ELSE -1 END,
            'align', CASE WHEN NOT (native OR attisdropped) THEN 4
                ELSE CASE attalign WHEN 'c' THEN 1 WHEN 's' THEN 2 WHEN 'i' THEN 4 ELSE 8 END END,
            'storage', CASE WHEN (native OR attisdropped) AND attstorage = 'p' THEN 'p' ELSE 'x' END,
            'not_null', attnotnull AND attname = ANY ($2::text[]), 'kind', CASE WHEN is_enum THEN 'e' ELSE 'b' END) AS described
        FROM pg_attribute a LEFT JOIN base USING (attnum)
        WHERE attrelid = $1::text::regclass AND a.attnum > 0)
    SELECT jsonb_build_object('version', 1, 'refusal', NULL, 'fingerprint', '0000000000000000',
        'encoding', current_setting('server_encoding'), 'block_size', 8192, 'max_align', 8, 'toast_threshold', 2032,
        'columns', jsonb_agg(described ORDER BY attnum))::text FROM attributes"#;

/// The layout of a table for a COPY of these columns, with the labels of its enums.
pub async fn layout(client: &Client, table: &str, columns: &[&str]) -> FrameLayout {
    let row = client.query_one(PLAN, &[&table, &columns]).await.expect("a plan");
    let mut layout = FrameLayout::parse(row.get(0)).expect("is understood");
    for enum_type in layout.enums() {
        let query = "SELECT enumlabel::text, oid FROM pg_enum WHERE enumtypid = $1";
        let labels = client.query(query, &[&enum_type]).await.expect("labels");
        layout.set_labels(enum_type, labels.iter().map(|row| (row.get::<_, String>(0), row.get(1))));
    }
    layout
}
