//! Fuzzes a claim whose value may be in a field that the wire contract does not define.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_server::fuzzing::claim_fields(bytes));
