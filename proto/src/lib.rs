//! The wire contract of Leasehold: messages and services generated from the `.proto` files, and the
//! files' descriptors. The access rules of each rpc and the JSON form of messages are derived from
//! the descriptors. `tests/generated.rs` compares the generated code with the files, and makes it
//! anew.

mod access;
mod claim;
mod json;

pub use access::{AccessError, AccessRules};
pub use claim::ClaimValue;
pub use json::{JsonError, from_json, show_json, to_json};
pub use prost_reflect::{DescriptorError, DescriptorPool, Kind, MessageDescriptor};

/// The encoded descriptors of all `.proto` files of this package and of their imports, with method
/// options and comments.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptor.bin");

/// Decodes [`FILE_DESCRIPTOR_SET`] into a pool. A caller should keep the pool, which is cheap to
/// clone but expensive to build.
///
/// # Errors
/// The embedded descriptors are inconsistent, which a passing build rules out.
pub fn descriptor_pool() -> Result<DescriptorPool, DescriptorError> {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET)
}

/// Includes the generated code of a protobuf package.
macro_rules! generated {
    ($package:literal) => {
        include!(concat!("generated/", $package, ".rs"));
    };
}

/// The packages of the contract that existing cell clients use.
#[allow(
    missing_docs,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated code; the modules mirror its packages"
)]
pub mod gitlab {
    pub mod cells {
        pub mod topology_service {
            generated!("gitlab.cells.topology_service");

            pub mod claims {
                pub mod v1 {
                    generated!("gitlab.cells.topology_service.claims.v1");
                }
            }

            pub mod types {
                pub mod v1 {
                    pub use crate::claim::Claim;

                    generated!("gitlab.cells.topology_service.types.v1");
                }
            }
        }
    }
}

/// The packages of Leasehold itself.
#[allow(
    missing_docs,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated code; the modules mirror its packages"
)]
pub mod leasehold {
    pub mod v1 {
        generated!("leasehold.v1");
    }

    pub mod locks {
        pub mod v1 {
            generated!("leasehold.locks.v1");
        }
    }

    pub mod peers {
        pub mod v1 {
            generated!("leasehold.peers.v1");
        }
    }

    pub mod queues {
        pub mod v1 {
            generated!("leasehold.queues.v1");
        }
    }

    pub mod sessions {
        pub mod v1 {
            generated!("leasehold.sessions.v1");
        }
    }
}
