#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| davit_fuzz::answers(data));
