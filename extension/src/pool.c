/*
 * pool.c
 *	  The memory of shared buffers, mapped into this process before PostgreSQL zeroes a buffer for a new block.
 *
 * A backend that has just started has none of the pool in its page table: the first write to each 4 kB of it is a page
 * fault, which was a quarter of the server's time in a load. A fault that reads maps what lies around the address, too
 * (Linux: 64 kB, if it is in memory), and for writing, since the memory is shared. So one byte per window is read before
 * it is written to, and fifteen of sixteen faults are saved. Which buffers come next nobody says, but the clock sweep
 * and the list of free buffers (freelist.c, StrategyGetBuffer) give mostly neighbours of those that came last.
 *
 * Nothing is assumed of the bytes, nor of whose buffer it is: they are read without a pin, and thrown away. With huge
 * pages, or where the system maps page by page, this changes nothing.
 */
#include "inrush.h"

#include "storage/bufmgr.h"

/* What a fault maps: Documentation/filesystems/proc.rst and fault_around_bytes of mm/memory.c. */
#define WINDOW ((Size) 64 * 1024)
/* What is mapped in one go: two groups of pages, so that the neighbour of a region is mapped before its turn. */
#define REGION_BUFFERS (2 * INRUSH_GROUP_PAGES)

struct InrushPool
{
	int			nregions;
	bool	   *mapped;			/* regions that this load has mapped */
};

InrushPool *
inrush_pool_begin(void)
{
	InrushPool *pool = palloc(sizeof(InrushPool));

	pool->nregions = (NBuffers + REGION_BUFFERS - 1) / REGION_BUFFERS;
	pool->mapped = palloc0(pool->nregions * sizeof(bool));
	return pool;
}

static void
map_region(InrushPool *pool, int region)
{
#ifndef USE_VALGRIND			/* it forbids to read what is not pinned */
	Size		at;
	Size		end;

	if (region < 0 || region >= pool->nregions || pool->mapped[region])
		return;
	pool->mapped[region] = true;
	at = (Size) region * REGION_BUFFERS * BLCKSZ;
	end = Min(at + (Size) REGION_BUFFERS * BLCKSZ, (Size) NBuffers * BLCKSZ);
	for (; at < end; at += WINDOW)
		(void) *(volatile const char *) (BufferBlocks + at);
#endif
}

/* Maps what lies around a shared buffer that a new block has just got. */
void
inrush_pool_got(InrushPool *pool, Buffer buffer)
{
	int			region = (buffer - 1) / REGION_BUFFERS;

	for (int i = -1; i <= 1; i++)
		map_region(pool, region + i);
}
