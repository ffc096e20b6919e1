//! Fuzzes the header in which a load balancer names its client.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_server::fuzzing::subject(bytes));
