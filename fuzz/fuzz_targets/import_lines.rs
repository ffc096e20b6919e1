//! Fuzzes lines of an export.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_server::fuzzing::import_lines(bytes));
