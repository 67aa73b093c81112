-- For tests only.
CREATE FUNCTION inrush_test.blocks(relation regclass, query text, columns text[], rows int DEFAULT 100) RETURNS bytea
  AS 'MODULE_PATHNAME', 'inrush_test_blocks' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION inrush_test.blocks(relation regclass, query text) RETURNS bytea
  LANGUAGE sql VOLATILE STRICT AS $$
  SELECT inrush_test.blocks(relation, query, array_agg(attname::text ORDER BY attnum))
    FROM pg_attribute WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped
$$;

-- The rows of a table that are visible, as they are stored: from the bitmap of nulls on, and what the header says of that.
CREATE FUNCTION inrush_test.stored(relation regclass, OUT place tid, OUT flags int, OUT hoff int, OUT bytes bytea)
  RETURNS SETOF record AS 'MODULE_PATHNAME', 'inrush_test_stored' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION inrush_test.handler(internal) RETURNS table_am_handler
  AS 'MODULE_PATHNAME', 'inrush_test_handler' LANGUAGE C;
