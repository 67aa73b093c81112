//! Waking the server's WAL writer.
//!
//! It looks every `wal_writer_delay` (200 ms) whether there is something to write. Who commits asynchronously wakes it
//! (xlog.c, `XLogSetAsyncXactLSN`): an empty transaction costs a transaction id and about 40 bytes of WAL; logical
//! decoding does not see it, and nobody's commit depends on it.

/// Commits asynchronously if there is more unflushed WAL than the WAL writer flushes at once
/// (`wal_writer_flush_after`, 1 MB by default); gives a row then.
pub const NUDGE: &str = "
    SELECT pg_catalog.set_config('synchronous_commit', 'off', true),
           pg_catalog.pg_current_xact_id()::pg_catalog.text
     WHERE pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(),
                                      pg_catalog.pg_current_wal_flush_lsn())
           OPERATOR(pg_catalog.>) 1048576::pg_catalog.numeric";
