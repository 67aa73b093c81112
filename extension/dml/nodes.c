/*
 * nodes.c
 *	  Connections to nodes: one for each node and user, kept until the backend ends, they break, or settings change.
 *
 * A node of Citus is connected to as Citus would: as the caller, with citus.node_conninfo and pg_dist_authinfo. A foreign
 * server is connected to as postgres_fdw would (connection.c there), with the options of server and user mapping, and
 * with its rule: only superusers, and those a superuser lets, use a connection that needed no password.
 */
#include "dml.h"

#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#define CONNECT_TIMEOUT 30		/* seconds, where no option says another */
#define MAX_OPTIONS 80

/* Of all transactions. Few: nodes times users of this session. */
dlist_head	dml_nodes = DLIST_STATIC_INIT(dml_nodes);

/* Options of libpq that a server or a user mapping may set; others are postgres_fdw's own, or no affair of theirs. */
static const char *const allowed[] = {
	"host", "hostaddr", "port", "dbname", "user", "password", "passfile", "service", "connect_timeout", "options",
	"target_session_attrs", "load_balance_hosts", "keepalives", "keepalives_idle", "keepalives_interval",
	"keepalives_count", "tcp_user_timeout", "sslmode", "sslnegotiation", "sslcompression", "sslcert", "sslkey",
	"sslcertmode", "sslpassword", "sslrootcert", "sslcrl", "sslcrldir", "sslsni", "ssl_min_protocol_version",
	"ssl_max_protocol_version", "channel_binding", "require_auth", "requirepeer", "krbsrvname", "gsslib", "gssencmode"
};

typedef struct Parameters
{
	const char *keywords[MAX_OPTIONS + 1];
	const char *values[MAX_OPTIONS + 1];
	int			n;
} Parameters;

/* libpq takes the last of several. */
static void
add(Parameters *parameters, const char *keyword, const char *value)
{
	if (parameters->n == MAX_OPTIONS)
		elog(ERROR, "too many options of a connection");
	parameters->keywords[parameters->n] = keyword;
	parameters->values[parameters->n++] = value;
}

static const char *
get(const Parameters *parameters, const char *keyword)
{
	for (int i = parameters->n - 1; i >= 0; i--)
		if (strcmp(parameters->keywords[i], keyword) == 0 && parameters->values[i][0] != '\0')
			return parameters->values[i];
	return NULL;
}

static void
add_conninfo(Parameters *parameters, const char *conninfo, const char *whose)
{
	PQconninfoOption *options;

	if (conninfo == NULL || conninfo[0] == '\0')
		return;
	options = PQconninfoParse(conninfo, NULL);
	if (options == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
				 errmsg("%s cannot be understood", whose)));
	for (PQconninfoOption *option = options; option->keyword != NULL; option++)
		if (option->val != NULL)
			add(parameters, pstrdup(option->keyword), pstrdup(option->val));
	PQconninfoFree(options);
}

static bool
is_allowed(const char *keyword)
{
	for (int i = 0; i < lengthof(allowed); i++)
		if (strcmp(allowed[i], keyword) == 0)
			return true;
	return false;
}

static void
add_options(Parameters *parameters, List *options)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);

		if (is_allowed(option->defname))
			add(parameters, option->defname, defGetString(option));
	}
}

static void
refuse_password(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
			 errmsg("password is required"),
			 errdetail("%s", detail),
			 errhint("The user mapping must have a password that the server asks for, or password_required \"false\","
					 " which a superuser may set.")));
}

/* Whether a connection for this user mapping has to be made with a password of its own. */
static bool
needs_password(const UserMapping *mapping)
{
	ListCell   *cell;

	/* That of PUBLIC is anybody's. */
	if (OidIsValid(mapping->userid) && superuser_arg(mapping->userid))
		return false;
	foreach(cell, mapping->options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, "password_required") == 0)
			return defGetBoolean(option);
	}
	return true;
}

/* Fills in the parameters; true if it has to be a password that gets us in. */
static bool
foreign_parameters(Parameters *parameters, DmlNode *node)
{
	ForeignServer *server = GetForeignServer(node->server);
	UserMapping *mapping = GetUserMapping(node->user, node->server);
	bool		password;

	strlcpy(node->label, server->servername, sizeof(node->label));
	password = needs_password(mapping);
	add_options(parameters, server->options);
	add_options(parameters, mapping->options);
	if (password && get(parameters, "password") == NULL)
		refuse_password("Non-superusers must provide a password in the user mapping.");
	return password;
}

static void
citus_parameters(Parameters *parameters, DmlNode *node, const DmlPlace *place)
{
	const char *conninfo = GetConfigOption("citus.node_conninfo", true, false);
	char	   *role = GetUserNameFromId(node->user, false);

	strlcpy(node->host, place->host, sizeof(node->host));
	node->port = place->port;
	snprintf(node->label, sizeof(node->label), "%s:%d", place->host, place->port);
	free(node->conninfo);
	node->conninfo = strdup(conninfo != NULL ? conninfo : "");
	add_conninfo(parameters, conninfo, "citus.node_conninfo");
	add_conninfo(parameters, dml_citus_authinfo(role, node->nodeid), "the row of pg_dist_authinfo");
	/* Where it has a host, as for certificates, that of pg_dist_node is the address (Citus does so too). */
	add(parameters, get(parameters, "host") != NULL ? "hostaddr" : "host", node->host);
	add(parameters, "port", psprintf("%d", place->port));
	add(parameters, "dbname", get_database_name(MyDatabaseId));
	add(parameters, "user", role);
}

/* Ends the connection, whatever it is at. Raises nothing. */
void
dml_disconnect(DmlNode *node)
{
	if (node->events != NULL)
	{
		FreeWaitEventSet(node->events);
		node->events = NULL;
	}
	if (node->conn != NULL)
	{
		PQfinish(node->conn);
		node->conn = NULL;
		ReleaseExternalFD();
	}
	node->level = 0;
	node->busy = false;
	node->ending = DML_OPEN;
	node->settings.known = false;
}

static void
ignore_notice(void *argument, const PGresult *result)
{
}

/* Waits for libpq to be done with connecting (PQconnectPoll()). */
static void
finish_connecting(DmlNode *node, int seconds)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), (int64) seconds * 1000);
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;

	while (PQstatus(node->conn) != CONNECTION_BAD && status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED)
	{
		long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);
		int			events;

		if (left <= 0)
			break;
		events = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | WL_TIMEOUT |
								   (status == PGRES_POLLING_READING ? WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE),
								   PQsocket(node->conn), left, PG_WAIT_EXTENSION);
		if (events & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
		if (events & WL_SOCKET_MASK)
			status = PQconnectPoll(node->conn);
	}
	if (PQstatus(node->conn) != CONNECTION_OK)
	{
		char	   *why = pchomp(PQerrorMessage(node->conn));

		ereport(ERROR,
				(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
				 errmsg("cannot connect to node \"%s\"", node->label),
				 errdetail_internal("%s", why[0] != '\0' ? why : "It did not answer in time."),
				 errhint("The statement has not been sent.")));
	}
}

/* Connects to the node. Interruptible. */
void
dml_connect(DmlNode *node, const DmlPlace *place)
{
	Parameters	parameters = {0};
	const char *timeout;
	volatile bool password = false;
	volatile int seconds = CONNECT_TIMEOUT;

	dml_disconnect(node);
	node->stale = false;
	add(&parameters, "fallback_application_name", "inrush distribute_dml");
	if (OidIsValid(node->server))
		password = foreign_parameters(&parameters, node);
	else
		citus_parameters(&parameters, node, place);
	if (get(&parameters, "application_name") == NULL)
		add(&parameters, "application_name", "inrush distribute_dml");
	add(&parameters, "client_encoding", GetDatabaseEncodingName());
	timeout = get(&parameters, "connect_timeout");
	if (timeout != NULL && atoi(timeout) > 0)
		seconds = atoi(timeout);

	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
				 errmsg("cannot connect to node \"%s\"", node->label),
				 errdetail("There are too many open files on the local server."),
				 errhint("Raise max_files_per_process and the server's limit of open files.")));
	node->conn = PQconnectStartParams(parameters.keywords, parameters.values, 0);
	if (node->conn == NULL)
	{
		ReleaseExternalFD();
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	}
	PG_TRY();
	{
		finish_connecting(node, seconds);
		if (password && !PQconnectionUsedPassword(node->conn))
			refuse_password("Non-superusers may not connect if the server does not ask for a password.");
		PQsetNoticeReceiver(node->conn, ignore_notice, NULL);
		if (PQsetnonblocking(node->conn, 1) != 0)
			elog(ERROR, "a connection to node \"%s\" cannot be used without blocking", node->label);
		node->events = compat_create_events(3);
		node->awaited = WL_SOCKET_READABLE;
		/* The socket first: dml_wait() changes it. */
		AddWaitEventToSet(node->events, node->awaited, PQsocket(node->conn), NULL, NULL);
		AddWaitEventToSet(node->events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
		AddWaitEventToSet(node->events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	}
	PG_CATCH();
	{
		dml_disconnect(node);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* What is kept for this user's connection to this place; it need not be connected. */
DmlNode *
dml_node(const DmlPlace *place, Oid user)
{
	dlist_iter	iter;
	DmlNode    *node;

	dlist_foreach(iter, &dml_nodes)
	{
		node = dlist_container(DmlNode, link, iter.cur);
		if (node->user == user && node->server == place->server &&
			(OidIsValid(place->server) || node->nodeid == place->nodeid))
		{
			if (!OidIsValid(place->server) && (node->port != place->port || strcmp(node->host, place->host) != 0))
				node->stale = true;
			return node;
		}
	}
	node = MemoryContextAllocZero(TopMemoryContext, sizeof(DmlNode));
	node->server = place->server;
	node->nodeid = place->nodeid;
	node->user = user;
	dlist_push_tail(&dml_nodes, &node->link);
	return node;
}

/* How to connect may have changed, for foreign servers or for nodes of Citus. */
void
dml_nodes_invalidate(bool foreign)
{
	dlist_iter	iter;

	dlist_foreach(iter, &dml_nodes)
	{
		DmlNode    *node = dlist_container(DmlNode, link, iter.cur);

		if (OidIsValid(node->server) == foreign)
			node->stale = true;
	}
}
