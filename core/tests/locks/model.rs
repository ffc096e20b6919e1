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
        wait: bool,
    },
    /// Releases the grant of the lock that is `age / 3` grants older than the newest one.
    Release {
        lock: usize,
        ok: bool,
        age: u8,
    },
    Leave(u128, u128),
    /// The lock, and true if it passes on at once.
    Force(usize, bool),
    Elapse(usize, bool),
    /// The session, the ask and the orphaned lock.
    Reap(u128, u128, usize),
    /// The orphaned lock, and true if the operator has cleaned up.
    Resolve(usize, bool),
    ForgetLock(usize),
    ForgetSession(u128),
}

/// The answer to a step: its result, or the code of the refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done(bool),
    Renewed(u64),
    Holding(u64),
    /// The ask waits, and this many asks wait before it.
    Waiting(u32),
    Refused(&'static str),
}

/// The most cleanups of each lock; `None` if the lock is not reaped.
pub(crate) const MOST_CLEANUPS: [Option<u32>; 3] = [None, Some(1), Some(2)];

/// A grant: the ask, its session and its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub ask: u128,
    pub session: u128,
    pub fence: u64,
}

/// The last grant that ended, and true if its holder released it as succeeded, false as failed;
/// `None` if it ended in another way.
type Last = (Granted, Option<bool>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    pub holder: Option<Granted>,
    /// The fence of the grant that an operator took away.
    pub withheld: Option<u64>,
    pub queue: Vec<(u128, u128)>,
    pub last: Option<Last>,
    pub grants: Vec<Granted>,
    /// The fence of the grant whose cleanup is due, and the number of cleanups begun.
    pub due: Option<(u64, u32)>,
    is_known: bool,
}

impl Lock {
    pub(crate) fn is_orphaned(&self) -> bool {
        self.due.is_some() && self.holder.is_none() && self.withheld.is_none()
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

    /// Returns the fence that a force or elapse step names: that of the holder, or of the former
    /// holder if the lock is withheld.
    pub(crate) fn fence_to_take(&self, lock: usize) -> u64 {
        let lock = &self.locks[lock];
        lock.holder.map(|holder| holder.fence).or(lock.withheld).unwrap_or(0)
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
            Step::Acquire { session, ask, lock, wait } => self.acquire(session, ask, lock, wait),
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
            self.locks[lock].queue.retain(|(_, session)| *session != id);
            if let Some(holder) = self.locks[lock].holder.filter(|holder| holder.session == id) {
                self.locks[lock].last = Some((holder, None));
                self.locks[lock].holder = None;
                self.died(lock, holder);
                if how == "evicted" {
                    self.locks[lock].withheld = Some(holder.fence);
                } else {
                    self.serve(lock);
                }
            }
        }
        Answer::Done(true)
    }

    /// Notes that a holder ended without a report.
    fn died(&mut self, at: usize, holder: Granted) {
        let due = &mut self.locks[at].due;
        *due = due.or(MOST_CLEANUPS[at].map(|_| (holder.fence, 0)));
    }

    fn reap(&mut self, session: u128, ask: u128, at: usize) -> Answer {
        if let Some(refusal) = self.refusal(session) {
            return refusal;
        }
        for (number, lock) in self.locks.iter().enumerate() {
            if let Some(holder) = lock.holder.filter(|holder| holder.ask == ask) {
                let is_same = (number, holder.session) == (at, session);
                return if is_same { Answer::Holding(holder.fence) } else { Answer::Refused("ASK_REUSED") };
            }
            if lock.queue.iter().any(|(id, _)| *id == ask) {
                return Answer::Refused("ASK_REUSED");
            }
        }
        let lock = &mut self.locks[at];
        let (true, Some((_, attempts))) = (lock.is_orphaned(), &mut lock.due) else {
            return Answer::Refused("FENCE_PASSED");
        };
        if *attempts == MOST_CLEANUPS[at].unwrap() {
            return Answer::Refused("FENCE_PASSED");
        }
        if lock.last.is_some_and(|(last, _)| last.ask == ask) {
            return Answer::Refused("ASK_REUSED");
        }
        *attempts += 1;
        Answer::Holding(self.grant(at, ask, session))
    }

    fn resolve(&mut self, at: usize, cleaned: bool) -> Answer {
        let lock = &mut self.locks[at];
        let (true, Some((_, attempts))) = (lock.is_orphaned(), &mut lock.due) else {
            return Answer::Refused("FENCE_PASSED");
        };
        if !cleaned {
            return Answer::Done(std::mem::take(attempts) > 0);
        }
        lock.due = None;
        self.serve(at);
        Answer::Done(true)
    }

    fn acquire(&mut self, session: u128, ask: u128, at: usize, wait: bool) -> Answer {
        if let Some(refusal) = self.refusal(session) {
            return refusal;
        }
        for (number, lock) in self.locks.iter().enumerate() {
            let holder = lock.holder.filter(|holder| holder.ask == ask);
            let place = lock.queue.iter().position(|(id, _)| *id == ask);
            let owner = holder.map(|holder| holder.session).or_else(|| place.map(|place| lock.queue[place].1));
            match owner {
                None => {}
                Some(owner) if (owner, number) != (session, at) => return Answer::Refused("ASK_REUSED"),
                Some(_) => {
                    let waiting = place.map(|place| Answer::Waiting(place as u32));
                    return holder.map(|holder| Answer::Holding(holder.fence)).or(waiting).unwrap();
                }
            }
        }
        let lock = &mut self.locks[at];
        if lock.last.is_some_and(|(last, _)| last.ask == ask) {
            return Answer::Refused("ASK_REUSED");
        }
        let is_free = lock.holder.is_none() && lock.withheld.is_none() && lock.due.is_none();
        if !is_free && !wait {
            return Answer::Refused("LOCK_HELD");
        }
        lock.queue.push((ask, session));
        let before = lock.queue.len() as u32 - 1;
        match is_free {
            true => Answer::Holding(self.serve(at).unwrap()),
            false => Answer::Waiting(before),
        }
    }

    fn serve(&mut self, at: usize) -> Option<u64> {
        self.locks[at].is_known = true;
        if self.locks[at].queue.is_empty() || self.locks[at].due.is_some() {
            return None;
        }
        let (ask, session) = self.locks[at].queue.remove(0);
        Some(self.grant(at, ask, session))
    }

    fn grant(&mut self, at: usize, ask: u128, session: u128) -> u64 {
        self.fence += 1;
        let granted = Granted { ask, session, fence: self.fence };
        self.locks[at].holder = Some(granted);
        self.locks[at].grants.push(granted);
        self.fence
    }

    fn release(&mut self, at: usize, grant: Granted, ok: bool) -> Answer {
        let Some(session) = self.sessions.get(&grant.session) else { return Answer::Refused("SESSION_NOT_FOUND") };
        let is_over = session.ended.is_some();
        let lock = &mut self.locks[at];
        if lock.holder == Some(grant) {
            (lock.holder, lock.last) = (None, Some((grant, Some(ok))));
            lock.due = lock.due.filter(|_| !ok);
            self.serve(at);
            return Answer::Done(true);
        }
        match lock.last {
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
            let lock = &mut self.locks[at];
            if let Some(holder) = lock.holder.filter(|holder| holder.ask == ask) {
                if holder.session != session {
                    return Answer::Refused("ASK_REUSED");
                }
                (lock.holder, lock.last) = (None, Some((holder, None)));
                // The cleaner never learnt of its cleanup, so it does not count.
                lock.due = lock.due.map(|(fence, attempts)| (fence, attempts - 1));
                self.serve(at);
                return Answer::Done(true);
            }
            if let Some(place) = lock.queue.iter().position(|(id, _)| *id == ask) {
                if lock.queue[place].1 != session {
                    return Answer::Refused("ASK_REUSED");
                }
                lock.queue.remove(place);
                return Answer::Done(true);
            }
        }
        Answer::Done(false)
    }

    fn force(&mut self, at: usize, at_once: bool) -> Answer {
        let lock = &mut self.locks[at];
        match (lock.holder, lock.withheld) {
            (Some(holder), _) => {
                lock.last = Some((holder, None));
                (lock.holder, lock.withheld) = (None, Some(holder.fence));
                self.died(at, holder);
                if at_once { self.elapse(at, true) } else { Answer::Done(true) }
            }
            (None, Some(_)) if at_once => self.elapse(at, true),
            (None, Some(_)) => Answer::Done(false),
            (None, None) => Answer::Refused("FENCE_PASSED"),
        }
    }

    fn elapse(&mut self, at: usize, enough: bool) -> Answer {
        match self.locks[at].withheld {
            None => Answer::Refused("FENCE_PASSED"),
            Some(_) if !enough => Answer::Refused("LOCK_WITHHELD"),
            Some(_) => {
                self.locks[at].withheld = None;
                self.serve(at);
                Answer::Done(true)
            }
        }
    }

    fn forget_lock(&mut self, at: usize) -> Answer {
        let lock = &mut self.locks[at];
        let is_forgotten = lock.is_known && lock.holder.is_none() && lock.withheld.is_none() && lock.due.is_none();
        if is_forgotten {
            (lock.last, lock.is_known) = (None, false);
        }
        Answer::Done(is_forgotten)
    }
}
