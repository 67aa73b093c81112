-- The leaves of a partitioned table take frames, and every row must be within the leaf's bound.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE TABLE parent (id int, region text) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF parent FOR VALUES FROM (MINVALUE) TO (100);
CREATE TABLE high PARTITION OF parent FOR VALUES FROM (100) TO (200) PARTITION BY LIST (region);
CREATE TABLE high_a PARTITION OF high FOR VALUES IN ('a', NULL);
CREATE TABLE high_rest PARTITION OF high DEFAULT PARTITION BY HASH (id);
CREATE TABLE high_rest_0 PARTITION OF high_rest FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE high_rest_1 PARTITION OF high_rest FOR VALUES WITH (MODULUS 2, REMAINDER 1);
-- A leaf whose columns lie elsewhere than the parent's.
CREATE TABLE attached (gone text, region text, id int);
ALTER TABLE attached DROP gone;
ALTER TABLE parent ATTACH PARTITION attached FOR VALUES FROM (200) TO (300);
SELECT inrush.version();
\copy parent from '/dev/null' (format inrush)
\copy high from '/dev/null' (format inrush)
SELECT relname, inrush.plan(oid) -> 'refusal' ->> 'code' AS code FROM pg_class
 WHERE relname IN ('parent', 'low', 'high', 'high_a', 'high_rest', 'high_rest_0', 'high_rest_1', 'attached') ORDER BY 1;
COPY (SELECT inrush_test.blocks('low', $$VALUES (1, 'x'), (-5, NULL)$$)) TO STDOUT (FORMAT binary) \g :to
\copy low from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('low', $$VALUES (1, 'x'), (100, 'x')$$)) TO STDOUT (FORMAT binary) \g :to
\copy low from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('low', $$VALUES (NULL::int, 'x')$$)) TO STDOUT (FORMAT binary) \g :to
\copy low from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('high_a', $$VALUES (100, 'a'), (199, NULL)$$)) TO STDOUT (FORMAT binary) \g :to
\copy high_a from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('high_a', $$VALUES (100, 'b')$$)) TO STDOUT (FORMAT binary) \g :to
\copy high_a from 'stream' (format inrush)
-- the bound of the level above
COPY (SELECT inrush_test.blocks('high_a', $$VALUES (1, 'a')$$)) TO STDOUT (FORMAT binary) \g :to
\copy high_a from 'stream' (format inrush)
-- hash: what INSERT puts into one belongs into it, and not into the other
INSERT INTO parent SELECT n, 'z' FROM generate_series(100, 120) n;
CREATE TABLE right_ones AS SELECT id, region FROM high_rest_0;
DELETE FROM high_rest_0;
COPY (SELECT inrush_test.blocks('high_rest_0', 'TABLE right_ones')) TO STDOUT (FORMAT binary) \g :to
\copy high_rest_0 from 'stream' (format inrush)
SELECT count(*) = (SELECT count(*) FROM right_ones) AND count(*) > 0 AS all FROM high_rest_0;
COPY (SELECT inrush_test.blocks('high_rest_1', 'SELECT * FROM right_ones LIMIT 1')) TO STDOUT (FORMAT binary) \g :to
\copy high_rest_1 from 'stream' (format inrush)
-- not the default partition's, which another leaf has
COPY (SELECT inrush_test.blocks('high_rest_0', $$SELECT id, 'a'::text FROM right_ones LIMIT 1$$)) TO STDOUT (FORMAT binary) \g :to
\copy high_rest_0 from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('attached', $$VALUES ('r'::text, 250)$$)) TO STDOUT (FORMAT binary) \g :to
\copy attached from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('attached', $$VALUES (250, 'r'::text)$$, '{id,region}')) TO STDOUT (FORMAT binary) \g :to
\copy attached (id, region) from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('attached', $$VALUES ('r'::text, 350)$$)) TO STDOUT (FORMAT binary) \g :to
\copy attached from 'stream' (format inrush)
-- a bound that a column's default decides
ALTER TABLE attached ALTER id SET DEFAULT 1;
COPY (SELECT inrush_test.blocks('attached', $$VALUES ('r'::text)$$, '{region}')) TO STDOUT (FORMAT binary) \g :to
\copy attached (region) from 'stream' (format inrush)
ALTER TABLE attached ALTER id SET DEFAULT 299;
\copy attached (region) from 'stream' (format inrush)
SELECT tableoid::regclass, count(*) FROM parent GROUP BY 1 ORDER BY 1;
-- A leaf that was detached has no bound any more.
ALTER TABLE parent DETACH PARTITION attached;
COPY (SELECT inrush_test.blocks('attached', $$VALUES ('r'::text, 350)$$)) TO STDOUT (FORMAT binary) \g :to
\copy attached from 'stream' (format inrush)
-- Inheritance is no partitioning: parent and child take rows of their own.
CREATE TABLE base (a int CHECK (a > 0));
CREATE TABLE child (b int) INHERITS (base);
COPY (SELECT inrush_test.blocks('base', 'VALUES (1)')) TO STDOUT (FORMAT binary) \g :to
\copy base from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('child', 'VALUES (1, 2)')) TO STDOUT (FORMAT binary) \g :to
\copy child from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('child', 'VALUES (0, 2)')) TO STDOUT (FORMAT binary) \g :to
\copy child from 'stream' (format inrush)
SELECT tableoid::regclass, * FROM base ORDER BY 1;
DROP TABLE parent, attached, right_ones, base, child;
