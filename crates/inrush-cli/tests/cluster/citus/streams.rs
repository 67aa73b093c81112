//! Streams into shards: whatever dies, and whoever moves them meanwhile.

use super::movers::{MOVERS, table};
use super::server::require_citus;
use crate::loads::Place;
use crate::story::Fault;
use crate::streams::{Stream, at_steps};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

#[test]
fn whatever_dies() {
    let citus = require_citus!();
    for fault in [Fault::Client, Fault::LateStatement, Fault::Cut] {
        at_steps(&citus, fault, &|| table(&citus));
    }
}

/// Whoever moves shards waits for a unit, and nothing is lost, doubled or misplaced.
#[test]
fn movers_under_way() {
    let citus = require_citus!();
    for mover in MOVERS {
        table(&citus);
        let stream = Stream::new(&citus, "");
        let serve = stream.start();
        let mut next = 1;
        let mut more = || {
            stream.rows(next..next + 50);
            next += 50;
            std::thread::sleep(Duration::from_millis(20));
        };
        (0..20).for_each(|_| more());
        let mut told = format!("{mover:?}\n");
        std::thread::scope(|scope| {
            let moving = scope.spawn(|| {
                let began = Instant::now();
                let what = mover.run(&citus);
                (what, began.elapsed())
            });
            while !moving.is_finished() {
                more();
            }
            let (what, took) = moving.join().expect("it has moved something");
            let _ = writeln!(told, "{what}, {took:?}");
            // What it does itself takes its time, too.
            assert!(took < Duration::from_secs(10), "{told}");
        });
        (0..20).for_each(|_| more());
        stream.wait_for(next - 1, &told);
        let _ = writeln!(told, "{}", serve.log());
        assert_eq!(serve.stop(), 0, "{told}");
        if citus.sql("SELECT count(*) FROM pg_dist_partition WHERE logicalrelid = 't'::regclass") == "1" {
            stream.check(next - 1, &told);
        }
        eprintln!("{told}");
    }
}
