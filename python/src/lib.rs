//! The engine and the simulation as a Python extension.

mod calls;
mod errors;

/// What `import leasehold._native` makes.
#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::calls::{canonical_form, check_batch, encode_source_id};
    #[pymodule_export]
    use crate::errors::reasons;
}
