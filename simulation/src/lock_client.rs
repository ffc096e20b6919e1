//! The client of a cell: a process that works under locks, and the keepalive of its session. Either
//! can be paused or crash between any two of its steps.
//!
//! ```text
//! work     open session · acquire · (check the deadline · write to the resource) twice · release
//! serve    open session · take · check the deadline · write to the resource · settle
//! wait     acquire again after a time-out, with the same ask · leave the queue
//! failure  forget the session, which then ends by its silence
//! ```
//!
//! The client knows its own deadline without the service (K11). It counts from the moment at which
//! it sent the last call that renewed its session, on its own clock. It takes off one sixteenth for
//! the drift of two clocks, as the client for Rust does. The client works until its session can
//! expire at the service: for its duration and its grace.

mod serve;

use leasehold_core::lease::Fence;
use leasehold_core::lock::AskId;
use leasehold_core::session::SessionId;
use leasehold_core::standing::{Deadlines, Standing};
use serde::Serialize;

use crate::database::micros;
use crate::lock_message::{LockAnswer, LockRequest};
use crate::lock_names::{ask_id, session_id};
use crate::network::{MessageId, Network, Payload, Request, Response};
use crate::process::Process;
use crate::resource::{Resources, WriteOutcome};
use crate::settings::LockSettings;
use crate::step_context::Calls;

pub use serve::Serving;

/// The number of times that a client tries one call.
const ATTEMPTS: u8 = 3;
/// The number of writes of one piece of work.
const WRITES: u8 = 2;

/// The next action of a client's task, or the answer that the task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkPhase {
    /// Open a session.
    OpenSession,
    /// Wait for the answer to the open.
    AwaitSession,
    /// Ask for the lock.
    Acquire,
    /// Wait for the grant of the lock.
    AwaitGrant,
    /// Look at the clock: the session must not be lost.
    Check,
    /// Write to the resource, under the fence of the grant.
    WriteResource,
    /// Release the lock.
    Release,
    /// Wait for the answer to the release.
    AwaitRelease,
    /// Leave the queue of the lock.
    Leave,
    /// Wait for the answer to the leave.
    AwaitLeave,
    /// Take the first requests of a lane.
    Take,
    /// Wait for requests.
    AwaitTake,
    /// Settle the requests that were taken.
    Settle,
    /// Wait for the answer to the settle.
    AwaitSettle,
    /// Close the session.
    Close,
    /// Wait for the answer to the close.
    AwaitClose,
}

impl WorkPhase {
    /// Returns true if a task in this phase waits for the service.
    pub fn awaits_service(self) -> bool {
        match self {
            Self::AwaitSession | Self::AwaitGrant | Self::AwaitRelease | Self::AwaitLeave => true,
            Self::AwaitTake | Self::AwaitSettle | Self::AwaitClose => true,
            Self::OpenSession | Self::Acquire | Self::Check | Self::WriteResource | Self::Release => false,
            Self::Leave | Self::Take | Self::Settle | Self::Close => false,
        }
    }
}

/// The result of a client's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkResult {
    /// The work was done under the lock, and the lock is released.
    Done,
    /// The lock was not granted for as long as the client waited.
    GaveUp,
    /// The client stopped its work, because its session is lost.
    Lost,
    /// The client stopped its work, because an operator took its lock.
    Taken,
    /// The resource refused a write, because it has seen a newer fence.
    Fenced,
    /// The service did not answer.
    Unanswered,
    /// The process died.
    Died,
    /// The session is closed.
    Closed,
    /// No lane was ready for as long as the worker waited.
    Idle,
    /// The work on the requests has failed, and the service knows it.
    Failed,
    /// The worker has given its requests back.
    GivenBack,
}

/// The task of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// Work under the lock with this number.
    Work(u8),
    /// Take requests of the queue, and work on them.
    Serve,
    /// Close the session.
    Close,
}

/// The state of a task in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// The task.
    pub kind: TaskKind,
    /// The next action of the task.
    pub phase: WorkPhase,
    /// The fence of the grant, `None` before the client learns of the grant.
    pub fence: Option<Fence>,
    ask: AskId,
    attempts: u8,
    writes: u8,
}

/// The session of a client, as the client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientSession {
    /// The id of the session.
    pub id: SessionId,
    /// The time by the client's clock at which it sent the last call that renewed the session.
    pub renewed_at: u64,
    /// True if the service has answered that the session is open.
    pub is_open: bool,
    /// The fence of the last grant that an operator took, as far as the client was told. The answer to
    /// its acquire may arrive later (K20).
    pub taken: Option<Fence>,
}

/// A client with its keepalive.
#[derive(Clone, Debug, Default, Hash)]
pub struct LockClient {
    /// The client's session, `None` before it opens one and after it has lost it.
    pub session: Option<ClientSession>,
    /// The client's task in progress, `None` while it is idle.
    pub task: Option<Task>,
    /// The requests that the client works on, `None` unless it serves a queue.
    pub serving: Option<Serving>,
    /// The result of the last task, `None` before its end.
    pub last_result: Option<WorkResult>,
    /// The state of the client's calls to the service.
    pub calls: Calls,
    /// The state of the keepalive's calls to the service.
    pub keepalive: Calls,
    /// True if the whole process is paused, with its keepalive.
    pub is_paused: bool,
    sessions: u32,
    asks: u32,
    /// The times by the client's clock at which its last call, and that of the keepalive, were sent.
    sent_at: [u64; 2],
}

/// The part of the world that a client can read and change during one of its steps.
pub struct ClientContext<'a> {
    /// The number of the client's cell.
    pub cell: u8,
    /// The world's clock, in microseconds.
    pub now: u64,
    /// The time by the client's clock, in microseconds.
    pub clock: u64,
    /// The terms of every session.
    pub terms: LockSettings,
    /// The messages in flight.
    pub network: &'a mut Network,
    /// The resources that locks guard.
    pub resources: &'a mut Resources,
}

fn deadlines(terms: LockSettings) -> Deadlines {
    Deadlines::new(micros(terms.duration_seconds), micros(terms.grace_seconds))
}

impl ClientSession {
    /// Returns true if the client can't be sure that its session is live: by its own clock the
    /// service may have expired it.
    pub fn is_lost(&self, clock: u64, terms: LockSettings) -> bool {
        deadlines(terms).standing(clock.saturating_sub(self.renewed_at)) == Standing::Lost
    }

    /// Returns true if the duration has passed by the client's clock, less its drift.
    pub fn is_in_jeopardy(&self, clock: u64, terms: LockSettings) -> bool {
        deadlines(terms).standing(clock.saturating_sub(self.renewed_at)) != Standing::Safe
    }

    /// Returns true if a renewal is due: a third of the duration has passed.
    pub fn is_renewal_due(&self, clock: u64, terms: LockSettings) -> bool {
        clock.saturating_sub(self.renewed_at) >= deadlines(terms).renewal_micros()
    }
}

impl LockClient {
    /// Starts a task.
    pub fn start(&mut self, kind: TaskKind, cell: u8, clock: u64, terms: LockSettings) {
        self.asks += 1;
        self.last_result = None;
        self.session = self.session.filter(|session| session.is_open && !session.is_lost(clock, terms));
        let phase = match (kind, self.session) {
            (TaskKind::Close, _) => WorkPhase::Close,
            (TaskKind::Work(_), Some(_)) => WorkPhase::Acquire,
            (TaskKind::Serve, Some(_)) => WorkPhase::Take,
            (TaskKind::Work(_) | TaskKind::Serve, None) => WorkPhase::OpenSession,
        };
        self.serving = (kind == TaskKind::Serve).then(|| Serving::new(self.asks));
        let ask = ask_id(cell, self.asks);
        self.task = Some(Task { kind, phase, fence: None, ask, attempts: 0, writes: 0 });
    }

    /// Returns true if the client can take a step without waiting for a message.
    pub fn is_ready(&self) -> bool {
        !self.is_paused && self.task.is_some_and(|task| !task.phase.awaits_service())
    }

    /// Returns true if the keepalive can send a renewal.
    pub fn can_renew(&self) -> bool {
        !self.is_paused && !self.keepalive.is_waiting && self.session.is_some_and(|session| session.is_open)
    }

    /// Returns the lock and the fence under which the client works, `None` if it holds none as far
    /// as it knows.
    pub fn hold(&self, clock: u64, terms: LockSettings) -> Option<(u8, Fence)> {
        let task = self.task.filter(|task| matches!(task.phase, WorkPhase::Check | WorkPhase::WriteResource))?;
        let TaskKind::Work(lock) = task.kind else { return None };
        self.session.filter(|session| !session.is_lost(clock, terms))?;
        Some((lock, task.fence?))
    }

    /// Ends the process, which loses its memory.
    pub fn crash(&mut self) {
        (self.session, self.serving) = (None, None);
        if self.task.take().is_some() {
            self.last_result = Some(WorkResult::Died);
        }
        (self.calls.is_waiting, self.keepalive.is_waiting, self.is_paused) = (false, false, false);
    }

    fn end(&mut self, result: WorkResult) {
        (self.task, self.serving) = (None, None);
        self.last_result = Some(result);
    }

    /// Ends the task, and stops to renew the session. The session then ends by its silence.
    fn end_without_session(&mut self, result: WorkResult) {
        self.session = None;
        self.keepalive.is_waiting = false;
        self.end(result);
    }

    /// Takes the next step of the task, if one is in progress. Returns the id of the message that it
    /// sent, and the outcome of its write to the resource.
    pub fn step(&mut self, context: &mut ClientContext<'_>) -> (Option<MessageId>, Option<WriteOutcome>) {
        let Some(mut task) = self.task else { return (None, None) };
        let request = match task.phase {
            WorkPhase::Check => {
                self.check(task, context);
                return (None, None);
            }
            WorkPhase::WriteResource if serve::is_serving(task) => return (None, self.write_batch(task, context)),
            WorkPhase::WriteResource => return (None, self.write(task, context)),
            WorkPhase::OpenSession => self.open(context).map(Request::Lock),
            WorkPhase::Take | WorkPhase::Settle => self.queue_request(task, context.cell),
            phase => self.session.and_then(|session| task.request(phase, session.id)).map(Request::Lock),
        };
        let Some(request) = request else {
            self.end_without_session(WorkResult::Lost);
            return (None, None);
        };
        task.phase = task.phase.awaited();
        self.task = Some(task);
        (Some(self.call(Process::Client, request, context)), None)
    }

    fn open(&mut self, context: &ClientContext<'_>) -> Option<LockRequest> {
        if self.session.is_none() {
            self.sessions += 1;
            let id = session_id(context.cell, self.sessions);
            self.session = Some(ClientSession { id, renewed_at: context.clock, is_open: false, taken: None });
        }
        self.session.map(|session| LockRequest::Open(session.id))
    }

    fn check(&mut self, task: Task, context: &ClientContext<'_>) {
        if self.session.is_none_or(|session| session.is_lost(context.clock, context.terms)) {
            return self.end_without_session(WorkResult::Lost);
        }
        self.task = Some(Task { phase: WorkPhase::WriteResource, ..task });
    }

    fn write(&mut self, task: Task, context: &mut ClientContext<'_>) -> Option<WriteOutcome> {
        let (TaskKind::Work(lock), Some(fence)) = (task.kind, task.fence) else { return None };
        let outcome = context.resources.write(lock, fence, context.cell);
        let writes = task.writes + 1;
        match outcome {
            WriteOutcome::Refused => self.end_without_session(WorkResult::Fenced),
            WriteOutcome::Accepted { .. } if writes < WRITES => {
                self.task = Some(Task { phase: WorkPhase::Check, writes, ..task });
            }
            WriteOutcome::Accepted { .. } => {
                self.task = Some(Task { phase: WorkPhase::Release, writes, ..task });
            }
        }
        Some(outcome)
    }

    /// Sends a renewal, or forgets a session that is lost. Returns the id of the message.
    pub fn renew(&mut self, context: &mut ClientContext<'_>) -> Option<MessageId> {
        let session = self.session.filter(|_| self.can_renew())?;
        if session.is_lost(context.clock, context.terms) {
            self.session = None;
            return None;
        }
        Some(self.call(Process::Keepalive, Request::Lock(LockRequest::Renew(session.id)), context))
    }

    fn call(&mut self, process: Process, request: Request, context: &mut ClientContext<'_>) -> MessageId {
        let [of_client, of_keepalive] = &mut self.sent_at;
        let (calls, sent_at) = match process {
            Process::Keepalive => (&mut self.keepalive, of_keepalive),
            _ => (&mut self.calls, of_client),
        };
        *sent_at = context.clock;
        *calls = Calls { made: calls.made + 1, is_waiting: true };
        let id = MessageId::request(context.cell, process, calls.made);
        context.network.send(id, Payload::Request(request), context.now);
        id
    }

    /// Passes an answer of the service to the keepalive.
    pub fn renewed(&mut self, answer: &Response, clock: u64, terms: LockSettings) {
        self.keepalive.is_waiting = false;
        let [_, sent_at] = self.sent_at;
        match answer {
            // A session that is lost by the client's clock never becomes safe again (K02).
            Response::Lock(LockAnswer::Renewed(forced)) => {
                self.session = self.session.filter(|session| !session.is_lost(clock, terms));
                if let Some(session) = &mut self.session {
                    session.renewed_at = session.renewed_at.max(sent_at);
                    session.taken = forced.or(session.taken);
                }
                // The session lives on without the lock that an operator took (K20).
                if forced.is_some() && self.task.is_some_and(|task| task.fence == *forced) {
                    self.end(WorkResult::Taken);
                }
            }
            Response::Lock(LockAnswer::Refused(_)) => self.session = None,
            _ => {}
        }
    }

    /// Passes an answer of the service to the task.
    pub fn answer(&mut self, answer: &Response) {
        self.calls.is_waiting = false;
        let Some(task) = self.task else { return };
        match answer {
            Response::Lock(LockAnswer::Refused(_)) => self.refused(task),
            Response::Lock(answer) => self.advance(task, *answer),
            Response::Queue(answer) => self.advance_batch(task, answer),
            _ => self.retry(task),
        }
    }

    fn advance(&mut self, task: Task, answer: LockAnswer) {
        let next = |phase| Some(Task { phase, attempts: 0, ..task });
        match (task.phase, answer) {
            (WorkPhase::AwaitSession, _) => {
                let [sent_at, _] = self.sent_at;
                let opened = |session: ClientSession| ClientSession { renewed_at: sent_at, is_open: true, ..session };
                self.session = self.session.map(opened);
                self.task = next(if serve::is_serving(task) { WorkPhase::Take } else { WorkPhase::Acquire });
            }
            (WorkPhase::AwaitGrant, LockAnswer::Holding(fence))
                if self.session.is_some_and(|session| session.taken == Some(fence)) =>
            {
                self.end(WorkResult::Taken);
            }
            (WorkPhase::AwaitGrant, LockAnswer::Holding(fence)) => {
                self.task = Some(Task { phase: WorkPhase::Check, fence: Some(fence), attempts: 0, ..task });
            }
            (WorkPhase::AwaitRelease, _) => self.end(WorkResult::Done),
            (WorkPhase::AwaitLeave, _) => self.end(WorkResult::GaveUp),
            (WorkPhase::AwaitClose, _) => self.end_without_session(WorkResult::Closed),
            _ => {}
        }
    }

    fn refused(&mut self, task: Task) {
        match task.phase {
            WorkPhase::AwaitClose => self.end_without_session(WorkResult::Closed),
            _ => self.end_without_session(WorkResult::Lost),
        }
    }

    /// Ends the wait for an answer to the client's call or to that of its keepalive.
    pub fn time_out(&mut self, process: Process) {
        if process == Process::Keepalive {
            self.keepalive.is_waiting = false;
            return;
        }
        self.calls.is_waiting = false;
        self.task.into_iter().for_each(|task| self.retry(task));
    }

    /// Repeats the last call of a task. After the last attempt, a client that waits for a lock
    /// leaves the queue. Any other client forgets its session.
    fn retry(&mut self, task: Task) {
        let attempts = task.attempts + 1;
        match task.phase.repeated() {
            phase if attempts < ATTEMPTS => self.task = Some(Task { phase, attempts, ..task }),
            WorkPhase::Acquire => self.task = Some(Task { phase: WorkPhase::Leave, attempts: 0, ..task }),
            _ => self.end_without_session(WorkResult::Unanswered),
        }
    }
}

impl WorkPhase {
    /// Returns the phase in which a task waits for the answer to the call of this phase.
    fn awaited(self) -> Self {
        match self {
            Self::OpenSession => Self::AwaitSession,
            Self::Acquire => Self::AwaitGrant,
            Self::Release => Self::AwaitRelease,
            Self::Leave => Self::AwaitLeave,
            Self::Take => Self::AwaitTake,
            Self::Settle => Self::AwaitSettle,
            Self::Close => Self::AwaitClose,
            other => other,
        }
    }

    /// Returns the phase in which a task repeats the call whose answer it waits for.
    fn repeated(self) -> Self {
        match self {
            Self::AwaitSession => Self::OpenSession,
            Self::AwaitGrant => Self::Acquire,
            Self::AwaitRelease => Self::Release,
            Self::AwaitLeave => Self::Leave,
            Self::AwaitTake => Self::Take,
            Self::AwaitSettle => Self::Settle,
            Self::AwaitClose => Self::Close,
            other => other,
        }
    }
}

impl Task {
    /// Returns the request that the task sends in a phase, `None` if it lacks what the request needs.
    fn request(&self, phase: WorkPhase, session: SessionId) -> Option<LockRequest> {
        Some(match (phase, self.kind) {
            (WorkPhase::Acquire, TaskKind::Work(lock)) => LockRequest::Acquire { session, ask: self.ask, lock },
            (WorkPhase::Release, TaskKind::Work(lock)) => LockRequest::Release { session, lock, fence: self.fence? },
            (WorkPhase::Leave, _) => LockRequest::Leave { session, ask: self.ask },
            (WorkPhase::Close, _) => LockRequest::Close(session),
            _ => return None,
        })
    }
}
