//! The row `locks-vs-seed-004`: the time from a release to the next grant, while other clients wait.
//! The peer is the design of the document on deadline leases, as SQL on the same PostgreSQL: a table
//! of leases with deadlines. A client that finds its lock held asks again after a pause.
//!
//! 64 clients pass through 16 locks. Each asks for a random lock, holds it for a moment and releases
//! it. A hand-over counts only if a client waited when the lock was released.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;

use super::load::{CLAIMS, median, microseconds};
use super::locks_postgres_vs_pgbench::OnPostgres;
use super::locks_vs_etcd::NamedLock;
use super::polled_leases::PolledLeases;
use super::postgres;
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::clients;
use super::server::Contender;
use super::{Context, LoadArguments};

const HEADING: Heading = Heading { name: "locks-vs-seed-004", unit: "µs", better: Better::Lower, target: 4.0 };

/// The locks that the clients pass through.
const LOCKS: usize = 16;
/// The time for which a client holds a lock.
const HOLD: Duration = Duration::from_millis(2);
/// The longest hand-over that the histogram keeps, in microseconds.
const LONGEST_MICROSECONDS: u64 = 60_000_000;

/// Measures the row.
///
/// # Errors
/// One of the contenders cannot be measured.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    xtask::needs::install(xtask::needs::FOR_POSTGRES)?;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for number in 1..=context.load.rounds {
        ours.push(round::<OnPostgres>(number, &context.load).await?);
        // Each polling client has a connection of its own, as a process has.
        let own = LoadArguments { connections: Some(context.load.clients), ..context.load };
        peer.push(round::<PolledLeases>(number, &own).await?);
    }
    postgres::stop().await;
    let median = |rounds: &[f64]| median(rounds, |p99| *p99).context("no round was run");
    Ok(HEADING.row(median(&ours)?, median(&peer)?))
}

/// Runs one round on an empty store. Returns the 99th percentile of a hand-over's time, in
/// microseconds.
async fn round<C: Contender<Client: NamedLock>>(number: u32, load: &LoadArguments) -> Result<f64> {
    let contender = C::start().await.with_context(|| format!("cannot start {}", C::NAME))?;
    let clients = clients(&contender, load).await?.into_iter().flatten();
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let start = Instant::now() + seconds(load.warm_up_seconds);
    let passes = Passes::since(start)?;
    let passing = try_join_all(clients.map(|client| pass_and_pass(client, &passes)));
    match tokio::time::timeout_at((start + seconds(load.seconds)).into(), passing).await {
        Ok(ended) => bail!("the clients of {} ended early: {:?}", C::NAME, ended.err()),
        Err(_) => contender.stop().await?,
    }
    passes.p99(number, C::NAME, load.seconds)
}

/// Passes through random locks.
async fn pass_and_pass(mut client: impl NamedLock, passes: &Passes) -> Result<()> {
    // The clients of locks claim no names.
    let names: [String; CLAIMS] = Default::default();
    loop {
        let lock = rand::random_range(0..LOCKS);
        client.ask_for(&format!("lock-{lock}"));
        passes.asked(lock);
        let held = client.begin(&names).await?;
        passes.granted(lock, Instant::now());
        tokio::time::sleep(HOLD).await;
        passes.released(lock, Instant::now());
        client.commit(held).await?;
    }
}

/// The measured passes through all locks.
struct Passes(Mutex<Measured>);

struct Measured {
    start: Instant,
    locks: [Queue; LOCKS],
    passes: u64,
    hand_overs: Histogram<u64>,
}

/// The clients at a lock.
#[derive(Clone, Copy, Default)]
struct Queue {
    waiting: usize,
    // The time of the last release, if a client waited then and the lock was not granted since.
    released_at: Option<Instant>,
}

impl Passes {
    fn since(start: Instant) -> Result<Self> {
        let hand_overs = Histogram::new_with_max(LONGEST_MICROSECONDS, 3)?;
        Ok(Self(Mutex::new(Measured { start, locks: Default::default(), passes: 0, hand_overs })))
    }

    fn with<T>(&self, lock: usize, change: impl FnOnce(&mut Queue, &mut Measured) -> T) -> Option<T> {
        let mut measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queue = measured.locks.get(lock).copied()?;
        let changed = change(&mut queue, &mut measured);
        measured.locks.get_mut(lock).map(|place| *place = queue)?;
        Some(changed)
    }

    /// Notes that a client asks for a lock.
    fn asked(&self, lock: usize) {
        self.with(lock, |queue, _| queue.waiting += 1);
    }

    /// Notes that a client has learnt of its grant now.
    fn granted(&self, lock: usize, now: Instant) {
        self.with(lock, |queue, measured| {
            queue.waiting -= 1;
            measured.passes += u64::from(now >= measured.start);
            let released_at = queue.released_at.take().filter(|released_at| *released_at >= measured.start);
            let hand_overs = &mut measured.hand_overs;
            released_at.iter().for_each(|released_at| hand_overs.saturating_record(microseconds(now - *released_at)));
        });
    }

    /// Notes that a client sends the release of a lock now.
    fn released(&self, lock: usize, now: Instant) {
        self.with(lock, |queue, _| queue.released_at = (queue.waiting > 0).then_some(now));
    }

    #[allow(clippy::cast_precision_loss, reason = "microseconds stay far below 2^52")]
    fn p99(&self, number: u32, name: &str, seconds: u32) -> Result<f64> {
        let measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (times, rate) = (&measured.hand_overs, measured.passes / u64::from(seconds));
        if times.is_empty() {
            bail!("{name} handed no lock over");
        }
        let (p50, p99) = (times.value_at_quantile(0.5), times.value_at_quantile(0.99));
        eprintln!(
            "round {number}: {name}: {rate} passes/s, hand-over p50 {p50} µs, p99 {p99} µs, max {} µs",
            times.max()
        );
        Ok(p99 as f64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_hand_over_counts_if_a_client_waited_at_the_release() {
        let start = Instant::now();
        let after = |micros| start + Duration::from_micros(micros);
        let passes = Passes::since(start).unwrap();
        passes.asked(0);
        passes.granted(0, after(1));
        // Nobody waits for this release.
        passes.released(0, after(2));
        passes.asked(0);
        passes.granted(0, after(5_000));
        passes.asked(0);
        passes.released(0, after(6_000));
        passes.granted(0, after(6_030));
        assert_eq!(passes.p99(1, "a test", 1).unwrap(), 30.0);
        assert!(Passes::since(start).unwrap().p99(1, "a test", 1).is_err());
    }
}
