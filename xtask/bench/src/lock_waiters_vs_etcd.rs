//! The row `lock-waiters-vs-etcd`: the time from a release of a lock to its next grant, while 1,000
//! clients wait for it. The peer is etcd's own lock service.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use xtask::needs;

use super::load::{CLAIMS, median, microseconds};
use super::locks_vs_etcd::{EtcdLocks, NamedLock, OurLocks};
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::clients;
use super::server::Contender;
use super::{Context, LoadArguments};

const HEADING: Heading = Heading { name: "lock-waiters-vs-etcd", unit: "µs", better: Better::Lower, target: 3.0 };

/// The clients that hold the lock or wait for it.
const CLIENTS: u32 = 1_000;
/// The longest hand-over that the histogram keeps, in microseconds.
const LONGEST_MICROSECONDS: u64 = 60_000_000;

/// Measures the row.
///
/// # Errors
/// One of the two servers cannot be measured.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    needs::install(needs::FOR_ETCD)?;
    let (mut ours, mut etcd) = (Vec::new(), Vec::new());
    for number in 1..=context.load.rounds {
        ours.push(round::<OurLocks>(number, &context.load).await?);
        etcd.push(round::<EtcdLocks>(number, &context.load).await?);
    }
    let median = |rounds: &[f64]| median(rounds, |p99| *p99).context("no round was run");
    Ok(HEADING.row(median(&ours)?, median(&etcd)?))
}

/// Runs one round on an empty store. Returns the 99th percentile of a hand-over's time, in
/// microseconds.
async fn round<C: Contender<Client: NamedLock>>(number: u32, load: &LoadArguments) -> Result<f64> {
    let contender = C::start().await.with_context(|| format!("cannot start {}", C::NAME))?;
    let load = LoadArguments { clients: CLIENTS, connections: Some(load.connections()), ..*load };
    let waiters = clients(&contender, &load).await?.into_iter().flatten();
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let start = Instant::now() + seconds(load.warm_up_seconds);
    let hand_overs = HandOvers::since(start)?;
    let waiting = try_join_all(waiters.map(|client| hold_and_release(client, &hand_overs)));
    match tokio::time::timeout_at((start + seconds(load.seconds)).into(), waiting).await {
        Ok(ended) => bail!("the clients of {} ended early: {:?}", C::NAME, ended.err()),
        Err(_) => contender.stop().await?,
    }
    hand_overs.p99(number, C::NAME)
}

/// Asks for the lock, releases it at once, and asks again.
async fn hold_and_release(mut client: impl NamedLock, hand_overs: &HandOvers) -> Result<()> {
    client.ask_for("shared");
    // The clients of locks claim no names.
    let names: [String; CLAIMS] = Default::default();
    loop {
        let held = client.begin(&names).await?;
        hand_overs.granted(Instant::now());
        hand_overs.released(Instant::now());
        client.commit(held).await?;
    }
}

/// The measured hand-overs of one lock.
struct HandOvers(Mutex<Measured>);

struct Measured {
    start: Instant,
    released_at: Option<Instant>,
    times: Histogram<u64>,
}

impl HandOvers {
    fn since(start: Instant) -> Result<Self> {
        let times = Histogram::new_with_max(LONGEST_MICROSECONDS, 3)?;
        Ok(Self(Mutex::new(Measured { start, released_at: None, times })))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Measured) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that a client sends the release of the lock now.
    fn released(&self, now: Instant) {
        self.with(|measured| measured.released_at = Some(now));
    }

    /// Notes that the next client has learnt of its grant now.
    fn granted(&self, now: Instant) {
        self.with(|measured| {
            let released_at = measured.released_at.take().filter(|released_at| *released_at >= measured.start);
            let times = &mut measured.times;
            released_at.iter().for_each(|released_at| times.saturating_record(microseconds(now - *released_at)));
        });
    }

    #[allow(clippy::cast_precision_loss, reason = "microseconds stay far below 2^52")]
    fn p99(&self, number: u32, name: &str) -> Result<f64> {
        let (count, p50, p99, max) = self.with(|Measured { times, .. }| {
            (times.len(), times.value_at_quantile(0.5), times.value_at_quantile(0.99), times.max())
        });
        if count == 0 {
            bail!("{name} handed the lock over to nobody");
        }
        eprintln!("round {number}: {name}: {count} hand-overs, p50 {p50} µs, p99 {p99} µs, max {max} µs");
        Ok(p99 as f64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_hand_over_is_from_a_release_to_the_next_grant() {
        let start = Instant::now();
        let after = |micros| start + Duration::from_micros(micros);
        let hand_overs = HandOvers::since(after(10)).unwrap();
        hand_overs.granted(after(0));
        // The warm-up does not count.
        hand_overs.released(after(1));
        hand_overs.granted(after(11));
        hand_overs.released(after(20));
        hand_overs.granted(after(50));
        assert_eq!(hand_overs.p99(1, "a test").unwrap(), 30.0);
        assert!(HandOvers::since(start).unwrap().p99(1, "a test").is_err());
    }
}
