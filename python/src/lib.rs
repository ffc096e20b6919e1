//! The Python extension `leasehold._native`: the engine and the simulation, one file per class.
//!
//! The extension converts values and contains no rule of the protocol. Exception classes are written in Python
//! (`leasehold/errors.py`). Calls that compute release the global interpreter lock, so other Python threads keep running.
//! `leasehold/_native.pyi` declares the types; stubtest compares the two.

mod arrow;
mod calls;
mod columns;
mod errors;
mod keepalive;
mod reconciliation;
mod service;
mod session;
mod simulation;
mod verification;

/// The module that `import leasehold._native` loads.
#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::arrow::ArrowRows;
    #[pymodule_export]
    use crate::calls::{canonical_form, check_batch, encode_source_id};
    #[pymodule_export]
    use crate::errors::reasons;
    #[pymodule_export]
    use crate::keepalive::{Keepalive, SessionNews};
    #[pymodule_export]
    use crate::reconciliation::Reconciliation;
    #[pymodule_export]
    use crate::service::ClaimsService;
    #[pymodule_export]
    use crate::simulation::{Explorer, Simulation, rule_world, rules, scenarios, transition_tables};
    #[pymodule_export]
    use crate::verification::{Claims, Verification};
}
