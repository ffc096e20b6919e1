//! The queue of commands in front of the writers: it admits or refuses commands, and decides how
//! many commands form a group.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::cell::CellId;
use leasehold_core::claim::Claim;
use leasehold_core::command::Command;
use leasehold_core::locking::LockCommand;
use leasehold_core::queueing::QueueCommand;
use leasehold_core::rows::RowChange;
use leasehold_core::update::Begin;
use tokio::sync::oneshot;

use super::cell_limits::{CellLimiter, CellLimits};
use super::times::Timed;
use super::{CommitterRefusal, Delivery};
use crate::identity::Caller;
use crate::shares::{LimitReached, LimitShares};

/// The most commands in a group that a writer commits at once.
const MAX_GROUP_COMMANDS: usize = 512;
/// The most claims that the begins of one group may have together. A single begin may have more.
const MAX_GROUP_CLAIMS: usize = 8_000;
/// The longest time that a writer waits for the callers of its last group to send their next
/// commands.
const MAX_BATCH_WAIT: Duration = Duration::from_millis(1);

/// The fewest commands that a writer to a shared store waits for before its next group. In a
/// smaller group each command costs the database more.
const MIN_BATCH: usize = 8;
/// The most commands that a writer to a shared store waits for before its next group. A longer wait
/// would leave the database idle.
const MAX_BATCH: usize = 16;
/// The number of commands that a writer to a shared store waits for if its last group had commands of
/// sessions, locks and queues alone. Such a command costs the database much less than a save, and a group as
/// much as some twenty of them.
const LOCK_BATCH: usize = 64;
/// The time that a database without load takes for one command of a group. If the last group took
/// longer, the next group waits for more commands.
const COMMAND_TIME: Duration = Duration::from_micros(150);
/// The longest time that a writer waits for commands while another writer writes a group. A writer
/// without a write slot takes over if the writers with slots take no commands for this long.
const MAX_WAIT_BESIDE: Duration = Duration::from_millis(10);

/// The longest time that a writer waits for a command or a write slot before it counts as idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// A command that waits for its answer.
pub(super) struct Job {
    pub(super) caller: Caller,
    pub(super) command: Command,
    // True if an earlier attempt to commit this command may have succeeded.
    pub(super) tried: bool,
    // The time at which an attempt first found the store away; `None` before.
    pub(super) away_since: Option<Instant>,
    // True for a step of a drop of claims, which does not count against the rate of its cell. An
    // administrator drops the claims, and a cell that is gone needs no rate.
    pub(super) is_drop: bool,
    // `None` if the call is not traced, so that its times are not recorded.
    pub(super) timed: Option<Timed>,
    pub(super) answer: oneshot::Sender<Delivery>,
}

impl Job {
    /// True if the command need not be decided: an untried begin, acquire, submit, take or opening
    /// of a session whose caller has disconnected. A command that was tried may have been
    /// committed, so it must be decided. A settle or a release must be decided, because other callers
    /// wait for it.
    pub(super) fn is_abandoned(&self) -> bool {
        let takes = match &self.command {
            Command::Begin(_) => true,
            Command::Lock(command) => {
                matches!(command, LockCommand::Open(_) | LockCommand::Acquire(_) | LockCommand::AcquireAll(_))
            }
            Command::Queue(command) => matches!(command, QueueCommand::Submit(_) | QueueCommand::Take(_)),
            Command::Settle(_) | Command::Forget(_) => false,
        };
        takes && !self.tried && self.answer.is_closed()
    }
}

/// The limits up to which the queue admits begins. [`LimitShares`] keeps one cell from using up a limit
/// of the server.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// The cells among which the limits of the server are shared, and the limits of each.
    pub cells: BTreeMap<CellId, CellLimits>,
    /// The most begins that may wait in the queue.
    pub queued_begins: usize,
    /// The most claims that may be under leases, counting the claims of begins that are waiting or
    /// being written.
    pub held_claims: usize,
}

/// The number of claims under leases of each cell.
pub type HeldClaims = BTreeMap<CellId, usize>;

/// The content of the queue, which its mutex protects.
struct QueueState {
    settles: VecDeque<Job>,
    begins: VecDeque<Job>,
    // The number of waiting begins of each cell.
    queued: LimitShares,
    // The number of claims of each cell that are under leases, or in begins that are waiting or
    // being written.
    claims: LimitShares,
    // The limits of each cell.
    cells: CellLimiter,
    // The number of claims of each cell in begins that are waiting or being written.
    reserved: BTreeMap<CellId, usize>,
    // The number of waiting commands at which a waiting writer is woken.
    wanted: usize,
    // The number of groups that writers are writing now.
    under_way: usize,
    // The number of groups that writers have taken from the queue so far.
    taken: u64,
    // The number of writers that have a write slot: those with the lowest numbers.
    write_slots: usize,
    // True if a writer without a slot sleeps until a command comes.
    has_sleeping_spares: bool,
    closed: bool,
}

impl QueueState {
    fn new(capacity: Capacity, held: HeldClaims, write_slots: usize) -> Self {
        let Capacity { cells, queued_begins, held_claims } = capacity;
        let ids: BTreeSet<_> = cells.keys().copied().collect();
        let mut claims = LimitShares::new("limits.held_claims", held_claims, ids.clone());
        held.into_iter().for_each(|(cell, held)| claims.add(cell, held));
        Self {
            settles: VecDeque::new(),
            begins: VecDeque::new(),
            queued: LimitShares::new("limits.queued_begins", queued_begins, ids),
            claims,
            cells: CellLimiter::new(cells),
            reserved: BTreeMap::new(),
            wanted: 0,
            under_way: 0,
            taken: 0,
            write_slots,
            has_sleeping_spares: false,
            closed: false,
        }
    }

    fn len(&self) -> usize {
        self.settles.len() + self.begins.len()
    }

    /// Counts the claims of a begin as under a lease, until the begin is decided.
    ///
    /// # Errors
    /// [`CommitterRefusal::TooLarge`] if the begin alone exceeds its cell's share.
    /// [`CommitterRefusal::Overloaded`] if the begin exceeds a limit only together with earlier
    /// begins.
    fn admit(&mut self, begin: &Begin, is_drop: bool) -> Result<(), CommitterRefusal> {
        let (cell, claims) = (begin.cell, begin.batch.entries().len());
        let of_cell = self.cells.held_claims(cell).unwrap_or(usize::MAX);
        let max = self.claims.largest_share(cell).min(of_cell);
        if claims > max {
            return Err(CommitterRefusal::TooLarge { claims, max });
        }
        self.queued.check(cell, 1).map_err(CommitterRefusal::overloaded)?;
        if claims > of_cell.saturating_sub(self.claims.used(cell)) {
            return Err(CommitterRefusal::overloaded(LimitReached::ClaimsOfCell { max: of_cell }));
        }
        self.claims.check(cell, claims).map_err(CommitterRefusal::overloaded)?;
        // The rate is checked last, so that only admitted begins count against it.
        if !is_drop {
            self.cells
                .count(cell)
                .map_err(|(limit, retry_after)| CommitterRefusal::Overloaded { limit, retry_after })?;
        }
        self.claims.add(cell, claims);
        *self.reserved.entry(cell).or_default() += claims;
        Ok(())
    }

    /// Takes the first job of `begins`: a begin, or another command for which [`frees`] is false.
    fn pop_begin(&mut self) -> Option<Job> {
        let job = self.begins.pop_front()?;
        if let Command::Begin(begin) = &job.command {
            self.queued.subtract(begin.cell, 1);
        }
        Some(job)
    }

    /// Puts a job back to the front of `begins`.
    fn unpop_begin(&mut self, job: Job) {
        if let Command::Begin(begin) = &job.command {
            self.queued.add(begin.cell, 1);
        }
        self.begins.push_front(job);
    }

    /// Ends the reservation of a begin's claims.
    fn release(&mut self, begin: &Begin) {
        let (cell, claims) = (begin.cell, begin.batch.entries().len());
        self.claims.subtract(cell, claims);
        if let Some(reserved) = self.reserved.get_mut(&cell) {
            *reserved = reserved.saturating_sub(claims);
        }
    }
}

/// The number of jobs that a writer waits for before it takes its next group, and the longest time
/// of that wait.
///
/// Callers that were answered together send their next commands at about the same time. If the
/// writer took only the first of these commands, the others would wait for its sync and then for
/// their own.
#[derive(Clone, Copy)]
pub(super) struct BatchPolicy {
    jobs: usize,
    at_most: Duration,
    // The number of jobs and the longest wait while another writer is writing a group.
    jobs_beside: usize,
    at_most_beside: Duration,
}

impl BatchPolicy {
    /// The policy before a writer's first group: no wait.
    pub(super) const NO_WAIT: Self =
        Self { jobs: 1, at_most: Duration::ZERO, jobs_beside: 1, at_most_beside: Duration::ZERO };

    /// The policy after a group of `jobs` jobs that took `save` to commit. A lone writer waits for
    /// as many jobs as its last group had. If there are several writers, each waits for at most
    /// `jobs_beside` jobs.
    fn after(jobs: usize, save: Duration, is_alone: bool, jobs_beside: usize) -> Self {
        let jobs = if is_alone { jobs } else { jobs.min(jobs_beside) };
        Self { jobs, at_most: save.min(MAX_BATCH_WAIT), jobs_beside, at_most_beside: save.min(MAX_WAIT_BESIDE) }
    }
}

/// The number of commands that a database without load would have saved in the time `save`, from
/// [`MIN_BATCH`] to [`MAX_BATCH`].
fn batch_after(save: Duration) -> usize {
    let commands = save.as_micros() / COMMAND_TIME.as_micros();
    usize::try_from(commands).unwrap_or(MAX_BATCH).clamp(MIN_BATCH, MAX_BATCH)
}

/// The queue of waiting commands. Any number of callers add commands; one writer at a time takes a
/// group.
pub(super) struct Queue {
    waiting: Mutex<QueueState>,
    arrived: Condvar,
    // Wakes writers that wait for a write slot.
    slot_freed: Condvar,
    // A writer holds this mutex while it waits for commands and takes its group, so that only one
    // writer does so at a time.
    turn: Mutex<()>,
}

impl Queue {
    pub(super) fn new(capacity: Capacity, held: HeldClaims, write_slots: usize) -> Self {
        Self {
            waiting: Mutex::new(QueueState::new(capacity, held, write_slots)),
            arrived: Condvar::new(),
            slot_freed: Condvar::new(),
            turn: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a command to the queue.
    ///
    /// # Errors
    /// The queue has no capacity for the command, or the server is stopping.
    pub(super) fn push(&self, job: Job) -> Result<(), CommitterRefusal> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(CommitterRefusal::Stopping);
        }
        match &job.command {
            Command::Begin(begin) => {
                waiting.admit(begin, job.is_drop)?;
                waiting.queued.add(begin.cell, 1);
                waiting.begins.push_back(job);
            }
            command if frees(command) => waiting.settles.push_back(job),
            // A forget needs no admission, because the server itself submits forgets in batches of
            // bounded size.
            _ => waiting.begins.push_back(job),
        }
        let enough = waiting.len() >= waiting.wanted;
        self.wake_spares(&mut waiting);
        drop(waiting);
        if enough {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Wakes the writers without a slot that sleep, because the queue has commands.
    fn wake_spares(&self, waiting: &mut QueueState) {
        if std::mem::take(&mut waiting.has_sleeping_spares) {
            self.slot_freed.notify_all();
        }
    }

    /// Waits for a first command. Then waits until the queue has as many commands as the policy
    /// says, or the policy's time is up. Returns the locked queue, which is empty if no command
    /// came within [`IDLE_AFTER`] or if the queue is closed.
    fn wait(&self, policy: BatchPolicy) -> MutexGuard<'_, QueueState> {
        let mut waiting = self.lock();
        waiting.wanted = 1;
        let idle = |waiting: &mut QueueState| waiting.len() == 0 && !waiting.closed;
        waiting = self.arrived.wait_timeout_while(waiting, IDLE_AFTER, idle).unwrap_or_else(PoisonError::into_inner).0;
        if waiting.len() == 0 {
            return waiting;
        }
        waiting = self.wait_for(policy.jobs_beside, policy.at_most_beside, waiting, |waiting| waiting.under_way > 0);
        if waiting.under_way > 0 {
            return waiting;
        }
        self.wait_for(policy.jobs, policy.at_most, waiting, |_| true)
    }

    /// Waits until `jobs` jobs are in the queue, the time `at_most` is up, the queue is closed, or
    /// `is_worthwhile` returns false. Returns the locked queue.
    fn wait_for<'a>(
        &self,
        jobs: usize,
        at_most: Duration,
        mut waiting: MutexGuard<'a, QueueState>,
        is_worthwhile: impl Fn(&QueueState) -> bool,
    ) -> MutexGuard<'a, QueueState> {
        waiting.wanted = jobs;
        let few = |waiting: &mut QueueState| waiting.len() < jobs && !waiting.closed && is_worthwhile(waiting);
        let waited = self.arrived.wait_timeout_while(waiting, at_most, few);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Changes the limits up to which begins are admitted. Commands that wait stay.
    pub(super) fn set_capacity(&self, capacity: Capacity) {
        let Capacity { cells, queued_begins, held_claims } = capacity;
        let mut waiting = self.lock();
        let ids: BTreeSet<_> = cells.keys().copied().collect();
        waiting.queued.resize(queued_begins, ids.clone());
        waiting.claims.resize(held_claims, ids);
        waiting.cells.replace(cells);
    }

    /// The number of writers that have a write slot.
    pub(super) fn write_slots(&self) -> usize {
        self.lock().write_slots
    }

    /// Sets the number of writers that have a write slot, to at least one.
    pub(super) fn set_write_slots(&self, slots: usize) {
        self.lock().write_slots = slots.max(1);
        self.slot_freed.notify_all();
    }

    /// Subtracts one from the number of groups that are being written. A writer calls this after
    /// its group was committed or refused.
    pub(super) fn end_group(&self) {
        let mut waiting = self.lock();
        waiting.under_way = waiting.under_way.saturating_sub(1);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// The batch policy of a writer after a group that took `save` to commit.
    pub(super) fn policy_after(&self, group: &[Job], save: Duration) -> BatchPolicy {
        let is_cheap = |job: &Job| matches!(job.command, Command::Lock(_) | Command::Queue(_));
        let jobs_beside = if group.iter().all(is_cheap) { LOCK_BATCH } else { batch_after(save) };
        // A command of queues costs the writer as much as its caller. If the writer waited for all callers of its last
        // group, it and they would take turns. With half of them, it writes while the others send.
        let has_queues = group.iter().any(|job| matches!(job.command, Command::Queue(_)));
        let jobs = if has_queues { group.len().div_ceil(2) } else { group.len() };
        BatchPolicy::after(jobs, save, self.write_slots() == 1, jobs_beside)
    }

    /// Waits until the writer has a write slot, or until the writers with slots take no commands
    /// because a lock or a lost connection delays them. Returns false if neither happens within
    /// [`IDLE_AFTER`].
    fn wait_for_slot(&self, writer: usize) -> bool {
        let mut waiting = self.lock();
        let until = Instant::now() + IDLE_AFTER;
        // True if the queue was empty during the last wait.
        let mut was_quiet = false;
        while writer >= waiting.write_slots && !waiting.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let taken = waiting.taken;
            // If the queue was empty, this writer sleeps until `push` wakes it, so an idle server
            // does not wake every few milliseconds.
            waiting.has_sleeping_spares |= was_quiet;
            let pause = if was_quiet { left } else { left.min(MAX_WAIT_BESIDE) };
            waiting = self.slot_freed.wait_timeout(waiting, pause).unwrap_or_else(PoisonError::into_inner).0;
            let stands_still = waiting.taken == taken;
            if waiting.len() > 0 && stands_still && !was_quiet {
                return true;
            }
            was_quiet = waiting.len() == 0 && stands_still;
        }
        true
    }

    /// Waits for commands and takes a group of them, for the writer with the number `writer`.
    /// Returns an empty group if there was no work for this writer within [`IDLE_AFTER`]; `None` if
    /// the queue is closed and empty.
    pub(super) fn take(&self, writer: usize, policy: BatchPolicy) -> Option<Vec<Job>> {
        if !self.wait_for_slot(writer) {
            return Some(Vec::new());
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = self.wait(policy);
        if waiting.len() == 0 {
            return (!waiting.closed).then(Vec::new);
        }
        let settles = waiting.settles.len().min(MAX_GROUP_COMMANDS);
        let mut group: Vec<_> = waiting.settles.drain(..settles).collect();
        let mut claims = 0;
        while group.len() < MAX_GROUP_COMMANDS
            && let Some(job) = waiting.pop_begin()
        {
            claims += claims_of(&job.command);
            if claims > MAX_GROUP_CLAIMS && !group.is_empty() {
                waiting.unpop_begin(job);
                break;
            }
            group.push(job);
        }
        waiting.under_way += 1;
        waiting.taken += 1;
        Some(group)
    }

    /// Updates the number of claims under leases after a group. Ends the reservations of the
    /// group's begins, adds the claims that are under a lease now, and subtracts those that no
    /// longer are.
    pub(super) fn update_held_claims(&self, group: &[Job], changes: &[RowChange<Claim>]) {
        let holder = |claim: &Option<Claim>| claim.as_ref().filter(|claim| claim.hold().is_some()).map(|it| it.owner);
        let mut waiting = self.lock();
        for job in group {
            if let Command::Begin(begin) = &job.command {
                waiting.release(begin);
            }
        }
        for change in changes {
            if let Some(cell) = holder(&change.after) {
                waiting.claims.add(cell, 1);
            }
            if let Some(cell) = holder(&change.before) {
                waiting.claims.subtract(cell, 1);
            }
        }
    }

    /// Sets the number of claims under leases of each cell, as read from the store. Leases that
    /// other servers began count too.
    pub(super) fn set_held_claims(&self, held: HeldClaims) {
        let mut waiting = self.lock();
        let mut used = held;
        waiting.reserved.retain(|_, reserved| *reserved > 0);
        for (cell, reserved) in &waiting.reserved {
            *used.entry(*cell).or_default() += reserved;
        }
        waiting.claims.replace(used);
    }

    /// Puts the jobs back at the front of the queue, in their order.
    pub(super) fn requeue(&self, jobs: Vec<Job>) {
        let mut waiting = self.lock();
        for job in jobs.into_iter().rev() {
            if frees(&job.command) {
                waiting.settles.push_front(job);
            } else {
                waiting.unpop_begin(job);
            }
        }
        self.wake_spares(&mut waiting);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// The number of commands in the queue.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// True if the queue is closed, because the server is stopping.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Closes the queue and drops all waiting commands, whose callers are refused at once.
    pub(super) fn abandon(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let dropped = (std::mem::take(&mut waiting.settles), std::mem::take(&mut waiting.begins));
        drop(waiting);
        drop(dropped);
        self.arrived.notify_all();
        self.slot_freed.notify_all();
    }

    /// Closes the queue to new commands. QueueState commands are still decided.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
        self.slot_freed.notify_all();
    }
}

fn claims_of(command: &Command) -> usize {
    match command {
        Command::Begin(begin) => begin.batch.entries().len(),
        Command::Settle(_) | Command::Forget(_) | Command::Lock(_) | Command::Queue(_) => 0,
    }
}

/// Returns true if a command frees what others wait for. Such a command is never refused for load.
fn frees(command: &Command) -> bool {
    match command {
        Command::Settle(_) => true,
        Command::Begin(_) | Command::Forget(_) => false,
        Command::Lock(command) => frees_locks(command),
        Command::Queue(command) => frees_lanes(command),
    }
}

/// Returns true if a command ends the hold of a lane, notes the progress on it, or lets lanes be taken.
fn frees_lanes(command: &QueueCommand) -> bool {
    match command {
        QueueCommand::NoteProgress(_)
        | QueueCommand::SettleWork(_)
        | QueueCommand::Reclaim(_)
        | QueueCommand::Withdraw(_)
        | QueueCommand::Pause(_)
        | QueueCommand::LimitQueue(_) => true,
        QueueCommand::Submit(_)
        | QueueCommand::Take(_)
        | QueueCommand::Resubmit(_)
        | QueueCommand::ForgetRequest(_)
        | QueueCommand::ForgetLane(_) => false,
    }
}

/// Returns true if a command releases locks, or renews or ends a session. Like settles, such
/// commands are never refused for load. A refused release would keep other callers waiting, and a
/// refused renewal could lose the session's locks.
fn frees_locks(command: &LockCommand) -> bool {
    match command {
        LockCommand::Renew(_)
        | LockCommand::End(_)
        | LockCommand::Release(_)
        | LockCommand::Leave(_)
        | LockCommand::Force(_)
        | LockCommand::Elapse(_)
        | LockCommand::Resolve(_) => true,
        LockCommand::Open(_)
        | LockCommand::Acquire(_)
        | LockCommand::AcquireAll(_)
        | LockCommand::Reap(_)
        | LockCommand::ForgetSession(_)
        | LockCommand::ForgetLock(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use leasehold_core::lease::LeaseId;
    use leasehold_core::lock::{AskId, LockPath};
    use leasehold_core::locking::acquire::Acquire;
    use leasehold_core::locking::leave::Leave;
    use leasehold_core::locking::renew::Renew;
    use leasehold_core::queue::QueuePath;
    use leasehold_core::queueing::limit::LimitQueue;
    use leasehold_core::session::{Principal, SessionId};
    use leasehold_core::time::Timestamp;
    use leasehold_core::update::Forget;
    use uuid::Uuid;

    use super::*;

    fn job() -> Job {
        let forget = Forget { lease: LeaseId(Uuid::nil()), settled_before: Timestamp::from_micros(0) };
        let command = Command::Forget(forget);
        Job {
            caller: Caller::Trusted,
            command,
            tried: false,
            away_since: None,
            is_drop: false,
            timed: None,
            answer: oneshot::channel().0,
        }
    }

    #[test]
    fn b25_an_untried_acquire_is_dropped_with_its_caller_and_a_release_is_not() {
        let (session, principal) = (SessionId(Uuid::nil()), Principal::parse("service/a").unwrap());
        let (ask, lock) = (AskId(Uuid::nil()), LockPath::parse(&["a"], "k").unwrap());
        let acquire = Acquire {
            session,
            principal: principal.clone(),
            ask,
            lock,
            share: None,
            held: Vec::new(),
            wait: true,
            reaped: None,
        };
        let acquire = LockCommand::Acquire(acquire);
        let leave = LockCommand::Leave(Leave { session, principal, ask });
        // The receiver of each answer is dropped at once.
        let with = |command, tried| Job { command: Command::Lock(command), tried, ..job() };
        assert!(with(acquire.clone(), false).is_abandoned());
        assert!(!with(acquire, true).is_abandoned());
        assert!(!with(leave, false).is_abandoned());
    }

    fn renew() -> LockCommand {
        let (session, principal) = (SessionId(Uuid::nil()), Principal::parse("service/a").unwrap());
        LockCommand::Renew(Renew { session, principal })
    }

    fn queue_of_two() -> Queue {
        let capacity = Capacity { cells: BTreeMap::new(), queued_begins: 8, held_claims: 8 };
        Queue::new(capacity, HeldClaims::new(), 2)
    }

    #[test]
    fn a_writer_without_a_slot_takes_over_only_if_the_slot_holders_stall() {
        let queue = queue_of_two();
        queue.set_write_slots(0);
        assert_eq!(queue.write_slots(), 1, "at least one writer has a slot");
        let nothing = queue.take(1, BatchPolicy::NO_WAIT).map(|group| group.len());
        assert_eq!(nothing, Some(0), "no command waits");
        for _ in 0..2 {
            assert!(queue.push(job()).is_ok());
            let group = queue.take(1, BatchPolicy::NO_WAIT).map(|group| group.len());
            assert_eq!(group, Some(1), "the first writer stalls");
        }
        queue.close();
        assert!(queue.take(1, BatchPolicy::NO_WAIT).is_none(), "the queue is closed");
    }

    #[test]
    fn a_writer_without_a_slot_leaves_work_to_a_slot_holder() {
        let queue = queue_of_two();
        queue.set_write_slots(1);
        let taken_by_the_first = std::thread::scope(|scope| {
            scope.spawn(|| while queue.take(1, BatchPolicy::NO_WAIT).is_some() {});
            let taken = (0..200).filter(|_| {
                assert!(queue.push(job()).is_ok());
                queue.take(0, BatchPolicy::NO_WAIT).is_some_and(|group| !group.is_empty())
            });
            let taken = taken.count();
            queue.close();
            taken
        });
        assert!(taken_by_the_first > 100, "the first writer took {taken_by_the_first} of 200");
    }

    /// The number of times that the calling thread has gone to sleep.
    fn sleeps() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok());
        count.unwrap_or(u64::MAX)
    }

    #[test]
    fn a_writer_without_a_slot_sleeps_while_no_command_comes() {
        let queue = queue_of_two();
        queue.set_write_slots(1);
        let before = sleeps();
        assert_eq!(queue.take(1, BatchPolicy::NO_WAIT).map(|group| group.len()), Some(0));
        let slept = sleeps() - before;
        assert!(slept < 20, "{slept} wakes in an idle second");
    }

    #[test]
    fn a_sleeping_writer_without_a_slot_takes_over_if_the_slot_holder_stalls() {
        let queue = queue_of_two();
        queue.set_write_slots(1);
        std::thread::scope(|scope| {
            let spare = scope.spawn(|| queue.take(1, BatchPolicy::NO_WAIT).map(|group| group.len()));
            while !queue.lock().has_sleeping_spares {
                std::thread::yield_now();
            }
            assert!(queue.push(job()).is_ok());
            assert!(spare.join().is_ok_and(|taken| taken == Some(1)));
        });
    }

    #[test]
    fn writers_with_slots_take_every_command() {
        let queue = queue_of_two();
        for writer in [1, 0, 1] {
            assert!(queue.push(job()).is_ok());
            assert_eq!(queue.take(writer, BatchPolicy::NO_WAIT).map(|group| group.len()), Some(1), "{writer}");
            queue.end_group();
        }
    }

    #[test]
    fn a_slower_shared_store_makes_a_group_wait_for_more_commands() {
        let queue = queue_of_two();
        let group = |jobs| (0..jobs).map(|_| job()).collect::<Vec<_>>();
        let jobs = |jobs, micros| queue.policy_after(&group(jobs), Duration::from_micros(micros)).jobs;
        assert_eq!([jobs(64, 900), jobs(64, 1_800), jobs(64, 2_800), jobs(64, 60_000_000)], [8, 12, 16, 16]);
        assert_eq!(jobs(3, 2_800), 3, "no more than last time may come");
    }

    #[test]
    fn a_writer_waits_for_more_commands_of_locks() {
        let queue = queue_of_two();
        let renewal = || Job { command: Command::Lock(renew()), ..job() };
        let jobs = |group: &[Job]| queue.policy_after(group, Duration::from_micros(900)).jobs_beside;
        assert_eq!((jobs(&[renewal(), renewal()]), jobs(&[renewal(), job()])), (LOCK_BATCH, MIN_BATCH));
    }

    #[test]
    fn a_lone_writer_waits_for_half_of_the_commands_of_queues() {
        let queue = queue_of_two();
        queue.set_write_slots(1);
        let limit = LimitQueue { queue: QueuePath::parse("sheets").unwrap(), limit: None };
        let of_queues = || Job { command: Command::Queue(QueueCommand::LimitQueue(limit.clone())), ..job() };
        let jobs = |group: &[Job]| queue.policy_after(group, Duration::from_micros(900)).jobs;
        assert_eq!((jobs(&[of_queues(), of_queues(), job()]), jobs(&[job(), job()])), (2, 2));
        assert_eq!(jobs(&[of_queues(), of_queues()]), 1);
    }

    #[test]
    fn a_lone_writer_waits_for_all_commands_of_the_last_group() {
        assert_eq!(BatchPolicy::after(64, Duration::from_micros(100), true, MIN_BATCH).jobs, 64);
    }
}
