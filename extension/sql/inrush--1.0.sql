-- Objects of the extension inrush. Its library takes COPY ... FROM STDIN (FORMAT inrush) once it is loaded into a
-- session, which any call of version() or plan() does. distribute_dml() and what belongs to it is in another library.
\echo Use "CREATE EXTENSION inrush" to load this file. \quit

-- A schema that is here already may be a trap of its owner's.
DO $$
BEGIN
  IF (SELECT n.nspowner OPERATOR(pg_catalog.<>) e.extowner
        FROM pg_catalog.pg_namespace n, pg_catalog.pg_extension e
       WHERE n.nspname OPERATOR(pg_catalog.=) 'inrush' AND e.extname OPERATOR(pg_catalog.=) 'inrush') THEN
    RAISE EXCEPTION USING errcode = 'insufficient_privilege',
      message = 'schema "inrush" belongs to someone else',
      hint = 'Drop the schema; CREATE EXTENSION makes its own.';
  END IF;
END
$$;

REVOKE CREATE ON SCHEMA inrush FROM PUBLIC;
GRANT USAGE ON SCHEMA inrush TO PUBLIC;

CREATE FUNCTION inrush.version() RETURNS integer
  AS 'MODULE_PATHNAME', 'inrush_version' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION inrush.version() IS 'version of FORMAT inrush';

CREATE FUNCTION inrush.plan(relation regclass, columns text[] DEFAULT NULL) RETURNS json
  AS 'MODULE_PATHNAME', 'inrush_plan' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION inrush.plan(regclass, text[]) IS
  'whether a table takes FORMAT inrush, and how its rows are laid out';

CREATE FUNCTION inrush.distribute_dml("table" regclass, distribution_value anyelement, dml text) RETURNS bigint
  AS '$libdir/inrush_dml', 'inrush_distribute_dml' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION inrush.distribute_dml(regclass, anyelement, text) IS
  'sends a statement to the shard or partition that the value belongs to';

-- For literals, which have no type that anyelement could be: they are read as the type of the key.
CREATE FUNCTION inrush.distribute_dml("table" regclass, distribution_value text, dml text) RETURNS bigint
  AS '$libdir/inrush_dml', 'inrush_distribute_dml' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION inrush.distribute_dml(regclass, text, text) IS
  'sends a statement to the shard or partition that the value belongs to';

-- distribute_dml() calls it on other nodes of Citus. It checks privileges on the table.
CREATE FUNCTION inrush.dml_guard("table" regclass, shard bigint) RETURNS void
  AS '$libdir/inrush_dml', 'inrush_dml_guard' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION inrush.dml_guard(regclass, bigint) IS
  'keeps a shard of this node where it is until the transaction ends';

-- A row for each transaction that distribute_dml() has prepared on a node and that is to be committed there. Only its
-- functions read and write here. Not in dumps: it is of this server, and a dump by its database's owner would fail.
CREATE TABLE inrush.dml_transactions (
  gid text COLLATE "C" PRIMARY KEY,
  node text NOT NULL,
  server oid NOT NULL,
  nodeid integer NOT NULL,
  prepared timestamptz NOT NULL
);
COMMENT ON TABLE inrush.dml_transactions IS 'transactions that nodes have prepared and are to commit';

CREATE FUNCTION inrush.resolve_dml(OUT node text, OUT gid text, OUT outcome text) RETURNS SETOF record
  AS '$libdir/inrush_dml', 'inrush_resolve_dml' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION inrush.resolve_dml() IS 'ends transactions that died between preparing and committing';
REVOKE ALL ON FUNCTION inrush.resolve_dml() FROM PUBLIC;
