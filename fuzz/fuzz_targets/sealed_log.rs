#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (forebay_fuzz::targets::sealed_log::TARGET.run)(bytes));
