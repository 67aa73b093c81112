/*
 * tables.c
 *	  What is known of tables, and what drops it: changes of the table, of Citus' catalogs, of foreign servers.
 *
 * Whoever asks holds a lock on the table. An entry may become invalid whenever invalidations are accepted, which
 * opening any catalog may do; its memory stays until the transaction ends, so that whoever has it in hand is safe.
 */
#include "dml.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/catcache.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

typedef struct Entry
{
	Oid			relid;			/* hash key */
	DmlTable   *table;			/* NULL: none */
} Entry;

static HTAB *entries;

/* Citus' catalogs: it invalidates their relcache entries when rows in them change. */
static Oid	watched[8];
static int	nwatched;

static void
invalidate_all(void)
{
	HASH_SEQ_STATUS status;
	Entry	   *entry;

	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (entry->table != NULL)
			entry->table->valid = false;
	dml_leaves_invalidate(InvalidOid);
}

static void
relation_changed(Datum argument, Oid relid)
{
	Entry	   *entry;

	if (!OidIsValid(relid))
	{
		invalidate_all();
		return;
	}
	for (int i = 0; i < nwatched; i++)
		if (watched[i] == relid)
		{
			invalidate_all();
			dml_nodes_invalidate(false);
			return;
		}
	entry = hash_search(entries, &relid, HASH_FIND, NULL);
	if (entry != NULL && entry->table != NULL)
		entry->table->valid = false;
	dml_leaves_invalidate(relid);
}

/* Rare enough to drop everything. */
static void
object_changed(Datum argument, int cache, uint32 hash)
{
	invalidate_all();
	if (cache == FOREIGNSERVEROID || cache == USERMAPPINGOID)
		dml_nodes_invalidate(true);
}

void
dml_tables_init(void)
{
	HASHCTL		control = {0};

	/* In the postmaster, of shared_preload_libraries, there is none yet; backends inherit it. */
	if (CacheMemoryContext == NULL)
		CreateCacheMemoryContext();
	control.keysize = sizeof(Oid);
	control.entrysize = sizeof(Entry);
	control.hcxt = CacheMemoryContext;
	entries = hash_create("inrush_dml tables", 32, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, object_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(USERMAPPINGOID, object_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNTABLEREL, object_changed, (Datum) 0);
	/* Names in texts have their schema; a schema that is renamed is no change of its tables. */
	CacheRegisterSyscacheCallback(NAMESPACEOID, object_changed, (Datum) 0);
}

/* From now on a change of this catalog drops all tables. */
void
dml_watch_catalog(Oid relid)
{
	if (!OidIsValid(relid))
		return;
	for (int i = 0; i < nwatched; i++)
		if (watched[i] == relid)
			return;
	/* Dropped and made again, with another OID each time: the oldest goes. */
	if (nwatched == lengthof(watched))
		memmove(watched, watched + 1, --nwatched * sizeof(Oid));
	watched[nwatched++] = relid;
}

static void
load(DmlTable *table, Relation rel)
{
	table->row_security = rel->rd_rel->relrowsecurity;
	if (dml_citus_is_here() && dml_citus_load(table, rel))
		return;
	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
	{
		dml_partitions_load(table, rel);
		return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("table \"%s\" is not distributed", RelationGetRelationName(rel)),
			 errhint("distribute_dml() is for distributed tables of Citus and for partitioned tables; send the statement itself.")));
}

/* What is cached of the table, which is looked up first if need be. The caller holds a lock on the table. */
DmlTable *
dml_table(Oid relid)
{
	bool		found;
	Entry	   *entry = hash_search(entries, &relid, HASH_ENTER, &found);

	if (!found)
		entry->table = NULL;
	while (entry->table == NULL || !entry->table->valid)
	{
		MemoryContext context;
		Relation	rel;
		DmlTable   *table;

		CHECK_FOR_INTERRUPTS();
		if (entry->table != NULL)
		{
			MemoryContextSetParent(entry->table->context, TopTransactionContext);
			entry->table = NULL;
		}
		rel = try_table_open(relid, NoLock);
		if (rel == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("relation with OID %u does not exist", relid),
					 errhint("It was dropped, or made anew, meanwhile; send the statement again.")));
		context = AllocSetContextCreate(CurrentMemoryContext, "inrush_dml table", ALLOCSET_SMALL_SIZES);
		table = MemoryContextAllocZero(context, sizeof(DmlTable));
		table->relid = relid;
		table->context = context;
		table->key.context = context;
		/* What is invalidated while it is being read is read again. */
		table->valid = true;
		PG_TRY();
		{
			entry->table = table;
			load(table, rel);
		}
		PG_CATCH();
		{
			entry->table = NULL;
			PG_RE_THROW();
		}
		PG_END_TRY();
		/* Loading may have grown the hash table, but its entries stay where they are (dynahash.c). */
		MemoryContextSetParent(context, CacheMemoryContext);
		table_close(rel, NoLock);
	}
	return entry->table;
}
