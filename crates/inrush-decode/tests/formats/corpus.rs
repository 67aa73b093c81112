//! What fuzzing has kept for the decoders.

use crate::decode;
use crate::line_check::line_protocol;
use crate::replay::replay;

#[test]
fn kept_inputs_decode_as_they_should() {
    replay("decode_csv", decode::csv);
    replay("decode_text", decode::text);
    replay("decode_binary", decode::binary);
    replay("decode_ndjson", decode::ndjson);
    replay("line_protocol", line_protocol);
}

#[cfg(feature = "columnar")]
#[test]
fn kept_files_with_columns_are_read_or_refused() {
    replay("columnar", crate::columnar::columnar);
}
