//! The stream `AcquireLocks`: several locks that are granted together (K14).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use futures_util::{Stream, stream};
use leasehold_core::command::{Command, Reply};
use leasehold_core::lock::{AskId, check_wait};
use leasehold_core::locking::acquire::Acquired;
use leasehold_core::locking::acquire_all::{AcquireAll, AskFor};
use leasehold_core::locking::leave::Leave;
use leasehold_core::locking::{HeldSlot, LockCommand, LockReply};
use leasehold_core::session::SessionId;
use leasehold_proto::leasehold::locks::v1 as wire;
use leasehold_proto::leasehold::locks::v1::acquire_locks_response::News;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;

use super::locks::{LockHandler, read_held};
use super::sessions::{LockCaller, read_id, stopped, stream_age};
use super::{Services, errors};
use crate::locks::{AskNews, Attendance};

/// One ask of a call, with the attendance of the call and what the ask holds.
struct Attended {
    ask: AskId,
    attendance: Attendance,
    hold: Option<HeldSlot>,
}

/// A call that waits for several locks.
pub(super) struct WaitingForAll {
    services: Arc<Services>,
    stopping: watch::Receiver<bool>,
    caller: LockCaller,
    session: SessionId,
    all: Arc<AcquireAll>,
    asks: Vec<Attended>,
    wait_until: Instant,
    // The time at which the stream ends so that the client begins another.
    moves_at: Instant,
}

/// The next message of the stream.
enum Next {
    First,
    Waited,
    End,
}

impl LockHandler {
    /// Checks a request, and submits its asks.
    pub(super) async fn begin_acquire_locks(
        &self,
        caller: LockCaller,
        request: wire::AcquireLocksRequest,
    ) -> Result<WaitingForAll, Status> {
        let (now, age) = (Instant::now(), stream_age(&caller.config));
        check_wait(request.wait_micros).map_err(|rejection| self.services.reject(&caller.config, &rejection))?;
        let wait = Duration::from_micros(request.wait_micros);
        let session = SessionId(read_id("session_id", &request.session_id)?);
        let asks = request.asks.into_iter().map(|ask| self.ask_for(&caller, ask)).collect::<Result<_, _>>()?;
        let all =
            AcquireAll::parse(session, &caller.principal, asks, &read_held(&request.held_ask_ids)?, !wait.is_zero())
                .map_err(|rejection| self.services.reject(&caller.config, &rejection))?;
        let _followed = self.services.follow(session, &caller.principal).await?;
        let mut waiting = WaitingForAll {
            services: self.services.clone(),
            stopping: self.stopping.clone(),
            caller,
            session,
            asks: Vec::with_capacity(all.acquires().len()),
            all: Arc::new(all),
            wait_until: now + wait,
            moves_at: now + age,
        };
        waiting.attend().await;
        waiting.submit().await?;
        Ok(waiting)
    }

    fn ask_for(&self, caller: &LockCaller, ask: wire::LockAsk) -> Result<AskFor, Status> {
        let wire::LockAsk { ask_id, lock, shared, permits } = ask;
        let (lock, share) = self.allowed_share(caller, lock, (shared, permits))?;
        let reaped = caller.config.config.locks.reaped(lock.namespace());
        Ok(AskFor { ask: AskId(read_id("ask_id", &ask_id)?), lock, share, reaped })
    }
}

impl WaitingForAll {
    /// Begins to attend to every ask, so that no grant is missed.
    async fn attend(&mut self) {
        for acquire in self.all.acquires() {
            let attendance = self.services.locks.attend(acquire.ask, self.session, &self.caller.principal).await;
            self.asks.push(Attended { ask: acquire.ask, attendance, hold: None });
        }
    }

    /// Submits the asks. If the engine refuses them, the caller is told that there are none.
    async fn submit(&mut self) -> Result<(), Status> {
        let command = Command::Lock(LockCommand::AcquireAll(AcquireAll::clone(&self.all)));
        let decision = self.services.committer().submit(self.caller.caller.clone(), command).await;
        match decision.map_err(|refusal| errors::refused(&refusal))? {
            Ok(Reply::Lock(LockReply::AllAcquired(placed))) => self.placed(&placed).await,
            Ok(_) => Err(errors::internal("an acquire of locks got the reply of another command")),
            Err(rejection) => {
                self.asks.iter_mut().for_each(|ask| ask.attendance.finish());
                Err(self.services.reject(&self.caller.config, &rejection))
            }
        }
    }

    /// Notes what became of each ask.
    async fn placed(&mut self, placed: &[Acquired]) -> Result<(), Status> {
        for (ask, acquired) in self.asks.iter_mut().zip(placed) {
            self.services.take_over(&self.caller, (self.session, ask.ask), &mut ask.attendance).await?;
            match acquired {
                Acquired::Holding(hold) => ask.hold = Some(*hold),
                Acquired::Waiting(_) => ask.attendance.wait_for_grant(),
            }
        }
        Ok(())
    }

    /// The stream of the call: the number of locks that it waits for if there are any, then all grants.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<wire::AcquireLocksResponse, Status>> + Send {
        stream::unfold((self, Next::First), |(mut waiting, next)| async move {
            let missing = waiting.asks.iter().filter(|ask| ask.hold.is_none()).count();
            let (item, next) = match next {
                Next::End => return None,
                Next::First if missing == 0 => (Ok(waiting.granted()), Next::End),
                Next::First if waiting.wait_until <= Instant::now() => {
                    (Err(waiting.leave(errors::lock_held).await), Next::End)
                }
                // The engine bounds the number of asks.
                Next::First => (Ok(message(News::Waiting(u32::try_from(missing).unwrap_or(u32::MAX)))), Next::Waited),
                Next::Waited => (waiting.news().await, Next::End),
            };
            Some((item, (waiting, next)))
        })
    }

    /// Returns the message of all grants. The caller counts as told, since the message leaves now.
    fn granted(&mut self) -> wire::AcquireLocksResponse {
        self.asks.iter_mut().for_each(|ask| ask.attendance.take_up());
        let holds = self.asks.iter().filter_map(|ask| ask.hold);
        let locks = holds.map(|hold| wire::GrantedLock { fence: hold.fence.0, slot: hold.slot }).collect();
        message(News::Granted(wire::GrantedLocks { locks }))
    }

    /// Waits for all grants, the end of an ask or of the wait, or the stop of the server.
    async fn news(&mut self) -> Result<wire::AcquireLocksResponse, Status> {
        let all = self.all.clone();
        tokio::select! {
            biased;
            all = all_granted(&mut self.asks) => match all {
                Ok(()) => Ok(self.granted()),
                Err(Over) => Err(self.over().await),
            },
            () = stopped(&mut self.stopping) => Ok(moving()),
            () = self.services.wait_for_circle(all.acquires()) => Err(self.leave(errors::lock_circle).await),
            () = tokio::time::sleep_until(self.wait_until) => Err(self.leave(errors::lock_held).await),
            () = tokio::time::sleep_until(self.moves_at) => Ok(moving()),
        }
    }

    /// Returns the status of a call one of whose asks has ended without a grant. The others leave.
    async fn over(&mut self) -> Status {
        match self.services.locks.watch(self.session, &self.caller.principal) {
            Some(_) => self.leave(errors::lock_held).await,
            None => {
                self.asks.iter_mut().for_each(|ask| ask.attendance.finish());
                errors::session_ended()
            }
        }
    }

    /// Leaves with every ask, because the wait is over (K10) or would never end (K15), as `reason` says. An
    /// ask stays to which another call of the same client attends by now, as in the wait for one lock.
    async fn leave(&mut self, reason: fn() -> Status) -> Status {
        let leaving: Vec<_> = self.asks.iter().filter(|ask| ask.attendance.begin_leave()).map(|ask| ask.ask).collect();
        let (session, principal) = (self.session, self.caller.principal.clone());
        let leaves = leaving.iter().map(|ask| Leave { session, principal: principal.clone(), ask: *ask });
        let left = join_all(leaves.map(|leave| self.services.decide_leave(&self.caller, leave))).await;
        let mut refusal = None;
        for (ask, left) in leaving.into_iter().zip(left) {
            match left {
                Ok(false) => {}
                Ok(true) => {
                    self.asks.iter_mut().filter(|one| one.ask == ask).for_each(|one| one.attendance.finish());
                }
                Err(status) => refusal = Some(status),
            }
        }
        refusal.unwrap_or_else(reason)
    }
}

/// Waits until all asks hold their locks.
async fn all_granted(asks: &mut [Attended]) -> Result<(), Over> {
    while asks.iter().any(|ask| ask.hold.is_none()) {
        // There is at least one ask, so `select_all` does not panic.
        let (changed, ..) = select_all(asks.iter_mut().map(|ask| Box::pin(ask.changed()))).await;
        changed?;
    }
    Ok(())
}

/// An ask has ended before the caller held all locks: an operator has taken its lock, or it left.
struct Over;

impl Attended {
    /// Waits until the ask is granted or, if it was, until it has ended.
    async fn changed(&mut self) -> Result<(), Over> {
        if self.hold.is_some() {
            self.attendance.over().await;
            return Err(Over);
        }
        match self.attendance.news().await {
            AskNews::Granted(hold) => {
                self.hold = Some(hold);
                Ok(())
            }
            AskNews::None | AskNews::Over => Err(Over),
        }
    }
}

fn message(news: News) -> wire::AcquireLocksResponse {
    wire::AcquireLocksResponse { news: Some(news) }
}

fn moving() -> wire::AcquireLocksResponse {
    message(News::Moving(wire::Moving {}))
}
