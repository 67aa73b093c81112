/*
 * transaction.c
 *	  What nodes do for a transaction of this session: it begins there with the first statement, in the same round trip,
 *	  and has a savepoint for each subtransaction that writes there. So does postgres_fdw (connection.c).
 *
 * If one node has written, and nothing else of the transaction needs to be committed with it, it commits just before
 * the transaction here does. Otherwise it is prepared; twophase.c.
 */
#include "dml.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "parser/parser.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#if PG_VERSION_NUM < 160000
#include "parser/gramparse.h"
#endif

/* What the end of a transaction waits for a node, in milliseconds, before it gives the connection up. */
#define PATIENCE 30000

/* Whether a node may have a transaction for ours: spares looking at all of them. */
static bool active;

static TimestampTz
patience(void)
{
	return TimestampTzPlusMilliseconds(GetCurrentTimestamp(), PATIENCE);
}

static const char *
zone_name(void)
{
	return session_timezone != NULL ? pg_get_timezone_name(session_timezone) : "GMT";
}

static bool
has_settings(const DmlSettings *have)
{
	return have->known && have->date_style == DateStyle && have->date_order == DateOrder &&
		have->interval_style == IntervalStyle && have->conforming == standard_conforming_strings &&
		have->lock_timeout == dml_lock_timeout && strcmp(have->zone, zone_name()) == 0 &&
		strcmp(have->path, namespace_search_path) == 0;
}

/*
 * A statement that makes the session there read a text as this one would. Names as well: what a function with a
 * search_path of its own sends must not find others' objects.
 */
static char *
settings_text(DmlSettings *settings)
{
	StringInfoData text;
	static const char *const names[] = {"DateStyle", "IntervalStyle", "TimeZone", "standard_conforming_strings",
	"search_path"};

	initStringInfo(&text);
	appendStringInfo(&text, "SELECT pg_catalog.set_config('lock_timeout', '%d', false)", dml_lock_timeout);
	for (int i = 0; i < lengthof(names); i++)
		appendStringInfo(&text, ", pg_catalog.set_config('%s', %s, false)", names[i],
						 quote_literal_cstr(GetConfigOption(names[i], false, false)));
	free(settings->path);
	settings->path = strdup(namespace_search_path);
	if (settings->path == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	strlcpy(settings->zone, zone_name(), sizeof(settings->zone));
	settings->date_style = DateStyle;
	settings->date_order = DateOrder;
	settings->interval_style = IntervalStyle;
	settings->conforming = standard_conforming_strings;
	settings->lock_timeout = dml_lock_timeout;
	return text.data;
}

static const char *
begin_text(void)
{
	switch (XactIsoLevel)
	{
		case XACT_SERIALIZABLE:
			return "BEGIN ISOLATION LEVEL SERIALIZABLE";
		case XACT_REPEATABLE_READ:
			return "BEGIN ISOLATION LEVEL REPEATABLE READ";
		default:
			return "BEGIN ISOLATION LEVEL READ COMMITTED";
	}
}

/* Sends the text with all that has to come before it. */
static PGresult *
run(DmlNode *node, const char *text)
{
	int			nest = GetCurrentTransactionNestLevel();
	const char **texts;
	int			n = 0;
	PGresult   *result;
	bool		settings;

	/* The path of a batch: nothing but the statement. */
	if (node->level == nest && has_settings(&node->settings))
		return dml_pipeline(node, &text, 1);

	/* From here on the end of the transaction sees to it, whatever becomes of the statements. */
	active = true;
	texts = palloc((nest + 3) * sizeof(char *));
	if (node->level == 0)
	{
		texts[n++] = begin_text();
		node->first_level = nest;
		node->level = 1;
	}
	settings = !has_settings(&node->settings);
	if (settings)
	{
		texts[n++] = settings_text(&node->settings);
		node->settings.known = false;
		node->settings_level = node->level;
	}
	while (node->level < nest)
		texts[n++] = psprintf("SAVEPOINT s%d", ++node->level);
	texts[n++] = text;
	result = dml_pipeline(node, texts, n);
	/* If the statement has failed the node has the settings nevertheless, until we roll back there. */
	if (settings && result != NULL)
		node->settings.known = true;
	pfree(texts);
	return result;
}

static void
remember_guard(DmlNode *node, const DmlGuard *guard)
{
	ListCell   *cell;
	MemoryContext old;
	DmlGuard   *copy;

	foreach(cell, node->guards)
		if (((DmlGuard *) lfirst(cell))->shard == guard->shard)
			return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	copy = palloc(sizeof(DmlGuard));
	*copy = *guard;
	node->guards = lappend(node->guards, copy);
	MemoryContextSwitchTo(old);
}

static void
refuse_lost(DmlNode *node)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("the connection to node \"%s\" was lost, and with it what this transaction has written there",
					node->label),
			 errhint("Roll the transaction back and send it again.")));
}

static bool
must_connect(const DmlNode *node)
{
	const char *conninfo;

	if (node->conn == NULL || node->stale || PQstatus(node->conn) != CONNECTION_OK)
		return true;
	if (OidIsValid(node->server))
		return false;
	conninfo = GetConfigOption("citus.node_conninfo", true, false);
	return strcmp(node->conninfo, conninfo != NULL ? conninfo : "") != 0;
}

/*
 * Runs a statement on another node as part of the caller's transaction and returns the number of rows. `guard` is
 * what is to be locked there should it be prepared; NULL for nothing.
 */
uint64
dml_remote(const DmlPlace *place, const char *text, const char *shard, DmlStatement statement, const DmlGuard *guard)
{
	DmlNode    *node = dml_node(place, GetUserId());
	bool		first = node->level == 0;
	bool		pooled = true;
	PGresult   *result;
	uint64		rows;
	const char *name = dml_statement_name(statement);

	if (node->lost)
		refuse_lost(node);
	if (first && must_connect(node))
	{
		dml_connect(node, place);
		pooled = false;
	}
	if (guard != NULL)
		remember_guard(node, guard);
	result = run(node, text);
	if (PQstatus(node->conn) != CONNECTION_OK && first && pooled)
	{
		/* It may have been broken for long. What the node has not committed it has not done. */
		PQclear(result);
		dml_connect(node, place);
		result = run(node, text);
	}
	if (result == NULL || (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK))
	{
		DmlFailure	failure = {0};

		dml_failure(node, result, &failure);
		PQclear(result);
		if (PQstatus(node->conn) != CONNECTION_OK)
		{
			node->lost = !first;
			dml_disconnect(node);
		}
		dml_report(node, &failure, shard);
	}
	/* The first word has promised it, and a node would keep that. */
	if (strncmp(PQcmdStatus(result), name, strlen(name)) != 0)
	{
		PQclear(result);
		elog(ERROR, "node \"%s\" has not done what it was sent", node->label);
	}
	rows = strtoull(PQcmdTuples(result), NULL, 10);
	PQclear(result);
	return rows;
}

static void
forget(DmlNode *node)
{
	node->level = 0;
	node->first_level = 0;
	node->settings_level = 0;
	node->lost = false;
	node->ending = DML_OPEN;
	node->guards = NIL;
	/* A server that has other settings now is not kept at the old one. */
	if (node->busy || node->stale)
		dml_disconnect(node);
}

/* The only node that has written. */
static void
commit_one(DmlNode *node)
{
	const char *text = "COMMIT";
	PGresult   *result;
	DmlFailure	failure = {0};

	node->ending = DML_COMMITTING;
	result = dml_pipeline(node, &text, 1);
	if (PQstatus(node->conn) != CONNECTION_OK)
	{
		PQclear(result);
		dml_disconnect(node);
		ereport(ERROR,
				(errcode(ERRCODE_TRANSACTION_RESOLUTION_UNKNOWN),
				 errmsg("the connection to node \"%s\" was lost while it committed", node->label),
				 errdetail("Whether it has committed is not known."),
				 errhint("Look for the rows before sending them again.")));
	}
	if (result != NULL && PQresultStatus(result) == PGRES_COMMAND_OK)
	{
		bool		committed = strcmp(PQcmdStatus(result), "COMMIT") == 0;

		PQclear(result);
		node->level = 0;
		node->ending = DML_OPEN;
		if (!committed)
			ereport(ERROR,
					(errcode(ERRCODE_TRANSACTION_ROLLBACK),
					 errmsg("node \"%s\" has rolled the transaction back", node->label)));
		return;
	}
	node->ending = DML_OPEN;
	dml_failure(node, result, &failure);
	PQclear(result);
	dml_report(node, &failure, NULL);
}

static void
before_commit(void)
{
	int			nwritten = 0;
	bool		citus = false;
	DmlNode    *one = NULL;

	{
		for_each_dml_node(node)
		{
			if (node->lost)
				refuse_lost(node);
			if (node->level == 0)
				continue;
			nwritten++;
			one = node;
			citus = citus || !OidIsValid(node->server);
		}
	}
	if (nwritten == 0)
		return;
	/*
	 * Whoever writes here too, by itself or by way of Citus, is one more that must agree; and a serializable transaction
	 * may still fail here, which is looked at after this.
	 */
	if (nwritten > 1 || TransactionIdIsValid(GetTopTransactionIdIfAny()) || IsolationIsSerializable() ||
		(citus && dml_citus_takes_part()))
		dml_prepare(nwritten);
	else
		commit_one(one);
}

static void
in_doubt(DmlNode *node)
{
	ereport(WARNING,
			(errcode(ERRCODE_TRANSACTION_RESOLUTION_UNKNOWN),
			 errmsg("prepared transaction \"%s\" may have been left on node \"%s\"", node->gid, node->label),
			 errhint("SELECT * FROM inrush.resolve_dml() ends it.")));
}

/* Ends what is open on a node. Raises nothing. */
static void
roll_back(DmlNode *node)
{
	TimestampTz deadline = patience();
	bool		succeeded = false;
	bool		usable = node->conn != NULL && PQstatus(node->conn) == CONNECTION_OK;

	if (node->busy && usable)
		/* A commit under way is not cancelled: it could have been done. */
		usable = dml_drain(node, deadline, node->ending != DML_COMMITTING, &succeeded);
	switch (node->ending)
	{
		case DML_OPEN:
			break;
		case DML_COMMITTING:
			ereport(WARNING,
					(errcode(ERRCODE_TRANSACTION_RESOLUTION_UNKNOWN),
					 usable && succeeded ?
					 errmsg("node \"%s\" has committed, although the transaction was not to be", node->label) :
					 errmsg("node \"%s\" may have committed, although the transaction was not to be", node->label)));
			break;
		case DML_PREPARING:
			if (!usable)
				in_doubt(node);
			else if (succeeded)
				node->ending = DML_PREPARED;
			break;
		case DML_PREPARED:
			break;
	}
	if (node->ending == DML_PREPARED)
	{
		char		text[DML_GID_SIZE + 32];

		snprintf(text, sizeof(text), "ROLLBACK PREPARED '%s'", node->gid);
		usable = usable && dml_quietly(node, text, deadline, NULL);
		if (!usable)
			in_doubt(node);
	}
	else if (usable && PQtransactionStatus(node->conn) != PQTRANS_IDLE)
		usable = dml_quietly(node, "ROLLBACK", deadline, NULL);
	if (node->settings_level > 0)
		node->settings.known = false;
	if (!usable)
		dml_disconnect(node);
}

static void
transaction_ends(XactEvent event, void *argument)
{
	if (!active)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			before_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has called distribute_dml()"),
					 errhint("COMMIT it; nodes are prepared by themselves where several have written.")));
			break;
		case XACT_EVENT_COMMIT:
			{
				dml_commit_prepared();
				{
					for_each_dml_node(node)
						forget(node);
				}
				active = false;
				break;
			}
		case XACT_EVENT_ABORT:
			{
				for_each_dml_node(node)
				{
					if (node->level > 0 || node->ending != DML_OPEN || node->busy)
						roll_back(node);
					forget(node);
				}
				active = false;
				break;
			}
		default:
			break;
	}
}

static void
release(DmlNode *node, int level)
{
	char	   *text = psprintf("RELEASE SAVEPOINT s%d", level);
	PGresult   *result = dml_pipeline(node, (const char *const *) &text, 1);

	if (result == NULL || PQresultStatus(result) != PGRES_COMMAND_OK)
	{
		DmlFailure	failure = {0};

		dml_failure(node, result, &failure);
		PQclear(result);
		dml_report(node, &failure, NULL);
	}
	PQclear(result);
	pfree(text);
	node->level = level - 1;
	node->first_level = Min(node->first_level, node->level);
	node->settings_level = Min(node->settings_level, node->level);
}

static void
roll_back_to(DmlNode *node, int level)
{
	TimestampTz deadline = patience();
	char		text[80];
	bool		succeeded;
	bool		usable = node->conn != NULL && PQstatus(node->conn) == CONNECTION_OK;
	bool		all = node->first_level >= level;

	if (node->busy && usable)
		usable = dml_drain(node, deadline, true, &succeeded);
	/* Begun within what is rolled back: nothing of it is to stay. */
	if (all)
		strcpy(text, "ROLLBACK");
	else
		snprintf(text, sizeof(text), "ROLLBACK TO SAVEPOINT s%d; RELEASE SAVEPOINT s%d", level, level);
	usable = usable && dml_quietly(node, text, deadline, NULL);
	if (node->settings_level >= (all ? 1 : level))
		node->settings.known = false;
	if (!usable)
	{
		node->lost = !all;
		dml_disconnect(node);
	}
	else
		node->level = all ? 0 : level - 1;
}

static void
subtransaction_ends(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *argument)
{
	int			level;

	if (!active || (event != SUBXACT_EVENT_PRE_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB))
		return;
	level = GetCurrentTransactionNestLevel();
	{
		for_each_dml_node(node)
		{
			if (event == SUBXACT_EVENT_ABORT_SUB && node->lost && node->first_level >= level)
				node->lost = false;
			if (node->level < level)
				continue;
			if (event == SUBXACT_EVENT_PRE_COMMIT_SUB)
				release(node, level);
			else
				roll_back_to(node, level);
		}
	}
}

void
dml_transaction_init(void)
{
	RegisterXactCallback(transaction_ends, NULL);
	RegisterSubXactCallback(subtransaction_ends, NULL);
}
