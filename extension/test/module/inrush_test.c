/*
 * inrush_test.c
 *	  For tests only: FORMAT inrush from the rows of a query, by way of heap_form_tuple(). Slow and plain, and shares no
 *	  code with the extension or the Rust encoder: it is their judge.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(inrush_test_blocks);
PG_FUNCTION_INFO_V1(inrush_test_stored);
PG_FUNCTION_INFO_V1(inrush_test_handler);

static void
append_le(StringInfo out, uint64 number, int bytes)
{
	for (int i = 0; i < bytes; i++)
		appendStringInfoChar(out, (char) (number >> (8 * i)));
}

static void
append_frame(StringInfo payload, HeapTuple tuple, int natts)
{
	uint32		length = tuple->t_len - SizeofHeapTupleHeader;
	uint16		infomask = (tuple->t_data->t_infomask & (HEAP_HASNULL | HEAP_HASVARWIDTH)) | HEAP_XMAX_INVALID;

	if (payload->len & 1)
		appendStringInfoChar(payload, 0);
	append_le(payload, length > PG_UINT16_MAX ? 0 : length, 2);
	append_le(payload, natts, 2);
	append_le(payload, infomask, 2);
	append_le(payload, tuple->t_data->t_hoff, 1);
	if (length > PG_UINT16_MAX)
	{
		append_le(payload, 0, 1);
		append_le(payload, length, 4);
	}
	appendBinaryStringInfo(payload, (char *) tuple->t_data + SizeofHeapTupleHeader, length);
}

static void
append_block(StringInfo out, StringInfo payload, int nrows, uint64 fingerprint, int natts)
{
	appendBinaryStringInfo(out, "INRU", 4);
	append_le(out, 1, 2);
	append_le(out, 0, 2);
	append_le(out, fingerprint, 8);
	append_le(out, nrows, 4);
	append_le(out, payload->len, 4);
	append_le(out, natts, 2);
	append_le(out, BLCKSZ, 2);
	append_le(out, MAXIMUM_ALIGNOF, 1);
	for (int i = 29; i < 64; i++)
		appendStringInfoChar(out, 0);
	appendBinaryStringInfo(out, payload->data, payload->len);
	resetStringInfo(payload);
}

/*
 * inrush_test.blocks(relation, query, columns, rows): blocks with the rows of the query, so many to a block; the query
 * has the columns sent, in their order, with their types.
 */
Datum
inrush_test_blocks(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	char	   *query = text_to_cstring(PG_GETARG_TEXT_PP(1));
	int			per_block = PG_GETARG_INT32(3);
	TupleDesc	desc = CreateTupleDescCopy(RelationGetDescr(rel));
	int			natts = desc->natts;
	Datum	   *values = palloc(sizeof(Datum) * natts);
	bool	   *nulls = palloc(sizeof(bool) * natts);
	int		   *source = palloc(sizeof(int) * natts);
	bool	   *send = palloc0(sizeof(bool) * natts);
	Datum	   *names;
	int			nnames;
	char	  **wanted;
	uint64		fingerprint;
	StringInfoData out,
				payload;
	MemoryContext result = CurrentMemoryContext;
	Oid			types[2] = {OIDOID, TEXTARRAYOID};
	Datum		arguments[2];
	bool		isnull;
	int			rows = 0;

	initStringInfo(&out);
	arguments[0] = PG_GETARG_DATUM(0);
	arguments[1] = PG_GETARG_DATUM(2);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(2), TEXTOID, -1, false, TYPALIGN_INT, &names, NULL, &nnames);
	wanted = palloc(sizeof(char *) * Max(nnames, 1));
	for (int j = 0; j < nnames; j++)
		wanted[j] = TextDatumGetCString(names[j]);
	SPI_connect();
	initStringInfo(&payload);
	/* OFFSET: what is asked of the whole plan is asked once, not for each of what may be 1600 columns. */
	SPI_execute_with_args("SELECT fingerprint, c ->> 'class'"
						  " FROM (SELECT ('x' || (p ->> 'fingerprint'))::bit(64)::bigint AS fingerprint,"
						  " p -> 'columns' AS columns FROM inrush.plan($1, $2) p OFFSET 0) plan"
						  " LEFT JOIN LATERAL json_array_elements(columns) WITH ORDINALITY e(c, n) ON true"
						  " ORDER BY n", 2, types, arguments, NULL, false, 0);
	/* A table may have no columns; the plan has a fingerprint then, too. */
	if (SPI_processed != Max(natts, 1))
		elog(ERROR, "the plan has " UINT64_FORMAT " columns, the table %d", SPI_processed, natts);
	fingerprint = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		char	   *class = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2);

		source[i] = -1;
		for (int j = 0; j < nnames && !att->attisdropped; j++)
			if (strcmp(NameStr(att->attname), wanted[j]) == 0)
				source[i] = j;
		send[i] = strcmp(class, "receive") == 0;
		if (send[i])
			TupleDescInitEntry(desc, i + 1, NameStr(att->attname), BYTEAOID, -1, 0);
	}

	SPI_execute(query, false, 0);
	for (int i = 0; i < natts; i++)
		if (source[i] >= 0 &&
			getBaseType(SPI_gettypeid(SPI_tuptable->tupdesc, source[i] + 1)) !=
			getBaseType(TupleDescAttr(RelationGetDescr(rel), i)->atttypid))
			elog(ERROR, "the query has another type for \"%s\"", NameStr(TupleDescAttr(desc, i)->attname));
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		HeapTuple	tuple;

		for (int i = 0; i < natts; i++)
		{
			Oid			function;
			bool		varlena;

			nulls[i] = true;
			values[i] = (Datum) 0;
			if (source[i] < 0)
				continue;
			values[i] = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, source[i] + 1, &nulls[i]);
			if (nulls[i])
				continue;
			if (send[i])
			{
				getTypeBinaryOutputInfo(SPI_gettypeid(SPI_tuptable->tupdesc, source[i] + 1), &function, &varlena);
				values[i] = PointerGetDatum(OidSendFunctionCall(function, values[i]));
			}
			else if (TupleDescAttr(desc, i)->attlen == -1)
				values[i] = PointerGetDatum(PG_DETOAST_DATUM(values[i]));
		}
		tuple = heap_form_tuple(desc, values, nulls);
		append_frame(&payload, tuple, natts);
		if (++rows == per_block || row + 1 == SPI_processed)
		{
			append_block(&out, &payload, rows, fingerprint, natts);
			rows = 0;
		}
	}
	SPI_finish();
	table_close(rel, AccessShareLock);
	MemoryContextSwitchTo(result);
	{
		bytea	   *bytes = palloc(VARHDRSZ + out.len);

		SET_VARSIZE(bytes, VARHDRSZ + out.len);
		memcpy(VARDATA(bytes), out.data, out.len);
		PG_RETURN_BYTEA_P(bytes);
	}
}

/*
 * inrush_test.stored(relation): what is in the heap, byte for byte, for a comparison with what COPY has stored.
 */
Datum
inrush_test_stored(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	TableScanDesc scan;
	HeapTuple	tuple;

	InitMaterializedSRF(fcinfo, 0);
	scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		HeapTupleHeader header = tuple->t_data;
		uint32		length = tuple->t_len - SizeofHeapTupleHeader;
		bytea	   *bytes = palloc(VARHDRSZ + length);
		Datum		values[4];
		bool		nulls[4] = {false};

		SET_VARSIZE(bytes, VARHDRSZ + length);
		memcpy(VARDATA(bytes), (char *) header + SizeofHeapTupleHeader, length);
		values[0] = PointerGetDatum(&tuple->t_self);
		values[1] = Int32GetDatum(header->t_infomask & (HEAP_HASNULL | HEAP_HASVARWIDTH | HEAP_HASEXTERNAL));
		values[2] = Int32GetDatum(header->t_hoff);
		values[3] = PointerGetDatum(bytes);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		pfree(bytes);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}

/*
 * A table access method that is not heap's, though it does the same.
 */
Datum
inrush_test_handler(PG_FUNCTION_ARGS)
{
	static TableAmRoutine routine;

	routine = *GetHeapamTableAmRoutine();
	PG_RETURN_POINTER(&routine);
}
