//! Checks of the configuration against the store, at a start and at a reload. A contradiction is an
//! error; a smaller problem is a warning.

use std::collections::BTreeSet;
use std::fmt::Display;

use leasehold_core::bucket::BucketType;
use leasehold_core::catalogue::Difference;
use leasehold_core::cell::CellId;

use super::ServeError;
use crate::config::{Config, ConfigError};
use crate::store::{Backend, StoreError, StoreMaintenance, StoreReader};

/// Returns the warnings about the configuration and the store, each with advice.
///
/// # Errors
/// The store can't be read, or a bucket type is configured with another rule than its stored claims
/// were made under.
pub(super) async fn warnings(config: &Config, store: &dyn Backend) -> Result<Vec<String>, ServeError> {
    let missing_types = keep_bucket_types(config, store).await?;
    let warnings = [
        overlapping_cells_warning(&config.overlapping_cells()),
        unconfigured_cells_warning(&unconfigured_cells(config, &*store.reader()).await),
        unconfigured_types_warning(&missing_types),
        role_without_vacuum(&store.maintenance()).await?.as_deref().map(vacuum_warning),
    ];
    Ok(warnings.into_iter().flatten().collect())
}

/// Returns the cells that own claims and are not configured. Usually such a cell was removed from
/// the configuration too early. If the owners can't be read, this is logged and the result is
/// empty.
async fn unconfigured_cells(config: &Config, store: &dyn StoreReader) -> Vec<CellId> {
    let known = config.cells();
    let owners = store.owners().await.unwrap_or_else(|error| {
        tracing::error!(%error, "the owners of claims can't be read");
        BTreeSet::new()
    });
    owners.into_iter().filter(|owner| !known.contains_key(owner)).collect()
}

/// Stores the rules of bucket types that are served for the first time. Returns the bucket types
/// that were served before and are not configured now.
///
/// # Errors
/// The store can't be read or written, or a bucket type is configured with another form or case
/// rule than its stored claims were made under (B12). Two values that were the same name could then
/// become different ones.
async fn keep_bucket_types(config: &Config, store: &dyn Backend) -> Result<Vec<BucketType>, ServeError> {
    let catalogue = config.rules().catalogue;
    loop {
        let served = store.reader().bucket_types().await?;
        let difference = catalogue.differs_from(&served);
        let replaced = difference.replaced_built_in();
        let Difference { changed, missing, added } = difference;
        if let Some(change) = changed.into_iter().next() {
            return Err(ConfigError::BucketTypeChanged(Box::new(change)).into());
        }
        if added.is_empty() {
            return Ok(missing);
        }
        // Claims of a built-in type have the built-in rule's canonical forms.
        if let Some(change) = replaced
            && !store.reader().owners().await?.is_empty()
        {
            return Err(ConfigError::BucketTypeChanged(Box::new(change)).into());
        }
        // Another server may have stored one of these bucket types first, with another rule. So the
        // next round reads the stored rules and compares again.
        store.remember_bucket_types(&[served, added].concat()).await?;
    }
}

/// The name of the database role if the role may not vacuum the table of leases. `None` if the role
/// may, or for the embedded store.
async fn role_without_vacuum(maintenance: &StoreMaintenance) -> Result<Option<String>, StoreError> {
    match maintenance {
        StoreMaintenance::Exclusive(_) => Ok(None),
        StoreMaintenance::Shared(store) => store.role_without_vacuum().await,
    }
}

fn joined<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn overlapping_cells_warning(pairs: &[(CellId, CellId)]) -> Option<String> {
    let texts: Vec<_> = pairs.iter().map(|(first, second)| format!("{first} and {second}")).collect();
    let advice = "rows of both may have the same id; after the cell with every id was given a range, set that range";
    (!texts.is_empty()).then(|| format!("the `sequence_range`s of cells {} overlap: {advice}", texts.join(", ")))
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
    fn cells_with_common_ids_are_named() {
        let pairs = |pairs: &[(i64, i64)]| {
            overlapping_cells_warning(&pairs.iter().map(|&(a, b)| (CellId(a), CellId(b))).collect::<Vec<_>>())
        };
        assert_eq!(pairs(&[]), None);
        assert!(
            pairs(&[(1, 2), (1, 3)]).unwrap().starts_with("the `sequence_range`s of cells 1 and 2, 1 and 3 overlap")
        );
    }

    #[test]
    fn cells_that_are_not_configured_are_named() {
        let cells = |ids: &[i64]| unconfigured_cells_warning(&ids.iter().copied().map(CellId).collect::<Vec<_>>());
        assert_eq!(cells(&[]), None);
        assert!(cells(&[3]).unwrap().starts_with("cell 3 owns claims but is not configured: its claims stay"));
        assert!(cells(&[3, 12]).unwrap().starts_with("cells 3, 12 own claims but are not configured: their claims"));
    }
}
