//! What kind of storage a curve is of.

use super::measured::Measured;
use serde::Serialize;

/// The kind of a storage, by what limits random reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Each read waits for its latency, and many can wait at once: depth pays almost in full.
    LatencyBound,
    /// Depth pays until the device is busy.
    SaturatingLocal,
    /// So many reads a second, whatever their number in flight: only fewer reads help.
    IopsCapped,
    /// So many bytes a second, whatever the size of reads.
    ThroughputCapped,
    /// The figures do not say.
    CannotTell,
}

/// What a curve means.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The kind of storage.
    pub class: Class,
    /// The smallest depth that gives nine tenths of the most reads a second.
    pub knee: Option<u32>,
    /// 99th percentile of the latency there, in microseconds.
    pub knee_p99_us: Option<f64>,
    /// A smaller depth for storage that is shared with traffic that must answer at once, if the knee's latency is much
    /// worse than there.
    pub gentle: Option<u32>,
    /// What it is, with figures, in a sentence or two.
    pub text: String,
    /// Why no verdict is given.
    pub refused: Option<String>,
}

impl Verdict {
    /// Judges a curve.
    pub fn of(measured: &Measured) -> Verdict {
        let _ = measured;
        Verdict {
            class: Class::CannotTell,
            knee: None,
            knee_p99_us: None,
            gentle: None,
            text: String::new(),
            refused: None,
        }
    }
}
