//! The service `QueueService`: submits, takes, settles and shows requests.

use std::num::NonZeroU32;
use std::sync::Arc;

use leasehold_core::command::{Command, Reply};
use leasehold_core::lease::Fence;
use leasehold_core::queue::{BatchSize, LanePath, Priority, Progress, QueuePath, RequestBody, RequestId, TakeId};
use leasehold_core::queueing::limit::LimitQueue;
use leasehold_core::queueing::note::NoteProgress;
use leasehold_core::queueing::pause::{Pause, PauseScope};
use leasehold_core::queueing::retry::Retry;
use leasehold_core::queueing::revise::{Resubmit, Withdraw};
use leasehold_core::queueing::settle::{SettleWork, WorkOutcome};
use leasehold_core::queueing::submit::{NewRequest, Submit, Submitted};
use leasehold_core::queueing::{QueueCommand, QueueReply, Worker};
use leasehold_core::rejection::Rejection;
use leasehold_core::session::SessionId;
use leasehold_core::time::Timestamp;
use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::queues::v1::queue_service_server::QueueService;
use tokio::sync::watch;
use tonic::{Request, Response, Status, async_trait};

use super::failed_reads::Read;
use super::queue_take::Taking;
use super::queue_wire::{read_kind, wire_request, wire_state};
use super::sessions::{LockCaller, ResponseStream, read_id};
use super::{Services, admitted, errors};
use crate::active_config::ActiveConfig;
use crate::budget::Charge;
use crate::identity::{Caller, Denied, Role};
use crate::peer::Peer;

/// The handlers of `QueueService`.
#[derive(Clone)]
pub struct QueueHandler {
    /// The state of the services.
    pub services: Arc<Services>,
    /// Becomes true when the server stops.
    pub stopping: watch::Receiver<bool>,
}

impl Services {
    /// Submits a command of queues, and returns its reply when its changes are durable.
    pub(super) async fn submit_queue(
        &self,
        config: &ActiveConfig,
        caller: Caller,
        command: QueueCommand,
    ) -> Result<QueueReply, Status> {
        self.decide_queue(caller, command).await?.map_err(|rejection| self.reject(config, &rejection))
    }

    /// Submits a command of queues, and returns its reply or the engine's refusal.
    pub(super) async fn decide_queue(
        &self,
        caller: Caller,
        command: QueueCommand,
    ) -> Result<Result<QueueReply, Rejection>, Status> {
        let decision = self.committer.submit(caller, Command::Queue(command)).await;
        match decision.map_err(|refusal| errors::refused(&refusal))? {
            Ok(Reply::Queue(reply)) => Ok(Ok(reply)),
            Ok(Reply::Begun(_) | Reply::Settled(_) | Reply::Forgotten(_) | Reply::Lock(_)) => Err(wrong_reply()),
            Err(rejection) => Ok(Err(rejection)),
        }
    }

    /// Returns the queue that a caller names, if the caller may use it.
    pub(super) fn allowed_queue(
        &self,
        config: &ActiveConfig,
        caller: &Caller,
        name: &str,
    ) -> Result<QueuePath, Status> {
        let queue = QueuePath::parse(name).map_err(|rejection| self.reject(config, &rejection))?;
        match config.config.locks.allows(caller, queue.as_str()) {
            true => Ok(queue),
            false => Err(errors::denied(Denied::NamespaceDenied)),
        }
    }

    /// Returns the queue that a caller names, if the caller may read it. Administrators may read every queue.
    pub(super) fn readable_queue(
        &self,
        config: &ActiveConfig,
        caller: &Caller,
        name: &str,
    ) -> Result<QueuePath, Status> {
        self.allowed_queue(config, reader(caller), name)
    }
}

/// Returns the caller by whose rights a caller reads: an administrator may read everything.
pub(super) fn reader(caller: &Caller) -> &Caller {
    if matches!(caller, Caller::Authenticated(Role::Admin)) { &Caller::Trusted } else { caller }
}

fn wrong_reply() -> Status {
    errors::internal("a command of queues got the reply of another command")
}

/// A worker that holds a lane, as its request names both.
struct HeldLane {
    worker: Worker,
    lane: LanePath,
}

impl QueueHandler {
    fn held_lane(&self, caller: &LockCaller, session: &[u8], (queue, key): (&str, &str)) -> Result<HeldLane, Status> {
        let session = SessionId(read_id("session_id", session)?);
        let queue = self.services.allowed_queue(&caller.config, &caller.caller, queue)?;
        let lane = LanePath::parse(queue, key).map_err(|rejection| self.services.reject(&caller.config, &rejection))?;
        Ok(HeldLane { worker: Worker { session, principal: caller.principal.clone() }, lane })
    }

    fn taking(
        &self,
        caller: LockCaller,
        session: &[u8],
        (queue, max_requests): (&str, u32),
    ) -> Result<Arc<Taking>, Status> {
        let session = SessionId(read_id("session_id", session)?);
        let queue = self.services.allowed_queue(&caller.config, &caller.caller, queue)?;
        let size = match max_requests {
            0 => BatchSize::MAX,
            _ => {
                BatchSize::parse(max_requests).map_err(|rejection| self.services.reject(&caller.config, &rejection))?
            }
        };
        Ok(Arc::new(Taking { services: self.services.clone(), caller, session, queue, size }))
    }

    /// Submits a command of an administrator, and returns the state in which it found its request.
    async fn find(
        &self,
        config: &ActiveConfig,
        caller: Caller,
        command: QueueCommand,
    ) -> Result<wire::RequestState, Status> {
        match self.services.submit_queue(config, caller, command).await? {
            QueueReply::Found(state) => Ok(wire_state(state)),
            QueueReply::Submitted(_) | QueueReply::Taken(_) | QueueReply::Done(_) => Err(wrong_reply()),
        }
    }
}

/// Parses the id of a request.
pub(super) fn read_request(bytes: &[u8]) -> Result<RequestId, Status> {
    read_id("request_id", bytes).map(RequestId)
}

/// Parses a request to submit, by its queue and the time of the call.
fn read_new(queue: &QueuePath, new: wire::NewRequest, now: Timestamp) -> Result<Result<NewRequest, Rejection>, Status> {
    let (request, kind) = (read_request(&new.request_id)?, read_kind(new.kind())?);
    let parse = || {
        Ok(NewRequest {
            request,
            lane: LanePath::parse(queue.clone(), &new.key)?,
            kind,
            priority: Priority::parse(u8::try_from(new.priority).unwrap_or(u8::MAX))?,
            not_before: now.plus_micros(new.delay_micros),
            max_attempts: new.max_attempts,
            body: RequestBody::parse(&new.body)?,
        })
    };
    Ok(parse())
}

fn read_outcome(outcome: wire::settle_request::Outcome, retry_micros: Option<u64>) -> Result<WorkOutcome, Status> {
    use wire::settle_request::Outcome;
    match outcome {
        Outcome::Failed => Ok(WorkOutcome::Failed { retry: retry_micros.map_or(Retry::Backoff, Retry::After) }),
        _ if retry_micros.is_some() => Err(errors::invalid("`retry_micros` is set, and the work has not failed")),
        Outcome::Completed => Ok(WorkOutcome::Completed),
        Outcome::GivenBack => Ok(WorkOutcome::GivenBack),
        Outcome::Unspecified => Err(errors::invalid("`outcome` is none of COMPLETED, FAILED and GIVEN_BACK")),
    }
}

#[async_trait]
impl QueueService for QueueHandler {
    async fn submit(&self, request: Request<wire::SubmitRequest>) -> Result<Response<wire::SubmitResponse>, Status> {
        let LockCaller { caller, config, .. } = LockCaller::of(&request)?;
        let wire::SubmitRequest { queue, requests } = request.into_inner();
        let queue = self.services.allowed_queue(&config, &caller, &queue)?;
        let reject = |rejection| self.services.reject(&config, &rejection);
        let now = self.services.committer.clock().now();
        let requests = requests.into_iter().map(|new| read_new(&queue, new, now)?.map_err(reject));
        let submit = Submit::parse(requests.collect::<Result<_, _>>()?).map_err(reject)?;
        match self.services.submit_queue(&config, caller, QueueCommand::Submit(submit)).await? {
            QueueReply::Submitted(submitted) => {
                let requests = submitted.into_iter().map(|Submitted { request, is_new }| wire::SubmittedRequest {
                    request_id: request.0.as_bytes().to_vec(),
                    is_new,
                });
                Ok(Response::new(wire::SubmitResponse { requests: requests.collect() }))
            }
            QueueReply::Taken(_) | QueueReply::Found(_) | QueueReply::Done(_) => Err(wrong_reply()),
        }
    }

    async fn take_now(
        &self,
        request: Request<wire::TakeNowRequest>,
    ) -> Result<Response<wire::TakeNowResponse>, Status> {
        let caller = LockCaller::of(&request)?;
        let charge = request.extensions().get::<Arc<Charge>>().cloned();
        let wire::TakeNowRequest { session_id, queue, take_id, max_requests } = request.into_inner();
        let take = TakeId(read_id("take_id", &take_id)?);
        let taking = self.taking(caller, &session_id, (&queue, max_requests))?;
        let batch = match taking.take_now(take).await? {
            Some(taken) => Some(taking.batch(taken, ("TakeNow", charge.as_deref())).await?),
            None => None,
        };
        Ok(Response::new(wire::TakeNowResponse { batch }))
    }

    type TakeStream = ResponseStream<wire::TakeResponse>;

    async fn take(&self, request: Request<wire::TakeRequest>) -> Result<Response<Self::TakeStream>, Status> {
        let caller = LockCaller::of(&request)?;
        let budget = request.extensions().get::<Peer>().map(|peer| peer.budgets().answers.clone());
        let wire::TakeRequest { session_id, queue, credit, held_fences, max_requests } = request.into_inner();
        let taking = self.taking(caller, &session_id, (&queue, max_requests))?;
        let stream = taking.into_stream((credit, held_fences), self.stopping.clone(), budget).await?;
        Ok(Response::new(Box::pin(stream)))
    }

    async fn settle(&self, request: Request<wire::SettleRequest>) -> Result<Response<wire::SettleResponse>, Status> {
        let caller = LockCaller::of(&request)?;
        let outcome = read_outcome(request.get_ref().outcome(), request.get_ref().retry_micros)?;
        let wire::SettleRequest { session_id, queue, key, fence, .. } = request.into_inner();
        let HeldLane { worker, lane } = self.held_lane(&caller, &session_id, (&queue, &key))?;
        let settle = QueueCommand::SettleWork(SettleWork { worker, lane, fence: Fence(fence), outcome });
        self.services.submit_queue(&caller.config, caller.caller, settle).await?;
        Ok(Response::new(wire::SettleResponse {}))
    }

    async fn note_progress(
        &self,
        request: Request<wire::NoteProgressRequest>,
    ) -> Result<Response<wire::NoteProgressResponse>, Status> {
        let caller = LockCaller::of(&request)?;
        let wire::NoteProgressRequest { session_id, queue, key, fence, progress } = request.into_inner();
        let HeldLane { worker, lane } = self.held_lane(&caller, &session_id, (&queue, &key))?;
        let progress =
            Progress::parse(&progress).map_err(|rejection| self.services.reject(&caller.config, &rejection))?;
        let note = QueueCommand::NoteProgress(NoteProgress { worker, lane, fence: Fence(fence), progress });
        self.services.submit_queue(&caller.config, caller.caller, note).await?;
        Ok(Response::new(wire::NoteProgressResponse {}))
    }

    async fn withdraw(
        &self,
        request: Request<wire::WithdrawRequest>,
    ) -> Result<Response<wire::WithdrawResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let withdraw = Withdraw { request: read_request(&request.get_ref().request_id)? };
        let found = self.find(&config, permit.caller(), QueueCommand::Withdraw(withdraw)).await?;
        Ok(Response::new(wire::WithdrawResponse { found: found.into() }))
    }

    async fn resubmit(
        &self,
        request: Request<wire::ResubmitRequest>,
    ) -> Result<Response<wire::ResubmitResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let resubmit = Resubmit { request: read_request(&request.get_ref().request_id)? };
        let found = self.find(&config, permit.caller(), QueueCommand::Resubmit(resubmit)).await?;
        Ok(Response::new(wire::ResubmitResponse { found: found.into() }))
    }

    async fn pause(&self, request: Request<wire::PauseRequest>) -> Result<Response<wire::PauseResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let wire::PauseRequest { queue, key, resume } = request.into_inner();
        let queue = self.services.readable_queue(&config, &permit.caller(), &queue)?;
        let scope = match key.is_empty() {
            true => PauseScope::Queue(queue),
            false => PauseScope::Lane(
                LanePath::parse(queue, &key).map_err(|rejection| self.services.reject(&config, &rejection))?,
            ),
        };
        let pause = QueueCommand::Pause(Pause { scope, is_paused: !resume });
        self.services.submit_queue(&config, permit.caller(), pause).await?;
        Ok(Response::new(wire::PauseResponse {}))
    }

    async fn set_limit(
        &self,
        request: Request<wire::SetLimitRequest>,
    ) -> Result<Response<wire::SetLimitResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let wire::SetLimitRequest { queue, limit } = request.into_inner();
        let queue = self.services.readable_queue(&config, &permit.caller(), &queue)?;
        let limit = QueueCommand::LimitQueue(LimitQueue { queue, limit: NonZeroU32::new(limit) });
        self.services.submit_queue(&config, permit.caller(), limit).await?;
        Ok(Response::new(wire::SetLimitResponse {}))
    }

    async fn get_request(
        &self,
        request: Request<wire::GetRequestRequest>,
    ) -> Result<Response<wire::GetRequestResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let charge = request.extensions().get::<Arc<Charge>>().cloned();
        let wire::GetRequestRequest { request_id, with_body } = request.into_inner();
        let (id, services) = (read_request(&request_id)?, &self.services);
        let found = services.store.request(id).await;
        let found = found.map_err(|error| services.unreadable(&error, Read::Request(id)))?;
        let Some(found) = found else { return Ok(Response::new(wire::GetRequestResponse::default())) };
        services.readable_queue(&config, &permit.caller(), found.lane.queue().as_str())?;
        let mut body = Vec::new();
        if with_body {
            let bytes = found.body.bytes as usize;
            charge.map_or(Ok(()), |charge| charge.grow_to(bytes)).map_err(|exceeded| {
                services.metrics.shed("GetRequest");
                errors::over_budget(exceeded)
            })?;
            let bodies = services.store.bodies(&[id]).await;
            let bodies = bodies.map_err(|error| services.unreadable(&error, Read::Bodies(vec![id])))?;
            body = bodies.into_iter().flatten().next().map(|body| body.as_bytes().to_vec()).unwrap_or_default();
        }
        Ok(Response::new(wire::GetRequestResponse { request: Some(wire_request(id, &found)), body }))
    }

    async fn get_queue(
        &self,
        request: Request<wire::GetQueueRequest>,
    ) -> Result<Response<wire::GetQueueResponse>, Status> {
        let (permit, config) = admitted(&request)?;
        let queue = self.services.readable_queue(&config, &permit.caller(), &request.into_inner().queue)?;
        let found = self.services.store.queue(&queue).await;
        let found = found.map_err(|error| self.services.unreadable(&error, Read::Queue(queue.clone())))?;
        let found = found.unwrap_or_default();
        let limit = found.limit.map_or(0, NonZeroU32::get);
        Ok(Response::new(wire::GetQueueResponse { is_paused: found.is_paused, limit, taken: found.taken }))
    }

    async fn list_requests(
        &self,
        request: Request<wire::ListRequestsRequest>,
    ) -> Result<Response<wire::ListRequestsResponse>, Status> {
        self.requests_page(request).await.map(Response::new)
    }

    async fn list_lanes(
        &self,
        request: Request<wire::ListLanesRequest>,
    ) -> Result<Response<wire::ListLanesResponse>, Status> {
        self.lanes_page(request).await.map(Response::new)
    }
}
