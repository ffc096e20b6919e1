//! Fuzzes the value of a bucket.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_server::fuzzing::values(bytes));
