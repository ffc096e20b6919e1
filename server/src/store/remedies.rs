//! The remedies against failovers, each of which a test can take out, to see that it finds the fault again. Builds for
//! users have no such switch.

/// The environment variable with the names of the remedies that are out, with commas between them.
#[cfg(debug_assertions)]
const VARIABLE: &str = "TAKEN_OUT";

/// A remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Remedy {
    /// All hosts of the URL are asked at once. Without it, only the first one.
    AllHosts,
    /// The host with the highest timeline wins. Without it, the first one that accepts writes.
    HighestTimeline,
    /// Connections of a former epoch are closed. Without it, they go on.
    Departure,
    /// Reads wait for a proof that their host is the primary.
    Proof,
    /// A new epoch is served in only when no proof of the former one is good.
    Wait,
    /// A COMMIT with a warning has an unknown outcome.
    Warnings,
    /// Reads of an ordered engine wait for a write that began after them.
    EngineProof,
}

impl Remedy {
    /// True if a test has taken the remedy out.
    #[cfg(debug_assertions)]
    pub(in crate::store) fn is_out(self) -> bool {
        use std::sync::LazyLock;
        static OUT: LazyLock<String> = LazyLock::new(|| std::env::var(VARIABLE).unwrap_or_default());
        let name = match self {
            Self::AllHosts => "all-hosts",
            Self::HighestTimeline => "highest-timeline",
            Self::Departure => "departure",
            Self::Proof => "proof",
            Self::Wait => "wait",
            Self::Warnings => "warnings",
            Self::EngineProof => "engine-proof",
        };
        OUT.split(',').any(|out| out == name)
    }

    /// True if a test has taken the remedy out.
    #[cfg(not(debug_assertions))]
    pub(in crate::store) const fn is_out(self) -> bool {
        false
    }
}
