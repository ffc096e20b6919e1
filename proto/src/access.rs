//! The access rules of each rpc, read from the `access_control` options of the contract.

use std::collections::HashMap;

use prost_reflect::{DescriptorError, DescriptorPool, ExtensionDescriptor, MethodDescriptor};

use crate::gitlab::cells::topology_service::{AccessControl, AuthorizationRule};

const EXTENDED: &str = "google.protobuf.MethodOptions";
const EXTENSION_NUMBER: u32 = 90_000;

/// The access rules of every rpc in the contract. A caller may call an rpc if the caller satisfies
/// at least one of the rpc's rules.
#[derive(Clone, Debug)]
pub struct AccessRules {
    by_path: HashMap<String, Vec<AuthorizationRule>>,
}

/// The reason why the contract's access rules could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The embedded descriptors are inconsistent.
    #[error("cannot read the embedded descriptors: rebuild leasehold-proto")]
    Descriptors(#[from] DescriptorError),
    /// The contract does not define the `access_control` option.
    #[error("no extension {EXTENSION_NUMBER} of `{EXTENDED}`: import access_control.proto")]
    NoExtension,
    /// The `access_control` option of an rpc is not an `AccessControl` message.
    #[error("cannot read the access_control option of `{path}`: make its type AccessControl")]
    Malformed {
        /// The rpc, as `/package.Service/Method`.
        path: String,
        /// The error of the decoding.
        source: prost::DecodeError,
    },
    /// An rpc has no access rules.
    #[error("`{path}` has no access rules: give it an access_control option with rules")]
    NoRules {
        /// The rpc, as `/package.Service/Method`.
        path: String,
    },
    /// An rpc has an access rule that this version does not know.
    #[error("`{path}` has the unknown rule `{number}`: use a rule of AuthorizationRule other than 0")]
    UnknownRule {
        /// The rpc, as `/package.Service/Method`.
        path: String,
        /// The number of the unknown rule.
        number: i32,
    },
}

impl AccessRules {
    /// Reads the access rules of the embedded contract.
    ///
    /// # Errors
    /// An rpc has no rules, or rules that cannot be read.
    pub fn from_descriptors() -> Result<Self, AccessError> {
        Self::from_pool(&crate::descriptor_pool()?)
    }

    /// Reads the access rules of every rpc in `pool`.
    ///
    /// # Errors
    /// An rpc has no rules, or rules that cannot be read.
    pub fn from_pool(pool: &DescriptorPool) -> Result<Self, AccessError> {
        let extension = pool
            .get_message_by_name(EXTENDED)
            .and_then(|options| options.get_extension(EXTENSION_NUMBER))
            .ok_or(AccessError::NoExtension)?;
        let by_path = pool
            .services()
            .flat_map(|service| service.methods().collect::<Vec<_>>())
            .map(|method| {
                let path = path_of(&method);
                Ok((path.clone(), rules_of(path, &method, &extension)?))
            })
            .collect::<Result<_, AccessError>>()?;
        Ok(Self { by_path })
    }

    /// Returns the access rules of the rpc at `path`, such as `/package.Service/Method`; `None` for
    /// an rpc outside the contract.
    #[must_use]
    pub fn for_path(&self, path: &str) -> Option<&[AuthorizationRule]> {
        self.by_path.get(path).map(Vec::as_slice)
    }
}

fn path_of(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

fn rules_of(
    path: String,
    method: &MethodDescriptor,
    extension: &ExtensionDescriptor,
) -> Result<Vec<AuthorizationRule>, AccessError> {
    let options = method.options();
    let value = options.get_extension(extension);
    let access = match value.as_message().map(|message| message.transcode_to::<AccessControl>()) {
        Some(Ok(access)) => access,
        Some(Err(source)) => return Err(AccessError::Malformed { path, source }),
        None => AccessControl::default(),
    };
    if access.authorization_rules.is_empty() {
        return Err(AccessError::NoRules { path });
    }
    access
        .authorization_rules
        .into_iter()
        .map(|number| known_rule(number).ok_or_else(|| AccessError::UnknownRule { path: path.clone(), number }))
        .collect()
}

fn known_rule(number: i32) -> Option<AuthorizationRule> {
    AuthorizationRule::try_from(number).ok().filter(|rule| *rule != AuthorizationRule::RuleUnspecified)
}
