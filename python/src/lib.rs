//! The engine and the simulation as a Python extension: one file a class. It converts values; rules are the engine's, and
//! exceptions are classes written in Python. What takes long lets other threads of Python run meanwhile.

mod arrow;
mod calls;
mod columns;
mod errors;
mod reconciliation;
mod service;
mod session;
mod simulation;
mod verification;

/// What `import leasehold._native` makes.
#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::arrow::ArrowRows;
    #[pymodule_export]
    use crate::calls::{canonical_form, check_batch, encode_source_id};
    #[pymodule_export]
    use crate::errors::reasons;
    #[pymodule_export]
    use crate::reconciliation::Reconciliation;
    #[pymodule_export]
    use crate::service::ClaimsService;
    #[pymodule_export]
    use crate::simulation::{Explorer, Simulation, rule_world, rules, scenarios, transition_tables};
    #[pymodule_export]
    use crate::verification::{Claims, Verification};
}
