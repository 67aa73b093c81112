/*
 * append.c
 *	  Rows into the heap, a block at a time: all of a block are formed and checked before the first is written.
 */
#include "inrush.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* Rows that are written, and then indexed, in one go. A block may have more of them. */
#define MAX_ROWS 2048

struct InrushAppend
{
	InrushLoad *load;
	InrushForm *form;
	InrushIndexes *indexes;
	CommandId	cid;
	BulkInsertState bulk;
	MemoryContext scratch;		/* heap_multi_insert() leaves what it allocates */
	HeapTuple  *tuples;
	int			capacity;
	TupleTableSlot *slots[MAX_ROWS];
	int			nslots;			/* made so far */
	uint64		rows[MAX_ROWS];	/* of the block, for messages */
};

InrushAppend *
inrush_append_begin(InrushLoad *load)
{
	InrushAppend *append = palloc0(sizeof(InrushAppend));

	append->load = load;
	append->form = inrush_form_begin(load);
	append->indexes = inrush_indexes_begin(load);
	append->cid = GetCurrentCommandId(true);
	append->bulk = GetBulkInsertState();
	append->scratch = AllocSetContextCreate(CurrentMemoryContext, "inrush append", ALLOCSET_DEFAULT_SIZES);
	return append;
}

/* Writes and indexes tuples; row numbers begin with `first`. */
static void
write_tuples(InrushAppend *append, HeapTuple *tuples, int ntuples, uint64 first)
{
	InrushLoad *load = append->load;
	MemoryContext old;

	for (int i = 0; i < ntuples; i++)
	{
		if (i == append->nslots)
		{
			old = MemoryContextSwitchTo(load->estate->es_query_cxt);
			append->slots[append->nslots++] = MakeSingleTupleTableSlot(load->layout->desc, &TTSOpsHeapTuple);
			MemoryContextSwitchTo(old);
		}
		/* The slot owns it: a tuple that it does not own it would copy before the heap gets it. */
		ExecStoreHeapTuple(tuples[i], append->slots[i], true);
		append->rows[i] = first + i;
	}
	old = MemoryContextSwitchTo(append->scratch);
	heap_multi_insert(load->rel, append->slots, ntuples, append->cid, 0, append->bulk);
	MemoryContextSwitchTo(old);
	MemoryContextReset(append->scratch);

	inrush_indexes_insert(append->indexes, append->slots, append->rows, ntuples);
	for (int i = 0; i < ntuples; i++)
		ExecClearTuple(append->slots[i]);
}

/*
 * The rows of a verified block. Nothing has been written if this raises an error of a value or a CHECK.
 */
void
inrush_append_block(InrushAppend *append, const InrushBlock *block)
{
	InrushLoad *load = append->load;
	MemoryContext old;

	ResetPerTupleExprContext(load->estate);
	old = MemoryContextSwitchTo(GetPerTupleMemoryContext(load->estate));
	if (block->nrows > append->capacity)
	{
		if (append->tuples != NULL)
			pfree(append->tuples);
		append->capacity = block->nrows;
		append->tuples = MemoryContextAlloc(load->estate->es_query_cxt, sizeof(HeapTuple) * append->capacity);
	}
	for (int i = 0; i < block->nrows; i++)
	{
		load->row = i + 1;
		append->tuples[i] = inrush_form_row(append->form, &block->rows[i]);
	}
	load->row = 0;
	for (int done = 0; done < block->nrows; done += MAX_ROWS)
	{
		CHECK_FOR_INTERRUPTS();
		write_tuples(append, append->tuples + done, Min(block->nrows - done, MAX_ROWS), done + 1);
	}
	load->row = 0;
	MemoryContextSwitchTo(old);
}

void
inrush_append_end(InrushAppend *append)
{
	inrush_indexes_end(append->indexes);
	inrush_form_end(append->form);
	FreeBulkInsertState(append->bulk);
	for (int i = 0; i < append->nslots; i++)
		ExecDropSingleTupleTableSlot(append->slots[i]);
	MemoryContextDelete(append->scratch);
}
