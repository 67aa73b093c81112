-- numeric has two headers, a display scale, a weight, and nothing at its ends.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE TABLE src (a numeric, b numeric(10,2), c numeric(1000,500), d numeric(3,-2), e numeric(3,5));
INSERT INTO src (a) VALUES
  (0), (0.0), (0.0000), ('0e-63'), ('0e-64'), ('0e-1000'), (1), (-1), (9999), (10000), (10001), (0.1), (0.0001), (0.00001), (1.10), (-1.10),
  ('NaN'), ('Infinity'), ('-Infinity'), ('1e255'), ('1e256'), ('1e300'), ('1e-252'), ('1e-256'), ('1e-260'), ('1e-16383'), ('1e131071'),
  (repeat('9', 500)::numeric), ((repeat('1234', 100) || '.' || repeat('5678', 100))::numeric), (('1.' || repeat('0', 63))::numeric), (('1.' || repeat('0', 64))::numeric),
  (repeat('9', 5000)::numeric);
INSERT INTO src (b) VALUES (0), (99999999.99), (-99999999.99), (0.01), (1.5), ('NaN');
INSERT INTO src (c) VALUES (0), ('1e499'), ('1e-500'), (repeat('7', 500)::numeric);
INSERT INTO src (d) VALUES (0), (99900), (100), (-99900), ('NaN');
INSERT INTO src (e) VALUES (0), (0.00999), (0.00001), (-0.00999);
CREATE TABLE by_copy (LIKE src);
CREATE TABLE by_frames (LIKE src);
\copy src to 'rows'
\copy by_copy from 'rows'
COPY (SELECT inrush_test.blocks('by_frames', 'TABLE src')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames from 'stream' (format inrush)
SELECT *, (SELECT count(*) FROM by_frames) AS rows FROM differ('by_copy', 'by_frames');
DROP TABLE src, by_copy, by_frames;

-- One value each that no numeric function would make.
CREATE TABLE n (a numeric);
CREATE TABLE t (a numeric(5,2));
-- 12.5 is 0x8000 + 1 * 128, then 12 and 5000: this one is good
COPY (SELECT short('n', le(x'8080'::int, 2) || le(12, 2) || le(5000, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
TABLE n;
-- an odd number of bytes, one byte, none
COPY (SELECT short('n', le(x'8080'::int, 2) || le(12, 1))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
COPY (SELECT short('n', '\x80')) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
COPY (SELECT short('n', '')) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
-- digits of 10000, and below 0
COPY (SELECT short('n', le(x'8000'::int, 2) || le(10000, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
COPY (SELECT short('n', le(x'8000'::int, 2) || le(-1, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
-- a zero digit in front, one at the end
COPY (SELECT short('n', le(x'8001'::int, 2) || le(0, 2) || le(1, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
COPY (SELECT short('n', le(x'8001'::int, 2) || le(1, 2) || le(0, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
-- zero with a sign, with a weight
COPY (SELECT short('n', le(x'a000'::int, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
COPY (SELECT short('n', le(x'8001'::int, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
-- a long header where the short one fits; three bytes of a long header
COPY (SELECT short('n', le(0, 2) || le(0, 2) || le(1, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
COPY (SELECT short('n', le(64, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
-- more digits behind the point than the scale shows
COPY (SELECT short('n', le(x'8000'::int, 2) || le(1, 2) || le(5000, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
-- NaN with a digit, specials that are none
COPY (SELECT short('n', le(x'c000'::int, 2) || le(1, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
COPY (SELECT short('n', le(x'c001'::int, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
COPY (SELECT short('n', le(x'e000'::int, 2))) TO STDOUT (FORMAT binary) \g :to
\copy n from 'stream' (format inrush)
-- a typmod: another scale, one digit too many before the point, an infinity; NaN is allowed
COPY (SELECT short('t', le(x'8080'::int, 2) || le(12, 2) || le(5000, 2))) TO STDOUT (FORMAT binary) \g :to
\copy t from 'stream' (format inrush)
COPY (SELECT short('t', le(x'8100'::int, 2) || le(1000, 2))) TO STDOUT (FORMAT binary) \g :to
\copy t from 'stream' (format inrush)
COPY (SELECT short('t', le(x'd000'::int, 2))) TO STDOUT (FORMAT binary) \g :to
\copy t from 'stream' (format inrush)
COPY (SELECT short('t', le(x'c000'::int, 2))) TO STDOUT (FORMAT binary) \g :to
\copy t from 'stream' (format inrush)
COPY (SELECT short('t', le(x'8100'::int, 2) || le(999, 2) || le(9900, 2))) TO STDOUT (FORMAT binary) \g :to
\copy t from 'stream' (format inrush)
TABLE t;
SELECT count(*) FROM n;
DROP TABLE n, t;
