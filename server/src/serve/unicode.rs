//! The check of a store whose keys were made by older tables of Unicode. It runs in the background
//! after a start, in short parts, so that no begin or commit waits for it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::unicode_version::{UNICODE_VERSION, UnicodeVersion};

use crate::metrics::Metrics;
use crate::store::{Backend, FormCheck, FormScan, StoreError};

/// The pause between two parts of the scan. It leaves the disk, or the database, to the callers.
const PART_PAUSE: Duration = Duration::from_millis(10);
/// The pause after the first failed read of a store that is away. It doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two reads of a store that is away.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Checks every key of a store that an older version of Unicode made. Stores this program's version
/// if all keys are still canonical forms; logs and publishes the number of the others if not.
pub(super) async fn check_forms(store: Arc<dyn Backend>, metrics: Arc<Metrics>) {
    let found = store.identity().unicode;
    if found > UNICODE_VERSION {
        tracing::warn!(
            "the canonical forms of the store are of Unicode {found}, and this program has Unicode {UNICODE_VERSION}: it can't find names with newer characters; use a newer version of the program"
        );
    }
    if found >= UNICODE_VERSION {
        return;
    }
    tracing::info!("checking the canonical forms of Unicode {found} by Unicode {UNICODE_VERSION}");
    if let Err(error) = scan(&*store, &metrics, found).await {
        tracing::error!(%error, "canonical forms can't be checked: the next start checks them again");
    }
}

/// Checks all keys, publishes the result, and stores the version if every key passes.
async fn scan(store: &dyn Backend, metrics: &Metrics, found: UnicodeVersion) -> Result<(), StoreError> {
    let (reader, mut scan, mut pause) = (store.reader(), FormScan::default(), FIRST_PAUSE);
    let check = loop {
        match scan.go_on(&*reader, PART_PAUSE).await {
            Ok(check) => break check,
            Err(error) => wait_until_back(error, &mut pause).await?,
        }
    };
    metrics.set_differing_claims(&check.differing);
    report(&check, found);
    while check.passes()
        && let Err(error) = store.set_unicode_version(UNICODE_VERSION).await
    {
        wait_until_back(error, &mut pause).await?;
    }
    Ok(())
}

/// Waits before the next attempt to reach a store that is away.
///
/// # Errors
/// The failure has another cause.
async fn wait_until_back(error: StoreError, pause: &mut Duration) -> Result<(), StoreError> {
    if !error.is_away() {
        return Err(error);
    }
    tracing::debug!(%error, "the check of canonical forms waits for the store");
    tokio::time::sleep(*pause).await;
    *pause = MAX_PAUSE.min(*pause * 2);
    Ok(())
}

fn report(check: &FormCheck, found: UnicodeVersion) {
    if check.passes() {
        tracing::info!("the canonical forms of Unicode {found} are those of Unicode {UNICODE_VERSION}: {check}");
    } else {
        tracing::error!(
            "the canonical forms of Unicode {found} are not all those of Unicode {UNICODE_VERSION}: {check}; start the former version again, and have the cells give these names up"
        );
    }
}
