use super::super::measure::{Reader, summary};
use super::super::{Index, Run};
use super::*;

/// Runs of these seconds, with so many device reads each, all of them the query's.
fn timed(seconds: [f64; 3], reads: u64) -> Option<Timing> {
    let bytes = Some(reads * 8192);
    let run = |seconds| Run {
        seconds,
        device_reads: Some(reads),
        device_bytes: bytes,
        backend_bytes: bytes,
        ..Run::default()
    };
    summary(seconds.map(run).to_vec(), Reader { itself: true, page_bytes: 8192 })
}

fn scan(method: Method, concurrency: Option<u32>, cost: f64) -> Variant {
    let at = concurrency.map_or_else(String::new, |n| format!(" at {n}"));
    Variant {
        label: format!("{}{at}", method.name()),
        method,
        concurrency,
        current: true,
        scan_cost: Some(cost),
        total_cost: Some(cost),
        rows_estimated: 1000.0,
        rows: 1000.0,
        ..Variant::default()
    }
}

/// The published case as it was measured on PostgreSQL 15.
fn published() -> Vec<Variant> {
    let bitmap = scan(Method::Bitmap, Some(1), 126_805.0);
    let mut deep = scan(Method::Bitmap, Some(32), 126_805.0);
    deep.current = false;
    vec![
        Variant {
            planners: true,
            cold: timed([4.5, 4.6, 4.4], 66_900),
            warm: timed([0.40, 0.41, 0.42], 0),
            ..bitmap
        },
        Variant { cold: timed([1.04, 1.10, 1.02], 66_600), warm: timed([0.40, 0.41, 0.42], 0), ..deep },
        Variant {
            cold: timed([0.85, 0.86, 0.84], 295),
            warm: timed([1.05, 1.06, 1.04], 0),
            ..scan(Method::Sequential, None, 316_000.0)
        },
        Variant {
            cold: timed([0.70, 0.69, 0.71], 558),
            warm: timed([0.35, 0.36, 0.34], 0),
            heap_pages: Some(67_000),
            indexes: vec!["t_c1".into()],
            ..scan(Method::Index, None, 274_000.0)
        },
    ]
}

fn table() -> Table {
    let index = Index { name: "t_c1".into(), correlation: Some(-0.007), ..Index::default() };
    Table { pages: 128_866, bytes: 128_866 * 8192, indexes: vec![index], ..Table::default() }
}

fn about(verdict: &Verdict) -> Vec<&'static str> {
    verdict.reasons.iter().map(|reason| reason.about).collect()
}

#[test]
fn the_published_case_is_explained() {
    let verdict = Verdict::of(&published(), &table(), None);
    assert!(verdict.cold && verdict.refused.is_none());
    assert_eq!(
        (verdict.fastest.as_deref(), verdict.planners.as_deref()),
        (Some("index"), Some("bitmap at 1"))
    );
    assert_eq!(
        verdict.sentences,
        [
            "The fastest cold was index (700 ms, median of 3): 6.4 times as fast as what the planner chose, \
             bitmap at 1 (4.50 s), because it took 558 device reads instead of 66,900.",
            "The planner chose bitmap because it has the lowest cost: 126,805, against index 274,000, \
             sequential 316,000."
        ]
    );
    assert_eq!(about(&verdict), ["read-ahead", "cache", "order-within-keys"]);
    let text = &verdict.reasons[0].text;
    assert!(text.contains("costs 126,805 at 1 as at 32, and took 4.50 s at 1 and 1.04 s at 32"), "{text}");
    assert!(verdict.reasons[2].text.contains("-0.007"), "{}", verdict.reasons[2].text);
}

#[test]
fn what_overlaps_is_not_told_apart() {
    let mut scans = published();
    scans[2].cold = timed([0.70, 0.75, 0.80], 295);
    let verdict = Verdict::of(&scans, &table(), None);
    assert_eq!(verdict.fastest, None);
    let why = verdict.refused.expect("refused");
    assert!(why.contains("overlap (690 ms to 710 ms and 700 ms to 800 ms)"), "{why}");
    let first = &verdict.sentences[0];
    assert!(first.starts_with("Cannot tell index from sequential cold"), "{first}");
    assert!(first.ends_with("Both beat what the planner chose, bitmap at 1, which took 4.50 s."), "{first}");
}

#[test]
fn wide_runs_and_few_runs_are_refused() {
    let mut scans = published();
    scans[3].cold = timed([0.30, 0.60, 0.90], 558);
    let why = Verdict::of(&scans, &table(), None).refused.expect("refused");
    assert!(why.contains("overlap") && why.contains("those of index are up to 50 % off"), "{why}");
    // Runs that lie apart tell, however wide they are.
    scans[3].cold = timed([0.30, 0.60, 0.61], 558);
    assert_eq!(Verdict::of(&scans, &table(), None).fastest.as_deref(), Some("index"));
    for scan in &mut scans {
        scan.cold.as_mut().expect("cold").runs.truncate(1);
    }
    let why = Verdict::of(&scans, &table(), None).refused.expect("refused");
    assert!(why.starts_with("one run of each"), "{why}");
    assert_eq!(Verdict::of(&[], &table(), None).refused.as_deref(), Some("nothing was measured"));
}

#[test]
fn the_planner_may_be_right() {
    let mut scans = published();
    scans[0].cold = timed([0.5, 0.5, 0.5], 100);
    let verdict = Verdict::of(&scans, &table(), None);
    let first = &verdict.sentences[0];
    assert!(first.starts_with("The fastest cold was what the planner chose: bitmap at 1 (500 ms"), "{first}");
    // Faster at 1 than at 32: that is not in the costs either.
    assert!(verdict.reasons[0].text.contains("took 1.04 s at 32 and 500 ms at 1"), "{:?}", verdict.reasons);
}

#[test]
fn without_cold_runs_nothing_is_said_of_them() {
    let mut scans = published();
    scans.iter_mut().for_each(|scan| scan.cold = None);
    let verdict = Verdict::of(&scans, &table(), None);
    assert!(!verdict.cold && verdict.reasons.is_empty());
    assert!(verdict.sentences[0].contains("fastest warm was index"), "{:?}", verdict.sentences);
}

#[test]
fn pages_of_a_bitmap() {
    let mut brin = scan(Method::Brin, Some(1), 116_793.0);
    (brin.heap_pages_estimated, brin.heap_pages) = (Some(100_000.0), Some(1280));
    brin.warm = timed([0.1, 0.1, 0.1], 0);
    let reason = bitmap_pages(&[brin.clone()], &table()).expect("a reason");
    assert_eq!(reason.about, "bitmap-pages");
    assert!(reason.text.contains("to read 100,000 pages of the table, and it read 1,280"), "{}", reason.text);
    // Where the rows are wrong by as much, the rows are why.
    (brin.rows_estimated, brin.rows) = (80_000.0, 1000.0);
    let reason = bitmap_pages(&[brin.clone()], &table()).expect("a reason");
    assert!(
        reason.about == "rows" && reason.text.contains("80,000 rows and there were 1,000"),
        "{}",
        reason.text
    );
    // What is near enough is no finding.
    (brin.heap_pages_estimated, brin.heap_pages) = (Some(1900.0), Some(1280));
    assert_eq!(bitmap_pages(&[brin], &table()), None);
}

#[test]
fn order_is_only_claimed_where_reads_are_few() {
    let mut scans = published();
    assert!(order_within_keys(&scans, &table()).is_some());
    scans[3].cold.as_mut().expect("cold").device_reads_own = false;
    assert_eq!(order_within_keys(&scans, &table()), None);
    scans[3].cold = timed([6.0, 6.0, 6.1], 66_000);
    assert_eq!(order_within_keys(&scans, &table()), None);
}

#[test]
fn one_cost_for_two_ways_of_reading() {
    let mut scans = published();
    scans[3].cold = timed([6.0, 6.0, 6.1], 66_000);
    for bitmap in &mut scans[..2] {
        bitmap.indexes = vec!["t_c1".into()];
        (bitmap.heap_pages_estimated, bitmap.heap_pages) = (Some(60_000.0), Some(67_000));
    }
    let reason = one_random_page_cost(&scans).expect("a reason");
    assert!(
        reason.text.contains(
            "a page of the table took 90 µs by index scan, which waits for each read, and 16 µs by bitmap \
             at 32"
        ),
        "{}",
        reason.text
    );
    let without = |change: &dyn Fn(&mut Vec<Variant>)| {
        let mut scans = scans.clone();
        change(&mut scans);
        assert_eq!(one_random_page_cost(&scans), None);
    };
    // The index scan was the faster one.
    without(&|scans| scans[3].cold = timed([0.70, 0.69, 0.71], 558));
    without(&|scans| scans[3].cold = timed([1.5, 1.6, 1.05], 558));
    // Another index, another number of pages than expected, or none that is known: the costs differ for those
    // reasons.
    without(&|scans| scans[1].indexes = vec!["t_other".into()]);
    without(&|scans| scans[1].heap_pages_estimated = Some(30_000.0));
    without(&|scans| scans[1].heap_pages_estimated = Some(120_000.0));
    without(&|scans| scans[3].heap_pages = None);
    // Nothing of it is reading.
    without(&|scans| scans[3].warm = timed([5.9, 5.9, 6.0], 0));
}

#[test]
fn reads_of_others_are_no_reason() {
    let first = |scans: &[Variant]| Verdict::of(scans, &table(), None).sentences[0].clone();
    assert!(first(&published()).contains("because it took 558 device reads"));
    // Somebody else read while the planner's own ran.
    let mut scans = published();
    scans[0].cold.as_mut().expect("cold").device_reads_own = false;
    assert!(!first(&scans).contains("device reads"), "{}", first(&scans));
    assert!(first(&scans).contains("for reasons that these figures do not show"), "{}", first(&scans));
    // Another plan has other reads.
    let mut scans = published();
    scans[3].rest_differs = true;
    assert!(first(&scans).contains("because the rest of the plan is another"), "{}", first(&scans));
    // Warm there is nothing that the query reads.
    let mut scans = published();
    for scan in &mut scans {
        scan.warm = scan.cold.take();
    }
    assert!(!first(&scans).contains("device reads"), "{}", first(&scans));
}

#[test]
fn rows_of_workers_are_no_reason() {
    let mut scan = scan(Method::Bitmap, Some(1), 1000.0);
    (scan.heap_pages_estimated, scan.heap_pages) = (Some(10_000.0), Some(1000));
    (scan.rows_estimated, scan.rows) = (80_000.0, 1000.0);
    assert_eq!(bitmap_pages(&[scan.clone()], &table()).map(|reason| reason.about), Some("rows"));
    scan.workers = 2;
    assert_eq!(bitmap_pages(&[scan], &table()), None);
}

#[test]
fn overlap_needs_reads() {
    let mut scans = published();
    assert_eq!(overlap(&scans, &table(), None), None);
    let cold = scans[2].cold.as_mut().expect("cold");
    cold.device_bytes = Some(table().bytes);
    let reason = overlap(&scans, &table(), None).expect("a reason");
    assert!(reason.text.contains("850 ms cold, 1.05 s in memory"), "{}", reason.text);
}

#[test]
fn memory_is_a_lever() {
    let mut lossy = scan(Method::Bitmap, Some(1), 100.0);
    (lossy.exact_pages, lossy.lossy_pages, lossy.rows_rechecked) = (Some(36_636), Some(79_633), 8_400_000);
    lossy.warm = timed([2.0, 2.0, 2.1], 0);
    let mut exact = scan(Method::Bitmap, Some(1), 100.0);
    (exact.label, exact.work_mem_kb, exact.warm) = ("exact".into(), Some(7994), timed([1.0, 1.0, 1.1], 0));
    let verdict = Verdict::of(&[lossy.clone(), exact.clone()], &table(), None);
    assert!(
        verdict.sentences.contains(
            &"The bitmap did not fit into work_mem: 79,633 of 116,269 pages were lossy, and 8,400,000 rows \
              were rechecked; work_mem = 7994 kB keeps it exact: 1.00 s instead of 2.00 s."
                .to_owned()
        ),
        "{:?}",
        verdict.sentences
    );
    exact.lossy_pages = Some(1);
    let said = memory(&[lossy, exact], false).expect("a sentence");
    assert!(said.ends_with("work_mem = 7994 kB does not keep it exact either."), "{said}");
}

#[test]
fn a_failed_variant_is_named() {
    let mut scans = published();
    scans[2].cold = None;
    scans[2].failed = Some("it took longer than 60 s".into());
    let verdict = Verdict::of(&scans, &table(), None);
    assert!(verdict.sentences.contains(&"No time of sequential: it took longer than 60 s.".to_owned()));
}

#[test]
fn figures_for_people() {
    let said: Vec<String> = [0.0012, 0.0123, 0.1234, 1.234, 12.34, 123.4].map(seconds).to_vec();
    assert_eq!(said, ["1.20 ms", "12.3 ms", "123 ms", "1.23 s", "12.3 s", "123 s"]);
    assert_eq!([seconds(16e-6), seconds(0.000_9)], ["16 µs", "900 µs"]);
    assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
}
