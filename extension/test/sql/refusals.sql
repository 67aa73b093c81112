-- Tables that do not qualify: the plan says the code, COPY refuses with it; and those that look like it, and do qualify.
\set to '|tail -c +26 | head -c -2 > stream'
SET client_min_messages = warning;
CREATE FUNCTION refusal(relation regclass, columns text[] DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
  SELECT concat_ws(': ', p -> 'refusal' ->> 'code', p -> 'refusal' ->> 'detail') FROM inrush.plan(relation, columns) p
$$;
CREATE TABLE t (id int PRIMARY KEY, note text);
SELECT refusal('t') AS qualifies;

-- Not a table.
CREATE VIEW v AS SELECT * FROM t;
CREATE MATERIALIZED VIEW m AS SELECT * FROM t;
CREATE SEQUENCE s;
CREATE FOREIGN DATA WRAPPER w;
CREATE SERVER elsewhere FOREIGN DATA WRAPPER w;
CREATE FOREIGN TABLE f (id int) SERVER elsewhere;
CREATE TABLE parted (id int) PARTITION BY LIST (id);
SELECT refusal('v') AS v, refusal('f') AS f, refusal('parted') AS parted;
SELECT refusal('m'), refusal('s');
\copy v from '/dev/null' (format inrush)
\copy f from '/dev/null' (format inrush)
\copy parted from '/dev/null' (format inrush)
\copy m from '/dev/null' (format inrush)
\copy s from '/dev/null' (format inrush)
\copy nowhere from '/dev/null' (format inrush)
SELECT refusal('pg_class'), refusal('pg_largeobject'), refusal('information_schema.sql_features') AS qualifies;
\copy pg_class from '/dev/null' (format inrush)
SELECT inrush.plan(reltoastrelid) -> 'refusal' ->> 'code' AS toast FROM pg_class WHERE oid = 't'::regclass;
ALTER TABLE t SET (user_catalog_table = true);
SELECT refusal('t');
ALTER TABLE t RESET (user_catalog_table);

-- Triggers: of rows and statements, before and after, on INSERT only; enabled in which way.
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER one BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT refusal('t');
\copy t from '/dev/null' (format inrush)
ALTER TABLE t DISABLE TRIGGER one;
SELECT refusal('t') AS qualifies;
ALTER TABLE t ENABLE REPLICA TRIGGER one;
SELECT refusal('t');
ALTER TABLE t ENABLE ALWAYS TRIGGER one;
SELECT refusal('t');
DROP TRIGGER one ON t;
CREATE TRIGGER one AFTER INSERT OR DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION nothing();
SELECT refusal('t');
DROP TRIGGER one ON t;
CREATE TRIGGER one AFTER INSERT ON t REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION nothing();
SELECT refusal('t');
DROP TRIGGER one ON t;
CREATE CONSTRAINT TRIGGER one AFTER INSERT ON t DEFERRABLE FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT refusal('t');
DROP TRIGGER one ON t;
CREATE TRIGGER one BEFORE UPDATE OR DELETE OR TRUNCATE ON t FOR EACH STATEMENT EXECUTE FUNCTION nothing();
SELECT refusal('t') AS qualifies;
DROP TRIGGER one ON t;
CREATE VIEW tv AS SELECT * FROM t;
CREATE TRIGGER one INSTEAD OF INSERT ON tv FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT refusal('tv');
-- Rules are not looked at, as by COPY.
CREATE RULE r AS ON INSERT TO t DO INSTEAD NOTHING;
SELECT refusal('t') AS qualifies;
COPY (SELECT inrush_test.blocks('t', $$VALUES (1, 'rule')$$)) TO STDOUT (FORMAT binary) \g :to
\copy t from 'stream' (format inrush)
TABLE t;
DROP RULE r ON t;

-- Foreign keys: the referencing table is refused, the referenced one is not. Itself is both.
CREATE TABLE referencing (t int REFERENCES t);
SELECT refusal('referencing'), refusal('t') AS qualifies;
ALTER TABLE referencing ALTER CONSTRAINT referencing_t_fkey DEFERRABLE INITIALLY DEFERRED;
SELECT refusal('referencing');
ALTER TABLE referencing DISABLE TRIGGER ALL;
SELECT refusal('referencing') AS qualifies;
ALTER TABLE referencing ENABLE TRIGGER ALL;
ALTER TABLE referencing DROP CONSTRAINT referencing_t_fkey;
ALTER TABLE referencing ADD FOREIGN KEY (t) REFERENCES t NOT VALID;
SELECT refusal('referencing');
ALTER TABLE t ADD CONSTRAINT self FOREIGN KEY (id) REFERENCES t;
SELECT refusal('t');
ALTER TABLE t DROP CONSTRAINT self;

-- Constraints that can be deferred.
CREATE TABLE d (id int UNIQUE DEFERRABLE);
SELECT refusal('d');
CREATE TABLE x (r int4range, EXCLUDE USING gist (r WITH &&) DEFERRABLE INITIALLY DEFERRED);
SELECT refusal('x');
ALTER TABLE x DISABLE TRIGGER ALL;
SELECT refusal('x');

-- Generated columns, sent or not.
CREATE TABLE g (id int, twice int GENERATED ALWAYS AS (id * 2) STORED);
SELECT refusal('g'), refusal('g', '{id}');
\copy g (id) from '/dev/null' (format inrush)
\copy g (twice) from '/dev/null' (format inrush)

-- Virtual ones too, where there are any.
DO $$
BEGIN
  EXECUTE 'CREATE TABLE gv (id int, twice int GENERATED ALWAYS AS (id * 2) ' ||
    CASE WHEN current_setting('server_version_num')::int >= 180000 THEN 'VIRTUAL)' ELSE 'STORED)' END;
END
$$;
SELECT refusal('gv'), refusal('gv', '{id}');

-- Volatile defaults.
CREATE TABLE vd (id int, u uuid DEFAULT gen_random_uuid(), c timestamptz DEFAULT clock_timestamp());
SELECT refusal('vd') AS qualifies, refusal('vd', '{id,u}'), refusal('vd', '{id,c}');

-- Row-level security holds for some, not for its owner; FORCE; and a setting that makes it an error.
CREATE ROLE inrush_writer;
GRANT INSERT, SELECT ON t TO inrush_writer;
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
SELECT refusal('t') AS qualifies;
SET ROLE inrush_writer;
SELECT refusal('t');
\copy t from '/dev/null' (format inrush)
SET row_security = off;
SELECT refusal('t');
\copy t from '/dev/null' (format inrush)
RESET row_security;
RESET ROLE;
ALTER ROLE inrush_writer BYPASSRLS;
SET ROLE inrush_writer;
SELECT refusal('t') AS qualifies;
RESET ROLE;
ALTER ROLE inrush_writer NOBYPASSRLS;
ALTER TABLE t OWNER TO inrush_writer;
SET ROLE inrush_writer;
SELECT refusal('t') AS qualifies;
ALTER TABLE t FORCE ROW LEVEL SECURITY;
SELECT refusal('t');
RESET ROLE;
ALTER TABLE t OWNER TO postgres;
ALTER TABLE t NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY;

-- Publications: with a row filter it is refused, else not.
CREATE PUBLICATION p FOR TABLE t;
SELECT refusal('t') AS qualifies;
ALTER PUBLICATION p SET TABLE t WHERE (id > 0);
SELECT refusal('t');
\copy t from '/dev/null' (format inrush)
DROP PUBLICATION p;
CREATE PUBLICATION p FOR ALL TABLES;
SELECT refusal('t') AS qualifies;
DROP PUBLICATION p;
-- A leaf that is published as a part of its parent, with the parent's filter.
CREATE TABLE leaf PARTITION OF parted FOR VALUES IN (1);
CREATE PUBLICATION p FOR TABLE parted WHERE (id > 0) WITH (publish_via_partition_root = true);
SELECT refusal('leaf');
DROP PUBLICATION p;
-- Triggers of rows and foreign keys of a parent are its leaves' own; those of statements are not.
CREATE TRIGGER one BEFORE INSERT ON parted FOR EACH STATEMENT EXECUTE FUNCTION nothing();
SELECT refusal('leaf') AS qualifies;
CREATE TRIGGER two BEFORE INSERT ON parted FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT refusal('leaf');
DROP TRIGGER two ON parted;
ALTER TABLE parted ADD CONSTRAINT up FOREIGN KEY (id) REFERENCES t;
SELECT refusal('leaf');

-- Another access method, which happens to be heap's with another handler's name.
CREATE ACCESS METHOD another TYPE TABLE HANDLER heap_tableam_handler;
CREATE TABLE am (id int) USING another;
SELECT refusal('am') AS qualifies;
CREATE ACCESS METHOD foreign_one TYPE TABLE HANDLER inrush_test.handler;
CREATE TABLE fam (id int) USING foreign_one;
SELECT refusal('fam');
\copy fam from '/dev/null' (format inrush)
DROP TABLE fam;
DROP ACCESS METHOD foreign_one;

-- Temporary tables of one's own, unlogged tables, tables of a type, with identity, with statistics.
CREATE TEMP TABLE tt (id int, note text);
CREATE UNLOGGED TABLE ut (id int, note text);
CREATE TYPE row_type AS (id int, note text);
CREATE TABLE typed OF row_type;
COPY (SELECT inrush_test.blocks('tt', $$VALUES (1, 'a'), (2, NULL)$$)) TO STDOUT (FORMAT binary) \g :to
\copy tt from 'stream' (format inrush)
\copy ut from 'stream' (format inrush)
\copy typed from 'stream' (format inrush)
SELECT (SELECT count(*) FROM tt) AS tt, (SELECT count(*) FROM ut) AS ut, (SELECT count(*) FROM typed) AS typed;
-- Layouts that are equal have equal fingerprints, or the streams above would have been refused.
SELECT count(DISTINCT inrush.plan(r) ->> 'fingerprint') FROM unnest('{tt,ut,typed}'::regclass[]) r;

-- Extensions that keep rows elsewhere, as far as the catalogs tell. In doubt, that is with a catalog not known, it is theirs.
BEGIN;
SET LOCAL allow_system_table_mods = on;
INSERT INTO pg_extension VALUES (99999, 'citus', 10, 11, false, '12', NULL, NULL);
SELECT refusal('t') AS qualifies;
CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod "char");
SELECT refusal('t') AS qualifies;
INSERT INTO pg_dist_partition VALUES ('t', 'h');
SELECT refusal('t'), refusal('ut') AS qualifies;
-- whatever else speaks against it
CREATE TRIGGER theirs BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT refusal('t');
ALTER TABLE pg_dist_partition RENAME logicalrelid TO another;
SELECT refusal('ut');
ROLLBACK;
BEGIN;
SET LOCAL allow_system_table_mods = on;
INSERT INTO pg_extension VALUES (99999, 'timescaledb', 10, 11, false, '2.30', NULL, NULL);
CREATE SCHEMA _timescaledb_catalog;
CREATE TABLE _timescaledb_catalog.hypertable (schema_name name, table_name name);
CREATE TABLE _timescaledb_catalog.chunk (schema_name name, table_name name);
INSERT INTO _timescaledb_catalog.hypertable VALUES ('elsewhere', 't'), ('public', 'other'), (NULL, NULL);
SELECT refusal('t') AS qualifies;
INSERT INTO _timescaledb_catalog.hypertable VALUES ('public', 't');
SELECT refusal('t'), refusal('ut') AS qualifies;
INSERT INTO _timescaledb_catalog.chunk VALUES ('public', 'ut');
SELECT refusal('ut');
ALTER TABLE _timescaledb_catalog.chunk DROP schema_name;
SELECT refusal('typed');
-- From 2.29 on chunks are listed by OID, and those with compressed rows elsewhere.
ALTER TABLE _timescaledb_catalog.chunk DROP table_name, ADD relid regclass;
SELECT refusal('typed') AS qualifies;
INSERT INTO _timescaledb_catalog.chunk VALUES (NULL), ('ut');
CREATE TABLE _timescaledb_catalog.compression_settings (relid regclass, compress_relid regclass);
SELECT refusal('ut'), refusal('typed') AS qualifies;
INSERT INTO _timescaledb_catalog.compression_settings VALUES ('ut', NULL), ('ut', 'typed');
SELECT refusal('typed');
ROLLBACK;

-- pgaudit, whose hook the library would hide statements from.
SET pgaudit.log = 'all';
SELECT refusal('t');
RESET pgaudit.log;

DROP TABLE t, referencing, d, x, g, gv, vd, am, ut, typed, parted CASCADE;
DROP ACCESS METHOD another;
DROP FOREIGN DATA WRAPPER w CASCADE;
DROP TYPE row_type;
DROP SEQUENCE s;
DROP FUNCTION nothing, refusal;
DROP ROLE inrush_writer;
