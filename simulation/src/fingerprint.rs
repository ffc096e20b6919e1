//! What a world comes to, as a number: two worlds with one number go on alike. The explorer tells by it where it has
//! been.

use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};

use leasehold_core::claim::{Claim, ClaimState, Record};
use leasehold_core::lease::Lease;
use xxhash_rust::xxh3::Xxh3;

use crate::names::lease_id;
use crate::network::{Answer, Message, Payload, Request};
use crate::world::{Cell, World};

/// A world's number: all that decides how it can go on, and nothing else.
pub(crate) fn of(world: &World, beside: impl Hash) -> u128 {
    let mut hasher = Xxh3::new();
    beside.hash(&mut hasher);
    world.now().hash(&mut hasher);
    world.saves().hash(&mut hasher);
    world.violation().is_some().hash(&mut hasher);
    world.ghosts().hash(&mut hasher);
    service(world, &mut hasher);
    // In whatever order they were sent.
    let messages = world.network().messages().iter().map(message);
    messages.fold(0_u128, u128::wrapping_add).hash(&mut hasher);
    world.cells().iter().for_each(|one| cell(one, &mut hasher));
    hasher.digest128()
}

fn service(world: &World, hasher: &mut Xxh3) {
    world.service().is_up.hash(hasher);
    for name in 0..world.names().len() {
        let found = world.names().key(name).and_then(|key| world.service().claim(key));
        found.is_some().hash(hasher);
        found.into_iter().for_each(|found| claim(found, hasher));
    }
    for number in 1..=world.ghosts().len() {
        let found = world.service().lease(lease_id(number));
        found.is_some().hash(hasher);
        found.into_iter().for_each(|found| lease(found, hasher));
    }
}

fn claim(claim: &Claim, hasher: &mut Xxh3) {
    claim.owner.hash(hasher);
    claim.hold().map(|hold| (hold.lease, hold.since)).hash(hasher);
    std::mem::discriminant(&claim.state).hash(hasher);
    match &claim.state {
        ClaimState::Replacing(_, both) => [&both.old, &both.new].into_iter().for_each(|one| record(one, hasher)),
        ClaimState::Active(one) | ClaimState::Creating(_, one) | ClaimState::Destroying(_, one) => record(one, hasher),
    }
}

fn record(record: &Record, hasher: &mut Xxh3) {
    (record.uuid, &record.source, record.subject, record.created_at, record.updated_at).hash(hasher);
}

fn lease(lease: &Lease, hasher: &mut Xxh3) {
    (lease.created_at, lease.updated_at, lease.outcome(), &lease.idempotency_key).hash(hasher);
}

fn message(message: &Message) -> u128 {
    let mut hasher = Xxh3::new();
    message.id.hash(&mut hasher);
    match &message.payload {
        Payload::Request(request) => self::request(request, &mut hasher),
        Payload::Answer(answer) => self::answer(answer, &mut hasher),
    }
    hasher.digest128()
}

fn request(request: &Request, hasher: &mut Xxh3) {
    std::mem::discriminant(request).hash(hasher);
    match request {
        Request::Begin { update, key, purpose } => {
            (key, purpose).hash(hasher);
            debug(&update, hasher);
        }
        Request::Settle { lease, outcome } => (lease, outcome).hash(hasher),
        Request::ListLeases { cursor } => debug(cursor, hasher),
        Request::ListRecords { after, upto } => (after, upto).hash(hasher),
    }
}

fn answer(answer: &Answer, hasher: &mut Xxh3) {
    std::mem::discriminant(answer).hash(hasher);
    match answer {
        Answer::Begun { lease, fence } => (lease, fence).hash(hasher),
        Answer::Refused { reason, claims, is_own_obstacle } => (reason, claims, is_own_obstacle).hash(hasher),
        Answer::Settled(settled) => settled.hash(hasher),
        Answer::Leases { .. } | Answer::Records { .. } => debug(answer, hasher),
        Answer::Unavailable => {}
    }
}

fn cell(cell: &Cell, hasher: &mut Xxh3) {
    cell.is_cut_off.hash(hasher);
    cell.database.hash(hasher);
    for worker in &cell.workers {
        (&worker.save, worker.line).hash(hasher);
    }
    for reconciler in &cell.reconcilers {
        reconciler.line.hash(hasher);
        reconciler.run.is_some().hash(hasher);
        reconciler.run.iter().for_each(|run| debug(run, hasher));
    }
    cell.verifier.line.hash(hasher);
    cell.verifier.run.is_some().hash(hasher);
    cell.verifier.run.iter().for_each(|run| debug(run, hasher));
}

/// What has no hash of its own is taken as it is printed. The engine's machines print all that they hold.
fn debug(value: &impl fmt::Debug, hasher: &mut Xxh3) {
    // Writing into a hasher cannot fail.
    let _ = write!(Printed(hasher), "{value:?}");
}

struct Printed<'a>(&'a mut Xxh3);

impl Write for Printed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
