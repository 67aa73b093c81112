-- CREATE EXTENSION and what it makes.
-- 18 says in which line of the script an error was.
\set VERBOSITY terse
SELECT extname, extversion, nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'inrush';
SELECT p.oid::regprocedure, provolatile, proisstrict, proparallel, prosecdef FROM pg_proc p WHERE pronamespace = 'inrush'::regnamespace ORDER BY 1;
SELECT has_schema_privilege('public', 'inrush', 'USAGE') AS usage, has_schema_privilege('public', 'inrush', 'CREATE') AS "create";
ALTER EXTENSION inrush SET SCHEMA public;
-- Somebody else's schema is not taken; that would let him put functions beside ours.
CREATE DATABASE inrush_extension;
\c inrush_extension
CREATE ROLE inrush_owner;
CREATE SCHEMA inrush AUTHORIZATION inrush_owner;
CREATE EXTENSION inrush;
SELECT count(*) FROM pg_extension WHERE extname = 'inrush';
DROP SCHEMA inrush;
-- One's own schema is, and another than "inrush" is not.
CREATE SCHEMA other;
CREATE EXTENSION inrush SCHEMA other;
CREATE SCHEMA inrush;
CREATE EXTENSION inrush;
DROP EXTENSION inrush;
DROP SCHEMA inrush;
-- An operator and a function in front of pg_catalog do not change what its script does.
CREATE SCHEMA trap;
CREATE FUNCTION trap.never(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR trap.<> (FUNCTION = trap.never, LEFTARG = oid, RIGHTARG = oid);
CREATE SCHEMA inrush AUTHORIZATION inrush_owner;
SET search_path = trap, pg_catalog;
CREATE EXTENSION inrush;
RESET search_path;
DROP SCHEMA inrush;
-- Not for those who are no superuser, though they own the database.
ALTER DATABASE inrush_extension OWNER TO inrush_owner;
SET ROLE inrush_owner;
CREATE EXTENSION inrush;
RESET ROLE;
CREATE EXTENSION inrush;
-- Not \dx+: newer ones list types of tables too.
SELECT pg_describe_object(classid, objid, 0) AS object FROM pg_depend
 WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e' AND classid IN ('pg_class'::regclass, 'pg_proc'::regclass)
   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'inrush') ORDER BY 1;
\c regression
DROP DATABASE inrush_extension;
DROP ROLE inrush_owner;
