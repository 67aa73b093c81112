/*
 * verify.c
 *	  Blocks from the stream, every frame of them verified before anybody looks at a value.
 *
 * The rules are those of docs/format-inrush.md. What passes here can be stored as it is: heap_deform_tuple() and
 * every function of the types will find what they would find after INSERT.
 */
#include "inrush.h"
#include "ascii.h"

#include "access/heapam_xlog.h"
#include "access/htup_details.h"
#include "miscadmin.h"
#include "port/pg_crc32c.h"

/* Bytes of a tuple that a frame leaves out: the header up to the bitmap. */
#define TUPLE_SKIP ((uint32) SizeofHeapTupleHeader)

StaticAssertDecl(SizeOfMultiInsertTuple == INRUSH_FRAME_HEADER, "frames begin as xl_multi_insert_tuple does");
StaticAssertDecl(SizeofHeapTupleHeader == 23, "frames leave 23 bytes of a tuple out");

/* A flaw of a block or frame: a client's bug, or its malice. */
#define bad_block(...) \
	ereport(ERROR, (errcode(ERRCODE_BAD_COPY_FILE_FORMAT), errmsg("invalid block of FORMAT inrush"), errdetail(__VA_ARGS__)))
#define bad_frame(...) \
	ereport(ERROR, (errcode(ERRCODE_BAD_COPY_FILE_FORMAT), errmsg("invalid frame"), errdetail(__VA_ARGS__)))

static bool
all_zero(const char *bytes, uint32 length)
{
	for (uint32 i = 0; i < length; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

/*
 * A varlena that begins at or after data[at]. Returns the offset behind it, and where its value lies.
 */
static inline uint32
varlena(const InrushColumn *column, const char *data, uint32 at, uint32 end, const char **value, uint32 *size)
{
	uint8		first;
	uint32		aligned;
	uint32		header;

	if (at >= end)
		bad_frame("A value begins behind the end of the row.");
	first = (uint8) data[at];
	/* As att_align_pointer(): what is not zero at an unaligned place is a short header. */
	if (first & 1)
	{
		uint32		total = first >> 1;

		if (first == 1)
			bad_frame("A value is stored out of line.");
		if (column->plain)
			bad_frame("A value of storage \"plain\" has a short header.");
		if (total > end - at)
			bad_frame("A value ends behind the end of the row.");
		*value = data + at + 1;
		*size = total - 1;
		return at + total;
	}
	aligned = TYPEALIGN(column->align, at);
	if (aligned > end || end - aligned < 4)
		bad_frame("A value ends behind the end of the row.");
	if (!all_zero(data + at, aligned - at))
		bad_frame("Bytes between two values are not zero.");
	header = inrush_get32(data + aligned);
	if ((header & 3) != 0)
		bad_frame("A value is compressed, or no value begins where one is expected.");
	header >>= 2;
	if (header < 4 || header > end - aligned)
		bad_frame("A value ends behind the end of the row.");
	if (header - 4 + 1 <= VARATT_SHORT_MAX && !column->plain)
		bad_frame("A value of %u bytes has a long header.", header - 4);
	*value = data + aligned + 4;
	*size = header - 4;
	return aligned + header;
}

/* The attributes of a row, which begin at row->data[at]. */
static void
verify_attributes(InrushLoad *load, const InrushRow *row, uint32 start)
{
	InrushLayout *layout = load->layout;
	const bits8 *nulls = (row->infomask & HEAP_HASNULL) ? (const bits8 *) row->data : NULL;
	const char *data = row->data + start;
	uint32		end = row->length - start;
	uint32		at = 0;
	bool		varwidth = false;
	bool		missing = false;

	for (int i = 0; i < layout->natts; i++)
	{
		const InrushColumn *column = &layout->columns[i];
		const char *value;
		uint32		size;

		load->column = i + 1;
		if (nulls != NULL && att_isnull(i, nulls))
		{
			missing |= column->not_null;
			continue;
		}
		if (!column->sent)
			bad_frame("There is a value for a column that is not sent.");
		if (column->length > 0)
		{
			uint32		aligned = TYPEALIGN(column->align, at);

			size = column->length;
			if (aligned > end || end - aligned < size)
				bad_frame("A value ends behind the end of the row.");
			if (!all_zero(data + at, aligned - at))
				bad_frame("Bytes between two values are not zero.");
			value = data + aligned;
			at = aligned + size;
		}
		else
		{
			at = varlena(column, data, at, end, &value, &size);
			varwidth = true;
		}
		/* What most columns of most tables have needs no call. */
		if (column->free_text && inrush_ascii_prefix(value, size) == size)
			continue;
		if (column->check != CHECK_NOTHING && column->check != CHECK_BYTES)
			inrush_check_datum(layout, column, value, size);
	}
	load->column = 0;
	if (at != end)
		bad_frame("%u bytes are left behind the last value.", end - at);
	if (varwidth != ((row->infomask & HEAP_HASVARWIDTH) != 0))
		bad_frame("HEAP_HASVARWIDTH does not say what the row has.");
	if (missing)
		inrush_form_violation(load, row);
}

/* The null bitmap and the zeros behind it; then the attributes. */
static void
verify_row(InrushLoad *load, const InrushRow *row)
{
	int			natts = load->layout->natts;
	uint32		bitmap = 0;
	uint32		start;

	if (row->infomask & HEAP_HASNULL)
		bitmap = BITMAPLEN(natts);
	if (row->hoff != MAXALIGN(TUPLE_SKIP + bitmap))
		bad_frame("hoff is %u.", row->hoff);
	start = row->hoff - TUPLE_SKIP;
	if (row->length < start)
		bad_frame("The row ends in its header.");
	if (row->infomask & HEAP_HASNULL)
	{
		bool		any = false;

		for (int i = 0; i < natts && !any; i++)
			any = att_isnull(i, (const bits8 *) row->data);
		if (!any)
			bad_frame("There is a bitmap of nulls, and no null.");
		if (natts % 8 != 0 && ((uint8) row->data[bitmap - 1] >> (natts % 8)) != 0)
			bad_frame("The bitmap of nulls has bits behind the last attribute.");
	}
	if (!all_zero(row->data + bitmap, start - bitmap))
		bad_frame("Bytes before the first value are not zero.");
	verify_attributes(load, row, start);
}

/* The row whose frame begins at block->at; moves that behind it. */
static inline void
verify_frame(InrushLoad *load, InrushBlock *block)
{
	const char *frame;
	InrushRow	row;
	uint32		left;
	uint32		header;

	if (block->at & 1)
	{
		if (block->at >= block->length || block->payload[block->at] != 0)
			bad_frame("The byte before it is not zero.");
		block->at++;
	}
	frame = block->payload + block->at;
	left = block->length - block->at;
	if (left < INRUSH_FRAME_HEADER || left < (header = inrush_frame_header(frame)))
		bad_frame("The payload ends in the frame's header.");
	inrush_read_frame(frame, &row);
	if (header == INRUSH_WIDE_HEADER && (frame[7] != 0 || row.length <= PG_UINT16_MAX))
		bad_frame("A wide frame of %u bytes.", row.length);
	if (row.length > left - header)
		bad_frame("The payload ends in the frame.");
	if (row.natts != load->layout->natts)
		bad_frame("infomask2 is 0x%04X.", row.natts);
	if ((row.infomask & ~(HEAP_HASNULL | HEAP_HASVARWIDTH)) != HEAP_XMAX_INVALID)
		bad_frame("infomask is 0x%04X.", row.infomask);
	verify_row(load, &row);
	block->at += header + row.length;
}

/* All frames of a block. */
static void
verify_frames(InrushLoad *load, InrushBlock *block)
{
	block->at = 0;
	for (int i = 0; i < block->nrows; i++)
	{
		load->line = load->rows + i + 1;
		verify_frame(load, block);
	}
	load->line = 0;
	if (block->at != block->length)
		bad_block("%u bytes are left behind the last frame.", block->length - block->at);
	block->at = 0;
	block->taken = 0;
}

/* What the header promises, before memory is given to it. */
static void
read_header(InrushLoad *load, const char *header, InrushBlock *block, bool *has_crc, pg_crc32c *crc)
{
	InrushLayout *layout = load->layout;
	uint16		flags = inrush_get16(header + 6);
	uint32		nrows = inrush_get32(header + 16);

	if (memcmp(header, INRUSH_MAGIC, 4) != 0)
		bad_block("It does not begin with \"%s\".", INRUSH_MAGIC);
	if (inrush_get16(header + 4) != INRUSH_FORMAT_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("version %u of FORMAT inrush is not known", inrush_get16(header + 4)),
				 errhint("The client is newer than the extension, or older.")));
	if ((flags & ~INRUSH_FLAG_CRC) != 0 || !all_zero(header + 29, 3) || !all_zero(header + 36, 28))
		bad_block("Reserved fields are not zero.");
	if (inrush_get64(header + 8) != layout->fingerprint || inrush_get16(header + 24) != layout->natts ||
		inrush_get16(header + 26) != BLCKSZ || (uint8) header[28] != MAXIMUM_ALIGNOF)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the frames are for another layout of table \"%s\"", RelationGetRelationName(load->rel)),
				 errhint("The table was altered. Ask inrush.plan() again, in the transaction of the COPY.")));
	block->length = inrush_get32(header + 20);
	/* A frame has its header and at least the byte before the first value. */
	if (nrows == 0 || block->length / (INRUSH_FRAME_HEADER + 1) < nrows ||
		block->length > (nrows == 1 ? INRUSH_MAX_SINGLE : INRUSH_MAX_PAYLOAD))
		bad_block("%u frames in %u bytes.", nrows, block->length);
	block->nrows = (int) nrows;
	*has_crc = (flags & INRUSH_FLAG_CRC) != 0;
	*crc = inrush_get32(header + 32);
	if (!*has_crc && *crc != 0)
		bad_block("Reserved fields are not zero.");
}

/* The next block, verified; its frames lie in the stream's memory until the next call. False at the end. */
bool
inrush_next_block(InrushLoad *load, InrushStream *stream, InrushBlock *block)
{
	const char *header = inrush_stream_bytes(stream, INRUSH_HEADER_SIZE, true);
	bool		has_crc;
	pg_crc32c	crc;

	if (header == NULL)
		return false;
	load->blocks++;
	read_header(load, header, block, &has_crc, &crc);
	block->payload = inrush_stream_bytes(stream, block->length, false);
	if (has_crc)
	{
		pg_crc32c	computed;

		INIT_CRC32C(computed);
		COMP_CRC32C(computed, block->payload, block->length);
		FIN_CRC32C(computed);
		if (!EQ_CRC32C(computed, crc))
			bad_block("The CRC is 0x%08X, not 0x%08X.", computed, crc);
	}
	verify_frames(load, block);
	return true;
}
