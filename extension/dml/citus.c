/*
 * citus.c
 *	  Tables of Citus: shards, where they are placed, and the locks under which that may be read.
 *
 * Citus changes placements under an exclusive advisory lock on the shard's metadata, on the coordinator and on every
 * node that has metadata; whoever writes to a shard holds that lock shared until the transaction ends. Its catalogs are
 * read by queries with bootstrap rights: their text is fixed, every name in it has its schema, and users see nothing but
 * where a shard is.
 */
#include "dml.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

/* The last field of Citus' advisory locks on the metadata of shards. */
#define LOCK_CLASS_SHARD 4
#define LOCK_CLASS_COLOCATED_SHARDS 8

static const char table_query[] =
"SELECT p.partmethod::pg_catalog.text, p.repmodel::pg_catalog.text, p.colocationid, g.groupid,"
" CASE WHEN p.partkey IS NOT NULL THEN pg_catalog.column_to_column_name(p.logicalrelid, p.partkey) END"
" FROM pg_catalog.pg_dist_partition p CROSS JOIN pg_catalog.pg_dist_local_group g"
" WHERE p.logicalrelid OPERATOR(pg_catalog.=) $1";

static const char shards_query[] =
"SELECT s.shardid, s.shardminvalue, s.shardmaxvalue, pg_catalog.shard_name(s.logicalrelid, s.shardid),"
" p.groupid, n.nodeid, n.nodename::pg_catalog.text, n.nodeport"
" FROM pg_catalog.pg_dist_shard s"
" LEFT JOIN pg_catalog.pg_dist_placement p ON p.shardid OPERATOR(pg_catalog.=) s.shardid"
"  AND p.shardstate OPERATOR(pg_catalog.=) 1"
" LEFT JOIN pg_catalog.pg_dist_node n ON n.groupid OPERATOR(pg_catalog.=) p.groupid"
"  AND n.noderole OPERATOR(pg_catalog.=) 'primary'"
"  AND n.nodecluster OPERATOR(pg_catalog.=) pg_catalog.current_setting('citus.cluster_name')"
" WHERE s.logicalrelid OPERATOR(pg_catalog.=) $1 ORDER BY s.shardid";

static const char nodes_query[] =
"SELECT n.nodeid, n.nodename::pg_catalog.text, n.nodeport"
" FROM pg_catalog.pg_dist_node n CROSS JOIN pg_catalog.pg_dist_local_group g"
" WHERE n.noderole OPERATOR(pg_catalog.=) 'primary' AND n.groupid OPERATOR(pg_catalog.<>) g.groupid"
"  AND n.nodecluster OPERATOR(pg_catalog.=) pg_catalog.current_setting('citus.cluster_name') ORDER BY n.nodeid";

/* A row for the node goes before one for all nodes. */
static const char authinfo_query[] =
"SELECT a.authinfo FROM pg_catalog.pg_dist_authinfo a"
" WHERE a.rolename OPERATOR(pg_catalog.=) $1 AND (a.nodeid OPERATOR(pg_catalog.=) $2 OR a.nodeid OPERATOR(pg_catalog.=) 0)"
" ORDER BY a.nodeid DESC LIMIT 1";

bool
dml_citus_is_here(void)
{
	return OidIsValid(get_extension_oid("citus", true));
}

/*
 * Runs one of these between SPI_connect() and SPI_finish(), with what is committed now, whatever the transaction's
 * isolation level. A lock that was waited for is worth nothing with an older snapshot.
 */
static SPITupleTable *
read_metadata(const char *query, int nargs, Oid *types, Datum *values)
{
	Oid			user;
	int			security;
	SPIPlanPtr	plan;
	int			result;

	GetUserIdAndSecContext(&user, &security);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, security | SECURITY_LOCAL_USERID_CHANGE);
	plan = SPI_prepare(query, nargs, types);
	if (plan == NULL)
		elog(ERROR, "cannot read the metadata of Citus: %s", SPI_result_code_string(SPI_result));
	result = SPI_execute_snapshot(plan, values, NULL, GetLatestSnapshot(), InvalidSnapshot, true, false, 0);
	if (result != SPI_OK_SELECT)
		elog(ERROR, "cannot read the metadata of Citus: %s", SPI_result_code_string(result));
	/* An error gives the rights back as well: the end of a (sub)transaction does. */
	SetUserIdAndSecContext(user, security);
	return SPI_tuptable;
}

static Datum
field(SPITupleTable *rows, int row, int column, bool *null)
{
	return SPI_getbinval(rows->vals[row], rows->tupdesc, column, null);
}

static int64
integer(SPITupleTable *rows, int row, int column, int64 if_null)
{
	bool		null;
	Datum		value = field(rows, row, column, &null);

	if (null)
		return if_null;
	return SPI_gettypeid(rows->tupdesc, column) == INT8OID ? DatumGetInt64(value) : DatumGetInt32(value);
}

static void
watch_catalogs(void)
{
	static const char *const names[] = {"pg_dist_node", "pg_dist_partition", "pg_dist_shard", "pg_dist_placement",
	"pg_dist_local_group", "pg_dist_authinfo"};

	for (int i = 0; i < lengthof(names); i++)
		dml_watch_catalog(get_relname_relid(names[i], PG_CATALOG_NAMESPACE));
}

/* Which kind of table it is; an error for those that a statement to one shard would harm. */
static void
read_kind(DmlTable *table, Relation rel, char method, char model, bool on_coordinator)
{
	const char *name = RelationGetRelationName(rel);

	switch (method)
	{
		case 'h':
			table->kind = DML_CITUS_HASH;
			break;
		case 'r':
			table->kind = DML_CITUS_RANGE;
			break;
		case 'n':
			if (model == 't')
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("table \"%s\" is a reference table", name),
						 errdetail("Every node has a copy of it; a statement to one of them would make them differ."),
						 errhint("Send the statement itself to the table.")));
			if (table->colocation == 0)
				ereport(ERROR,
						(errcode(ERRCODE_WRONG_OBJECT_TYPE),
						 errmsg("table \"%s\" is not distributed", name),
						 errdetail("It is a local table that Citus knows."),
						 errhint("Send the statement itself to the table.")));
			table->kind = DML_CITUS_SINGLE;
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
					 errmsg("table \"%s\" is not distributed by hash or range", name),
					 errhint("Send the statement itself to the table.")));
	}
	/* Enums are hashed by OID, and each node has its own. */
	if (table->kind == DML_CITUS_HASH && table->key.is_enum && !on_coordinator)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("column \"%s\" is of an enum type, which only the coordinator hashes as Citus does",
						table->key.column),
				 errhint("Call distribute_dml() on the coordinator.")));
}

static int
compare_hash(const void *a, const void *b)
{
	int32		x = ((const DmlShard *) a)->low;
	int32		y = ((const DmlShard *) b)->low;

	return (x > y) - (x < y);
}

static int
compare_range(const void *a, const void *b, void *argument)
{
	DmlTable   *table = argument;

	return DatumGetInt32(FunctionCall2Coll(&table->compare, table->key.collation, ((const DmlShard *) a)->least,
										   ((const DmlShard *) b)->least));
}

/* One bound of a shard, as text in the catalog. */
static void
read_bound(DmlTable *table, SPITupleTable *rows, int row, int column, int32 *hash, Datum *value)
{
	char	   *text = SPI_getvalue(rows->vals[row], rows->tupdesc, column);

	if (text == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a shard of table \"%s\" has no bounds", get_rel_name(table->relid))));
	if (table->kind == DML_CITUS_HASH)
		*hash = pg_strtoint32(text);
	else
	{
		Oid			input,
					ioparam;
		int16		length;
		bool		by_value;
		MemoryContext old;

		getTypeInputInfo(table->key.type, &input, &ioparam);
		get_typlenbyval(table->key.type, &length, &by_value);
		old = MemoryContextSwitchTo(table->context);
		*value = datumCopy(OidInputFunctionCall(input, text, ioparam, table->key.typmod), by_value, length);
		MemoryContextSwitchTo(old);
	}
}

static void
read_shards(DmlTable *table, Relation rel, int64 here)
{
	Oid			types[] = {REGCLASSOID};
	Datum		values[] = {ObjectIdGetDatum(table->relid)};
	SPITupleTable *rows = read_metadata(shards_query, 1, types, values);
	char	   *schema = get_namespace_name(RelationGetNamespace(rel));
	const char *prefix = quote_identifier(schema);
	DmlShard   *shard = NULL;

	table->shards = MemoryContextAllocZero(table->context, Max(rows->numvals, 1) * sizeof(DmlShard));
	for (uint64 row = 0; row < rows->numvals; row++)
	{
		int64		id = integer(rows, row, 1, 0);
		int64		group = integer(rows, row, 5, -1);
		char	   *name = SPI_getvalue(rows->vals[row], rows->tupdesc, 4);
		char	   *host = SPI_getvalue(rows->vals[row], rows->tupdesc, 7);

		if (shard != NULL && shard->id == id)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("table \"%s\" has shards on several nodes each", RelationGetRelationName(rel)),
					 errdetail("A statement to one of them would make them differ."),
					 errhint("Send the statement itself to the table.")));
		shard = &table->shards[table->nshards++];
		shard->id = id;
		if (table->kind != DML_CITUS_SINGLE)
		{
			read_bound(table, rows, row, 2, &shard->low, &shard->least);
			read_bound(table, rows, row, 3, &shard->high, &shard->greatest);
		}
		/* From 13.1 on Citus leaves the schema public out; the node may have another search_path. */
		if (strcmp(schema, "public") == 0 && strncmp(name, "public.", 7) != 0)
			name = psprintf("%s.%s", prefix, name);
		shard->target.name = MemoryContextStrdup(table->context, name);
		shard->target.local = group == here;
		shard->placed = shard->target.local || host != NULL;
		if (host != NULL)
		{
			shard->target.place.nodeid = (int32) integer(rows, row, 6, 0);
			shard->target.place.host = MemoryContextStrdup(table->context, host);
			shard->target.place.port = (int32) integer(rows, row, 8, 0);
		}
	}
	if (table->kind == DML_CITUS_HASH)
		qsort(table->shards, table->nshards, sizeof(DmlShard), compare_hash);
	else if (table->kind == DML_CITUS_RANGE)
		qsort_arg(table->shards, table->nshards, sizeof(DmlShard), compare_range, table);
}

/* Reads what Citus knows of the table; false if it does not know it. */
bool
dml_citus_load(DmlTable *table, Relation rel)
{
	Oid			types[] = {REGCLASSOID};
	Datum		values[] = {ObjectIdGetDatum(table->relid)};
	SPITupleTable *rows;
	bool		found;

	watch_catalogs();
	SPI_connect();
	rows = read_metadata(table_query, 1, types, values);
	found = rows->numvals > 0;
	if (found)
	{
		char	   *method = SPI_getvalue(rows->vals[0], rows->tupdesc, 1);
		char	   *model = SPI_getvalue(rows->vals[0], rows->tupdesc, 2);
		char	   *column = SPI_getvalue(rows->vals[0], rows->tupdesc, 5);
		int64		here = integer(rows, 0, 4, 0);

		table->colocation = (uint32) integer(rows, 0, 3, 0);
		if (column != NULL)
		{
			TypeCacheEntry *type;

			dml_key_init(&table->key, rel, get_attnum(table->relid, column));
			type = lookup_type_cache(table->key.type, TYPECACHE_HASH_PROC | TYPECACHE_CMP_PROC);
			if (OidIsValid(type->hash_proc))
				fmgr_info_cxt(type->hash_proc, &table->hash, table->context);
			if (OidIsValid(type->cmp_proc))
				fmgr_info_cxt(type->cmp_proc, &table->compare, table->context);
		}
		read_kind(table, rel, method[0], model[0], here == 0);
		if ((table->kind == DML_CITUS_HASH && !OidIsValid(table->hash.fn_oid)) ||
			(table->kind == DML_CITUS_RANGE && !OidIsValid(table->compare.fn_oid)))
			elog(ERROR, "the type of column \"%s\" cannot be a key", column);
		read_shards(table, rel, here);
	}
	SPI_finish();
	return found;
}

/* The shard of a value in the key's type; NULL if there is none. Ranges are looked up: after a split they differ. */
DmlShard *
dml_citus_shard(DmlTable *table, Datum value)
{
	int			low = 0,
				high = table->nshards;
	int32		hash = 0;

	if (table->kind == DML_CITUS_SINGLE)
		return table->nshards == 1 ? table->shards : NULL;
	if (table->kind == DML_CITUS_HASH)
		hash = DatumGetInt32(FunctionCall1Coll(&table->hash, table->key.collation, value));
	while (low < high)
	{
		int			middle = low + (high - low) / 2;
		DmlShard   *shard = &table->shards[middle];
		bool		below,
					above;

		if (table->kind == DML_CITUS_HASH)
		{
			below = hash < shard->low;
			above = hash > shard->high;
		}
		else
		{
			below = DatumGetInt32(FunctionCall2Coll(&table->compare, table->key.collation, value, shard->least)) < 0;
			above = !below &&
				DatumGetInt32(FunctionCall2Coll(&table->compare, table->key.collation, value, shard->greatest)) > 0;
		}
		if (!below && !above)
			return shard;
		if (below)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

/*
 * Locks the shard's metadata until the transaction ends. If it had to be acquired, what has changed before is known
 * when this returns: table->valid says whether the shard is still to be believed.
 */
void
dml_citus_lock(const DmlTable *table, const DmlShard *shard)
{
	LOCKTAG		tag;

	if (table->kind == DML_CITUS_RANGE)
		SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (shard->id >> 32), (uint32) shard->id, LOCK_CLASS_SHARD);
	else
		SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (shard - table->shards), table->colocation,
							 LOCK_CLASS_COLOCATED_SHARDS);
	if (LockAcquire(&tag, ShareLock, false, false) == LOCKACQUIRE_OK)
		AcceptInvalidationMessages();
}

/*
 * Whether Citus has a distributed transaction of its own here, with writes that will be committed when we do not see it.
 */
bool
dml_citus_takes_part(void)
{
	Oid			function;
	HeapTupleHeader row;
	Datum		number;
	bool		null;

	function = LookupFuncName(list_make2(makeString("pg_catalog"), makeString("get_current_transaction_id")), 0, NULL,
							  true);
	if (!OidIsValid(function))
		return false;
	row = DatumGetHeapTupleHeader(OidFunctionCall0(function));
	number = GetAttributeByName(row, "transaction_number", &null);
	return !null && DatumGetInt64(number) != 0;
}

/* The other nodes, as DmlPlace. */
List *
dml_citus_nodes(void)
{
	MemoryContext caller = CurrentMemoryContext;
	List	   *nodes = NIL;

	SPI_connect();
	{
		SPITupleTable *rows = read_metadata(nodes_query, 0, NULL, NULL);

		for (uint64 row = 0; row < rows->numvals; row++)
		{
			MemoryContext old = MemoryContextSwitchTo(caller);
			DmlPlace   *place = palloc0(sizeof(DmlPlace));

			place->nodeid = (int32) integer(rows, row, 1, 0);
			place->host = SPI_getvalue(rows->vals[row], rows->tupdesc, 2);
			place->port = (int32) integer(rows, row, 3, 0);
			nodes = lappend(nodes, place);
			MemoryContextSwitchTo(old);
		}
	}
	SPI_finish();
	return nodes;
}

/* What Citus adds to connections of this role to this node; NULL for nothing. It may have a password in it. */
char *
dml_citus_authinfo(const char *role, int32 nodeid)
{
	MemoryContext caller = CurrentMemoryContext;
	Oid			types[] = {NAMEOID, INT4OID};
	NameData	name;
	Datum		values[2];
	char	   *authinfo = NULL;

	if (!OidIsValid(get_relname_relid("pg_dist_authinfo", PG_CATALOG_NAMESPACE)))
		return NULL;
	namestrcpy(&name, role);
	values[0] = NameGetDatum(&name);
	values[1] = Int32GetDatum(nodeid);
	SPI_connect();
	{
		SPITupleTable *rows = read_metadata(authinfo_query, 2, types, values);

		if (rows->numvals > 0)
		{
			MemoryContext old = MemoryContextSwitchTo(caller);

			authinfo = SPI_getvalue(rows->vals[0], rows->tupdesc, 1);
			MemoryContextSwitchTo(old);
		}
	}
	SPI_finish();
	return authinfo;
}
