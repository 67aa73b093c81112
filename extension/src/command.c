/*
 * command.c
 *	  COPY ... FROM STDIN (FORMAT inrush), from the parser's tree to the last block.
 *
 * The library is loaded by the first call of one of its functions, or by shared_preload_libraries. From then on its
 * hook sees the session's utility statements and hands on all but this one.
 */
#include "inrush.h"

#include "access/table.h"
#include "access/xact.h"
#include "commands/copy.h"
#include "commands/defrem.h"
#include "commands/progress.h"
#include "executor/executor.h"
#include "libpq/libpq.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "tcop/cmdtag.h"
#include "tcop/dest.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

bool		inrush_whole_pages = true;
bool		inrush_ring = false;

static ProcessUtility_hook_type next_hook = NULL;
static bool below_others = false;

/* Whether a COPY is ours: its last option "format" says inrush. COPY itself raises an error if there are several. */
static bool
is_ours(const CopyStmt *statement)
{
	ListCell   *cell;
	bool		ours = false;

	foreach(cell, statement->options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "format") == 0 && option->arg != NULL && IsA(option->arg, String))
			ours = strcmp(strVal(option->arg), "inrush") == 0;
	}
	return ours && statement->relation != NULL;
}

/* What COPY can do and this format cannot. */
static void
check_statement(const CopyStmt *statement, ParseState *pstate)
{
	if (!statement->is_from)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("COPY TO does not support FORMAT inrush")));
	if (statement->filename != NULL || statement->is_program || whereToSendOutput != DestRemote)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("FORMAT inrush needs COPY FROM STDIN")));
	if (statement->whereClause != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("FORMAT inrush does not support WHERE")));
	if (list_length(statement->options) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("FORMAT inrush has no other options"),
				 parser_errposition(pstate, ((DefElem *) lsecond(statement->options))->location)));
}

/* Where in the stream an error happened, as COPY says it. */
static void
error_context(void *arg)
{
	const InrushLoad *load = arg;
	const char *name = RelationGetRelationName(load->rel);

	if (load->line > 0 && load->column > 0)
		errcontext("COPY %s, line %llu, column %s", name, (unsigned long long) load->line,
				   load->layout->columns[load->column - 1].name);
	else if (load->line > 0)
		errcontext("COPY %s, line %llu", name, (unsigned long long) load->line);
	else if (load->blocks > 0)
		errcontext("COPY %s, block %llu, after line %llu", name, (unsigned long long) load->blocks,
				   (unsigned long long) load->rows);
	else
		errcontext("COPY %s", name);
}

/* The permissions of an INSERT into these columns, through the executor and its hooks (copy.c, DoCopy). */
static void
check_permissions(ParseState *pstate, Relation rel, const List *attnums)
{
	ParseNamespaceItem *item = addRangeTableEntryForRelation(pstate, rel, RowExclusiveLock, NULL, false, false);
	CompatPermissions *permissions = compat_permissions(item);
	ListCell   *cell;

	permissions->requiredPerms = ACL_INSERT;
	foreach(cell, attnums)
		permissions->insertedCols = bms_add_member(permissions->insertedCols,
												   lfirst_int(cell) - FirstLowInvalidHeapAttributeNumber);
	compat_check_permissions(pstate, permissions);
}

static void
refuse(const char *name, const char *code, const char *detail)
{
	if (code != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" does not take FORMAT inrush", name),
				 errdetail("%s: %s.", code, detail),
				 errhint("Use COPY with another format.")));
}

/* Locks the table, looks whether it qualifies, and makes ready for rows. */
static void
begin_load(InrushLoad *load, const CopyStmt *statement, ParseState *pstate, List **attnums)
{
	const char *code;
	char	   *detail = NULL;

	/* Before others' hooks are called: pgaudit's for permissions needs what its own for utility statements has seen. */
	code = inrush_audit_refusal(&detail);
	refuse(statement->relation->relname, code, detail);
	load->rel = table_openrv(statement->relation, RowExclusiveLock);
	/* DoCopy looks at permissions before it looks at the columns' names. */
	*attnums = CopyGetAttnums(RelationGetDescr(load->rel), load->rel, statement->attlist);
	check_permissions(pstate, load->rel, *attnums);
	if (XactReadOnly && !load->rel->rd_islocaltemp)
		PreventCommandIfReadOnly("COPY FROM");

	load->layout = inrush_layout(load->rel, *attnums);
	code = inrush_refusal(load->rel, load->layout, &detail);
	refuse(RelationGetRelationName(load->rel), code, detail);

	load->estate = CreateExecutorState();
	compat_init_range_table(load->estate, pstate);
	load->target = makeNode(ResultRelInfo);
	ExecInitResultRelation(load->estate, load->target, 1);
	compat_check_target(load->target);
	load->context = GetPerTupleExprContext(load->estate);
}

/* The statement. Returns the number of rows. */
static uint64
copy_from(const CopyStmt *statement, ParseState *pstate)
{
	InrushLoad	load = {0};
	InrushStream stream;
	InrushBlock block = {0};
	InrushAppend *append;
	List	   *attnums;
	ErrorContextCallback context;
	MemoryContext old;
	const int	progress[] = {PROGRESS_COPY_COMMAND, PROGRESS_COPY_TYPE};
	const int64 progress_values[] = {PROGRESS_COPY_COMMAND_FROM, PROGRESS_COPY_TYPE_PIPE};

	check_statement(statement, pstate);
	PreventCommandIfParallelMode("COPY FROM");
	PreventCommandDuringRecovery("COPY FROM");
	begin_load(&load, statement, pstate, &attnums);

	pgstat_progress_start_command(PROGRESS_COMMAND_COPY, RelationGetRelid(load.rel));
	pgstat_progress_update_multi_param(2, progress, progress_values);

	context.callback = error_context;
	context.arg = &load;
	context.previous = error_context_stack;
	error_context_stack = &context;

	old = MemoryContextSwitchTo(load.estate->es_query_cxt);
	append = inrush_append_begin(&load);
	inrush_stream_begin(&stream, list_length(attnums));
	while (inrush_next_block(&load, &stream, &block))
	{
		inrush_append_block(append, &block);
		load.rows += block.nrows;
		pgstat_progress_update_param(PROGRESS_COPY_TUPLES_PROCESSED, load.rows);
	}
	inrush_append_end(append);
	MemoryContextSwitchTo(old);

	error_context_stack = context.previous;
	ExecResetTupleTable(load.estate->es_tupleTable, false);
	ExecCloseResultRelations(load.estate);
	ExecCloseRangeTableRelations(load.estate);
	FreeExecutorState(load.estate);
	pgstat_progress_end_command();
	/* The lock is kept until the transaction ends. */
	table_close(load.rel, NoLock);
	return load.rows;
}

static void
process_utility(PlannedStmt *planned, const char *text, bool read_only_tree, ProcessUtilityContext context,
				ParamListInfo params, QueryEnvironment *environment, DestReceiver *destination,
				QueryCompletion *completion)
{
	if (IsA(planned->utilityStmt, CopyStmt) && is_ours((CopyStmt *) planned->utilityStmt))
	{
		ParseState *pstate = make_parsestate(NULL);
		uint64		rows;

		pstate->p_sourcetext = text;
		rows = copy_from((CopyStmt *) planned->utilityStmt, pstate);
		free_parsestate(pstate);
		if (completion != NULL)
			SetQueryCompletion(completion, CMDTAG_COPY, rows);
		return;
	}
	if (next_hook != NULL)
		next_hook(planned, text, read_only_tree, context, params, environment, destination, completion);
	else
		standard_ProcessUtility(planned, text, read_only_tree, context, params, environment, destination, completion);
}

bool
inrush_is_below_others(void)
{
	return below_others;
}

void
_PG_init(void)
{
	DefineCustomBoolVariable("inrush.whole_pages",
							 "Writes rows of FORMAT inrush as whole pages where they fill some.",
							 "Off: all go through heap_multi_insert(), as those of COPY.",
							 &inrush_whole_pages, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("inrush.ring",
							 "Whole pages go through a ring of 16 MB of shared buffers, as COPY's do.",
							 NULL,
							 &inrush_ring, false, PGC_USERSET, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("inrush");
	/* First in shared_preload_libraries: hooks that are installed later are called first. */
	below_others = process_shared_preload_libraries_in_progress && ProcessUtility_hook == NULL;
	next_hook = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}

PG_FUNCTION_INFO_V1(inrush_version);

/* inrush.version(): of the format, for clients that ask before they plan. */
Datum
inrush_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(INRUSH_FORMAT_VERSION);
}
