/*
 * pages.c
 *	  Rows onto whole pages: built privately, then put into blocks that this backend has just added to the relation, each
 *	  with the one WAL record that heap_multi_insert() writes for a page it begins with (heapam.c, hio.c).
 *
 * Redo, standbys, logical decoding and backups see nothing new. What has to hold, for whoever changes this:
 *
 *	- A block is written only under its exclusive lock, and only if it is still new: another backend may have found it
 *	  first (a VACUUM that entered it into the free space map, an INSERT that tries the last page).
 *	- The page, MarkBufferDirty(), the record and the LSN are one critical section, in which nothing allocates or fails.
 *	- The record and the page say the same: rows in order from line pointer 1 on, XLOG_HEAP_INIT_PAGE.
 *	- RelationNeedsWAL() decides about WAL, nobody else.
 *	- No visibility bits, no hint bits, no files behind the buffer manager's back.
 */
#include "inrush.h"

#include "access/heapam.h"
#include "access/heapam_xlog.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xloginsert.h"
#include "catalog/catalog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/predicate.h"
#include "utils/memutils.h"

/* From 16 on, a file grows by so many blocks without a write of zeros (md.c, mdzeroextend). */
#define WORTH_WRITING 9

typedef struct PrivatePage
{
	Page		page;
	int			nrows;
	uint64		lines[MaxHeapTuplesPerPage];	/* of the stream, for messages */
	/* The record's rows: where they lie in the block of the client, or a copy. */
	const char *wal;
	uint32		wal_length;
	char	   *copy;
	bool		copied;
} PrivatePage;

struct InrushPages
{
	InrushLoad *load;
	InrushIndexes *indexes;
	TransactionId xid;
	CommandId	cid;
	bool		needs_wal;
	bool		logical;
	Size		reserve;		/* bytes of a page that fillfactor keeps free */
	BufferAccessStrategy strategy;
	InrushPool *pool;
	int			full;			/* pages[full] is the one that is being filled */
	PrivatePage pages[INRUSH_GROUP_PAGES];

	/* For the indexes: the rows of a group. */
	HeapTupleData *tuples;
	TupleTableSlot **slots;
	uint64	   *lines;
	int			nslots;
};

/* Whether whole pages may be written into this relation; temporary ones go through heap_multi_insert(). */
bool
inrush_pages_suit(Relation rel)
{
	return !RelationUsesLocalBuffers(rel);
}

/* As PageInit(), but for the zeros: what no row takes is cleared when the page is full. */
static void
start_page(PrivatePage *page)
{
	PageHeader	header = (PageHeader) page->page;

	memset(header, 0, SizeOfPageHeaderData);
	header->pd_lower = SizeOfPageHeaderData;
	header->pd_upper = BLCKSZ;
	header->pd_special = BLCKSZ;
	PageSetPageSizeAndVersion(page->page, BLCKSZ, PG_PAGE_LAYOUT_VERSION);
	page->nrows = 0;
	page->wal = NULL;
	page->wal_length = 0;
	page->copied = false;
}

InrushPages *
inrush_pages_begin(InrushLoad *load, InrushIndexes *indexes, CommandId cid)
{
	InrushPages *pages = palloc0(sizeof(InrushPages));
	char	   *memory = palloc(2 * INRUSH_GROUP_PAGES * BLCKSZ);

	pages->load = load;
	pages->indexes = indexes;
	/* Before the first record, so that recovery knows whose rows these are. */
	pages->xid = GetCurrentTransactionId();
	pages->cid = cid;
	pages->needs_wal = RelationNeedsWAL(load->rel);
	pages->logical = RelationIsLogicallyLogged(load->rel);
	pages->reserve = RelationGetTargetPageFreeSpace(load->rel, HEAP_DEFAULT_FILLFACTOR);
	pages->strategy = inrush_ring ? GetAccessStrategy(BAS_BULKWRITE) : NULL;
	pages->pool = inrush_pool_begin();
	for (int i = 0; i < INRUSH_GROUP_PAGES; i++)
	{
		pages->pages[i].page = memory + (2 * i) * BLCKSZ;
		/* Rows take more room on the page than in the record. */
		pages->pages[i].copy = memory + (2 * i + 1) * BLCKSZ;
	}
	start_page(&pages->pages[0]);
	return pages;
}

/* Adds the row to the record of its page. */
static void
add_to_record(PrivatePage *page, const InrushRow *row)
{
	uint32		at = SHORTALIGN(page->wal_length);
	xl_multi_insert_tuple header;
	char	   *to = page->copy + at;

	if (!page->copied)
	{
		/* Frames lie one behind the other as a record has them. */
		if (row->frame != NULL && (page->wal == NULL || row->frame == page->wal + at))
		{
			if (page->wal == NULL)
				page->wal = row->frame;
			page->wal_length = (uint32) (row->data + row->length - page->wal);
			return;
		}
		if (page->wal_length > 0)
			memcpy(page->copy, page->wal, page->wal_length);
		page->wal = page->copy;
		page->copied = true;
	}
	if (at != page->wal_length)
		page->copy[page->wal_length] = 0;
	header.datalen = (uint16) row->length;
	header.t_infomask2 = row->natts;
	header.t_infomask = row->infomask;
	header.t_hoff = row->hoff;
	memcpy(to, &header, SizeOfMultiInsertTuple);
	memcpy(to + SizeOfMultiInsertTuple, row->data, row->length);
	page->wal_length = at + SizeOfMultiInsertTuple + row->length;
}

/* Copies the bytes of a row. Short ones in two moves of fixed size, that overlap: a call costs more than they do. */
static inline void
copy_row(char *to, const char *from, uint32 length)
{
	if (length >= 16 && length <= 32)
	{
		char		head[16];
		char		tail[16];

		memcpy(head, from, sizeof(head));
		memcpy(tail, from + length - sizeof(tail), sizeof(tail));
		memcpy(to, head, sizeof(head));
		memcpy(to + length - sizeof(tail), tail, sizeof(tail));
	}
	else
		memcpy(to, from, length);
}

/* The row as the next item of the page, which has room for it. */
static void
add_to_page(InrushPages *pages, PrivatePage *page, const InrushRow *row, uint64 line)
{
	PageHeader	header = (PageHeader) page->page;
	uint32		length = SizeofHeapTupleHeader + row->length;
	HeapTupleHeader tuple;

	/* What lies between two rows is shorter. */
	memset(page->page + header->pd_upper - MAXIMUM_ALIGNOF, 0, MAXIMUM_ALIGNOF);
	header->pd_upper -= MAXALIGN(length);
	tuple = (HeapTupleHeader) (page->page + header->pd_upper);
	/* The flags first: what sets the others looks at them. */
	tuple->t_infomask2 = row->natts;
	tuple->t_infomask = row->infomask;
	tuple->t_hoff = row->hoff;
	HeapTupleHeaderSetXmin(tuple, pages->xid);
	HeapTupleHeaderSetCmin(tuple, pages->cid);
	HeapTupleHeaderSetXmax(tuple, 0);
	copy_row((char *) tuple + SizeofHeapTupleHeader, row->data, row->length);
	ItemIdSetNormal(&header->pd_linp[page->nrows], header->pd_upper, length);
	header->pd_lower += sizeof(ItemIdData);
	page->lines[page->nrows++] = line;
	/* The block number is known when the block is. */
	ItemPointerSet(&tuple->t_ctid, 0, page->nrows);
	if (pages->needs_wal)
		add_to_record(page, row);
}

/* Writes one private page into a locked buffer. */
static void
write_page(InrushPages *pages, PrivatePage *page, Buffer buffer, bool last)
{
	BlockNumber block = BufferGetBlockNumber(buffer);
	PageHeader	header = (PageHeader) page->page;
	xl_heap_multi_insert record;

	for (int i = 0; i < page->nrows; i++)
	{
		HeapTupleHeader tuple = (HeapTupleHeader) PageGetItem(page->page, &header->pd_linp[i]);

		ItemPointerSetBlockNumber(&tuple->t_ctid, block);
	}
	memset(page->page + header->pd_lower, 0, header->pd_upper - header->pd_lower);

	START_CRIT_SECTION();
	memcpy(BufferGetPage(buffer), page->page, BLCKSZ);
	MarkBufferDirty(buffer);
	if (pages->needs_wal)
	{
		XLogRecPtr	position;

		record.flags = 0;
		record.ntuples = (uint16) page->nrows;
		if (pages->logical)
			record.flags |= XLH_INSERT_CONTAINS_NEW_TUPLE;
		/* Logical decoding forgets its TOAST chunks behind the last of a group. */
		if (last)
			record.flags |= XLH_INSERT_LAST_IN_MULTI;
		XLogBeginInsert();
		XLogRegisterData((char *) &record, SizeOfHeapMultiInsert);
		XLogRegisterBuffer(0, buffer, REGBUF_STANDARD | REGBUF_WILL_INIT | (pages->logical ? REGBUF_KEEP_DATA : 0));
		XLogRegisterBufData(0, unconstify(char *, page->wal), page->wal_length);
		XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN);
		position = XLogInsert(RM_HEAP2_ID, XLOG_HEAP2_MULTI_INSERT | XLOG_HEAP_INIT_PAGE);
		PageSetLSN(BufferGetPage(buffer), position);
	}
	END_CRIT_SECTION();
}

/* Enters the rows of the written pages into the indexes, from their private copies. */
static void
index_pages(InrushPages *pages, const BlockNumber *blocks)
{
	InrushLoad *load = pages->load;
	int			nrows = 0;

	if (!inrush_indexes_want(pages->indexes, blocks, pages->full))
		return;
	for (int i = 0; i < pages->full; i++)
		nrows += pages->pages[i].nrows;
	if (nrows > pages->nslots)
	{
		MemoryContext old = MemoryContextSwitchTo(load->estate->es_query_cxt);

		if (pages->nslots == 0)
		{
			pages->slots = palloc(sizeof(TupleTableSlot *) * nrows);
			pages->tuples = palloc(sizeof(HeapTupleData) * nrows);
			pages->lines = palloc(sizeof(uint64) * nrows);
		}
		else
		{
			pages->slots = repalloc(pages->slots, sizeof(TupleTableSlot *) * nrows);
			pages->tuples = repalloc(pages->tuples, sizeof(HeapTupleData) * nrows);
			pages->lines = repalloc(pages->lines, sizeof(uint64) * nrows);
		}
		while (pages->nslots < nrows)
			pages->slots[pages->nslots++] = MakeSingleTupleTableSlot(load->layout->desc, &TTSOpsHeapTuple);
		MemoryContextSwitchTo(old);
	}
	nrows = 0;
	for (int i = 0; i < pages->full; i++)
	{
		PrivatePage *page = &pages->pages[i];

		for (int j = 0; j < page->nrows; j++, nrows++)
		{
			ItemId		item = PageGetItemId(page->page, j + 1);
			HeapTuple	tuple = &pages->tuples[nrows];

			tuple->t_data = (HeapTupleHeader) PageGetItem(page->page, item);
			tuple->t_len = ItemIdGetLength(item);
			tuple->t_self = tuple->t_data->t_ctid;
			tuple->t_tableOid = RelationGetRelid(load->rel);
			ExecStoreHeapTuple(tuple, pages->slots[nrows], false);
			pages->lines[nrows] = page->lines[j];
		}
	}
	inrush_indexes_insert(pages->indexes, pages->slots, pages->lines, nrows);
	for (int i = 0; i < nrows; i++)
		ExecClearTuple(pages->slots[i]);
}

/* Writes the full pages. The one that is being filled, if there is one, becomes the first. */
static void
flush(InrushPages *pages)
{
	InrushLoad *load = pages->load;
	int			done = 0;
	int			nrows = 0;
	PrivatePage kept;
	BlockNumber blocks[INRUSH_GROUP_PAGES];

	if (pages->full == 0)
		return;
	CHECK_FOR_INTERRUPTS();
	CheckForSerializableConflictIn(load->rel, NULL, InvalidBlockNumber);
	while (done < pages->full)
	{
		Buffer		buffers[INRUSH_GROUP_PAGES];
		int			got = compat_extend(load->rel, pages->strategy, pages->full - done, buffers);

		/* Ascending, and no more than one lock at a time from here on. */
		for (int i = 0; i < got; i++)
		{
			inrush_pool_got(pages->pool, buffers[i]);
			compat_lock_extended(buffers, i);
			if (PageIsNew(BufferGetPage(buffers[i])))
			{
				PrivatePage *page = &pages->pages[done];

				blocks[done++] = BufferGetBlockNumber(buffers[i]);
				write_page(pages, page, buffers[i], done == pages->full);
				nrows += page->nrows;
			}
			UnlockReleaseBuffer(buffers[i]);
		}
	}
	/* As heap_multi_insert(): a reader may have come between. */
	CheckForSerializableConflictIn(load->rel, NULL, InvalidBlockNumber);
	pgstat_count_heap_insert(load->rel, nrows);
	index_pages(pages, blocks);

	if (pages->full < INRUSH_GROUP_PAGES)
	{
		kept = pages->pages[0];
		pages->pages[0] = pages->pages[pages->full];
		pages->pages[pages->full] = kept;
	}
	pages->full = 0;
}

/*
 * Takes a row that needs no TOAST. Its bytes are looked at again until the end of the block of the client.
 */
void
inrush_pages_take(InrushPages *pages, const InrushRow *row, uint64 line)
{
	PrivatePage *page = &pages->pages[pages->full];
	PageHeader	header = (PageHeader) page->page;
	Size		wanted = MAXALIGN(SizeofHeapTupleHeader + row->length) + sizeof(ItemIdData);

	Assert(SizeofHeapTupleHeader + row->length <= TOAST_TUPLE_THRESHOLD);
	if (page->nrows > 0 &&
		((Size) (header->pd_upper - header->pd_lower) < wanted + pages->reserve || page->nrows >= MaxHeapTuplesPerPage))
	{
		pages->full++;
		if (pages->full == INRUSH_GROUP_PAGES)
			flush(pages);
		page = &pages->pages[pages->full];
		start_page(page);
	}
	add_to_page(pages, page, row, line);
}

/*
 * The client's block is about to go, and with it what records would take from there. Enough full pages are written; few
 * cost more to write, file and all, than copies of what their records need.
 */
void
inrush_pages_end_block(InrushPages *pages)
{
	if (!pages->needs_wal)
		return;
	if (pages->full >= WORTH_WRITING)
		flush(pages);
	for (int i = 0; i <= pages->full; i++)
	{
		PrivatePage *page = &pages->pages[i];

		if (!page->copied && page->wal_length > 0)
			memcpy(page->copy, page->wal, page->wal_length);
		page->wal = page->copy;
		page->copied = true;
	}
}

/*
 * Writes what is full. The rows of the last page, which is not: for heap_multi_insert(), which finds room for them.
 * Their number; tuples are allocated one by one.
 */
int
inrush_pages_tail(InrushPages *pages, HeapTuple *tuples, uint64 *lines)
{
	PrivatePage *page;

	flush(pages);
	page = &pages->pages[0];
	for (int i = 0; i < page->nrows; i++)
	{
		ItemId		item = PageGetItemId(page->page, i + 1);
		HeapTupleData tuple;

		tuple.t_data = (HeapTupleHeader) PageGetItem(page->page, item);
		tuple.t_len = ItemIdGetLength(item);
		ItemPointerSetInvalid(&tuple.t_self);
		tuple.t_tableOid = RelationGetRelid(pages->load->rel);
		tuples[i] = heap_copytuple(&tuple);
		lines[i] = page->lines[i];
	}
	return page->nrows;
}

void
inrush_pages_end(InrushPages *pages)
{
	for (int i = 0; i < pages->nslots; i++)
		ExecDropSingleTupleTableSlot(pages->slots[i]);
	if (pages->strategy != NULL)
		FreeAccessStrategy(pages->strategy);
}
