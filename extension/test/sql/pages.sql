-- Whole pages have the rows one behind the other, and zeros where no row is.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE FUNCTION number(bytes bytea, place bigint, size int) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT sum(get_byte(bytes, place::int + i)::bigint << (8 * i))::bigint FROM generate_series(0, size - 1) i
$$;
CREATE FUNCTION zeros(bytes bytea, begins bigint, ends bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT substr(bytes, begins::int + 1, (ends - begins)::int) = decode(repeat('00', (ends - begins)::int), 'hex')
$$;
-- Of the file: pages, rows, and what is not zero between its line pointers and its rows, and behind a row.
CREATE FUNCTION on_disk(relation regclass, OUT pages bigint, OUT rows bigint, OUT dirty_holes bigint, OUT dirty_ends bigint)
BEGIN ATOMIC
  WITH file AS (SELECT pg_read_binary_file(pg_relation_filepath(relation)) AS f),
       page AS MATERIALIZED (SELECT n, substr(f, n * 8192 + 1, 8192) AS p FROM file, generate_series(0, length(f) / 8192 - 1) n),
       bounds AS MATERIALIZED (SELECT *, number(p, 12, 2) AS lower, number(p, 14, 2) AS upper FROM page),
       item AS (SELECT n, p, number(p, 24 + 4 * i, 4) AS id FROM bounds, generate_series(0, (lower - 24) / 4 - 1) i),
       tuple AS (SELECT p, (id & 32767) AS begins, (id & 32767) + (id >> 17) AS ends FROM item)
  SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM tuple),
         (SELECT count(*) FROM bounds WHERE NOT zeros(p, lower, upper)),
         (SELECT count(*) FROM tuple WHERE NOT zeros(p, ends, (ends + 7) / 8 * 8));
END;
-- More pages than are kept in memory, of rows of all lengths; then fewer and longer rows, where the others have been.
CREATE TABLE src (id int, note text);
INSERT INTO src SELECT i, repeat(chr(97 + i % 26), i % 77) FROM generate_series(1, 6000) i;
INSERT INTO src SELECT i, repeat(chr(97 + i % 26), 1200 + i % 13) FROM generate_series(1, 400) i;
CREATE TABLE logged (LIKE src);
CREATE UNLOGGED TABLE unlogged (LIKE src);
COPY (SELECT inrush_test.blocks('logged', 'TABLE src', '{id,note}', 5000)) TO STDOUT (FORMAT binary) \g :to
\copy logged from 'stream' (format inrush)
\copy unlogged from 'stream' (format inrush)
SELECT * FROM differ('src', 'logged');
SELECT * FROM differ('src', 'unlogged');
CHECKPOINT;
SELECT * FROM on_disk('src');
SELECT * FROM on_disk('logged');
-- The same in blocks of a few rows: the pages of a block are not written with it.
TRUNCATE logged;
TRUNCATE unlogged;
COPY (SELECT inrush_test.blocks('logged', 'TABLE src', '{id,note}', 40)) TO STDOUT (FORMAT binary) \g :to
\copy logged from 'stream' (format inrush)
\copy unlogged from 'stream' (format inrush)
SELECT * FROM differ('src', 'logged');
SELECT * FROM differ('src', 'unlogged');
CHECKPOINT;
SELECT * FROM on_disk('logged');
SELECT check_structure('logged');
DROP TABLE src, logged, unlogged;
DROP FUNCTION on_disk, zeros, number;
