#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (forebay_fuzz::targets::disk_cache_region::TARGET.run)(bytes));
