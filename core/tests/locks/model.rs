//! An independent model of sessions and locks: plain lists, written from the promises K01 to K21.

use std::collections::BTreeMap;

/// One step of a random world. Fences and former grants are named by their age, so that a step
/// stays meaningful in any world.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Open(u128),
    Renew(u128),
    Close(u128),
    /// The session, the renewals that the observer saw, and true if the session was quiet for long
    /// enough.
    Silence(u128, u64, bool),
    Evict(u128),
    Acquire {
        session: u128,
        ask: u128,
        lock: usize,
        /// The index of the way in [`SHARES`].
        share: usize,
        wait: bool,
    },
    /// The session, and for each ask its id, its lock and the index of its way in [`SHARES`].
    AcquireAll {
        session: u128,
        asks: Vec<(u128, usize, usize)>,
        wait: bool,
    },
    /// Releases the grant of the lock that is `age / 3` grants older than the newest one.
    Release {
        lock: usize,
        ok: bool,
        age: u8,
    },
    Leave(u128, u128),
    /// The lock with one of its places, and true if it passes on at once.
    Force((usize, usize), bool),
    Elapse((usize, usize), bool),
    /// The session, the ask and the orphaned place of a lock.
    Reap(u128, u128, (usize, usize)),
    /// The orphaned place of a lock, and true if the operator has cleaned up.
    Resolve((usize, usize), bool),
    ForgetLock(usize),
    ForgetSession(u128),
}

/// The answer to a step: its result, or the code of the refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done(bool),
    Renewed(u64),
    /// The fence, and the slot, which is 0 for the whole lock.
    Holding(u64, u32),
    /// The ask waits, and this many asks wait before it.
    Waiting(u32),
    /// What became of each ask.
    All(Vec<Answer>),
    Refused(&'static str),
}

/// The most cleanups of each lock; `None` if the lock is not reaped.
pub(crate) const MOST_CLEANUPS: [Option<u32>; 3] = [None, Some(1), Some(2)];

/// The ways to share a lock, each with its number of slots; 0 stands for an ask that wants it alone.
pub(crate) const SHARES: [u32; 4] = [0, 256, 1, 2];

/// A grant: the ask, its session, its fence and its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub ask: u128,
    pub session: u128,
    pub fence: u64,
    pub slot: u32,
}

/// The last grant that ended, and true if its holder released it as succeeded, false as failed;
/// `None` if it ended in another way.
type Last = (Granted, Option<bool>);

/// A part of a lock that is not free: the whole lock, or a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub slot: u32,
    pub holder: Option<Granted>,
    /// The fence of the grant that an operator took away.
    pub withheld: Option<u64>,
    /// The fence of the grant whose cleanup is due, and the number of cleanups begun.
    pub due: Option<(u64, u32)>,
    last: Option<Granted>,
}

impl Place {
    pub(crate) fn is_orphaned(&self) -> bool {
        self.due.is_some() && self.holder.is_none() && self.withheld.is_none()
    }

    /// Returns the fence that a force or elapse names.
    pub(crate) fn fence_to_take(&self) -> u64 {
        self.holder.map(|holder| holder.fence).or(self.withheld).unwrap_or(0)
    }
}

/// An ask that waits: its id, its session, and the index of its way to share.
pub(crate) type Waiting = (u128, u128, usize);

#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    /// The parts that are not free, in the order of their slots. If the lock is shared, in the way of
    /// this index.
    pub places: Vec<Place>,
    share: usize,
    pub queue: Vec<Waiting>,
    pub last: Option<Last>,
    pub grants: Vec<Granted>,
    is_known: bool,
}

impl Lock {
    /// Returns one of the places, or a free one.
    pub(crate) fn place(&self, number: usize) -> Place {
        self.places.get(number % self.places.len().max(1)).copied().unwrap_or_default()
    }

    fn at(&mut self, slot: u32) -> &mut Place {
        self.places.iter_mut().find(|place| place.slot == slot).unwrap()
    }

    fn holder_of(&self, ask: u128) -> Option<Granted> {
        self.places.iter().filter_map(|place| place.holder).find(|holder| holder.ask == ask)
    }

    fn has(&self, ask: u128) -> bool {
        self.holder_of(ask).is_some() || self.queue.iter().any(|(id, ..)| *id == ask)
    }

    /// Returns the slot that an ask of this way could hold now.
    fn room(&self, share: usize) -> Option<u32> {
        if self.places.is_empty() {
            return Some(u32::from(share > 0));
        }
        let is_same = share > 0 && self.share == share && self.places.iter().all(|place| place.slot > 0);
        let is_free = |slot: &u32| self.places.iter().all(|place| place.slot != *slot);
        (1..=SHARES[share]).filter(|_| is_same).find(is_free)
    }
}

#[derive(Clone, Debug)]
struct Session {
    renewals: u64,
    ended: Option<&'static str>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    sessions: BTreeMap<u128, Session>,
    pub locks: [Lock; 3],
    fence: u64,
}

impl Model {
    /// Returns the grant that a release step names: the newest of the lock, or an older one.
    pub(crate) fn grant_of_age(&self, lock: usize, age: u8) -> Option<Granted> {
        let grants = &self.locks[lock].grants;
        grants.len().checked_sub(1 + usize::from(age / 3)).map(|at| grants[at])
    }

    pub(crate) fn run(&mut self, step: &Step) -> Answer {
        match *step {
            Step::Open(session) => self.open(session),
            Step::Renew(session) => self.renew(session),
            Step::Close(session) => self.end(session, "closed"),
            Step::Silence(session, seen, enough) => match self.sessions.get(&session) {
                Some(Session { ended: None, renewals }) if seen != *renewals || !enough => {
                    Answer::Refused("SESSION_ALIVE")
                }
                _ => self.end(session, "expired"),
            },
            Step::Evict(session) => self.end(session, "evicted"),
            Step::Acquire { session, ask, lock, share, wait } => self.acquire(session, (ask, share), lock, wait),
            Step::AcquireAll { session, ref asks, wait } => self.acquire_all(session, asks, wait),
            Step::Release { lock, ok, age } => match self.grant_of_age(lock, age) {
                Some(grant) => self.release(lock, grant, ok),
                None => Answer::Refused("SESSION_NOT_FOUND"),
            },
            Step::Leave(session, ask) => self.leave(session, ask),
            Step::Force(lock, at_once) => self.force(lock, at_once),
            Step::Elapse(lock, enough) => self.elapse(lock, enough),
            Step::Reap(session, ask, lock) => self.reap(session, ask, lock),
            Step::Resolve(lock, cleaned) => self.resolve(lock, cleaned),
            Step::ForgetLock(lock) => self.forget_lock(lock),
            Step::ForgetSession(session) => {
                let is_over = self.sessions.get(&session).is_some_and(|session| session.ended.is_some());
                if is_over {
                    self.sessions.remove(&session);
                }
                Answer::Done(is_over)
            }
        }
    }

    fn refusal(&self, session: u128) -> Option<Answer> {
        match self.sessions.get(&session) {
            None => Some(Answer::Refused("SESSION_NOT_FOUND")),
            Some(Session { ended: Some(_), .. }) => Some(Answer::Refused("SESSION_ENDED")),
            Some(_) => None,
        }
    }

    fn open(&mut self, session: u128) -> Answer {
        match self.sessions.get(&session) {
            Some(Session { ended: Some(_), .. }) => Answer::Refused("SESSION_ENDED"),
            Some(_) => Answer::Done(false),
            None => {
                self.sessions.insert(session, Session { renewals: 0, ended: None });
                Answer::Done(true)
            }
        }
    }

    fn renew(&mut self, session: u128) -> Answer {
        if let Some(refusal) = self.refusal(session) {
            return refusal;
        }
        let session = self.sessions.get_mut(&session).unwrap();
        session.renewals += 1;
        Answer::Renewed(session.renewals)
    }

    fn end(&mut self, id: u128, how: &'static str) -> Answer {
        match self.sessions.get_mut(&id) {
            None => return Answer::Refused("SESSION_NOT_FOUND"),
            Some(Session { ended: Some(before), .. }) if *before == how => return Answer::Done(false),
            Some(Session { ended: Some(_), .. }) => return Answer::Refused("SESSION_ENDED"),
            Some(session) => session.ended = Some(how),
        }
        // The locks are served in the order of their paths, which decides the order of fences.
        for lock in 0..3 {
            self.locks[lock].queue.retain(|(_, session, _)| *session != id);
            let mut held: Vec<_> = self.locks[lock].places.iter().filter_map(|place| place.holder).collect();
            held.retain(|holder| holder.session == id);
            held.sort_by_key(|holder| holder.ask);
            for holder in held {
                self.died(lock, holder);
                self.locks[lock].at(holder.slot).withheld = (how == "evicted").then_some(holder.fence);
                self.end_grant(lock, holder, None);
            }
            self.serve(lock);
        }
        Answer::Done(true)
    }

    /// Notes that a holder ended without a report.
    fn died(&mut self, at: usize, holder: Granted) {
        let due = &mut self.locks[at].at(holder.slot).due;
        *due = due.or(MOST_CLEANUPS[at].map(|_| (holder.fence, 0)));
    }

    /// Ends a grant. Its place is free if nothing is due there and it is not withheld.
    fn end_grant(&mut self, at: usize, holder: Granted, report: Option<bool>) {
        let lock = &mut self.locks[at];
        let place = lock.at(holder.slot);
        (place.holder, place.last) = (None, Some(holder));
        let stays = place.withheld.is_some() || place.due.is_some();
        // A slot that is not free keeps its last grant itself.
        if holder.slot == 0 || !stays {
            lock.last = Some((holder, report));
        }
        if !stays {
            lock.places.retain(|place| place.slot != holder.slot);
        }
    }

    /// Frees a place that nobody holds, unless a cleanup is due.
    fn pass_on(&mut self, at: usize, slot: u32) {
        let lock = &mut self.locks[at];
        lock.at(slot).withheld = None;
        lock.places.retain(|place| place.slot != slot || place.due.is_some());
        self.serve(at);
    }

    fn reap(&mut self, session: u128, ask: u128, (at, number): (usize, usize)) -> Answer {
        if let Some(refusal) = self.refusal(session) {
            return refusal;
        }
        let place = self.locks[at].place(number);
        for (lock_number, lock) in self.locks.iter().enumerate() {
            if let Some(holder) = lock.holder_of(ask) {
                let is_same = (lock_number, holder.slot, holder.session) == (at, place.slot, session);
                let again = Answer::Holding(holder.fence, holder.slot);
                return if is_same { again } else { Answer::Refused("ASK_REUSED") };
            }
            if lock.queue.iter().any(|(id, ..)| *id == ask) {
                return Answer::Refused("ASK_REUSED");
            }
        }
        let (true, Some((_, attempts))) = (place.is_orphaned(), place.due) else {
            return Answer::Refused("FENCE_PASSED");
        };
        if attempts == MOST_CLEANUPS[at].unwrap() {
            return Answer::Refused("FENCE_PASSED");
        }
        let last = if place.slot == 0 { self.locks[at].last.map(|(last, _)| last) } else { place.last };
        if last.is_some_and(|last| last.ask == ask) {
            return Answer::Refused("ASK_REUSED");
        }
        let due = &mut self.locks[at].at(place.slot).due;
        *due = due.map(|(fence, attempts)| (fence, attempts + 1));
        Answer::Holding(self.grant(at, place.slot, ask, session), place.slot)
    }

    fn resolve(&mut self, (at, number): (usize, usize), cleaned: bool) -> Answer {
        let place = self.locks[at].place(number);
        let (true, Some((fence, attempts))) = (place.is_orphaned(), place.due) else {
            return Answer::Refused("FENCE_PASSED");
        };
        self.locks[at].at(place.slot).due = (!cleaned).then_some((fence, 0));
        if !cleaned {
            return Answer::Done(attempts > 0);
        }
        self.pass_on(at, place.slot);
        Answer::Done(true)
    }

    fn acquire(&mut self, session: u128, (ask, share): (u128, usize), at: usize, wait: bool) -> Answer {
        if let Some(refusal) = self.refusal(session) {
            return refusal;
        }
        for (number, lock) in self.locks.iter().enumerate() {
            let is_own = |owner: u128, asked: usize| (owner, number, asked) == (session, at, share);
            if let Some(holder) = lock.holder_of(ask) {
                // A cleaner holds its slot alone.
                let is_cleaner = lock.places.iter().any(|place| place.holder == Some(holder) && place.due.is_some());
                let asked = if holder.slot == 0 || is_cleaner { 0 } else { lock.share };
                let again = Answer::Holding(holder.fence, holder.slot);
                return if is_own(holder.session, asked) { again } else { Answer::Refused("ASK_REUSED") };
            }
            if let Some(place) = lock.queue.iter().position(|(id, ..)| *id == ask) {
                let (_, owner, asked) = lock.queue[place];
                let again = Answer::Waiting(place as u32);
                return if is_own(owner, asked) { again } else { Answer::Refused("ASK_REUSED") };
            }
        }
        let lock = &mut self.locks[at];
        if lock.last.is_some_and(|(last, _)| last.ask == ask) {
            return Answer::Refused("ASK_REUSED");
        }
        let has_room = lock.queue.is_empty() && lock.room(share).is_some();
        if !has_room && !wait {
            return Answer::Refused("LOCK_HELD");
        }
        lock.is_known = true;
        lock.queue.push((ask, session, share));
        let before = lock.queue.len() as u32 - 1;
        self.serve(at);
        match self.locks[at].holder_of(ask) {
            Some(holder) => Answer::Holding(holder.fence, holder.slot),
            None => Answer::Waiting(before),
        }
    }

    /// Acquires one lock after the other, and takes everything back if an ask is refused.
    fn acquire_all(&mut self, session: u128, asks: &[(u128, usize, usize)], wait: bool) -> Answer {
        let before = self.clone();
        let known = asks.iter().filter(|(ask, ..)| self.locks.iter().any(|lock| lock.has(*ask))).count();
        let mut answers = Vec::new();
        for (ask, lock, share) in asks {
            let is_known = self.locks.iter().any(|lock| lock.has(*ask));
            // A repeated ask may still wait; one that is new may not, beside others that are known.
            let answer = self.acquire(session, (*ask, *share), *lock, wait || is_known);
            if matches!(answer, Answer::Refused(_)) {
                *self = before;
                let is_mixed = known > 0 && known < asks.len() && self.refusal(session).is_none();
                return if is_mixed { Answer::Refused("ASK_REUSED") } else { answer };
            }
            answers.push(answer);
        }
        if known > 0 && known < asks.len() {
            *self = before;
            return Answer::Refused("ASK_REUSED");
        }
        Answer::All(answers)
    }

    /// Serves the first asks that wait, as long as there is room for them.
    fn serve(&mut self, at: usize) {
        while let Some((ask, session, share)) = self.locks[at].queue.first().copied() {
            let Some(slot) = self.locks[at].room(share) else { return };
            let lock = &mut self.locks[at];
            lock.queue.remove(0);
            lock.share = share;
            lock.places.push(Place { slot, ..Place::default() });
            lock.places.sort_by_key(|place| place.slot);
            self.grant(at, slot, ask, session);
        }
    }

    fn grant(&mut self, at: usize, slot: u32, ask: u128, session: u128) -> u64 {
        self.fence += 1;
        let granted = Granted { ask, session, fence: self.fence, slot };
        self.locks[at].at(slot).holder = Some(granted);
        self.locks[at].grants.push(granted);
        self.fence
    }

    fn release(&mut self, at: usize, grant: Granted, ok: bool) -> Answer {
        let Some(session) = self.sessions.get(&grant.session) else { return Answer::Refused("SESSION_NOT_FOUND") };
        let is_over = session.ended.is_some();
        if self.locks[at].holder_of(grant.ask) == Some(grant) {
            let due = &mut self.locks[at].at(grant.slot).due;
            *due = due.filter(|_| !ok);
            self.end_grant(at, grant, Some(ok));
            self.serve(at);
            return Answer::Done(true);
        }
        match self.locks[at].last {
            Some((last, Some(before))) if last == grant && before == ok => Answer::Done(false),
            _ if is_over => Answer::Refused("SESSION_ENDED"),
            _ => Answer::Refused("FENCE_PASSED"),
        }
    }

    fn leave(&mut self, session: u128, ask: u128) -> Answer {
        if let Some(refusal) = self.refusal(session) {
            return refusal;
        }
        for at in 0..3 {
            if let Some(holder) = self.locks[at].holder_of(ask) {
                if holder.session != session {
                    return Answer::Refused("ASK_REUSED");
                }
                // The cleaner never learnt of its cleanup, so it does not count.
                let due = &mut self.locks[at].at(holder.slot).due;
                *due = due.map(|(fence, attempts)| (fence, attempts - 1));
                self.end_grant(at, holder, None);
                self.serve(at);
                return Answer::Done(true);
            }
            let lock = &mut self.locks[at];
            if let Some(place) = lock.queue.iter().position(|(id, ..)| *id == ask) {
                if lock.queue[place].1 != session {
                    return Answer::Refused("ASK_REUSED");
                }
                lock.queue.remove(place);
                // Those behind may share the lock, though the one that leaves could not.
                self.serve(at);
                return Answer::Done(true);
            }
        }
        Answer::Done(false)
    }

    fn force(&mut self, (at, number): (usize, usize), at_once: bool) -> Answer {
        let place = self.locks[at].place(number);
        match (place.holder, place.withheld) {
            (Some(holder), _) => {
                self.died(at, holder);
                self.locks[at].at(place.slot).withheld = (!at_once).then_some(holder.fence);
                self.end_grant(at, holder, None);
                self.serve(at);
                Answer::Done(true)
            }
            (None, Some(_)) if at_once => {
                self.pass_on(at, place.slot);
                Answer::Done(true)
            }
            (None, Some(_)) => Answer::Done(false),
            (None, None) => Answer::Refused("FENCE_PASSED"),
        }
    }

    fn elapse(&mut self, (at, number): (usize, usize), enough: bool) -> Answer {
        let place = self.locks[at].place(number);
        match place.withheld {
            None => Answer::Refused("FENCE_PASSED"),
            Some(_) if !enough => Answer::Refused("LOCK_WITHHELD"),
            Some(_) => {
                self.pass_on(at, place.slot);
                Answer::Done(true)
            }
        }
    }

    fn forget_lock(&mut self, at: usize) -> Answer {
        let lock = &mut self.locks[at];
        let is_forgotten = lock.is_known && lock.places.is_empty();
        if is_forgotten {
            (lock.last, lock.is_known) = (None, false);
        }
        Answer::Done(is_forgotten)
    }
}
