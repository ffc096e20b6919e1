//! Where claims are kept.

mod embedded;
mod held;
mod journal;
mod keys;
mod witness;

pub use embedded::{EmbeddedStore, Occupancy, Row, StoreError};
