//! Fuzzes the header of a balancer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_server::fuzzing::subject(bytes));
