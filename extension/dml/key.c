/*
 * key.c
 *	  The distribution value in the type of the key, as an assignment to the column would have it: what is hashed must
 *	  be what is stored.
 */
#include "dml.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* Fills in what the column says. The key must be in memory of its own context. */
void
dml_key_init(DmlKey *key, Relation rel, AttrNumber attnum)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel), attnum - 1);

	key->attnum = attnum;
	key->column = MemoryContextStrdup(key->context, NameStr(attribute->attname));
	key->typmod = attribute->atttypmod;
	key->type = getBaseTypeAndTypmod(attribute->atttypid, &key->typmod);
	key->collation = attribute->attcollation;
	key->is_enum = get_typtype(key->type) == TYPTYPE_ENUM;
	key->source = InvalidOid;
}

static void
look_up(Oid function, DmlKey *key, FmgrInfo *info)
{
	if (compat_function_aclcheck(function, GetUserId()) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
	fmgr_info_cxt(function, info, key->context);
}

/*
 * Finds the way from a type to the key's: that of an assignment (parse_coerce.c), but that texts may be anything, as
 * literals are.
 */
static void
find_way(DmlKey *key, Oid source)
{
	Oid			base = getBaseType(source);
	Oid			function = InvalidOid;
	bool		varlena;

	key->source = InvalidOid;
	switch (find_coercion_pathway(key->type, base, COERCION_ASSIGNMENT, &function))
	{
		case COERCION_PATH_RELABELTYPE:
			key->way = DML_WAY_SAME;
			break;
		case COERCION_PATH_FUNC:
			key->way = DML_WAY_CAST;
			look_up(function, key, &key->cast);
			break;
		case COERCION_PATH_NONE:
			if (base != TEXTOID && base != VARCHAROID && base != BPCHAROID && base != UNKNOWNOID)
				goto wrong;
			/* FALLTHROUGH */
		case COERCION_PATH_COERCEVIAIO:
			key->way = DML_WAY_TEXT;
			getTypeOutputInfo(base, &function, &varlena);
			look_up(function, key, &key->cast);
			getTypeInputInfo(key->type, &function, &key->ioparam);
			look_up(function, key, &key->input);
			break;
		default:
			goto wrong;
	}
	/* The input function sees to the length itself. */
	key->has_length = false;
	if (key->typmod >= 0 && key->way != DML_WAY_TEXT)
		switch (find_typmod_coercion_function(key->type, &function))
		{
			case COERCION_PATH_NONE:
				break;
			case COERCION_PATH_FUNC:
				look_up(function, key, &key->length);
				key->has_length = true;
				break;
			default:
				goto wrong;
		}
	key->source = source;
	return;

wrong:
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("a value of type %s is none of column \"%s\", which is of type %s", format_type_be(source),
					key->column, format_type_be(key->type)),
			 errhint("Cast the value to the type of the column.")));
}

/* The value in the key's type, in the current memory context. May run functions of users. */
Datum
dml_key_value(DmlKey *key, Oid source, Datum value)
{
	if (source != key->source)
		find_way(key, source);
	switch (key->way)
	{
		case DML_WAY_SAME:
			break;
		case DML_WAY_CAST:
			/* The others are typmod, which `length` is for, and whether the cast is explicit. */
			value = (key->cast.fn_nargs == 1) ? FunctionCall1Coll(&key->cast, key->collation, value) :
				(key->cast.fn_nargs == 2) ?
				FunctionCall2Coll(&key->cast, key->collation, value, Int32GetDatum(-1)) :
				FunctionCall3Coll(&key->cast, key->collation, value, Int32GetDatum(-1), BoolGetDatum(false));
			break;
		case DML_WAY_TEXT:
			value = InputFunctionCall(&key->input, OutputFunctionCall(&key->cast, value), key->ioparam, key->typmod);
			break;
	}
	if (key->has_length)
		value = (key->length.fn_nargs == 2) ?
			FunctionCall2Coll(&key->length, key->collation, value, Int32GetDatum(key->typmod)) :
			FunctionCall3Coll(&key->length, key->collation, value, Int32GetDatum(key->typmod), BoolGetDatum(false));
	return value;
}
