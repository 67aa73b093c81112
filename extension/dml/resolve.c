/*
 * resolve.c
 *	  inrush.resolve_dml(): ends prepared transactions that were left on nodes by sessions of this database that died.
 *
 * In this order, for each of ours on a node: if the transaction it belongs to still runs here it is left alone; if there
 * is a record it is committed; else it is rolled back. A record is committed with its transaction, so one that is
 * looked for after the transaction has ended is there or will never be.
 */
#include "dml.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_user_mapping.h"
#include "foreign/foreign.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/xid8.h"

static const char prepared_query[] =
"SELECT gid, owner OPERATOR(pg_catalog.=) CURRENT_USER OR pg_catalog.current_setting('is_superuser')"
" OPERATOR(pg_catalog.=) 'on' FROM pg_catalog.pg_prepared_xacts"
" WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database() ORDER BY prepared";

typedef struct Resolve
{
	ReturnSetInfo *result;
	MemoryContext context;		/* of what is remembered over visits */
	List	   *records;		/* DmlRecord, from before the first visit */
	List	   *left;			/* gids that are still on some node */
	List	   *visited;		/* DmlPlace */
} Resolve;

static void
say(Resolve *resolve, const char *node, const char *gid, const char *outcome)
{
	Datum		values[3];
	bool		nulls[3] = {0};

	values[0] = CStringGetTextDatum(node);
	nulls[1] = gid == NULL;
	values[1] = gid != NULL ? CStringGetTextDatum(gid) : (Datum) 0;
	values[2] = CStringGetTextDatum(outcome);
	tuplestore_putvalues(resolve->result->setResult, resolve->result->setDesc, values, nulls);
}

/* Whether the text is the identifier of a prepared transaction of ours; *mine and *xid if it is of this database. */
static bool
is_ours(const char *gid, bool *mine, FullTransactionId *xid)
{
	unsigned long long system,
				number,
				started;
	unsigned int database;
	int			n,
				end = 0;

	if (strlen(gid) >= DML_GID_SIZE ||
		strspn(gid, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(gid) ||
		sscanf(gid, DML_GID_PREFIX "%16llx_%u_%llu_%llx_%d%n", &system, &database, &number, &started, &n, &end) != 5 ||
		gid[end] != '\0')
		return false;
	*mine = system == GetSystemIdentifier() && database == MyDatabaseId;
	*xid = FullTransactionIdFromU64(number);
	return true;
}

typedef enum Decision
{
	LEAVE_RUNNING,
	LEAVE_UNKNOWN,
	DO_COMMIT,
	DO_ROLLBACK
} Decision;

static Decision
decide(const char *gid, FullTransactionId xid)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		status;
	bool		committed = false;

	/* A transaction of another time line, say of a server that was restored to a point in the past. */
	if (!FullTransactionIdPrecedes(xid, ReadNextFullTransactionId()))
		return LEAVE_UNKNOWN;
	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = FullTransactionIdGetDatum(xid);
	fcinfo->args[0].isnull = false;
	status = pg_xact_status(fcinfo);
	if (!fcinfo->isnull)
	{
		char	   *word = TextDatumGetCString(status);

		if (strcmp(word, "in progress") == 0)
			return LEAVE_RUNNING;
		committed = strcmp(word, "committed") == 0;
	}
	/* In this order: a record that was not there when the transaction had ended will never be. */
	if (dml_recorded(gid))
		return DO_COMMIT;
	/* What can this be? Somebody has deleted records. Let somebody decide. */
	return committed ? LEAVE_UNKNOWN : DO_ROLLBACK;
}

static void
keep_left(Resolve *resolve, const char *gid)
{
	MemoryContext old = MemoryContextSwitchTo(resolve->context);

	resolve->left = lappend(resolve->left, pstrdup(gid));
	MemoryContextSwitchTo(old);
}

static void
end_one(Resolve *resolve, DmlNode *node, const char *gid, FullTransactionId xid, bool mine)
{
	char		text[DML_GID_SIZE + 32];
	DmlFailure	failure = {0};
	Decision	decision = mine ? decide(gid, xid) : (dml_recorded(gid) ? DO_COMMIT : LEAVE_RUNNING);

	if (decision == LEAVE_RUNNING || decision == LEAVE_UNKNOWN)
	{
		keep_left(resolve, gid);
		if (mine)
			say(resolve, node->label, gid, decision == LEAVE_RUNNING ? "in progress" : "unknown: no record");
		return;
	}
	dml_finish_text(text, sizeof(text), gid, decision == DO_COMMIT);
	if (dml_quietly(node, text, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), 30000), &failure))
		say(resolve, node->label, gid, decision == DO_COMMIT ? "committed" : "rolled back");
	/* Otherwise its session has been faster. */
	else if (failure.sqlstate != ERRCODE_UNDEFINED_OBJECT)
	{
		keep_left(resolve, gid);
		say(resolve, node->label, gid, psprintf("failed: %s", failure.message));
	}
}

static void
look_at(Resolve *resolve, DmlNode *node, const DmlPlace *place)
{
	const char *query = prepared_query;
	PGresult   *result;
	List	   *ours = NIL;
	ListCell   *cell;
	MemoryContext old;
	DmlPlace   *visited;

	dml_connect(node, place);
	result = dml_pipeline(node, &query, 1);
	if (result == NULL || PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		DmlFailure	failure = {0};

		dml_failure(node, result, &failure);
		PQclear(result);
		dml_report(node, &failure, NULL);
	}
	for (int row = 0; row < PQntuples(result); row++)
	{
		const char *gid = PQgetvalue(result, row, 0);
		FullTransactionId xid;
		bool		mine;

		if (!is_ours(gid, &mine, &xid))
			continue;
		if (PQgetvalue(result, row, 1)[0] == 't')
			ours = lappend(ours, pstrdup(gid));
		else
			keep_left(resolve, gid);
	}
	PQclear(result);
	foreach(cell, ours)
	{
		FullTransactionId xid;
		bool		mine;

		(void) is_ours(lfirst(cell), &mine, &xid);
		end_one(resolve, node, lfirst(cell), xid, mine);
	}
	old = MemoryContextSwitchTo(resolve->context);
	visited = palloc(sizeof(DmlPlace));
	*visited = *place;
	resolve->visited = lappend(resolve->visited, visited);
	MemoryContextSwitchTo(old);
}

/* A node that does not answer is no reason not to look at the next. */
static void
visit(Resolve *resolve, const DmlPlace *place, Oid user)
{
	DmlNode    *node = palloc0(sizeof(DmlNode));
	MemoryContext old = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	node->server = place->server;
	node->nodeid = place->nodeid;
	node->user = user;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(old);
	PG_TRY();
	{
		look_at(resolve, node, place);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(old);
		CurrentResourceOwner = owner;
		dml_disconnect(node);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(old);
		error = CopyErrorData();
		FlushErrorState();
		dml_disconnect(node);
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(old);
		CurrentResourceOwner = owner;
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		say(resolve, node->label, NULL, psprintf("failed: %s", error->message));
	}
	PG_END_TRY();
	free(node->conninfo);
	pfree(node);
}

/* Of postgres_fdw, and there. */
static bool
is_server(Oid serverid)
{
	ForeignServer *server = GetForeignServerExtended(serverid, FSV_MISSING_OK);

	return server != NULL && strcmp(GetForeignDataWrapper(server->fdwid)->fdwname, "postgres_fdw") == 0;
}

/* Servers that have leaves, and those of records. */
static List *
servers(const Resolve *resolve)
{
	List	   *found = NIL;
	ListCell   *cell;
	Relation	rel = table_open(ForeignTableRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_foreign_table table = (Form_pg_foreign_table) GETSTRUCT(tuple);

		if (get_rel_relispartition(table->ftrelid) && is_server(table->ftserver))
			found = list_append_unique_oid(found, table->ftserver);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	foreach(cell, resolve->records)
	{
		Oid			server = ((DmlRecord *) lfirst(cell))->server;

		if (OidIsValid(server) && is_server(server))
			found = list_append_unique_oid(found, server);
	}
	return found;
}

/* Who has a user mapping for the server; InvalidOid for PUBLIC. */
static List *
mapped_users(Oid server)
{
	List	   *users = NIL;
	Relation	rel = table_open(UserMappingRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_user_mapping mapping = (Form_pg_user_mapping) GETSTRUCT(tuple);

		if (mapping->umserver == server)
			users = lappend_oid(users, mapping->umuser);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return users;
}

static bool
was_visited(const Resolve *resolve, const DmlRecord *record)
{
	ListCell   *cell;

	foreach(cell, resolve->visited)
	{
		DmlPlace   *place = lfirst(cell);

		if (place->server == record->server && (OidIsValid(place->server) || place->nodeid == record->nodeid))
			return true;
	}
	return false;
}

static bool
is_left(const Resolve *resolve, const char *gid)
{
	ListCell   *cell;

	foreach(cell, resolve->left)
		if (strcmp(lfirst(cell), gid) == 0)
			return true;
	return false;
}

PG_FUNCTION_INFO_V1(inrush_resolve_dml);

/*
 * inrush.resolve_dml(): one row for each prepared transaction of ours that was found, and one for each node that could
 * not be looked at. Connects to nodes of Citus as the caller, to foreign servers with each user mapping.
 */
Datum
inrush_resolve_dml(PG_FUNCTION_ARGS)
{
	Resolve		resolve = {0};
	ListCell   *cell;

	PreventCommandIfReadOnly("resolve_dml()");
	PreventCommandDuringRecovery("resolve_dml()");
	InitMaterializedSRF(fcinfo, 0);
	resolve.result = (ReturnSetInfo *) fcinfo->resultinfo;
	resolve.context = CurrentMemoryContext;
	/* Before the first visit: what these belong to was prepared before, so if it is not there it has been committed. */
	resolve.records = dml_records();
	if (dml_citus_is_here())
		foreach(cell, dml_citus_nodes())
			visit(&resolve, lfirst(cell), GetUserId());
	foreach(cell, servers(&resolve))
	{
		DmlPlace	place = {0};
		ListCell   *user;

		place.server = lfirst_oid(cell);
		foreach(user, mapped_users(place.server))
			visit(&resolve, &place, lfirst_oid(user));
	}
	foreach(cell, resolve.records)
	{
		DmlRecord  *record = lfirst(cell);

		if (was_visited(&resolve, record) && !is_left(&resolve, record->gid))
			dml_forget_record(record->gid);
	}
	return (Datum) 0;
}
