/*
 * stream.c
 *	  The client's CopyData messages, as a stream of bytes. The sub-protocol is copyfromparse.c's, CopyGetData().
 */
#include "inrush.h"

#include "commands/progress.h"
#include "libpq/libpq.h"
#include "libpq/pqformat.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "pgstat.h"

/* Buffers that grew beyond this for a single row are given back. */
#define KEEP_BUFFER (4 * 1024 * 1024)

/* Tells the client to send. */
void
inrush_stream_begin(InrushStream *stream, int ncolumns)
{
	StringInfoData reply;

	memset(stream, 0, sizeof(*stream));
	initStringInfo(&stream->message);
	initStringInfo(&stream->block);

	pq_beginmessage(&reply, 'G');
	pq_sendbyte(&reply, 1);
	pq_sendint16(&reply, ncolumns);
	for (int i = 0; i < ncolumns; i++)
		pq_sendint16(&reply, 1);
	pq_endmessage(&reply);
	pq_flush();
}

static void
connection_lost(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("unexpected EOF on client connection with an open transaction")));
}

static void
shrink(StringInfo buffer)
{
	if (buffer->maxlen > KEEP_BUFFER)
	{
		MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(buffer->data));

		pfree(buffer->data);
		initStringInfo(buffer);
		MemoryContextSwitchTo(old);
	}
	else
		resetStringInfo(buffer);
}

/* Reads so many bytes from the client, past the buffer of pqcomm.c; false if there will be none. */
static bool
receive(char *to, Size size)
{
	/* As pq_recvbuf(). */
	MyProcPort->noblock = false;
	while (size > 0)
	{
		ssize_t		n = secure_read(MyProcPort, to, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			/* Not sent to the client, which cannot be reached: errors of the socket would follow each other. */
			ereport(COMMERROR,
					(errcode_for_socket_access(),
					 errmsg("could not receive data from client: %m")));
		if (n <= 0)
			return false;
		to += n;
		size -= (Size) n;
	}
	return true;
}

/* The client has sent a message that there is no memory for: what it sends next must be understood. */
static bool
discard(Size size)
{
	char		nothing[8192];

	while (size > 0)
	{
		Size		n = Min(size, sizeof(nothing));

		if (!receive(nothing, n))
			return false;
		size -= n;
	}
	return true;
}

/*
 * The rest of a message, behind its type: pq_getmessage(), but for bytes that do not lie in the buffer of pqcomm.c.
 * It fills that 8 kB at a time and copies them once more, which is a tenth of the time of a load.
 */
static bool
receive_rest(StringInfo message, int limit)
{
	uint32		length;

	if (!receive((char *) &length, sizeof(length)))
		return false;
	length = pg_ntoh32(length);
	if (length < sizeof(length) || length > (uint32) limit)
	{
		ereport(COMMERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message length")));
		return false;
	}
	length -= sizeof(length);
	PG_TRY();
	{
		enlargeStringInfo(message, (int) length);
	}
	PG_CATCH();
	{
		if (discard(length))
			pq_endmsgread();
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (!receive(message->data, length))
		return false;
	message->data[length] = '\0';
	message->len = (int) length;
	pq_endmsgread();
	return true;
}

/* The type of the next message, or EOF. */
static int
receive_type(bool buffered)
{
	char		type;

	if (buffered)
		return pq_getbyte();
	return receive(&type, 1) ? (unsigned char) type : EOF;
}

/* The next CopyData message; false after CopyDone. */
static bool
read_message(InrushStream *stream)
{
	for (;;)
	{
		int			type;
		int			limit;
		bool		buffered;

		CHECK_FOR_INTERRUPTS();
		shrink(&stream->message);
		stream->at = 0;

		HOLD_CANCEL_INTERRUPTS();
		pq_startmsgread();
		/* A client that has waited for our answer has left nothing there; then nothing comes there either. */
		buffered = compat_has_buffered();
		type = receive_type(buffered);
		switch (type)
		{
			case EOF:
				connection_lost();
				break;
			case 'd':
				limit = PQ_LARGE_MESSAGE_LIMIT;
				break;
			case 'c':
			case 'f':
			case 'H':
			case 'S':
				limit = PQ_SMALL_MESSAGE_LIMIT;
				break;
			default:
				ereport(ERROR,
						(errcode(ERRCODE_PROTOCOL_VIOLATION),
						 errmsg("unexpected message type 0x%02X during COPY from stdin", type)));
		}
		if (buffered ? pq_getmessage(&stream->message, limit) != 0 : !receive_rest(&stream->message, limit))
			connection_lost();
		RESUME_CANCEL_INTERRUPTS();

		switch (type)
		{
			case 'd':
				if (stream->message.len == 0)
					continue;
				stream->bytes += stream->message.len;
				pgstat_progress_update_param(PROGRESS_COPY_BYTES_PROCESSED, stream->bytes);
				return true;
			case 'c':
				stream->done = true;
				resetStringInfo(&stream->message);
				return false;
			case 'f':
				ereport(ERROR,
						(errcode(ERRCODE_QUERY_CANCELED),
						 errmsg("COPY from stdin failed: %s", pq_getmsgstring(&stream->message))));
				break;
			default:
				/* Flush and Sync mean nothing here: drivers send Sync behind Execute. */
				continue;
		}
	}
}

/*
 * The next `size` bytes in one piece, where they lie if they can be had there; valid until the next call. NULL at the
 * end of the stream, if it may end here.
 */
const char *
inrush_stream_bytes(InrushStream *stream, Size size, bool may_end)
{
	const char *bytes;

	shrink(&stream->block);
	if (stream->at == stream->message.len && !stream->done)
		(void) read_message(stream);
	if (stream->done && may_end)
		return NULL;
	if ((Size) (stream->message.len - stream->at) >= size)
	{
		bytes = stream->message.data + stream->at;
		stream->at += (int) size;
		return bytes;
	}
	while ((Size) stream->block.len < size)
	{
		Size		n;

		if (stream->at == stream->message.len && (stream->done || !read_message(stream)))
			ereport(ERROR,
					(errcode(ERRCODE_BAD_COPY_FILE_FORMAT),
					 errmsg("unexpected end of a block"),
					 errdetail("The client ended the COPY %zu bytes before it.", size - stream->block.len)));
		n = Min(size - stream->block.len, (Size) (stream->message.len - stream->at));
		appendBinaryStringInfo(&stream->block, stream->message.data + stream->at, (int) n);
		stream->at += (int) n;
	}
	return stream->block.data;
}
