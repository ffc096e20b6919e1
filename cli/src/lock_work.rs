//! A command that is run under a lock, as the verbs `lock` and `reap` do.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use leasehold_client::{Error, HeldLock, LockSession, SessionTerms, Standing, WorkOutcome};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::command_group::{CommandEvent, CommandGroup, exit_code};
use crate::error::CliError;

/// The exit code of a command that is not found, as shells give it.
const NOT_FOUND: u8 = 127;
/// The exit code of a command that can't be started, as shells give it.
const NOT_STARTED: u8 = 126;
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
}

/// A command that is run under a lock, or under several that were acquired together.
pub(crate) struct LockWork<'a> {
    pub(crate) locks: &'a LockSession,
    // At least one lock.
    pub(crate) held: &'a [HeldLock],
    pub(crate) terms: SessionTerms,
    pub(crate) command: &'a [OsString],
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl LockWork<'_> {
    /// Runs the command, and releases the locks after all of its processes have ended.
    ///
    /// # Errors
    /// The command failed, or a lock was lost.
    pub(crate) async fn run(self, stops: &mut Stops) -> Result<(), CliError> {
        let Self { locks, held, terms, command, environment } = self;
        // The session may have been silent while it waited. The command starts under a lock that this
        // process knows to hold, or not at all.
        let mut standing = locks.standing();
        let _ = standing.wait_for(|standing| *standing != Standing::Jeopardy).await;
        if remaining(locks, held).is_zero() {
            return Err(CliError::NeverHeld);
        }
        let end = match CommandGroup::start(command, environment) {
            Ok(group) => follow(group, locks, held, terms, stops).await,
            Err(error) => {
                let program = command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
                eprintln!("error: `{program}` can't be started: {error}");
                End::Own(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_STARTED })
            }
        };
        let released = match end {
            End::Own(0) => release(locks, held, WorkOutcome::Succeeded).await,
            End::Own(_) => release(locks, held, WorkOutcome::Failed).await,
            End::Forced => match tokio::time::timeout(LAST_CALL, release(locks, held, WorkOutcome::Failed)).await {
                Ok(released) => released,
                // The session's end frees the lock.
                Err(_) => Ok(()),
            },
        };
        end.result(released)
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

/// The end of a command that ran under a lock.
enum End {
    /// It ended by itself, or by a signal of its user, with this exit code.
    Own(u8),
    /// This process ended it, before its lock could pass on.
    Forced,
}

impl End {
    /// Returns the result of the command, whose locks were released with this answer.
    fn result(self, released: Result<(), Error>) -> Result<(), CliError> {
        match (self, released) {
            (_, Err(Error::Refused(refusal)))
                if matches!(refusal.reason.as_str(), "SESSION_ENDED" | "FENCE_PASSED") =>
            {
                Err(CliError::LockLost)
            }
            (Self::Forced, _) => Err(CliError::CommandStopped),
            (Self::Own(code), released) => {
                // The release is not known to have arrived. The end of the session frees the lock.
                if let Err(error) = released {
                    eprintln!("warning: the lock is not released: {error}; it passes on when the session ends");
                }
                if code == 0 { Ok(()) } else { Err(CliError::Ended(code)) }
            }
        }
    }
}

/// Returns the time until the first of the locks may pass on.
fn remaining(locks: &LockSession, held: &[HeldLock]) -> Duration {
    held.iter().map(|held| locks.remaining(held)).min().unwrap_or_default()
}

/// Releases every lock, and returns the first failure.
async fn release(locks: &LockSession, held: &[HeldLock], outcome: WorkOutcome) -> Result<(), Error> {
    let released = join_all(held.iter().map(|held| locks.release(held, outcome, b""))).await;
    released.into_iter().collect()
}

/// Follows the command to its end. Ends its process group before the lock can pass on: SIGTERM when
/// half of the grace has passed or an operator has taken the lock, SIGKILL when the lock is lost.
async fn follow(
    mut group: CommandGroup,
    locks: &LockSession,
    held: &[HeldLock],
    terms: SessionTerms,
    stops: &mut Stops,
) -> End {
    let mut standing = locks.standing();
    // There is at least one lock, so `select_all` does not panic.
    let mut forced = select_all(held.iter().map(|held| Box::pin(locks.forced(held))));
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
            event = group.next() => match event {
                CommandEvent::Ended(status) => return End::Own(exit_code(status)),
                CommandEvent::Suspended => if !suspend(&mut group, locks, held).await { return End::Forced },
            },
            stop = stops.next() => group.signal(stop),
            () = half_grace => {
                eprintln!("warning: the lock is about to be lost: the command is ended");
                group.signal(Signal::SIGTERM);
                // Only the end of the command or the loss of the session is waited for now.
                tokio::select! {
                    _ = group.ended() => return End::Forced,
                    () = locks.lost() => {}
                }
            }
            _ = &mut forced => {
                eprintln!("warning: an operator has taken the lock: the command is ended");
                group.signal(Signal::SIGTERM);
                end_in(group, remaining(locks, held)).await;
                return End::Forced;
            }
            _ = standing.changed() => {}
        }
    }
}

/// Suspends this process with its suspended command, until their user lets both go on. Nobody renews the
/// session meanwhile. Returns false if the lock may have passed on; the command is then ended.
async fn suspend(group: &mut CommandGroup, locks: &LockSession, held: &[HeldLock]) -> bool {
    if let Err(error) = group.suspend_with().await {
        eprintln!("warning: the command can't be suspended: {error}");
    }
    if remaining(locks, held).is_zero() {
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
