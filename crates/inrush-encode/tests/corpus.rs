//! What fuzzing has kept for the encoders.

#[path = "../../../fuzz/src/choices.rs"]
mod choices;
#[path = "../../../fuzz/src/encode.rs"]
mod encode;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn kept_values_are_encoded_as_they_should_be() {
    replay::replay("encode_text_types", encode::types);
}
