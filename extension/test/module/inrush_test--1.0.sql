-- For tests only.
CREATE FUNCTION inrush_test.blocks(relation regclass, query text, columns text[], rows int DEFAULT 100) RETURNS bytea
  AS 'MODULE_PATHNAME', 'inrush_test_blocks' LANGUAGE C VOLATILE STRICT;
