/*
 * index.c
 *	  Rows that are in the heap, into its indexes, one index at a time.
 *
 * btree gets them in key order: neighbours go to the same leaf page. BRIN gets them only where a range has a summary.
 * The rest, and whatever has an exclusion constraint, goes through the executor.
 */
#include "inrush.h"

#include "access/brin.h"
#include "access/brin_revmap.h"
#include "access/genam.h"
#include "access/nbtree.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "executor/executor.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/sortsupport.h"

typedef enum IndexWay
{
	WAY_SORTED,
	WAY_BRIN,
	WAY_EXECUTOR
} IndexWay;

/* A row's key for one index; the nulls follow the values. */
typedef struct IndexEntry
{
	TupleTableSlot *slot;
	uint64		line;
	bool	   *nulls;
	Datum		values[FLEXIBLE_ARRAY_MEMBER];
} IndexEntry;

typedef struct TargetIndex
{
	Relation	rel;
	IndexInfo  *info;
	IndexWay	way;
	ExprState  *predicate;
	int			nkeys;
	SortSupport keys;			/* WAY_SORTED */
} TargetIndex;

struct InrushIndexes
{
	InrushLoad *load;
	ResultRelInfo others;		/* the target with those that go through the executor */
	int			count;
	TargetIndex *list;
	IndexEntry **entries;
	int			capacity;
	MemoryContext scratch;
};

/* How to compare two keys of a btree: its own order (tuplesort.c, tuplesort_begin_index_btree). */
static void
prepare_sort(TargetIndex *index)
{
	index->nkeys = IndexRelationGetNumberOfKeyAttributes(index->rel);
	index->keys = palloc0(sizeof(SortSupportData) * index->nkeys);
	for (int i = 0; i < index->nkeys; i++)
	{
		SortSupport key = &index->keys[i];
		int16		option = index->rel->rd_indoption[i];

		key->ssup_cxt = CurrentMemoryContext;
		key->ssup_collation = index->rel->rd_indcollation[i];
		key->ssup_nulls_first = (option & INDOPTION_NULLS_FIRST) != 0;
		key->ssup_attno = i + 1;
		compat_prepare_sort(index->rel, (option & INDOPTION_DESC) != 0, key);
	}
}

InrushIndexes *
inrush_indexes_begin(InrushLoad *load)
{
	InrushIndexes *indexes = palloc0(sizeof(InrushIndexes));
	ResultRelInfo *target = load->target;
	int			nothers = 0;

	/* Opened under the table's lock: an index made CONCURRENTLY from now on waits for this transaction. */
	ExecOpenIndices(target, false);
	indexes->load = load;
	indexes->others = *target;
	indexes->others.ri_IndexRelationDescs = palloc0(sizeof(Relation) * Max(target->ri_NumIndices, 1));
	indexes->others.ri_IndexRelationInfo = palloc0(sizeof(IndexInfo *) * Max(target->ri_NumIndices, 1));
	indexes->list = palloc0(sizeof(TargetIndex) * Max(target->ri_NumIndices, 1));
	indexes->scratch = AllocSetContextCreate(CurrentMemoryContext, "inrush indexes", ALLOCSET_DEFAULT_SIZES);

	for (int i = 0; i < target->ri_NumIndices; i++)
	{
		TargetIndex *index = &indexes->list[indexes->count];

		index->rel = target->ri_IndexRelationDescs[i];
		index->info = target->ri_IndexRelationInfo[i];
		if (!index->info->ii_ReadyForInserts)
			continue;
		if (index->rel->rd_rel->relam == BTREE_AM_OID && index->info->ii_ExclusionOps == NULL &&
			index->rel->rd_index->indimmediate)
		{
			index->way = WAY_SORTED;
			prepare_sort(index);
		}
		else if (index->rel->rd_rel->relam == BRIN_AM_OID)
			index->way = WAY_BRIN;
		else
		{
			indexes->others.ri_IndexRelationDescs[nothers] = index->rel;
			indexes->others.ri_IndexRelationInfo[nothers] = index->info;
			nothers++;
			continue;
		}
		index->predicate = ExecPrepareQual(index->info->ii_Predicate, load->estate);
		indexes->count++;
	}
	indexes->others.ri_NumIndices = nothers;
	return indexes;
}


static int
compare_entries(const void *a, const void *b, void *arg)
{
	const IndexEntry *left = *(IndexEntry *const *) a;
	const IndexEntry *right = *(IndexEntry *const *) b;
	const TargetIndex *index = arg;

	for (int i = 0; i < index->nkeys; i++)
	{
		int			order = ApplySortComparator(left->values[i], left->nulls[i], right->values[i], right->nulls[i],
												&index->keys[i]);

		if (order != 0)
			return order;
	}
	/* Equal keys in the order of the heap: nbtree keeps them by TID. */
	return ItemPointerCompare(&left->slot->tts_tid, &right->slot->tts_tid);
}

/* Whether the row belongs into a partial index. */
static bool
qualifies(InrushLoad *load, const TargetIndex *index, TupleTableSlot *slot)
{
	load->context->ecxt_scantuple = slot;
	return index->predicate == NULL || ExecQual(index->predicate, load->context);
}

static void
insert_sorted(InrushIndexes *indexes, TargetIndex *index, TupleTableSlot **slots, const uint64 *lines, int nslots)
{
	InrushLoad *load = indexes->load;
	int			nvalues = index->info->ii_NumIndexAttrs;
	Size		entry_size = MAXALIGN(offsetof(IndexEntry, values) + nvalues * (sizeof(Datum) + sizeof(bool)));
	char	   *memory = palloc(entry_size * nslots);
	int			nentries = 0;

	for (int i = 0; i < nslots; i++)
	{
		IndexEntry *entry;

		load->line = lines[i];
		if (!qualifies(load, index, slots[i]))
			continue;
		entry = (IndexEntry *) (memory + entry_size * nentries);
		entry->nulls = (bool *) &entry->values[nvalues];
		FormIndexDatum(index->info, slots[i], load->estate, entry->values, entry->nulls);
		entry->slot = slots[i];
		entry->line = lines[i];
		indexes->entries[nentries++] = entry;
	}
	qsort_arg(indexes->entries, nentries, sizeof(IndexEntry *), compare_entries, index);
	for (int i = 0; i < nentries; i++)
	{
		IndexEntry *entry = indexes->entries[i];

		load->line = entry->line;
		(void) index_insert(index->rel, entry->values, entry->nulls, &entry->slot->tts_tid, load->rel,
							index->rel->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, index->info);
	}
}

/* Whether the range that a heap page is in has a summary: only then has a row to be entered. */
static bool
is_summarised(BrinRevmap *revmap, BlockNumber block)
{
	Buffer		buffer = InvalidBuffer;
	OffsetNumber offset;
	Size		size;
	bool		found = compat_brin_tuple(revmap, block, &buffer, &offset, &size) != NULL;

	if (found)
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	if (BufferIsValid(buffer))
		ReleaseBuffer(buffer);
	return found;
}

/* Whether a row of a heap page, its first or another, has to be entered into the BRIN index. */
static bool
brin_wants(const TargetIndex *index, BrinRevmap *revmap, BlockNumber pages, BlockNumber block)
{
	/* The first row of a range asks for a summary of the one before. */
	return (block % pages == 0 && BrinGetAutoSummarize(index->rel)) || is_summarised(revmap, block / pages * pages);
}

/*
 * Whether rows on these pages, which have been written, go into an index at all. If all indexes are BRIN, most do not.
 */
bool
inrush_indexes_want(const InrushIndexes *indexes, const BlockNumber *blocks, int nblocks)
{
	bool		wanted = indexes->others.ri_NumIndices > 0;

	for (int i = 0; i < indexes->count && !wanted; i++)
	{
		const TargetIndex *index = &indexes->list[i];
		BlockNumber pages;
		BrinRevmap *revmap;
		BlockNumber range = InvalidBlockNumber;

		if (index->way == WAY_SORTED)
			return true;
		revmap = compat_revmap_begin(index->rel, &pages);
		for (int j = 0; j < nblocks && !wanted; j++)
			if (blocks[j] / pages != range || blocks[j] % pages == 0)
			{
				range = blocks[j] / pages;
				wanted = brin_wants(index, revmap, pages, blocks[j]);
			}
		brinRevmapTerminate(revmap);
	}
	return wanted;
}

/*
 * The heap was written before the summary is looked for: a summary that is made meanwhile has seen the rows, or its
 * placeholder is found here (brin.c, brininsert and summarize_range).
 */
static void
insert_brin(InrushIndexes *indexes, TargetIndex *index, TupleTableSlot **slots, const uint64 *lines, int nslots)
{
	InrushLoad *load = indexes->load;
	BlockNumber pages;
	BrinRevmap *revmap = compat_revmap_begin(index->rel, &pages);
	BlockNumber page = InvalidBlockNumber;
	bool		wanted = false;

	for (int i = 0; i < nslots; i++)
	{
		BlockNumber block = ItemPointerGetBlockNumber(&slots[i]->tts_tid);
		Datum		values[INDEX_MAX_KEYS];
		bool		nulls[INDEX_MAX_KEYS];

		load->line = lines[i];
		if (block != page)
		{
			page = block;
			wanted = brin_wants(index, revmap, pages, block);
		}
		if (!wanted || !qualifies(load, index, slots[i]))
			continue;
		FormIndexDatum(index->info, slots[i], load->estate, values, nulls);
		(void) index_insert(index->rel, values, nulls, &slots[i]->tts_tid, load->rel, UNIQUE_CHECK_NO, false,
							index->info);
	}
	brinRevmapTerminate(revmap);
}

/*
 * Enters rows that were written: slots have their TIDs. `lines` are their numbers in the stream, for messages.
 */
void
inrush_indexes_insert(InrushIndexes *indexes, TupleTableSlot **slots, const uint64 *lines, int nslots)
{
	InrushLoad *load = indexes->load;
	MemoryContext old;

	if (indexes->count == 0 && indexes->others.ri_NumIndices == 0)
		return;
	if (nslots > indexes->capacity)
	{
		if (indexes->entries != NULL)
			pfree(indexes->entries);
		indexes->capacity = nslots;
		indexes->entries = MemoryContextAlloc(load->estate->es_query_cxt, sizeof(IndexEntry *) * nslots);
	}
	old = MemoryContextSwitchTo(indexes->scratch);
	for (int i = 0; i < indexes->count; i++)
	{
		TargetIndex *index = &indexes->list[i];

		if (index->way == WAY_SORTED)
			insert_sorted(indexes, index, slots, lines, nslots);
		else
			insert_brin(indexes, index, slots, lines, nslots);
		MemoryContextReset(indexes->scratch);
	}
	MemoryContextSwitchTo(old);
	for (int i = 0; indexes->others.ri_NumIndices > 0 && i < nslots; i++)
	{
		load->line = lines[i];
		(void) compat_insert_index_tuples(&indexes->others, slots[i], load->estate);
	}
	load->line = 0;
}

/* The indexes themselves are closed with the result relation. */
void
inrush_indexes_end(InrushIndexes *indexes)
{
	MemoryContextDelete(indexes->scratch);
}
