//! The service `LockService`: acquires, releases and shows locks.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use leasehold_core::command::{Command, Reply};
use leasehold_core::division::ShareMode;
use leasehold_core::lease::Fence;
use leasehold_core::lock::{AskId, GrantEnd, Lock, LockPath, LockState, LockValue, Obituary, check_wait};
use leasehold_core::locking::acquire::{Acquire, Acquired};
use leasehold_core::locking::force::Force;
use leasehold_core::locking::leave::Leave;
use leasehold_core::locking::release::{Release, ReleaseOutcome};
use leasehold_core::locking::resolve::{Resolution, Resolve};
use leasehold_core::locking::scan::{LockList, LockScan};
use leasehold_core::locking::{HeldSlot, LockCommand, LockReply};
use leasehold_core::rejection::Rejection;
use leasehold_core::session::SessionId;
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::acquire_lock_response::News;
use leasehold_proto::leasehold::locks::v1::lock_service_server::LockService;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Request, Response, Status, async_trait};

use super::failed_reads::Read;
use super::list_permits::lock_list_sharer;
use super::lists::{ListCall, ListCaller, ListFailure};
use super::reap::Reaping;
use super::sessions::{LockCaller, ResponseStream, read_id, stopped, stream_age};
use super::{Services, admitted, convert, errors};
use crate::active_config::ActiveConfig;
use crate::identity::{Caller, Denied, Role};
use crate::locks::{AskNews, Attendance};
use crate::store::StoreReader;

/// The number of orphaned locks that a cleaner's call reads at once.
const REAP_PAGE: u32 = 100;

/// The handlers of `LockService`.
#[derive(Clone)]
pub struct LockHandler {
    /// The state of the services.
    pub services: Arc<Services>,
    /// Becomes true when the server stops.
    pub stopping: watch::Receiver<bool>,
}

/// An acquire that is allowed, with the attendance of its call.
struct AllowedAcquire {
    caller: LockCaller,
    acquire: Acquire,
    attendance: Attendance,
}

impl LockHandler {
    fn allowed_path(
        &self,
        config: &ActiveConfig,
        caller: &Caller,
        path: Option<wire::LockPath>,
    ) -> Result<LockPath, Status> {
        let path = read_path(path).map_err(|rejection| self.services.reject(config, &rejection))?;
        match config.config.locks.allows(caller, path.namespace()) {
            true => Ok(path),
            false => Err(errors::denied(Denied::NamespaceDenied)),
        }
    }

    /// Returns the path of a lock that the caller may read. Administrators may read every lock.
    fn readable_path(
        &self,
        config: &ActiveConfig,
        caller: &Caller,
        path: Option<wire::LockPath>,
    ) -> Result<LockPath, Status> {
        let caller = if is_admin(caller) { &Caller::Trusted } else { caller };
        self.allowed_path(config, caller, path)
    }

    /// Returns the lock that an ask of this caller names, and the way in which the ask shares it.
    pub(super) fn allowed_share(
        &self,
        caller: &LockCaller,
        lock: Option<wire::LockPath>,
        (shared, permits): (bool, u32),
    ) -> Result<(LockPath, Option<ShareMode>), Status> {
        let share =
            ShareMode::parse(shared, permits).map_err(|rejection| self.services.reject(&caller.config, &rejection))?;
        if lock.as_ref().is_some_and(|lock| lock.slot > 0) {
            return Err(errors::invalid("`lock.slot` is not 0: an ask names the lock, and gets a slot that is free"));
        }
        Ok((self.allowed_path(&caller.config, &caller.caller, lock)?, share))
    }

    async fn allowed_acquire(
        &self,
        caller: LockCaller,
        (session, ask): (&[u8], &[u8]),
        (lock, shared, permits): (Option<wire::LockPath>, bool, u32),
        held: &[Vec<u8>],
        wait: bool,
    ) -> Result<AllowedAcquire, Status> {
        let held = read_held(held)?;
        let (session, ask) = (SessionId(read_id("session_id", session)?), AskId(read_id("ask_id", ask)?));
        let (lock, share) = self.allowed_share(&caller, lock, (shared, permits))?;
        let _followed = self.services.follow(session, &caller.principal).await?;
        let attendance = self.services.locks.attend(ask, session, &caller.principal).await;
        let (principal, reaped) = (caller.principal.clone(), caller.config.config.locks.reaped(lock.namespace()));
        let acquire = Acquire { session, principal, ask, lock, share, held, wait, reaped };
        Ok(AllowedAcquire { caller, acquire, attendance })
    }

    /// Submits an acquire. If the engine refuses it, the caller is told that there is no ask.
    async fn acquire(&self, allowed: &mut AllowedAcquire) -> Result<Acquired, Status> {
        let AllowedAcquire { caller, acquire, attendance } = allowed;
        let command = LockCommand::Acquire(acquire.clone());
        let decision = self.services.committer.submit(caller.caller.clone(), Command::Lock(command));
        let decided = decision.await.map_err(|refusal| errors::refused(&refusal))?;
        match decided {
            Ok(Reply::Lock(LockReply::Acquired(acquired))) => {
                self.services.take_over(caller, (acquire.session, acquire.ask), attendance).await?;
                if let Acquired::Waiting(_) = acquired {
                    attendance.wait_for_grant();
                }
                Ok(acquired)
            }
            Ok(_) => Err(errors::internal("an acquire got the reply of another command")),
            Err(rejection) => {
                attendance.finish();
                Err(self.services.reject(&caller.config, &rejection))
            }
        }
    }
}

impl Services {
    /// Notes in a shared store that this server attends to an ask which an earlier call may have
    /// written. Another server then can't make the ask leave, because a call there has ended (K06).
    pub(super) async fn take_over(
        &self,
        caller: &LockCaller,
        (session, ask): (SessionId, AskId),
        attendance: &mut Attendance,
    ) -> Result<(), Status> {
        let Some(shared) = self.shared_locks.as_ref().filter(|_| !attendance.take_created()) else { return Ok(()) };
        if shared.attend(ask).await.map_err(|error| errors::away(&error))? {
            attendance.own();
            return Ok(());
        }
        attendance.finish();
        let leave = Leave { session, principal: caller.principal.clone(), ask };
        self.submit_lock(&caller.config, caller.caller.clone(), LockCommand::Leave(leave)).await?;
        Err(errors::lock_held())
    }

    /// Makes an ask leave to which no call attends here. Returns false if a call at another server
    /// attends to it; from a true answer on, no later call may tell the grant (K06).
    async fn leave(&self, config: &ActiveConfig, caller: Caller, leave: Leave) -> Result<bool, Status> {
        if let Some(shared) = &self.shared_locks
            && !shared.abandon(leave.ask).await.map_err(|error| errors::away(&error))?
        {
            return Ok(false);
        }
        self.submit_lock(config, caller, LockCommand::Leave(leave)).await?;
        Ok(true)
    }

    /// Decides a leave that [`begin_leave`](Attendance::begin_leave) has noted, as [`leave`](Self::leave)
    /// does. A task of its own decides it to its end, also if the caller goes away meanwhile.
    pub(super) async fn decide_leave(self: &Arc<Self>, caller: &LockCaller, leave: Leave) -> Result<bool, Status> {
        let (services, caller, config) = (self.clone(), caller.caller.clone(), caller.config.clone());
        let decided = tokio::spawn(async move {
            let left = services.leave(&config, caller, leave.clone()).await;
            services.locks.end_leave(leave.ask);
            left
        });
        decided.await.unwrap_or_else(|error| Err(errors::internal(&error.to_string())))
    }
}

fn is_admin(caller: &Caller) -> bool {
    matches!(caller, Caller::Authenticated(Role::Admin))
}

#[async_trait]
impl LockService for LockHandler {
    async fn try_acquire_lock(
        &self,
        request: Request<wire::TryAcquireLockRequest>,
    ) -> Result<Response<wire::TryAcquireLockResponse>, Status> {
        let caller = LockCaller::of(&request)?;
        let wire::TryAcquireLockRequest { session_id, ask_id, lock, shared, permits } = request.into_inner();
        let asked = (lock, shared, permits);
        let mut allowed = self.allowed_acquire(caller, (&session_id, &ask_id), asked, &[], false).await?;
        match self.acquire(&mut allowed).await? {
            Acquired::Holding(HeldSlot { fence: Fence(fence), slot }) => {
                allowed.attendance.take_up();
                Ok(Response::new(wire::TryAcquireLockResponse { fence, slot }))
            }
            // The ask of an earlier `AcquireLock`, which still waits.
            Acquired::Waiting(_) => Err(errors::lock_held()),
        }
    }

    type AcquireLockStream = ResponseStream<wire::AcquireLockResponse>;

    async fn acquire_lock(
        &self,
        request: Request<wire::AcquireLockRequest>,
    ) -> Result<Response<Self::AcquireLockStream>, Status> {
        let caller = LockCaller::of(&request)?;
        let age = stream_age(&caller.config);
        let wire::AcquireLockRequest { session_id, ask_id, lock, wait_micros, shared, permits, held_ask_ids } =
            request.into_inner();
        check_wait(wait_micros).map_err(|rejection| self.services.reject(&caller.config, &rejection))?;
        let wait = Duration::from_micros(wait_micros);
        let now = Instant::now();
        let asked = (lock, shared, permits);
        let mut allowed =
            self.allowed_acquire(caller, (&session_id, &ask_id), asked, &held_ask_ids, !wait.is_zero()).await?;
        let first = self.acquire(&mut allowed).await?;
        let waiting = Waiting {
            services: self.services.clone(),
            stopping: self.stopping.clone(),
            allowed,
            wait_until: now + wait,
            moves_at: now + age,
        };
        Ok(Response::new(Box::pin(waiting.into_stream(first))))
    }

    type AcquireLocksStream = ResponseStream<wire::AcquireLocksResponse>;

    async fn acquire_locks(
        &self,
        request: Request<wire::AcquireLocksRequest>,
    ) -> Result<Response<Self::AcquireLocksStream>, Status> {
        let caller = LockCaller::of(&request)?;
        let waiting = self.begin_acquire_locks(caller, request.into_inner()).await?;
        Ok(Response::new(Box::pin(waiting.into_stream())))
    }

    async fn leave_lock(
        &self,
        request: Request<wire::LeaveLockRequest>,
    ) -> Result<Response<wire::LeaveLockResponse>, Status> {
        let LockCaller { caller, principal, config } = LockCaller::of(&request)?;
        let wire::LeaveLockRequest { session_id, ask_id } = request.into_inner();
        let (session, ask) = (SessionId(read_id("session_id", &session_id)?), AskId(read_id("ask_id", &ask_id)?));
        self.services.submit_lock(&config, caller, LockCommand::Leave(Leave { session, principal, ask })).await?;
        Ok(Response::new(wire::LeaveLockResponse {}))
    }

    async fn release_lock(
        &self,
        request: Request<wire::ReleaseLockRequest>,
    ) -> Result<Response<wire::ReleaseLockResponse>, Status> {
        let LockCaller { caller, principal, config } = LockCaller::of(&request)?;
        let wire::ReleaseLockRequest { session_id, lock, fence, failed, value } = request.into_inner();
        let session = SessionId(read_id("session_id", &session_id)?);
        let lock = self.allowed_path(&config, &caller, lock)?;
        let value = LockValue::parse(&value).map_err(|rejection| self.services.reject(&config, &rejection))?;
        let outcome = if failed { ReleaseOutcome::Failed } else { ReleaseOutcome::Succeeded };
        let release = Release { session, principal, lock, fence: Fence(fence), outcome, value };
        self.services.submit_lock(&config, caller, LockCommand::Release(release)).await?;
        Ok(Response::new(wire::ReleaseLockResponse {}))
    }

    async fn get_lock(
        &self,
        request: Request<wire::GetLockRequest>,
    ) -> Result<Response<wire::GetLockResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let path = self.readable_path(&config, &permit.caller(), request.into_inner().lock)?;
        let lock = self.services.store.lock(&path).await;
        let lock = lock.map_err(|error| self.services.unreadable(&error, Read::Lock(path.clone())))?;
        let lock = lock.map_or_else(|| wire_free(&path), |lock| wire_lock(&path, &lock));
        Ok(Response::new(wire::GetLockResponse { lock: Some(lock) }))
    }

    async fn list_locks(
        &self,
        request: Request<wire::ListLocksRequest>,
    ) -> Result<Response<wire::ListLocksResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let call = ListCall::of("ListLocks", lock_list_sharer(&permit.caller()), &request);
        let wire::ListLocksRequest { namespace, limit, after } = request.into_inner();
        let reject = |rejection| self.services.reject(&config, &rejection);
        let after = after.map(|after| read_path(Some(after))).transpose();
        let scan = LockScan::parse(&namespace, limit, after.map_err(reject)?).map_err(reject)?;
        let caller = permit.caller();
        let is_of_service = !is_admin(&caller) && caller != Caller::Trusted;
        if is_of_service && namespace.is_empty() {
            return Err(errors::invalid("`namespace` is empty: only administrators list the locks of all namespaces"));
        }
        if is_of_service && !config.config.locks.allows(&caller, &namespace) {
            return Err(errors::denied(Denied::NamespaceDenied));
        }
        let limit = scan.limit();
        let page = self.services.list(&call, async move |store, caller| read_page(&*store, &scan, &caller).await);
        let page = page.await?;
        let locks = page.iter().take(limit).map(|(path, lock)| wire_lock(path, lock)).collect();
        Ok(Response::new(wire::ListLocksResponse { locks, truncated: page.len() > limit }))
    }

    async fn force_lock(
        &self,
        request: Request<wire::ForceLockRequest>,
    ) -> Result<Response<wire::ForceLockResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let wire::ForceLockRequest { lock, fence, at_once } = request.into_inner();
        let lock = self.readable_path(&config, &permit.caller(), lock)?;
        let force = LockCommand::Force(Force { lock, fence: Fence(fence), at_once });
        self.services.submit_lock(&config, permit.caller(), force).await?;
        Ok(Response::new(wire::ForceLockResponse {}))
    }

    type ReapLockStream = ResponseStream<wire::ReapLockResponse>;

    async fn reap_lock(
        &self,
        request: Request<wire::ReapLockRequest>,
    ) -> Result<Response<Self::ReapLockStream>, Status> {
        let caller = LockCaller::of(&request)?;
        let moves_at = Instant::now() + stream_age(&caller.config);
        let wire::ReapLockRequest { session_id, ask_id, namespace } = request.into_inner();
        let (session, ask) = (SessionId(read_id("session_id", &session_id)?), AskId(read_id("ask_id", &ask_id)?));
        if namespace.is_empty() {
            return Err(errors::invalid("`namespace` is empty: name the namespace whose locks are cleaned up"));
        }
        let scan = LockScan::parse(&namespace, REAP_PAGE, None)
            .map_err(|rejection| self.services.reject(&caller.config, &rejection))?;
        if !caller.config.config.locks.allows(&caller.caller, &namespace) {
            return Err(errors::denied(Denied::NamespaceDenied));
        }
        let followed = self.services.follow(session, &caller.principal).await?;
        let session_news = followed.ok_or_else(errors::session_ended)?;
        let reaper = self.services.locks.reapers.wait(namespace.into());
        let (services, stopping) = (self.services.clone(), self.stopping.clone());
        let reaping =
            Reaping { services, stopping, caller, session, session_news, ask, namespace: scan, reaper, moves_at };
        Ok(Response::new(Box::pin(reaping.into_stream())))
    }

    async fn resolve_orphan(
        &self,
        request: Request<wire::ResolveOrphanRequest>,
    ) -> Result<Response<wire::ResolveOrphanResponse>, Status> {
        use wire::resolve_orphan_request::Resolution as Wire;
        let (permit, config) = admitted(&request)?;
        let resolution = match request.get_ref().resolution() {
            Wire::Retry => Resolution::Retry,
            Wire::Cleaned => Resolution::Cleaned,
            Wire::Unspecified => return Err(errors::invalid("`resolution` is neither RETRY nor CLEANED")),
        };
        let wire::ResolveOrphanRequest { lock, fence, resolution: _ } = request.into_inner();
        let lock = self.readable_path(&config, &permit.caller(), lock)?;
        let resolve = LockCommand::Resolve(Resolve { lock, fence: Fence(fence), resolution });
        self.services.submit_lock(&config, permit.caller(), resolve).await?;
        Ok(Response::new(wire::ResolveOrphanResponse {}))
    }
}

/// An acquire that waits for its turn.
struct Waiting {
    services: Arc<Services>,
    stopping: watch::Receiver<bool>,
    allowed: AllowedAcquire,
    wait_until: Instant,
    // The time at which the stream ends so that the client begins another.
    moves_at: Instant,
}

/// The next message of an acquire's stream.
enum Next {
    First(Acquired),
    Waited,
    End,
}

fn message(news: News) -> wire::AcquireLockResponse {
    wire::AcquireLockResponse { news: Some(news), slot: 0 }
}

impl Waiting {
    /// The stream of the acquire: its place if it waits, then its grant.
    fn into_stream(self, first: Acquired) -> impl Stream<Item = Result<wire::AcquireLockResponse, Status>> + Send {
        stream::unfold((self, Next::First(first)), |(mut waiting, next)| async move {
            let (item, next) = match next {
                Next::End => return None,
                Next::First(Acquired::Holding(hold)) => (Ok(waiting.granted(hold)), Next::End),
                Next::First(Acquired::Waiting(ahead)) => (Ok(message(News::Waiting(ahead))), Next::Waited),
                Next::Waited => (waiting.news().await, Next::End),
            };
            Some((item, (waiting, next)))
        })
    }

    /// Returns the message of a grant. The caller counts as told, since the message leaves now.
    fn granted(&mut self, HeldSlot { fence, slot }: HeldSlot) -> wire::AcquireLockResponse {
        self.allowed.attendance.take_up();
        wire::AcquireLockResponse { slot, ..message(News::Fence(fence.0)) }
    }

    /// Waits for the grant, the end of the ask or of the wait, or the stop of the server.
    async fn news(&mut self) -> Result<wire::AcquireLockResponse, Status> {
        tokio::select! {
            biased;
            news = self.allowed.attendance.news() => match news {
                AskNews::Granted(hold) => Ok(self.granted(hold)),
                AskNews::None | AskNews::Over => Err(self.over()),
            },
            () = stopped(&mut self.stopping) => Ok(message(News::Moving(wire::Moving {}))),
            () = self.services.wait_for_circle(std::slice::from_ref(&self.allowed.acquire)) => Err(self.leave(errors::lock_circle).await),
            () = tokio::time::sleep_until(self.wait_until) => Err(self.leave(errors::lock_held).await),
            () = tokio::time::sleep_until(self.moves_at) => Ok(message(News::Moving(wire::Moving {}))),
        }
    }

    /// Returns the status of an ask that has ended without a grant.
    fn over(&mut self) -> Status {
        self.allowed.attendance.finish();
        let AllowedAcquire { caller, acquire, .. } = &self.allowed;
        match self.services.locks.watch(acquire.session, &caller.principal) {
            Some(_) => errors::lock_held(),
            None => errors::session_ended(),
        }
    }

    /// Leaves the queue, because the wait is over (K10) or would never end (K15), as `reason` says. The
    /// client may have repeated the ask, and hold its lock by now, because this call's server was suspended
    /// or cut off: the ask then stays (K06).
    async fn leave(&mut self, reason: fn() -> Status) -> Status {
        if !self.allowed.attendance.begin_leave() {
            // This call does not count as finished: if it is the last one here, the ask leaves later.
            return errors::lock_held();
        }
        let AllowedAcquire { caller, acquire, .. } = &self.allowed;
        let leave = Leave { session: acquire.session, principal: caller.principal.clone(), ask: acquire.ask };
        match self.services.decide_leave(caller, leave).await {
            Ok(has_left) => {
                if has_left {
                    self.allowed.attendance.finish();
                }
                reason()
            }
            Err(status) => status,
        }
    }
}

/// Parses the ids of the asks that a caller holds.
pub(super) fn read_held(ids: &[Vec<u8>]) -> Result<Vec<AskId>, Status> {
    ids.iter().map(|id| read_id("held_ask_ids", id).map(AskId)).collect()
}

/// Reads a page of locks that are not free, in the order of their paths, and one more lock
/// if there is one.
async fn read_page(
    store: &dyn StoreReader,
    scan: &LockScan,
    caller: &ListCaller,
) -> Result<Vec<(LockPath, Lock)>, ListFailure> {
    let mut found = Vec::new();
    for list in LockList::ALL {
        let (mut after, mut count) = (None, 0);
        while count <= scan.limit() {
            if caller.is_gone() {
                return Err(ListFailure::CallerGone);
            }
            let read = scan.read(list, after.as_ref());
            let part = store.locks(read.clone()).await.map_err(|error| ListFailure::Store(error, Read::Locks(read)))?;
            let Some((last, _)) = part.last() else { break };
            after = Some(last.clone());
            let before = found.len();
            found.extend(part.into_iter().filter(|(path, _)| scan.contains(path)));
            count += found.len() - before;
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// Parses the path of a lock or of a slot.
fn read_path(path: Option<wire::LockPath>) -> Result<LockPath, Rejection> {
    let wire::LockPath { namespace, key, slot } = path.unwrap_or_default();
    LockPath::parse_joined(&namespace, &key)?.at_slot(slot)
}

pub(super) fn wire_path(path: &LockPath) -> Option<wire::LockPath> {
    let (namespace, key) = (path.namespace().to_owned(), path.key().to_owned());
    Some(wire::LockPath { namespace, key, slot: path.slot() })
}

/// A lock without a row, which is free.
fn wire_free(path: &LockPath) -> wire::Lock {
    wire::Lock { path: wire_path(path), state: wire::lock::State::Free.into(), ..wire::Lock::default() }
}

fn wire_lock(path: &LockPath, lock: &Lock) -> wire::Lock {
    let (state, fence, session_id) = match lock.state {
        LockState::Free => (wire::lock::State::Free, 0, Vec::new()),
        LockState::Held(grant) => (wire::lock::State::Held, grant.fence.0, grant.session.0.as_bytes().to_vec()),
        LockState::Withheld(withholding) => (wire::lock::State::Withheld, withholding.fence.0, Vec::new()),
        LockState::Orphaned if lock.is_exhausted() => (wire::lock::State::SetAside, 0, Vec::new()),
        LockState::Orphaned => (wire::lock::State::Orphaned, 0, Vec::new()),
        LockState::Divided(_) => (wire::lock::State::Shared, 0, Vec::new()),
    };
    let (taken_slots, permits) = match lock.state {
        LockState::Divided(division) => (division.taken(), division.share.number().into()),
        _ => (0, 0),
    };
    let last = lock.last.as_ref().map(|ended| wire::EndedGrant {
        fence: ended.grant.fence.0,
        end: wire_end(ended.end).into(),
        value: ended.value.as_bytes().to_vec(),
        ended_at: convert::timestamp(ended.ended_at),
    });
    let (waiting, updated_at) = (lock.waiting, convert::timestamp(lock.updated_at));
    let obituary = lock.obituary.as_ref().map(|obituary| wire_obituary(lock, obituary));
    let (path, state) = (wire_path(path), state.into());
    wire::Lock { path, state, fence, session_id, updated_at, waiting, last, obituary, taken_slots, permits }
}

/// Returns an obituary of a lock with this row.
pub(super) fn wire_obituary(lock: &Lock, obituary: &Obituary) -> wire::Obituary {
    wire::Obituary {
        fence: obituary.fence.0,
        end: wire_end(obituary.end).into(),
        ended_at: convert::timestamp(obituary.ended_at),
        attempts: obituary.attempts,
        most_attempts: lock.reaped.map_or(0, NonZeroU32::get),
    }
}

fn wire_end(end: GrantEnd) -> wire::ended_grant::End {
    use wire::ended_grant::End;
    match end {
        GrantEnd::Succeeded => End::Succeeded,
        GrantEnd::Failed => End::Failed,
        GrantEnd::Left => End::Left,
        GrantEnd::Closed => End::Closed,
        GrantEnd::Expired => End::Expired,
        GrantEnd::Evicted => End::Evicted,
        GrantEnd::Forced => End::Forced,
    }
}
