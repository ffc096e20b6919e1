//! Takes lanes for workers: `TakeNow`, and the stream `Take`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use leasehold_core::lease::Fence;
use leasehold_core::queue::{BatchSize, Lane, LanePath, QueuePath, RequestBody, TakeId};
use leasehold_core::queueing::reads::{delayed_of, ready_of, taken_by};
use leasehold_core::queueing::settle::{SettleWork, WorkOutcome};
use leasehold_core::queueing::take::{Take, Taken, TakenRequest};
use leasehold_core::queueing::{QueueCommand, QueueReply, Worker};
use leasehold_core::rejection::{Detail, Reason, Rejection};
use leasehold_core::rows::OrderedRead;
use leasehold_core::session::SessionId;
use leasehold_core::time::Timestamp;
use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::queues::v1::take_response::News;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tonic::Status;
use uuid::Uuid;

use super::failed_reads::Read;
use super::queue_wire::wire_kind;
use super::sessions::{LockCaller, stopped, stream_age};
use super::{Services, errors};
use crate::budget::{Charge, ConnectionBudget};
use crate::locks::SessionNews;
use crate::queues::{DecidingTake, HoldNews, Next, Offer, Offered, Taker};
use crate::shares::Sharer;

/// The most lanes of a session that a look finds. A worker that holds more gets a repeated take refused.
const HELD_LANES: usize = 1_024;
/// The most lanes that one look tries, each of which others have taken before.
const MAX_TRIES: usize = 100;
/// The most batches that a stream lets its worker hold.
const MAX_CREDIT: u32 = 256;
/// The shortest and the longest time between two looks of a stream that waits, in case a wake-up is lost. The
/// time doubles with each look that finds nothing.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The longest time if no other server uses the store, so that this server itself makes each lane ready.
const LONGEST_PAUSE_ALONE: Duration = Duration::from_secs(10);

/// A worker that takes lanes of a queue.
pub(super) struct Taking {
    pub(super) services: Arc<Services>,
    pub(super) caller: LockCaller,
    pub(super) session: SessionId,
    pub(super) queue: QueuePath,
    /// The most requests of each batch.
    pub(super) size: BatchSize,
}

/// A lane that a worker has taken.
pub(super) struct TakenLane {
    lane: LanePath,
    taken: Taken,
    // True if more lanes were ready.
    has_more: bool,
}

/// The outcome of one look at the lanes of a queue.
enum Look {
    Taken(TakenLane),
    /// No lane is ready. The first delayed lane is due then.
    Nothing(Option<Timestamp>),
}

impl Taking {
    /// Takes the first lane that is ready, or returns what an earlier call with the same take has taken; `None` if no
    /// lane is ready.
    pub(super) async fn take_now(self: &Arc<Self>, take: TakeId) -> Result<Option<TakenLane>, Status> {
        for (lane, row) in self.held().await? {
            if row.hold().is_some_and(|hold| hold.take == take)
                && let Some(taken) = self.take_lane(&lane, take).await?
            {
                return Ok(Some(TakenLane { lane, taken, has_more: false }));
            }
        }
        match self.look(take, None).await? {
            Look::Taken(taken) => Ok(Some(taken)),
            // A worker that calls again and again must learn that its session has ended.
            Look::Nothing(_) => {
                let followed = self.services.follow(self.session, &self.caller.principal).await?;
                followed.map(|_| None).ok_or_else(errors::session_ended)
            }
        }
    }

    /// Returns the lanes of the queue that the session holds.
    async fn held(&self) -> Result<Vec<(LanePath, Lane)>, Status> {
        let mut held = self.services.lanes(taken_by(self.session, HELD_LANES)).await?;
        held.retain(|(lane, _)| *lane.queue() == self.queue);
        Ok(held)
    }

    /// Takes the first lane that is ready, for a stream if there is a `taker`.
    async fn look(self: &Arc<Self>, take: TakeId, taker: Option<&Taker>) -> Result<Look, Status> {
        let began = Instant::now();
        for _ in 0..MAX_TRIES {
            let offered = match self.next_lane(began).await? {
                Ok(offered) => offered,
                Err(due_at) => return Ok(Look::Nothing(due_at)),
            };
            let (lane, has_more) = (offered.lane().clone(), offered.has_more);
            let taken = match taker {
                Some(taker) => {
                    let Some(deciding) = taker.begin_take() else { return Ok(Look::Nothing(None)) };
                    self.take_for_stream(deciding, offered, take).await?
                }
                None => self.take_offered(offered, take).await?,
            };
            if let Some(taken) = taken {
                return Ok(Look::Taken(TakenLane { lane, taken, has_more }));
            }
        }
        Ok(Look::Nothing(None))
    }

    /// Returns the next lane that is offered to a call which has begun to look at `began`. If none is ready, returns the
    /// time at which the first delayed lane is due.
    async fn next_lane(&self, began: Instant) -> Result<Result<Offered, Option<Timestamp>>, Status> {
        let services = &self.services;
        let (takers, is_shared) = (&services.locks.queues.takers, services.shared_locks.is_some());
        loop {
            match takers.next_lane(&self.queue, || services.committer.clock().now(), (began, is_shared)).await {
                Next::Offered(offered) => return Ok(Ok(offered)),
                Next::Nothing(due_at) => return Ok(Err(due_at)),
                Next::Read(read) => {
                    let offer = services.offer(&self.queue, read.limit).await?;
                    read.end(offer);
                }
            }
        }
    }

    /// Takes one lane in a task of its own. A stream may end before the take is decided: nobody would work on the
    /// requests then, so they go back, and no attempt counts (Q11).
    async fn take_for_stream(
        self: &Arc<Self>,
        deciding: DecidingTake,
        offered: Offered,
        take: TakeId,
    ) -> Result<Option<Taken>, Status> {
        let (sender, decision) = oneshot::channel();
        let taking = self.clone();
        tokio::spawn(async move {
            let lane = offered.lane().clone();
            let taken = taking.take_offered(offered, take).await;
            if let Err(Ok(Some(Taken { fence, .. }))) = sender.send(taken) {
                taking.give_back(lane, fence).await;
            }
            drop(deciding);
        });
        // The task drops its sender only if it panics.
        decision.await.unwrap_or_else(|_| Err(errors::internal("a take has ended without a decision")))
    }

    /// Takes a lane that is offered; `None` if it is not ready any more.
    async fn take_offered(&self, offered: Offered, take: TakeId) -> Result<Option<Taken>, Status> {
        let taken = self.take_lane(offered.lane(), take).await?;
        offered.decided(taken.is_some());
        Ok(taken)
    }

    /// Gives a batch back that no worker has seen. If that fails, the batch stays the session's.
    async fn give_back(&self, lane: LanePath, fence: Fence) {
        let worker = Worker { session: self.session, principal: self.caller.principal.clone() };
        let settle = SettleWork { worker, lane, fence, outcome: WorkOutcome::GivenBack };
        let command = QueueCommand::SettleWork(settle);
        let settled = self.services.submit_queue(&self.caller.config, self.caller.caller.clone(), command).await;
        if let Err(status) = settled {
            tracing::debug!(code = ?status.code(), "a batch that no worker has seen was not given back");
        }
    }

    /// Takes one lane; `None` if it is not ready any more.
    async fn take_lane(&self, lane: &LanePath, take: TakeId) -> Result<Option<Taken>, Status> {
        self.decide_take(lane, take).await?.map_err(|rejection| self.services.reject(&self.caller.config, &rejection))
    }

    /// Takes again what the session holds by an earlier take; `None` if it has been given back meanwhile.
    async fn take_again(&self, lane: &LanePath, take: TakeId) -> Result<Option<Taken>, Status> {
        match self.decide_take(lane, take).await? {
            Err(rejection) if rejection.reason() == Reason::AskReused => Ok(None),
            taken => taken.map_err(|rejection| self.services.reject(&self.caller.config, &rejection)),
        }
    }

    async fn decide_take(&self, lane: &LanePath, take: TakeId) -> Result<Result<Option<Taken>, Rejection>, Status> {
        let worker = Worker { session: self.session, principal: self.caller.principal.clone() };
        let command = QueueCommand::Take(Take { worker, take, lane: lane.clone(), size: self.size });
        match self.services.decide_queue(self.caller.caller.clone(), command).await? {
            Ok(QueueReply::Taken(taken)) => Ok(Ok(taken)),
            Ok(QueueReply::Submitted(_) | QueueReply::Found(_) | QueueReply::Done(_)) => {
                Err(errors::internal("a take got the reply of another command"))
            }
            Err(rejection) => Ok(Err(rejection)),
        }
    }

    /// Reads the bodies of a batch, and returns its message. If there is no room for the bodies, the take is the
    /// session's all the same: a repeated call gets it.
    pub(super) async fn batch(
        &self,
        taken: TakenLane,
        (method, charge): (&'static str, Option<&Charge>),
    ) -> Result<wire::Batch, Status> {
        let TakenLane { lane, taken: Taken { fence, kind, requests, progress }, .. } = taken;
        let bodies = self.bodies(&requests).await?;
        let bytes = bodies.iter().map(|body| body.as_bytes().len()).sum();
        if let Some(charge) = charge {
            charge.reserve(bytes).await.map_err(|exceeded| {
                self.services.metrics.shed(method);
                errors::over_budget(exceeded)
            })?;
        }
        let request = |(TakenRequest { request, attempt, .. }, body): (TakenRequest, RequestBody)| wire::TakenRequest {
            request_id: request.0.as_bytes().to_vec(),
            attempt,
            body: body.as_bytes().to_vec(),
        };
        Ok(wire::Batch {
            key: lane.key().to_owned(),
            fence: fence.0,
            requests: requests.into_iter().zip(bodies).map(request).collect(),
            progress: progress.map(|progress| progress.as_bytes().to_vec()),
            kind: wire_kind(kind).into(),
        })
    }

    /// Returns the bodies of requests: those that were submitted here last are in memory.
    async fn bodies(&self, requests: &[TakenRequest]) -> Result<Vec<RequestBody>, Status> {
        let services = &self.services;
        let digests = requests.iter().map(|taken| (taken.request, taken.body));
        if let Some(bodies) = services.locks.queues.bodies.all(digests) {
            return Ok(bodies);
        }
        let ids: Vec<_> = requests.iter().map(|taken| taken.request).collect();
        let bodies = services.store.bodies(&ids).await;
        let bodies = bodies.map_err(|error| services.unreadable(&error, Read::Bodies(ids)))?;
        // A request without a body was taken back meanwhile, and withdrawn.
        let passed = || errors::rejected(&Rejection::whole(Reason::FencePassed, Detail::None));
        bodies.into_iter().collect::<Option<_>>().ok_or_else(passed)
    }
}

impl Services {
    async fn lanes(&self, read: OrderedRead<Lane>) -> Result<Vec<(LanePath, Lane)>, Status> {
        let lanes = self.store.lanes(read.clone()).await;
        lanes.map_err(|error| self.unreadable(&error, Read::Lanes(read)))
    }

    /// Reads up to `limit` ready lanes of a queue, and as many delayed ones.
    async fn offer(&self, queue: &QueuePath, limit: usize) -> Result<Offer, Status> {
        let row = self.store.queue(queue).await;
        let row = row.map_err(|error| self.unreadable(&error, Read::Queue(queue.clone())))?;
        let is_open = row.unwrap_or_default().is_open();
        // The lanes of a closed queue are read too: they are offered as soon as it opens.
        // One read finds the delayed lanes that are due, and the next one that will be.
        let (ready, delayed) =
            tokio::join!(self.lanes(ready_of(queue, limit)), self.lanes(delayed_of(queue, Timestamp::MAX, limit)));
        Ok(Offer { is_open, ready: ready?, delayed: delayed?, limit })
    }
}

/// A stream that takes lanes for a worker.
struct TakeStream {
    taking: Arc<Taking>,
    taker: Taker,
    session_news: watch::Receiver<SessionNews>,
    stopping: watch::Receiver<bool>,
    credit: usize,
    // The connection's budget of answers. Only tests have no connection.
    budget: Option<Arc<ConnectionBudget>>,
    // The charge for the last batch, until the caller has taken it and wants the next one.
    charge: Option<Charge>,
    // The fences of the batches that the worker knows from former streams.
    known: BTreeSet<Fence>,
    // The takes of the batches that the worker holds and knows.
    held: BTreeMap<TakeId, Fence>,
    // True if the store may know of more, or of less.
    must_read: bool,
    pause: Duration,
    // The time at which the stream ends so that the client begins another.
    moves_at: Instant,
}

/// The next step of a stream.
enum Step {
    /// The worker gets this batch.
    Send(TakenLane),
    /// The worker holds as many batches as it may.
    Full,
    /// No lane is ready. The first delayed lane is due then.
    Wait(Option<Timestamp>),
    /// A later call of the session has taken this one's place.
    Replaced,
}

impl Taking {
    /// Returns the stream of batches that the worker takes.
    pub(super) async fn into_stream(
        self: Arc<Self>,
        (credit, held_fences): (u32, Vec<u64>),
        stopping: watch::Receiver<bool>,
        budget: Option<Arc<ConnectionBudget>>,
    ) -> Result<impl Stream<Item = Result<wire::TakeResponse, Status>> + Send, Status> {
        let most = MAX_CREDIT as usize;
        let counts = [("credit", credit as usize), ("held_fences", held_fences.len())];
        if let Some((name, count)) = counts.into_iter().find(|(_, count)| *count > most) {
            return Err(errors::over_limit(name, most, Some(count)));
        }
        let followed = self.services.follow(self.session, &self.caller.principal).await?;
        let session_news = followed.ok_or_else(errors::session_ended)?;
        let taker = self.services.locks.queues.takers.wait(self.queue.clone(), self.session);
        // A take that a former stream has not seen goes back once it is decided. This stream must not find it before.
        let mut is_stopping = stopping.clone();
        tokio::select! {
            () = taker.former_decided() => {}
            () = stopped(&mut is_stopping) => {}
        }
        let known = held_fences.into_iter().map(Fence).collect();
        let moves_at = Instant::now() + stream_age(&self.caller.config);
        let stream = TakeStream {
            taking: self,
            taker,
            session_news,
            stopping,
            credit: credit as usize,
            budget,
            charge: None,
            known,
            held: BTreeMap::new(),
            must_read: true,
            pause: PAUSES.0,
            moves_at,
        };
        Ok(stream::unfold(Some(stream), |stream| async move {
            let mut stream = stream?;
            let news = match stream.news().await {
                Ok(news) => news?,
                Err(status) => return Some((Err(status), None)),
            };
            let stream = matches!(news, News::Batch(_)).then_some(stream);
            Some((Ok(wire::TakeResponse { news: Some(news) }), stream))
        }))
    }
}

impl TakeStream {
    /// Waits for the next message; `None` if the stream has nothing more to send.
    async fn news(&mut self) -> Result<Option<News>, Status> {
        let moving = || Ok(Some(News::Moving(wire::Moving {})));
        self.charge = None;
        loop {
            // A dropped sender means that the session has ended, too.
            if self.session_news.borrow().has_ended || self.session_news.has_changed().is_err() {
                return Err(errors::session_ended());
            }
            if *self.stopping.borrow() || Instant::now() >= self.moves_at {
                return moving();
            }
            let step = self.step().await?;
            let (pause, is_full) = match step {
                Step::Send(taken) => {
                    if taken.has_more {
                        self.taker.pass_on();
                    }
                    self.pause = PAUSES.0;
                    let sharer = Sharer::of(&self.taking.caller.caller);
                    self.charge = self.budget.clone().map(|budget| Charge::new(budget, sharer));
                    return self
                        .taking
                        .batch(taken, ("Take", self.charge.as_ref()))
                        .await
                        .map(|batch| Some(News::Batch(batch)));
                }
                Step::Replaced => return moving(),
                // The worker stops, and has got what the former stream may have lost.
                Step::Full if self.credit == 0 => return Ok(None),
                Step::Full => {
                    // The lane for which the call may have been woken is another call's.
                    self.taker.pass_on();
                    (self.next_pause(None), true)
                }
                Step::Wait(due_at) => (self.next_pause(due_at), false),
            };
            self.wait(pause, is_full).await;
        }
    }

    /// Waits until the call is woken, has to end, or looks again by itself.
    async fn wait(&mut self, pause: Duration, is_full: bool) {
        let Self { taker, session_news, stopping, pause: next_pause, moves_at, must_read, .. } = self;
        let woken = async {
            match is_full {
                true => taker.woken_when_full().await,
                false => taker.woken().await,
            }
        };
        tokio::select! {
            biased;
            _ = session_news.wait_for(|news| news.has_ended) => {}
            () = stopped(stopping) => {}
            () = woken => *next_pause = PAUSES.0,
            () = tokio::time::sleep_until(*moves_at) => {}
            () = tokio::time::sleep(pause) => *must_read = true,
        }
    }

    /// Returns the time until the next look of a stream that nobody wakes: that at which the first delayed lane is
    /// due, or a longer one than before.
    fn next_pause(&mut self, due_at: Option<Timestamp>) -> Duration {
        let services = &self.taking.services;
        let pause = match services.shared_locks {
            Some(_) => self.pause,
            None => LONGEST_PAUSE_ALONE,
        };
        self.pause = PAUSES.1.min(self.pause * 2);
        let now = services.committer.clock().now();
        due_at.map_or(pause, |due_at| pause.min(Duration::from_micros(due_at.micros_since(now))))
    }

    /// Takes a lane if the worker may hold one more. A batch whose message was lost with a former stream is sent
    /// again first.
    async fn step(&mut self) -> Result<Step, Status> {
        if !self.taker.begin_look() {
            return Ok(Step::Replaced);
        }
        self.follow_holds();
        if self.must_read
            && let Some(taken) = self.read_holds().await?
        {
            return Ok(Step::Send(taken));
        }
        if self.held.len() >= self.credit {
            return Ok(Step::Full);
        }
        let take = TakeId(Uuid::now_v7());
        match self.taking.look(take, Some(&self.taker)).await? {
            Look::Taken(taken) => {
                self.held.insert(take, taken.taken.fence);
                Ok(Step::Send(taken))
            }
            Look::Nothing(due_at) => Ok(Step::Wait(due_at)),
        }
    }

    /// Follows the saved changes of what the worker holds. The store must be read after a take that is not of this
    /// stream.
    fn follow_holds(&mut self) {
        let HoldNews { begun, ended, is_cut } = self.taker.hold_news();
        let is_foreign = |take: &TakeId| !self.held.contains_key(take) && !ended.contains(take);
        self.must_read |= is_cut || begun.iter().any(is_foreign);
        self.held.retain(|take, _| !ended.contains(take));
    }

    /// Reads what the session holds. Returns the first batch that the worker does not know.
    async fn read_holds(&mut self) -> Result<Option<TakenLane>, Status> {
        // The holds that end or begin during the read are news.
        drop(self.taker.hold_news());
        let rows = self.taking.held().await?;
        let known: BTreeSet<_> =
            std::mem::take(&mut self.known).into_iter().chain(self.held.values().copied()).collect();
        let holds = rows.iter().filter_map(|(lane, row)| row.hold().map(|hold| (lane, hold)));
        let (old, new): (Vec<_>, Vec<_>) = holds.partition(|(_, hold)| known.contains(&hold.fence));
        self.held = old.into_iter().map(|(_, hold)| (hold.take, hold.fence)).collect();
        for (lane, hold) in new {
            if let Some(taken) = self.taking.take_again(lane, hold.take).await? {
                self.held.insert(hold.take, hold.fence);
                return Ok(Some(TakenLane { lane: lane.clone(), taken, has_more: false }));
            }
        }
        self.must_read = false;
        self.follow_holds();
        Ok(None)
    }
}
