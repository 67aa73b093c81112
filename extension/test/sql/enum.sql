-- Enums travel as the OIDs of their labels.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE other AS ENUM ('sad');
CREATE DOMAIN good_mood AS mood CHECK (VALUE <> 'sad');
CREATE TABLE e (m mood, g good_mood);
COPY (SELECT inrush_test.blocks('e', $$VALUES ('sad'::mood, 'ok'::good_mood), (NULL, NULL), ('happy', 'happy')$$)) TO STDOUT (FORMAT binary) \g :to
\copy e from 'stream' (format inrush)
TABLE e;
COPY (SELECT inrush_test.blocks('e', $$VALUES ('sad'::mood, 'sad'::mood)$$)) TO STDOUT (FORMAT binary) \g :to
\copy e from 'stream' (format inrush)
CREATE TABLE one (m mood);
-- another enum's label, no label at all
COPY (SELECT fixed('one', le((SELECT oid::bigint FROM pg_enum WHERE enumtypid = 'other'::regtype), 4))) TO STDOUT (FORMAT binary) \g :to
\copy one from 'stream' (format inrush)
COPY (SELECT fixed('one', le(0, 4))) TO STDOUT (FORMAT binary) \g :to
\copy one from 'stream' (format inrush)
-- a label that is not committed is refused, as everywhere
BEGIN;
ALTER TYPE mood ADD VALUE 'new';
COPY (SELECT fixed('one', le((SELECT oid::bigint FROM pg_enum WHERE enumlabel = 'new'), 4))) TO STDOUT (FORMAT binary) \g :to
\copy one from 'stream' (format inrush)
ROLLBACK;
-- and may be used when it is
ALTER TYPE mood ADD VALUE 'new';
COPY (SELECT inrush_test.blocks('one', $$VALUES ('new'::mood)$$)) TO STDOUT (FORMAT binary) \g :to
\copy one from 'stream' (format inrush)
TABLE one;
DROP TABLE e, one;
DROP DOMAIN good_mood;
DROP TYPE mood, other;
