//! A service of sessions and locks in memory: the engine with its reference store. It contains no
//! rule of the protocol and reads no clock.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use leasehold_core::lease::Fence;
use leasehold_core::lock::{
    Ask, AskId, AskState, Grant, GrantEnd, Lock, LockPath, LockState, LockValue, MAX_CLEANUPS, check_wait,
};
use leasehold_core::locking::acquire::{Acquire, acquire};
use leasehold_core::locking::elapse::{Elapse, elapse};
use leasehold_core::locking::end::{Cause, End, Silence, end};
use leasehold_core::locking::force::{Force, force};
use leasehold_core::locking::leave::{Leave, leave};
use leasehold_core::locking::open::{Open, open};
use leasehold_core::locking::reap::{Reap, offered, reap};
use leasehold_core::locking::release::{Release, ReleaseOutcome, release};
use leasehold_core::locking::renew::{Renew, renew};
use leasehold_core::locking::resolve::{Resolve, resolve};
use leasehold_core::locking::scan::{LockList, LockScan, is_within};
use leasehold_core::memory::MemoryStore;
use leasehold_core::observer::{Observer, Renewal};
use leasehold_core::rejection::{Detail, Reason, Rejection};
use leasehold_core::rows::{Changes, OrderedRead};
use leasehold_core::session::{Principal, Session, SessionId, Terms};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::Transaction;
use uuid::Uuid;

use crate::error::{DetailedError, decision, or_internal};

pub use leasehold_core::division::ShareMode;
pub use leasehold_core::locking::acquire::Acquired;
pub use leasehold_core::locking::resolve::Resolution;

/// A service of sessions and locks in memory, for the processes of one service.
///
/// Time does not pass by itself. The caller says that a session was silent, or that the time of a
/// lock's former holder is over; the engine then decides as for a server that observed it.
#[derive(Clone, Debug)]
pub struct LockService {
    store: MemoryStore,
    // Keeps which grants an operator took, for the answers to renewals. Its ticks stand still.
    observer: Observer,
    principal: Principal,
    // The namespaces that are reaped, with the most cleanups after a death.
    reaped: Vec<(String, NonZeroU32)>,
}

/// A lock in the form that reads return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRecord {
    /// The name of the lock.
    pub path: LockPath,
    /// The row of the lock.
    pub lock: Lock,
}

impl LockRecord {
    /// Returns the name of the lock's state on the wire.
    pub fn state(&self) -> &'static str {
        match self.lock.state {
            LockState::Free => "FREE",
            LockState::Held(_) => "HELD",
            LockState::Withheld(_) => "WITHHELD",
            LockState::Orphaned if self.lock.is_exhausted() => "SET_ASIDE",
            LockState::Orphaned => "ORPHANED",
            LockState::Divided(_) => "SHARED",
        }
    }

    /// Returns the fence of the grant, or of the grant that was taken away; 0 if the lock is free.
    pub const fn fence(&self) -> u64 {
        match self.lock.state {
            LockState::Free | LockState::Orphaned | LockState::Divided(_) => 0,
            LockState::Held(grant) => grant.fence.0,
            LockState::Withheld(withholding) => withholding.fence.0,
        }
    }

    /// Returns the number of slots that are taken, and the number of permits: 0 if asks share the lock as
    /// readers do. Both are 0 if the lock is not shared.
    pub fn division(&self) -> (u32, u32) {
        match &self.lock.state {
            LockState::Divided(division) => (division.taken(), division.share.number().into()),
            _ => (0, 0),
        }
    }

    /// Returns the session that holds the lock; `None` if none does.
    pub fn session(&self) -> Option<Uuid> {
        self.lock.grant().map(|grant| grant.session.0)
    }

    /// Returns the name on the wire of the way in which the last grant ended; `None` before the
    /// first end.
    pub fn last_end(&self) -> Option<&'static str> {
        Some(end_name(self.lock.last.as_ref()?.end))
    }

    /// Returns the name on the wire of the end of the grant whose cleanup is due; `None` if none is.
    pub fn obituary_end(&self) -> Option<&'static str> {
        Some(end_name(self.lock.obituary?.end))
    }
}

const fn end_name(end: GrantEnd) -> &'static str {
    match end {
        GrantEnd::Succeeded => "SUCCEEDED",
        GrantEnd::Failed => "FAILED",
        GrantEnd::Left => "LEFT",
        GrantEnd::Closed => "CLOSED",
        GrantEnd::Expired => "EXPIRED",
        GrantEnd::Evicted => "EVICTED",
        GrantEnd::Forced => "FORCED",
    }
}

/// A page of locks that are not free, in the order of their paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRecords {
    /// The locks of this page.
    pub locks: Vec<LockRecord>,
    /// True if there are more locks after this page.
    pub truncated: bool,
}

/// A release of a lock by its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseRequest<'a> {
    /// The fence of the grant that ends.
    pub fence: u64,
    /// True if the work under the lock failed.
    pub failed: bool,
    /// The value for the readers of the lock.
    pub value: &'a [u8],
}

impl LockService {
    /// Returns a service without sessions, for the processes of the service `principal`.
    ///
    /// # Errors
    /// The name of the principal is malformed.
    pub fn new(principal: &str) -> Result<Self, DetailedError> {
        let principal = Principal::parse(principal)?;
        // A tick of 0 lets no time pass, so a taken grant is told for as long as its session lives.
        Ok(Self { store: MemoryStore::default(), observer: Observer::new(0), principal, reaped: Vec::new() })
    }

    /// Makes the locks of a namespace, and of the namespaces in it, wait for a cleanup after the death of
    /// a holder (K17). The first call that names a namespace counts.
    ///
    /// # Errors
    /// The namespace is malformed, or the number of attempts is out of bounds.
    pub fn reap_namespace(&mut self, namespace: &str, attempts: u32) -> Result<(), DetailedError> {
        LockScan::parse(namespace, 0, None)?;
        let attempts = NonZeroU32::new(attempts).filter(|attempts| attempts.get() <= MAX_CLEANUPS);
        let Some(attempts) = attempts else { return Err(Rejection::whole(Reason::InvalidUpdate, Detail::None).into()) };
        self.reaped.push((namespace.to_owned(), attempts));
        Ok(())
    }

    /// Makes the fences of later grants larger than this one, so that they are also larger than those
    /// of another service.
    ///
    /// # Errors
    /// The state contradicts itself, which is a defect.
    pub fn skip_fences(&mut self, fence: u64) -> Result<(), DetailedError> {
        let newest = or_internal(self.store.last_fence())?.max(Fence(fence));
        or_internal(self.store.write(Changes { fence: Some(newest), ..Changes::default() }))
    }

    /// Opens a session. Returns false if an earlier call opened it.
    ///
    /// # Errors
    /// The terms are outside the published bounds, or the engine refuses the session.
    pub fn open(
        &mut self,
        session: Uuid,
        duration_micros: u64,
        grace_micros: u64,
        now: Timestamp,
    ) -> Result<bool, DetailedError> {
        let terms = Terms::parse(duration_micros, grace_micros)?;
        let session = SessionId(session);
        let command = Open { session, principal: self.principal.clone(), terms };
        let is_new = decision(open(&mut self.store, &command, now))?;
        if is_new {
            self.observer.watch(session, terms, 0);
        }
        Ok(is_new)
    }

    /// Renews a session (K02). Returns the fences of its grants that an operator has taken (K20).
    ///
    /// # Errors
    /// The session is unknown or has ended.
    pub fn renew(&mut self, session: Uuid, now: Timestamp) -> Result<Vec<u64>, DetailedError> {
        let session = SessionId(session);
        if self.observer.renew(session) != Renewal::Renewed {
            let command = Renew { session, principal: self.principal.clone() };
            decision(renew(&mut self.store, &command, now))?;
        }
        Ok(self.observer.forced(session).map(|fence| fence.0).collect())
    }

    /// Closes a session (K09). Returns false if it was closed before.
    ///
    /// # Errors
    /// The session is unknown, or has ended in another way.
    pub fn close(&mut self, session: Uuid, now: Timestamp) -> Result<bool, DetailedError> {
        self.end(session, Cause::Close(self.principal.clone()), now)
    }

    /// Expires a session that was silent for its duration and grace (K06). Returns false if it had
    /// expired before.
    ///
    /// # Errors
    /// The session is unknown, or has ended in another way.
    pub fn expire(&mut self, session: Uuid, now: Timestamp) -> Result<bool, DetailedError> {
        let row = or_internal(self.store.row::<Session>(&SessionId(session)))?;
        let silence = row.map(|row| Silence { renewals_seen: row.renewals, quiet_micros: row.terms.silence_micros() });
        let silence = silence.unwrap_or(Silence { renewals_seen: 0, quiet_micros: u64::MAX });
        self.end(session, Cause::Silence(silence), now)
    }

    fn end(&mut self, session: Uuid, cause: Cause, now: Timestamp) -> Result<bool, DetailedError> {
        let session = SessionId(session);
        let has_ended = decision(end(&mut self.store, &End { session, cause }, now))?;
        self.observer.unwatch(session);
        Ok(has_ended)
    }

    /// Acquires a lock (K01), alone or as a share of it (K13). A wait of 0 is for now or never. An ask that
    /// waits learns of its grant by the same call again, which gets the same grant or the place in the
    /// queue (K05).
    ///
    /// # Errors
    /// The wait is too long, the path is that of a slot, or the engine refuses the acquire.
    pub fn acquire(
        &mut self,
        session: Uuid,
        ask: Uuid,
        path: LockPath,
        share: Option<ShareMode>,
        wait_micros: u64,
        now: Timestamp,
    ) -> Result<Acquired, DetailedError> {
        check_wait(wait_micros)?;
        if path.slot() > 0 {
            let message = "`lock.slot` is not 0: an ask names the lock, and gets a slot that is free";
            return Err(DetailedError::new("INVALID_UPDATE", message));
        }
        let (session, ask, principal) = (SessionId(session), AskId(ask), self.principal.clone());
        let reaped = self.reaped.iter().find(|(namespace, _)| is_within(path.namespace(), namespace));
        let reaped = reaped.map(|(_, attempts)| *attempts);
        let command =
            Acquire { session, principal, ask, lock: path, share, held: Vec::new(), wait: wait_micros > 0, reaped };
        let acquired = decision(acquire(&mut self.store, &command, now))?;
        // An ask that an earlier call left waiting is not served now.
        match acquired {
            Acquired::Waiting(_) if !command.wait => Err(Rejection::whole(Reason::LockHeld, Detail::None).into()),
            acquired => Ok(acquired),
        }
    }

    /// Acquires an orphaned lock of a namespace or of the namespaces in it for its cleanup (K17); `None`
    /// if none is orphaned. The same ask gets the same lock again. A cleanup that has failed is offered
    /// at once, because no time passes here.
    ///
    /// # Errors
    /// The namespace is malformed, or the session is unknown or has ended.
    pub fn reap(
        &mut self,
        session: Uuid,
        ask: Uuid,
        namespace: &str,
        now: Timestamp,
    ) -> Result<Option<LockRecord>, DetailedError> {
        if namespace.is_empty() {
            let message = "`namespace` is empty: name the namespace whose locks are cleaned up";
            return Err(DetailedError::new("INVALID_UPDATE", message));
        }
        let scan = LockScan::parse(namespace, 0, None)?;
        self.renew(session, now)?;
        let (session, ask, principal) = (SessionId(session), AskId(ask), self.principal.clone());
        let held = or_internal(self.store.row::<Ask>(&ask))?.filter(|held| held.session == session);
        if let Some(Ask { lock, state: AskState::Holding(_), .. }) = held.cloned() {
            return self.lock(&lock);
        }
        let read = OrderedRead { limit: usize::MAX, ..scan.read(LockList::Orphaned, None) };
        let mut orphaned = or_internal(Store::locks(&self.store, &read))?;
        orphaned.retain(|(path, _)| scan.contains(path));
        let Some((lock, _, obituary)) = offered(orphaned, Timestamp::MAX).due.into_iter().next() else {
            return Ok(None);
        };
        let command = Reap { session, principal, ask, lock, fence: obituary.fence };
        decision(reap(&mut self.store, &command, now))?;
        self.lock(&command.lock)
    }

    /// Resolves an orphaned lock (K17). Returns false if nothing was to be done.
    ///
    /// # Errors
    /// The lock waits for no cleanup after the grant of this fence.
    pub fn resolve(
        &mut self,
        path: LockPath,
        fence: u64,
        resolution: Resolution,
        now: Timestamp,
    ) -> Result<bool, DetailedError> {
        let command = Resolve { lock: path, fence: Fence(fence), resolution };
        decision(resolve(&mut self.store, &command, now))
    }

    /// Ends an ask (K10). Returns false if it is unknown or has ended.
    ///
    /// # Errors
    /// The session is unknown or has ended, or the ask is another session's.
    pub fn leave(&mut self, session: Uuid, ask: Uuid, now: Timestamp) -> Result<bool, DetailedError> {
        let command = Leave { session: SessionId(session), principal: self.principal.clone(), ask: AskId(ask) };
        decision(leave(&mut self.store, &command, now))
    }

    /// Releases a lock (K03). Returns false if an earlier call released it.
    ///
    /// # Errors
    /// The value is too long, or the session does not hold the lock under this fence.
    pub fn release(
        &mut self,
        session: Uuid,
        path: LockPath,
        request: ReleaseRequest<'_>,
        now: Timestamp,
    ) -> Result<bool, DetailedError> {
        let command = Release {
            session: SessionId(session),
            principal: self.principal.clone(),
            lock: path,
            fence: Fence(request.fence),
            outcome: if request.failed { ReleaseOutcome::Failed } else { ReleaseOutcome::Succeeded },
            value: LockValue::parse(request.value)?,
        };
        decision(release(&mut self.store, &command, now))
    }

    /// Takes a lock, or a slot of it, from its holder (K20). Returns false if it is withheld under this fence
    /// already.
    ///
    /// # Errors
    /// The lock is not held under this fence.
    pub fn force(&mut self, path: LockPath, fence: u64, at_once: bool, now: Timestamp) -> Result<bool, DetailedError> {
        let before = self.rows_of(&path)?;
        let command = Force { lock: path, fence: Fence(fence), at_once };
        let is_taken = decision(force(&mut self.store, &command, now))?;
        for (before, after) in before.iter().zip(self.rows_of(&command.lock)?) {
            if let Some(grant) = Lock::newly_forced(before.as_ref(), after.as_ref()) {
                self.tell_forced(*grant);
            }
        }
        Ok(is_taken)
    }

    /// Returns the row at a path, and that of its lock: a slot that is free again has no row, and its lock
    /// keeps the last end.
    fn rows_of(&self, path: &LockPath) -> Result<[Option<Lock>; 2], DetailedError> {
        Ok([or_internal(self.store.lock(path))?, or_internal(self.store.lock(&path.base()))?])
    }

    /// Notes a grant for the answers to its session's renewals, once.
    fn tell_forced(&mut self, grant: Grant) {
        if self.observer.forced(grant.session).all(|fence| fence != grant.fence) {
            self.observer.force(grant.session, grant.fence);
        }
    }

    /// Ends the withholding of a lock, because the time of its former holder is over (K20). Returns
    /// false if the lock is not withheld.
    ///
    /// # Errors
    /// The state contradicts itself, which is a defect.
    pub fn elapse(&mut self, path: LockPath, now: Timestamp) -> Result<bool, DetailedError> {
        let lock = or_internal(self.store.lock(&path))?;
        let Some(LockState::Withheld(withholding)) = lock.map(|lock| lock.state) else { return Ok(false) };
        let command = Elapse { lock: path, fence: withholding.fence, quiet_micros: withholding.silence_micros };
        decision(elapse(&mut self.store, &command, now))
    }

    /// Returns a lock; `None` if nobody has held it.
    ///
    /// # Errors
    /// The state contradicts itself, which is a defect.
    pub fn lock(&self, path: &LockPath) -> Result<Option<LockRecord>, DetailedError> {
        let lock = or_internal(self.store.lock(path))?;
        Ok(lock.map(|lock| LockRecord { path: path.clone(), lock }))
    }

    /// Returns a page of the locks of a namespace and of the namespaces in it that are held or
    /// withheld (K16). An empty namespace stands for all, and a limit of 0 for the default.
    ///
    /// # Errors
    /// The namespace is malformed, or the limit is too large.
    pub fn locks(&self, namespace: &str, limit: u32, after: Option<LockPath>) -> Result<LockRecords, DetailedError> {
        let scan = LockScan::parse(namespace, limit, after)?;
        let mut found = BTreeMap::new();
        for list in LockList::ALL {
            // The store is in memory, so the list is read to its end instead of in parts.
            let read = OrderedRead { limit: usize::MAX, ..scan.read(list, None) };
            found.extend(
                or_internal(Store::locks(&self.store, &read))?.into_iter().filter(|(path, _)| scan.contains(path)),
            );
        }
        let truncated = found.len() > scan.limit();
        let locks = found.into_iter().take(scan.limit()).map(|(path, lock)| LockRecord { path, lock });
        Ok(LockRecords { locks: locks.collect(), truncated })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use leasehold_core::locking::HeldSlot;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000);
    const HOLDER: Uuid = Uuid::from_u128(1);
    const WAITER: Uuid = Uuid::from_u128(2);

    fn path() -> LockPath {
        LockPath::parse_joined("user.update", "7").unwrap()
    }

    fn ask(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn holding(fence: u64) -> Acquired {
        Acquired::Holding(HeldSlot { fence: Fence(fence), slot: 0 })
    }

    /// Returns a service in which one session holds the lock under the fence 1 and another waits.
    fn contended() -> LockService {
        let mut service = LockService::new("test").unwrap();
        for session in [HOLDER, WAITER] {
            assert_eq!(service.open(session, 15_000_000, 5_000_000, NOW), Ok(true));
        }
        assert_eq!(service.acquire(HOLDER, ask(10), path(), None, 0, NOW), Ok(holding(1)));
        assert_eq!(service.acquire(WAITER, ask(20), path(), None, 1, NOW), Ok(Acquired::Waiting(0)));
        service
    }

    fn grant_of_waiter(service: &mut LockService) -> Acquired {
        service.acquire(WAITER, ask(20), path(), None, 1, NOW).unwrap()
    }

    fn last_end(service: &LockService) -> Option<&'static str> {
        service.lock(&path()).unwrap().and_then(|record| record.last_end())
    }

    #[test]
    fn k01_k03_k05_a_lock_passes_from_its_holder_to_the_ask_that_waits() {
        let mut service = contended();
        assert_eq!(service.acquire(WAITER, ask(21), path(), None, 0, NOW).unwrap_err().code, "LOCK_HELD");
        assert_eq!(service.acquire(WAITER, ask(20), path(), None, 0, NOW).unwrap_err().code, "LOCK_HELD");
        let request = ReleaseRequest { fence: 1, failed: false, value: b"done" };
        assert_eq!(service.release(HOLDER, path(), request, NOW), Ok(true));
        assert_eq!(grant_of_waiter(&mut service), holding(2));
        let page = service.locks("user", 0, None).unwrap();
        let record = page.locks.first().unwrap();
        assert_eq!((record.state(), record.fence(), record.session()), ("HELD", 2, Some(WAITER)));
        assert_eq!((record.last_end(), page.truncated), (Some("SUCCEEDED"), false));
        assert_eq!(service.leave(WAITER, ask(20), NOW), Ok(true));
        assert_eq!(service.locks("", 1, None).unwrap().locks, []);
    }

    #[test]
    fn k06_a_silent_session_expires_and_renews_no_more() {
        let mut service = contended();
        assert_eq!(service.expire(HOLDER, NOW), Ok(true));
        assert_eq!((grant_of_waiter(&mut service), last_end(&service)), (holding(2), Some("EXPIRED")));
        assert_eq!(service.renew(HOLDER, NOW).unwrap_err().code, "SESSION_ENDED");
        assert_eq!(service.renew(WAITER, NOW), Ok(vec![]));
        assert_eq!(service.expire(Uuid::nil(), NOW).unwrap_err().code, "SESSION_NOT_FOUND");
        assert_eq!((service.close(WAITER, NOW), last_end(&service)), (Ok(true), Some("CLOSED")));
    }

    #[test]
    fn k20_a_taken_lock_is_withheld_until_its_time_is_over_and_its_holder_is_told() {
        let mut service = contended();
        assert_eq!(service.elapse(path(), NOW), Ok(false));
        assert_eq!(service.force(path(), 2, false, NOW).unwrap_err().code, "FENCE_PASSED");
        assert_eq!(service.force(path(), 1, false, NOW), Ok(true));
        assert_eq!(service.lock(&path()).unwrap().map(|record| record.state()), Some("WITHHELD"));
        assert_eq!((service.renew(HOLDER, NOW), service.renew(WAITER, NOW)), (Ok(vec![1]), Ok(vec![])));
        assert_eq!(grant_of_waiter(&mut service), Acquired::Waiting(0));
        assert_eq!(service.elapse(path(), NOW), Ok(true));
        assert_eq!(grant_of_waiter(&mut service), holding(2));
        assert_eq!(service.force(path(), 2, true, NOW), Ok(true));
        assert_eq!((service.lock(&path()).unwrap().unwrap().state(), last_end(&service)), ("FREE", Some("FORCED")));
    }

    #[test]
    fn k13_k20_each_holder_of_a_permit_has_a_slot_which_an_operator_takes_alone() {
        let mut service = LockService::new("test").unwrap();
        service.open(HOLDER, 15_000_000, 5_000_000, NOW).unwrap();
        service.open(WAITER, 15_000_000, 5_000_000, NOW).unwrap();
        let two = ShareMode::parse(false, 2).unwrap();
        let slot = |number| path().at_slot(number).unwrap();
        let held = |fence, slot| Ok(Acquired::Holding(HeldSlot { fence: Fence(fence), slot }));
        assert_eq!(service.acquire(HOLDER, ask(1), path(), two, 0, NOW), held(1, 1));
        assert_eq!(service.acquire(WAITER, ask(2), path(), two, 0, NOW), held(2, 2));
        assert_eq!(service.acquire(WAITER, ask(3), path(), two, 0, NOW).unwrap_err().code, "LOCK_HELD");
        let record = service.lock(&path()).unwrap().unwrap();
        assert_eq!((record.state(), record.fence(), record.division()), ("SHARED", 0, (2, 2)));
        assert_eq!(service.force(slot(1), 1, false, NOW), Ok(true));
        assert_eq!(service.lock(&slot(1)).unwrap().map(|record| record.state()), Some("WITHHELD"));
        // The row of a slot that is free again goes. Its former holder is told all the same, and once.
        assert_eq!(service.force(slot(1), 1, true, NOW), Ok(true));
        assert_eq!((service.renew(HOLDER, NOW), service.renew(WAITER, NOW)), (Ok(vec![1]), Ok(vec![])));
        assert_eq!(service.force(slot(2), 2, true, NOW), Ok(true));
        assert_eq!((service.lock(&slot(2)), service.renew(WAITER, NOW)), (Ok(None), Ok(vec![2])));
        assert_eq!(service.acquire(WAITER, ask(4), slot(1), two, 0, NOW).unwrap_err().code, "INVALID_UPDATE");
    }

    #[test]
    fn k17_a_reaped_lock_waits_for_its_cleanup_which_comes_until_it_is_set_aside() {
        let mut service = LockService::new("test").unwrap();
        service.reap_namespace("user", 2).unwrap();
        for session in [HOLDER, WAITER] {
            service.open(session, 15_000_000, 5_000_000, NOW).unwrap();
        }
        service.acquire(HOLDER, ask(10), path(), None, 0, NOW).unwrap();
        assert_eq!(service.reap(WAITER, ask(30), "user", NOW), Ok(None));
        service.expire(HOLDER, NOW).unwrap();
        let state = |service: &LockService| service.lock(&path()).unwrap().unwrap().state();
        let release = |service: &mut LockService, fence, failed| {
            service.release(WAITER, path(), ReleaseRequest { fence, failed, value: b"" }, NOW)
        };
        assert_eq!(state(&service), "ORPHANED");
        assert_eq!(service.reap(WAITER, ask(30), "use", NOW), Ok(None));
        let first = service.reap(WAITER, ask(30), "user", NOW).unwrap().unwrap();
        assert_eq!(service.reap(WAITER, ask(30), "user", NOW), Ok(Some(first.clone())));
        assert_eq!(
            (first.fence(), first.obituary_end(), first.lock.obituary.unwrap().attempts),
            (2, Some("EXPIRED"), 1)
        );
        assert_eq!(release(&mut service, 2, true), Ok(true));
        assert_eq!(
            service.reap(WAITER, ask(31), "user.update", NOW).unwrap().unwrap().lock.obituary.unwrap().attempts,
            2
        );
        assert_eq!(release(&mut service, 3, true), Ok(true));
        assert_eq!((state(&service), service.reap(WAITER, ask(32), "user", NOW)), ("SET_ASIDE", Ok(None)));
        assert_eq!(service.resolve(path(), 2, Resolution::Retry, NOW).unwrap_err().code, "FENCE_PASSED");
        assert_eq!(service.resolve(path(), 1, Resolution::Retry, NOW), Ok(true));
        assert_eq!(state(&service), "ORPHANED");
        assert_eq!(service.resolve(path(), 1, Resolution::Cleaned, NOW), Ok(true));
        assert_eq!(state(&service), "FREE");
        assert_eq!(service.reap(HOLDER, ask(33), "user", NOW).unwrap_err().code, "SESSION_ENDED");
    }

    #[test]
    fn k05_fences_are_larger_than_those_that_were_skipped() {
        let mut service = contended();
        service.skip_fences(100).unwrap();
        service.skip_fences(50).unwrap();
        let mut copy = service.clone();
        copy.close(HOLDER, NOW).unwrap();
        assert_eq!(grant_of_waiter(&mut copy), holding(101));
        assert_eq!(grant_of_waiter(&mut service), Acquired::Waiting(0));
    }

    #[test]
    fn k21_limits_are_those_of_a_server() {
        let mut service = LockService::new("test").unwrap();
        assert_eq!(service.open(HOLDER, 1, 1, NOW).unwrap_err().code, "INVALID_UPDATE");
        assert_eq!(service.acquire(HOLDER, ask(1), path(), None, u64::MAX, NOW).unwrap_err().code, "LIMIT_EXCEEDED");
        assert_eq!(service.locks("", 1_001, None).unwrap_err().code, "LIMIT_EXCEEDED");
        assert!(LockService::new("").is_err());
        assert_eq!(service.reap(HOLDER, ask(1), "", NOW).unwrap_err().code, "INVALID_UPDATE");
        for (namespace, attempts) in [("a..b", 1), ("a", 0), ("a", MAX_CLEANUPS + 1)] {
            assert_eq!(service.reap_namespace(namespace, attempts).unwrap_err().code, "INVALID_UPDATE");
        }
    }
}
