-- Objects of the extension inrush. Its library takes COPY ... FROM STDIN (FORMAT inrush) once it is loaded into a
-- session, which any call of these functions does.
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
