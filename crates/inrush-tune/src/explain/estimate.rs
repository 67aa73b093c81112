//! What the planner believed about pages, and what the model of the storage says of the time.

use super::methods::Scanned;
use super::{Method, Server};
use crate::io::Measured;
use crate::io::model::{self, Model, Prediction, ReadAhead, Scan};

/// Bytes of an entry of a bitmap with what the hash table needs for it: 48 of PagetableEntry and two
/// pointers, for pages of 8 kB on a machine of 64 bits (tidbitmap.c, tbm_calculate_entries).
const BITMAP_ENTRY: u64 = 64;

/// Pages that the planner expects a bitmap heap scan to read: the formula of Mackert and Lohman without a
/// look at how rows lie (costsize.c, compute_bitmap_pages). `rows` is what it expects in the bitmap. One scan
/// of one table: for partitions, of each.
pub(super) fn bitmap_pages(table_pages: u64, rows: f64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // pages
    let pages = (table_pages as f64).max(1.0);
    let rows = rows.max(1.0);
    let fetched = 2.0 * pages * rows / (2.0 * pages + rows);
    if fetched >= pages { pages } else { fetched.ceil() }
}

/// work_mem in kB with which a bitmap of so many pages stays exact, with a tenth to spare.
pub(super) fn work_mem_for(pages: u64) -> u64 {
    (pages * BITMAP_ENTRY * 11 / 10).div_ceil(1024).max(64)
}

/// What is known of one scan for the model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) method: Method,
    pub(super) table_pages: u64,
    pub(super) heap_pages: Option<u64>,
    pub(super) stops_early: bool,
    pub(super) index_pages: u64,
    pub(super) sweeps: Option<u64>,
    pub(super) warm_seconds: f64,
    pub(super) concurrency: u32,
}

/// The model's prediction of the scan cold, or why there is none.
pub(super) fn predict(
    measured: Option<&Measured>,
    server: &Server,
    known: &Known,
) -> Result<Prediction, String> {
    let measured = measured.ok_or("the storage has not been measured: `inrush tune io` does")?;
    let method = match known.method {
        Method::Sequential => model::Method::Sequential,
        Method::Index => model::Method::Index,
        Method::Bitmap => model::Method::Bitmap,
        Method::Brin => model::Method::Brin,
        Method::Mixed => return Err("its partitions are scanned in different ways".to_owned()),
        Method::IndexOnly => return Err("the model has no index-only scans".to_owned()),
    };
    if known.stops_early {
        return Err(
            "it may end before it has read all that it could: what is above it wants no more".to_owned()
        );
    }
    let heap_pages = known.heap_pages.ok_or("how many pages of the table it reads is not known")?;
    let method_of_io = server.io_method.as_deref();
    let ahead = ReadAhead::of(server.version_num, method_of_io, server.io_workers, known.concurrency);
    let scan = Scan {
        method,
        table_pages: known.table_pages,
        heap_pages,
        index_pages: known.index_pages,
        sweeps: known.sweeps,
        warm_seconds: known.warm_seconds,
    };
    Model::new(measured)
        .predict(&scan, ahead)
        .ok_or_else(|| "the measurement of the storage does not cover such a scan".to_owned())
}

/// Pages of the table that a scan visits, each counted once, as far as its figures tell.
pub(super) fn heap_pages(method: Method, scanned: &Scanned, table_pages: u64) -> Option<u64> {
    match method {
        _ if scanned.stops_early => None,
        Method::Sequential => Some(table_pages),
        // Of a repeated scan the counts are of visits.
        Method::Bitmap | Method::Brin if !scanned.repeated => Some(scanned.exact? + scanned.lossy?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planners_pages() {
        // scan-io: 12.5 million rows in 128,866 pages; a few rows lie on a page each, many fill the table.
        assert!((bitmap_pages(128_866, 1.0) - 1.0).abs() < 1e-9);
        assert!((bitmap_pages(128_866, 128_866.0) - 85_911.0).abs() < 1.0);
        assert!((bitmap_pages(100, 1e9) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn memory_of_a_bitmap() {
        // 4 MB hold 65,536 entries.
        assert_eq!(work_mem_for(65_536), 4506);
        assert_eq!(work_mem_for(1), 64);
    }

    #[test]
    fn without_a_measurement_there_is_no_prediction() {
        let known = Known {
            method: Method::Bitmap,
            table_pages: 10,
            heap_pages: Some(1),
            stops_early: false,
            index_pages: 1,
            sweeps: None,
            warm_seconds: 0.1,
            concurrency: 1,
        };
        assert!(predict(None, &Server::default(), &known).unwrap_err().contains("inrush tune io"));
    }
}
