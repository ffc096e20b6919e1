//! The simulated service: the engine over its reference store, without rules of its own. Every
//! change that the service has written survives a restart; requests in flight are lost.
//!
//! If a rule is switched off, the service hides data from the engine: see `MaskedStore`.

mod locks;
mod queues;

use std::ops::Bound;

use leasehold_core::batch::UpdateRequest;
use leasehold_core::bucket::BucketKey;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, ClaimState, SourceId};
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId, Outcome, Replay};
use leasehold_core::memory::MemoryStore;
use leasehold_core::query::{LeasePosition, LeaseQuery, LeaseScan, RecordQuery};
use leasehold_core::reconcile::{RemoteLease, Settled};
use leasehold_core::rejection::{Reason, Rejection};
use leasehold_core::rows::{Changes, Kind, OrderedRead, State};
use leasehold_core::store::Store;
use leasehold_core::table::{ClaimStatus, LeaseStatus};
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::{BrokenState, Transaction};
use leasehold_core::update::{self, Forget, Settle};

use crate::effects::{Cause, Effects, SettleAnswer};
use crate::ground_truth::GroundTruth;
use crate::names::{Names, TABLE, lease_id};
use crate::network::{Purpose, Request, Response};
use crate::settings::{Rule, RulesOff};
use crate::undelivered::Undelivered;

pub use locks::{LockContext, LockHost};
pub use queues::MAX_ATTEMPTS;

/// The number of leases in a page. It is small, so that lists have several pages.
const LEASES_PER_PAGE: i32 = 2;

/// The simulated claims service.
#[derive(Clone, Debug)]
pub struct Service {
    store: MemoryStore,
    undelivered: Undelivered,
    /// True if the service is running and accepts requests.
    pub is_up: bool,
    /// True if the running service is paused: it receives nothing and counts no tick.
    pub is_paused: bool,
    locks: Option<LockHost>,
}

/// The caller of a request, and the records of the world that the answer changes.
pub struct CallContext<'a> {
    /// The number of the calling cell.
    pub cell: u8,
    /// The service's time when it receives the request.
    pub now: Timestamp,
    /// The rules of the protocol that are switched off.
    pub rules_off: RulesOff,
    /// The names that cells can claim.
    pub names: &'a Names,
    /// The true history of every lease, to which a begin adds one.
    pub ground_truth: &'a mut GroundTruth,
    /// The changes made by the present event, to which the answer adds its own.
    pub effects: &'a mut Effects,
}

impl CallContext<'_> {
    fn cell_id(&self) -> CellId {
        CellId(self.cell.into())
    }
}

impl Default for Service {
    /// Creates a running service without claims.
    fn default() -> Self {
        let (store, undelivered) = (MemoryStore::default(), Undelivered::default());
        Self { store, undelivered, is_up: true, is_paused: false, locks: None }
    }
}

impl Service {
    /// Returns every row of the service's store.
    pub fn state(&self) -> State {
        // The reference store reads maps, which never fails.
        self.store.state().unwrap_or_default()
    }

    /// Writes to the store without the engine.
    #[cfg(test)]
    pub(crate) fn write(&mut self, changes: Changes) {
        self.store.write(changes).unwrap();
    }

    /// Returns the service's memory of sessions and locks, `None` in a world of claims and while the
    /// service is down.
    pub fn lock_host(&self) -> Option<&LockHost> {
        self.locks.as_ref()
    }

    /// Returns the ids of a cell's outstanding leases, in the order of their begins.
    pub fn outstanding(&self, cell: u8) -> impl Iterator<Item = LeaseId> {
        let scan = LeaseScan { cell: CellId(cell.into()), from: Bound::Unbounded, limit: usize::MAX };
        self.store.leases(&scan).unwrap_or_default().into_iter().map(|row| row.position.lease)
    }

    /// Returns the claim of a bucket, `None` if the bucket has none.
    pub fn claim(&self, key: &BucketKey) -> Option<&Claim> {
        Transaction::claim(&self.store, key).ok().flatten()
    }

    /// Returns the lease with this id, `None` if there is no such lease.
    pub fn lease(&self, lease: LeaseId) -> Option<&Lease> {
        Transaction::lease(&self.store, lease).ok().flatten()
    }

    /// Returns the stored answer of the begin that used an idempotency key, `None` if no begin did.
    pub fn replay(&self, key: &IdempotencyKey) -> Option<&Replay> {
        Transaction::replay(&self.store, key).ok().flatten()
    }

    /// Returns the leases that no caller can know yet (B25).
    pub fn undelivered(&self) -> &Undelivered {
        &self.undelivered
    }

    /// Notes that the answer of a begun lease has left the service.
    pub(crate) fn hand_on(&mut self, lease: LeaseId) {
        self.undelivered.hand_on(lease);
    }

    /// Notes that the answer of a begun lease can no longer leave the service.
    pub(crate) fn cancel(&mut self, lease: LeaseId) {
        self.undelivered.cancel(lease);
    }

    /// Stops the service, which forgets everything that is not in its store.
    pub fn stop(&mut self) {
        (self.is_up, self.is_paused) = (false, false);
        self.undelivered = Undelivered::default();
        self.locks = None;
    }

    /// Answers a request. A service that is down answers [`Response::Unavailable`].
    pub fn answer(&mut self, request: &Request, call: &mut CallContext<'_>) -> Response {
        if !self.is_up {
            return Response::Unavailable;
        }
        let answer = match request {
            Request::Begin { update, key, purpose } => self.begin(update, key.as_deref(), *purpose, call),
            Request::Settle { lease, outcome } => self.settle(*lease, *outcome, call),
            Request::ListLeases { cursor } => self.list_leases(*cursor, call),
            Request::ListRecords { after, upto } => self.list_records(after, upto, call),
            // The world hands these requests to `receive_lock` and `receive_queue`.
            Request::Lock(_) | Request::Queue(_) => return Response::Unavailable,
        };
        // If the store's rows contradict each other, the service decides nothing.
        answer.unwrap_or(Response::Unavailable)
    }

    fn begin(
        &mut self,
        request: &UpdateRequest,
        key: Option<&str>,
        purpose: Purpose,
        call: &mut CallContext<'_>,
    ) -> Result<Response, BrokenState> {
        let lease = lease_id(call.ground_truth.len() + 1);
        let command = match call.names.rules.begin(call.cell_id(), request.clone(), key, lease) {
            Ok(command) => command,
            Err(rejection) => return Ok(refused(&rejection, false)),
        };
        while self.take_back(call) {}
        let now = call.now;
        let mut store = MaskedStore::new(&mut self.store, call, Cause::Begin);
        command.batch.keys().for_each(|key| store.mask(key));
        let answer = update::begin(&mut store, &command, now)?;
        Ok(match answer {
            Ok(begun) => {
                if !begun.replayed {
                    call.ground_truth.record_begin(call.cell, purpose);
                    key.is_none().then(|| self.undelivered.add(begun.lease));
                }
                Response::Begun { lease: begun.lease, fence: begun.fence }
            }
            Err(rejection) => {
                let mut holds = command.batch.keys().filter_map(|key| self.claim(key)?.hold());
                let is_own = purpose != Purpose::Correction
                    && rejection.reason() == Reason::ClaimBusy
                    && holds
                        .any(|hold| call.ground_truth.lease(hold.lease).is_some_and(|truth| truth.purpose == purpose));
                refused(&rejection, is_own)
            }
        })
    }

    fn settle(
        &mut self,
        lease: LeaseId,
        outcome: Outcome,
        call: &mut CallContext<'_>,
    ) -> Result<Response, BrokenState> {
        let command = match call.names.rules.settle(call.cell_id(), &lease.to_string(), outcome) {
            Ok(command) => command,
            Err(rejection) => return Ok(refused(&rejection, false)),
        };
        let answer = self.decide_settle(&command, call)?;
        let settled = match answer.as_ref().map_err(Rejection::reason) {
            Ok(_) => Settled::Done,
            Err(Reason::LeaseRolledBack) => Settled::RolledBack,
            Err(Reason::LeaseCommitted) => Settled::Committed,
            Err(_) => Settled::NotFound,
        };
        call.effects.settle_answer = Some(SettleAnswer { lease, requested: outcome, answer: settled });
        Ok(Response::Settled(settled))
    }

    fn decide_settle(
        &mut self,
        command: &Settle,
        call: &mut CallContext<'_>,
    ) -> Result<Result<bool, Rejection>, BrokenState> {
        let now = call.now;
        let mut store = MaskedStore::new(&mut self.store, call, Cause::Settle(command.outcome));
        let answer = update::settle(&mut store, command, now)?;
        if answer == Ok(true) {
            if let Some(truth) = call.ground_truth.lease_mut(command.lease) {
                truth.settled = Some((command.outcome, call.now));
            }
            if !call.rules_off.is_on(Rule::SettledLeaseMemory) {
                self.forget(command.lease, call)?;
            }
        }
        Ok(answer)
    }

    /// Rolls back the first lease whose answer could not leave the service (B25). Returns false if
    /// there is none.
    pub fn take_back(&mut self, call: &mut CallContext<'_>) -> bool {
        let Some(lease) = self.undelivered.next_take_back() else { return false };
        if let Some(cell) = call.ground_truth.lease(lease).map(|truth| CellId(truth.cell.into())) {
            let command = Settle { cell, lease, outcome: Outcome::RolledBack };
            // No caller waits for the answer. If reconciliation has settled the lease already and
            // the service has forgotten it, the answer is a rejection.
            _ = self.decide_settle(&command, call);
            call.effects.taken_back.push(lease);
        }
        true
    }

    /// Deletes a settled lease, even if it was settled a moment ago.
    fn forget(&mut self, lease: LeaseId, call: &mut CallContext<'_>) -> Result<(), BrokenState> {
        let mut store = MaskedStore::new(&mut self.store, call, Cause::Forget);
        update::forget(&mut store, &Forget { lease, settled_before: Timestamp::MAX })?;
        Ok(())
    }

    /// Deletes the leases that were settled before a time. Returns true if there were any.
    pub fn forget_settled(&mut self, before: Timestamp, call: &mut CallContext<'_>) -> bool {
        let leases = self.store.settled(before, usize::MAX).unwrap_or_default();
        for lease in &leases {
            let mut store = MaskedStore::new(&mut self.store, call, Cause::Forget);
            let forgotten = update::forget(&mut store, &Forget { lease: *lease, settled_before: before });
            debug_assert_eq!(forgotten, Ok(true), "the store said that it was settled before");
        }
        !leases.is_empty()
    }

    fn list_leases(&self, cursor: Option<LeasePosition>, call: &CallContext<'_>) -> Result<Response, BrokenState> {
        let query = match LeaseQuery::parse(call.cell_id(), Some(LEASES_PER_PAGE), None, cursor) {
            Ok(query) => query,
            Err(rejection) => return Ok(refused(&rejection, false)),
        };
        let page = query.page(self.store.leases(&query.scan())?);
        let leases = page.leases.iter().map(|row| row.position);
        let leases = leases.map(|at| RemoteLease { created_at: at.created_at, lease: at.lease }).collect();
        Ok(Response::Leases { leases, now: call.now, next: page.next })
    }

    fn list_records(&self, after: &SourceId, upto: &SourceId, call: &CallContext<'_>) -> Result<Response, BrokenState> {
        let types = [crate::names::BUCKET_TYPE].into();
        let query = match RecordQuery::parse(call.cell_id(), TABLE, types, after.clone(), upto.clone()) {
            Ok(query) => query,
            Err(rejection) => return Ok(refused(&rejection, false)),
        };
        let mut list = query.list();
        loop {
            match list.add(self.store.records(list.scan())?) {
                Ok(None) => {}
                Ok(Some(page)) => {
                    let records = page.records.into();
                    return Ok(Response::Records { records, now: call.now, truncated: page.truncated });
                }
                Err(rejection) => return Ok(refused(&rejection, false)),
            }
        }
    }
}

fn refused(rejection: &Rejection, blocked_by_own_lease: bool) -> Response {
    let claims = rejection.offences().iter().filter_map(|offence| Some((offence.place?, offence.reason)));
    Response::Refused { reason: rejection.reason(), claims: claims.collect::<Vec<_>>().into(), blocked_by_own_lease }
}

/// The service's store as a command of the engine sees it. If a rule is off, the command sees
/// claims that pass the engine's check of this rule. Every change is recorded in the world's
/// effects.
///
/// - Without *lease exclusivity*, a claim under a lease appears as it was before that lease.
/// - Without *ownership*, every requested claim appears to belong to the calling cell.
struct MaskedStore<'a> {
    store: &'a mut MemoryStore,
    cell: CellId,
    rules: RulesOff,
    cause: Cause,
    names: &'a Names,
    effects: &'a mut Effects,
    masked: Vec<(BucketKey, Option<Claim>)>,
}

impl<'a> MaskedStore<'a> {
    fn new<'b: 'a>(store: &'a mut MemoryStore, call: &'a mut CallContext<'b>, cause: Cause) -> Self {
        Self {
            store,
            cell: call.cell_id(),
            rules: call.rules_off,
            cause,
            names: call.names,
            effects: call.effects,
            masked: Vec::new(),
        }
    }

    /// Stores how the claim of `key` appears to commands under the rules that are off. Does nothing
    /// if all rules are on.
    fn mask(&mut self, key: &BucketKey) {
        let hides_leases = !self.rules.is_on(Rule::LeaseExclusivity);
        let hides_owners = !self.rules.is_on(Rule::Ownership);
        if !hides_leases && !hides_owners {
            return;
        }
        let mut claim = Transaction::claim(self.store, key).ok().flatten().cloned();
        if hides_leases {
            claim = claim.and_then(claim_before_lease);
        }
        if hides_owners {
            claim = claim.map(|claim| Claim { owner: self.cell, ..claim });
        }
        self.masked.push((key.clone(), claim));
    }
}

/// Returns a claim as it was before its lease began; `None` for a claim that the lease creates.
fn claim_before_lease(claim: Claim) -> Option<Claim> {
    let record = match claim.state {
        ClaimState::Creating(_, _) => return None,
        ClaimState::Active(record) | ClaimState::Destroying(_, record) => record,
        ClaimState::Replacing(_, both) => both.old,
    };
    Some(Claim { owner: claim.owner, state: ClaimState::Active(record) })
}

impl Transaction for MaskedStore<'_> {
    type Error = BrokenState;

    fn claim(&self, key: &BucketKey) -> Result<Option<&Claim>, BrokenState> {
        match self.masked.iter().find(|(masked, _)| masked == key) {
            Some((_, claim)) => Ok(claim.as_ref()),
            None => Transaction::claim(self.store, key),
        }
    }

    fn row<K: Kind>(&self, key: &K::Key) -> Result<Option<&K>, BrokenState> {
        self.store.row(key)
    }

    fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, BrokenState> {
        self.store.first(read)
    }

    fn last_fence(&self) -> Result<Fence, BrokenState> {
        self.store.last_fence()
    }

    fn write(&mut self, changes: Changes) -> Result<(), BrokenState> {
        for (key, after) in &changes.claims {
            let before = ClaimStatus::of(Transaction::claim(self.store, key)?);
            if let Some(name) = self.names.name(key) {
                self.effects.claim(name, before, ClaimStatus::of(after.as_ref()), self.cause);
            }
        }
        for (id, after) in &changes.leases {
            let before = LeaseStatus::of(Transaction::lease(self.store, *id)?);
            self.effects.lease(*id, before, LeaseStatus::of(after.as_ref()), self.cause);
        }
        self.store.write(changes)
    }
}
