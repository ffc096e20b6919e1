//! Fuzzes an update, from the wire to its reply.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_server::fuzzing::wire(bytes));
