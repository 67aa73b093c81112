#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| inrush_fuzz::line::line_protocol(input));
