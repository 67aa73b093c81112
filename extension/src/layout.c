/*
 * layout.c
 *	  The columns of a table as frames carry them, the fingerprint of that, and inrush.plan().
 */
#include "inrush.h"

#include "access/htup_details.h"
#include "access/heaptoast.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/copy.h"
#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* Mixes a number into a fingerprint. */
static uint64
mix(uint64 fingerprint, uint64 number)
{
	return hash_combine64(fingerprint, DatumGetUInt64(hash_any_extended((unsigned char *) &number, sizeof(number), 0)));
}

/*
 * What bits of a native value the server has to look at. False for a type whose stored form is not part of the format.
 *
 * Only built-in types, by their OID: what another type of the same layout means, we cannot know.
 */
static bool
native_check(Oid type, int32 typmod, InrushColumn *column)
{
	column->unit = 1;
	switch (type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case CASHOID:
		case CHAROID:
		case UUIDOID:
		case MACADDROID:
		case MACADDR8OID:
		case PG_LSNOID:
		case POINTOID:
			column->check = CHECK_NOTHING;
			return true;
		case INTERVALOID:
			column->check = CHECK_NOTHING;
			return typmod == -1;	/* a typmod would round and cut fields */
		case BOOLOID:
			column->check = CHECK_BOOL;
			return true;
		case DATEOID:
			column->check = CHECK_DATE;
			return true;
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			column->check = CHECK_TIMESTAMP;
			break;
		case TIMEOID:
			column->check = CHECK_TIME;
			break;
		case TIMETZOID:
			column->check = CHECK_TIMETZ;
			break;
		case NAMEOID:
			column->check = CHECK_NAME;
			return true;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			column->check = CHECK_TEXT;
			return true;
		case BYTEAOID:
			column->check = CHECK_BYTES;
			return true;
		case NUMERICOID:
			column->check = CHECK_NUMERIC;
			return true;
		default:
			return false;
	}
	/* Times: typmod is the number of digits after the seconds (timestamp.c, AdjustTimestampForTypmod). */
	for (int32 digits = typmod; digits >= 0 && digits < 6; digits++)
		column->unit *= 10;
	return true;
}

static uint8
align_bytes(char align)
{
	switch (align)
	{
		case TYPALIGN_CHAR:
			return 1;
		case TYPALIGN_SHORT:
			return ALIGNOF_SHORT;
		case TYPALIGN_INT:
			return ALIGNOF_INT;
		case TYPALIGN_DOUBLE:
			return ALIGNOF_DOUBLE;
		default:
			elog(ERROR, "unrecognized alignment \"%c\"", align);
	}
}

/* The column travels as its receive function reads it, if the type has one. */
static void
set_receive(InrushColumn *column, Form_pg_type form)
{
	column->check = CHECK_BYTES;
	column->length = -1;
	column->align = ALIGNOF_INT;
	column->plain = false;
	if (!OidIsValid(form->typreceive) || !form->typisdefined || form->typtype == TYPTYPE_PSEUDO)
		column->class = INRUSH_REFUSE;
	else
		column->class = INRUSH_RECEIVE;
}

/*
 * The layout of a relation for a COPY of the columns `attnums`. The caller holds a lock that keeps both from changing.
 */
InrushLayout *
inrush_layout(Relation rel, const List *attnums)
{
	InrushLayout *layout = palloc0(sizeof(InrushLayout));
	uint64		fingerprint = mix(0, INRUSH_FORMAT_VERSION);

	layout->desc = RelationGetDescr(rel);
	layout->natts = layout->desc->natts;
	layout->columns = palloc0(sizeof(InrushColumn) * Max(layout->natts, 1));
	layout->encoding = GetDatabaseEncoding();

	fingerprint = mix(fingerprint, layout->encoding);
#ifdef WORDS_BIGENDIAN
	fingerprint = mix(fingerprint, 1);
#else
	fingerprint = mix(fingerprint, 0);
#endif
	fingerprint = mix(fingerprint, MAXIMUM_ALIGNOF);
	fingerprint = mix(fingerprint, BLCKSZ);

	for (int i = 0; i < layout->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(layout->desc, i);
		InrushColumn *column = &layout->columns[i];
		HeapTuple	tuple;
		Form_pg_type form;

		column->name = NameStr(att->attname);
		column->length = att->attlen;
		column->plain = att->attstorage == TYPSTORAGE_PLAIN;
		column->align = align_bytes(att->attalign);
		column->type = att->atttypid;
		column->typmod = att->atttypmod;
		column->unit = 1;
		column->class = INRUSH_DROPPED;
		if (!att->attisdropped)
		{
			column->base = getBaseTypeAndTypmod(att->atttypid, &column->typmod);
			column->sent = list_member_int(attnums, i + 1);
			column->not_null = att->attnotnull && column->sent;
			tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(column->base));
			if (!HeapTupleIsValid(tuple))
				elog(ERROR, "cache lookup failed for type %u", column->base);
			form = (Form_pg_type) GETSTRUCT(tuple);
			column->enumeration = form->typtype == TYPTYPE_ENUM;
			if (column->enumeration)
			{
				column->class = INRUSH_NATIVE;
				column->check = CHECK_ENUM;
			}
			else if (native_check(column->base, column->typmod, column))
				column->class = INRUSH_NATIVE;
			else
				set_receive(column, form);
			ReleaseSysCache(tuple);
			if (column->sent)
			{
				layout->has_receive |= column->class == INRUSH_RECEIVE;
				layout->has_domain |= column->base != column->type;
				column->free_text = column->check == CHECK_TEXT &&
					(column->base == TEXTOID || column->typmod < (int32) VARHDRSZ);
			}
		}
		/*
		 * What is in the fingerprint decides how bytes are read, for every attribute number there is; and names, since
		 * columns that swap them would swap their values.
		 */
		fingerprint = mix(fingerprint, DatumGetUInt64(hash_any_extended((unsigned char *) column->name,
																		 strlen(column->name), 0)));
		fingerprint = mix(fingerprint, ((uint64) att->atttypid << 32) | (uint32) att->atttypmod);
		fingerprint = mix(fingerprint, ((uint64) column->base << 32) | (uint32) column->typmod);
		fingerprint = mix(fingerprint, ((uint64) (uint16) att->attlen << 48) |
						  ((uint64) (uint8) att->attalign << 40) | ((uint64) (uint8) att->attstorage << 32) |
						  ((uint64) att->attbyval << 3) | ((uint64) att->attnotnull << 2) |
						  ((uint64) att->attisdropped << 1));
		fingerprint = mix(fingerprint, ((uint64) (uint8) att->attgenerated << 8) | (uint8) att->attidentity);
	}
	layout->fingerprint = fingerprint;
	return layout;
}

static const char *
class_name(InrushClass class)
{
	switch (class)
	{
		case INRUSH_DROPPED:
			return "dropped";
		case INRUSH_NATIVE:
			return "native";
		case INRUSH_RECEIVE:
			return "receive";
		case INRUSH_REFUSE:
			return "refuse";
	}
	pg_unreachable();
}

static const char *
json_bool(bool truth)
{
	return truth ? "true" : "false";
}

static void
append_column(StringInfo json, const InrushColumn *column)
{
	appendStringInfoString(json, "{\"name\": ");
	escape_json(json, column->name);
	appendStringInfo(json, ", \"class\": \"%s\", \"sent\": %s, \"type\": %u, \"base_type\": %u, \"typmod\": %d",
					 class_name(column->class), json_bool(column->sent), column->type, column->base, column->typmod);
	appendStringInfo(json, ", \"length\": %d, \"align\": %d, \"storage\": \"%s\", \"not_null\": %s, \"kind\": \"%s\"}",
					 column->length, column->align, column->plain ? "p" : "x", json_bool(column->not_null),
					 column->enumeration ? "e" : "b");
}

/*
 * May this user insert something into the relation? Else it is not locked for him, as in LOCK TABLE.
 */
static void
check_may_insert(Oid relid)
{
	if (pg_class_aclcheck(relid, GetUserId(), ACL_INSERT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(relid, GetUserId(), ACL_INSERT, ACLMASK_ANY) != ACLCHECK_OK)
	{
		char	   *name = get_rel_name(relid);

		if (name == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("relation with OID %u does not exist", relid)));
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(relid)), name);
	}
}

PG_FUNCTION_INFO_V1(inrush_plan);

/*
 * inrush.plan(relation regclass, columns text[]): does it qualify, and how do frames have to look? JSON, as
 * docs/format-inrush.md has it. The lock is kept: the answer holds until the transaction ends.
 */
Datum
inrush_plan(PG_FUNCTION_ARGS)
{
	Oid			relid;
	Relation	rel;
	List	   *names = NIL;
	List	   *attnums;
	InrushLayout *layout;
	StringInfoData json;
	const char *code;
	char	   *detail = NULL;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	relid = PG_GETARG_OID(0);
	check_may_insert(relid);
	rel = table_open(relid, AccessShareLock);

	if (!PG_ARGISNULL(1))
	{
		Datum	   *elements;
		bool	   *nulls;
		int			count;

		deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
		for (int i = 0; i < count; i++)
		{
			if (nulls[i])
				ereport(ERROR,
						(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						 errmsg("a column name must not be null")));
			names = lappend(names, makeString(TextDatumGetCString(elements[i])));
		}
	}
	attnums = CopyGetAttnums(RelationGetDescr(rel), rel, names);
	layout = inrush_layout(rel, attnums);
	code = inrush_refusal(rel, layout, &detail);

	initStringInfo(&json);
	appendStringInfo(&json, "{\"version\": %d, \"refusal\": ", INRUSH_FORMAT_VERSION);
	if (code == NULL)
		appendStringInfoString(&json, "null");
	else
	{
		appendStringInfo(&json, "{\"code\": \"%s\", \"detail\": ", code);
		escape_json(&json, detail);
		appendStringInfoChar(&json, '}');
	}
	appendStringInfo(&json, ", \"fingerprint\": \"%016llx\", \"encoding\": ", (unsigned long long) layout->fingerprint);
	escape_json(&json, GetDatabaseEncodingName());
	appendStringInfo(&json, ", \"block_size\": %d, \"max_align\": %d, \"toast_threshold\": %d, \"columns\": [",
					 BLCKSZ, MAXIMUM_ALIGNOF, (int) TOAST_TUPLE_THRESHOLD);
	for (int i = 0; i < layout->natts; i++)
	{
		if (i > 0)
			appendStringInfoString(&json, ", ");
		append_column(&json, &layout->columns[i]);
	}
	appendStringInfoString(&json, "]}");
	table_close(rel, NoLock);
	PG_RETURN_DATUM(CStringGetTextDatum(json.data));
}
