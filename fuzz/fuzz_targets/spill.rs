#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| inrush_fuzz::spill::spill(input));
