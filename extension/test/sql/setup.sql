-- What the other tests use.
CREATE EXTENSION inrush;
CREATE EXTENSION inrush_test;
CREATE TABLE setup (id int, note text);
-- A session has the format after the first call of one of the functions.
\c -
\copy setup from '/dev/null' (format inrush)
SELECT inrush.version();
\copy setup from '/dev/null' (format inrush)
DROP TABLE setup;

-- amcheck, where the server has it: raises an error if a btree or the heap is not what it should be.
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_available_extensions WHERE name = 'amcheck') THEN
    CREATE EXTENSION amcheck;
  END IF;
END
$$;
CREATE FUNCTION check_structure(relation regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  i regclass;
  flaw text;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'amcheck') THEN
    RETURN 'sound';
  END IF;
  FOR i IN SELECT indexrelid FROM pg_index JOIN pg_class c ON c.oid = indexrelid
           WHERE indrelid = relation AND relam = (SELECT oid FROM pg_am WHERE amname = 'btree')
  LOOP
    PERFORM bt_index_check(i, heapallindexed => true);
  END LOOP;
  SELECT string_agg(msg, '; ') FROM verify_heapam(relation, check_toast => true) INTO flaw;
  RETURN coalesce(flaw, 'sound');
END
$$;

-- How many rows one table has and the other has not: by value and, in the second pair, byte for byte.
CREATE FUNCTION differ(a regclass, b regclass, OUT only_a bigint, OUT only_b bigint, OUT bytes_a bigint, OUT bytes_b bigint)
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('SELECT count(*) FROM (SELECT t::text FROM %s t EXCEPT ALL SELECT t::text FROM %s t) d', a, b) INTO only_a;
  EXECUTE format('SELECT count(*) FROM (SELECT t::text FROM %s t EXCEPT ALL SELECT t::text FROM %s t) d', b, a) INTO only_b;
  SELECT count(*) FROM (SELECT flags, hoff, bytes FROM inrush_test.stored(a)
                        EXCEPT ALL SELECT flags, hoff, bytes FROM inrush_test.stored(b)) d INTO bytes_a;
  SELECT count(*) FROM (SELECT flags, hoff, bytes FROM inrush_test.stored(b)
                        EXCEPT ALL SELECT flags, hoff, bytes FROM inrush_test.stored(a)) d INTO bytes_b;
END
$$;

-- Streams made by hand. Bytes are counted from 0, as in docs/format-inrush.md.
CREATE FUNCTION le(number bigint, bytes int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT string_agg(set_byte('\x00', 0, (number >> (8 * i) & 255)::int), NULL ORDER BY i) FROM generate_series(0, bytes - 1) i
$$;
CREATE FUNCTION put(stream bytea, place int, bytes bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT overlay(stream PLACING bytes FROM place + 1 FOR length(bytes))
$$;
-- A frame; the tuple is given from its byte 23 on.
CREATE FUNCTION frame(natts int, infomask int, tuple bytea, hoff int DEFAULT 24) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT le(length(tuple), 2) || le(natts, 2) || le(infomask, 2) || le(hoff, 1) || tuple
$$;
CREATE FUNCTION block(relation regclass, VARIADIC frames bytea[]) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
  plan json := inrush.plan(relation);
  payload bytea := '';
  frame bytea;
BEGIN
  FOREACH frame IN ARRAY frames LOOP
    IF length(payload) % 2 = 1 THEN
      payload := payload || '\x00';
    END IF;
    payload := payload || frame;
  END LOOP;
  RETURN 'INRU' || le(1, 2) || le(0, 2) || le(('x' || (plan ->> 'fingerprint'))::bit(64)::bigint, 8) ||
    le(cardinality(frames), 4) || le(length(payload), 4) || le(json_array_length(plan -> 'columns'), 2) ||
    le(8192, 2) || le(8, 1) || le(0, 35) || payload;
END
$$;
-- A block with one row of one column: a fixed length, or a varlena with a short header.
CREATE FUNCTION fixed(relation regclass, value bytea) RETURNS bytea LANGUAGE sql AS $$
  SELECT block(relation, frame(1, x'0800'::int, '\x00' || value))
$$;
CREATE FUNCTION short(relation regclass, value bytea) RETURNS bytea LANGUAGE sql AS $$
  SELECT block(relation, frame(1, x'0802'::int, '\x00' || le((length(value) + 1) * 2 + 1, 1) || value))
$$;
