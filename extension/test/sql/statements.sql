-- The statement: its forms, its transaction, and a connection that goes on after an error.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE TABLE t (id int, note text);
COPY (SELECT inrush_test.blocks('t', $$VALUES (1, 'a'), (2, 'b')$$)) TO STDOUT (FORMAT binary) \g :to

-- Forms that are taken.
\copy t from 'stream' (format inrush)
\copy t from 'stream' with (format inrush)
\copy t from 'stream' (FORMAT 'inrush')
\copy t from 'stream' (FORMAT "inrush")
\copy public.t (id, note) from 'stream' (format inrush)
SELECT id, count(*) FROM t GROUP BY 1 ORDER BY 1;
TRUNCATE t;
-- And that are not.
\copy t from 'stream' (format inrush, header)
\copy t from 'stream' (format inrush, freeze)
\copy t from 'stream' (freeze, format inrush)
\copy t from 'stream' (format inrush, encoding 'UTF8')
\copy t from 'stream' (format inrush, format inrush)
\copy t from 'stream' (format text, format inrush)
\copy t from 'stream' (format inrush, format text)
\copy t from 'stream' (format INRUSH1)
\copy t from 'stream' (format inrush) where id > 0
\copy t to '/dev/null' (format inrush)
\copy (SELECT 1) to '/dev/null' (format inrush)
COPY t FROM '/dev/null' (FORMAT inrush);
COPY t FROM PROGRAM 'true' (FORMAT inrush);
COPY t TO PROGRAM 'true' (FORMAT inrush);
COPY t TO '/tmp/nowhere' (FORMAT inrush);
DO $$ BEGIN EXECUTE 'COPY t FROM STDIN (FORMAT inrush)'; END $$;
CREATE FUNCTION copies() RETURNS void LANGUAGE sql AS 'COPY t FROM STDIN (FORMAT inrush)';
\set VERBOSITY terse
SELECT copies();
\set VERBOSITY default
DROP FUNCTION copies;
PREPARE p AS COPY t FROM STDIN (FORMAT inrush);
EXPLAIN COPY t FROM STDIN (FORMAT inrush);
-- Every other COPY is as it was.
COPY t FROM STDIN;
7	text
\.
COPY t TO STDOUT;
COPY t TO STDOUT (FORMAT csv, HEADER);
COPY (TABLE t) TO STDOUT (FORMAT nowhere);
TRUNCATE t;

-- Transactions.
BEGIN;
\copy t from 'stream' (format inrush)
SELECT count(*) AS own FROM t;
ROLLBACK;
SELECT count(*) FROM t;
BEGIN;
\copy t from 'stream' (format inrush)
SAVEPOINT s;
\copy t from 'stream' (format inrush)
SELECT count(*) AS both FROM t;
ROLLBACK TO s;
SELECT count(*) AS first FROM t;
\copy t from '/dev/null' (format inrush)
\copy t from 'stream' (format inrush)
RELEASE s;
UPDATE t SET note = note || '!' WHERE id = 1;
DELETE FROM t WHERE id = 2;
COMMIT;
TABLE t;
TRUNCATE t;
-- An error in a subtransaction leaves the one around it as it was.
BEGIN;
\copy t from 'stream' (format inrush)
SAVEPOINT s;
\! (cat stream; printf 'XXXX') > broken
\copy t from 'broken' (format inrush)
ROLLBACK TO s;
SELECT count(*) FROM t;
COMMIT;
-- A table made, emptied or rewritten in the same transaction.
BEGIN;
CREATE TABLE n (id int, note text);
\copy n from 'stream' (format inrush)
TRUNCATE n;
\copy n from 'stream' (format inrush)
ALTER TABLE n ADD x float DEFAULT random();
SELECT id, note, x IS NOT NULL AS x FROM n;
COMMIT;
SELECT count(*) FROM n;
-- Two-phase commit.
BEGIN;
\copy t from 'stream' (format inrush)
PREPARE TRANSACTION 'inrush';
SELECT count(*) FROM t;
COMMIT PREPARED 'inrush';
SELECT count(*) FROM t;
-- A cursor does not see what comes later; a repeatable-read transaction sees its own.
BEGIN ISOLATION LEVEL REPEATABLE READ;
DECLARE c CURSOR FOR SELECT count(*) FROM t;
\copy t from 'stream' (format inrush)
FETCH c;
SELECT count(*) FROM t;
ROLLBACK;
-- An open cursor on the table is none of COPY's business.
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id;
FETCH c;
\copy t from 'stream' (format inrush)
FETCH ALL FROM c;
COMMIT;

-- After an error the connection goes on, whatever the client still sends: large streams, errors at their begin.
TRUNCATE t;
COPY (SELECT inrush_test.blocks('t', $$SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i$$, '{id,note}', 1000)) TO STDOUT (FORMAT binary) \g :to
\! (printf 'XXXX'; cat stream) > broken
\copy t from 'broken' (format inrush)
SELECT 'goes on' AS connection;
\copy t from 'stream' (format inrush)
SELECT count(*), sum(id) FROM t;
\! (cat stream; printf 'INRU') > broken
\copy t from 'broken' (format inrush)
SELECT count(*), sum(id) FROM t;
-- A timeout while the client is silent. Where it strikes is chance.
\set VERBOSITY terse
SET statement_timeout = '300ms';
\copy t from program 'cat stream; sleep 1; cat stream' (format inrush)
RESET statement_timeout;
\set VERBOSITY default
SELECT count(*) FROM t;

-- A plan that is old: the table was altered after it.
COPY (SELECT inrush_test.blocks('t', $$VALUES (1, 'a')$$)) TO STDOUT (FORMAT binary) \g :to
ALTER TABLE t ADD x int;
\copy t from 'stream' (format inrush)
\copy t (id, note) from 'stream' (format inrush)
ALTER TABLE t DROP x;
\copy t from 'stream' (format inrush)
CREATE TABLE o (id int, note text);
\copy o from 'stream' (format inrush)
ALTER TABLE o ALTER note TYPE varchar(10);
\copy o from 'stream' (format inrush)
ALTER TABLE o ALTER note TYPE text;
\copy o from 'stream' (format inrush)
ALTER TABLE o ALTER note SET STORAGE PLAIN;
\copy o from 'stream' (format inrush)
ALTER TABLE o ALTER note SET STORAGE EXTENDED, ALTER id SET NOT NULL;
\copy o from 'stream' (format inrush)
ALTER TABLE o ALTER id DROP NOT NULL, ALTER id TYPE bigint;
\copy o from 'stream' (format inrush)
ALTER TABLE o ALTER id TYPE int;
-- a name, too: two columns that swap theirs would swap their values
ALTER TABLE o RENAME note TO remark;
\copy o from 'stream' (format inrush)
ALTER TABLE o RENAME remark TO note;
-- defaults and CHECKs do not matter
ALTER TABLE o ALTER id SET DEFAULT 5, ADD CHECK (id > 0);
\copy o from 'stream' (format inrush)
SELECT count(*) FROM o;

-- Statistics count the rows; COPY's progress was shown and is gone. What was counted before may have been passed on, or not.
SELECT pg_stat_force_next_flush();
BEGIN;
\copy o from 'stream' (format inrush)
SELECT pg_stat_get_xact_tuples_inserted('o'::regclass) AS inserted;
COMMIT;
SELECT count(*) FROM pg_stat_progress_copy;
DROP TABLE t, n, o;
