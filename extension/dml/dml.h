/*
 * dml.h
 *	  What the parts of inrush.distribute_dml() share. docs/distribute-dml.md says what it promises.
 *
 *	  dml.c          the function: who may, which shard, where to
 *	  text.c         the statement's first word and its placeholder
 *	  key.c          the value in the type of the key
 *	  tables.c       the cache of tables, and what drops it
 *	  citus.c        shards and placements of Citus
 *	  partitions.c   partitions of PostgreSQL, local or foreign
 *	  nodes.c        connections to nodes
 *	  wire.c         waiting for them
 *	  transaction.c  what they do when the caller's transaction, or a part of it, ends
 *	  twophase.c     when several have written
 *	  resolve.c      what was left in doubt
 *
 * A library of its own, because it needs libpq. It knows Citus by its catalogs and its functions in SQL only.
 */
#ifndef INRUSH_DML_H
#define INRUSH_DML_H

#include "postgres.h"

#include "access/attnum.h"
#include "fmgr.h"
#include "lib/ilist.h"
#include "lib/stringinfo.h"
#include "libpq-fe.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#if PG_VERSION_NUM >= 180000
#include "storage/waiteventset.h"
#endif

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "inrush is for PostgreSQL 15 to 18"
#endif

/* 16 has one function for the privileges on all kinds of objects. */
#if PG_VERSION_NUM >= 160000
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_proc.h"
#define compat_server_aclcheck(server, role) object_aclcheck(ForeignServerRelationId, server, role, ACL_USAGE)
#define compat_function_aclcheck(function, role) object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE)
#else
#define compat_server_aclcheck(server, role) pg_foreign_server_aclcheck(server, role, ACL_USAGE)
#define compat_function_aclcheck(function, role) pg_proc_aclcheck(function, role, ACL_EXECUTE)
#endif

/* A set of events that outlives the statement: from 17 on of no resource owner, before in a context. */
#if PG_VERSION_NUM >= 170000
#define compat_create_events(n) CreateWaitEventSet(NULL, n)
#else
#define compat_create_events(n) CreateWaitEventSet(TopMemoryContext, n)
#endif

/* The identifiers of our prepared transactions begin so; those of Citus' recovery with "citus_". */
#define DML_GID_PREFIX "inrush_dml_"
#define DML_GID_SIZE 200

typedef enum DmlStatement
{
	DML_INSERT,
	DML_UPDATE,
	DML_DELETE
} DmlStatement;

/* How values get to the type of a key. */
typedef enum DmlWay
{
	DML_WAY_SAME,
	DML_WAY_CAST,
	DML_WAY_TEXT				/* by output and input functions */
} DmlWay;

typedef struct DmlKey
{
	AttrNumber	attnum;			/* in the logical table */
	const char *column;
	Oid			type;			/* under the domains */
	int32		typmod;
	Oid			collation;
	bool		is_enum;

	/* For values of `source`, the type that came last; InvalidOid: none yet. */
	Oid			source;
	DmlWay		way;
	FmgrInfo	cast;			/* or the output function */
	FmgrInfo	input;
	Oid			ioparam;
	bool		has_length;
	FmgrInfo	length;			/* what makes a numeric(5,2) of a numeric */
	MemoryContext context;		/* of the functions' states */
} DmlKey;

/* A server that is not this one. */
typedef struct DmlPlace
{
	Oid			server;			/* foreign server; InvalidOid: a node of Citus, as follows */
	int32		nodeid;			/* in pg_dist_node */
	const char *host;
	int32		port;
} DmlPlace;

/* A shard or a leaf, with what is needed to write to it. */
typedef struct DmlTarget
{
	const char *name;			/* as it is called there: with its schema, quoted */
	bool		local;
	DmlPlace	place;
} DmlTarget;

typedef struct DmlShard
{
	int64		id;
	int32		low;			/* hash: both inclusive */
	int32		high;
	Datum		least;			/* range: likewise */
	Datum		greatest;
	DmlTarget	target;
	bool		placed;			/* on exactly one node */
} DmlShard;

typedef enum DmlKind
{
	DML_CITUS_HASH,
	DML_CITUS_RANGE,
	DML_CITUS_SINGLE,			/* one shard, no key */
	DML_PARTITIONED
} DmlKind;

/* What is cached of a table. */
typedef struct DmlTable
{
	Oid			relid;
	bool		valid;			/* cleared by invalidations, at any moment */
	MemoryContext context;		/* this and all it points to */
	DmlKind		kind;
	bool		row_security;	/* of whomever: then check_enable_rls() knows */
	DmlKey		key;
	FmgrInfo	hash;			/* Citus: 32 bits; */
	FmgrInfo	compare;		/* range */
	uint32		colocation;
	int			nshards;
	DmlShard   *shards;			/* by low or least */
} DmlTable;

/* Settings of a session that change what a text means, and ours. */
typedef struct DmlSettings
{
	bool		known;
	int			date_style;
	int			date_order;
	int			interval_style;
	bool		conforming;
	int			lock_timeout;
	char		zone[256];
	char	   *path;			/* malloc'd; NULL: none yet */
} DmlSettings;

/* What a node is waited for to do at the end of a transaction. */
typedef enum DmlEnding
{
	DML_OPEN,
	DML_COMMITTING,
	DML_PREPARING,
	DML_PREPARED
} DmlEnding;

/*
 * A connection, of one user to one node. They stay until the backend ends; PGconn and events come and go.
 */
typedef struct DmlNode
{
	dlist_node	link;
	Oid			server;			/* these three say which */
	int32		nodeid;
	Oid			user;
	char		label[NAMEDATALEN + 300];	/* for messages */
	char		host[256];		/* of a Citus node when the connection was made */
	int32		port;
	char	   *conninfo;		/* of Citus' setting when the connection was made; malloc'd */
	PGconn	   *conn;			/* NULL: not connected */
	WaitEventSet *events;
	uint32		awaited;		/* of the socket */
	bool		stale;			/* to be made anew before the next transaction */
	int			level;			/* of the transaction there: 0 none, 1 begun, n with the savepoint s<n> */
	int			first_level;	/* in which it was begun */
	bool		busy;			/* an answer has not been read to its end */
	bool		sent;			/* and what it answers is on its way as a whole */
	bool		lost;			/* what this transaction has done there is gone */
	DmlEnding	ending;
	char		gid[DML_GID_SIZE];
	DmlSettings settings;
	int			settings_level; /* the subtransaction that made them, while `level` is not 0 */
	List	   *guards;			/* Citus: of shards written to in this transaction; DmlGuard, in TopTransactionContext */
} DmlNode;

/* A shard to be guarded on its node while it is prepared there. */
typedef struct DmlGuard
{
	Oid			relid;
	int64		shard;
} DmlGuard;

/* dml.c: settings */
extern int	dml_lock_timeout;

/* text.c */
extern DmlStatement dml_statement(const char *text);
extern const char *dml_statement_name(DmlStatement statement);
extern void dml_expand(StringInfo into, const char *text, const char *name);

/* key.c */
extern void dml_key_init(DmlKey *key, Relation rel, AttrNumber attnum);
extern Datum dml_key_value(DmlKey *key, Oid source, Datum value);

/* tables.c */
extern DmlTable *dml_table(Oid relid);
extern void dml_tables_init(void);
extern void dml_watch_catalog(Oid relid);

/* citus.c */
extern bool dml_citus_load(DmlTable *table, Relation rel);
extern DmlShard *dml_citus_shard(DmlTable *table, Datum value);
extern void dml_citus_lock(const DmlTable *table, const DmlShard *shard);
extern bool dml_citus_takes_part(void);
extern List *dml_citus_nodes(void);
extern char *dml_citus_authinfo(const char *role, int32 nodeid);
extern bool dml_citus_is_here(void);

/* partitions.c */
extern void dml_partitions_load(DmlTable *table, Relation rel);
extern const DmlTarget *dml_partition(DmlTable *table, Relation rel, Datum value);
extern void dml_leaves_invalidate(Oid relid);

/* nodes.c */
extern dlist_head dml_nodes;

#define for_each_dml_node(node) \
	dlist_iter	iter; \
	DmlNode    *node; \
	dlist_foreach(iter, &dml_nodes) \
		if ((node = dlist_container(DmlNode, link, iter.cur)) != NULL)

extern DmlNode *dml_node(const DmlPlace *place, Oid user);
extern void dml_connect(DmlNode *node, const DmlPlace *place);
extern void dml_disconnect(DmlNode *node);
extern void dml_nodes_invalidate(bool foreign);

/* wire.c */
typedef struct DmlFailure
{
	int			sqlstate;
	char	   *message;
	char	   *detail;
	char	   *hint;
	char	   *context;
} DmlFailure;

extern bool dml_wait(DmlNode *node, uint32 events, TimestampTz deadline, bool interruptible);
extern bool dml_flush(DmlNode *node);
extern PGresult *dml_result(DmlNode *node, TimestampTz deadline, bool interruptible, bool *timed_out);
extern PGresult *dml_pipeline(DmlNode *node, const char *const *texts, int n);
extern bool dml_drain(DmlNode *node, TimestampTz deadline, bool cancel, bool *succeeded);
extern bool dml_quietly(DmlNode *node, const char *text, TimestampTz deadline, DmlFailure *failure);
extern void dml_failure(DmlNode *node, PGresult *result, DmlFailure *failure);
extern void dml_report(DmlNode *node, const DmlFailure *failure, const char *shard) __attribute__((noreturn));

/* transaction.c */
extern uint64 dml_remote(const DmlPlace *place, const char *text, const char *shard, DmlStatement statement,
						 const DmlGuard *guard);
extern void dml_transaction_init(void);

/* twophase.c */
extern void dml_prepare(int nwritten);
extern void dml_commit_prepared(void);
extern void dml_finish_text(char *text, Size size, const char *gid, bool commit);
typedef struct DmlRecord
{
	char	   *gid;
	Oid			server;
	int32		nodeid;
} DmlRecord;
extern List *dml_records(void);
extern bool dml_recorded(const char *gid);
extern void dml_forget_record(const char *gid);

#endif							/* INRUSH_DML_H */
