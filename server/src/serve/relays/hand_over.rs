//! Hands the rows of an outbox to the engine, in their order, by the commands that the calls of clients
//! become as well.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::command::{Command, Reply};
use leasehold_core::lease::Fence;
use leasehold_core::queue::{LanePath, Priority, QueuePath, RequestBody, RequestId, RequestKind, RequestState};
use leasehold_core::queueing::retry::Retry;
use leasehold_core::queueing::settle::{SettleWork, WorkOutcome};
use leasehold_core::queueing::submit::{NewRequest, Submit, is_full_lane};
use leasehold_core::queueing::{QueueCommand, QueueReply, Worker};
use leasehold_core::rejection::{Reason, Rejection};
use leasehold_core::session::{Principal, SessionId};
use leasehold_core::time::Timestamp;
use uuid::Uuid;

use crate::active_config::CurrentConfig;
use crate::committer::CommitterRefusal;
use crate::grpc::Services;
use crate::identity::Caller;
use crate::store::{OutboxOperation, OutboxOutcome, OutboxRefusal, OutboxRow, OutboxSettle, OutboxSubmit, StoreError};

/// The code of the refusal of a queue that the relay's caller may not use, as a call of the caller gets it.
const RULE_DENIED: &str = "RULE_DENIED";

/// The namespace of the queues for which the gem for Rails captures changes of claims. The relay of the gem verifies these, and
/// submits none of them, so a worker would wait for them in vain.
const CAPTURED_CLAIMS: &str = "leasehold.claims";

/// The server, as one relay calls it.
pub(super) struct HandOver {
    pub(super) services: Arc<Services>,
    pub(super) current: Arc<CurrentConfig>,
    pub(super) caller: Caller,
    pub(super) principal: Principal,
}

/// The result for the first rows of those that were handed over.
pub(super) struct HandedOver {
    /// The number of rows that the server has decided: all of them, unless it failed.
    pub(super) decided: usize,
    /// Those that the server has refused for good.
    pub(super) refusals: Vec<OutboxRefusal>,
    /// The reason why the row after those has to wait.
    pub(super) failure: Option<NotNow>,
}

/// The reason why rows have to wait in the outbox.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotNow {
    #[error("the server can't decide its rows: {0}")]
    Server(#[from] CommitterRefusal),
    /// Later requests of the lane must not pass those that find no room (Q07).
    #[error("a lane has no room: all rows wait until workers have taken some of its requests")]
    FullLane,
}

/// The decision about one row: its acceptance, or the code of the reason of its refusal for good.
type RowDecision = Result<(), &'static str>;

/// Rows that can be handed over at once.
enum Run<'a> {
    Submits(Vec<&'a OutboxSubmit>),
    /// Settles of different lanes.
    Settles(Vec<&'a OutboxSettle>),
    /// Rows that have nothing to hand over.
    Passes(usize),
}

impl HandOver {
    /// Hands rows over in their order.
    pub(super) async fn hand_over(&self, rows: &[OutboxRow]) -> HandedOver {
        let mut decisions: Vec<RowDecision> = Vec::with_capacity(rows.len());
        let mut failure = None;
        for run in runs(rows) {
            let decided = match run {
                Run::Submits(submits) => self.submit(&submits).await,
                Run::Settles(settles) => self.settle(&settles).await,
                Run::Passes(count) => Ok(vec![Ok(()); count]),
            };
            match decided {
                Ok(decided) => decisions.extend(decided),
                Err(refusal) => {
                    failure = Some(refusal);
                    break;
                }
            }
        }
        let refused = rows.iter().zip(&decisions).filter_map(|(row, decision)| Some((row.place, decision.err()?)));
        let refusals = refused.map(|(place, reason)| OutboxRefusal { place, reason }).collect();
        HandedOver { decided: decisions.len(), refusals, failure }
    }

    /// Submits requests in their order. If the server refuses them together, the halves are tried, so that one request
    /// holds up no other.
    async fn submit(&self, submits: &[&OutboxSubmit]) -> Result<Vec<RowDecision>, NotNow> {
        let mut decisions = Vec::with_capacity(submits.len());
        let mut halves = vec![submits];
        while let Some(part) = halves.pop() {
            match self.submit_together(part).await? {
                Ok(()) => decisions.extend(part.iter().map(|_| Ok(()))),
                Err(reason) if part.len() <= 1 => decisions.push(Err(reason)),
                Err(_) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    halves.extend([second, first]);
                }
            }
        }
        Ok(decisions)
    }

    async fn submit_together(&self, submits: &[&OutboxSubmit]) -> Result<RowDecision, NotNow> {
        let now = self.services.committer().clock().now();
        let parsed: Result<Vec<_>, &'static str> =
            submits.iter().map(|submit| self.parse_submit(submit, now)).collect();
        let submit = match parsed.and_then(|requests| Submit::parse(requests).map_err(|refusal| self.code(&refusal))) {
            Ok(submit) => submit,
            Err(reason) => return Ok(Err(reason)),
        };
        self.decide(QueueCommand::Submit(submit)).await
    }

    /// Settles batches of different lanes at once.
    async fn settle(&self, settles: &[&OutboxSettle]) -> Result<Vec<RowDecision>, NotNow> {
        join_all(settles.iter().map(|settle| self.settle_one(settle))).await.into_iter().collect()
    }

    async fn settle_one(&self, settle: &OutboxSettle) -> Result<RowDecision, NotNow> {
        let command = match self.parse_settle(settle) {
            Ok(command) => command,
            Err(reason) => return Ok(Err(reason)),
        };
        let decision = self.decide(QueueCommand::SettleWork(command)).await?;
        // A worker may have settled the batch itself, and the lane may have been taken since.
        match decision {
            Err(_) if !settle.done.is_empty() && self.unsettled(&settle.done).await?.is_empty() => Ok(Ok(())),
            decision => Ok(decision),
        }
    }

    /// Returns those of the requests that a worker may still get, or get again.
    pub(super) async fn unsettled(&self, requests: &[Uuid]) -> Result<Vec<Uuid>, CommitterRefusal> {
        let mut unsettled = Vec::new();
        for id in requests {
            let found = self.services.store().request(RequestId(*id)).await.map_err(unreadable)?;
            if found.is_some_and(|request| request.state != RequestState::Complete) {
                unsettled.push(*id);
            }
        }
        Ok(unsettled)
    }

    async fn decide(&self, command: QueueCommand) -> Result<RowDecision, NotNow> {
        let decision = self.services.committer().submit(self.caller.clone(), Command::Queue(command)).await?;
        Ok(match decision {
            Ok(Reply::Queue(QueueReply::Submitted(_) | QueueReply::Done(_))) => Ok(()),
            Ok(_) => Err("INTERNAL"),
            Err(rejection) if is_full_lane(&rejection) => return Err(NotNow::FullLane),
            Err(rejection) => Err(self.code(&rejection)),
        })
    }

    fn parse_submit(&self, submit: &OutboxSubmit, now: Timestamp) -> Result<NewRequest, &'static str> {
        let lane = self.lane(&submit.queue, &submit.key)?;
        let parse = || {
            Ok(NewRequest {
                request: RequestId(submit.request),
                lane,
                kind: if submit.is_create { RequestKind::Create } else { RequestKind::Update },
                priority: Priority::parse(u8::try_from(submit.priority).unwrap_or(u8::MAX))?,
                not_before: now.plus_micros(submit.delay_micros),
                max_attempts: u32::try_from(submit.max_attempts).unwrap_or_default(),
                body: RequestBody::parse(&submit.body)?,
            })
        };
        parse().map_err(|refusal: Rejection| self.code(&refusal))
    }

    fn parse_settle(&self, settle: &OutboxSettle) -> Result<SettleWork, &'static str> {
        let outcome = match settle.outcome {
            OutboxOutcome::Completed => WorkOutcome::Completed,
            OutboxOutcome::Failed { retry_micros } => {
                WorkOutcome::Failed { retry: retry_micros.map_or(Retry::Backoff, Retry::After) }
            }
            OutboxOutcome::GivenBack => WorkOutcome::GivenBack,
        };
        let worker = Worker { session: SessionId(settle.session), principal: self.principal.clone() };
        Ok(SettleWork { worker, lane: self.lane(&settle.queue, &settle.key)?, fence: Fence(settle.fence), outcome })
    }

    /// Returns the lane of a row, if the relay's caller may use its queue.
    fn lane(&self, queue: &str, key: &str) -> Result<LanePath, &'static str> {
        let queue = QueuePath::parse(queue).map_err(|refusal| self.code(&refusal))?;
        let is_allowed = self.current.load().config.locks.allows(&self.caller, queue.as_str());
        match is_allowed && !is_captured_claims(&queue) {
            true => LanePath::parse(queue, key).map_err(|refusal| self.code(&refusal)),
            false => Err(RULE_DENIED),
        }
    }

    /// Returns the code of a refusal, which is counted as that of a client's call is.
    fn code(&self, refusal: &Rejection) -> &'static str {
        self.services.metrics.rejected(refusal);
        refusal.reason().code()
    }
}

fn is_captured_claims(queue: &QueuePath) -> bool {
    queue.as_str().strip_prefix(CAPTURED_CLAIMS).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// True if a settle with this refusal has found its batch settled, taken back or passed on, which a worker that died or
/// was slow makes happen.
pub(super) fn is_late(reason: &str) -> bool {
    [Reason::SessionNotFound, Reason::SessionEnded, Reason::FencePassed].iter().any(|late| late.code() == reason)
}

fn unreadable(error: StoreError) -> CommitterRefusal {
    CommitterRefusal::StoreUnavailable(error.to_string().into())
}

/// Divides rows into runs that keep their order where it counts.
fn runs(rows: &[OutboxRow]) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    let mut lanes = HashSet::new();
    for row in rows {
        match (&row.operation, runs.last_mut()) {
            (OutboxOperation::Submit(submit), Some(Run::Submits(run))) => run.push(submit),
            (OutboxOperation::Submit(submit), _) => runs.push(Run::Submits(vec![submit])),
            (OutboxOperation::Settle(settle), Some(Run::Settles(run)))
                if lanes.insert((&*settle.queue, &*settle.key)) =>
            {
                run.push(settle);
            }
            (OutboxOperation::Settle(settle), _) => {
                lanes = HashSet::from([(&*settle.queue, &*settle.key)]);
                runs.push(Run::Settles(vec![settle]));
            }
            (OutboxOperation::Pass, Some(Run::Passes(count))) => *count += 1,
            (OutboxOperation::Pass, _) => runs.push(Run::Passes(1)),
        }
    }
    runs
}
