//! The verb `lock`: runs a command while it holds a lock or several, as `flock` does on one machine.

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use leasehold_client::{HeldLock, LockSession, Refusal, SessionTerms, WantedLock};

use crate::error::{CliError, call_failed};
use crate::session::Session;
use crate::variables;
use crate::work::{self, Stops, Tenure, Work};

/// Arguments of `lock`.
#[derive(Clone, Debug, clap::Args)]
pub struct LockArgs {
    /// The lock: a namespace and a key, such as cron/backup
    #[arg(value_name = "NAMESPACE/KEY")]
    lock: LockName,

    /// Hold this lock too; may be repeated, but not with `--permits`. The command runs once all locks are held, and
    /// nothing is kept if one is not
    #[arg(long = "and", value_name = "NAMESPACE/KEY", conflicts_with = "permits")]
    others: Vec<LockName>,

    /// Wait at most N seconds for the lock; 0 means now or never
    #[arg(long, value_name = "N", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait_seconds: u64,

    /// Share the lock with all other commands that are `--shared`, as readers do; with `--and`, share all locks
    #[arg(long, conflicts_with = "permits")]
    shared: bool,

    /// Hold one of N permits of one lock, so that at most N commands run at a time; all must name the same N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    permits: Option<u32>,

    /// The time without an answer of the server after which the command is in jeopardy
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration_seconds: u64,

    /// The time after that in which the command is ended, before the lock passes on
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    grace_seconds: u64,

    /// The command, with its arguments
    ///
    /// It finds the fence of the lock in LEASEHOLD_FENCE, the name in LEASEHOLD_LOCK, and the session that holds it in
    /// LEASEHOLD_SESSION. With `--permits`, the number of its permit, from 1 to N, is in LEASEHOLD_SLOT; with `--shared`,
    /// a number that no other holder has. With `--and`, all but the session have a line for each lock. The locks are
    /// released when the command and every process that it started have ended: as failed if the command's exit code is
    /// not 0. The exit code is the command's own, or 9 if the command was ended before its lock could pass on.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The name of a lock as a user types it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockName {
    pub(crate) namespace: String,
    pub(crate) key: String,
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.key)
    }
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

pub(crate) async fn lock(session: &Session<'_>, args: LockArgs) -> Result<(), CliError> {
    warn_of_own_locks(session, &args);
    session.open().await?;
    let client = session.connection.client()?;
    let mut stops = Stops::install()?;
    let terms = SessionTerms {
        duration: Duration::from_secs(args.duration_seconds),
        grace: Duration::from_secs(args.grace_seconds),
    };
    let locks = client.lock_session(terms).await.map_err(call_failed)?;
    // The server ends the wait, and needs some time to answer.
    let longest = Duration::from_secs(args.wait_seconds).saturating_add(session.connection.timeout());
    let result = tokio::select! {
        held = tokio::time::timeout(longest, acquire(&locks, &args)) => match held {
            Ok(Ok(Some(held))) => {
                let environment = environment(session, &args, &locks, &held);
                let tenure = Tenure::Locks(&held);
                let work = Work { session: &locks, tenure, terms, command: &args.command, environment, input: None };
                work.run(&mut stops).await
            }
            Ok(Ok(None)) => Err(CliError::LockHeld { has_waited: args.wait_seconds > 0 }),
            Ok(Err(error)) => Err(call_failed(error)),
            Err(_) => Err(Refusal::late(longest).into()),
        },
        () = locks.lost() => Err(CliError::NeverHeld),
        // The session's end ends its ask, too.
        stop = stops.next() => Err(CliError::Ended(128 + stop as u8)),
    };
    work::close(locks).await;
    result
}

/// Warns if the lock is one of those under which this process runs itself. It then waits for its own
/// end, unless both share the lock.
fn warn_of_own_locks(session: &Session<'_>, args: &LockArgs) {
    let around = std::env::var(variables::AROUND).unwrap_or_default();
    let (url, is_shared) = (session.connection.url(), args.shared || args.permits.is_some());
    for name in args.names().map(LockName::to_string).filter(|_| args.wait_seconds > 0) {
        let is_own = |line: &str| match line.splitn(3, ' ').collect::<Vec<_>>()[..] {
            [server, slot, held] => (server, held) == (&url, &name) && (slot == "0" || !is_shared),
            _ => false,
        };
        if around.lines().any(is_own) {
            eprintln!(
                "warning: this runs under the lock {name} already, and waits for it until --wait-seconds are over"
            );
        }
    }
}

/// Returns the variables that tell the command its locks.
fn environment(
    session: &Session<'_>,
    args: &LockArgs,
    locks: &LockSession,
    held: &[HeldLock],
) -> Vec<(&'static str, String)> {
    let lines = |each: &dyn Fn(&HeldLock) -> String| held.iter().map(each).collect::<Vec<_>>().join("\n");
    let names: Vec<_> = args.names().map(LockName::to_string).collect();
    let server = session.connection.url();
    let own = lines(&|held| format!("{server} {} {}/{}", held.slot(), held.namespace(), held.key()));
    let around = std::env::var(variables::AROUND).map(|around| format!("{around}\n{own}")).unwrap_or(own);
    let fences = lines(&|held| held.fence().to_string());
    let mut environment = vec![
        (variables::FENCE, fences),
        (variables::LOCK, names.join("\n")),
        (variables::SESSION, locks.id().to_string()),
        (variables::AROUND, around),
    ];
    if held.iter().any(|held| held.slot() > 0) {
        environment.push((variables::SLOT, lines(&|held| held.slot().to_string())));
    }
    environment
}

impl LockArgs {
    fn names(&self) -> impl Iterator<Item = &LockName> {
        std::iter::once(&self.lock).chain(&self.others)
    }
}

async fn acquire(locks: &LockSession, args: &LockArgs) -> Result<Option<Vec<HeldLock>>, leasehold_client::Error> {
    let wait = Duration::from_secs(args.wait_seconds);
    let wanted = args.names().map(|LockName { namespace, key }| match args.permits.and_then(NonZeroU32::new) {
        Some(permits) => WantedLock::permit(namespace, key, permits),
        None if args.shared => WantedLock::shared(namespace, key),
        None => WantedLock::alone(namespace, key),
    });
    let wanted: Vec<_> = wanted.collect();
    match wanted.as_slice() {
        // A server that knows no locks that are acquired together grants one lock.
        [one] => Ok(locks.acquire(one, wait).await?.map(|held| vec![held])),
        all => locks.lock_all(all, wait).await,
    }
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
