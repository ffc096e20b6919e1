//! A command that is run while this process holds something: a lock, as the verbs `lock` and `reap` do, or a
//! batch of a queue, as `queue take` does.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use futures_util::future::{FutureExt as _, join_all, select_all};
use leasehold_client::{Batch, Error, HeldLock, LockSession, SessionTerms, Standing, WorkOutcome};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::command_group::{CommandEvent, CommandGroup, exit_code};
use crate::error::{CliError, TenureKind, call_failed};
use crate::exit;

/// The longest time for which a server that has been silent is called to tell it an end.
const LAST_CALL: Duration = Duration::from_secs(1);

/// The signals that this process hands on to its command.
pub(crate) struct Stops {
    signals: Vec<(Signal, tokio::signal::unix::Signal)>,
    /// The last signal that has arrived.
    pub(crate) received: Option<Signal>,
}

impl Stops {
    pub(crate) fn install() -> io::Result<Self> {
        let kinds = [
            (Signal::SIGTERM, SignalKind::terminate()),
            (Signal::SIGINT, SignalKind::interrupt()),
            (Signal::SIGHUP, SignalKind::hangup()),
            (Signal::SIGQUIT, SignalKind::quit()),
            (Signal::SIGUSR1, SignalKind::user_defined1()),
            (Signal::SIGUSR2, SignalKind::user_defined2()),
        ];
        let signals = kinds.into_iter().map(|(number, kind)| Ok((number, signal(kind)?))).collect::<io::Result<_>>()?;
        Ok(Self { signals, received: None })
    }

    pub(crate) async fn next(&mut self) -> Signal {
        let received = self.signals.iter_mut().map(|(number, signal)| {
            Box::pin(async {
                signal.recv().await;
                *number
            })
        });
        let stop = select_all(received).await.0;
        self.received = Some(stop);
        stop
    }

    /// Notes the end of a command as a stop of its user if a signal has arrived beside it, as one to all processes of
    /// a service, or if the command had the terminal, where Ctrl-C and Ctrl-\\ reach it alone.
    fn note_end(&mut self, code: u8, had_terminal: bool) {
        let of_terminal = [Signal::SIGINT, Signal::SIGQUIT].into_iter().find(|signal| code == 128 + *signal as u8);
        if self.next().now_or_never().is_none() && had_terminal {
            self.received = self.received.or(of_terminal);
        }
    }
}

/// The locks or the batch that a command runs under. They end with the command.
#[derive(Clone, Copy)]
pub(crate) enum Tenure<'a> {
    /// At least one lock; several were acquired together.
    Locks(&'a [HeldLock]),
    /// A batch of a queue.
    Batch {
        batch: &'a Batch,
        /// The time until the next attempt if the command fails; `None` for the server's.
        retry_after: Option<Duration>,
    },
}

impl Tenure<'_> {
    fn kind(self) -> TenureKind {
        match self {
            Self::Locks(_) => TenureKind::Lock,
            Self::Batch { .. } => TenureKind::Batch,
        }
    }

    /// Returns the time until the first part of it may pass on.
    fn remaining(self, session: &LockSession) -> Duration {
        match self {
            Self::Locks(held) => held.iter().map(|held| session.remaining(held)).min().unwrap_or_default(),
            Self::Batch { .. } => session.session_remaining(),
        }
    }

    /// Waits until an operator has taken a part of it.
    async fn forced(self, session: &LockSession) {
        match self {
            // There is at least one lock, so `select_all` does not panic.
            Self::Locks(held) => _ = select_all(held.iter().map(|held| Box::pin(session.forced(held)))).await,
            // An operator ends a worker's session as a whole.
            Self::Batch { .. } => std::future::pending().await,
        }
    }

    /// Ends the tenure by the exit code of the command. Returns the first failure.
    async fn end(self, session: &LockSession, code: u8, is_stopped: bool) -> Result<(), Error> {
        match self {
            Self::Locks(held) => {
                let outcome = if code == 0 { WorkOutcome::Succeeded } else { WorkOutcome::Failed };
                let released = join_all(held.iter().map(|held| session.release(held, outcome, b""))).await;
                released.into_iter().collect()
            }
            Self::Batch { batch, .. } if code == 0 => batch.complete().await,
            // The command did not fail by itself: its user has stopped it (Q11).
            Self::Batch { batch, .. } if is_stopped => batch.give_back().await,
            Self::Batch { batch, retry_after } => batch.fail(retry_after).await,
        }
    }
}

/// A command that is run under something that this process holds.
pub(crate) struct Work<'a> {
    pub(crate) session: &'a LockSession,
    pub(crate) tenure: Tenure<'a>,
    pub(crate) terms: SessionTerms,
    pub(crate) command: &'a [OsString],
    pub(crate) environment: Vec<(&'static str, String)>,
    /// The standard input of the command; that of this process if it is `None`.
    pub(crate) input: Option<Vec<u8>>,
}

impl Work<'_> {
    /// Runs the command, and ends its tenure after all of its processes have ended.
    ///
    /// # Errors
    /// The command failed, or its tenure was lost.
    pub(crate) async fn run(self, stops: &mut Stops) -> Result<(), CliError> {
        let Self { session, tenure, terms, command, environment, input } = self;
        // The session may have been silent while it waited. The command starts under what this process knows to
        // hold, or not at all.
        let mut standing = session.standing();
        let _ = standing.wait_for(|standing| *standing != Standing::Jeopardy).await;
        if tenure.remaining(session).is_zero() {
            return Err(CliError::NeverHeld);
        }
        let end = match CommandGroup::start(command, environment, input) {
            Ok(group) => follow(group, (session, tenure), terms, stops).await,
            Err(cause) => {
                let program = command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
                End::NotStarted(CliError::NotStarted { program: program.into_owned(), cause })
            }
        };
        let is_stopped = stops.received.is_some();
        let ended = match &end {
            End::Own(code) => tenure.end(session, *code, is_stopped).await,
            // The command has not run, so the attempt at a batch does not count.
            End::NotStarted(error) => tenure.end(session, error.exit_code(), true).await,
            End::Forced => {
                let ended = tokio::time::timeout(LAST_CALL, tenure.end(session, exit::FAILURE, is_stopped)).await;
                // The session's end ends what it held.
                ended.unwrap_or(Ok(()))
            }
        };
        end.result(tenure.kind(), ended)
    }
}

/// Closes a session. One that can't be closed ends by its silence.
pub(crate) async fn close(locks: LockSession) {
    let standing = *locks.standing().borrow();
    match standing {
        Standing::Safe => _ = locks.close().await,
        Standing::Jeopardy => _ = tokio::time::timeout(LAST_CALL, locks.close()).await,
        Standing::Lost => {}
    }
}

/// The end of a command.
enum End {
    /// It ended by itself, or by a signal of its user, with this exit code.
    Own(u8),
    /// This process ended it, before its tenure could pass on.
    Forced,
    /// It was not started, for this reason.
    NotStarted(CliError),
}

impl End {
    /// Returns the result of the command, whose tenure was ended with this answer.
    fn result(self, kind: TenureKind, ended: Result<(), Error>) -> Result<(), CliError> {
        match (self, ended) {
            (_, Err(Error::SessionLost)) => Err(CliError::TenureLost(kind)),
            (_, Err(Error::Refused(refusal)))
                if matches!(refusal.reason.as_str(), "SESSION_ENDED" | "FENCE_PASSED") =>
            {
                Err(CliError::TenureLost(kind))
            }
            (Self::Forced, _) => Err(CliError::CommandStopped(kind)),
            // A batch that is not settled is worked again.
            (Self::Own(0), Err(error)) if kind == TenureKind::Batch => Err(call_failed(error)),
            (Self::NotStarted(error), ended) => {
                warn_of_failed_end(kind, ended);
                Err(error)
            }
            (Self::Own(code), ended) => {
                warn_of_failed_end(kind, ended);
                if code == 0 { Ok(()) } else { Err(CliError::Ended(code)) }
            }
        }
    }
}

/// Warns if the call that ends a tenure is not known to have arrived. The end of the session ends what it held.
fn warn_of_failed_end(kind: TenureKind, ended: Result<(), Error>) {
    if let Err(error) = ended {
        eprintln!("warning: the {kind} is not {}: {error}; it passes on when the session ends", kind.end());
    }
}

/// Follows the command to its end. Ends its process group before its tenure can pass on: SIGTERM
/// when half of the grace has passed or an operator has taken a lock, SIGKILL when the session is lost.
async fn follow(
    mut group: CommandGroup,
    (session, tenure): (&LockSession, Tenure<'_>),
    terms: SessionTerms,
    stops: &mut Stops,
) -> End {
    let (mut standing, kind) = (session.standing(), tenure.kind());
    let mut forced = Box::pin(tenure.forced(session));
    loop {
        let now = *standing.borrow_and_update();
        match now {
            Standing::Safe => {}
            Standing::Jeopardy => eprintln!("warning: the server does not answer: the command is in jeopardy"),
            Standing::Lost => {
                group.killed().await;
                return End::Forced;
            }
        }
        let half_grace = async {
            match now {
                Standing::Jeopardy => tokio::time::sleep(terms.grace / 2).await,
                Standing::Safe | Standing::Lost => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            stop = stops.next() => group.signal(stop),
            event = group.next() => match event {
                CommandEvent::Ended(status) => {
                    let code = exit_code(status);
                    stops.note_end(code, group.has_terminal());
                    return End::Own(code);
                }
                CommandEvent::Suspended => if !suspend(&mut group, session, tenure).await { return End::Forced },
            },
            () = half_grace => {
                eprintln!("warning: the {kind} is about to be lost: the command is ended");
                group.signal(Signal::SIGTERM);
                // Only the end of the command or the loss of the session is waited for now.
                tokio::select! {
                    _ = group.ended() => return End::Forced,
                    () = session.lost() => {}
                }
            }
            () = &mut forced => {
                eprintln!("warning: an operator has taken the lock: the command is ended");
                group.signal(Signal::SIGTERM);
                end_in(group, tenure.remaining(session)).await;
                return End::Forced;
            }
            _ = standing.changed() => {}
        }
    }
}

/// Suspends this process with its suspended command, until their user lets both go on. Nobody renews the
/// session meanwhile. Returns false if the tenure may have passed on; the command is then ended.
async fn suspend(group: &mut CommandGroup, session: &LockSession, tenure: Tenure<'_>) -> bool {
    if let Err(error) = group.suspend_with().await {
        eprintln!("warning: the command can't be suspended: {error}");
    }
    if tenure.remaining(session).is_zero() {
        group.killed().await;
        return false;
    }
    group.resume();
    true
}

/// Waits for the end of the command, and kills its process group after the time `left`.
async fn end_in(mut group: CommandGroup, left: Duration) {
    if tokio::time::timeout(left, group.ended()).await.is_err() {
        group.killed().await;
    }
}
