//! The locks of a query that cannot be pruned to some windows, and how many the server has.

use crate::read::get;
use inrush_core::Result;
use inrush_sink::failure::server_error;
use tokio_postgres::GenericClient;

/// One query may take this part of the server's locks: with more, a handful at once end in "out of shared memory".
const SHARE: u64 = 4;

/// Locks of a query over all windows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Locks {
    /// Of the parent.
    pub fixed: u64,
    /// Of each window.
    pub per_window: u64,
    /// All that the server has for all sessions together.
    pub capacity: u64,
}

impl Locks {
    /// Of so many windows.
    pub fn of(&self, windows: u64) -> u64 {
        self.fixed.saturating_add(self.per_window.saturating_mul(windows))
    }

    /// Most that a query may take, before a table is refused.
    pub fn limit(&self) -> u64 {
        self.capacity / SHARE
    }

    /// Most windows within [`Locks::limit`].
    pub fn windows(&self) -> u64 {
        self.limit().saturating_sub(self.fixed) / self.per_window.max(1)
    }
}

/// What a query over all windows locks: every table and every index of it. Partitioned indexes count since PostgreSQL
/// 16, which looks at them when it plans (plancat.c, get_relation_info).
pub async fn locks(client: &impl GenericClient, relid: u32, lanes: u32, at_close: bool) -> Result<Locks> {
    // The formula of the documentation; the server has a few more, for its own processes.
    let row = client
        .query_one(
            "SELECT pg_catalog.current_setting('max_locks_per_transaction')::pg_catalog.int8,
                    pg_catalog.current_setting('max_connections')::pg_catalog.int8,
                    pg_catalog.current_setting('max_prepared_transactions')::pg_catalog.int8,
                    pg_catalog.current_setting('server_version_num')::pg_catalog.int4,
                    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_index i
                      WHERE i.indrelid OPERATOR(pg_catalog.=) $1)",
            &[&relid],
        )
        .await
        .map_err(server_error)?;
    let number = |i| get::<i64>(&row, i).map(i64::unsigned_abs);
    let capacity = number(0)?.saturating_mul(number(1)?.saturating_add(number(2)?));
    let indexes = number(4)?;
    let partitioned = 1 + if get::<i32>(&row, 3)? >= 160_000 { indexes } else { 0 };
    let leaf = 1 + indexes + u64::from(at_close);
    let lanes = u64::from(lanes);
    let per_window = if lanes > 1 { partitioned + lanes * leaf } else { leaf };
    Ok(Locks { fixed: partitioned, per_window, capacity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_takes_a_quarter_at_most() {
        let locks = Locks { fixed: 2, per_window: 19, capacity: 6400 };
        assert_eq!((locks.of(24), locks.limit(), locks.windows()), (458, 1600, 84));
    }
}
