-- Rows that are too long for a page are compressed and moved out of line, as by COPY.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE TABLE src (id int, x text, e text, m text, p text);
ALTER TABLE src ALTER x SET STORAGE EXTENDED, ALTER e SET STORAGE EXTERNAL, ALTER m SET STORAGE MAIN, ALTER p SET STORAGE PLAIN;
-- Text that pglz cannot make shorter.
CREATE FUNCTION noise(n int, seed int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT left(string_agg(md5(seed || '/' || i), '' ORDER BY i), n) FROM generate_series(1, n / 32 + 1) i
$$;
INSERT INTO src VALUES
  (1, 'x', 'e', 'm', 'p'), (2, repeat('x', 5000), NULL, NULL, NULL), (3, noise(5000, 3), NULL, NULL, NULL),
  (4, NULL, repeat('e', 5000), NULL, NULL), (5, NULL, NULL, repeat('m', 50000), NULL), (6, NULL, NULL, noise(5000, 6), NULL),
  (7, NULL, NULL, noise(20000, 7), NULL), (8, NULL, NULL, NULL, noise(8000, 8)), (9, noise(3000, 9), noise(3000, 91), noise(3000, 92), noise(3000, 93)),
  (10, repeat('x', 1000), repeat('e', 1000), repeat('m', 1000), repeat('p', 1000)), (11, noise(70000, 11), noise(70000, 12), NULL, NULL),
  (12, noise(1970, 12), NULL, NULL, NULL), (13, noise(1980, 13), NULL, NULL, NULL), (14, repeat('x', 2000000), NULL, NULL, NULL);
CREATE TABLE by_copy (LIKE src INCLUDING STORAGE);
CREATE TABLE by_frames (LIKE src INCLUDING STORAGE);
\copy src to 'rows'
\copy by_copy from 'rows'
COPY (SELECT inrush_test.blocks('by_frames', 'TABLE src', '{id,x,e,m,p}', 1)) TO STDOUT (FORMAT binary) \g :to
\copy by_frames from 'stream' (format inrush)
SELECT only_a, only_b FROM differ('by_copy', 'by_frames');
SELECT check_structure('by_frames');
SELECT id, length(x) AS x, length(e) AS e, length(m) AS m, length(p) AS p, pg_column_size(x) AS sx, pg_column_size(e) AS se,
       pg_column_size(m) AS sm, pg_column_size(p) AS sp, pg_column_compression(x) AS cx, pg_column_compression(m) AS cm FROM by_frames ORDER BY id;
SELECT count(*) FROM (
  SELECT id, pg_column_size(x), pg_column_size(e), pg_column_size(m), pg_column_size(p), pg_column_compression(x), pg_column_compression(m) FROM by_copy
  EXCEPT ALL
  SELECT id, pg_column_size(x), pg_column_size(e), pg_column_size(m), pg_column_size(p), pg_column_compression(x), pg_column_compression(m) FROM by_frames) d;
SELECT t.reltuples IS NOT NULL AS toasted, pg_relation_size(a.reltoastrelid) = pg_relation_size(b.reltoastrelid) AS same_size
  FROM pg_class a, pg_class b, pg_class t WHERE a.oid = 'by_copy'::regclass AND b.oid = 'by_frames'::regclass AND t.oid = b.reltoastrelid;
-- toast_tuple_target is looked at as by INSERT.
ALTER TABLE by_copy SET (toast_tuple_target = 128);
ALTER TABLE by_frames SET (toast_tuple_target = 128);
\copy (SELECT 20, repeat('x', 1500), noise(1500, 20)) to 'rows'
\copy by_copy (id, x, e) from 'rows'
COPY (SELECT inrush_test.blocks('by_frames', $$SELECT 20, repeat('x', 1500), noise(1500, 20)$$, '{id,x,e}')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames (id, x, e) from 'stream' (format inrush)
SELECT pg_column_size(x) AS x, pg_column_size(e) AS e FROM by_frames WHERE id = 20;
SELECT pg_column_size(x) AS x, pg_column_size(e) AS e FROM by_copy WHERE id = 20;
-- fillfactor too.
CREATE TABLE loose (a int) WITH (fillfactor = 10);
COPY (SELECT inrush_test.blocks('loose', 'SELECT generate_series(1, 100)')) TO STDOUT (FORMAT binary) \g :to
\copy loose from 'stream' (format inrush)
SELECT max(split_part(trim(ctid::text, '()'), ',', 1)::int) > 2 AS loose FROM loose;
DROP TABLE loose;
DROP TABLE src, by_copy, by_frames;
-- Too long for a page, and nothing may be moved: as COPY.
CREATE TABLE plain (a text, b text);
ALTER TABLE plain ALTER a SET STORAGE PLAIN, ALTER b SET STORAGE PLAIN;
\copy (SELECT noise(5000, 1), noise(5000, 2)) to 'rows'
\copy plain from 'rows'
COPY (SELECT inrush_test.blocks('plain', $$SELECT noise(5000, 1), noise(5000, 2)$$)) TO STDOUT (FORMAT binary) \g :to
\copy plain from 'stream' (format inrush)
\copy (SELECT noise(4000, 1), noise(4000, 2)) to 'rows'
\copy plain from 'rows'
COPY (SELECT inrush_test.blocks('plain', $$SELECT noise(4000, 1), noise(4000, 2)$$)) TO STDOUT (FORMAT binary) \g :to
\copy plain from 'stream' (format inrush)
SELECT length(a), length(b) FROM plain;
-- which of several: between long ones that fit
TRUNCATE plain;
COPY (SELECT inrush_test.blocks('plain', $$SELECT noise(CASE i WHEN 5 THEN 5000 ELSE 1000 + 600 * (i % 5) END, i), noise(4000, -i)
                                           FROM generate_series(1, 9) i$$)) TO STDOUT (FORMAT binary) \g :to
\copy plain from 'stream' (format inrush)
DROP TABLE plain;
-- Values too short to be moved, in too many columns.
DO $$ BEGIN
  EXECUTE (SELECT format('CREATE TABLE many (id int, %s)', string_agg('c' || i || ' text', ', ')) FROM generate_series(1, 388) i);
END $$;
SELECT $$SELECT r, $$ || string_agg(format('repeat(''c'', CASE WHEN r = 3 OR %s < 300 THEN 20 ELSE 1 END)', i), ', ')
       || $$ FROM generate_series(1, 5) r$$ AS query FROM generate_series(1, 388) i \gset
COPY (SELECT inrush_test.blocks('many', :'query')) TO STDOUT (FORMAT binary) \g :to
\copy many from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('many', :'query' || ' WHERE r <> 3')) TO STDOUT (FORMAT binary) \g :to
\copy many from 'stream' (format inrush)
SELECT count(*) FROM many;
DROP TABLE many;
-- Native and received values out of line in one row.
CREATE TABLE mixed (a text, b jsonb);
COPY (SELECT inrush_test.blocks('mixed', $$SELECT noise(100000, 1), to_jsonb(noise(100000, 2))$$)) TO STDOUT (FORMAT binary) \g :to
\copy mixed from 'stream' (format inrush)
SELECT a = noise(100000, 1) AS a, b = to_jsonb(noise(100000, 2)) AS b FROM mixed;
SELECT check_structure('mixed');
DROP TABLE mixed;
DROP FUNCTION noise;
