-- Every native type: what is stored is what COPY stores, byte for byte.
\set to '|tail -c +26 | head -c -2 > stream'

-- Numbers.
CREATE TABLE src (a smallint, b int, c bigint, d oid, e real, f double precision, g money, h "char", i boolean);
INSERT INTO src VALUES
  (0, 0, 0, 0, 0, 0, 0, '', false),
  (-32768, -2147483648, -9223372036854775808, 4294967295, '-Infinity', '-Infinity', '-92233720368547758.08', '\377', true),
  (32767, 2147483647, 9223372036854775807, 1, 'Infinity', 'Infinity', '92233720368547758.07', 'x', true),
  (1, 1, 1, 1, 'NaN', 'NaN', 1, ' ', false),
  (1, 1, 1, 1, 1e-45, 4.94065645841247e-324, 1, 'a', false),
  (1, 1, 1, 1, 3.4028235e+38, 1.7976931348623157e+308, 1, 'a', false),
  (1, 1, 1, 1, '-0', '-0', 1, 'a', false);
CREATE TABLE by_copy (LIKE src);
CREATE TABLE by_frames (LIKE src);
\copy src to 'rows'
\copy by_copy from 'rows'
COPY (SELECT inrush_test.blocks('by_frames', 'TABLE src')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames from 'stream' (format inrush)
SELECT *, (SELECT count(*) FROM by_frames) AS rows FROM differ('by_copy', 'by_frames');
SELECT check_structure('by_frames');
DROP TABLE src, by_copy, by_frames;

SET datestyle = 'ISO';
SET timezone = 'UTC';
-- Dates and times, with infinities, at the ends of their ranges, and rounded by typmods.
CREATE TABLE src (a date, b timestamp, c timestamptz, d time, e timetz, f interval, g timestamp(0), h timestamptz(3), i time(2), j timetz(1));
INSERT INTO src VALUES
  ('4713-01-01 BC', '4713-01-01 00:00:00 BC', '4713-01-01 00:00:00+00 BC', '00:00', '00:00+15:59:59', '-178000000 years', '4713-01-01 00:00:00 BC', '4713-01-01 00:00:00+00 BC', '00:00', '00:00+15:59'),
  ('5874897-12-31', '294276-12-31 23:59:59.999999', '294276-12-31 23:59:59.999999+00', '24:00', '24:00-15:59:59', '178000000 years', '294276-12-31 23:59:59', '294276-12-31 23:59:59.999+00', '24:00', '24:00-15:59'),
  ('infinity', 'infinity', 'infinity', '23:59:59.999999', '23:59:59.999999+00', '1 month -2 days 3 microseconds', 'infinity', 'infinity', '23:59:59.99', '23:59:59.9+01'),
  ('-infinity', '-infinity', '-infinity', '00:00:00.000001', '12:34:56.789012+01:30', '-1 microsecond', '-infinity', '-infinity', '12:34:56.789', '12:34:56.789-05'),
  ('2000-01-01', '2000-01-01', '2000-01-01', '12:00', '12:00+00', '0', '1999-12-31 23:59:59.5', '1999-12-31 23:59:59.9996+00', '12:00', '12:00+00');
CREATE TABLE by_copy (LIKE src);
CREATE TABLE by_frames (LIKE src);
\copy src to 'rows'
\copy by_copy from 'rows'
COPY (SELECT inrush_test.blocks('by_frames', 'TABLE src')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames from 'stream' (format inrush)
SELECT *, (SELECT count(*) FROM by_frames) AS rows FROM differ('by_copy', 'by_frames');
DROP TABLE src, by_copy, by_frames;

-- Text: empty, at the border between short and long headers, more bytes than characters, at the typmod's limit.
CREATE TABLE src (a text, b varchar, c varchar(5), d char(3), e char(200), f bytea, g name, h bpchar);
INSERT INTO src
  SELECT repeat(c, n), repeat(c, n), repeat(c, least(n, 5)), repeat(c, least(n, 3)), repeat(c, n), convert_to(repeat(c, n), 'UTF8'),
         repeat(c, least(n, 20)), repeat(c, n) || '  '
    FROM unnest(ARRAY['x', 'ä', '€', '𝄞', ' ', E'\t']) c, unnest(ARRAY[0, 1, 7, 8, 31, 62, 63, 125, 126, 127, 128, 200]) n;
INSERT INTO src (f, g) VALUES ('\x00ff00', ''), ('\x', repeat('n', 63));
CREATE TABLE by_copy (LIKE src);
CREATE TABLE by_frames (LIKE src);
\copy src to 'rows'
\copy by_copy from 'rows'
COPY (SELECT inrush_test.blocks('by_frames', 'TABLE src')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames from 'stream' (format inrush)
SELECT *, (SELECT count(*) FROM by_frames) AS rows FROM differ('by_copy', 'by_frames');
DROP TABLE src, by_copy, by_frames;

-- The rest.
CREATE TABLE src (z boolean, a uuid, b macaddr, c macaddr8, d pg_lsn, e point);
INSERT INTO src VALUES
  (true, 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'ff:ff:ff:ff:ff:ff', 'ff:ff:ff:ff:ff:ff:ff:ff', 'FFFFFFFF/FFFFFFFF', '(NaN,-Infinity)'),
  (false, '00000000-0000-0000-0000-000000000000', '00:00:00:00:00:00', '00:00:00:00:00:00:00:00', '0/0', '(0,-0)'),
  (NULL, '00112233-4455-6677-8899-aabbccddeeff', '01:02:03:04:05:06', '01:02:03:04:05:06:07:08', '1/2', '(1.5,1e300)');
CREATE TABLE by_copy (LIKE src);
CREATE TABLE by_frames (LIKE src);
\copy src to 'rows'
\copy by_copy from 'rows'
COPY (SELECT inrush_test.blocks('by_frames', 'TABLE src')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames from 'stream' (format inrush)
SELECT *, (SELECT count(*) FROM by_frames) AS rows FROM differ('by_copy', 'by_frames');
DROP TABLE src, by_copy, by_frames;

-- What the plan says of them, and of types that travel as their receive functions read them.
CREATE TABLE planned (a int, b text, c varchar(5), d numeric(6,2), e timestamp(3), f interval, g interval day, h jsonb, i int[], j char(4), k name, l xid8);
SELECT c ->> 'name' AS name, c ->> 'class' AS class, c ->> 'sent' AS sent, c ->> 'base_type' AS base_type,
       c ->> 'typmod' AS typmod, c ->> 'length' AS length, c ->> 'align' AS align, c ->> 'storage' AS storage
  FROM json_array_elements(inrush.plan('planned', ARRAY['l', 'a', 'g']) -> 'columns') c;
SELECT p -> 'version' AS version, p -> 'refusal' AS refusal, length(p ->> 'fingerprint') AS digits, p -> 'encoding' AS encoding,
       p -> 'block_size' AS block_size, p -> 'max_align' AS max_align, p -> 'toast_threshold' AS toast_threshold
  FROM inrush.plan('planned') p;
SELECT inrush.plan('planned', ARRAY['a', 'nowhere']);
SELECT inrush.plan('planned', ARRAY['a', 'a']);
SELECT inrush.plan('planned', ARRAY['a', NULL]);
SELECT inrush.plan(NULL) IS NULL AS null;
SELECT inrush.plan(4294967295::oid::regclass);
DROP TABLE planned;
