//! Whatever figures a brain is told, and in whatever order things happen, it must not panic, and its books
//! must be in order at every step and empty at the end.

#![no_main]

use cleave_core::brain::hostile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| hostile::drive(input));
