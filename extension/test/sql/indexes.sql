-- Every kind of index gets every row.
\set to '|tail -c +26 | head -c -2 > stream'
-- How many rows an index scan finds for a condition, and how many there are.
CREATE FUNCTION found(relation regclass, condition text, OUT by_index bigint, OUT by_scan bigint) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('enable_seqscan', 'off', true);
  EXECUTE format('SELECT count(*) FROM %s WHERE %s', relation, condition) INTO by_index;
  PERFORM set_config('enable_seqscan', 'on', true);
  PERFORM set_config('enable_indexscan', 'off', true);
  PERFORM set_config('enable_bitmapscan', 'off', true);
  PERFORM set_config('enable_indexonlyscan', 'off', true);
  EXECUTE format('SELECT count(*) FROM %s WHERE %s', relation, condition) INTO by_scan;
  PERFORM set_config('enable_indexscan', 'on', true);
  PERFORM set_config('enable_bitmapscan', 'on', true);
  PERFORM set_config('enable_indexonlyscan', 'on', true);
END
$$;
-- Whether the plan uses an index, or the comparison above says nothing.
CREATE FUNCTION uses_index(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  line text;
  found boolean := false;
BEGIN
  PERFORM set_config('enable_seqscan', 'off', true);
  FOR line IN EXECUTE 'EXPLAIN (COSTS off) ' || query LOOP
    found := found OR line ~ 'Index';
  END LOOP;
  PERFORM set_config('enable_seqscan', 'on', true);
  RETURN found;
END
$$;

-- btree, of every shape at once.
CREATE TABLE b (id int, t text, n numeric, r text, x int);
CREATE UNIQUE INDEX ON b (id);
CREATE INDEX ON b (id DESC);
CREATE INDEX ON b (x NULLS FIRST);
CREATE INDEX ON b (x DESC NULLS LAST, t COLLATE "C" DESC, id);
CREATE INDEX ON b (lower(t), (n + 1));
CREATE INDEX ON b (n) WHERE x IS NULL;
CREATE INDEX ON b (t) INCLUDE (r, n);
CREATE INDEX ON b (t text_pattern_ops);
CREATE INDEX ON b (r) WITH (deduplicate_items = off, fillfactor = 50);
COPY (SELECT inrush_test.blocks('b', $$SELECT i, CASE WHEN i % 7 > 0 THEN 'T' || i % 100 END, (i * 37 % 1000)::numeric / 8,
                                              repeat('r', i % 300), CASE WHEN i % 5 > 0 THEN -i % 50 END
                                         FROM generate_series(1, 6000) i$$, '{id,t,n,r,x}', 1300)) TO STDOUT (FORMAT binary) \g :to
\copy b from 'stream' (format inrush)
SELECT check_structure('b');
SELECT uses_index('SELECT FROM b WHERE id > 3000'), * FROM found('b', 'id > 3000');
SELECT uses_index('SELECT FROM b WHERE x = -7'), * FROM found('b', 'x = -7');
SELECT uses_index('SELECT FROM b WHERE x IS NULL'), * FROM found('b', 'x IS NULL');
SELECT uses_index($$SELECT FROM b WHERE lower(t) = 't33'$$), * FROM found('b', $$lower(t) = 't33'$$);
SELECT uses_index('SELECT FROM b WHERE x IS NULL AND n > 50'), * FROM found('b', 'x IS NULL AND n > 50');
SELECT uses_index($$SELECT FROM b WHERE t LIKE 'T1%'$$), * FROM found('b', $$t LIKE 'T1%'$$);
-- Several batches in one block: more rows than are indexed in one go.
COPY (SELECT inrush_test.blocks('b', 'SELECT i, NULL::text, NULL::numeric, NULL::text, NULL::int FROM generate_series(10000, 16000) i', '{id,t,n,r,x}', 6001)) TO STDOUT (FORMAT binary) \g :to
\copy b from 'stream' (format inrush)
SELECT check_structure('b');
SELECT * FROM found('b', 'id >= 10000');
-- A key that is there already, one that comes twice in a block, one that comes in two blocks: the line is named.
COPY (SELECT inrush_test.blocks('b', $$SELECT id, NULL::text, NULL::numeric, NULL::text, NULL::int FROM (VALUES (20001), (20002), (77), (20003)) v (id)$$)) TO STDOUT (FORMAT binary) \g :to
\copy b from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('b', $$SELECT id, NULL::text, NULL::numeric, NULL::text, NULL::int FROM (VALUES (20005), (20002), (20003), (20002)) v (id)$$)) TO STDOUT (FORMAT binary) \g :to
\copy b from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('b', $$SELECT id, NULL::text, NULL::numeric, NULL::text, NULL::int FROM (VALUES (20005), (20002), (20003), (20006), (20005)) v (id)$$, '{id,t,n,r,x}', 2)) TO STDOUT (FORMAT binary) \g :to
\copy b from 'stream' (format inrush)
SELECT count(*) FROM b WHERE id > 20000;
DROP TABLE b;

-- NULLs in unique indexes, distinct and not.
CREATE TABLE u (a int UNIQUE, b int UNIQUE NULLS NOT DISTINCT);
COPY (SELECT inrush_test.blocks('u', 'VALUES (NULL::int, 1), (NULL, 2)')) TO STDOUT (FORMAT binary) \g :to
\copy u from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('u', 'VALUES (1, NULL::int), (2, NULL)')) TO STDOUT (FORMAT binary) \g :to
\copy u from 'stream' (format inrush)
SELECT count(*) FROM u;
-- A unique index over an expression, over a part.
CREATE UNIQUE INDEX ON u ((abs(a))) WHERE a < 10;
COPY (SELECT inrush_test.blocks('u', 'VALUES (20, 3), (-20, 4)')) TO STDOUT (FORMAT binary) \g :to
\copy u from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('u', 'VALUES (5, 6), (-5, 7)')) TO STDOUT (FORMAT binary) \g :to
\copy u from 'stream' (format inrush)
-- An index that is not valid takes rows all the same, and so does its uniqueness.
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'u_a_key'::regclass;
COPY (SELECT inrush_test.blocks('u', 'VALUES (20, 9)')) TO STDOUT (FORMAT binary) \g :to
\copy u from 'stream' (format inrush)
UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'u_a_key'::regclass;
SELECT check_structure('u');
-- A constraint that is checked late.
ALTER TABLE u ADD c int;
ALTER TABLE u ADD CONSTRAINT late UNIQUE (c) DEFERRABLE;
\copy u from 'stream' (format inrush)
SELECT inrush.plan('u') -> 'refusal' ->> 'code';
DROP TABLE u;

-- Expressions that fail, and that may not be half way seen.
CREATE TABLE f (a int);
CREATE INDEX ON f ((100 / a));
COPY (SELECT inrush_test.blocks('f', 'VALUES (1), (0), (2)')) TO STDOUT (FORMAT binary) \g :to
\copy f from 'stream' (format inrush)
SELECT count(*) FROM f;
DROP TABLE f;

-- GIN with its pending list and without, GiST, SP-GiST, hash.
CREATE TABLE g (id int, a int[], r int4range, p point, t text);
CREATE INDEX ON g USING gin (a);
CREATE INDEX ON g USING gin (a) WITH (fastupdate = off);
CREATE INDEX ON g USING gist (r);
CREATE INDEX ON g USING gist (p);
CREATE INDEX ON g USING spgist (r);
CREATE INDEX ON g USING spgist (p);
CREATE INDEX ON g USING spgist (t);
CREATE INDEX ON g USING hash (t);
CREATE INDEX ON g USING hash (id) WHERE id % 2 = 0;
COPY (SELECT inrush_test.blocks('g', $$SELECT i, ARRAY[i % 10, i % 7], int4range(i, i + 10), point(i % 100, i / 100), 't' || i % 500
                                         FROM generate_series(1, 3000) i$$)) TO STDOUT (FORMAT binary) \g :to
\copy g from 'stream' (format inrush)
SELECT uses_index($$SELECT FROM g WHERE a @> '{3,4}'$$), * FROM found('g', $$a @> '{3,4}'$$);
SELECT uses_index($$SELECT FROM g WHERE r && '[100,120)'$$), * FROM found('g', $$r && '[100,120)'$$);
SELECT uses_index($$SELECT FROM g WHERE p <@ box '(10,10),(20,20)'$$), * FROM found('g', $$p <@ box '(10,10),(20,20)'$$);
SELECT uses_index($$SELECT FROM g WHERE t = 't77'$$), * FROM found('g', $$t = 't77'$$);
SELECT uses_index($$SELECT FROM g WHERE id = 78 AND id % 2 = 0$$), * FROM found('g', $$id = 78 AND id % 2 = 0$$);
DROP TABLE g;

-- Exclusion: with a GiST index, and with a btree.
CREATE TABLE e (r int4range, n int, EXCLUDE USING gist (r WITH &&), EXCLUDE USING btree (n WITH =));
COPY (SELECT inrush_test.blocks('e', $$VALUES ('[1,5)'::int4range, 1), ('[5,9)', 2)$$)) TO STDOUT (FORMAT binary) \g :to
\copy e from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('e', $$VALUES ('[10,15)'::int4range, 3), ('[14,19)', 4)$$)) TO STDOUT (FORMAT binary) \g :to
\copy e from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('e', $$VALUES ('[10,15)'::int4range, 3), ('[15,19)', 1)$$)) TO STDOUT (FORMAT binary) \g :to
\copy e from 'stream' (format inrush)
SELECT count(*) FROM e;
DROP TABLE e;
DROP FUNCTION found, uses_index;
