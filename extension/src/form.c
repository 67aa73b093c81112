/*
 * form.c
 *	  Verified rows to tuples. Most are taken as they are; a row is formed anew if a value of it comes in the form its
 *	  type's receive function reads, or is a default.
 *
 * What is to be checked of values, not of bytes, is checked here: domains, CHECK, the bound of a partition.
 */
#include "inrush.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

struct InrushForm
{
	InrushLoad *load;
	TupleDesc	wire;			/* as the frames are laid out: received values are bytea */
	bool		rebuild;		/* receive functions or defaults */
	bool		domains;
	bool		constraints;	/* CHECK, or NOT NULL of a column that is not sent */
	bool		bound;			/* the table is a partition */
	TupleTableSlot *slot;		/* for the executor's checks */
	Datum	   *values;
	bool	   *nulls;
};

/* The default of a column that is not sent; false if it has none. */
static bool
prepare_default(InrushLoad *load, int i)
{
	Node	   *expression = build_column_default(load->rel, i + 1);

	if (expression == NULL)
		return false;
	expression = (Node *) expression_planner((Expr *) expression);
	load->layout->columns[i].fill = ExecInitExpr((Expr *) expression, NULL);
	return true;
}

InrushForm *
inrush_form_begin(InrushLoad *load)
{
	InrushForm *form = palloc0(sizeof(InrushForm));
	InrushLayout *layout = load->layout;
	TupleConstr *constr = layout->desc->constr;
	Oid			receive;

	form->load = load;
	form->wire = layout->desc;
	form->domains = layout->has_domain;
	form->constraints = constr != NULL && constr->num_check > 0;
	form->bound = load->rel->rd_rel->relispartition;
	form->values = palloc(sizeof(Datum) * Max(layout->natts, 1));
	form->nulls = palloc(sizeof(bool) * Max(layout->natts, 1));
	form->slot = MakeSingleTupleTableSlot(layout->desc, &TTSOpsHeapTuple);

	if (layout->has_receive)
	{
		form->wire = CreateTupleDescCopy(layout->desc);
		compat_forget_offsets(form->wire);
	}
	for (int i = 0; i < layout->natts; i++)
	{
		InrushColumn *column = &layout->columns[i];

		if (column->class == INRUSH_DROPPED)
			continue;
		if (!column->sent)
		{
			layout->has_fill |= prepare_default(load, i);
			if (TupleDescAttr(layout->desc, i)->attnotnull)
				form->constraints = true;
			if (column->base != column->type)
				form->domains = true;
		}
		else if (column->class == INRUSH_RECEIVE)
		{
			TupleDescInitEntry(form->wire, i + 1, column->name, BYTEAOID, -1, 0);
			getTypeBinaryInputInfo(column->base, &receive, &column->ioparam);
			fmgr_info(receive, &column->receive);
		}
	}
	form->rebuild = layout->has_receive || layout->has_fill;
	return form;
}

/* Whether rows must be looked at as tuples; if not, their bytes are all there is to it. */
bool
inrush_form_needed(const InrushForm *form)
{
	return form->rebuild || form->domains || form->constraints || form->bound;
}

/* The row as a tuple, in one piece of the current memory context. */
static HeapTuple
plain_tuple(const InrushLoad *load, const InrushRow *row)
{
	HeapTuple	tuple = palloc(HEAPTUPLESIZE + SizeofHeapTupleHeader + row->length);
	HeapTupleHeader header = (HeapTupleHeader) ((char *) tuple + HEAPTUPLESIZE);

	tuple->t_len = SizeofHeapTupleHeader + row->length;
	ItemPointerSetInvalid(&tuple->t_self);
	tuple->t_tableOid = RelationGetRelid(load->rel);
	tuple->t_data = header;
	memset(header, 0, SizeofHeapTupleHeader);
	HeapTupleHeaderSetNatts(header, load->layout->natts);
	header->t_infomask = row->infomask;
	header->t_hoff = row->hoff;
	memcpy((char *) header + SizeofHeapTupleHeader, row->data, row->length);
	return tuple;
}

/* What the type's receive function makes of the bytes. */
static Datum
received(InrushColumn *column, Datum bytes)
{
	bytea	   *carried = DatumGetByteaPP(bytes);
	StringInfoData buffer;
	Datum		value;

	/* A copy: receive functions may count on the byte behind the last, which is zero. */
	initStringInfo(&buffer);
	appendBinaryStringInfo(&buffer, VARDATA_ANY(carried), VARSIZE_ANY_EXHDR(carried));
	value = ReceiveFunctionCall(&column->receive, &buffer, column->ioparam, column->typmod);
	if (buffer.cursor != buffer.len)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("incorrect binary data format")));
	return value;
}

/* Takes the tuple apart, receives, fills in, and checks domains. */
static HeapTuple
rebuilt(InrushForm *form, HeapTuple tuple)
{
	InrushLoad *load = form->load;
	InrushLayout *layout = load->layout;

	heap_deform_tuple(tuple, form->wire, form->values, form->nulls);
	for (int i = 0; i < layout->natts; i++)
	{
		InrushColumn *column = &layout->columns[i];

		load->column = i + 1;
		if (column->class == INRUSH_DROPPED)
			continue;
		if (column->fill != NULL)
			form->values[i] = ExecEvalExpr(column->fill, load->context, &form->nulls[i]);
		else if (column->sent && column->class == INRUSH_RECEIVE && !form->nulls[i])
			form->values[i] = received(column, form->values[i]);
		if (column->base != column->type && column->fill == NULL)
			domain_check(form->values[i], form->nulls[i], column->type, &column->domain,
						 load->estate->es_query_cxt);
	}
	load->column = 0;
	if (!form->rebuild)
		return tuple;
	tuple = heap_form_tuple(layout->desc, form->values, form->nulls);
	tuple->t_tableOid = RelationGetRelid(load->rel);
	return tuple;
}

/*
 * The row as a tuple to be written, in the current memory context, one piece. Every check has been made that does not
 * need the other rows of the table.
 */
HeapTuple
inrush_form_row(InrushForm *form, const InrushRow *row)
{
	InrushLoad *load = form->load;
	HeapTuple	tuple = plain_tuple(load, row);

	if (form->rebuild || form->domains)
		tuple = rebuilt(form, tuple);
	if (form->constraints || form->bound)
	{
		ExecStoreHeapTuple(tuple, form->slot, false);
		if (form->constraints)
			ExecConstraints(load->target, form->slot, load->estate);
		if (form->bound)
			ExecPartitionCheck(load->target, form->slot, load->estate, true);
		ExecClearTuple(form->slot);
	}
	return tuple;
}

/*
 * Raises the error of a verified row that has a null where there must be none: the executor's, whose detail shows of
 * the row what the user may see.
 */
void
inrush_form_violation(InrushLoad *load, const InrushRow *row)
{
	InrushForm *form = inrush_form_begin(load);

	form->constraints = true;
	(void) inrush_form_row(form, row);
	elog(ERROR, "a null value violates no constraint");
}

void
inrush_form_end(InrushForm *form)
{
	ExecDropSingleTupleTableSlot(form->slot);
}
