//! Which width of a window suits a retention.

use crate::locks::Locks;
use crate::read::windows_kept;
use crate::time::{Scale, Span};

/// Widths that people use, in minutes.
const USUAL_MINUTES: [i64; 15] =
    [1, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080, 20_160, 43_200];

/// Windows over the retention that are enough to retire in small steps and prune well.
const ENOUGH: u64 = 100;

/// The least usual width of which the retention has at most [`ENOUGH`] windows, and whose locks are at most half of
/// what one query may take.
pub(crate) fn width(scale: Scale, keep: Option<i64>, ahead: u32, locks: Locks) -> Option<Span> {
    let Some(keep) = keep else { return Some(Span::from_us(86_400_000_000)) };
    let fits = |width: i64| {
        let windows = windows_kept(keep, width, ahead);
        windows <= ENOUGH + u64::from(ahead) + 2 && locks.of(windows) <= locks.limit() / 2
    };
    let usual = USUAL_MINUTES.iter().map(|minutes| Span::from_us(minutes * 60_000_000));
    usual.into_iter().find(|span| {
        let width = scale.width(*span).ok().filter(|width| *width <= keep);
        width.is_some_and(fits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{TimeKind, Unit};

    #[test]
    fn widths_follow_the_retention_and_the_locks() {
        let scale = Scale { kind: TimeKind::Timestamptz, unit: Unit::Seconds };
        let keep = |days: i64| Some(days * 86_400_000_000);
        let locks = Locks { fixed: 2, per_window: 2, capacity: 6400 };
        let said = |keep, locks| width(scale, keep, 4, locks).map(|span| span.to_string());
        assert_eq!(said(keep(30), locks).as_deref(), Some("12h"));
        assert_eq!(said(keep(1), locks).as_deref(), Some("15m"));
        assert_eq!(said(keep(365), locks).as_deref(), Some("7d"));
        assert_eq!(said(None, locks).as_deref(), Some("1d"));
        let lanes = Locks { per_window: 18, ..locks };
        assert_eq!(said(keep(30), lanes).as_deref(), Some("1d"));
        assert_eq!(said(keep(30), Locks { capacity: 100, ..lanes }), None);
    }
}
