/*
 * append.c
 *	  Rows into the heap, a block at a time.
 *
 * Most fill whole pages (pages.c). What is left goes through heap_multi_insert(): rows that need TOAST, the rows
 * behind the last full page, temporary tables.
 */
#include "inrush.h"

#include "access/detoast.h"
#include "access/heapam.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* Rows that go through heap_multi_insert() in one go, and then into the indexes. */
#define MAX_ROWS 2048
/* Bytes of formed rows in memory; a single row may have more. */
#define MAX_FORMED (8 * 1024 * 1024)

struct InrushAppend
{
	InrushLoad *load;
	InrushForm *form;
	InrushIndexes *indexes;
	InrushPages *pages;			/* NULL if nothing is to be written that way */
	CommandId	cid;
	BulkInsertState bulk;
	bool		may_stay_long;		/* rows may be too long for a page even after TOAST */
	MemoryContext scratch;		/* heap_multi_insert() leaves what it allocates */

	/* Rows for heap_multi_insert(). */
	int			ntuples;
	HeapTuple	tuples[MAX_ROWS];
	uint64		lines[MAX_ROWS];
	TupleTableSlot *slots[MAX_ROWS];
	int			nslots;			/* made so far */
};

/*
 * Whether TOAST may leave a row too long for a page: it moves values out only where they are longer than what it leaves
 * behind, and those of storage "plain" never.
 */
static bool
may_stay_long(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Size		length = MAXALIGN(SizeofHeapTupleHeader + BITMAPLEN(desc->natts));

	if (!OidIsValid(rel->rd_rel->reltoastrelid))
		return true;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		if (att->attlen < 0 && att->attstorage == TYPSTORAGE_PLAIN)
			return true;
		/* What is no longer than an aligned pointer stays (toast_helper.c), with padding before it. */
		length += MAXALIGN(att->attlen < 0 ? MAXALIGN(TOAST_POINTER_SIZE) + MAXIMUM_ALIGNOF : att->attlen);
	}
	return length > MaxHeapTupleSize;
}

InrushAppend *
inrush_append_begin(InrushLoad *load)
{
	InrushAppend *append = palloc0(sizeof(InrushAppend));

	append->load = load;
	append->form = inrush_form_begin(load);
	append->indexes = inrush_indexes_begin(load);
	append->cid = GetCurrentCommandId(true);
	append->bulk = GetBulkInsertState();
	append->may_stay_long = may_stay_long(load->rel);
	append->scratch = AllocSetContextCreate(CurrentMemoryContext, "inrush append", ALLOCSET_DEFAULT_SIZES);
	if (inrush_whole_pages && inrush_pages_suit(load->rel))
		append->pages = inrush_pages_begin(load, append->indexes, append->cid);
	return append;
}

/* Writes and indexes what has been collected for heap_multi_insert(). */
static void
write_tuples(InrushAppend *append)
{
	InrushLoad *load = append->load;
	MemoryContext old;

	if (append->ntuples == 0)
		return;
	CHECK_FOR_INTERRUPTS();
	old = MemoryContextSwitchTo(load->estate->es_query_cxt);
	while (append->nslots < append->ntuples)
		append->slots[append->nslots++] = MakeSingleTupleTableSlot(load->layout->desc, &TTSOpsHeapTuple);
	/* The slot owns its tuple: one that it does not own it would copy before the heap gets it. */
	for (int i = 0; i < append->ntuples; i++)
		ExecStoreHeapTuple(append->tuples[i], append->slots[i], true);
	MemoryContextSwitchTo(append->scratch);
	heap_multi_insert(load->rel, append->slots, append->ntuples, append->cid, 0, append->bulk);
	MemoryContextSwitchTo(old);
	MemoryContextReset(append->scratch);

	inrush_indexes_insert(append->indexes, append->slots, append->lines, append->ntuples);
	for (int i = 0; i < append->ntuples; i++)
		ExecClearTuple(append->slots[i]);
	append->ntuples = 0;
}

/* A row that was formed, as pages take rows. */
static InrushRow
row_of_tuple(HeapTuple tuple)
{
	HeapTupleHeader header = tuple->t_data;
	InrushRow	row;

	row.frame = NULL;
	row.data = (char *) header + SizeofHeapTupleHeader;
	row.length = tuple->t_len - SizeofHeapTupleHeader;
	row.natts = HeapTupleHeaderGetNatts(header);
	row.infomask = (header->t_infomask & (HEAP_HASNULL | HEAP_HASVARWIDTH)) | HEAP_XMAX_INVALID;
	row.hoff = header->t_hoff;
	return row;
}

/* Whether the row may go onto a page as it is: else the heap has to compress it, or move values out of line. */
static bool
fits_page(const InrushAppend *append, uint32 length)
{
	return append->pages != NULL && SizeofHeapTupleHeader + length <= TOAST_TUPLE_THRESHOLD;
}

/* Gives memory back that formed rows took: what has been taken by a page is copied, the rest is written. */
static void
free_formed(InrushAppend *append)
{
	write_tuples(append);
	ResetPerTupleExprContext(append->load->estate);
}

/*
 * The rows of a verified block. Those that are formed here are checked one after the other, as COPY does it: a few
 * bytes of a frame may become many, by a default or a receive function.
 */
void
inrush_append_block(InrushAppend *append, InrushBlock *block)
{
	InrushLoad *load = append->load;
	MemoryContext formed = GetPerTupleMemoryContext(load->estate);
	MemoryContext old = MemoryContextSwitchTo(formed);
	bool		all = inrush_form_needed(append->form);
	InrushRow	row;

	while (inrush_take_row(block, &row))
	{
		uint64		line = load->rows + block->taken;
		HeapTuple	tuple;

		if (!all && fits_page(append, row.length))
		{
			inrush_pages_take(append->pages, &row, line);
			continue;
		}
		load->line = line;
		tuple = inrush_form_row(append->form, &row);
		load->line = 0;
		if (fits_page(append, tuple->t_len - SizeofHeapTupleHeader))
		{
			InrushRow	again = row_of_tuple(tuple);

			inrush_pages_take(append->pages, &again, line);
		}
		else
		{
			bool		alone = append->may_stay_long && tuple->t_len > MaxHeapTupleSize;

			/* By itself, so that the error says which row it was. */
			if (alone)
				write_tuples(append);
			append->lines[append->ntuples] = line;
			append->tuples[append->ntuples++] = tuple;
			if (alone)
			{
				load->line = line;
				write_tuples(append);
				load->line = 0;
			}
		}
		if (append->ntuples == MAX_ROWS)
			write_tuples(append);
		if (MemoryContextMemAllocated(formed, false) > MAX_FORMED)
			free_formed(append);
	}
	free_formed(append);
	if (append->pages != NULL)
		inrush_pages_end_block(append->pages);
	load->line = 0;
	MemoryContextSwitchTo(old);
}

/* The rows behind the last full page. */
static void
write_tail(InrushAppend *append)
{
	MemoryContext old = MemoryContextSwitchTo(GetPerTupleMemoryContext(append->load->estate));

	StaticAssertStmt(MAX_ROWS >= MaxHeapTuplesPerPage, "the rows of a page are written in one go");
	append->ntuples = inrush_pages_tail(append->pages, append->tuples, append->lines);
	write_tuples(append);
	append->load->line = 0;
	MemoryContextSwitchTo(old);
}

void
inrush_append_end(InrushAppend *append)
{
	if (append->pages != NULL)
	{
		write_tail(append);
		inrush_pages_end(append->pages);
	}
	inrush_indexes_end(append->indexes);
	inrush_form_end(append->form);
	FreeBulkInsertState(append->bulk);
	for (int i = 0; i < append->nslots; i++)
		ExecDropSingleTupleTableSlot(append->slots[i]);
	MemoryContextDelete(append->scratch);
}
