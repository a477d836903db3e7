#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (forebay_fuzz::targets::key_ring::TARGET.run)(bytes));
