//! The metrics of relays, by the name of the relay.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RelayLabel {
    relay: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    relay: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    relay: String,
    state: &'static str,
}

/// The state of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayState {
    /// The relay hands on the rows of its outbox.
    Relaying,
    /// Another relay of the outbox works.
    Waiting,
    /// The database or the store of the server can't be used now, and the relay tries again.
    Failing,
}

impl RelayState {
    const ALL: [Self; 3] = [Self::Relaying, Self::Waiting, Self::Failing];

    fn label(self) -> &'static str {
        match self {
            Self::Relaying => "relaying",
            Self::Waiting => "waiting",
            Self::Failing => "failing",
        }
    }
}

/// The metrics of all relays of a server.
#[derive(Default)]
pub struct RelayMetrics {
    rows: Family<OutcomeLabels, Counter>,
    states: Family<StateLabels, Gauge>,
    lags: Family<RelayLabel, Gauge>,
    refused: Family<RelayLabel, Gauge>,
    // The time of the oldest row of each outbox that may not be relayed; `None` if all are.
    oldest: Mutex<BTreeMap<String, Option<Instant>>>,
}

impl RelayMetrics {
    pub(super) fn register(&self, all: &mut Registry) {
        all.register("relay_rows", "Rows of outboxes, by relay and outcome", self.rows.clone());
        all.register("relay_state", "1 for the state in which a relay is", self.states.clone());
        let lag = "Age of the oldest row of an outbox that is not relayed, by relay";
        all.register_with_unit("relay_lag", lag, Unit::Seconds, self.lags.clone());
        let refused = "Requests that the server refused and the outbox has set aside, by relay";
        all.register("relay_refused_requests", refused, self.refused.clone());
    }

    /// Adds the metrics of a relay, all of them 0.
    pub fn add(&self, relay: &str) {
        self.count(relay, 0, 0);
        self.set_oldest(relay, None);
        self.set_refused(relay, 0);
    }

    /// Removes the metrics of a relay that is configured no more. Its counters stay.
    pub fn remove(&self, relay: &str) {
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner).remove(relay);
        let label = RelayLabel { relay: relay.to_owned() };
        self.lags.remove(&label);
        self.refused.remove(&label);
        for state in RelayState::ALL {
            self.states.remove(&StateLabels { relay: relay.to_owned(), state: state.label() });
        }
    }

    /// Counts rows that a relay has handed on, and rows that the server has refused for good.
    pub fn count(&self, relay: &str, relayed: usize, refused: usize) {
        for (outcome, rows) in [("relayed", relayed), ("refused", refused)] {
            let labels = OutcomeLabels { relay: relay.to_owned(), outcome };
            self.rows.get_or_create(&labels).inc_by(rows as u64);
        }
    }

    /// Sets the state of a relay.
    pub fn set_state(&self, relay: &str, now: RelayState) {
        for state in RelayState::ALL {
            let labels = StateLabels { relay: relay.to_owned(), state: state.label() };
            self.states.get_or_create(&labels).set(i64::from(state == now));
        }
    }

    /// Sets the time at which the oldest row that is not relayed was written; `None` if all rows are relayed.
    pub fn set_oldest(&self, relay: &str, written: Option<Instant>) {
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner).insert(relay.to_owned(), written);
    }

    /// Sets the number of requests that an outbox has set aside.
    pub fn set_refused(&self, relay: &str, requests: u64) {
        let requests = i64::try_from(requests).unwrap_or(i64::MAX);
        self.refused.get_or_create(&RelayLabel { relay: relay.to_owned() }).set(requests);
    }

    /// Computes the lags for a scrape.
    pub(super) fn update(&self) {
        for (relay, written) in self.oldest.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let seconds = written.map_or(0, |written| written.elapsed().as_secs());
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
            self.lags.get_or_create(&RelayLabel { relay: relay.clone() }).set(seconds);
        }
    }
}
