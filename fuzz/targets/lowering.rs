#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| latent_fuzz::lowering(data));
