//! Histories of calls and answers in the engine's types: converts them from the wire, decides which
//! unanswered calls took effect, and checks the leases and fences.

use std::collections::{BTreeMap, BTreeSet};

pub(super) use super::checker::Operation;
use super::checker::{Action, Answer, NEVER, ObservedClaim, ObservedRejection};
use crate::client::{STORE_UNAVAILABLE, Update};
use crate::wire::Refusal;
use anyhow::{Context, Result, ensure};
use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::BucketType;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Source, SourceId, SourceType, Subject, UserData};
use leasehold_core::command::Command;
use leasehold_core::lease::{Fence, IdempotencyKey, LeaseId};
use leasehold_core::rejection::Reason;
use leasehold_core::rows::State;
use leasehold_core::update::Begin;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use tonic::Status;
use uuid::Uuid;

/// Returns an update of the test client as the engine's type.
#[must_use]
pub fn update_request(update: &Update) -> UpdateRequest {
    let claims = |claims: &[wire::Metadata]| claims.iter().map(claim_request).collect();
    UpdateRequest { creates: claims(&update.creates), destroys: claims(&update.destroys) }
}

fn claim_request(claim: &wire::Metadata) -> ClaimRequest {
    let bucket = claim.bucket.clone().unwrap();
    let data = |any: prost_types::Any| UserData { type_url: any.type_url, value: any.value };
    ClaimRequest {
        bucket_type: BucketType(bucket.r#type),
        value: bucket.value.into(),
        subject: claim.subject.map(subject),
        source: claim.source.as_ref().map(source),
        user_data: claim.user_data.clone().map(data),
    }
}

fn subject(subject: wire::Subject) -> Subject {
    Subject { subject_type: subject.r#type, id: subject.id }
}

fn source(source: &wire::Source) -> Source {
    Source { source_type: SourceType(source.r#type), id: SourceId::from_bytes(&source.rails_primary_key_id) }
}

/// Returns the id of a lease as an answer has it.
///
/// # Panics
/// The text is no id.
#[must_use]
pub fn lease_id(text: &str) -> LeaseId {
    LeaseId(Uuid::parse_str(text).unwrap())
}

/// Returns a record of a read as the claim that the checker compares.
pub(super) fn observed_claim(record: &wire::Record) -> ObservedClaim {
    let metadata = record.metadata.clone().unwrap();
    ObservedClaim {
        uuid: Uuid::parse_str(&record.uuid.as_ref().unwrap().value).unwrap(),
        owner: CellId(record.cell_id),
        spelling: metadata.bucket.unwrap().value,
        subject: subject(metadata.subject.unwrap()),
        source: source(&metadata.source.unwrap()),
        status: record.status,
        lease: record.lease_uuid.as_ref().map(|uuid| lease_id(&uuid.value)),
    }
}

/// Returns the answer that a failed call stands for: the engine's rejection, or `Unknown` if the
/// call may have taken effect.
///
/// # Panics
/// A correct server never returns this status.
pub(super) fn failed_answer(status: &Status) -> Answer {
    let refusal = Refusal::of(status);
    if Reason::ALL.iter().any(|reason| reason.code() == refusal.reason) {
        let groups = refusal.rejected.groups.iter();
        let offences = groups.flat_map(|group| {
            group.claims.iter().flat_map(|claims| {
                let creates = claims.create_positions.iter().map(|position| (false, *position, group.reason.clone()));
                let destroys = claims.destroy_positions.iter().map(|position| (true, *position, group.reason.clone()));
                creates.chain(destroys)
            })
        });
        return Answer::Rejected(ObservedRejection { reason: refusal.reason.clone(), offences: offences.collect() });
    }
    let is_outage = refusal.code_and_reason() == STORE_UNAVAILABLE
        && ["can't be reached", "stopping"].iter().any(|words| refusal.message.contains(words));
    // A status without a reason comes from the client: the connection broke, or the deadline
    // passed.
    let has_no_answer = refusal.reason.is_empty();
    assert!(is_outage || has_no_answer, "a server must not answer {status:?}");
    Answer::Unknown
}

fn begin_of(operation: &Operation) -> Option<&Begin> {
    match &operation.action {
        Action::Command(Command::Begin(begin)) => Some(begin),
        _ => None,
    }
}

fn key_of(begin: &Begin) -> Option<&IdempotencyKey> {
    begin.idempotency.as_ref().map(|(key, _)| key)
}

/// Returns the lease and the fence of each begin that was answered.
fn answered_leases(history: &[Operation]) -> BTreeMap<LeaseId, Fence> {
    let begun = |operation: &Operation| match operation.answer {
        Answer::Begun(lease, fence) => Some((lease, fence)),
        _ => None,
    };
    history.iter().filter_map(begun).collect()
}

/// Decides by the final state which unanswered calls took effect, and removes the others from the
/// history. A begin that took effect gets the id of its lease. Leases are not forgotten during a
/// test, so the final state contains all of them.
///
/// # Errors
/// The final state has a lease that no begin of the history can have begun.
pub(super) fn resolve(mut history: Vec<Operation>, final_state: &State) -> Result<Vec<Operation>> {
    let answered = answered_leases(&history);
    let unclaimed = |begin: &Begin| {
        let mut leases = final_state.leases.iter().filter(|(id, lease)| {
            lease.cell == begin.cell && lease.idempotency_key.is_none() && !answered.contains_key(id)
        });
        leases.next().map(|(id, _)| *id)
    };
    let mut begun: BTreeSet<_> = answered.keys().copied().collect();
    history.retain_mut(|operation| {
        if let (Action::Command(Command::Begin(begin)), Answer::Begun(lease, _)) =
            (&mut operation.action, &operation.answer)
        {
            begin.lease = *lease;
        }
        if operation.answer != Answer::Unknown {
            return true;
        }
        match &mut operation.action {
            Action::Command(Command::Begin(begin)) => {
                let lease = match key_of(begin) {
                    Some(key) => final_state.replays.get(key).map(|replay| replay.lease),
                    None => unclaimed(begin),
                };
                begin.lease = lease.unwrap_or(begin.lease);
                begun.extend(lease);
                lease.is_some()
            }
            Action::Command(Command::Settle(settle)) => {
                final_state.leases.get(&settle.lease).and_then(|lease| lease.outcome()) == Some(settle.outcome)
            }
            _ => false,
        }
    });
    let known = known_times(&history);
    for operation in history.iter_mut().filter(|operation| operation.answer == Answer::Unknown) {
        operation.answered = match &operation.action {
            Action::Command(Command::Begin(begin)) => known.begun.get(&begin.lease),
            Action::Command(Command::Settle(settle)) => known.settled.get(&settle.lease),
            _ => None,
        }
        .map_or(NEVER, |time| (*time).max(operation.called));
    }
    for (id, lease) in &final_state.leases {
        ensure!(begun.contains(id), "no call has begun the lease {id}: {lease:?}");
    }
    Ok(history)
}

/// For each lease, the earliest answers which show that the lease is begun, and that it is settled.
/// A call without an answer cannot begin or settle the lease after these times.
#[derive(Default)]
struct KnownTimes {
    begun: BTreeMap<LeaseId, u64>,
    settled: BTreeMap<LeaseId, u64>,
}

fn known_times(history: &[Operation]) -> KnownTimes {
    let mut known = KnownTimes::default();
    for operation in history {
        let begun: Vec<_> = match &operation.answer {
            Answer::Begun(lease, _) => vec![*lease],
            Answer::Record(Some(record)) => record.lease.into_iter().collect(),
            Answer::Leases(leases) => leases.iter().copied().collect(),
            Answer::Settled | Answer::Rejected(_) | Answer::Record(None) | Answer::Unknown => Vec::new(),
        };
        let settled = match (&operation.action, &operation.answer) {
            (Action::Command(Command::Settle(settle)), Answer::Settled) => Some(settle.lease),
            (Action::Command(Command::Settle(settle)), Answer::Rejected(rejection))
                if [Reason::LeaseCommitted, Reason::LeaseRolledBack]
                    .map(Reason::code)
                    .contains(&&*rejection.reason) =>
            {
                Some(settle.lease)
            }
            _ => None,
        };
        let note = |times: &mut BTreeMap<LeaseId, u64>, lease| {
            let time = times.entry(lease).or_insert(operation.answered);
            *time = (*time).min(operation.answered);
        };
        settled.into_iter().for_each(|lease| note(&mut known.settled, lease));
        begun.into_iter().chain(settled).for_each(|lease| note(&mut known.begun, lease));
    }
    known
}

/// Checks all leases of a history. Two begins get one lease only if they have the same idempotency
/// key (B09). Each fence is larger than the fences of all leases whose begin was answered before
/// this lease's begin was sent (B13).
///
/// # Errors
/// A check fails; the message names the lease or the fence.
pub(super) fn check_leases(history: &[Operation], final_state: &State) -> Result<()> {
    // For each lease: its fence, the time of the first begin call, and the time of the first
    // answer.
    let mut leases: BTreeMap<LeaseId, (Fence, u64, u64)> = BTreeMap::new();
    let mut begins: BTreeMap<LeaseId, &Begin> = BTreeMap::new();
    for operation in history {
        let Some(begin) = begin_of(operation) else { continue };
        let (lease, fence, answered) = match operation.answer {
            Answer::Begun(lease, fence) => (lease, fence, operation.answered),
            Answer::Unknown => (begin.lease, fence_in(final_state, begin.lease)?, u64::MAX),
            _ => continue,
        };
        ensure!(fence == fence_in(final_state, lease)?, "the lease {lease} was answered with fence {fence:?}");
        if let Some(other) = begins.insert(lease, begin) {
            let same = other.cell == begin.cell && key_of(other).is_some() && key_of(other) == key_of(begin);
            ensure!(same, "two begins got the lease {lease}: {other:?}, {begin:?}");
        }
        let known = leases.entry(lease).or_insert((fence, operation.called, answered));
        *known = (fence, known.1.min(operation.called), known.2.min(answered));
    }
    let fences: BTreeSet<_> = leases.values().map(|(fence, ..)| *fence).collect();
    ensure!(fences.len() == leases.len(), "two leases have the same fence");
    let mut by_call: Vec<_> = leases.values().map(|(fence, called, _)| (*called, *fence)).collect();
    let mut by_answer: Vec<_> = leases.values().map(|(fence, _, answered)| (*answered, *fence)).collect();
    by_call.sort_unstable();
    by_answer.sort_unstable();
    let (mut answers, mut newest) = (by_answer.into_iter().peekable(), Fence::default());
    for (called, fence) in by_call {
        while let Some((_, earlier)) = answers.next_if(|(answered, _)| *answered < called) {
            newest = newest.max(earlier);
        }
        ensure!(fence > newest, "a begin that was called after the answer with fence {newest:?} got {fence:?}");
    }
    Ok(())
}

fn fence_in(state: &State, lease: LeaseId) -> Result<Fence> {
    Ok(state.leases.get(&lease).with_context(|| format!("the final state lacks the lease {lease}"))?.fence)
}
