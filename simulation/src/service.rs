//! The service: the engine over its reference store, and nothing of its own. It keeps what it has written through every
//! restart, and loses what was on its way.
//!
//! A rule that is switched off is taken away around the engine: see [`Ledger`].

use std::ops::Bound;

use leasehold_core::batch::UpdateRequest;
use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::{CellId, Claim, ClaimState, SourceId};
use leasehold_core::invariant::State;
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId, Outcome};
use leasehold_core::memory::MemoryStore;
use leasehold_core::query::{LeasePosition, LeaseQuery, LeaseScan, RecordQuery, RecordStep};
use leasehold_core::reconcile::{RemoteLease, Settled};
use leasehold_core::rejection::{Reason, Rejection};
use leasehold_core::store::Store;
use leasehold_core::table::{ClaimStatus, LeaseStatus};
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::{BrokenState, Changes, Replay, Transaction};
use leasehold_core::update::{self, Forget};

use crate::ghost::Ghosts;
use crate::names::{Names, TABLE, lease_id};
use crate::network::{Answer, Purpose, Request};
use crate::settings::{Rule, RulesOff};
use crate::touched::{Answered, Cause, Touched};

/// How many leases make a page: few, so that lists have many.
const LEASES_PER_PAGE: i32 = 2;

/// The service.
#[derive(Clone, Debug)]
pub struct Service {
    store: MemoryStore,
    /// Whether it serves.
    pub is_up: bool,
}

/// Who asks, and what the answer is to be noted in.
pub struct Call<'a> {
    /// The cell that asks.
    pub cell: u8,
    /// The service's time.
    pub now: Timestamp,
    /// The rules that are off.
    pub rules: RulesOff,
    /// The names.
    pub names: &'a Names,
    /// Where leases are noted.
    pub ghosts: &'a mut Ghosts,
    /// Where changes are noted.
    pub touched: &'a mut Touched,
}

impl Call<'_> {
    fn cell_id(&self) -> CellId {
        CellId(self.cell.into())
    }
}

impl Default for Service {
    /// One that serves, and has nothing yet.
    fn default() -> Self {
        Self { store: MemoryStore::default(), is_up: true }
    }
}

impl Service {
    /// Everything that is durable.
    pub fn state(&self) -> State {
        // The reference store reads maps, which never fails.
        self.store.state().unwrap_or_default()
    }

    /// Writes past the engine.
    #[cfg(test)]
    pub(crate) fn write(&mut self, changes: Changes) {
        self.store.write(changes).unwrap();
    }

    /// A cell's outstanding leases.
    pub fn outstanding(&self, cell: u8) -> impl Iterator<Item = LeaseId> {
        let scan = LeaseScan { cell: CellId(cell.into()), from: Bound::Unbounded, limit: usize::MAX };
        self.store.leases(&scan).unwrap_or_default().into_iter().map(|row| row.position.lease)
    }

    /// A claim as it stands.
    pub fn claim(&self, key: &BucketKey) -> Option<&Claim> {
        Transaction::claim(&self.store, key).ok().flatten()
    }

    /// A lease as it stands.
    pub fn lease(&self, lease: LeaseId) -> Option<&Lease> {
        Transaction::lease(&self.store, lease).ok().flatten()
    }

    /// What an idempotency key was used for.
    pub fn replay(&self, key: &IdempotencyKey) -> Option<&Replay> {
        Transaction::replay(&self.store, key).ok().flatten()
    }

    /// Answers a request.
    pub fn answer(&mut self, request: &Request, call: &mut Call<'_>) -> Answer {
        if !self.is_up {
            return Answer::Unavailable;
        }
        let answer = match request {
            Request::Begin { update, key, purpose } => self.begin(update, key.as_deref(), *purpose, call),
            Request::Settle { lease, outcome } => self.settle(*lease, *outcome, call),
            Request::ListLeases { cursor } => self.list_leases(*cursor, call),
            Request::ListRecords { after, upto } => self.list_records(after, upto, call),
        };
        // A store that contradicts itself decides nothing.
        answer.unwrap_or(Answer::Unavailable)
    }

    fn begin(
        &mut self,
        request: &UpdateRequest,
        key: Option<&str>,
        purpose: Purpose,
        call: &mut Call<'_>,
    ) -> Result<Answer, BrokenState> {
        let lease = lease_id(call.ghosts.len() + 1);
        let command = match call.names.rules.begin(call.cell_id(), request.clone(), key, lease) {
            Ok(command) => command,
            Err(rejection) => return Ok(refused(&rejection, false)),
        };
        let now = call.now;
        let mut ledger = Ledger::new(&mut self.store, call, Cause::Begin);
        command.batch.keys().for_each(|key| ledger.mask(key));
        let answer = update::begin(&mut ledger, &command, now)?;
        Ok(match answer {
            Ok(begun) => {
                if !begun.replayed {
                    call.ghosts.begun(call.cell, purpose);
                }
                Answer::Begun { lease: begun.lease, fence: begun.fence }
            }
            Err(rejection) => {
                let mut holds = command.batch.keys().filter_map(|key| self.claim(key)?.hold());
                let is_own = purpose != Purpose::Correction
                    && rejection.reason() == Reason::ClaimBusy
                    && holds.any(|hold| call.ghosts.lease(hold.lease).is_some_and(|ghost| ghost.purpose == purpose));
                refused(&rejection, is_own)
            }
        })
    }

    fn settle(&mut self, lease: LeaseId, outcome: Outcome, call: &mut Call<'_>) -> Result<Answer, BrokenState> {
        let command = match call.names.rules.settle(call.cell_id(), &lease.to_string(), outcome) {
            Ok(command) => command,
            Err(rejection) => return Ok(refused(&rejection, false)),
        };
        let now = call.now;
        let mut ledger = Ledger::new(&mut self.store, call, Cause::Settle(outcome));
        let answer = update::settle(&mut ledger, &command, now)?;
        if answer == Ok(true) {
            if let Some(ghost) = call.ghosts.lease_mut(lease) {
                ghost.settled = Some((outcome, call.now));
            }
            if !call.rules.keep(Rule::SettledLeaseMemory) {
                self.forget(lease, call)?;
            }
        }
        let settled = match answer.as_ref().map_err(Rejection::reason) {
            Ok(_) => Settled::Done,
            Err(Reason::LeaseRolledBack) => Settled::RolledBack,
            Err(Reason::LeaseCommitted) => Settled::Committed,
            Err(_) => Settled::NotFound,
        };
        call.touched.answered = Some(Answered { lease, wanted: outcome, told: settled });
        Ok(Answer::Settled(settled))
    }

    /// Forgets a settled lease, however young.
    fn forget(&mut self, lease: LeaseId, call: &mut Call<'_>) -> Result<(), BrokenState> {
        let mut ledger = Ledger::new(&mut self.store, call, Cause::Forget);
        update::forget(&mut ledger, &Forget { lease, settled_before: Timestamp::MAX })?;
        Ok(())
    }

    /// Forgets what was settled before a time. Whether there was anything.
    pub fn forget_settled(&mut self, before: Timestamp, call: &mut Call<'_>) -> bool {
        let leases = self.store.settled(before, usize::MAX).unwrap_or_default();
        for lease in &leases {
            let mut ledger = Ledger::new(&mut self.store, call, Cause::Forget);
            let forgotten = update::forget(&mut ledger, &Forget { lease: *lease, settled_before: before });
            debug_assert_eq!(forgotten, Ok(true), "the store said that it was settled before");
        }
        !leases.is_empty()
    }

    fn list_leases(&self, cursor: Option<LeasePosition>, call: &Call<'_>) -> Result<Answer, BrokenState> {
        let query = match LeaseQuery::parse(call.cell_id(), Some(LEASES_PER_PAGE), None, cursor) {
            Ok(query) => query,
            Err(rejection) => return Ok(refused(&rejection, false)),
        };
        let page = query.page(self.store.leases(&query.scan())?);
        let leases = page.leases.iter().map(|row| row.position);
        let leases = leases.map(|at| RemoteLease { created_at: at.created_at, lease: at.lease }).collect();
        Ok(Answer::Leases { leases, now: call.now, next: page.next })
    }

    fn list_records(&self, after: &SourceId, upto: &SourceId, call: &Call<'_>) -> Result<Answer, BrokenState> {
        let types = [crate::names::BUCKET_TYPE].into();
        let query = match RecordQuery::parse(call.cell_id(), TABLE, types, after.clone(), upto.clone()) {
            Ok(query) => query,
            Err(rejection) => return Ok(refused(&rejection, false)),
        };
        let mut scan = query.scan();
        loop {
            match query.step(self.store.records(&scan)?, &scan) {
                RecordStep::Again(larger) => scan = larger,
                RecordStep::Page(page) => {
                    let records = page.records.into();
                    return Ok(Answer::Records { records, now: call.now, truncated: page.truncated });
                }
            }
        }
    }
}

fn refused(rejection: &Rejection, is_own_obstacle: bool) -> Answer {
    let claims = rejection.offences().iter().filter_map(|offence| Some((offence.place?, offence.reason)));
    Answer::Refused { reason: rejection.reason(), claims: claims.collect::<Vec<_>>().into(), is_own_obstacle }
}

/// The store as a command sees it: with some rules off, it is shown what makes the engine's own check of them pass, and
/// nothing else. Notes every change.
///
/// - Without *lease exclusivity*, what a lease holds looks as it was before, as if at rest.
/// - Without *ownership*, every claim that the command asks for looks like the caller's own.
struct Ledger<'a> {
    store: &'a mut MemoryStore,
    cell: CellId,
    rules: RulesOff,
    cause: Cause,
    names: &'a Names,
    touched: &'a mut Touched,
    masked: Vec<(BucketKey, Option<Claim>)>,
}

impl<'a> Ledger<'a> {
    fn new<'b: 'a>(store: &'a mut MemoryStore, call: &'a mut Call<'b>, cause: Cause) -> Self {
        Self {
            store,
            cell: call.cell_id(),
            rules: call.rules,
            cause,
            names: call.names,
            touched: call.touched,
            masked: Vec::new(),
        }
    }

    /// Shows a claim as the rules that are off would have it.
    fn mask(&mut self, key: &BucketKey) {
        let hides_leases = !self.rules.keep(Rule::LeaseExclusivity);
        let hides_owners = !self.rules.keep(Rule::Ownership);
        if !hides_leases && !hides_owners {
            return;
        }
        let mut claim = Transaction::claim(self.store, key).ok().flatten().cloned();
        if hides_leases {
            claim = claim.and_then(before_its_lease);
        }
        if hides_owners {
            claim = claim.map(|claim| Claim { owner: self.cell, ..claim });
        }
        self.masked.push((key.clone(), claim));
    }
}

/// A claim as if its lease had never been.
fn before_its_lease(claim: Claim) -> Option<Claim> {
    let record = match claim.state {
        ClaimState::Creating(_, _) => return None,
        ClaimState::Active(record) | ClaimState::Destroying(_, record) => record,
        ClaimState::Replacing(_, both) => both.old,
    };
    Some(Claim { owner: claim.owner, state: ClaimState::Active(record) })
}

impl Transaction for Ledger<'_> {
    type Error = BrokenState;

    fn claim(&self, key: &BucketKey) -> Result<Option<&Claim>, BrokenState> {
        match self.masked.iter().find(|(masked, _)| masked == key) {
            Some((_, claim)) => Ok(claim.as_ref()),
            None => Transaction::claim(self.store, key),
        }
    }

    fn lease(&self, id: LeaseId) -> Result<Option<&Lease>, BrokenState> {
        Transaction::lease(self.store, id)
    }

    fn replay(&self, key: &IdempotencyKey) -> Result<Option<&Replay>, BrokenState> {
        Transaction::replay(self.store, key)
    }

    fn last_fence(&self) -> Result<Fence, BrokenState> {
        self.store.last_fence()
    }

    fn write(&mut self, changes: Changes) -> Result<(), BrokenState> {
        for (key, after) in &changes.claims {
            let before = ClaimStatus::of(Transaction::claim(self.store, key)?);
            if let Some(name) = self.names.name(key) {
                self.touched.claim(name, before, ClaimStatus::of(after.as_ref()), self.cause);
            }
        }
        for (id, after) in &changes.leases {
            let before = LeaseStatus::of(Transaction::lease(self.store, *id)?);
            self.touched.lease(*id, before, LeaseStatus::of(after.as_ref()), self.cause);
        }
        self.store.write(changes)
    }
}
