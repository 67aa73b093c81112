-- Who may: exactly those whom COPY lets in. Each is asked twice, with COPY text in front.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE TABLE t (a int, b text, c int DEFAULT 3);
COPY (SELECT inrush_test.blocks('t', $$VALUES (1, 'x', 1)$$)) TO STDOUT (FORMAT binary) \g :to
\! printf '1\tx\t1\n' > rows
CREATE ROLE inrush_writer;
SET ROLE inrush_writer;
\copy t from 'rows'
\copy t from 'stream' (format inrush)
SELECT inrush.plan('t') IS NULL;
RESET ROLE;
-- the table
GRANT INSERT ON t TO inrush_writer;
SET ROLE inrush_writer;
\copy t from 'rows'
\copy t from 'stream' (format inrush)
SELECT inrush.plan('t') -> 'refusal';
RESET ROLE;
REVOKE INSERT ON t FROM inrush_writer;
-- other rights are not it
GRANT SELECT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER ON t TO inrush_writer;
SET ROLE inrush_writer;
\copy t from 'rows'
\copy t from 'stream' (format inrush)
SELECT inrush.plan('t') IS NULL;
RESET ROLE;
-- columns
GRANT INSERT (a, b) ON t TO inrush_writer;
COPY (SELECT inrush_test.blocks('t', $$VALUES (2, 'y')$$, '{a,b}')) TO STDOUT (FORMAT binary) \g :to
\! printf '2\ty\n' > rows
SET ROLE inrush_writer;
\copy t from 'rows'
\copy t from 'stream' (format inrush)
\copy t (a, c) from 'rows'
\copy t (a, c) from 'stream' (format inrush)
\copy t (a, b) from 'rows'
\copy t (a, b) from 'stream' (format inrush)
SELECT inrush.plan('t', '{a,b}') -> 'refusal';
-- a column that is not there is not a way to learn more than COPY says
\copy t (a, nowhere) from 'rows'
\copy t (a, nowhere) from 'stream' (format inrush)
RESET ROLE;
-- a default's function needs no right of the reader to the sequence but its own, as in COPY
CREATE SEQUENCE s;
ALTER TABLE t ALTER c SET DEFAULT nextval('s');
SET ROLE inrush_writer;
\copy t (a, b) from 'rows'
\copy t (a, b) from 'stream' (format inrush)
RESET ROLE;
GRANT USAGE ON SEQUENCE s TO inrush_writer;
SET ROLE inrush_writer;
\copy t (a, b) from 'rows'
\copy t (a, b) from 'stream' (format inrush)
RESET ROLE;
-- through a role that one is a member of, and through PUBLIC
REVOKE ALL ON t FROM inrush_writer;
REVOKE INSERT (a, b) ON t FROM inrush_writer;
CREATE ROLE inrush_group;
GRANT INSERT ON t TO inrush_group;
SET ROLE inrush_writer;
\copy t (a, b) from 'stream' (format inrush)
RESET ROLE;
GRANT inrush_group TO inrush_writer;
SET ROLE inrush_writer;
\copy t (a, b) from 'stream' (format inrush)
RESET ROLE;
-- no right to the schema
CREATE SCHEMA closed;
CREATE TABLE closed.t (LIKE t);
GRANT INSERT ON closed.t TO inrush_writer;
SET ROLE inrush_writer;
\copy closed.t (a, b) from 'rows'
\copy closed.t (a, b) from 'stream' (format inrush)
RESET ROLE;
-- partitions: the right is the leaf's own
CREATE TABLE parent (a int, b text) PARTITION BY RANGE (a);
CREATE TABLE leaf PARTITION OF parent DEFAULT;
GRANT INSERT ON parent TO inrush_writer;
SET ROLE inrush_writer;
\copy leaf from 'rows'
\copy leaf from 'stream' (format inrush)
RESET ROLE;
-- a transaction that only reads; a temporary table may be written in it
CREATE TEMP TABLE tt (LIKE t);
COPY (SELECT inrush_test.blocks('t', $$VALUES (2, 'y')$$, '{a,b}')) TO STDOUT (FORMAT binary) \g :to
BEGIN READ ONLY;
\copy t (a, b) from 'rows'
ROLLBACK;
BEGIN READ ONLY;
\copy t (a, b) from 'stream' (format inrush)
ROLLBACK;
BEGIN READ ONLY;
\copy tt (a, b) from 'stream' (format inrush)
COMMIT;
SET default_transaction_read_only = on;
\copy t (a, b) from 'stream' (format inrush)
RESET default_transaction_read_only;
SELECT count(*) FROM tt;
SELECT a, b, c, count(*) FROM t GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
-- a message shows of the row what was sent or may be read, and nothing else
CREATE TABLE m (a int, b text NOT NULL, c int DEFAULT 3, d text DEFAULT 'secret', e jsonb, CHECK (a % 2 = 1));
COPY (SELECT inrush_test.blocks('m', $$VALUES (1, 'x'), (3, NULL), (5, 'y')$$, '{a,b}')) TO STDOUT (FORMAT binary) \g :to
\! printf '1\tx\n3\t\\N\n5\ty\n' > rows
\copy m (a, b) from 'rows'
\copy m (a, b) from 'stream' (format inrush)
GRANT INSERT (a, b), SELECT (c) ON m TO inrush_writer;
SET ROLE inrush_writer;
\copy m (a, b) from 'rows'
\copy m (a, b) from 'stream' (format inrush)
RESET ROLE;
REVOKE SELECT (c) ON m FROM inrush_writer;
SET ROLE inrush_writer;
\copy m (a, b) from 'rows'
\copy m (a, b) from 'stream' (format inrush)
RESET ROLE;
GRANT SELECT ON m TO inrush_writer;
SET ROLE inrush_writer;
\copy m (a, b) from 'rows'
\copy m (a, b) from 'stream' (format inrush)
RESET ROLE;
REVOKE SELECT ON m FROM inrush_writer;
COPY (SELECT inrush_test.blocks('m', $$VALUES (1, 'x'), (2, 'y')$$, '{a,b}')) TO STDOUT (FORMAT binary) \g :to
\! printf '1\tx\n2\ty\n' > rows
SET ROLE inrush_writer;
\copy m (a, b) from 'rows'
\copy m (a, b) from 'stream' (format inrush)
RESET ROLE;
-- received values are shown as what they are
COPY (SELECT inrush_test.blocks('m', $$VALUES (1, NULL, '{"k": [1, 2]}'::jsonb)$$, '{a,b,e}')) TO STDOUT (FORMAT binary) \g :to
\! printf '1\t\\N\t{"k": [1, 2]}\n' > rows
\copy m (a, b, e) from 'rows'
\copy m (a, b, e) from 'stream' (format inrush)
-- everybody may ask for the version, and nobody may put something into the schema
SET ROLE inrush_writer;
SELECT inrush.version();
CREATE FUNCTION inrush.mine() RETURNS int LANGUAGE sql AS 'SELECT 1';
RESET ROLE;
DROP TABLE t, tt, m, parent;
DROP SCHEMA closed CASCADE;
DROP SEQUENCE s;
DROP ROLE inrush_writer, inrush_group;
