//! Takes lanes for workers: `TakeNow`, and the stream `Take`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use leasehold_core::lease::Fence;
use leasehold_core::queue::{BatchSize, Lane, LanePath, LaneState, QueuePath, RequestId, TakeId};
use leasehold_core::queueing::reads::{delayed_of, in_order, ready_of, taken_by};
use leasehold_core::queueing::settle::{SettleWork, WorkOutcome};
use leasehold_core::queueing::take::{Take, Taken};
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
use crate::queues::Taker;
use crate::shares::Sharer;

/// The most lanes that one look offers.
const OFFERED_LANES: usize = 100;
/// The most lanes of a session that a look finds. A worker that holds more gets a repeated take refused.
const HELD_LANES: usize = 1_024;
/// The most reads of one look, each after other calls have taken all lanes that the one before offered.
const MAX_READS: usize = 3;
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

/// The lanes that a queue offers.
#[derive(Default)]
struct Offer {
    lanes: Vec<LanePath>,
    // The time at which the first delayed lane is due.
    due_at: Option<Timestamp>,
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

    /// Takes the first lane that is ready, for a stream if there is a `taker`. Calls that look at the same time try
    /// different lanes.
    async fn look(self: &Arc<Self>, take: TakeId, taker: Option<&Taker>) -> Result<Look, Status> {
        let takers = &self.services.locks.queues.takers;
        let mut due_at = None;
        for read in 1..=MAX_READS {
            let offer = self.services.offer(&self.queue).await?;
            due_at = offer.due_at;
            let (count, mut is_contended) = (offer.lanes.len(), false);
            for (place, lane) in offer.lanes.into_iter().enumerate() {
                let tried = takers.try_lane(&lane);
                is_contended = true;
                if tried.is_none() && read < MAX_READS {
                    continue;
                }
                let taken = match taker {
                    Some(taker) => self.take_for_stream(taker, &lane, take).await?,
                    None => self.take_lane(&lane, take).await?,
                };
                if let Some(taken) = taken {
                    return Ok(Look::Taken(TakenLane { lane, taken, has_more: place + 1 < count }));
                }
            }
            if !is_contended {
                break;
            }
        }
        Ok(Look::Nothing(due_at))
    }

    /// Takes one lane in a task of its own. A stream may end before the take is decided: nobody would work on the
    /// requests then, so they go back, and no attempt counts (Q11).
    async fn take_for_stream(
        self: &Arc<Self>,
        taker: &Taker,
        lane: &LanePath,
        take: TakeId,
    ) -> Result<Option<Taken>, Status> {
        let Some(deciding) = taker.begin_take() else { return Ok(None) };
        let (sender, decision) = oneshot::channel();
        let (taking, lane) = (self.clone(), lane.clone());
        tokio::spawn(async move {
            let taken = taking.take_lane(&lane, take).await;
            if let Err(Ok(Some(Taken { fence, .. }))) = sender.send(taken) {
                taking.give_back(lane, fence).await;
            }
            drop(deciding);
        });
        // The task drops its sender only if it panics.
        decision.await.unwrap_or_else(|_| Err(errors::internal("a take has ended without a decision")))
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
        let TakenLane { lane, taken: Taken { fence, requests, progress }, .. } = taken;
        let (services, ids) = (&self.services, requests.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        let first = ids.first().copied().ok_or_else(|| errors::internal("a take has no request"))?;
        let found = services.store.request(first).await;
        let found = found.map_err(|error| services.unreadable(&error, Read::Request(first)))?;
        let bodies = services.store.bodies(&ids).await;
        let bodies = bodies.map_err(|error| services.unreadable(&error, Read::Bodies(ids)))?;
        // A request without a row was taken back meanwhile, and withdrawn.
        let passed = || errors::rejected(&Rejection::whole(Reason::FencePassed, Detail::None));
        let (found, bodies) = found.zip(bodies.into_iter().collect::<Option<Vec<_>>>()).ok_or_else(passed)?;
        let bytes = bodies.iter().map(|body| body.as_bytes().len()).sum();
        if let Some(charge) = charge {
            charge.reserve(bytes).await.map_err(|exceeded| {
                services.metrics.shed(method);
                errors::over_budget(exceeded)
            })?;
        }
        let request = |((RequestId(id), attempt), body): ((RequestId, u32), leasehold_core::queue::RequestBody)| {
            wire::TakenRequest { request_id: id.as_bytes().to_vec(), attempt, body: body.as_bytes().to_vec() }
        };
        Ok(wire::Batch {
            key: lane.key().to_owned(),
            fence: fence.0,
            requests: requests.into_iter().zip(bodies).map(request).collect(),
            progress: progress.map(|progress| progress.as_bytes().to_vec()),
            kind: wire_kind(found.kind).into(),
        })
    }
}

impl Services {
    async fn lanes(&self, read: OrderedRead<Lane>) -> Result<Vec<(LanePath, Lane)>, Status> {
        let lanes = self.store.lanes(read.clone()).await;
        lanes.map_err(|error| self.unreadable(&error, Read::Lanes(read)))
    }

    /// Reads the lanes that a queue offers to workers, in order.
    async fn offer(&self, queue: &QueuePath) -> Result<Offer, Status> {
        let row = self.store.queue(queue).await;
        let row = row.map_err(|error| self.unreadable(&error, Read::Queue(queue.clone())))?;
        if !row.unwrap_or_default().is_open() {
            return Ok(Offer::default());
        }
        let now = self.committer.clock().now();
        // One read finds the delayed lanes that are due, and the next one that will be.
        let (ready, delayed) = tokio::join!(
            self.lanes(ready_of(queue, OFFERED_LANES)),
            self.lanes(delayed_of(queue, Timestamp::MAX, OFFERED_LANES))
        );
        let due = |lane: &Lane| match &lane.state {
            LaneState::Waiting(head) => head.not_before,
            LaneState::Idle | LaneState::Taken(_) => Timestamp::MAX,
        };
        let (due, later): (Vec<_>, Vec<_>) = delayed?.into_iter().partition(|(_, lane)| due(lane) <= now);
        let due_at = later.first().and_then(|(_, lane)| match &lane.state {
            LaneState::Waiting(head) => Some(head.not_before),
            LaneState::Idle | LaneState::Taken(_) => None,
        });
        Ok(Offer { lanes: in_order(ready?, due), due_at })
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
    // The fences of the batches that the worker knows.
    known: BTreeSet<Fence>,
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
                    self.known.insert(taken.taken.fence);
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
        let Self { taker, session_news, stopping, pause: next_pause, moves_at, .. } = self;
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
            () = tokio::time::sleep(pause) => {}
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

    /// Looks at what the session holds, and takes a lane if the worker may hold one more. The store says what is
    /// held, so a batch whose message was lost with a former stream is found again.
    async fn step(&mut self) -> Result<Step, Status> {
        if !self.taker.begin_look() {
            return Ok(Step::Replaced);
        }
        let held = self.taking.held().await?;
        let fences: BTreeSet<_> = held.iter().filter_map(|(_, lane)| Some(lane.hold()?.fence)).collect();
        self.known.retain(|fence| fences.contains(fence));
        let count = held.len();
        for (lane, row) in held {
            let Some(hold) = row.hold().filter(|hold| !self.known.contains(&hold.fence)) else { continue };
            if let Some(taken) = self.taking.take_again(&lane, hold.take).await? {
                return Ok(Step::Send(TakenLane { lane, taken, has_more: false }));
            }
        }
        if count >= self.credit {
            return Ok(Step::Full);
        }
        match self.taking.look(TakeId(Uuid::now_v7()), Some(&self.taker)).await? {
            Look::Taken(taken) => Ok(Step::Send(taken)),
            Look::Nothing(due_at) => Ok(Step::Wait(due_at)),
        }
    }
}
