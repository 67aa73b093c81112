-- Native text is in the server's encoding, whatever the client's is; what a receive function reads, in the client's.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE TABLE t (a text, c char(3), v varchar(2), n name, j jsonb);
COPY (SELECT inrush_test.blocks('t', $$SELECT 'ä€'::text, 'äöü'::bpchar, 'äö'::varchar, 'ñ'::name, '"ä"'::jsonb$$)) TO STDOUT (FORMAT binary) \g :to
\copy t from 'stream' (format inrush)
SET client_encoding = 'LATIN1';
-- The stream from above: "ä" in UTF-8 is two characters in Latin 1.
\copy t from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('t', $$SELECT U&'\00E4\20AC'::text, U&'\00E4'::bpchar(3), NULL::varchar, NULL::name, ('"' || U&'\00E4' || '"')::jsonb$$)) TO STDOUT (FORMAT binary) \g :to
\copy t from 'stream' (format inrush)
RESET client_encoding;
SELECT a, c, v, n, j FROM t;
DROP TABLE t;

-- Bytes that are no characters by themselves, at the end of texts of several lengths: they are read in several ways.
CREATE TABLE bad (a text, b varchar, c char(9));
COPY (SELECT overlay(b PLACING '\x80'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT repeat('a', 1)$$, '{a}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (a) from 'stream' (format inrush)
COPY (SELECT overlay(b PLACING '\x00'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT repeat('a', 1)$$, '{a}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (a) from 'stream' (format inrush)
COPY (SELECT overlay(b PLACING '\x80'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT repeat('a', 3)$$, '{a}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (a) from 'stream' (format inrush)
COPY (SELECT overlay(b PLACING '\x00'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT repeat('a', 7)$$, '{a}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (a) from 'stream' (format inrush)
COPY (SELECT overlay(b PLACING '\xff'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT repeat('a', 7)$$, '{a}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (a) from 'stream' (format inrush)
COPY (SELECT overlay(b PLACING '\x80'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT repeat('a', 8)$$, '{a}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (a) from 'stream' (format inrush)
COPY (SELECT overlay(b PLACING '\x80'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT repeat('a', 9)$$, '{a}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (a) from 'stream' (format inrush)
COPY (SELECT overlay(b PLACING '\x00'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT repeat('a', 9)$$, '{a}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (a) from 'stream' (format inrush)
COPY (SELECT overlay(b PLACING '\x80'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT repeat('a', 16)$$, '{a}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (a) from 'stream' (format inrush)
COPY (SELECT overlay(b PLACING '\xbf'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT repeat('a', 19)$$, '{a}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (a) from 'stream' (format inrush)
COPY (SELECT overlay(b PLACING '\x80'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT 'abc'::varchar$$, '{b}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (b) from 'stream' (format inrush)
COPY (SELECT overlay(b PLACING '\x80'::bytea FROM length(b)) FROM inrush_test.blocks('bad', $$SELECT 'abcdefghi'::char(9)$$, '{c}') b) TO STDOUT (FORMAT binary) \g :to
\copy bad (c) from 'stream' (format inrush)
SELECT count(*) FROM bad;
DROP TABLE bad;

-- Databases in other encodings.
CREATE DATABASE inrush_latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C';
CREATE DATABASE inrush_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C';
CREATE DATABASE inrush_japan TEMPLATE template0 ENCODING 'EUC_JP' LOCALE 'C';
SET client_min_messages = warning;
\c inrush_latin
CREATE EXTENSION inrush_test CASCADE;
SET client_encoding = 'UTF8';
CREATE TABLE t (a text, c char(3));
SELECT inrush.plan('t') ->> 'encoding';
COPY (SELECT inrush_test.blocks('t', $$SELECT convert_from('\xe4f6', 'LATIN1'), convert_from('\xe4f6fc', 'LATIN1')::char(3)$$)) TO STDOUT (FORMAT binary) \g :to
\copy t from 'stream' (format inrush)
SELECT * FROM t;
\c inrush_ascii
CREATE EXTENSION inrush_test CASCADE;
CREATE TABLE t (a text, c char(3));
SELECT inrush.plan('t') ->> 'encoding';
-- Another encoding is another layout: there, these bytes mean something else.
\copy t from 'stream' (format inrush)
COPY (SELECT inrush_test.blocks('t', $$SELECT convert_from('\xe4ff', 'SQL_ASCII'), 'abc'::char(3)$$)) TO STDOUT (FORMAT binary) \g :to
\copy t from 'stream' (format inrush)
SELECT convert_to(a, 'SQL_ASCII'), c FROM t;
\c inrush_japan
CREATE EXTENSION inrush_test CASCADE;
SET client_encoding = 'UTF8';
CREATE TABLE t (a text, c char(3), v varchar(2));
-- two bytes a character, three, and one of which the second byte is missing
COPY (SELECT inrush_test.blocks('t', $$SELECT convert_from('\x616161616161616161a4a2', 'EUC_JP'), convert_from('\xa4a2a4a4a4a6', 'EUC_JP')::char(3), convert_from('\xa4a28fb0a1', 'EUC_JP')::varchar(2)$$)) TO STDOUT (FORMAT binary) \g :to
\copy t from 'stream' (format inrush)
SELECT a, c, char_length(v) FROM t;
ALTER TABLE t DROP c, DROP v;
CREATE TABLE one (a text);
COPY (SELECT overlay(b PLACING '\x41'::bytea FROM length(b)) FROM inrush_test.blocks('one', $$SELECT convert_from('\x6161616161616161a4a2', 'EUC_JP')$$) b) TO STDOUT (FORMAT binary) \g :to
\copy one from 'stream' (format inrush)
SELECT count(*) FROM one;
\c regression
DROP DATABASE inrush_latin;
DROP DATABASE inrush_ascii;
DROP DATABASE inrush_japan;
