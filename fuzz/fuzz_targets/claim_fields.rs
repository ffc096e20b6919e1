//! Fuzzes a claim, whose field may be unknown.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_server::fuzzing::claim_fields(bytes));
