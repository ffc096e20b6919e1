//! The verb `lock`: runs a command while it holds a lock, as `flock` does on one machine.

use std::ffi::OsString;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use leasehold_client::{Error, HeldLock, LockSession, SessionTerms, Standing, WorkOutcome};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::command_group::{CommandGroup, exit_code};
use crate::error::{CliError, call_failed};
use crate::session::Session;

/// The variable in which the command finds the fence of its lock.
const FENCE: &str = "LEASEHOLD_FENCE";
/// The variable in which the command finds the name of its lock.
const NAME: &str = "LEASEHOLD_LOCK";

/// The exit code of a command that is not found, as shells give it.
const NOT_FOUND: u8 = 127;
/// The exit code of a command that can't be started, as shells give it.
const NOT_STARTED: u8 = 126;

/// Arguments of `lock`.
#[derive(Clone, Debug, clap::Args)]
pub struct LockArgs {
    /// The lock: a namespace and a key, such as cron/backup
    #[arg(value_name = "NAMESPACE/KEY")]
    lock: LockName,

    /// Wait at most N seconds for the lock; 0 means now or never
    #[arg(long, value_name = "N", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait_seconds: u64,

    /// The time without an answer of the server after which the command is in jeopardy
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration_seconds: u64,

    /// The time after that in which the command is ended, before the lock passes on
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    grace_seconds: u64,

    /// The command, with its arguments
    ///
    /// It finds the fence of the lock in LEASEHOLD_FENCE, and the name in LEASEHOLD_LOCK. The lock is released when the
    /// command and every process that it started have ended: as failed if the command's exit code is not 0. The exit
    /// code is the command's own.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The name of a lock as a user types it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockName {
    pub(crate) namespace: String,
    pub(crate) key: String,
}

impl FromStr for LockName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, key)) if !namespace.is_empty() && !key.is_empty() => {
                Ok(Self { namespace: namespace.to_owned(), key: key.to_owned() })
            }
            _ => Err("a lock has a namespace and a key with a slash between them, such as cron/backup"),
        }
    }
}

/// The signals that this process hands on to its command.
struct Stops(Vec<(Signal, tokio::signal::unix::Signal)>);

impl Stops {
    fn install() -> io::Result<Self> {
        let kinds = [
            (Signal::SIGTERM, SignalKind::terminate()),
            (Signal::SIGINT, SignalKind::interrupt()),
            (Signal::SIGHUP, SignalKind::hangup()),
        ];
        kinds.into_iter().map(|(number, kind)| Ok((number, signal(kind)?))).collect::<io::Result<_>>().map(Self)
    }

    async fn next(&mut self) -> Signal {
        let received = self.0.iter_mut().map(|(number, signal)| {
            Box::pin(async {
                signal.recv().await;
                *number
            })
        });
        futures_util::future::select_all(received).await.0
    }
}

pub(crate) async fn lock(session: &Session<'_>, args: LockArgs) -> Result<(), CliError> {
    session.open().await?;
    let client = session.connection.client()?;
    let mut stops = Stops::install()?;
    let terms = SessionTerms {
        duration: Duration::from_secs(args.duration_seconds),
        grace: Duration::from_secs(args.grace_seconds),
    };
    let locks = client.lock_session(terms).await.map_err(call_failed)?;
    let wait = Duration::from_secs(args.wait_seconds);
    let result = tokio::select! {
        held = locks.lock(&args.lock.namespace, &args.lock.key, wait) => match held {
            Ok(Some(held)) => run_under(&locks, &held, &args, terms, &mut stops).await,
            Ok(None) => Err(CliError::LockHeld),
            Err(error) => Err(call_failed(error)),
        },
        () = locks.lost() => Err(CliError::NeverHeld),
        // The session's end ends its ask, too.
        stop = stops.next() => Err(CliError::Ended(128 + stop as u8)),
    };
    // A session that can't be closed ends by its silence.
    let is_lost = *locks.standing().borrow() == Standing::Lost;
    if !is_lost {
        let _ = locks.close().await;
    }
    result
}

/// Runs the command, and releases the lock after all of its processes have ended.
async fn run_under(
    locks: &LockSession,
    held: &HeldLock,
    args: &LockArgs,
    terms: SessionTerms,
    stops: &mut Stops,
) -> Result<(), CliError> {
    // The session may have been silent while it waited. The command starts under a lock that this
    // process knows to hold, or not at all.
    let mut standing = locks.standing();
    let _ = standing.wait_for(|standing| *standing != Standing::Jeopardy).await;
    if locks.remaining(held).is_zero() {
        return Err(CliError::NeverHeld);
    }
    let name = format!("{}/{}", args.lock.namespace, args.lock.key);
    let environment = [(FENCE, held.fence().to_string()), (NAME, name)];
    let code = match CommandGroup::start(&args.command, environment) {
        Ok(group) => follow(group, locks, held, terms, stops).await,
        Err(error) => {
            let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
            eprintln!("error: `{program}` can't be started: {error}");
            if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_STARTED }
        }
    };
    let outcome = if code == 0 { WorkOutcome::Succeeded } else { WorkOutcome::Failed };
    match locks.release(held, outcome, b"").await {
        Ok(()) if code == 0 => Ok(()),
        Ok(()) => Err(CliError::Ended(code)),
        Err(Error::Refused(refusal)) if matches!(refusal.reason.as_str(), "SESSION_ENDED" | "FENCE_PASSED") => {
            Err(CliError::LockLost)
        }
        // The release is not known to have arrived. The end of the session frees the lock.
        Err(error) => {
            eprintln!("warning: the lock is not released: {error}; it passes on when the session ends");
            if code == 0 { Ok(()) } else { Err(CliError::Ended(code)) }
        }
    }
}

/// Follows the command to its end. Ends its process group before the lock can pass on: SIGTERM when
/// half of the grace has passed or an operator has taken the lock, SIGKILL when the lock is lost.
/// Returns its exit code.
async fn follow(
    mut group: CommandGroup,
    locks: &LockSession,
    held: &HeldLock,
    terms: SessionTerms,
    stops: &mut Stops,
) -> u8 {
    let mut standing = locks.standing();
    let mut forced = std::pin::pin!(locks.forced(held));
    loop {
        let now = *standing.borrow_and_update();
        match now {
            Standing::Safe => {}
            Standing::Jeopardy => eprintln!("warning: the server does not answer: the command is in jeopardy"),
            Standing::Lost => return exit_code(group.killed().await),
        }
        let half_grace = async {
            match now {
                Standing::Jeopardy => tokio::time::sleep(terms.grace / 2).await,
                Standing::Safe | Standing::Lost => std::future::pending().await,
            }
        };
        tokio::select! {
            status = group.ended() => return exit_code(status),
            stop = stops.next() => group.signal(stop),
            () = half_grace => {
                eprintln!("warning: the lock is about to be lost: the command is ended");
                group.signal(Signal::SIGTERM);
                // Only the end of the command or the loss of the session is waited for now.
                tokio::select! {
                    status = group.ended() => return exit_code(status),
                    () = locks.lost() => {}
                }
            }
            () = &mut forced => {
                eprintln!("warning: an operator has taken the lock: the command is ended");
                group.signal(Signal::SIGTERM);
                return end_in(group, locks.remaining(held)).await;
            }
            _ = standing.changed() => {}
        }
    }
}

/// Waits for the end of the command, and kills its process group after the time `left`.
async fn end_in(mut group: CommandGroup, left: Duration) -> u8 {
    let status = match tokio::time::timeout(left, group.ended()).await {
        Ok(status) => status,
        Err(_) => group.killed().await,
    };
    exit_code(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_named_by_namespace_and_key() {
        let name = LockName::from_str("cron.db/backup/daily").unwrap();
        assert_eq!((name.namespace.as_str(), name.key.as_str()), ("cron.db", "backup/daily"));
        for text in ["", "backup", "/backup", "cron/"] {
            assert!(LockName::from_str(text).is_err(), "{text}");
        }
    }
}
