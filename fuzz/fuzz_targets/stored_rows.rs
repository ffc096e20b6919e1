//! Fuzzes rows of the embedded store.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_server::fuzzing::stored_rows(bytes));
