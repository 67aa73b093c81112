/*
 * dml.c
 *	  inrush.distribute_dml(): a statement goes to the shard of a value without being parsed here.
 *
 * The locks are those that the statement itself would take, or stronger, in its order: the table, what says where
 * shards are, then what they say is read.
 */
#include "dml.h"

#include <limits.h>

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/rls.h"

PG_MODULE_MAGIC;

int			dml_lock_timeout;

void		_PG_init(void);

void
_PG_init(void)
{
	DefineCustomIntVariable("inrush_dml.lock_timeout",
							"How long a statement of distribute_dml() waits for a lock on another node.",
							"Nobody sees a deadlock between connections of one session, or between nodes. 0 waits forever.",
							&dml_lock_timeout, 10000, 0, INT_MAX, PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	MarkGUCPrefixReserved("inrush_dml");
	dml_tables_init();
	dml_transaction_init();
}

static void
check_privileges(Oid relid, DmlStatement statement)
{
	static const AclMode modes[] = {ACL_INSERT, ACL_UPDATE, ACL_DELETE};
	AclResult	result = pg_class_aclcheck(relid, GetUserId(), modes[statement]);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, get_relkind_objtype(get_rel_relkind(relid)), get_rel_name(relid));
}

/* Nothing may be written here; on the nodes it could be. */
static void
check_may_write(void)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute distribute_dml() during recovery"),
				 errhint("Call it on the primary.")));
	if (XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute distribute_dml() in a read-only transaction"),
				 errhint("Begin the transaction READ WRITE.")));
	PreventCommandIfParallelMode("distribute_dml()");
}

static void
check_row_security(const DmlTable *table)
{
	if (table->row_security && check_enable_rls(table->relid, InvalidOid, true) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("table \"%s\" has row-level security, which the statement would not be subject to",
						get_rel_name(table->relid)),
				 errhint("Send the statement itself to the table.")));
}

/* The value in the type of the key. */
static Datum
key_value(DmlTable *table, Oid type, bool null, Datum value)
{
	if (null)
		ereport(ERROR,
				(errcode(ERRCODE_NOT_NULL_VIOLATION),
				 errmsg("the distribution value is null"),
				 errhint("Give the value that column \"%s\" of table \"%s\" has in the rows of the statement.",
						 table->key.column, get_rel_name(table->relid))));
	return dml_key_value(&table->key, type, value);
}

/*
 * The shard of the value, locked, so that its placement holds until the transaction ends. *at is the table, as it is
 * known then.
 */
static DmlShard *
citus_shard(DmlTable **at, Oid type, bool null, Datum value)
{
	for (;;)
	{
		DmlTable   *table = *at;
		Datum		converted = (Datum) 0;
		DmlShard   *shard;

		if (table->kind == DML_PARTITIONED)
			return NULL;
		if (table->kind != DML_CITUS_SINGLE)
			converted = key_value(table, type, null, value);
		shard = dml_citus_shard(table, converted);
		if (shard != NULL)
			dml_citus_lock(table, shard);
		/* Conversions run functions, and the lock may have been waited for. */
		if (!table->valid)
		{
			*at = dml_table(table->relid);
			continue;
		}
		if (shard == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_CHECK_VIOLATION),
					 errmsg("no shard of table \"%s\" takes the value", get_rel_name(table->relid)),
					 errhint("The value of column \"%s\" is in none of the shards' ranges.", table->key.column)));
		if (!shard->placed)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("shard %s is on no node", shard->target.name),
					 errhint("Look at pg_dist_placement and pg_dist_node.")));
		return shard;
	}
}

/* Where the shard or the partition is here: as the caller, in the caller's transaction. */
static uint64
run_here(const char *text, DmlStatement statement)
{
	static const int expected[] = {SPI_OK_INSERT, SPI_OK_UPDATE, SPI_OK_DELETE};
	static const int returning[] = {SPI_OK_INSERT_RETURNING, SPI_OK_UPDATE_RETURNING, SPI_OK_DELETE_RETURNING};
	SPIPlanPtr	plan;
	int			result;
	uint64		rows;

	SPI_connect();
	plan = SPI_prepare(text, 0, NULL);
	if (plan == NULL)
		elog(ERROR, "cannot prepare the statement: %s", SPI_result_code_string(SPI_result));
	/* The protocol sees to that for other nodes, with this SQLSTATE. */
	if (list_length(SPI_plan_get_plan_sources(plan)) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the text has more than one statement"),
				 errhint("Call distribute_dml() for each of them.")));
	result = SPI_execute_plan(plan, NULL, NULL, false, 0);
	if (result != expected[statement] && result != returning[statement])
		elog(ERROR, "cannot run the statement: %s", SPI_result_code_string(result));
	rows = SPI_processed;
	SPI_finish();
	return rows;
}

static uint64
distribute(Oid relid, Oid type, bool null, Datum value, const char *text)
{
	DmlStatement statement = dml_statement(text);
	DmlTable   *table;
	const DmlTarget *target;
	DmlGuard	guard;
	bool		guarded = false;
	StringInfoData expanded;

	check_may_write();
	/* Before the lock: nobody waits for those who may do nothing. */
	check_privileges(relid, statement);
	LockRelationOid(relid, RowExclusiveLock);
	table = dml_table(relid);
	check_row_security(table);
	if (table->kind == DML_PARTITIONED)
	{
		Relation	rel = table_open(relid, NoLock);

		target = dml_partition(table, rel, key_value(table, type, null, value));
		table_close(rel, NoLock);
	}
	else
	{
		DmlShard   *shard = citus_shard(&table, type, null, value);

		if (shard == NULL)
			elog(ERROR, "table %u is not what it was", relid);
		target = &shard->target;
		guard.relid = relid;
		guard.shard = shard->id;
		guarded = true;
	}
	initStringInfo(&expanded);
	dml_expand(&expanded, text, target->name);
	if (target->local)
		return run_here(expanded.data, statement);
	return dml_remote(&target->place, expanded.data, target->name, statement, guarded ? &guard : NULL);
}

PG_FUNCTION_INFO_V1(inrush_distribute_dml);

/* inrush.distribute_dml(table regclass, distribution_value anyelement, dml text) RETURNS bigint: rows affected. */
Datum
inrush_distribute_dml(PG_FUNCTION_ARGS)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 1);

	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s is null", PG_ARGISNULL(0) ? "the table" : "the text of the statement"),
				 errhint("Only the distribution value of a table with a single shard may be null.")));
	if (!OidIsValid(type))
		elog(ERROR, "the type of the distribution value is not known");
	PG_RETURN_INT64((int64) distribute(PG_GETARG_OID(0), type, PG_ARGISNULL(1), PG_GETARG_DATUM(1),
									   text_to_cstring(PG_GETARG_TEXT_PP(2))));
}

PG_FUNCTION_INFO_V1(inrush_dml_guard);

/*
 * inrush.dml_guard(table regclass, shard bigint): what another node's session has sent to this node's shard stays here,
 * also while it is prepared. For those who may write to the table; others could hold up moves of its shards.
 */
Datum
inrush_dml_guard(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	int64		id = PG_GETARG_INT64(1);

	check_may_write();
	if (pg_class_aclmask(relid, GetUserId(), ACL_INSERT | ACL_UPDATE | ACL_DELETE, ACLMASK_ANY) == 0)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(relid));
	LockRelationOid(relid, RowExclusiveLock);
	for (;;)
	{
		DmlTable   *table = dml_table(relid);
		DmlShard   *shard = NULL;

		for (int i = 0; table->kind != DML_PARTITIONED && i < table->nshards && shard == NULL; i++)
			if (table->shards[i].id == id)
				shard = &table->shards[i];
		if (shard != NULL)
			dml_citus_lock(table, shard);
		if (!table->valid)
			continue;
		if (shard == NULL || !shard->target.local)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("shard " INT64_FORMAT " of table \"%s\" is not on this node any more", id,
							get_rel_name(relid)),
					 errhint("Send the transaction again.")));
		PG_RETURN_VOID();
	}
}
