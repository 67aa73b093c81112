-- NOT NULL, CHECK and domains hold.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN small AS positive CHECK (VALUE < 1000);
CREATE DOMAIN required AS text NOT NULL;
CREATE DOMAIN short_text AS varchar(3);
CREATE DOMAIN object AS jsonb CHECK (VALUE ? 'a');
CREATE TABLE c (a int NOT NULL, b int CHECK (b > 0), d small, e required DEFAULT 'e', f short_text, g object, CHECK (a < b));
COPY (SELECT inrush_test.blocks('c', $$VALUES (1, 2, 3, 'x', 'abc'::varchar, '{"a": 1}'::jsonb), (0, NULL, NULL, '', NULL, NULL)$$)) TO STDOUT (FORMAT binary) \g :to
\copy c from 'stream' (format inrush)
TABLE c;
-- Each broken once, in the second row.
COPY (SELECT inrush_test.blocks('c', $$VALUES (1, 2, 3, 'x', 'abc'::varchar, '{"a": 1}'::jsonb), (NULL, NULL, NULL, '', NULL, NULL)$$)) TO STDOUT (FORMAT binary) \g :to
\copy c from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('c', $$VALUES (1, 2, 3, 'x', 'abc'::varchar, '{"a": 1}'::jsonb), (-5, -1, NULL, '', NULL, NULL)$$)) TO STDOUT (FORMAT binary) \g :to
\copy c from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('c', $$VALUES (1, 2, 3, 'x', 'abc'::varchar, '{"a": 1}'::jsonb), (2, 1, NULL, '', NULL, NULL)$$)) TO STDOUT (FORMAT binary) \g :to
\copy c from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('c', $$VALUES (1, 2, 3, 'x', 'abc'::varchar, '{"a": 1}'::jsonb), (1, 2, 1000, '', NULL, NULL)$$)) TO STDOUT (FORMAT binary) \g :to
\copy c from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('c', $$VALUES (1, 2, 3, 'x', 'abc'::varchar, '{"a": 1}'::jsonb), (1, 2, 0, '', NULL, NULL)$$)) TO STDOUT (FORMAT binary) \g :to
\copy c from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('c', $$VALUES (1, 2, 3, 'x', 'abc'::varchar, '{"a": 1}'::jsonb), (1, 2, NULL, NULL, NULL, NULL)$$)) TO STDOUT (FORMAT binary) \g :to
\copy c from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('c', $$VALUES (1, 2, 3, 'x', 'abc'::varchar, '{"a": 1}'::jsonb), (1, 2, NULL, '', 'abcd', NULL)$$)) TO STDOUT (FORMAT binary) \g :to
\copy c from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('c', $$VALUES (1, 2, 3, 'x', 'abc'::varchar, '{"a": 1}'::jsonb), (1, 2, NULL, '', NULL, '{"b": 1}')$$)) TO STDOUT (FORMAT binary) \g :to
\copy c from 'stream' (format inrush)
-- NOT NULL of a column that is not sent, and has no default; and of one whose default fills it.
COPY (SELECT inrush_test.blocks('c', 'SELECT 1', '{b}')) TO STDOUT (FORMAT binary) \g :to
\copy c (b) from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('c', 'SELECT 1', '{a}')) TO STDOUT (FORMAT binary) \g :to
\copy c (a) from 'stream' (format inrush)
-- A domain that is NOT NULL, of a column that is not sent and has no default: as COPY.
ALTER TABLE c ALTER e DROP DEFAULT;
\copy (SELECT 1) to 'rows'
\copy c (a) from 'rows'
\copy c (a) from 'stream' (format inrush)
TABLE c;
-- NOT VALID holds for new rows; NO INHERIT too; a dropped one no more. Columns of CHECK that are not sent.
ALTER TABLE c ALTER e SET DEFAULT 'e';
ALTER TABLE c ADD CONSTRAINT late CHECK (a <> 1) NOT VALID;
\copy c (a) from 'stream' (format inrush)
ALTER TABLE c DROP CONSTRAINT late;
ALTER TABLE c ADD CONSTRAINT own CHECK (coalesce(b, 0) > 0) NO INHERIT NOT VALID;
\copy c (a) from 'stream' (format inrush)
ALTER TABLE c DROP CONSTRAINT own;
\copy c (a) from 'stream' (format inrush)
SELECT count(*) FROM c;
DROP TABLE c;
-- A domain over an array, over a composite, over a domain with a typmod; over types of every class.
CREATE DOMAIN three AS int[] CHECK (cardinality(VALUE) = 3);
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN whole AS pair CHECK ((VALUE).a > 0);
CREATE DOMAIN money_amount AS numeric(6,2) CHECK (VALUE >= 0);
CREATE DOMAIN moment AS timestamp(0);
CREATE DOMAIN flag AS bit(3);
CREATE TABLE src (a three, b whole, c money_amount, d moment, e flag);
INSERT INTO src VALUES ('{1,2,3}', '(1,)', 1.5, '2020-01-01 00:00:00.7', B'101'), (NULL, NULL, NULL, NULL, NULL);
CREATE TABLE by_copy (LIKE src);
CREATE TABLE by_frames (LIKE src);
\copy src to 'rows'
\copy by_copy from 'rows'
COPY (SELECT inrush_test.blocks('by_frames', 'TABLE src')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames from 'stream' (format inrush)
SELECT *, (SELECT count(*) FROM by_frames) AS rows FROM differ('by_copy', 'by_frames');
COPY (SELECT inrush_test.blocks('by_frames', $$SELECT '{1,2}'::int[]$$, '{a}')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames (a) from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('by_frames', $$SELECT '(0,x)'::pair$$, '{b}')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames (b) from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('by_frames', $$SELECT -1.00::numeric(6,2)$$, '{c}')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames (c) from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('by_frames', $$SELECT 1.0::numeric$$, '{c}')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames (c) from 'stream' (format inrush)
-- A CHECK added to the domain after the plan was made holds.
COPY (SELECT inrush_test.blocks('by_frames', $$SELECT 7.00::numeric(6,2)$$, '{c}')) TO STDOUT (FORMAT binary) \g :to
ALTER DOMAIN money_amount ADD CHECK (VALUE <> 7);
\copy by_frames (c) from 'stream' (format inrush)
SELECT count(*) FROM by_frames;
DROP TABLE src, by_copy, by_frames;
DROP DOMAIN three, whole, money_amount, moment, flag, object, short_text, required, small, positive;
DROP TYPE pair;
