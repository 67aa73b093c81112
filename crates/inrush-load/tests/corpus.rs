//! What fuzzing has kept for the stages that feed each other.

#[path = "../../../fuzz/src/chain.rs"]
mod chain;
#[path = "../../../fuzz/src/choices.rs"]
mod choices;
#[path = "../../../fuzz/src/dialects.rs"]
mod dialects;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn kept_inputs_pass_from_stage_to_stage() {
    replay("cut_and_decode", chain::cut_and_decode);
    replay("sniff", chain::sniff);
}
