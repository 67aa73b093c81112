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
