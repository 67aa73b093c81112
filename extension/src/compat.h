/*
 * compat.h
 *	  What differs between PostgreSQL 15, 16, 17 and 18. Nothing else asks for a version.
 */
#ifndef INRUSH_COMPAT_H
#define INRUSH_COMPAT_H

#include "postgres.h"

#include "access/brin_revmap.h"
#include "executor/executor.h"
#include "libpq/libpq.h"
#include "nodes/parsenodes.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "inrush is for PostgreSQL 15 to 18"
#endif

/* 16 has moved permissions from range table entries to lists of their own. */
#if PG_VERSION_NUM >= 160000
typedef RTEPermissionInfo CompatPermissions;
#define compat_permissions(nsitem) ((nsitem)->p_perminfo)
#define compat_check_permissions(pstate, perms) \
	ExecCheckPermissions((pstate)->p_rtable, list_make1(perms), true)
#else
typedef RangeTblEntry CompatPermissions;
#define compat_permissions(nsitem) ((nsitem)->p_rte)
#define compat_check_permissions(pstate, perms) \
	ExecCheckRTPerms((pstate)->p_rtable, true)
#endif

static inline void
compat_init_range_table(EState *estate, ParseState *pstate)
{
#if PG_VERSION_NUM >= 180000
	ExecInitRangeTable(estate, pstate->p_rtable, pstate->p_rteperminfos, bms_make_singleton(1));
#elif PG_VERSION_NUM >= 160000
	ExecInitRangeTable(estate, pstate->p_rtable, pstate->p_rteperminfos);
#else
	ExecInitRangeTable(estate, pstate->p_rtable);
#endif
}

/* 16 can leave all but summarizing indexes out. */
#if PG_VERSION_NUM >= 160000
#define compat_insert_index_tuples(target, slot, estate) \
	ExecInsertIndexTuples(target, slot, estate, false, false, NULL, NIL, false)
#else
#define compat_insert_index_tuples(target, slot, estate) \
	ExecInsertIndexTuples(target, slot, estate, false, false, NULL, NIL)
#endif

/* BRIN: 15 and 16 want a snapshot, for old_snapshot_threshold. 17 collects what inserts leave open. */
#if PG_VERSION_NUM >= 170000
#define compat_revmap_begin(index, pages) brinRevmapInitialize(index, pages)
#define compat_brin_tuple(revmap, block, buffer, offset, size) \
	brinGetTupleForHeapBlock(revmap, block, buffer, offset, size, BUFFER_LOCK_SHARE)
#else
#define compat_revmap_begin(index, pages) brinRevmapInitialize(index, pages, NULL)
#define compat_brin_tuple(revmap, block, buffer, offset, size) \
	brinGetTupleForHeapBlock(revmap, block, buffer, offset, size, BUFFER_LOCK_SHARE, NULL)
#endif

/* A descending key: 18 takes a flag, the others the strategy of the operator to sort by. */
#if PG_VERSION_NUM >= 180000
#define compat_prepare_sort(index, descending, key) PrepareSortSupportFromIndexRel(index, descending, key)
#else
#define compat_prepare_sort(index, descending, key) \
	PrepareSortSupportFromIndexRel(index, (descending) ? BTGreaterStrategyNumber : BTLessStrategyNumber, key)
#endif

/* Raises an error where the relation is none to insert into. */
#if PG_VERSION_NUM >= 180000
#define compat_check_target(target) CheckValidResultRel(target, CMD_INSERT, ONCONFLICT_NONE, NIL)
#elif PG_VERSION_NUM >= 170000
#define compat_check_target(target) CheckValidResultRel(target, CMD_INSERT, NIL)
#else
#define compat_check_target(target) CheckValidResultRel(target, CMD_INSERT)
#endif

/* A copied descriptor remembers where attributes of the original begin: 18 forgets that by itself. */
static inline void
compat_forget_offsets(TupleDesc desc)
{
#if PG_VERSION_NUM < 180000
	for (int i = 0; i < desc->natts; i++)
		TupleDescAttr(desc, i)->attcacheoff = -1;
#endif
}

/*
 * Adds up to `wanted` blocks to a relation, pinned; returns how many it got, at least one. In 15 all are locked, and
 * their files have grown by one write each under the extension lock; from 16 on only the first is locked, and the
 * others may be found by somebody else meanwhile.
 */
static inline int
compat_extend(Relation rel, BufferAccessStrategy strategy, int wanted, Buffer *buffers)
{
#if PG_VERSION_NUM >= 160000
	uint32		got = 0;

	ExtendBufferedRelBy(BMR_REL(rel), MAIN_FORKNUM, strategy, EB_LOCK_FIRST, wanted, buffers, &got);
	return (int) got;
#else
	LockRelationForExtension(rel, ExclusiveLock);
	for (int i = 0; i < wanted; i++)
		buffers[i] = ReadBufferExtended(rel, MAIN_FORKNUM, P_NEW, RBM_ZERO_AND_LOCK, strategy);
	UnlockRelationForExtension(rel, ExclusiveLock);
	return wanted;
#endif
}

/* Locks the i-th of them, if it is not locked yet. */
static inline void
compat_lock_extended(Buffer *buffers, int i)
{
#if PG_VERSION_NUM >= 160000
	if (i > 0)
		LockBuffer(buffers[i], BUFFER_LOCK_EXCLUSIVE);
#endif
}

/* Whether bytes of the client lie in the buffer of pqcomm.c. */
#if PG_VERSION_NUM >= 170000
#define compat_has_buffered() (pq_buffer_remaining_data() > 0)
#else
#define compat_has_buffered() pq_buffer_has_data()
#endif

/* Generated columns that are computed when read: 18. */
#if PG_VERSION_NUM >= 180000
#define compat_has_virtual_columns(constr) ((constr)->has_generated_virtual)
#else
#define compat_has_virtual_columns(constr) false
#endif

#endif							/* INRUSH_COMPAT_H */
