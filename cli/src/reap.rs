//! The verb `reap`: runs a command for each orphaned lock of a namespace, and the verb
//! `resolve-orphan`.

use std::ffi::OsString;
use std::time::Duration;

use leasehold_client::{LockSession, Orphan, SessionTerms};
use leasehold_proto::leasehold::locks::v1::resolve_orphan_request::Resolution;
use leasehold_proto::leasehold::locks::v1::{LockPath, ResolveOrphanRequest};

use crate::error::{CliError, TenureKind, call_failed};
use crate::lock::LockName;
use crate::session::Session;
use crate::variables;
use crate::words::printable;
use crate::work::{self, Stops, Tenure, Work};

/// Arguments of `reap`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReapArgs {
    /// The namespace whose orphaned locks are cleaned up, with the namespaces in it
    #[arg(value_name = "NAMESPACE")]
    namespace: String,

    /// Clean up after one lock, then end with the command's exit code
    #[arg(long)]
    once: bool,

    /// The time without an answer of the server after which the command is in jeopardy
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration_seconds: u64,

    /// The time after that in which the command is ended, before the cleanup is begun again elsewhere
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    grace_seconds: u64,

    /// The command that cleans up, with its arguments
    ///
    /// It finds the lock in LEASEHOLD_LOCK_NAMESPACE and LEASEHOLD_LOCK_KEY, the number of a share or permit in
    /// LEASEHOLD_SLOT, the fence of the cleanup in LEASEHOLD_FENCE, the fence of the grant whose holder has died in
    /// LEASEHOLD_FORMER_FENCE, and the number of this attempt in LEASEHOLD_ATTEMPT. The exit code 0 lets the lock pass
    /// on. After any other exit code the cleanup is begun again after a pause, up to the number of attempts in the
    /// server's configuration.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Arguments of `resolve-orphan`.
#[derive(Clone, Debug, clap::Args)]
pub struct ResolveOrphanArgs {
    /// The lock: a namespace and a key, such as cron/backup
    #[arg(value_name = "NAMESPACE/KEY")]
    lock: LockName,

    /// The fence of the grant whose holder has died, as `leasehold locks` shows it
    #[arg(long, value_name = "N")]
    fence: u64,

    /// The slot of a shared lock, as `leasehold locks` shows it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slot: Option<u32>,

    #[command(flatten)]
    decision: Decision,
}

/// The decision about an orphaned lock: one of the two.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Decision {
    /// Begin the cleanup again, and count its attempts from 0
    #[arg(long)]
    retry: bool,

    /// Let the lock pass on, because you have cleaned up yourself
    #[arg(long)]
    cleaned: bool,
}

pub(crate) async fn reap(session: &Session<'_>, args: ReapArgs) -> Result<(), CliError> {
    session.open().await?;
    let client = session.connection.client()?;
    let mut stops = Stops::install()?;
    let terms = SessionTerms {
        duration: Duration::from_secs(args.duration_seconds),
        grace: Duration::from_secs(args.grace_seconds),
    };
    let locks = client.lock_session(terms).await.map_err(call_failed)?;
    let result = clean_up(&locks, &args, terms, &mut stops).await;
    work::close(locks).await;
    result
}

/// Cleans up after one lock after another, until a signal stops the process.
async fn clean_up(
    locks: &LockSession,
    args: &ReapArgs,
    terms: SessionTerms,
    stops: &mut Stops,
) -> Result<(), CliError> {
    loop {
        let orphan = tokio::select! {
            orphan = locks.reap(&args.namespace) => orphan.map_err(call_failed)?,
            () = locks.lost() => return Err(CliError::TenureLost(TenureKind::Lock)),
            _ = stops.next() => return Ok(()),
        };
        let (command, environment) = (args.command.as_slice(), environment(&orphan));
        let tenure = Tenure::Locks(std::slice::from_ref(orphan.lock()));
        let cleaned = Work { session: locks, tenure, terms, command, environment, input: None }.run(stops).await;
        // A command that can't be started would only use up the attempts of every orphan.
        if args.once || matches!(cleaned, Err(CliError::NotStarted { .. })) {
            return cleaned;
        }
        if let Err(error) = cleaned {
            let (attempt, most, name) = (orphan.attempt(), orphan.most_attempts(), name(&orphan));
            eprintln!("warning: cleanup {attempt} of at most {most} of {name} has failed: {error}");
        }
        if stops.received.is_some() {
            return Ok(());
        }
    }
}

fn name(orphan: &Orphan) -> String {
    printable(&format!("{}/{}", orphan.lock().namespace(), orphan.lock().key()))
}

fn environment(orphan: &Orphan) -> Vec<(&'static str, String)> {
    let slot = orphan.lock().slot();
    let mut environment = vec![
        (variables::LOCK_NAMESPACE, orphan.lock().namespace().to_owned()),
        (variables::LOCK_KEY, orphan.lock().key().to_owned()),
        (variables::FENCE, orphan.lock().fence().to_string()),
        (variables::FORMER_FENCE, orphan.former_fence().to_string()),
        (variables::ATTEMPT, orphan.attempt().to_string()),
    ];
    if slot > 0 {
        environment.push((variables::SLOT, slot.to_string()));
    }
    environment
}

pub(crate) async fn resolve(session: &Session<'_>, args: ResolveOrphanArgs) -> Result<(), CliError> {
    let mut stub = session.open().await?;
    let lock =
        Some(LockPath { namespace: args.lock.namespace, key: args.lock.key, slot: args.slot.unwrap_or_default() });
    let resolution = if args.decision.cleaned { Resolution::Cleaned } else { Resolution::Retry };
    let request = ResolveOrphanRequest { lock, fence: args.fence, resolution: resolution.into() };
    session.connection.wait(stub.resolve_orphan(request)).await.map_err(CliError::for_admins)?;
    if !session.json && args.decision.cleaned {
        eprintln!("the lock has passed on");
    } else if !session.json {
        eprintln!("the cleanup is offered again");
    }
    Ok(())
}
