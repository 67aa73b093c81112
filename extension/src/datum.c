/*
 * datum.c
 *	  Is this a value of its type? What the types' input and receive functions guarantee, asked of stored bytes.
 *
 * Errors are those that the types' own functions raise. Values are not aligned: they are copied before use.
 */
#include "inrush.h"
#include "ascii.h"

#include "access/htup_details.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#define bad_binary(type) \
	ereport(ERROR, (errcode(ERRCODE_INVALID_BINARY_REPRESENTATION), errmsg("invalid stored form of a value of type %s", type)))

/*
 * Valid in the server's encoding, which rules out zero bytes. Gives how many bytes at the front are ASCII: characters of
 * one byte.
 */
static inline uint32
check_encoding(int encoding, const char *value, uint32 size)
{
	uint32		ascii = inrush_ascii_prefix(value, size);

	if (ascii < size)
		(void) pg_verify_mbstr(encoding, value + ascii, (int) (size - ascii), false);
	return ascii;
}

/* The characters of a text that has so many ASCII bytes at the front. */
static inline int
characters(const char *value, uint32 size, uint32 ascii)
{
	return (int) ascii + (ascii < size ? pg_mbstrlen_with_len(value + ascii, (int) (size - ascii)) : 0);
}

static void
check_text(const InrushLayout *layout, const InrushColumn *column, const char *value, uint32 size)
{
	uint32		ascii = check_encoding(layout->encoding, value, size);
	int32		limit;

	if (column->base == TEXTOID || column->typmod < (int32) VARHDRSZ)
		return;
	limit = column->typmod - (int32) VARHDRSZ;
	if (column->base == BPCHAROID ? characters(value, size, ascii) != limit :
		size > (uint32) limit && characters(value, size, ascii) > limit)
		ereport(ERROR,
				(errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
				 errmsg(column->base == BPCHAROID ? "value of type character(%d) has another length" :
						"value too long for type character varying(%d)", limit)));
}

static void
check_name(int encoding, const char *value)
{
	Size		length = strnlen(value, NAMEDATALEN);

	if (length == NAMEDATALEN)
		bad_binary("name");
	for (Size i = length; i < NAMEDATALEN; i++)
		if (value[i] != '\0')
			bad_binary("name");
	(void) check_encoding(encoding, value, (uint32) length);
}

/* Times of day, microseconds: 24:00:00 is one. */
static void
check_time(const InrushColumn *column, const char *value, const char *type)
{
	int64		time = (int64) inrush_get64(value);

	if (time < 0 || time > USECS_PER_DAY)
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("%s out of range", type)));
	if (time % column->unit != 0)
		bad_binary(type);
}

static void
check_timestamp(const InrushColumn *column, const char *value)
{
	Timestamp	timestamp = (int64) inrush_get64(value);

	if (TIMESTAMP_NOT_FINITE(timestamp))
		return;
	if (!IS_VALID_TIMESTAMP(timestamp))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("timestamp out of range")));
	if (column->unit != 1 && timestamp % column->unit != 0)
		bad_binary("timestamp");
}

static void
check_date(const char *value)
{
	DateADT		date = (int32) inrush_get32(value);

	if (!DATE_NOT_FINITE(date) && !IS_VALID_DATE(date))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("date out of range")));
}

/*
 * numeric (numeric.c: NumericData, make_result, apply_typmod). Its macros are private to numeric.c.
 */
#define NUMERIC_KIND 0xC000
#define NUMERIC_SHORT 0x8000
#define NUMERIC_SPECIAL 0xC000
#define NUMERIC_NAN 0xC000
#define NUMERIC_PINF 0xD000
#define NUMERIC_NINF 0xF000
#define NUMERIC_BASE 10000
#define NUMERIC_DIGIT_DECIMALS 4
#define NUMERIC_SHORT_MAX_SCALE 0x3F
#define NUMERIC_SHORT_MIN_WEIGHT (-64)
#define NUMERIC_SHORT_MAX_WEIGHT 63

static void
check_numeric(const InrushColumn *column, const char *value, uint32 size)
{
	uint16		header;
	bool		negative,
				is_short;
	int			scale,
				weight,
				ndigits,
				fraction;
	const char *digits;
	int16		first = 0,
				last = 0;

	if (size < 2 || size % 2 != 0)
		bad_binary("numeric");
	memcpy(&header, value, sizeof(header));
	if ((header & NUMERIC_KIND) == NUMERIC_SPECIAL)
	{
		if (size != 2 || (header != NUMERIC_NAN && header != NUMERIC_PINF && header != NUMERIC_NINF))
			bad_binary("numeric");
		if (header != NUMERIC_NAN && column->typmod >= (int32) VARHDRSZ)
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("numeric field overflow"),
					 errdetail("A field with a precision and a scale cannot hold an infinite value.")));
		return;
	}
	is_short = (header & NUMERIC_KIND) == NUMERIC_SHORT;
	if (is_short)
	{
		negative = (header & 0x2000) != 0;
		scale = (header & 0x1F80) >> 7;
		weight = header & 0x3F;
		if (header & 0x40)
			weight -= 64;
		digits = value + 2;
		ndigits = (int) (size - 2) / 2;
	}
	else
	{
		int16		stored;

		if (size < 4)
			bad_binary("numeric");
		memcpy(&stored, value + 2, sizeof(stored));
		negative = (header & 0x4000) != 0;
		scale = header & 0x3FFF;
		weight = stored;
		digits = value + 4;
		ndigits = (int) (size - 4) / 2;
		if (scale <= NUMERIC_SHORT_MAX_SCALE && weight >= NUMERIC_SHORT_MIN_WEIGHT &&
			weight <= NUMERIC_SHORT_MAX_WEIGHT)
			bad_binary("numeric");
	}
	for (int i = 0; i < ndigits; i++)
	{
		memcpy(&last, digits + i * 2, sizeof(last));
		if (last < 0 || last >= NUMERIC_BASE)
			bad_binary("numeric");
		if (i == 0)
			first = last;
	}
	if (ndigits == 0 ? (negative || weight != 0) : (first == 0 || last == 0))
		bad_binary("numeric");

	/* Decimal digits behind the point that are there: none beyond the scale that is shown. */
	fraction = (ndigits - weight - 1) * NUMERIC_DIGIT_DECIMALS;
	for (int16 rest = last; ndigits > 0 && rest % 10 == 0; rest /= 10)
		fraction--;
	if (ndigits > 0 && fraction > scale)
		bad_binary("numeric");

	if (column->typmod >= (int32) VARHDRSZ)
	{
		int32		typmod = column->typmod - (int32) VARHDRSZ;
		int			precision = (typmod >> 16) & 0xffff;
		int			wanted = ((typmod & 0x7ff) ^ 1024) - 1024;
		int			before;

		if (scale != Max(wanted, 0) || (ndigits > 0 && fraction > wanted))
			bad_binary("numeric");
		/* Decimal digits before the point; negative for zeros behind it. */
		before = (weight + 1) * NUMERIC_DIGIT_DECIMALS;
		for (int bound = NUMERIC_BASE / 10; ndigits > 0 && first < bound; bound /= 10)
			before--;
		if (ndigits > 0 && before > precision - wanted)
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("numeric field overflow"),
					 errdetail("A field with precision %d, scale %d must round to an absolute value less than 10^%d.",
							   precision, wanted, precision - wanted)));
	}
}

typedef struct Label
{
	Oid			label;			/* hash key */
	Oid			type;
} Label;

/*
 * An enum's label by its OID. Each is looked at once for a load: enum_recv() refuses those that are not committed yet
 * (enum.c, check_enum_safe_use).
 */
static void
check_enum(InrushLayout *layout, const InrushColumn *column, const char *value)
{
	Oid			oid = (Oid) inrush_get32(value);
	Label	   *known;
	HeapTuple	tuple;
	Form_pg_enum form;
	StringInfoData label;

	if (layout->labels == NULL)
	{
		HASHCTL		control;

		memset(&control, 0, sizeof(control));
		control.keysize = sizeof(Oid);
		control.entrysize = sizeof(Label);
		control.hcxt = GetMemoryChunkContext(layout);
		layout->labels = hash_create("inrush enum labels", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	known = hash_search(layout->labels, &oid, HASH_FIND, NULL);
	if (known != NULL && known->type == column->base)
		return;
	tuple = SearchSysCache1(ENUMOID, ObjectIdGetDatum(oid));
	if (!HeapTupleIsValid(tuple))
		bad_binary("enum");
	form = (Form_pg_enum) GETSTRUCT(tuple);
	if (form->enumtypid != column->base)
		bad_binary("enum");
	initStringInfo(&label);
	appendStringInfoString(&label, NameStr(form->enumlabel));
	ReleaseSysCache(tuple);
	(void) OidFunctionCall3(F_ENUM_RECV, PointerGetDatum(&label), ObjectIdGetDatum(column->base), Int32GetDatum(-1));
	pfree(label.data);
	/* A label belongs to one type: the entry is new, or another column's error has ended the load before. */
	known = hash_search(layout->labels, &oid, HASH_ENTER, NULL);
	known->type = column->base;
}

/*
 * Raises an error unless the bytes are a value of the column's base type, with its typmod.
 */
void
inrush_check_datum(InrushLayout *layout, const InrushColumn *column, const char *value, uint32 size)
{
	switch (column->check)
	{
		case CHECK_NOTHING:
		case CHECK_BYTES:
			break;
		case CHECK_TEXT:
			check_text(layout, column, value, size);
			break;
		case CHECK_TIMESTAMP:
			check_timestamp(column, value);
			break;
		case CHECK_DATE:
			check_date(value);
			break;
		case CHECK_BOOL:
			if ((uint8) *value > 1)
				bad_binary("boolean");
			break;
		case CHECK_TIME:
			check_time(column, value, "time");
			break;
		case CHECK_TIMETZ:
			check_time(column, value, "time");
			/* As timetz_recv(). */
			if ((int32) inrush_get32(value + 8) <= -TZDISP_LIMIT || (int32) inrush_get32(value + 8) >= TZDISP_LIMIT)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_TIME_ZONE_DISPLACEMENT_VALUE),
						 errmsg("time zone displacement out of range")));
			break;
		case CHECK_NAME:
			check_name(layout->encoding, value);
			break;
		case CHECK_NUMERIC:
			check_numeric(column, value, size);
			break;
		case CHECK_ENUM:
			check_enum(layout, column, value);
			break;
	}
}
