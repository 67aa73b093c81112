//! What fuzzing has kept for the spill log.

#[path = "../../../fuzz/src/choices.rs"]
mod choices;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/spill.rs"]
mod spill;

#[test]
fn kept_logs_are_read_or_refused() {
    replay::replay("spill", spill::spill);
}
