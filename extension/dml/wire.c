/*
 * wire.c
 *	  Sending to a node and waiting for its answers, so that cancels and timeouts are heeded.
 *
 * The set of events of a connection lives as long as the connection: making one for each wait, as WaitLatchOrSocket()
 * does, costs as much as the rest of the wait.
 */
#include "dml.h"

#include "miscadmin.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 170000
/* With PG_TRY(), and compiled without -Wextra where it comes from. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wclobbered"
#include "libpq/libpq-be-fe-helpers.h"
#pragma GCC diagnostic pop
#endif

/* Until the socket is ready for the events; false if the deadline has passed before (0: none). */
bool
dml_wait(DmlNode *node, uint32 events, TimestampTz deadline, bool interruptible)
{
	if (node->awaited != events)
	{
		ModifyWaitEvent(node->events, 0, events, NULL);
		node->awaited = events;
	}
	for (;;)
	{
		WaitEvent	event;
		long		timeout = -1;

		if (deadline != 0)
		{
			timeout = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);
			if (timeout <= 0)
				return false;
		}
		if (WaitEventSetWait(node->events, timeout, &event, 1, PG_WAIT_EXTENSION) == 0)
			continue;
		if ((event.events & WL_LATCH_SET) == 0)
			return true;
		ResetLatch(MyLatch);
		if (interruptible)
			CHECK_FOR_INTERRUPTS();
	}
}

/* Sends what libpq has not sent yet; false if the connection is broken. */
bool
dml_flush(DmlNode *node)
{
	int			left;

	while ((left = PQflush(node->conn)) > 0)
	{
		dml_wait(node, WL_SOCKET_READABLE | WL_SOCKET_WRITEABLE, 0, true);
		/* The node may wait for us to read before it reads on. */
		if (!PQconsumeInput(node->conn))
			return false;
	}
	node->sent = left == 0;
	return node->sent;
}

/* The next result as PQgetResult() has it; NULL and *timed_out if there was none before the deadline (0: none). */
PGresult *
dml_result(DmlNode *node, TimestampTz deadline, bool interruptible, bool *timed_out)
{
	if (timed_out != NULL)
		*timed_out = false;
	while (PQisBusy(node->conn))
	{
		if (!dml_wait(node, WL_SOCKET_READABLE, deadline, interruptible))
		{
			*timed_out = true;
			return NULL;
		}
		if (!PQconsumeInput(node->conn))
			break;
	}
	return PQgetResult(node->conn);
}

static bool
has_failed(const PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	return status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_PIPELINE_SYNC;
}

/* What makes no sense as an answer, and would be answered again and again. */
static bool
is_copy(const PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	return status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH;
}

/*
 * Sends the statements, each of them a single one, in one go, and waits for the answers. Returns the first failure, or
 * the result of the last; NULL if the connection is broken. Interruptible: then node->busy stays set.
 */
PGresult *
dml_pipeline(DmlNode *node, const char *const *texts, int n)
{
	PGconn	   *conn = node->conn;
	PGresult   *volatile kept = NULL;
	volatile bool failed = false;

	node->busy = true;
	node->sent = false;
	if (n > 1 && !PQenterPipelineMode(conn))
		return NULL;
	for (int i = 0; i < n; i++)
		if (!PQsendQueryParams(conn, texts[i], 0, NULL, NULL, NULL, NULL, 0))
			return NULL;
	if (n > 1 && !PQpipelineSync(conn))
		return NULL;
	if (!dml_flush(node))
		return NULL;
	PG_TRY();
	{
		for (int i = 0; i < n && PQstatus(conn) == CONNECTION_OK; i++)
		{
			PGresult   *result;

			while ((result = dml_result(node, 0, true, NULL)) != NULL)
			{
				if (is_copy(result))
				{
					PQclear(result);
					ereport(ERROR,
							(errcode(ERRCODE_PROTOCOL_VIOLATION),
							 errmsg("node \"%s\" wants to copy", node->label)));
				}
				if (!failed && (has_failed(result) || i == n - 1))
				{
					PQclear(kept);
					kept = result;
					failed = has_failed(result);
				}
				else
					PQclear(result);
				if (PQstatus(conn) != CONNECTION_OK)
					break;
			}
		}
		if (n > 1 && PQstatus(conn) == CONNECTION_OK)
		{
			PQclear(dml_result(node, 0, true, NULL));
			(void) PQexitPipelineMode(conn);
		}
	}
	PG_CATCH();
	{
		PQclear(kept);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (PQstatus(conn) == CONNECTION_OK)
		node->busy = false;
	return kept;
}

static void
send_cancel(DmlNode *node, TimestampTz deadline)
{
#if PG_VERSION_NUM >= 170000
	/* Encrypted where the connection is. */
	(void) libpqsrv_cancel(node->conn, deadline);
#else
	PGcancel   *cancel = PQgetCancel(node->conn);
	char		error[256];

	if (cancel != NULL)
	{
		(void) PQcancel(cancel, error, sizeof(error));
		PQfreeCancel(cancel);
	}
#endif
}

/*
 * Reads what is left of an answer that nobody waits for any more, cancelling the statement if so wished. False if the
 * connection is of no use afterwards. *succeeded says what became of the last statement.
 */
bool
dml_drain(DmlNode *node, TimestampTz deadline, bool cancel, bool *succeeded)
{
	int			empty = 0;

	*succeeded = false;
	if (node->conn == NULL || PQstatus(node->conn) != CONNECTION_OK || !node->sent)
		return false;
	if (cancel)
		send_cancel(node, deadline);
	for (;;)
	{
		bool		timed_out;
		PGresult   *result = dml_result(node, deadline, false, &timed_out);
		bool		end = false;

		if (timed_out || PQstatus(node->conn) != CONNECTION_OK || is_copy(result))
		{
			PQclear(result);
			return false;
		}
		if (result == NULL)
		{
			/* Between the statements of a pipeline there is one. */
			if (PQpipelineStatus(node->conn) == PQ_PIPELINE_OFF || ++empty > 2)
				break;
			continue;
		}
		empty = 0;
		if (PQresultStatus(result) == PGRES_PIPELINE_SYNC)
			end = true;
		else
			*succeeded = !has_failed(result);
		PQclear(result);
		if (end)
			break;
	}
	if (PQpipelineStatus(node->conn) != PQ_PIPELINE_OFF && !PQexitPipelineMode(node->conn))
		return false;
	node->busy = false;
	return true;
}

/*
 * For the end of transactions, where nothing may be raised: whether the node has done this before the deadline. Not
 * interruptible. *failure, if there is one, is filled in.
 */
bool
dml_quietly(DmlNode *node, const char *text, TimestampTz deadline, DmlFailure *failure)
{
	PGresult   *result,
			   *last = NULL;
	bool		timed_out = false,
				done = false;

	if (node->conn == NULL || PQstatus(node->conn) != CONNECTION_OK)
		return false;
	node->busy = true;
	/* Short enough for the socket's buffer; if not, PQgetResult() sends the rest. */
	node->sent = PQsendQuery(node->conn, text) != 0;
	while (node->sent && (result = dml_result(node, deadline, false, &timed_out)) != NULL)
	{
		PQclear(last);
		last = result;
		if (PQstatus(node->conn) != CONNECTION_OK || is_copy(result))
			break;
	}
	if (node->sent && !timed_out && PQstatus(node->conn) == CONNECTION_OK && !is_copy(last))
	{
		node->busy = false;
		done = last != NULL && !has_failed(last);
	}
	if (!done && failure != NULL)
		dml_failure(node, last, failure);
	PQclear(last);
	return done;
}

static char *
copy_field(const PGresult *result, int field)
{
	const char *value = result != NULL ? PQresultErrorField(result, field) : NULL;

	return value != NULL ? pstrdup(value) : NULL;
}

/* What went wrong there: in a result, or with the connection. Does not keep or clear the result. */
void
dml_failure(DmlNode *node, PGresult *result, DmlFailure *failure)
{
	char	   *state = copy_field(result, PG_DIAG_SQLSTATE);

	failure->sqlstate = (state != NULL && strlen(state) == 5) ?
		MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]) : ERRCODE_CONNECTION_FAILURE;
	failure->message = copy_field(result, PG_DIAG_MESSAGE_PRIMARY);
	failure->detail = copy_field(result, PG_DIAG_MESSAGE_DETAIL);
	failure->hint = copy_field(result, PG_DIAG_MESSAGE_HINT);
	failure->context = copy_field(result, PG_DIAG_CONTEXT);
	if (failure->message == NULL)
	{
		failure->detail = node->conn != NULL ? pchomp(PQerrorMessage(node->conn)) : NULL;
		failure->message = psprintf("the connection to node \"%s\" was lost", node->label);
		if (failure->detail != NULL && failure->detail[0] == '\0')
			failure->detail = NULL;
		failure->hint = pstrdup("The transaction is rolled back; send it again.");
	}
}

/*
 * Raises it as an error of this session, with its SQLSTATE, as postgres_fdw does (pgfdw_report_error(), connection.c);
 * waiting for too long for a lock has a message of its own.
 */
void
dml_report(DmlNode *node, const DmlFailure *failure, const char *shard)
{
	bool		locks = failure->sqlstate == ERRCODE_LOCK_NOT_AVAILABLE ||
		failure->sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED;

	if (locks)
		ereport(ERROR,
				(errcode(failure->sqlstate),
				 failure->sqlstate == ERRCODE_LOCK_NOT_AVAILABLE ?
				 errmsg("a lock on node \"%s\" was not to be had within inrush_dml.lock_timeout", node->label) :
				 errmsg("deadlock detected on node \"%s\"", node->label),
				 errdetail("%s", failure->message),
				 errhint("Another transaction has it, or this one over another connection: what was written through"
						 " Citus or a foreign table is locked for distribute_dml() until the transaction ends."),
				 shard != NULL ? errcontext("distribute_dml() to %s on node \"%s\"", shard, node->label) : 0));
	ereport(ERROR,
			(errcode(failure->sqlstate),
			 errmsg_internal("%s", failure->message),
			 failure->detail != NULL ? errdetail_internal("%s", failure->detail) : 0,
			 failure->hint != NULL ? errhint("%s", failure->hint) : 0,
			 failure->context != NULL ? errcontext("%s", failure->context) : 0,
			 shard != NULL ? errcontext("distribute_dml() to %s on node \"%s\"", shard, node->label) : 0,
			 shard == NULL ? errcontext("distribute_dml() on node \"%s\"", node->label) : 0));
}
