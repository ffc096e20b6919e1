//! The failures of `leasehold serve`, `export`, `import` and `migrate`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use leasehold_cli::exit;

use crate::audit::AuditError;
use crate::config::ConfigError;
use crate::grpc;
use crate::logging::LogError;
use crate::store::StoreError;
use crate::traces::TracesError;
use crate::transfer::TransferError;
use crate::transport::TlsError;

/// A failure of `leasehold serve`, or of another command that opens a store.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration has a problem.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store can't be opened or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store has failed while the server ran, so the server stopped.
    #[error("the server stopped, because its store failed: {0}")]
    StoreFailed(Arc<str>),
    /// The problem comes from a value of the command line or the environment.
    #[error(transparent)]
    CommandLine(Box<Self>),
    /// The log can't be started.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The audit trail can't be opened.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The traces can't be sent.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// The certificates can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server can't listen on an address.
    #[error("can't listen on `{address}`: {error}")]
    Listen {
        /// The flag that sets the listening address.
        flag: &'static str,
        /// The address on which the server can't listen.
        address: SocketAddr,
        /// The reason that the operating system gave.
        error: io::Error,
    },
    /// The protobuf descriptors that were built into the program can't be read.
    #[error("the built-in descriptors can't be used: {0}")]
    Descriptors(String),
    /// An export or import failed.
    #[error(transparent)]
    Transfer(TransferError),
    /// Any other failure of the operating system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<TransferError> for ServeError {
    /// Wraps the failure of an export or import. A problem of a database keeps its exit code and its advice.
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Store(error) if error.is_away() || matches!(error, StoreError::Preflight(_)) => {
                Self::Store(error)
            }
            error => Self::Transfer(error),
        }
    }
}

impl ServeError {
    /// The exit code of the process, one of [`EXIT_CODES`](exit::EXIT_CODES).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::CommandLine(_) | Self::Config(_) | Self::Log(_) | Self::Audit(_) | Self::Tls(_) | Self::Traces(_) => {
                exit::USAGE
            }
            Self::Store(error) if error.is_of_settings() => exit::USAGE,
            Self::StoreFailed(_) => exit::STORE_FAILED,
            Self::Store(
                StoreError::RowsDamaged { .. } | StoreError::SearchCut { .. } | StoreError::Unsalvageable(_),
            ) => exit::DATA_DAMAGED,
            _ => self.code().map_or(exit::FAILURE, exit::of_code),
        }
    }

    /// Wraps an error as a problem of the command line, so that the exit code is that of wrong
    /// usage.
    #[must_use]
    pub fn of_command_line(error: impl Into<Self>) -> Self {
        Self::CommandLine(Box::new(error.into()))
    }

    /// The gRPC code for a failure of the store. `None` for failures of other kinds, and for
    /// failures of the store that only a person can mend.
    pub fn code(&self) -> Option<tonic::Code> {
        let Self::Store(error) = self else { return None };
        grpc::store_code(error)
    }

    /// Further advice that the error's message does not have; `None` if there is none.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::StoreFailed(_) => Some(
                "start it again, unless a supervisor does: every answered change is on disk; if it fails again, mend the cause first"
                    .into(),
            ),
            Self::CommandLine(error) => error.hint(),
            Self::Listen { flag, error, .. } if error.kind() == io::ErrorKind::AddrInUse => {
                Some(format!("another server runs there: stop it, or choose another address with `{flag}`"))
            }
            _ => None,
        }
    }
}
