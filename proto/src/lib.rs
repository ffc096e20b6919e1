//! The wire contract of Leasehold: messages and services generated from the `.proto` files, their descriptors, and what
//! is read out of the descriptors: who may call which rpc, and the JSON form of messages.

mod access;
mod json;

pub use access::{AccessError, AccessRules};
pub use json::{JsonError, from_json, show_json, to_json};
pub use prost_reflect::{DescriptorError, DescriptorPool};

/// All our `.proto` files and their imports, encoded, with the method options and comments in them.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));

/// Decodes [`FILE_DESCRIPTOR_SET`]. Keep the pool: it is cheap to clone, but not to build.
///
/// # Errors
/// When the embedded descriptors do not fit together, which a passing build rules out.
pub fn descriptor_pool() -> Result<DescriptorPool, DescriptorError> {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET)
}

/// Includes the code generated for a package.
macro_rules! generated {
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}

/// The packages that existing cell clients speak.
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
                    generated!("gitlab.cells.topology_service.types.v1");
                }
            }
        }
    }
}

/// The packages that are Leasehold's own.
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
}
