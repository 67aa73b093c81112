/*
 * qualify.c
 *	  Which tables take frames, and which are left to COPY's other formats. In doubt they are left.
 *
 * The codes are part of the format (docs/format-inrush.md): clients act on them.
 */
#include "inrush.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_index.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_publication.h"
#include "catalog/pg_publication_rel.h"
#include "catalog/pg_trigger.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/syscache.h"

/* An enabled trigger that INSERT fires; foreign keys have a code of their own. */
static const char *
trigger_refusal(Relation rel, char **detail)
{
	TriggerDesc *triggers = rel->trigdesc;

	if (triggers == NULL)
		return NULL;
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (!TRIGGER_FOR_INSERT(trigger->tgtype) || trigger->tgenabled == TRIGGER_DISABLED)
			continue;
		/* The names of internal triggers tell nobody anything. */
		if (trigger->tgisinternal && OidIsValid(trigger->tgconstraint))
			*detail = psprintf("constraint \"%s\"", get_constraint_name(trigger->tgconstraint));
		else
			*detail = psprintf("trigger \"%s\"", trigger->tgname);
		switch (RI_FKey_trigger_type(trigger->tgfoid))
		{
			case RI_TRIGGER_FK:
				return "foreign-key";
			case RI_TRIGGER_PK:
				continue;		/* not fired by INSERT */
			default:
				return trigger->tgfoid == F_UNIQUE_KEY_RECHECK ? "deferrable" : "trigger";
		}
	}
	return NULL;
}

/* A constraint whose check may be put off needs the triggers' queue. */
static const char *
index_refusal(Relation rel, char **detail)
{
	ListCell   *cell;

	foreach(cell, RelationGetIndexList(rel))
	{
		Oid			index = lfirst_oid(cell);
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
		bool		immediate;

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for index %u", index);
		immediate = ((Form_pg_index) GETSTRUCT(tuple))->indimmediate;
		ReleaseSysCache(tuple);
		if (!immediate)
		{
			*detail = psprintf("index \"%s\"", get_rel_name(index));
			return "deferrable";
		}
	}
	return NULL;
}

static const char *
column_refusal(Relation rel, const InrushLayout *layout, char **detail)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (desc->constr != NULL && (desc->constr->has_generated_stored || compat_has_virtual_columns(desc->constr)))
	{
		*detail = pstrdup("a generated column");
		return "generated";
	}
	for (int i = 0; i < layout->natts; i++)
	{
		const InrushColumn *column = &layout->columns[i];

		if (column->class == INRUSH_DROPPED)
			continue;
		*detail = psprintf("column \"%s\"", column->name);
		if (column->sent)
		{
			if (column->class == INRUSH_REFUSE)
				return "column-type";
		}
		else
		{
			Node	   *expression = build_column_default(rel, i + 1);

			/* As for COPY's buffering: what a default might read must not be half written. */
			if (expression != NULL && contain_volatile_functions_not_nextval(expression))
				return "volatile-default";
		}
	}
	return NULL;
}

/* Whether one of the relation's publications has a row filter for it. */
static bool
is_filtered(Oid relid, char **detail)
{
	ListCell   *cell;

	foreach(cell, GetRelationPublications(relid))
	{
		Oid			publication = lfirst_oid(cell);
		HeapTuple	tuple = SearchSysCache2(PUBLICATIONRELMAP, ObjectIdGetDatum(relid),
											ObjectIdGetDatum(publication));
		bool		unfiltered = true;

		if (HeapTupleIsValid(tuple))
		{
			(void) SysCacheGetAttr(PUBLICATIONRELMAP, tuple, Anum_pg_publication_rel_prqual, &unfiltered);
			ReleaseSysCache(tuple);
		}
		if (!unfiltered)
		{
			*detail = psprintf("publication \"%s\"", get_publication_name(publication, false));
			return true;
		}
	}
	return false;
}

/*
 * Row filters are evaluated on what is decoded, but nobody has measured that for us. A leaf's rows pass the filter of
 * the table that is published in its stead.
 */
static const char *
publication_refusal(Relation rel, char **detail)
{
	ListCell   *cell;

	if (is_filtered(RelationGetRelid(rel), detail))
		return "publication-filter";
	if (rel->rd_rel->relispartition)
		foreach(cell, get_partition_ancestors(RelationGetRelid(rel)))
			if (is_filtered(lfirst_oid(cell), detail))
				return "publication-filter";
	return NULL;
}

/* The table schema.name, or InvalidOid if there is none. */
static Oid
table_named(const char *schema, const char *name)
{
	Oid			namespace = get_namespace_oid(schema, true);

	return OidIsValid(namespace) ? get_relname_relid(name, namespace) : InvalidOid;
}

/* Whether schema.name has such a column; no if there is no such table. */
static bool
has_column(const char *schema, const char *name, const char *column)
{
	Oid			relid = table_named(schema, name);

	return OidIsValid(relid) && get_attnum(relid, column) != InvalidAttrNumber;
}

/* Whether a row of the table schema.name has this relation in the column: by OID, or by name beside its schema's. */
static bool
is_listed(const char *schema, const char *name, const char *schema_column, const char *name_column, Relation rel)
{
	Oid			relid = table_named(schema, name);
	AttrNumber	name_at,
				schema_at = InvalidAttrNumber;
	Relation	list;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	if (!OidIsValid(relid))
		return false;
	name_at = get_attnum(relid, name_column);
	if (schema_column != NULL)
		schema_at = get_attnum(relid, schema_column);
	/* Another version of theirs than we know: in doubt it is listed. */
	if (name_at == InvalidAttrNumber || (schema_column != NULL && schema_at == InvalidAttrNumber))
		return true;
	list = table_open(relid, AccessShareLock);
	scan = systable_beginscan(list, InvalidOid, false, NULL, 0, NULL);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		null;
		Datum		value = heap_getattr(tuple, name_at, RelationGetDescr(list), &null);

		if (null)
			continue;
		if (schema_column == NULL)
			found = DatumGetObjectId(value) == RelationGetRelid(rel);
		else if (strcmp(NameStr(*DatumGetName(value)), RelationGetRelationName(rel)) == 0)
		{
			value = heap_getattr(tuple, schema_at, RelationGetDescr(list), &null);
			found = !null &&
				strcmp(NameStr(*DatumGetName(value)), get_namespace_name(RelationGetNamespace(rel))) == 0;
		}
	}
	systable_endscan(scan);
	table_close(list, AccessShareLock);
	return found;
}

/* Extensions that keep a table's rows somewhere else, under an ordinary heap. */
static const char *
elsewhere_refusal(Relation rel, char **detail)
{
	if (OidIsValid(get_extension_oid("citus", true)) &&
		is_listed("pg_catalog", "pg_dist_partition", NULL, "logicalrelid", rel))
	{
		*detail = pstrdup("a table of Citus");
		return "distributed";
	}
	if (OidIsValid(get_extension_oid("timescaledb", true)) &&
		(is_listed("_timescaledb_catalog", "hypertable", "schema_name", "table_name", rel) ||
		 /* From 2.29 on a chunk is told by its OID, and its compressed rows are in no list of chunks. */
		 (has_column("_timescaledb_catalog", "chunk", "relid") ?
		  is_listed("_timescaledb_catalog", "chunk", NULL, "relid", rel) :
		  is_listed("_timescaledb_catalog", "chunk", "schema_name", "table_name", rel)) ||
		 (has_column("_timescaledb_catalog", "compression_settings", "compress_relid") &&
		  is_listed("_timescaledb_catalog", "compression_settings", NULL, "compress_relid", rel))))
	{
		*detail = pstrdup("a hypertable or a chunk of one");
		return "hypertable";
	}
	return NULL;
}

/*
 * An auditor whose hook records COPY statements, while ours, on top of it, would take this one first.
 */
const char *
inrush_audit_refusal(char **detail)
{
	if (GetConfigOption("pgaudit.log", true, false) == NULL || inrush_is_below_others())
		return NULL;
	*detail = pstrdup("pgaudit");
	return "audit";
}

/*
 * NULL if the relation takes frames for these columns. Holds only while the caller's lock on it does.
 */
const char *
inrush_refusal(Relation rel, const InrushLayout *layout, char **detail)
{
	const char *code;

	*detail = psprintf("\"%s\"", RelationGetRelationName(rel));
	if (rel->rd_rel->relkind != RELKIND_RELATION || IsCatalogRelation(rel) || IsToastRelation(rel) ||
		RelationIsUsedAsCatalogTable(rel))
		return "not-a-table";
	if (RELATION_IS_OTHER_TEMP(rel))
		return "other-session";
	if (rel->rd_tableam != GetHeapamTableAmRoutine())
		return "access-method";
	if (check_enable_rls(RelationGetRelid(rel), InvalidOid, true) == RLS_ENABLED)
		return "row-security";
	/* First of these: their own triggers say less. */
	if ((code = elsewhere_refusal(rel, detail)) != NULL ||
		(code = trigger_refusal(rel, detail)) != NULL || (code = index_refusal(rel, detail)) != NULL ||
		(code = column_refusal(rel, layout, detail)) != NULL ||
		(code = publication_refusal(rel, detail)) != NULL ||
		(code = inrush_audit_refusal(detail)) != NULL)
		return code;
	*detail = NULL;
	return NULL;
}
