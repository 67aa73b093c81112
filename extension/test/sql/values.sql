-- Bytes that are no value of their native type are refused, as the type's own input would.
\set to '|tail -c +26 | head -c -2 > stream'

CREATE TABLE v (a boolean);
COPY (SELECT fixed('v', '\x02')) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT fixed('v', '\xff')) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
ALTER TABLE v ALTER a TYPE date USING NULL;
-- 4714-11-24 BC is the first day, 5874897-12-31 the last; the numbers before and behind
COPY (SELECT fixed('v', le(-2451546, 4))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT fixed('v', le(2145031949, 4))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT fixed('v', le(-2451545, 4)) || fixed('v', le(2145031948, 4)) || fixed('v', le(2147483647, 4))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
SELECT a FROM v ORDER BY a;
TRUNCATE v;
ALTER TABLE v ALTER a TYPE timestamp USING NULL;
COPY (SELECT fixed('v', le(-211813488000000001, 8))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT fixed('v', le(9223371331200000000, 8))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
ALTER TABLE v ALTER a TYPE timestamptz(0) USING NULL;
COPY (SELECT fixed('v', le(1500000, 8))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT fixed('v', le(-9223372036854775807, 8))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
ALTER TABLE v ALTER a TYPE time(3) USING NULL;
COPY (SELECT fixed('v', le(-1000, 8))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT fixed('v', le(86400001000, 8))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT fixed('v', le(1, 8))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
ALTER TABLE v ALTER a TYPE timetz USING NULL;
COPY (SELECT fixed('v', le(86400000001, 8) || le(0, 4))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT fixed('v', le(0, 8) || le(57600, 4))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT fixed('v', le(0, 8) || le(-57600, 4))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
ALTER TABLE v ALTER a TYPE name USING NULL;
-- no zero at the end, something behind the zero, no character
COPY (SELECT fixed('v', convert_to(repeat('n', 64), 'UTF8'))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT fixed('v', '\x6e006e'::bytea || le(0, 61))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT fixed('v', '\xc3'::bytea || le(0, 63))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
ALTER TABLE v ALTER a TYPE text USING NULL;
-- half a character: alone, behind eight others, at the end of many; a zero byte at each place; a surrogate, too long a form
COPY (SELECT short('v', '\xc3')) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT short('v', '\x6161616161616161c3'::bytea)) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT short('v', convert_to(repeat('ä', 60), 'UTF8') || '\xc3'::bytea)) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT short('v', '\x61616100616161616161'::bytea)) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT short('v', '\x616161616161616100'::bytea)) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT short('v', '\x6161616161616101 00'::bytea)) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT short('v', '\xeda080'::bytea)) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT short('v', '\xc080'::bytea)) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
ALTER TABLE v ALTER a TYPE varchar(3) USING NULL;
COPY (SELECT short('v', 'abcd')) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT short('v', convert_to('äöüß', 'UTF8'))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT short('v', convert_to('äöü', 'UTF8'))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
TABLE v;
TRUNCATE v;
ALTER TABLE v ALTER a TYPE char(3) USING NULL;
COPY (SELECT short('v', 'ab')) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT short('v', 'abcd')) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
COPY (SELECT short('v', convert_to('äö ', 'UTF8'))) TO STDOUT (FORMAT binary) \g :to
\copy v from 'stream' (format inrush)
TABLE v;
DROP TABLE v;
