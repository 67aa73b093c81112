#![no_main]

// libFuzzer's panic hook ends the process. Panics of the crates that read these formats are caught, though,
// and become errors; those that nobody catches still count.
libfuzzer_sys::fuzz_target!(
    init: { std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))) },
    |input: &[u8]| inrush_fuzz::columnar::columnar(input)
);
