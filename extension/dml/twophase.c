/*
 * twophase.c
 *	  Commits on several nodes: each prepares, the transaction here commits together with a record of every prepared
 *	  transaction, and then each node commits what it has prepared.
 *
 * A record that is there says that a prepared transaction is to be committed; it is deleted only after that was done.
 * None, when the transaction here has ended, says that it is to be rolled back. resolve.c acts on that.
 */
#include "dml.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

/* What the nodes together are given to commit, in milliseconds; then resolve_dml() is left to do it. */
#define PATIENCE 30000

/* Columns of inrush.dml_transactions. */
enum
{
	COLUMN_GID = 1,
	COLUMN_NODE,
	COLUMN_SERVER,
	COLUMN_NODEID,
	COLUMN_PREPARED,
	COLUMNS = COLUMN_PREPARED
};

/* Of transactions that all nodes have committed: their records go with the next one. In TopMemoryContext. */
static List *finished;

/* How many of them this transaction has deleted. */
static int	deleting;

/* Whether the end of the session sees to the rest. */
static bool registered;

/*
 * The table of records. It is written as catalogs are, so that nobody needs privileges on it, and nothing of anybody's
 * is run; it has to be the extension's.
 */
static Oid
find_records(void)
{
	Oid			schema = get_namespace_oid("inrush", true);
	Oid			relid = OidIsValid(schema) ? get_relname_relid("dml_transactions", schema) : InvalidOid;
	Oid			extension = get_extension_oid("inrush", true);

	if (!OidIsValid(relid) || !OidIsValid(extension) ||
		getExtensionOfObject(RelationRelationId, relid) != extension)
		return InvalidOid;
	return relid;
}

static Relation
open_records(void)
{
	Oid			relid = find_records();

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("the extension inrush of this database has no table \"dml_transactions\""),
				 errhint("DROP EXTENSION inrush, and create it again.")));
	return table_open(relid, RowExclusiveLock);
}

static SysScanDesc
begin_scan(Relation rel, const char *gid)
{
	ScanKeyData key;

	/* The primary key is known once the indexes have been listed. */
	list_free(RelationGetIndexList(rel));
	ScanKeyInit(&key, COLUMN_GID, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(gid));
	return systable_beginscan(rel, rel->rd_pkindex, OidIsValid(rel->rd_pkindex), NULL, 1, &key);
}

/* Whether there is a record now, whatever the transaction's snapshot. */
bool
dml_recorded(const char *gid)
{
	Relation	rel = open_records();
	SysScanDesc scan = begin_scan(rel, gid);
	bool		found = HeapTupleIsValid(systable_getnext(scan));

	systable_endscan(scan);
	table_close(rel, NoLock);
	return found;
}

/* Deletes a record, unless somebody else is about to. */
void
dml_forget_record(const char *gid)
{
	Relation	rel = open_records();
	SysScanDesc scan = begin_scan(rel, gid);
	HeapTuple	tuple = systable_getnext(scan);

	if (HeapTupleIsValid(tuple))
	{
		TM_FailureData failure;

		(void) table_tuple_delete(rel, &tuple->t_self, GetCurrentCommandId(true), InvalidSnapshot, InvalidSnapshot,
								  false, &failure, false);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
}

/* All records, as DmlRecord. */
List *
dml_records(void)
{
	Relation	rel = open_records();
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	List	   *records = NIL;
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		DmlRecord  *record = palloc(sizeof(DmlRecord));
		bool		null;

		record->gid = TextDatumGetCString(heap_getattr(tuple, COLUMN_GID, RelationGetDescr(rel), &null));
		record->server = DatumGetObjectId(heap_getattr(tuple, COLUMN_SERVER, RelationGetDescr(rel), &null));
		record->nodeid = DatumGetInt32(heap_getattr(tuple, COLUMN_NODEID, RelationGetDescr(rel), &null));
		records = lappend(records, record);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
	return records;
}

/*
 * The session ends: nobody else would know that these records are done with before resolve_dml() asks the nodes. In a
 * transaction of its own, as temporary tables are dropped then (RemoveTempRelationsCallback(), namespace.c).
 */
static void
session_ends(int code, Datum argument)
{
	ListCell   *cell;

	if (code != 0 || finished == NIL)
		return;
	AbortOutOfAnyTransaction();
	/* It may be lost, and is not to wait for a standby. */
	synchronous_commit = SYNCHRONOUS_COMMIT_OFF;
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (OidIsValid(find_records()))
		foreach(cell, finished)
			dml_forget_record(lfirst(cell));
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static void
insert_record(Relation rel, const DmlNode *node)
{
	Datum		values[COLUMNS];
	bool		nulls[COLUMNS] = {0};

	values[COLUMN_GID - 1] = CStringGetTextDatum(node->gid);
	values[COLUMN_NODE - 1] = CStringGetTextDatum(node->label);
	values[COLUMN_SERVER - 1] = ObjectIdGetDatum(node->server);
	values[COLUMN_NODEID - 1] = Int32GetDatum(node->nodeid);
	values[COLUMN_PREPARED - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	CatalogTupleInsert(rel, heap_form_tuple(RelationGetDescr(rel), values, nulls));
}

static void
write_records(int nwritten)
{
	Relation	rel;
	FullTransactionId xid = GetTopFullTransactionId();
	int			n = 0;

	/* The statements of the transaction have given theirs back. */
	PushActiveSnapshot(GetLatestSnapshot());
	deleting = 0;
	{
		ListCell   *cell;

		foreach(cell, finished)
		{
			dml_forget_record(lfirst(cell));
			deleting++;
		}
	}
	rel = open_records();
	if (!registered)
		before_shmem_exit(session_ends, (Datum) 0);
	registered = true;
	{
		for_each_dml_node(node)
		{
			if (node->level == 0)
				continue;
			/* The time makes it unique even if a server that was promoted uses a transaction's number again. */
			snprintf(node->gid, sizeof(node->gid), DML_GID_PREFIX "%016llx_%u_%llu_%llx_%d",
					 (unsigned long long) GetSystemIdentifier(), MyDatabaseId,
					 (unsigned long long) U64FromFullTransactionId(xid),
					 (unsigned long long) GetCurrentTransactionStartTimestamp(), ++n);
			insert_record(rel, node);
		}
	}
	table_close(rel, NoLock);
	PopActiveSnapshot();
	/* After a crash nobody else is to get this transaction's number, or resolve.c could not tell what became of it. */
	XLogFlush(XactLastRecEnd);
}

/*
 * Locks the shards on the node, in the transaction that is about to be prepared there: our lock here goes with this
 * backend, and a shard that was moved then would leave behind what is committed later.
 */
static void
guard(DmlNode *node)
{
	StringInfoData text;
	ListCell   *cell;
	const char *statement;
	PGresult   *result;
	DmlFailure	failure = {0};

	initStringInfo(&text);
	foreach(cell, node->guards)
	{
		DmlGuard   *one = lfirst(cell);
		char	   *name = get_rel_name(one->relid);

		if (name != NULL)
			appendStringInfo(&text, "%s inrush.dml_guard(%s, " INT64_FORMAT ")", text.len == 0 ? "SELECT" : ",",
							 quote_literal_cstr(quote_qualified_identifier(get_namespace_name(get_rel_namespace(one->relid)),
																		   name)), one->shard);
	}
	if (text.len == 0)
		return;
	statement = text.data;
	result = dml_pipeline(node, &statement, 1);
	if (result != NULL && PQresultStatus(result) == PGRES_TUPLES_OK)
	{
		PQclear(result);
		return;
	}
	dml_failure(node, result, &failure);
	PQclear(result);
	if (failure.sqlstate == ERRCODE_UNDEFINED_FUNCTION || failure.sqlstate == ERRCODE_UNDEFINED_SCHEMA)
	{
		failure.sqlstate = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		failure.hint = "The extension inrush must be on every node if one transaction writes to several.";
	}
	dml_report(node, &failure, NULL);
}

static void
send_prepare(DmlNode *node)
{
	char		text[DML_GID_SIZE + 32];

	snprintf(text, sizeof(text), "PREPARE TRANSACTION '%s'", node->gid);
	node->ending = DML_PREPARING;
	node->busy = true;
	node->sent = false;
	if (PQsendQuery(node->conn, text))
		(void) dml_flush(node);
}

/* Whether the node has prepared; else *failure is filled in. */
static bool
receive_prepare(DmlNode *node, DmlFailure *failure)
{
	PGresult   *result,
			   *last = NULL;
	bool		prepared;

	while (node->sent && (result = dml_result(node, 0, true, NULL)) != NULL)
	{
		PQclear(last);
		last = result;
		if (PQstatus(node->conn) != CONNECTION_OK)
			break;
	}
	prepared = last != NULL && PQresultStatus(last) == PGRES_COMMAND_OK &&
		strcmp(PQcmdStatus(last), "PREPARE TRANSACTION") == 0;
	if (!prepared)
		dml_failure(node, last, failure);
	if (PQstatus(node->conn) == CONNECTION_OK && node->sent)
	{
		node->busy = false;
		node->ending = prepared ? DML_PREPARED : DML_OPEN;
	}
	PQclear(last);
	return prepared;
}

/*
 * Before the transaction here commits: prepares on all nodes that have written. An error rolls all back. What was
 * prepared then but could not be rolled back has no record that anybody sees.
 */
void
dml_prepare(int nwritten)
{
	DmlNode    *failed = NULL;
	DmlFailure	first = {0};

	write_records(nwritten);
	/* The record must be on disk before any node is told to commit. */
	ForceSyncCommit();
	{
		for_each_dml_node(node)
			if (node->level > 0)
				guard(node);
	}
	{
		for_each_dml_node(node)
			if (node->level > 0)
				send_prepare(node);
	}
	{
		for_each_dml_node(node)
		{
			DmlFailure	failure = {0};

			if (node->ending == DML_PREPARING && !receive_prepare(node, &failure) && failed == NULL)
			{
				failed = node;
				first = failure;
			}
		}
	}
	if (failed == NULL)
		return;
	if (first.sqlstate == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE || first.sqlstate == ERRCODE_OUT_OF_MEMORY)
	{
		first.sqlstate = ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
		first.detail = psprintf("This transaction has written on %d other nodes%s.", nwritten,
								nwritten == 1 ? " and here" : "");
		first.hint = psprintf("Set max_prepared_transactions on node \"%s\" to as many as its sessions, or write to one node in a transaction.",
							  failed->label);
	}
	dml_report(failed, &first, NULL);
}

void
dml_finish_text(char *text, Size size, const char *gid, bool commit)
{
	snprintf(text, size, "%s PREPARED '%s'", commit ? "COMMIT" : "ROLLBACK", gid);
}

/* After the transaction here has committed, when nothing may be raised. */
void
dml_commit_prepared(void)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), PATIENCE);
	char		text[DML_GID_SIZE + 32];
	MemoryContext old;

	/* What was deleted is. */
	old = MemoryContextSwitchTo(TopMemoryContext);
	while (deleting > 0)
	{
		pfree(linitial(finished));
		finished = list_delete_first(finished);
		deleting--;
	}
	{
		for_each_dml_node(node)
		{
			if (node->ending != DML_PREPARED)
				continue;
			dml_finish_text(text, sizeof(text), node->gid, true);
			node->busy = true;
			node->sent = PQstatus(node->conn) == CONNECTION_OK && PQsendQuery(node->conn, text) != 0;
		}
	}
	{
		for_each_dml_node(node)
		{
			bool		done = false,
						timed_out = false;
			PGresult   *result;

			if (node->ending != DML_PREPARED)
				continue;
			while (node->sent && (result = dml_result(node, deadline, false, &timed_out)) != NULL)
			{
				const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

				/* If there is no such transaction resolve_dml() has been faster. */
				done = PQresultStatus(result) == PGRES_COMMAND_OK || (state != NULL && strcmp(state, "42704") == 0);
				PQclear(result);
				if (PQstatus(node->conn) != CONNECTION_OK)
					break;
			}
			if (node->sent && !timed_out && PQstatus(node->conn) == CONNECTION_OK)
				node->busy = false;
			if (done)
				finished = lappend(finished, pstrdup(node->gid));
			else
				ereport(WARNING,
						(errcode(ERRCODE_TRANSACTION_RESOLUTION_UNKNOWN),
						 errmsg("node \"%s\" has not committed yet what it has prepared", node->label),
						 errdetail("The transaction is committed; on this node it is the prepared transaction \"%s\".",
								   node->gid),
						 errhint("SELECT * FROM inrush.resolve_dml() commits it there.")));
		}
	}
	MemoryContextSwitchTo(old);
}
