//! The checker of a run with kills. It knows the promises and the history, and nothing of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use uuid::Uuid;

use super::history::{Answer, EXACT, Effect, End, History, LIMIT, LIMITED, Lane, LaneChange, Outcome, Settled, Source};
use super::history::{Submitted, Taken};

/// The first fault that a check has found.
pub(super) type Checked = Result<(), String>;

/// The numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) requests: usize,
    /// Requests that ended in error after their last attempt.
    pub(super) errors: usize,
    /// Requests whose work was done under several fences.
    pub(super) redone: usize,
    pub(super) batches: usize,
    /// Holds that ended with their session.
    pub(super) lost: usize,
    /// Requests of transactions that committed.
    pub(super) committed: usize,
    /// Submits of transactions that were rolled back.
    pub(super) rolled_back: usize,
    /// The most lanes of the queue with a limit that workers surely had at a time.
    pub(super) limited: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, errors, redone, batches, lost, committed, rolled_back, limited: _ } = self;
        write!(f, "\"requests\":{requests},\"errors\":{errors},\"redone\":{redone},\"batches\":{batches},")?;
        write!(f, "\"lost\":{lost},\"committed\":{committed},\"rolled_back\":{rolled_back}")
    }
}

/// The ends of holds by their fences, as far as they are known.
type Ends = BTreeMap<u64, End>;

/// Checks a history. Returns its numbers, or the first fault.
pub(super) fn check(history: &History) -> Result<Counts, String> {
    if let Some(fence) = history.contradicted.first() {
        return Err(format!("Q10: the batch under {fence} was settled, and then settled otherwise"));
    }
    let ends = match &history.changes {
        Some(changes) => ends_in_store(changes)?,
        None => ends_in_logs(&history.taken),
    };
    for check in [submits_are_kept, outbox_is_exact, settled_as_promised, submits_keep_their_order] {
        check(history)?;
    }
    for check in [effects_are_fenced, work_is_done, work_is_in_order, attempts_are_counted, limit_is_kept] {
        check(history)?;
    }
    logs_agree(history, &ends)?;
    settled_once_under_the_last_fence(history, &ends)?;
    Ok(counts(history, &ends))
}

fn fault(is_met: bool, text: impl FnOnce() -> String) -> Checked {
    if is_met { Err(text()) } else { Ok(()) }
}

/// Groups rows by their lanes, and keeps their order.
fn by_lane<T>(rows: &[T], lane: impl Fn(&T) -> &Lane) -> BTreeMap<&Lane, Vec<&T>> {
    let mut lanes = BTreeMap::<&Lane, Vec<&T>>::new();
    rows.iter().for_each(|row| lanes.entry(lane(row)).or_default().push(row));
    lanes
}

fn settled_by_id(history: &History) -> BTreeMap<Uuid, &Settled> {
    history.settled.iter().map(|settled| (settled.id, settled)).collect()
}

/// Q09: an accepted request is settled at the end, and no other is there.
fn submits_are_kept(history: &History) -> Checked {
    let settled = settled_by_id(history);
    for Submitted { id, lane, answer, .. } in &history.submitted {
        let is_kept = |id: &Uuid| settled.get(id).is_some_and(|settled| settled.lane == *lane);
        match answer {
            Answer::Accepted(first) => {
                fault(!is_kept(first), || format!("lost: the accepted request {first} of {lane:?}"))?;
                let is_double = first != id && settled.contains_key(id);
                fault(is_double, || format!("doubled: {id} is there beside the first create {first}"))?;
            }
            Answer::RolledBack => {
                fault(settled.contains_key(id), || format!("Q14: {id} is there, and its transaction was rolled back"))?;
            }
            Answer::Unknown => {}
        }
    }
    let submitted: BTreeSet<_> = history.submitted.iter().map(|submitted| submitted.id).collect();
    let invented = settled.keys().find(|id| !submitted.contains(id));
    invented.map_or(Ok(()), |id| Err(format!("nobody has submitted {id}")))
}

/// Q14: the outbox has submitted exactly the rows of the user's table.
fn outbox_is_exact(history: &History) -> Checked {
    let settled = settled_by_id(history);
    for Submitted { id, .. } in history.submitted.iter().filter(|submitted| submitted.source == Source::Outbox) {
        let is_committed = history.orders.contains(id);
        fault(settled.contains_key(id) != is_committed, || {
            format!("Q14: {id} is submitted or in the user's table, not both (committed: {is_committed})")
        })?;
    }
    Ok(())
}

/// Q03, Q09: each request is settled once, within its attempts, and a resource has one create.
fn settled_as_promised(history: &History) -> Checked {
    let ids = settled_by_id(history).len();
    fault(ids != history.settled.len(), || {
        format!("doubled: {} settled requests have {ids} ids", history.settled.len())
    })?;
    for Settled { id, is_complete, attempts, max_attempts, .. } in &history.settled {
        let (attempts, most) = (*attempts, *max_attempts);
        fault(!(1..=most).contains(&attempts), || format!("Q03: {id} has {attempts} of {most} attempts"))?;
        let is_early = !is_complete && attempts < most;
        fault(is_early, || format!("Q13: {id} ended in error after {attempts} of {most} attempts"))?;
    }
    for (lane, requests) in by_lane(&history.settled, |settled| &settled.lane) {
        let numbers: BTreeSet<_> = requests.iter().map(|request| request.number).collect();
        fault(numbers.len() != requests.len(), || format!("{lane:?} has a number twice"))?;
        let creates = requests.iter().filter(|request| request.is_create).count();
        fault(creates > 1, || format!("Q09: {lane:?} has {creates} creates"))?;
    }
    Ok(())
}

/// Q15: of two requests of a lane, the one that was answered before the other was sent has the smaller number. What
/// the outbox brings has an order of its own.
fn submits_keep_their_order(history: &History) -> Checked {
    let settled = settled_by_id(history);
    let mut lanes = BTreeMap::<_, Vec<_>>::new();
    for submitted in history.submitted.iter().filter(|submitted| submitted.answer == Answer::Accepted(submitted.id)) {
        let Some(request) = settled.get(&submitted.id) else { continue };
        lanes.entry((&submitted.lane, submitted.source)).or_default().push((request.number, submitted));
    }
    for mut requests in lanes.into_values() {
        requests.sort_by_key(|(number, _)| *number);
        let mut last_called = 0;
        for (number, Submitted { id, lane, called, answered, .. }) in requests {
            let is_late = *answered < last_called;
            fault(is_late, || format!("Q15: {id} has the number {number} of {lane:?}, behind a later submit"))?;
            last_called = last_called.max(*called);
        }
    }
    Ok(())
}

/// K18: under the guard, fences of a lane only grow, and no fence does a work twice.
fn effects_are_fenced(history: &History) -> Checked {
    let mut done = BTreeSet::new();
    for Effect { id, fence, .. } in &history.effects {
        fault(!done.insert((id, fence)), || format!("doubled: {id} was done twice under {fence}"))?;
    }
    for (lane, mut effects) in by_lane(&history.effects, |effect| &effect.lane) {
        effects.sort_by_key(|effect| effect.number);
        let passed = effects.windows(2).find(|pair| pair[0].fence > pair[1].fence);
        fault(passed.is_some(), || format!("K18: {lane:?} was written under a passed fence: {passed:?}"))?;
    }
    Ok(())
}

/// Q14: the work of a complete request was done, and in the queue [`EXACT`] exactly once.
fn work_is_done(history: &History) -> Checked {
    let settled = settled_by_id(history);
    let mut done = BTreeMap::<Uuid, usize>::new();
    for Effect { id, lane, .. } in &history.effects {
        let is_of_lane = settled.get(id).is_some_and(|settled| settled.lane == *lane);
        fault(!is_of_lane, || format!("{id} of {lane:?} was worked on, and is no request of it"))?;
        *done.entry(*id).or_default() += 1;
    }
    for Settled { id, lane, is_complete, .. } in &history.settled {
        let times = done.get(id).copied().unwrap_or_default();
        fault(*is_complete && times == 0, || format!("lost: {id} is complete, and nobody did its work"))?;
        fault(lane.0 == EXACT && times > 1, || format!("doubled: {id} was done {times} times"))?;
    }
    Ok(())
}

/// Returns the last effect of each request.
fn last_effects(history: &History) -> BTreeMap<Uuid, &Effect> {
    let mut effects: Vec<_> = history.effects.iter().collect();
    effects.sort_by_key(|effect| effect.number);
    effects.into_iter().map(|effect| (effect.id, effect)).collect()
}

/// Q07: the requests of a lane were completed in the order of their numbers.
fn work_is_in_order(history: &History) -> Checked {
    let last = last_effects(history);
    for (lane, mut requests) in by_lane(&history.settled, |settled| &settled.lane) {
        requests.retain(|request| request.is_complete);
        requests.sort_by_key(|request| request.number);
        let mut before = None;
        for request in requests {
            let done = last.get(&request.id).map(|effect| effect.number);
            let is_early = done <= before;
            fault(is_early, || format!("Q07: {lane:?} did {} ({}) out of order", request.id, request.number))?;
            before = done;
        }
    }
    Ok(())
}

/// Q03, Q11: each take counts an attempt, except after a batch that was given back.
fn attempts_are_counted(history: &History) -> Checked {
    let mut taken: Vec<_> = history.taken.iter().collect();
    taken.sort_by_key(|taken| taken.fence);
    let mut seen = BTreeMap::<Uuid, (&Taken, u32)>::new();
    for taken in taken {
        for (id, attempt) in &taken.requests {
            let least = seen.get(id).map_or(1, |(before, attempt)| match before.settling {
                _ if before.fence == taken.fence => *attempt,
                Some((_, Outcome::GivenBack)) => *attempt,
                _ => attempt + 1,
            });
            fault(*attempt < least, || format!("Q03: {id} has the attempt {attempt}, {least} at least are due"))?;
            seen.insert(*id, (taken, *attempt));
        }
    }
    for Settled { id, attempts, .. } in &history.settled {
        let is_short = seen.get(id).is_some_and(|(taken, attempt)| {
            let is_returned = matches!(taken.settling, Some((_, Outcome::GivenBack)));
            attempts + u32::from(is_returned) < *attempt
        });
        fault(is_short, || format!("Q03: {id} has {attempts} attempts, fewer than a worker saw"))?;
    }
    Ok(())
}

/// Returns the most lanes of the queue with a limit that were surely taken at a time: a batch is so from its receipt to
/// the begin of its settle, if the settle was accepted.
pub(super) fn most_limited(history: &History) -> usize {
    let mut changes = Vec::new();
    for taken in history.taken.iter().filter(|taken| taken.lane.0 == LIMITED && taken.is_settled) {
        let Some((settling, _)) = taken.settling else { continue };
        changes.extend([(taken.took, 1), (settling, -1)]);
    }
    changes.sort_unstable();
    let held = changes.into_iter().scan(0_i64, |held, (_, change)| {
        *held += change;
        Some(*held)
    });
    usize::try_from(held.max().unwrap_or_default()).unwrap()
}

/// Q17, as workers saw it.
fn limit_is_kept(history: &History) -> Checked {
    let most = most_limited(history);
    fault(most > LIMIT as usize, || format!("Q17: workers had {most} lanes at a time"))
}

/// Returns the ends that the server has confirmed to workers.
fn ends_in_logs(taken: &[Taken]) -> Ends {
    let settled = taken.iter().filter(|taken| taken.is_settled);
    settled.filter_map(|taken| Some((taken.fence, End::Settled(taken.settling?.1)))).collect()
}

/// The holds of a store, as its committed changes make them.
#[derive(Default)]
struct Holds<'a> {
    lanes: BTreeMap<&'a Lane, &'a LaneChange>,
    newest: BTreeMap<&'a Lane, u64>,
    ends: Ends,
}

impl<'a> Holds<'a> {
    /// Q10: applies a change. A hold begins under a larger fence than all before it, and ends once.
    fn apply(&mut self, change: &'a LaneChange) -> Checked {
        let lane = &change.lane;
        let before = self.lanes.insert(lane, change);
        let (held, last) = before.map_or((None, None), |before| (before.fence, before.last));
        if let (true, Some(fence)) = (held != change.fence, held) {
            let ended = change.last.filter(|(last, _)| *last == fence);
            let (_, end) = ended.ok_or_else(|| format!("lost: the hold {fence} of {lane:?} has no end"))?;
            let is_second = self.ends.insert(fence, end).is_some();
            fault(is_second, || format!("Q10: the hold {fence} of {lane:?} has ended twice"))?;
        } else {
            fault(change.last != last, || format!("Q10: {lane:?} tells another end of its last hold"))?;
        }
        if let (true, Some(fence)) = (held != change.fence, change.fence) {
            let newest = self.newest.insert(lane, fence).unwrap_or_default();
            fault(fence <= newest, || format!("B13: {lane:?} is taken under {fence} after {newest}"))?;
        }
        Ok(())
    }
}

/// Q17: after each transaction, at most as many lanes are taken as the queue's limit says. Each take and settle of the
/// queue writes the queue's row, so the changes of its transactions follow each other. Those of other queues may be
/// between them.
fn limit_holds(changes: &[LaneChange]) -> Checked {
    let limited: Vec<_> = changes.iter().filter(|change| change.lane.0 == LIMITED).collect();
    let mut taken = BTreeSet::new();
    for transaction in limited.chunk_by(|one, next| one.transaction == next.transaction) {
        for change in transaction {
            _ = if change.fence.is_some() { taken.insert(&change.lane) } else { taken.remove(&change.lane) };
        }
        let held = taken.len();
        fault(held > LIMIT as usize, || format!("Q17: a transaction left {held} lanes taken"))?;
    }
    Ok(())
}

/// Applies the changes of a store in their order, and returns the ends of its holds.
fn ends_in_store(changes: &[LaneChange]) -> Result<Ends, String> {
    let mut holds = Holds::default();
    changes.iter().try_for_each(|change| holds.apply(change))?;
    limit_holds(changes)?;
    let held = holds.lanes.values().find(|change| change.fence.is_some());
    fault(held.is_some(), || format!("a lane is taken at the end: {held:?}"))?;
    Ok(holds.ends)
}

/// Q10: what the server has answered to a settle is what the store has, and each fence has one lane.
fn logs_agree(history: &History, ends: &Ends) -> Checked {
    let mut lanes = BTreeMap::new();
    for Taken { lane, fence, settling, is_settled, .. } in &history.taken {
        let other = lanes.insert(fence, lane).filter(|other| *other != lane);
        fault(other.is_some(), || format!("B13: {lane:?} and {other:?} have the fence {fence}"))?;
        let (true, Some((_, outcome)), Some(_)) = (is_settled, settling, &history.changes) else { continue };
        let end = ends.get(fence);
        let is_other = end != Some(&End::Settled(*outcome));
        fault(is_other, || format!("Q10: {outcome:?} of {fence} was confirmed, and the store has {end:?}"))?;
    }
    Ok(())
}

/// Q10: each complete request is completed in exactly one batch, whose fence is the largest that did its work. In the
/// queue [`EXACT`] an earlier batch may have done it. On the embedded store only confirmed ends are known.
fn settled_once_under_the_last_fence(history: &History, ends: &Ends) -> Checked {
    let mut completed = BTreeMap::<Uuid, BTreeMap<u64, u32>>::new();
    let is_completed = |fence| ends.get(fence) == Some(&End::Settled(Outcome::Completed));
    for taken in history.taken.iter().filter(|taken| is_completed(&taken.fence)) {
        for (id, attempt) in &taken.requests {
            completed.entry(*id).or_default().insert(taken.fence, *attempt);
        }
    }
    let last = last_effects(history);
    for Settled { id, lane, is_complete, attempts, .. } in &history.settled {
        let fences = completed.remove(id).unwrap_or_default();
        let is_known = history.changes.is_some();
        let expected = usize::from(*is_complete);
        let is_wrong = fences.len() > expected || (is_known && fences.len() < expected);
        fault(is_wrong, || format!("Q10: {id} was completed under {fences:?}, complete: {is_complete}"))?;
        let (Some((fence, attempt)), Some(effect)) = (fences.first_key_value(), last.get(id)) else { continue };
        let is_last = effect.fence == *fence || (lane.0 == EXACT && effect.fence < *fence);
        fault(!is_last, || format!("Q10: {id} was settled under {fence}, and done last under {}", effect.fence))?;
        fault(attempt != attempts, || format!("Q03: {id} was completed in attempt {attempt}, and has {attempts}"))?;
    }
    completed.keys().next().map_or(Ok(()), |id| Err(format!("lost: {id} was completed, and is not there")))
}

fn counts(history: &History, ends: &Ends) -> Counts {
    let mut done = BTreeMap::<Uuid, usize>::new();
    history.effects.iter().for_each(|effect| *done.entry(effect.id).or_default() += 1);
    Counts {
        requests: history.settled.len(),
        errors: history.settled.iter().filter(|settled| !settled.is_complete).count(),
        redone: done.values().filter(|times| **times > 1).count(),
        batches: history.taken.len(),
        lost: ends.values().filter(|end| **end == End::Lost).count(),
        committed: history.orders.len(),
        rolled_back: history.submitted.iter().filter(|submitted| submitted.answer == Answer::RolledBack).count(),
        limited: most_limited(history),
    }
}
