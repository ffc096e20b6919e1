//! Fuzzes a configuration file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_server::fuzzing::configuration(bytes));
