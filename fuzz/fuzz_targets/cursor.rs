//! Fuzzes the cursor of a list.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_server::fuzzing::cursor(bytes));
