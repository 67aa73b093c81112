-- Each rule of docs/format-inrush.md broken once: its error, and nothing is stored.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE TABLE h (id int NOT NULL, note text);
-- Two rows. Block header 0 to 63; frame header 64 to 70, a zero, id 72, note 76 to 78; a zero; frame header 80 to 86, bitmap 87,
-- id 88 to 91.
CREATE TABLE good AS
  SELECT inrush_test.blocks('h', $$VALUES (1, 'ab'), (2, NULL)$$) AS s;
SELECT length(s), encode(substr(s, 1, 8), 'hex') AS begin, encode(substr(s, 17), 'hex') AS rest FROM good;
COPY good TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
TABLE h;
TRUNCATE h;

-- The block's header.
COPY (SELECT put(s, 0, 'inru') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 4, '\x02') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 6, '\x02') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 15, set_byte('\x00', 0, 255 - get_byte(s, 15))) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 24, '\x03') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 26, '\x0040') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 28, '\x04') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 29, '\x01') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 31, '\x01') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 36, '\x01') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 63, '\x01') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
-- a CRC without its flag, a wrong one with it, the right one
COPY (SELECT put(s, 32, '\x01') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(put(s, 6, '\x01'), 32, '\x01020304') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(put(s, 6, '\x01'), 32, le(2592719546, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
SELECT count(*) FROM h;
TRUNCATE h;

-- How many frames, how many bytes.
COPY (SELECT put(s, 16, le(0, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 16, le(1, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 16, le(3, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 16, le(4, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 16, le(4294967295, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 20, le(0, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 20, le(27, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 20, le(29, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 20, le(29, 4)) || '\x00'::bytea FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 20, le(1048577, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(put(s, 20, le(1073676289, 4)), 16, le(1, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(put(s, 20, le(4294967295, 4)), 16, le(1, 4)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)

-- The stream ends too early, or too late.
COPY (SELECT substr(s, 1, 1) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT substr(s, 1, 63) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT substr(s, 1, 64) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT substr(s, 1, 91) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT s || '\x00'::bytea FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
-- and in the second block
COPY (SELECT s || substr(s, 1, 80) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT s || s || s FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT s || put(s, 66, '\x01') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
SELECT count(*) FROM h;
TRUNCATE h;

-- A frame's header.
COPY (SELECT put(s, 64, le(7, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 64, le(9, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 64, le(65535, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 64, le(0, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT block('h', frame(2, x'0802'::int, ''))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 66, le(1, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 66, le(3, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
-- HEAP_KEYS_UPDATED, HEAP_HOT_UPDATED, HEAP_ONLY_TUPLE
COPY (SELECT put(s, 66, le(x'2002'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 66, le(x'4002'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 66, le(x'8002'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
-- infomask: nothing, no HEAP_HASVARWIDTH, HEAP_HASNULL without a null, then every bit that a client has no business with
COPY (SELECT put(s, 68, le(x'0000'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'0800'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'0803'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'0806'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'080a'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'0812'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'0822'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'0842'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'0882'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'0902'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'0b02'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'0c02'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'1802'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'2802'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'4802'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 68, le(x'8802'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
-- the second row: no HEAP_HASNULL, HEAP_HASVARWIDTH without a value of variable width
COPY (SELECT put(s, 84, le(x'0800'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 84, le(x'0803'::int, 2)) FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
-- hoff
COPY (SELECT put(s, 70, '\x00') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 70, '\x17') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 70, '\x20') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 86, '\xff') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
-- zeros that are not: before the first value, between two frames
COPY (SELECT put(s, 71, '\x01') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 79, '\x01') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
-- the bitmap: no null, a bit behind the last attribute, a null where none may be, all null
COPY (SELECT put(s, 87, '\x03') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 87, '\x05') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 87, '\x02') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 87, '\x00') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
-- a row that ends in its header, in its bitmap, before a value of fixed length
COPY (SELECT block('h', frame(2, x'0801'::int, '\x01'))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT block('h', frame(2, x'0801'::int, '\x01010203'))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)

-- The text's header at 76: shorter, longer, out of line, compressed, empty, none.
COPY (SELECT put(s, 76, '\x05') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 76, '\x09') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 76, '\xff') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 76, '\x01') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 76, '\x03') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 76, '\x02') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(s, 76, '\x00') FROM good) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT block('h', frame(2, x'0802'::int, '\x00' || le(1, 4)))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
-- Long headers: of 126 bytes, which a short one can do; of 127; compressed; shorter than itself; longer than the row.
COPY (SELECT block('h', frame(2, x'0802'::int, '\x00' || le(1, 4) || le(130 * 4, 4) || convert_to(repeat('x', 126), 'UTF8')))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT block('h', frame(2, x'0802'::int, '\x00' || le(1, 4) || le(131 * 4, 4) || convert_to(repeat('x', 127), 'UTF8')))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
SELECT id, length(note) FROM h;
TRUNCATE h;
COPY (SELECT block('h', frame(2, x'0802'::int, '\x00' || le(1, 4) || le(131 * 4 + 2, 4) || convert_to(repeat('x', 127), 'UTF8')))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT block('h', frame(2, x'0802'::int, '\x00' || le(1, 4) || le(3 * 4, 4) || convert_to(repeat('x', 127), 'UTF8')))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT block('h', frame(2, x'0802'::int, '\x00' || le(1, 4) || le(132 * 4, 4) || convert_to(repeat('x', 127), 'UTF8')))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT block('h', frame(2, x'0802'::int, '\x00' || le(1, 4) || '\xfcffffff' || convert_to(repeat('x', 127), 'UTF8')))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)

-- Wide frames: the byte at 7, a length that an ordinary frame could have, one beyond the payload.
COPY (SELECT put(inrush_test.blocks('h', $$SELECT 1, repeat('x', 70000)$$), 71, '\x01')) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(inrush_test.blocks('h', $$SELECT 1, repeat('x', 70000)$$), 72, le(70010, 4))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT put(inrush_test.blocks('h', $$SELECT 1, repeat('x', 70000)$$), 72, le(4294967295, 4))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
COPY (SELECT block('h', le(0, 2) || le(2, 2) || le(x'0802'::int, 2) || le(24, 1) || '\x00' || le(65535, 4) || '\x00' || le(1, 4) ||
             le(65530 * 4, 4) || convert_to(repeat('x', 65526), 'UTF8'))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
-- the same row with a byte more is wide
COPY (SELECT block('h', le(0, 2) || le(2, 2) || le(x'0802'::int, 2) || le(24, 1) || '\x00' || le(65536, 4) || '\x00' || le(1, 4) ||
             le(65531 * 4, 4) || convert_to(repeat('x', 65527), 'UTF8'))) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)
SELECT id, length(note) FROM h;
TRUNCATE h;
-- two frames of more than 1 MiB together
COPY (SELECT inrush_test.blocks('h', $$SELECT 1, repeat('x', 600000) FROM generate_series(1, 2)$$)) TO STDOUT (FORMAT binary) \g :to
\copy h from 'stream' (format inrush)

-- Alignment: zeros between two values; a bigint where no eight bytes are left.
CREATE TABLE p (a smallint, b bigint);
COPY (SELECT block('p', frame(2, x'0800'::int, '\x00' || le(1, 2) || le(0, 6) || le(2, 8)))) TO STDOUT (FORMAT binary) \g :to
\copy p from 'stream' (format inrush)
COPY (SELECT block('p', frame(2, x'0800'::int, '\x00' || le(1, 2) || '\x010000000000'::bytea || le(2, 8)))) TO STDOUT (FORMAT binary) \g :to
\copy p from 'stream' (format inrush)
COPY (SELECT block('p', frame(2, x'0800'::int, '\x00' || le(1, 2) || '\x000000000001'::bytea || le(2, 8)))) TO STDOUT (FORMAT binary) \g :to
\copy p from 'stream' (format inrush)
COPY (SELECT block('p', frame(2, x'0800'::int, '\x00' || le(1, 2) || le(2, 8)))) TO STDOUT (FORMAT binary) \g :to
\copy p from 'stream' (format inrush)
COPY (SELECT block('p', frame(2, x'0800'::int, '\x00' || le(1, 2) || le(0, 6) || le(2, 8) || le(0, 1)))) TO STDOUT (FORMAT binary) \g :to
\copy p from 'stream' (format inrush)
TABLE p;
-- Before a long value too.
CREATE TABLE q (a smallint, b text);
COPY (SELECT block('q', frame(2, x'0802'::int, '\x00' || le(1, 2) || le(0, 2) || le(131 * 4, 4) || convert_to(repeat('x', 127), 'UTF8')))) TO STDOUT (FORMAT binary) \g :to
\copy q from 'stream' (format inrush)
COPY (SELECT block('q', frame(2, x'0802'::int, '\x00' || le(1, 2) || '\x0001'::bytea || le(131 * 4, 4) || convert_to(repeat('x', 127), 'UTF8')))) TO STDOUT (FORMAT binary) \g :to
\copy q from 'stream' (format inrush)
COPY (SELECT block('q', frame(2, x'0802'::int, '\x00' || le(1, 2) || le(131 * 4, 4) || convert_to(repeat('x', 127), 'UTF8')))) TO STDOUT (FORMAT binary) \g :to
\copy q from 'stream' (format inrush)
SELECT a, length(b) FROM q;

-- Storage "plain": no short headers.
CREATE TABLE r (a text);
ALTER TABLE r ALTER a SET STORAGE PLAIN;
COPY (SELECT short('r', 'ab')) TO STDOUT (FORMAT binary) \g :to
\copy r from 'stream' (format inrush)
COPY (SELECT block('r', frame(1, x'0802'::int, '\x00' || le(6 * 4, 4) || 'ab'))) TO STDOUT (FORMAT binary) \g :to
\copy r from 'stream' (format inrush)
TABLE r;

-- A value for a column that is not sent, or is dropped.
COPY good TO STDOUT (FORMAT binary) \g :to
\copy h (id) from 'stream' (format inrush)
CREATE TABLE d (id int, gone int);
ALTER TABLE d DROP gone;
COPY (SELECT block('d', frame(2, x'0801'::int, '\x01' || le(7, 4)))) TO STDOUT (FORMAT binary) \g :to
\copy d from 'stream' (format inrush)
COPY (SELECT block('d', frame(2, x'0800'::int, '\x00' || le(7, 4) || le(8, 4)))) TO STDOUT (FORMAT binary) \g :to
\copy d from 'stream' (format inrush)
COPY (SELECT block('d', frame(1, x'0800'::int, '\x00' || le(7, 4)))) TO STDOUT (FORMAT binary) \g :to
\copy d from 'stream' (format inrush)
TABLE d;

SELECT count(*) FROM h;
SELECT pg_relation_size('h') AS bytes;
DROP TABLE h, good, p, q, r, d;
