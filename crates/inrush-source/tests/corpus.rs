//! What fuzzing has kept for the cutter and for compressed inputs.

#[path = "../../../fuzz/src/choices.rs"]
mod choices;
#[path = "../../../fuzz/src/cut.rs"]
mod cut;
#[path = "../../../fuzz/src/decompress.rs"]
mod decompress;
mod reference;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn cut() {
    replay("cut_csv", cut::csv);
    replay("cut_text", cut::text);
    replay("cut_lines", cut::lines);
    replay("cut_binary", cut::binary);
}

#[test]
fn decompressed() {
    replay("decompress", decompress::decompress);
}
