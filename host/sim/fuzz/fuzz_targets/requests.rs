#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| davit_sim_fuzz::requests(data));
