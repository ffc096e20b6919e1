//! Checks of the configuration against the store, at the start. A contradiction stops the server;
//! anything less is a warning in the banner and in the log.

use std::collections::BTreeSet;
use std::fmt::Display;

use leasehold_core::bucket::BucketType;
use leasehold_core::catalogue::Difference;
use leasehold_core::cell::CellId;

use super::ServeError;
use crate::config::{Config, ConfigError};
use crate::store::{Backend, StoreError, StoreMaintenance, StoreReader};

/// The warnings about a store, each with advice.
///
/// # Errors
/// The store can't be read, or a configured bucket type has another rule than its claims were made
/// under.
pub(super) async fn warnings(config: &Config, store: &dyn Backend) -> Result<Vec<String>, ServeError> {
    let missing_types = keep_bucket_types(config, store).await?;
    let warnings = [
        unconfigured_cells_warning(&unconfigured_cells(config, &*store.reader()).await),
        unconfigured_types_warning(&missing_types),
        role_without_vacuum(&store.maintenance()).await?.as_deref().map(vacuum_warning),
    ];
    Ok(warnings.into_iter().flatten().collect())
}

/// The cells that own claims and are not configured. Mostly a cell was removed from the
/// configuration too early.
async fn unconfigured_cells(config: &Config, store: &dyn StoreReader) -> Vec<CellId> {
    let known = config.cells();
    let owners = store.owners().await.unwrap_or_else(|error| {
        tracing::error!(%error, "the owners of claims can't be read");
        BTreeSet::new()
    });
    owners.into_iter().filter(|owner| !known.contains_key(owner)).collect()
}

/// Stores the rules of bucket types that are served for the first time. Returns the types that were
/// served and are not configured any more.
///
/// # Errors
/// A type is configured with another form or case rule than its claims were made under (B12). Two
/// values that were the same name could then become different ones.
async fn keep_bucket_types(config: &Config, store: &dyn Backend) -> Result<Vec<BucketType>, ServeError> {
    let catalogue = config.rules().catalogue;
    loop {
        let served = store.reader().bucket_types().await?;
        let Difference { changed, missing, added } = catalogue.differs_from(&served);
        if let Some(change) = changed.into_iter().next() {
            return Err(ConfigError::BucketTypeChanged(Box::new(change)).into());
        }
        if added.is_empty() {
            return Ok(missing);
        }
        // Another server may have stored a type first, with another rule. The next round compares
        // with what is stored then.
        store.remember_bucket_types(&[served, added].concat()).await?;
    }
}

/// The database role, if it may not vacuum the table of leases.
async fn role_without_vacuum(maintenance: &StoreMaintenance) -> Result<Option<String>, StoreError> {
    match maintenance {
        StoreMaintenance::Exclusive(_) => Ok(None),
        StoreMaintenance::Shared(store) => store.role_without_vacuum().await,
    }
}

fn joined<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn unconfigured_cells_warning(cells: &[CellId]) -> Option<String> {
    match cells {
        [] => None,
        [cell] => Some(format!(
            "cell {cell} owns claims but is not configured: its claims stay, its calls are refused; keep it in `[[cells]]` while it owns claims"
        )),
        cells => Some(format!(
            "cells {} own claims but are not configured: their claims stay, their calls are refused; keep them in `[[cells]]` while they own claims",
            joined(cells)
        )),
    }
}

fn unconfigured_types_warning(types: &[BucketType]) -> Option<String> {
    match types {
        [] => None,
        [one] => Some(format!(
            "bucket type {one} has been served and is not configured: its claims can't be reached; add it to `[[bucket_types]]`"
        )),
        types => Some(format!(
            "bucket types {} have been served and are not configured: their claims can't be reached; add them to `[[bucket_types]]`",
            joined(types)
        )),
    }
}

fn vacuum_warning(role: &str) -> String {
    format!(
        "the role {role} may not vacuum the table `claim_leases`, because it does not own it: settled leases slow lists \
         down until autovacuum runs; run `ALTER TABLE claim_leases OWNER TO {role}`, after which only members of {role} can \
         migrate the tables"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn bucket_types_that_are_not_configured_are_named() {
        let types =
            |numbers: &[i32]| unconfigured_types_warning(&numbers.iter().copied().map(BucketType).collect::<Vec<_>>());
        assert_eq!(types(&[]), None);
        assert!(types(&[1000]).unwrap().starts_with("bucket type 1000 has been served and is not configured: its"));
        assert!(types(&[100, 1000]).unwrap().starts_with("bucket types 100, 1000 have been served and are not"));
    }

    #[test]
    fn cells_that_are_not_configured_are_named() {
        let cells = |ids: &[i64]| unconfigured_cells_warning(&ids.iter().copied().map(CellId).collect::<Vec<_>>());
        assert_eq!(cells(&[]), None);
        assert!(cells(&[3]).unwrap().starts_with("cell 3 owns claims but is not configured: its claims stay"));
        assert!(cells(&[3, 12]).unwrap().starts_with("cells 3, 12 own claims but are not configured: their claims"));
    }
}
