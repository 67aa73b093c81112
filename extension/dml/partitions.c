/*
 * partitions.c
 *	  Partitioned tables of PostgreSQL: which leaf takes a value, and where it is. Leaves are tables here, or foreign
 *	  tables of postgres_fdw, whose options say what they are called on which server.
 *
 * The partition is found with PostgreSQL's own functions, in the order of get_partition_for_tuple() (execPartition.c).
 */
#include "dml.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_trigger.h"
#include "commands/defrem.h"
#include "commands/trigger.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/partcache.h"

typedef struct Leaf
{
	Oid			relid;			/* hash key */
	bool		valid;			/* cleared by invalidations, at any moment */
	DmlTarget	target;
	char		name[4 * NAMEDATALEN + 8];	/* quoted names may be twice as long */
} Leaf;

static HTAB *leaves;

/* A relation has changed, or all may have. */
void
dml_leaves_invalidate(Oid relid)
{
	Leaf	   *leaf;

	if (leaves == NULL)
		return;
	if (OidIsValid(relid))
	{
		leaf = hash_search(leaves, &relid, HASH_FIND, NULL);
		if (leaf != NULL)
			leaf->valid = false;
	}
	else
	{
		HASH_SEQ_STATUS status;

		hash_seq_init(&status, leaves);
		while ((leaf = hash_seq_search(&status)) != NULL)
			leaf->valid = false;
	}
}

static void
refuse(Relation rel, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
			 errmsg("table \"%s\" %s", RelationGetRelationName(rel), what),
			 errhint("Send the statement itself to the table.")));
}

/* Whether one would be passed over: of statements, or of rows where a foreign leaf has some. */
static bool
has_triggers(Relation rel, bool of_rows)
{
	TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (trigger->tgenabled != TRIGGER_DISABLED && !trigger->tgisinternal &&
			(of_rows || !TRIGGER_FOR_ROW(trigger->tgtype)))
			return true;
	}
	return false;
}

/* The only column of the key; refuses other keys. */
static AttrNumber
key_column(Relation rel)
{
	PartitionKey key = RelationGetPartitionKey(rel);

	if (key->partnatts != 1)
		refuse(rel, "is partitioned by several columns");
	if (key->partattrs[0] == 0)
		refuse(rel, "is partitioned by an expression");
	return key->partattrs[0];
}

void
dml_partitions_load(DmlTable *table, Relation rel)
{
	table->kind = DML_PARTITIONED;
	dml_key_init(&table->key, rel, key_column(rel));
	if (has_triggers(rel, false))
		refuse(rel, "has triggers of statements, which would not be called");
	if (rel->rd_rules != NULL)
		refuse(rel, "has rules, which would not be followed");
}

/* The index of the partition that takes the value; -1 if there is none. */
static int
partition_of(Relation rel, PartitionDesc partitions, Datum value)
{
	PartitionKey key = RelationGetPartitionKey(rel);
	PartitionBoundInfo bounds = partitions->boundinfo;
	bool		null = false,
				equal = false;
	int			index = -1,
				offset;

	if (partitions->nparts == 0)
		return -1;
	switch (key->strategy)
	{
		case PARTITION_STRATEGY_HASH:
			/* Where no partition has the remainder there is none: hash partitioning has no default. */
			return bounds->indexes[compute_partition_hash_value(key->partnatts, key->partsupfunc, key->partcollation,
																&value, &null) % bounds->nindexes];
		case PARTITION_STRATEGY_LIST:
			offset = partition_list_bsearch(key->partsupfunc, key->partcollation, bounds, value, &equal);
			if (offset >= 0 && equal)
				index = bounds->indexes[offset];
			break;
		case PARTITION_STRATEGY_RANGE:
			offset = partition_range_datum_bsearch(key->partsupfunc, key->partcollation, bounds, key->partnatts,
												   &value, &equal);
			/* The bound there is the least of the partition behind it. */
			index = bounds->indexes[offset + 1];
			break;
		default:
			elog(ERROR, "partition strategy \"%c\" is not known", key->strategy);
	}
	return index < 0 ? bounds->default_index : index;
}

static const char *
option(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *element = lfirst(cell);

		if (strcmp(element->defname, name) == 0)
			return defGetString(element);
	}
	return NULL;
}

/* What a table of postgres_fdw is called on its server, and which that is. */
static void
load_foreign(Leaf *leaf, Relation rel)
{
	ForeignTable *foreign = GetForeignTable(leaf->relid);
	ForeignServer *server = GetForeignServer(foreign->serverid);
	const char *schema = option(foreign->options, "schema_name");
	const char *name = option(foreign->options, "table_name");
	const char *updatable = option(foreign->options, "updatable");
	bool		may_update = true;

	if (strcmp(GetForeignDataWrapper(server->fdwid)->fdwname, "postgres_fdw") != 0)
		refuse(rel, "is a foreign table, but none of postgres_fdw");
	if (updatable == NULL)
		updatable = option(server->options, "updatable");
	if (updatable != NULL && parse_bool(updatable, &may_update) && !may_update)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("foreign table \"%s\" does not allow changes", RelationGetRelationName(rel)),
				 errhint("Its option updatable, or that of its server, says so.")));
	if (has_triggers(rel, true))
		refuse(rel, "has triggers, which would not be called");
	if (schema == NULL)
		schema = get_namespace_name(RelationGetNamespace(rel));
	if (name == NULL)
		name = RelationGetRelationName(rel);
	/* Names of the other server may be longer than ours. */
	if (strlcpy(leaf->name, quote_qualified_identifier(schema, name), sizeof(leaf->name)) >= sizeof(leaf->name))
		refuse(rel, "has too long a name on its server");
	leaf->target.local = false;
	leaf->target.place.server = server->serverid;
}

/* What is known of a leaf, which is locked. */
static Leaf *
find_leaf(Oid relid)
{
	Leaf	   *leaf;
	bool		found;

	if (leaves == NULL)
	{
		HASHCTL		control = {0};

		control.keysize = sizeof(Oid);
		control.entrysize = sizeof(Leaf);
		control.hcxt = CacheMemoryContext;
		leaves = hash_create("inrush_dml leaves", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	leaf = hash_search(leaves, &relid, HASH_ENTER, &found);
	if (!found)
		leaf->valid = false;
	while (!leaf->valid)
	{
		Relation	rel = table_open(relid, NoLock);

		/* What is invalidated while it is being read is read again; an error leaves nothing that is believed. */
		memset(&leaf->target, 0, sizeof(leaf->target));
		leaf->target.name = leaf->name;
		leaf->valid = true;
		PG_TRY();
		{
			if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
				load_foreign(leaf, rel);
			else
			{
				strlcpy(leaf->name, quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
															   RelationGetRelationName(rel)), sizeof(leaf->name));
				leaf->target.local = true;
			}
		}
		PG_CATCH();
		{
			leaf->valid = false;
			PG_RE_THROW();
		}
		PG_END_TRY();
		table_close(rel, NoLock);
	}
	return leaf;
}

/*
 * The leaf of a value in the key's type; an error if there is none. It and the partitions above it are locked as an
 * INSERT would lock them; `rel` is by the caller. What is returned is good until invalidations are accepted.
 */
const DmlTarget *
dml_partition(DmlTable *table, Relation rel, Datum value)
{
	Relation	at = rel;
	Leaf	   *leaf;

	for (;;)
	{
		/* As ExecFindPartition() has it: partitions being detached take no new rows, but for old snapshots. */
		PartitionDesc partitions = RelationGetPartitionDesc(at, !IsolationUsesXactSnapshot());
		int			index = partition_of(at, partitions, value);
		Oid			relid;
		bool		is_leaf;

		if (index < 0)
			ereport(ERROR,
					(errcode(ERRCODE_CHECK_VIOLATION),
					 errmsg("no partition of table \"%s\" takes the value", RelationGetRelationName(at)),
					 errhint("The value of column \"%s\" is in none of the bounds.", table->key.column)));
		relid = partitions->oids[index];
		is_leaf = partitions->is_leaf[index];
		LockRelationOid(relid, RowExclusiveLock);
		if (at != rel)
			table_close(at, NoLock);
		if (is_leaf)
		{
			leaf = find_leaf(relid);
			break;
		}
		at = table_open(relid, NoLock);
		if (strcmp(NameStr(TupleDescAttr(RelationGetDescr(at), key_column(at) - 1)->attname), table->key.column) != 0)
			refuse(at, "is partitioned by another column than the table above it");
	}
	/* Whoever may use a server may send it anything that the user mapping allows; dblink asks for the same. */
	if (!leaf->target.local && compat_server_aclcheck(leaf->target.place.server, GetUserId()) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for foreign server %s",
						GetForeignServer(leaf->target.place.server)->servername),
				 errhint("distribute_dml() needs USAGE on the servers of the partitions.")));
	return &leaf->target;
}
