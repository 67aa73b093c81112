-- BRIN: ranges without a summary are left alone, those with one get every row.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE FUNCTION found(condition text, OUT by_index bigint, OUT by_scan bigint) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('enable_seqscan', 'off', true);
  EXECUTE 'SELECT count(*) FROM br WHERE ' || condition INTO by_index;
  PERFORM set_config('enable_seqscan', 'on', true);
  PERFORM set_config('enable_bitmapscan', 'off', true);
  EXECUTE 'SELECT count(*) FROM br WHERE ' || condition INTO by_scan;
  PERFORM set_config('enable_bitmapscan', 'on', true);
END
$$;
CREATE TABLE br (id int, t text) WITH (fillfactor = 100);
CREATE INDEX br_minmax ON br USING brin (id) WITH (pages_per_range = 4);
CREATE INDEX br_multi ON br USING brin (id int4_minmax_multi_ops) WITH (pages_per_range = 3);
CREATE INDEX br_bloom ON br USING brin (id int4_bloom_ops) WITH (pages_per_range = 5);
CREATE INDEX br_part ON br USING brin (id) WITH (pages_per_range = 2, autosummarize = on) WHERE id % 2 = 0;
CREATE INDEX br_expression ON br USING brin ((id + 1)) WITH (pages_per_range = 1);
-- An empty table: the first range has a summary from the start, the rest has none.
COPY (SELECT inrush_test.blocks('br', $$SELECT i, repeat('x', 300) FROM generate_series(1, 1000) i$$)) TO STDOUT (FORMAT binary) \g :to
\copy br from 'stream' (format inrush)
SELECT * FROM found('id BETWEEN 10 AND 20');
SELECT * FROM found('id BETWEEN 900 AND 1100');
-- Now every range has one, the last of them incomplete; then other values go into it and behind it.
SELECT brin_summarize_new_values(i) >= 0 AS summarised FROM unnest('{br_minmax,br_multi,br_bloom,br_part,br_expression}'::regclass[]) i;
COPY (SELECT inrush_test.blocks('br', $$SELECT 1000000 + i, repeat('x', 300) FROM generate_series(1, 500) i$$)) TO STDOUT (FORMAT binary) \g :to
\copy br from 'stream' (format inrush)
SELECT * FROM found('id = 1000001');
SELECT * FROM found('id BETWEEN 1000000 AND 1000003');
SELECT * FROM found('id > 1000400');
SELECT * FROM found('id % 2 = 0 AND id BETWEEN 1000000 AND 1000010');
SELECT * FROM found('id + 1 = 1000002');
SELECT brin_summarize_new_values(i) >= 0 AS summarised FROM unnest('{br_minmax,br_multi,br_bloom,br_part,br_expression}'::regclass[]) i;
SELECT * FROM found('id BETWEEN 1000000 AND 1000003');
-- A range whose summary was taken away.
SELECT brin_desummarize_range('br_minmax', 0);
TRUNCATE br;
COPY (SELECT inrush_test.blocks('br', $$SELECT i, repeat('x', 300) FROM generate_series(1, 200) i$$)) TO STDOUT (FORMAT binary) \g :to
\copy br from 'stream' (format inrush)
SELECT brin_desummarize_range('br_minmax', 0);
COPY (SELECT inrush_test.blocks('br', $$SELECT 5000 + i, 'y'::text FROM generate_series(1, 200) i$$)) TO STDOUT (FORMAT binary) \g :to
\copy br from 'stream' (format inrush)
SELECT * FROM found('id = 5100');
SELECT * FROM found('id = 100');
-- Rows that fill holes in old ranges: VACUUM has made room in the first pages.
SELECT brin_summarize_new_values('br_minmax') >= 0 AS summarised;
DELETE FROM br WHERE id < 100;
VACUUM br;
COPY (SELECT inrush_test.blocks('br', $$SELECT 7000 + i, repeat('z', 300) FROM generate_series(1, 100) i$$)) TO STDOUT (FORMAT binary) \g :to
\copy br from 'stream' (format inrush)
SELECT * FROM found('id = 7001');
SELECT * FROM found('id = 7100');
-- Rolled back, and loaded again.
BEGIN;
\copy br from 'stream' (format inrush)
ROLLBACK;
SELECT * FROM found('id = 7100');
DROP TABLE br;
DROP FUNCTION found;
-- Nulls only, and inclusion.
CREATE TABLE br (id int, r int4range);
CREATE INDEX ON br USING brin (id, r) WITH (pages_per_range = 1);
COPY (SELECT inrush_test.blocks('br', $$SELECT NULL::int, int4range(i, i + 1) FROM generate_series(1, 300) i$$)) TO STDOUT (FORMAT binary) \g :to
\copy br from 'stream' (format inrush)
SET enable_seqscan = off;
SELECT count(*) FROM br WHERE id IS NULL;
SELECT count(*) FROM br WHERE r && '[5,8)';
SELECT count(*) FROM br WHERE id = 1;
DROP TABLE br;
