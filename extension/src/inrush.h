/*
 * inrush.h
 *	  What the parts of the extension share. docs/format-inrush.md has the format they speak.
 *
 *	  command.c    takes COPY ... (FORMAT inrush), checks who may, drives the rest
 *	  qualify.c    which tables qualify, and why not
 *	  layout.c     columns, classes and fingerprint; inrush.plan()
 *	  stream.c     CopyData messages to blocks
 *	  verify.c     blocks to verified rows; datum.c: one value of one type
 *	  form.c       verified rows to tuples, where a column is received or filled in
 *	  append.c     rows into the heap, a block at a time
 *	  pages.c      those that fill whole pages
 *	  index.c      into the indexes
 *
 * Portions of this extension follow the calling sequences of PostgreSQL's own COPY (copyfrom.c), with which it
 * shares the license.
 */
#ifndef INRUSH_H
#define INRUSH_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "storage/block.h"
#include "storage/buf.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "parser/parse_node.h"
#include "utils/hsearch.h"
#include "utils/rel.h"

#include "compat.h"

#define INRUSH_FORMAT_VERSION 1
#define INRUSH_HEADER_SIZE 64
#define INRUSH_FRAME_HEADER 7
#define INRUSH_WIDE_HEADER 12
#define INRUSH_MAGIC "INRU"
/* A payload of several frames; one of a single frame ends before palloc does. */
#define INRUSH_MAX_PAYLOAD (1024 * 1024)
#define INRUSH_MAX_SINGLE ((uint32) 1024 * 1024 * 1024 - 64 * 1024)
#define INRUSH_FLAG_CRC 0x0001

/* How a column travels. */
typedef enum InrushClass
{
	INRUSH_DROPPED,
	INRUSH_NATIVE,				/* in its stored form, verified byte by byte */
	INRUSH_RECEIVE,				/* as the type's receive function reads it, in a varlena */
	INRUSH_REFUSE				/* not at all */
} InrushClass;

/* What a value of a native type must be; datum.c. */
typedef enum InrushCheck
{
	CHECK_NOTHING,				/* any bits are a value */
	CHECK_BOOL,
	CHECK_DATE,
	CHECK_TIMESTAMP,
	CHECK_TIME,
	CHECK_TIMETZ,
	CHECK_NAME,
	CHECK_TEXT,					/* text, varchar, bpchar */
	CHECK_NUMERIC,
	CHECK_ENUM,
	CHECK_BYTES					/* bytea, and what is to be received */
} InrushCheck;

typedef struct InrushColumn
{
	InrushClass class;
	bool		sent;			/* in the column list */
	bool		not_null;		/* and sent: a frame must have a value */
	bool		plain;			/* storage 'p': no short varlena */
	bool		free_text;		/* any text that is valid in the encoding is a value */
	uint8		align;			/* in the frame, in bytes */
	int16		length;			/* in the frame; -1 for a varlena */
	InrushCheck check;
	Oid			type;
	Oid			base;			/* under the domains */
	int32		typmod;			/* of the base type */
	bool		enumeration;
	int64		unit;			/* microseconds a time must be a multiple of; 1 for any */
	const char *name;

	/* Filled by form.c where it is needed. */
	FmgrInfo	receive;
	Oid			ioparam;
	ExprState  *fill;			/* default of a column that is not sent */
	void	   *domain;			/* domain_check()'s cache */
} InrushColumn;

typedef struct InrushLayout
{
	TupleDesc	desc;
	int			natts;
	InrushColumn *columns;
	uint64		fingerprint;
	int			encoding;
	/* Whether rows must be taken apart before they can be written. */
	bool		has_receive;
	bool		has_fill;
	bool		has_domain;
	HTAB	   *labels;			/* enum labels that may be stored; datum.c */
} InrushLayout;

/* A verified row, where it lies in the block. */
typedef struct InrushRow
{
	const char *frame;			/* xl_multi_insert_tuple, or the wide header; NULL if formed here */
	const char *data;			/* the tuple from offset 23 on */
	uint32		length;			/* bytes of data */
	uint16		natts;
	uint16		infomask;
	uint8		hoff;
} InrushRow;

typedef struct InrushBlock
{
	const char *payload;
	uint32		length;
	int			nrows;			/* as its header says */
	int			taken;			/* of these, by inrush_take_row() */
	uint32		at;				/* and how far into the payload that is */
} InrushBlock;

/* A load in progress. */
typedef struct InrushLoad
{
	Relation	rel;
	InrushLayout *layout;
	EState	   *estate;
	ResultRelInfo *target;
	ExprContext *context;		/* its per-tuple memory is reset for each block */

	/* For the error context: where we are, counted from 1; 0 if nowhere. */
	uint64		blocks;
	uint64		rows;			/* of all blocks before this one */
	uint64		line;			/* the row in hand, over the whole stream */
	int			column;			/* attribute number */
} InrushLoad;

/* Reads blocks from the client. */
typedef struct InrushStream
{
	StringInfoData message;		/* the CopyData message in hand */
	int			at;				/* read so far */
	StringInfoData block;		/* a block that lies in several messages */
	uint64		bytes;			/* of all messages */
	bool		done;
} InrushStream;

/* Numbers of a block lie where they lie: not aligned. */
static inline uint16
inrush_get16(const char *at)
{
	uint16		number;

	memcpy(&number, at, sizeof(number));
	return number;
}

static inline uint32
inrush_get32(const char *at)
{
	uint32		number;

	memcpy(&number, at, sizeof(number));
	return number;
}

static inline uint64
inrush_get64(const char *at)
{
	uint64		number;

	memcpy(&number, at, sizeof(number));
	return number;
}

/* The length of a frame's header, which is there as xl_multi_insert_tuple at least. */
static inline uint32
inrush_frame_header(const char *frame)
{
	return inrush_get16(frame) == 0 ? INRUSH_WIDE_HEADER : INRUSH_FRAME_HEADER;
}

/* What a frame says, whose header is there as a whole. */
static inline void
inrush_read_frame(const char *frame, InrushRow *row)
{
	uint32		header = inrush_frame_header(frame);

	row->frame = frame;
	row->data = frame + header;
	row->length = (header == INRUSH_WIDE_HEADER) ? inrush_get32(frame + 8) : inrush_get16(frame);
	row->natts = inrush_get16(frame + 2);
	row->infomask = inrush_get16(frame + 4);
	row->hoff = (uint8) frame[6];
}

/* The next row of a block that has been verified; false behind the last. */
static inline bool
inrush_take_row(InrushBlock *block, InrushRow *row)
{
	if (block->taken == block->nrows)
		return false;
	block->at += block->at & 1;
	inrush_read_frame(block->payload + block->at, row);
	block->at = (uint32) (row->data - block->payload) + row->length;
	block->taken++;
	return true;
}

/* layout.c */
extern InrushLayout *inrush_layout(Relation rel, const List *attnums);

/* qualify.c: NULL if the table qualifies, else the code of the refusal, and *detail. */
extern const char *inrush_refusal(Relation rel, const InrushLayout *layout, char **detail);
extern const char *inrush_audit_refusal(char **detail);

/* stream.c */
extern void inrush_stream_begin(InrushStream *stream, int natts);
extern const char *inrush_stream_bytes(InrushStream *stream, Size size, bool may_end);

/* verify.c */
extern bool inrush_next_block(InrushLoad *load, InrushStream *stream, InrushBlock *block);

/* datum.c */
extern void inrush_check_datum(InrushLayout *layout, const InrushColumn *column, const char *value, uint32 size);

/* form.c */
typedef struct InrushForm InrushForm;
extern InrushForm *inrush_form_begin(InrushLoad *load);
extern HeapTuple inrush_form_row(InrushForm *form, const InrushRow *row);
extern bool inrush_form_needed(const InrushForm *form);
extern void inrush_form_violation(InrushLoad *load, const InrushRow *row);
extern void inrush_form_end(InrushForm *form);

/* index.c */
typedef struct InrushIndexes InrushIndexes;
extern InrushIndexes *inrush_indexes_begin(InrushLoad *load);
extern void inrush_indexes_insert(InrushIndexes *indexes, TupleTableSlot **slots, const uint64 *lines, int nslots);
extern bool inrush_indexes_want(const InrushIndexes *indexes, const BlockNumber *blocks, int nblocks);
extern void inrush_indexes_end(InrushIndexes *indexes);

/* pages.c */
#define INRUSH_GROUP_PAGES 32	/* written in one go; also the number of locks held in 15 */
typedef struct InrushPages InrushPages;
extern bool inrush_pages_suit(Relation rel);
extern InrushPages *inrush_pages_begin(InrushLoad *load, InrushIndexes *indexes, CommandId cid);
extern void inrush_pages_take(InrushPages *pages, const InrushRow *row, uint64 line);
extern void inrush_pages_end_block(InrushPages *pages);
extern int	inrush_pages_tail(InrushPages *pages, HeapTuple *tuples, uint64 *lines);
extern void inrush_pages_end(InrushPages *pages);

/* pool.c */
typedef struct InrushPool InrushPool;
extern InrushPool *inrush_pool_begin(void);
extern void inrush_pool_got(InrushPool *pool, Buffer buffer);

/* append.c */
typedef struct InrushAppend InrushAppend;
extern InrushAppend *inrush_append_begin(InrushLoad *load);
extern void inrush_append_block(InrushAppend *append, InrushBlock *block);
extern void inrush_append_end(InrushAppend *append);

/* command.c: settings */
extern bool inrush_whole_pages;
extern bool inrush_ring;

/* command.c: whether every other hook of the session sees COPY statements before this library does */
extern bool inrush_is_below_others(void);

#endif							/* INRUSH_H */
