//! An organization: the group of users and projects that an update is for. The engine stores the
//! organization with the lease. Only one rule reads it: a retry must name the same organization
//! (B09).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rejection::{Detail, Reason, Rejection};

/// The id of an organization: 1 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct OrganizationId(i64);

impl OrganizationId {
    /// Parses the field `organization_id` of a begin. 0 stands for no organization, because proto3
    /// does not tell an absent number from 0.
    ///
    /// # Errors
    /// The id is negative.
    pub fn parse(id: i64) -> Result<Option<Self>, Rejection> {
        if id < 0 {
            let detail = Detail::Form("`organization_id` is negative");
            return Err(Rejection::whole(Reason::InvalidUpdate, detail));
        }
        Ok(Self::try_from(id).ok())
    }

    /// Returns the id as a number.
    pub const fn get(self) -> i64 {
        self.0
    }
}

/// The error for a number that can't be an organization's id, because it is below 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("organization {0} is not 1 or more")]
pub struct NotAnOrganization(i64);

impl TryFrom<i64> for OrganizationId {
    type Error = NotAnOrganization;

    fn try_from(id: i64) -> Result<Self, NotAnOrganization> {
        if id < 1 { Err(NotAnOrganization(id)) } else { Ok(Self(id)) }
    }
}

impl From<OrganizationId> for i64 {
    fn from(id: OrganizationId) -> Self {
        id.0
    }
}

impl fmt::Display for OrganizationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn b14_zero_is_no_organization_and_a_negative_id_is_invalid() {
        assert_eq!(OrganizationId::parse(0), Ok(None));
        assert_eq!(OrganizationId::parse(i64::MAX).unwrap().unwrap().get(), i64::MAX);
        assert_eq!(OrganizationId::parse(-1).unwrap_err().reason(), Reason::InvalidUpdate);
    }
}
