//! Looks for circles of asks that wait for each other (K15).

use std::time::Duration;

use leasehold_core::circle::CircleSearch;
use leasehold_core::lock::{AskId, AskState};
use leasehold_core::locking::acquire::Acquire;

use super::Services;

/// The time for which an ask waits before it is looked at. Most waits are shorter, and need no search: as
/// `deadlock_timeout` of PostgreSQL.
const FIRST_SEARCH: Duration = Duration::from_millis(200);
/// The time between two searches. The ask that closes a circle finds it with its first search, unless the
/// reads of that search failed.
const NEXT_SEARCH: Duration = Duration::from_secs(5);

impl Services {
    /// Waits until one of the asks waits in a circle that this call closed. Waits for ever if the caller
    /// holds no other lock.
    pub(super) async fn wait_for_circle(&self, acquires: &[Acquire]) {
        let asks: Vec<AskId> =
            acquires.iter().filter(|acquire| !acquire.held.is_empty()).map(|acquire| acquire.ask).collect();
        if asks.is_empty() {
            return std::future::pending().await;
        }
        let mut pause = FIRST_SEARCH;
        loop {
            tokio::time::sleep(pause).await;
            pause = NEXT_SEARCH;
            for ask in &asks {
                if self.closes_circle(*ask, &asks).await {
                    return;
                }
            }
        }
    }

    /// True if an ask waits in a circle, and one of `own` is the last of its asks. Each search reads rows
    /// one after the other, so a circle counts only if a second one finds the same asks: all of them waited
    /// at the moment between both.
    async fn closes_circle(&self, ask: AskId, own: &[AskId]) -> bool {
        match self.find_circle(ask).await {
            Some((circle, last)) if own.contains(&last) => self.find_circle(ask).await == Some((circle, last)),
            _ => false,
        }
    }

    /// Returns the asks of a circle in which this one waits, and the last of them. If a row can't be read,
    /// a later search finds it.
    async fn find_circle(&self, id: AskId) -> Option<(Vec<AskId>, AskId)> {
        let ask = self.store().ask(id).await.ok()??;
        if matches!(ask.state, AskState::Holding(_)) {
            return None;
        }
        let mut search = CircleSearch::new(id, ask);
        while let Some(read) = search.next_read().cloned() {
            search.answer(self.store().related_asks(read).await.ok()?);
        }
        let circle = search.circle();
        let last = search.last_of(&circle)?;
        Some((circle, last))
    }
}
