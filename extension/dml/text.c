/*
 * text.c
 *	  The text of a statement: what it is, by its first word, and the name of the shard in place of its %s.
 *
 * Nothing is parsed: the node parses it, which is the point. That no second statement follows is the protocol's
 * doing, or SPI's where the shard is here.
 */
#include "dml.h"

#include <ctype.h>

#include "mb/pg_wchar.h"
#include "parser/scansup.h"

/* Behind white space and comments, which nest in SQL (scan.l). */
static const char *
skip_blanks(const char *at)
{
	for (;;)
	{
		if (scanner_isspace(*at))
			at++;
		else if (at[0] == '-' && at[1] == '-')
			at += strcspn(at, "\r\n");
		else if (at[0] == '/' && at[1] == '*')
		{
			int			depth = 0;

			do
			{
				if (at[0] == '/' && at[1] == '*')
				{
					depth++;
					at += 2;
				}
				else if (at[0] == '*' && at[1] == '/')
				{
					depth--;
					at += 2;
				}
				else
					at++;
			} while (depth > 0 && *at != '\0');
		}
		else
			return at;
	}
}

/* A word that ends there: identifiers go on with letters, digits, _ and $, and with what is no ASCII. */
static bool
is_word(const char *at, const char *word)
{
	Size		length = strlen(word);

	return pg_strncasecmp(at, word, length) == 0 &&
		!isalnum((unsigned char) at[length]) && at[length] != '_' && at[length] != '$' && !IS_HIGHBIT_SET(at[length]);
}

/* What the text says it is. WITH is refused: what a statement behind it does to the table is not to be seen here. */
DmlStatement
dml_statement(const char *text)
{
	const char *at = skip_blanks(text);

	if (is_word(at, "INSERT"))
		return DML_INSERT;
	if (is_word(at, "UPDATE"))
		return DML_UPDATE;
	if (is_word(at, "DELETE"))
		return DML_DELETE;
	ereport(ERROR,
			(errcode(ERRCODE_SYNTAX_ERROR),
			 errmsg("the text is not an INSERT, UPDATE or DELETE"),
			 is_word(at, "WITH") ?
			 errhint("Write queries of a WITH clause behind INSERT INTO %%s, or as subqueries.") :
			 errhint("The first word of the text must be INSERT, UPDATE or DELETE.")));
}

const char *
dml_statement_name(DmlStatement statement)
{
	static const char *const names[] = {"INSERT", "UPDATE", "DELETE"};

	return names[statement];
}

static void
refuse_placeholder(const char *text, const char *at, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s at character %d of the text", what, pg_mbstrlen_with_len(text, at - text) + 1),
			 errhint("%%s and %%1$s stand for the table; write %%%% for a percent sign.")));
}

/* Appends the text with the name for %s and %1$s and a percent sign for %%, as format() has it (varlena.c). */
void
dml_expand(StringInfo into, const char *text, const char *name)
{
	const char *at = text;
	bool		found = false;

	for (;;)
	{
		const char *percent = strchr(at, '%');
		const char *next;

		if (percent == NULL)
			break;
		appendBinaryStringInfo(into, at, percent - at);
		next = percent + 1;
		if (*next == '%')
			appendStringInfoChar(into, '%');
		else
		{
			if (isdigit((unsigned char) *next))
			{
				const char *digits = next;

				while (isdigit((unsigned char) *next))
					next++;
				if (*next == '$')
				{
					if (next != digits + 1 || *digits != '1')
						refuse_placeholder(text, percent, "a placeholder for another argument than the table");
					next++;
				}
				else
					next = digits;
			}
			if (*next != 's')
				refuse_placeholder(text, percent, "a percent sign that begins no placeholder");
			appendStringInfoString(into, name);
			found = true;
		}
		at = next + 1;
	}
	appendStringInfoString(into, at);
	if (!found)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the text has no placeholder for the table"),
				 errhint("Write %%s where the table's name belongs, as in INSERT INTO %%s VALUES (1).")));
}
