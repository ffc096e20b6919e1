//! The queue before the writers: who is taken in, and who goes together.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::Claim;
use leasehold_core::transaction::RowChange;
use leasehold_core::update::Command;
use tokio::sync::oneshot;

use super::{Decision, Refusal};
use crate::identity::Caller;

/// Commands in one group at the most.
const MAX_GROUP_COMMANDS: usize = 512;
/// Claims that the begins of one group may name, beyond its first command.
const MAX_GROUP_CLAIMS: usize = 8_000;
/// How long a group waits at the most for the callers of the last one to come back: about what a save takes anyway.
const MAX_GATHER: Duration = Duration::from_millis(1);

/// Commands that a group of a shared store waits for: the fewest, since the database does more for each in a smaller group.
const MIN_ENOUGH: usize = 8;
/// The most: waiting for more leaves it idle while callers come back.
const MAX_ENOUGH: usize = 16;
/// One command of a group, where the database is not busy. Where it is, a group takes longer, and the next one waits for more
/// commands to spare it work. Measured in ARCHITECTURE, "Few groups at once".
const UNHURRIED_JOB: Duration = Duration::from_micros(150);
/// How long a group waits for them beside another one at the most; a writer without a place steps in where those that have
/// one take nothing for so long.
const MAX_WAIT_BESIDE: Duration = Duration::from_millis(10);

/// How long nothing may wait before a writer is given time for itself.
const REST: Duration = Duration::from_secs(1);

/// A command that waits for its answer.
pub(super) struct Job {
    pub(super) caller: Caller,
    pub(super) command: Command,
    // Whether a try of it may have been kept.
    pub(super) tried: bool,
    pub(super) answer: oneshot::Sender<Decision>,
}

/// How much may be taken in.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Begins that may wait.
    pub queued_begins: usize,
    /// Claims that may be held by leases, with those of begins under way.
    pub held_claims: usize,
}

#[derive(Default)]
struct Waiting {
    settles: VecDeque<Job>,
    begins: VecDeque<Job>,
    held_claims: usize,
    // Those that begins under way may come to hold.
    reserved_claims: usize,
    // The writer is woken when this many wait.
    wanted: usize,
    // Groups that are being written.
    under_way: usize,
    // Groups that were taken so far.
    taken: u64,
    // Writers that are to write: the first ones.
    places: usize,
    closed: bool,
}

impl Waiting {
    fn len(&self) -> usize {
        self.settles.len() + self.begins.len()
    }
}

/// Whom a group waits for. Callers that were answered together come back together; a sync for the first of them alone
/// would make the others wait for it, and then for a second one.
#[derive(Clone, Copy)]
pub(super) struct Gather {
    jobs: usize,
    at_most: Duration,
    // While another group is being written.
    jobs_beside: usize,
    at_most_beside: Duration,
}

impl Gather {
    pub(super) const NOBODY: Self =
        Self { jobs: 1, at_most: Duration::ZERO, jobs_beside: 1, at_most_beside: Duration::ZERO };

    /// After a group of `jobs` that took `save` to keep, where the writer is alone or others write beside it.
    fn after(jobs: usize, save: Duration, is_alone: bool) -> Self {
        let jobs_beside = enough_after(save);
        let jobs = if is_alone { jobs } else { jobs.min(jobs_beside) };
        Self { jobs, at_most: save.min(MAX_GATHER), jobs_beside, at_most_beside: save.min(MAX_WAIT_BESIDE) }
    }
}

/// As many commands as would have taken that long to save in a database that is not busy, within bounds.
fn enough_after(save: Duration) -> usize {
    let unhurried = save.as_micros() / UNHURRIED_JOB.as_micros();
    usize::try_from(unhurried).unwrap_or(MAX_ENOUGH).clamp(MIN_ENOUGH, MAX_ENOUGH)
}

/// What waits to be decided. Any number of callers fill it; one writer at a time takes a group.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    // Where writers without a place wait for one.
    placed: Condvar,
    // The writer that holds it is the one that waits for a group.
    turn: Mutex<()>,
    room: Room,
}

impl Queue {
    pub(super) fn new(room: Room, held_claims: usize, places: usize) -> Self {
        let waiting = Waiting { held_claims, places, ..Waiting::default() };
        Self {
            waiting: Mutex::new(waiting),
            arrived: Condvar::new(),
            placed: Condvar::new(),
            turn: Mutex::default(),
            room,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a command in.
    ///
    /// # Errors
    /// There is no room for it, or the server is stopping.
    pub(super) fn push(&self, job: Job) -> Result<(), Refusal> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(Refusal::Stopping);
        }
        if let Command::Settle(_) = job.command {
            waiting.settles.push_back(job);
        } else {
            waiting.reserved_claims += self.room.admit(&waiting, &job.command)?;
            waiting.begins.push_back(job);
        }
        let enough = waiting.len() >= waiting.wanted;
        drop(waiting);
        if enough {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Waits until something waits, then until enough do or the time is up; nothing comes where nothing has for a while, or
    /// once the queue is closed.
    fn wait(&self, gather: Gather) -> MutexGuard<'_, Waiting> {
        let mut waiting = self.lock();
        waiting.wanted = 1;
        let idle = |waiting: &mut Waiting| waiting.len() == 0 && !waiting.closed;
        waiting = self.arrived.wait_timeout_while(waiting, REST, idle).unwrap_or_else(PoisonError::into_inner).0;
        if waiting.len() == 0 {
            return waiting;
        }
        waiting = self.wait_for(gather.jobs_beside, gather.at_most_beside, waiting, |waiting| waiting.under_way > 0);
        if waiting.under_way > 0 {
            return waiting;
        }
        self.wait_for(gather.jobs, gather.at_most, waiting, |_| true)
    }

    /// Waits until as many jobs wait, the time is up, or there is no sense in it any more.
    fn wait_for<'a>(
        &self,
        jobs: usize,
        at_most: Duration,
        mut waiting: MutexGuard<'a, Waiting>,
        makes_sense: impl Fn(&Waiting) -> bool,
    ) -> MutexGuard<'a, Waiting> {
        waiting.wanted = jobs;
        let few = |waiting: &mut Waiting| waiting.len() < jobs && !waiting.closed && makes_sense(waiting);
        let waited = self.arrived.wait_timeout_while(waiting, at_most, few);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// How many writers are to write.
    pub(super) fn places(&self) -> usize {
        self.lock().places
    }

    /// Has so many writers write, one at least.
    pub(super) fn set_places(&self, places: usize) {
        self.lock().places = places.max(1);
        self.placed.notify_all();
    }

    /// Notes that a group that was taken is written, or given up.
    pub(super) fn end_group(&self) {
        let mut waiting = self.lock();
        waiting.under_way = waiting.under_way.saturating_sub(1);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Whom a writer waits for after a group of `jobs` that took `save` to keep.
    pub(super) fn gather_after(&self, jobs: usize, save: Duration) -> Gather {
        Gather::after(jobs, save, self.places() == 1)
    }

    /// Waits until a writer has a place, or those that have one are held up, by a lock or a lost connection; false where
    /// neither comes about for a while.
    fn wait_for_place(&self, writer: usize) -> bool {
        let mut waiting = self.lock();
        let until = Instant::now() + REST;
        while writer >= waiting.places && !waiting.closed {
            if Instant::now() > until {
                return false;
            }
            let taken = waiting.taken;
            waiting = self.placed.wait_timeout(waiting, MAX_WAIT_BESIDE).unwrap_or_else(PoisonError::into_inner).0;
            if waiting.len() > 0 && waiting.taken == taken {
                return true;
            }
        }
        true
    }

    /// Waits for work and takes a group of it for a writer, by its number; an empty one where there is none for it for a while,
    /// and none once the queue is closed and empty.
    pub(super) fn take(&self, writer: usize, gather: Gather) -> Option<Vec<Job>> {
        if !self.wait_for_place(writer) {
            return Some(Vec::new());
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = self.wait(gather);
        if waiting.len() == 0 {
            return (!waiting.closed).then(Vec::new);
        }
        let settles = waiting.settles.len().min(MAX_GROUP_COMMANDS);
        let mut group: Vec<_> = waiting.settles.drain(..settles).collect();
        let mut claims = 0;
        while group.len() < MAX_GROUP_COMMANDS
            && let Some(job) = waiting.begins.pop_front()
        {
            claims += claims_of(&job.command);
            if claims > MAX_GROUP_CLAIMS && !group.is_empty() {
                waiting.begins.push_front(job);
                break;
            }
            group.push(job);
        }
        waiting.under_way += 1;
        waiting.taken += 1;
        Some(group)
    }

    /// Puts what a group's begins have come to hold in the place of what they might have, and takes off what is settled.
    pub(super) fn account(&self, group: &[Job], changes: &[RowChange<BucketKey, Claim>]) {
        let held = |claim: &Option<Claim>| usize::from(claim.as_ref().is_some_and(|claim| claim.hold().is_some()));
        let begun: usize = changes.iter().map(|change| held(&change.after)).sum();
        let ended: usize = changes.iter().map(|change| held(&change.before)).sum();
        let reserved: usize = group.iter().map(|job| claims_of(&job.command)).sum();
        let mut waiting = self.lock();
        waiting.reserved_claims = waiting.reserved_claims.saturating_sub(reserved);
        waiting.held_claims = (waiting.held_claims + begun).saturating_sub(ended);
    }

    /// Takes up how many claims are held, where other servers hold some too.
    pub(super) fn recount(&self, held_claims: usize) {
        self.lock().held_claims = held_claims;
    }

    /// Puts commands back to the front, in their order.
    pub(super) fn put_back(&self, jobs: Vec<Job>) {
        let mut waiting = self.lock();
        for job in jobs.into_iter().rev() {
            match job.command {
                Command::Settle(_) => waiting.settles.push_front(job),
                Command::Begin(_) | Command::Forget(_) => waiting.begins.push_front(job),
            }
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// How many commands are waiting.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether the server is stopping.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Takes nothing in any more and drops what waits, whose callers hear of it at once.
    pub(super) fn abandon(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let dropped = (std::mem::take(&mut waiting.settles), std::mem::take(&mut waiting.begins));
        drop(waiting);
        drop(dropped);
        self.arrived.notify_all();
        self.placed.notify_all();
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
        self.placed.notify_all();
    }
}

impl Room {
    /// The claims that a begin needs room for, where there is room.
    fn admit(self, waiting: &Waiting, command: &Command) -> Result<usize, Refusal> {
        let claims = claims_of(command);
        if claims > self.held_claims {
            return Err(Refusal::TooLarge { claims, max: self.held_claims });
        }
        let fits = claims == 0 || waiting.held_claims + waiting.reserved_claims + claims <= self.held_claims;
        if waiting.begins.len() < self.queued_begins && fits { Ok(claims) } else { Err(Refusal::overloaded()) }
    }
}

fn claims_of(command: &Command) -> usize {
    match command {
        Command::Begin(begin) => begin.batch.entries().len(),
        Command::Settle(_) | Command::Forget(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::LeaseId;
    use leasehold_core::time::Timestamp;
    use leasehold_core::update::Forget;
    use uuid::Uuid;

    use super::*;

    fn job() -> Job {
        let forget = Forget { lease: LeaseId(Uuid::nil()), settled_before: Timestamp::from_micros(0) };
        Job { caller: Caller::Trusted, command: Command::Forget(forget), tried: false, answer: oneshot::channel().0 }
    }

    fn queue_of_two() -> Queue {
        Queue::new(Room { queued_begins: 8, held_claims: 8 }, 0, 2)
    }

    #[test]
    fn a_writer_without_a_place_writes_only_where_the_others_are_held_up() {
        let queue = queue_of_two();
        queue.set_places(0);
        assert_eq!(queue.places(), 1, "there is always one that writes");
        let nothing = queue.take(1, Gather::NOBODY).map(|group| group.len());
        assert_eq!(nothing, Some(0), "nobody waits for it");
        for _ in 0..2 {
            assert!(queue.push(job()).is_ok());
            let group = queue.take(1, Gather::NOBODY).map(|group| group.len());
            assert_eq!(group, Some(1), "the first writer takes nothing");
        }
        queue.close();
        assert!(queue.take(1, Gather::NOBODY).is_none(), "there is nothing left to wait for");
    }

    #[test]
    fn a_writer_without_a_place_leaves_the_others_their_work() {
        let queue = queue_of_two();
        queue.set_places(1);
        let of_the_first = std::thread::scope(|scope| {
            scope.spawn(|| while queue.take(1, Gather::NOBODY).is_some() {});
            let taken = (0..200).filter(|_| {
                assert!(queue.push(job()).is_ok());
                queue.take(0, Gather::NOBODY).is_some_and(|group| !group.is_empty())
            });
            let taken = taken.count();
            queue.close();
            taken
        });
        assert!(of_the_first > 100, "the first writer took {of_the_first} of 200");
    }

    #[test]
    fn writers_that_have_places_take_all_that_comes() {
        let queue = queue_of_two();
        for writer in [1, 0, 1] {
            assert!(queue.push(job()).is_ok());
            assert_eq!(queue.take(writer, Gather::NOBODY).map(|group| group.len()), Some(1), "{writer}");
            queue.end_group();
        }
    }

    #[test]
    fn the_longer_a_shared_store_takes_the_more_a_group_waits_for() {
        let jobs = |jobs, micros| Gather::after(jobs, Duration::from_micros(micros), false).jobs;
        assert_eq!([jobs(64, 900), jobs(64, 1_800), jobs(64, 2_800), jobs(64, 60_000_000)], [8, 12, 16, 16]);
        assert_eq!(jobs(3, 2_800), 3, "more than came last time may never come");
    }

    #[test]
    fn an_embedded_store_waits_for_all_that_came_last_time() {
        assert_eq!(Gather::after(64, Duration::from_micros(100), true).jobs, 64);
    }
}
