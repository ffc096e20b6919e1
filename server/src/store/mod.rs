//! Where claims are kept.

mod embedded;
mod held;
mod keys;

pub use embedded::{EmbeddedStore, Occupancy, Row, StoreError};
