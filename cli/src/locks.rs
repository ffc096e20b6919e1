//! The verb `locks`: lists locks with their holders and the number of those that wait.

use std::str::FromStr;
use std::time::Duration;

use leasehold_proto::leasehold::locks::v1::{ForceLockRequest, ListLocksRequest, Lock, LockPath, ended_grant, lock};
use serde_json::Value;
use tokio::time::sleep;
use uuid::Uuid;

use crate::contract::object_of;
use crate::error::CliError;
use crate::lock::LockName;
use crate::output::{Pages, line, show_time};
use crate::session::Session;
use crate::words::printable;

/// The pause between two pictures of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The control sequence that clears a terminal and moves to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Arguments of `locks`.
#[derive(Clone, Debug, clap::Args)]
pub struct LocksArgs {
    /// Only locks of this namespace and of the namespaces in it, or one lock; all if not given, for administrators
    #[arg(value_name = "NAMESPACE[/KEY]", default_value = "")]
    of: Wanted,

    /// Show the locks again each second, until this is interrupted
    #[arg(long)]
    watch: bool,
}

/// The locks that a user wants to see: those of a namespace, or one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    namespace: String,
    key: Option<String>,
}

impl FromStr for Wanted {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.contains('/') {
            return Ok(Self { namespace: text.to_owned(), key: None });
        }
        let LockName { namespace, key } = text.parse()?;
        Ok(Self { namespace, key: Some(key) })
    }
}

impl Wanted {
    /// Returns true for a lock that the user wants to see, of those in the namespace.
    fn has(&self, lock: &Lock) -> bool {
        let is_named = |path: &LockPath| path.namespace == self.namespace && Some(&path.key) == self.key.as_ref();
        self.key.is_none() || lock.path.as_ref().is_some_and(is_named)
    }
}

/// Arguments of `force-lock`.
#[derive(Clone, Debug, clap::Args)]
pub struct ForceLockArgs {
    /// The lock: a namespace and a key, such as cron/backup
    #[arg(value_name = "NAMESPACE/KEY")]
    lock: LockName,

    /// The fence of the holder, as `leasehold locks` shows it
    #[arg(long, value_name = "N")]
    fence: u64,

    /// The slot of a shared lock, as `leasehold locks` shows it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slot: Option<u32>,

    /// Pass the lock on at once, though its holder may still work under it: only fences then refuse its writes
    #[arg(long)]
    at_once: bool,
}

pub(crate) async fn locks(session: &Session<'_>, args: LocksArgs) -> Result<(), CliError> {
    loop {
        let locks = read(session, &args).await?;
        if args.watch && !session.json {
            line(CLEAR)?;
        }
        show(session, &args.of, &locks)?;
        if !args.watch {
            return Ok(());
        }
        sleep(WATCH_INTERVAL).await;
    }
}

async fn read(session: &Session<'_>, args: &LocksArgs) -> Result<Vec<Lock>, CliError> {
    let mut stub = session.open().await?;
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let request = ListLocksRequest { namespace: args.of.namespace.clone(), limit: 1_000, after };
        let page = session.connection.wait(stub.list_locks(request)).await?.into_inner();
        after = page.locks.last().and_then(|lock| lock.path.clone());
        found.extend(page.locks.into_iter().filter(|lock| args.of.has(lock)));
        if !page.truncated || after.is_none() {
            return Ok(found);
        }
    }
}

fn show(session: &Session<'_>, of: &Wanted, locks: &[Lock]) -> Result<(), CliError> {
    if session.json {
        return locks.iter().try_for_each(|lock| {
            let mut object = object_of(lock)?;
            // The text form, by which a log of LEASEHOLD_SESSION names the session too.
            object.insert("sessionId".to_owned(), session_of(lock).into());
            line(&Value::Object(object).to_string())
        });
    }
    match &of.key {
        _ if !locks.is_empty() => {}
        Some(_) => eprintln!("this lock is free: nobody holds it, and none waits"),
        None => eprintln!("no lock is held, withheld or orphaned"),
    }
    Pages::new(&["LOCK", "SLOT", "STATE", "FENCE", "WAITING", "SESSION", "SINCE", "LAST"]).write(locks.iter().map(row))
}

/// Returns the id of the session that holds a lock; empty if none does.
fn session_of(lock: &Lock) -> String {
    Uuid::from_slice(&lock.session_id).map(|id| id.to_string()).unwrap_or_default()
}

fn row(lock: &Lock) -> Vec<String> {
    let LockPath { namespace, key, slot } = lock.path.clone().unwrap_or_default();
    let session = session_of(lock);
    // The fence by which an operator names the lock: that of its grant, or of the grant to clean up after.
    let due = lock.obituary.as_ref().map_or(0, |obituary| obituary.fence);
    let fence = if lock.fence == 0 { due } else { lock.fence };
    let fence = if fence == 0 { String::new() } else { fence.to_string() };
    let state = match lock.state() {
        lock::State::Unspecified => "unknown",
        lock::State::Free => "free",
        lock::State::Held => "held",
        lock::State::Withheld => "withheld",
        lock::State::Orphaned => "orphaned",
        lock::State::SetAside => "set-aside",
        lock::State::Shared => "shared",
    };
    // A slot has its number. A shared lock has the number of its taken slots, and of its permits.
    let slot = match (slot, lock.taken_slots, lock.permits) {
        (0, 0, _) => String::new(),
        (0, taken, 0) => format!("{taken} taken"),
        (0, taken, permits) => format!("{taken} of {permits}"),
        (slot, ..) => slot.to_string(),
    };
    let last = lock.last.as_ref().map(|last| last.end().as_str_name().to_lowercase()).unwrap_or_default();
    let last = if last == ended_grant::End::Unspecified.as_str_name().to_lowercase() { String::new() } else { last };
    vec![
        printable(&format!("{namespace}/{key}")),
        slot,
        state.to_owned(),
        fence,
        lock.waiting.to_string(),
        session,
        show_time(lock.updated_at.as_ref()),
        last,
    ]
}

pub(crate) async fn force(session: &Session<'_>, args: ForceLockArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let lock =
        Some(LockPath { namespace: args.lock.namespace, key: args.lock.key, slot: args.slot.unwrap_or_default() });
    let request = ForceLockRequest { lock, fence: args.fence, at_once: args.at_once };
    session.connection.wait(stub.force_lock(request)).await.map_err(CliError::for_admins)?;
    if !session.json && args.at_once {
        eprintln!("the lock has passed on; its former holder is told, and may still work for a moment");
    } else if !session.json {
        eprintln!("its holder is told; the lock is withheld until the holder's time is over, then it passes on");
    }
    Ok(())
}
