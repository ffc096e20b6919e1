//! A hash of a world's state. Two worlds with the same hash have the same future, so the explorer
//! recognises the states that it has visited.

use std::hash::{DefaultHasher, Hash, Hasher};

use leasehold_core::claim::{Claim, ClaimState, Record};
use leasehold_core::lease::Lease;

use crate::names::lease_id;
use crate::network::{Message, Payload, Request, Response};
use crate::world::{Cell, LockWorld, World};

/// Returns a hash of everything that influences the future of a world, and of nothing else.
/// `remaining` is the part of the plan that the explorer has not used yet.
pub(crate) fn of(world: &World, remaining: impl Hash) -> u128 {
    let mut hasher = WideHasher::new();
    remaining.hash(&mut hasher);
    world.now().hash(&mut hasher);
    world.saves().hash(&mut hasher);
    world.violation().is_some().hash(&mut hasher);
    world.ground_truth().hash(&mut hasher);
    service(world, &mut hasher);
    // The order in which messages were sent has no influence on the future, so the hashes of
    // messages are added up.
    let messages = world.network().messages().iter().map(message);
    messages.fold(0_u128, u128::wrapping_add).hash(&mut hasher);
    world.cells().iter().for_each(|one| cell(one, &mut hasher));
    world.locks().into_iter().for_each(|found| locks(world, found, &mut hasher));
    hasher.number()
}

fn locks(world: &World, locks: &LockWorld, hasher: &mut WideHasher) {
    (locks.ticked_at, locks.ahead_seconds, &locks.resources).hash(hasher);
    world.service().is_paused.hash(hasher);
    world.service().lock_host().into_iter().for_each(|host| host.hash(hasher));
    let rows = world.service().lock_rows();
    for (id, session) in rows.sessions.iter() {
        (id, session.asks, session.renewals, session.state, session.opened_at, session.updated_at).hash(hasher);
    }
    for (path, lock) in rows.locks.iter() {
        (path, lock.waiting, lock.served_turn, lock.last_turn, lock.updated_at).hash(hasher);
        lock.grant().map(|grant| (grant.ask, grant.fence, grant.granted_at)).hash(hasher);
        std::mem::discriminant(&lock.state).hash(hasher);
        lock.last.as_ref().map(|last| (last.grant.ask, last.grant.fence, last.end)).hash(hasher);
    }
    for (id, ask) in rows.asks.iter() {
        (id, ask.session, &ask.lock, ask.state).hash(hasher);
    }
    if world.has_queue() {
        queue(world, locks, hasher);
    }
}

fn queue(world: &World, locks: &LockWorld, hasher: &mut WideHasher) {
    locks.truth.hash(hasher);
    for (id, request) in world.service().requests() {
        (id, request.number, request.attempts, request.not_before, request.updated_at).hash(hasher);
        std::mem::discriminant(&request.state).hash(hasher);
    }
    for (path, lane) in world.service().lanes() {
        (path, lane.waiting, lane.last_number, lane.create, lane.updated_at).hash(hasher);
        lane.hold().map(|hold| (hold.take, hold.session, hold.fence, hold.taken_at)).hash(hasher);
        lane.last.as_ref().map(|last| (last.hold.take, last.hold.session, last.hold.fence, last.end)).hash(hasher);
    }
}

fn service(world: &World, hasher: &mut WideHasher) {
    world.service().is_up.hash(hasher);
    world.service().undelivered().hash(hasher);
    for name in 0..world.names().len() {
        let found = world.names().key(name).and_then(|key| world.service().claim(key));
        found.is_some().hash(hasher);
        found.into_iter().for_each(|found| claim(found, hasher));
    }
    for number in 1..=world.ground_truth().len() {
        let found = world.service().lease(lease_id(number));
        found.is_some().hash(hasher);
        found.into_iter().for_each(|found| lease(found, hasher));
    }
}

fn claim(claim: &Claim, hasher: &mut WideHasher) {
    claim.owner.hash(hasher);
    claim.hold().map(|hold| (hold.lease, hold.since)).hash(hasher);
    std::mem::discriminant(&claim.state).hash(hasher);
    match &claim.state {
        ClaimState::Replacing(_, both) => [&both.old, &both.new].into_iter().for_each(|one| record(one, hasher)),
        ClaimState::Active(one) | ClaimState::Creating(_, one) | ClaimState::Destroying(_, one) => record(one, hasher),
    }
}

fn record(record: &Record, hasher: &mut WideHasher) {
    (record.uuid, &record.source, record.subject, record.created_at, record.updated_at).hash(hasher);
}

fn lease(lease: &Lease, hasher: &mut WideHasher) {
    (lease.created_at, lease.updated_at, lease.outcome(), &lease.idempotency_key).hash(hasher);
}

fn message(message: &Message) -> u128 {
    let mut hasher = WideHasher::new();
    message.id.hash(&mut hasher);
    match &message.payload {
        Payload::Request(request) => self::request(request, &mut hasher),
        Payload::Response(answer) => self::answer(answer, &mut hasher),
    }
    hasher.number()
}

fn request(request: &Request, hasher: &mut WideHasher) {
    std::mem::discriminant(request).hash(hasher);
    match request {
        Request::Begin { update, key, purpose } => (key, purpose, update).hash(hasher),
        Request::Settle { lease, outcome } => (lease, outcome).hash(hasher),
        Request::ListLeases { cursor } => cursor.hash(hasher),
        Request::ListRecords { after, upto } => (after, upto).hash(hasher),
        Request::Lock(request) => request.hash(hasher),
        Request::Queue(request) => request.hash(hasher),
    }
}

fn answer(answer: &Response, hasher: &mut WideHasher) {
    std::mem::discriminant(answer).hash(hasher);
    match answer {
        Response::Begun { lease, fence } => (lease, fence).hash(hasher),
        Response::Refused { reason, claims, blocked_by_own_lease } => {
            (reason, claims, blocked_by_own_lease).hash(hasher)
        }
        Response::Settled(settled) => settled.hash(hasher),
        Response::Leases { leases, now, next } => (leases, now, next).hash(hasher),
        Response::Records { records, now, truncated } => {
            (records.len(), now, truncated).hash(hasher);
            records.iter().for_each(|row| {
                row.key.hash(hasher);
                claim(&row.claim, hasher);
            });
        }
        Response::Lock(answer) => answer.hash(hasher),
        Response::Queue(answer) => answer.hash(hasher),
        Response::Unavailable => {}
    }
}

fn cell(cell: &Cell, hasher: &mut WideHasher) {
    cell.is_cut_off.hash(hasher);
    cell.database.hash(hasher);
    for worker in &cell.workers {
        (&worker.save, worker.calls).hash(hasher);
    }
    for reconciler in &cell.reconcilers {
        (reconciler.calls, &reconciler.run).hash(hasher);
    }
    (cell.verifier.calls, &cell.verifier.run).hash(hasher);
    cell.client.hash(hasher);
    cell.front.hash(hasher);
}

/// A hasher of 128 bits: the standard library's hasher of 64 bits twice, with different starts.
/// With 64 bits, two states of an exploration could have the same hash.
struct WideHasher([DefaultHasher; 2]);

impl WideHasher {
    fn new() -> Self {
        let mut other = DefaultHasher::new();
        other.write_u8(1);
        Self([DefaultHasher::new(), other])
    }

    fn number(&self) -> u128 {
        let [one, other] = self.0.each_ref().map(|half| u128::from(half.finish()));
        one << 64 | other
    }
}

impl Hasher for WideHasher {
    fn finish(&self) -> u64 {
        self.number() as u64
    }

    // If the compiler inlined this function at every call, the WebAssembly file would grow.
    #[inline(never)]
    fn write(&mut self, bytes: &[u8]) {
        self.0.iter_mut().for_each(|half| half.write(bytes));
    }
}
