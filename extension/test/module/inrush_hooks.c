/*
 * inrush_hooks.c
 *	  For tests only: a library with hooks, as extensions that watch statements have them. It says what it is asked.
 *
 * With inrush_hooks.audits on when it is loaded it has pgaudit's setting too, by which inrush knows pgaudit.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static bool audits = false;
static bool refuses = false;
static char *audit_log = NULL;
static ProcessUtility_hook_type next_utility = NULL;
static ExecutorCheckPerms_hook_type next_permissions = NULL;

static void
watch_utility(PlannedStmt *planned, const char *text, bool read_only_tree, ProcessUtilityContext context,
			  ParamListInfo params, QueryEnvironment *environment, DestReceiver *destination,
			  QueryCompletion *completion)
{
	bool		copy = IsA(planned->utilityStmt, CopyStmt);

	if (copy)
		ereport(NOTICE, (errmsg("utility hook: COPY")));
	if (next_utility != NULL)
		next_utility(planned, text, read_only_tree, context, params, environment, destination, completion);
	else
		standard_ProcessUtility(planned, text, read_only_tree, context, params, environment, destination, completion);
	if (copy)
		ereport(NOTICE, (errmsg("utility hook: %llu rows", completion != NULL ?
								(unsigned long long) completion->nprocessed : 0)));
}

static void
say_permissions(Oid relid, AclMode required, bool raise)
{
	if (required & ACL_INSERT)
		ereport(NOTICE, (errmsg("permissions hook: INSERT into %s", get_rel_name(relid))));
	/* The hook raises the error: where it is wanted, nobody looks at what it returns. */
	if (refuses && raise)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permissions hook: refused")));
}

#if PG_VERSION_NUM >= 160000
static bool
watch_permissions(List *range_table, List *permissions, bool raise)
{
	ListCell   *cell;

	foreach(cell, permissions)
		say_permissions(lfirst_node(RTEPermissionInfo, cell)->relid, lfirst_node(RTEPermissionInfo, cell)->requiredPerms,
						raise);
	return !refuses && (next_permissions == NULL || next_permissions(range_table, permissions, raise));
}
#else
static bool
watch_permissions(List *range_table, bool raise)
{
	ListCell   *cell;

	foreach(cell, range_table)
		say_permissions(lfirst_node(RangeTblEntry, cell)->relid, lfirst_node(RangeTblEntry, cell)->requiredPerms,
						raise);
	return !refuses && (next_permissions == NULL || next_permissions(range_table, raise));
}
#endif

void
_PG_init(void)
{
	DefineCustomBoolVariable("inrush_hooks.audits", "Has pgaudit's setting.", NULL, &audits, false, PGC_SUSET, 0, NULL,
							 NULL, NULL);
	DefineCustomBoolVariable("inrush_hooks.refuses", "Nobody may do anything.", NULL, &refuses, false, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	if (audits)
		DefineCustomStringVariable("pgaudit.log", "Nothing is logged.", NULL, &audit_log, "none", PGC_SUSET, 0, NULL,
								   NULL, NULL);
	next_utility = ProcessUtility_hook;
	ProcessUtility_hook = watch_utility;
	next_permissions = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = watch_permissions;
}
