//! The load on a server: closed-loop clients that save.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::stream::{FuturesUnordered, TryStreamExt};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

/// The number of claims in one save.
pub(crate) const CLAIMS: usize = 4;

/// The largest latency that the histograms keep, in microseconds.
const LONGEST_MICROSECONDS: u64 = 60_000_000;

/// One client of a server under measurement. A save is a begin and its commit.
pub(crate) trait Peer: Send + 'static {
    /// The value that a begin returns and its commit needs.
    type Lease: Send;

    /// Claims the four names under a new lease, and returns when the change is durable.
    fn begin(&mut self, names: &[String; CLAIMS]) -> impl Future<Output = Result<Self::Lease>> + Send;

    /// Commits a lease, which makes its claims active, and returns when the change is durable.
    fn commit(&mut self, lease: Self::Lease) -> impl Future<Output = Result<()>> + Send;

    /// Ends the client after its last save. Others may wait for what it leaves behind.
    fn end(self) -> impl Future<Output = Result<()>> + Send
    where
        Self: Sized,
    {
        std::future::ready(Ok(()))
    }
}

/// The phases of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// The time for which the load runs before the measurement.
    pub(crate) warm_up: Duration,
    /// The time for which saves are measured.
    pub(crate) measured: Duration,
}

/// The measured figures of a server under load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) saves_per_second: f64,
    pub(crate) begin_p50_us: f64,
    pub(crate) begin_p99_us: f64,
    pub(crate) commit_p99_us: f64,
}

/// The latencies of the saves within the measurement, of one client or of all.
struct Seen {
    begins: Histogram<u64>,
    commits: Histogram<u64>,
}

/// Makes every client save again and again: a client starts its next save when the last one is
/// answered. `connections` has the clients of each connection, which run in one task because they
/// share a socket. Returns the figures of all clients together.
///
/// # Errors
/// A begin or commit fails. Names are random, so a refusal is a defect of the server.
pub(crate) async fn drive<P: Peer>(connections: Vec<Vec<P>>, schedule: Schedule) -> Result<Load> {
    let start = Instant::now() + schedule.warm_up;
    let end = start + schedule.measured;
    let together = |clients: Vec<P>| {
        let clients: FuturesUnordered<_> = clients.into_iter().map(|client| save_until(client, start, end)).collect();
        clients.try_collect::<Vec<_>>()
    };
    let mut running: JoinSet<_> = connections.into_iter().map(together).collect();
    let mut all = Seen::new()?;
    while let Some(seen) = running.join_next().await {
        seen.context("a client ended early")??.iter().try_for_each(|seen| all.add(seen))?;
    }
    Ok(all.load(schedule.measured))
}

/// Runs the saves of one client until `end`. Returns the latencies of the saves that were answered
/// between `start` and `end`.
async fn save_until(mut client: impl Peer, start: Instant, end: Instant) -> Result<Seen> {
    let mut seen = Seen::new()?;
    loop {
        let names = std::array::from_fn(|_| random_name());
        let begun = Instant::now();
        let lease = client.begin(&names).await?;
        let committing = Instant::now();
        client.commit(lease).await?;
        let done = Instant::now();
        if done >= end {
            client.end().await?;
            return Ok(seen);
        }
        if done >= start {
            seen.begins.saturating_record(microseconds(committing - begun));
            seen.commits.saturating_record(microseconds(done - committing));
        }
    }
}

/// Returns a random name. Real names arrive in random order too, which is the harder case for a
/// store.
pub(crate) fn random_name() -> String {
    format!("user-{:016x}", rand::random::<u64>())
}

/// Returns a time in whole microseconds.
pub(crate) fn microseconds(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

impl Seen {
    fn new() -> Result<Self> {
        Ok(Self {
            begins: Histogram::new_with_max(LONGEST_MICROSECONDS, 3)?,
            commits: Histogram::new_with_max(LONGEST_MICROSECONDS, 3)?,
        })
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.begins.add(&other.begins)?;
        self.commits.add(&other.commits)?;
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "counts and microseconds stay far below 2^52")]
    fn load(&self, measured: Duration) -> Load {
        Load {
            saves_per_second: self.commits.len() as f64 / measured.as_secs_f64(),
            begin_p50_us: self.begins.value_at_quantile(0.5) as f64,
            begin_p99_us: self.begins.value_at_quantile(0.99) as f64,
            commit_p99_us: self.commits.value_at_quantile(0.99) as f64,
        }
    }
}

impl Load {
    /// Returns the median of each figure over `rounds`; `None` if there is no round.
    pub(crate) fn median(rounds: &[Self]) -> Option<Self> {
        Some(Self {
            saves_per_second: median(rounds, |load| load.saves_per_second)?,
            begin_p50_us: median(rounds, |load| load.begin_p50_us)?,
            begin_p99_us: median(rounds, |load| load.begin_p99_us)?,
            commit_p99_us: median(rounds, |load| load.commit_p99_us)?,
        })
    }
}

/// Returns the median of a figure over `rounds`: the middle value, or the mean of the middle two.
/// `None` if there is no round.
pub(crate) fn median<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> Option<f64> {
    let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    let last = figures.len().checked_sub(1)?;
    Some(f64::midpoint(*figures.get(last / 2)?, *figures.get(last.div_ceil(2))?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

    use std::collections::HashSet;
    use std::sync::{Arc, Mutex};

    use anyhow::{bail, ensure};

    use super::*;

    /// A server in memory that refuses names which it has already.
    #[derive(Clone, Default)]
    struct Names(Arc<Mutex<HashSet<String>>>);

    impl Peer for Names {
        type Lease = [String; CLAIMS];

        async fn begin(&mut self, names: &[String; CLAIMS]) -> Result<Self::Lease> {
            tokio::task::yield_now().await;
            let mut taken = self.0.lock().unwrap();
            ensure!(names.iter().all(|name| taken.insert(name.clone())), "taken");
            Ok(names.clone())
        }

        async fn commit(&mut self, lease: Self::Lease) -> Result<()> {
            let taken = self.0.lock().unwrap();
            ensure!(lease.iter().all(|name| taken.contains(name)), "lost");
            Ok(())
        }
    }

    /// A server that refuses every save.
    struct Refuses;

    impl Peer for Refuses {
        type Lease = ();

        async fn begin(&mut self, _: &[String; CLAIMS]) -> Result<()> {
            bail!("refused")
        }

        async fn commit(&mut self, (): ()) -> Result<()> {
            panic!("nothing was begun")
        }
    }

    const SHORT: Schedule = Schedule { warm_up: Duration::from_millis(20), measured: Duration::from_millis(60) };

    #[tokio::test]
    async fn only_measured_saves_count() {
        let names = Names::default();
        let load = drive(vec![vec![names.clone(), names.clone()], vec![names.clone()]], SHORT).await.unwrap();
        let saves = names.0.lock().unwrap().len() / CLAIMS;
        let counted = load.saves_per_second * SHORT.measured.as_secs_f64();
        assert!(counted >= 1.0 && counted < saves as f64, "{counted} of {saves}");
        assert!(load.begin_p50_us <= load.begin_p99_us);
    }

    #[tokio::test]
    async fn a_refused_save_fails_the_run() {
        let error = drive(vec![vec![Refuses]], SHORT).await.unwrap_err();
        assert_eq!(error.to_string(), "refused");
    }

    #[test]
    fn a_median_is_of_each_figure_by_itself() {
        let load =
            |rate, p99| Load { saves_per_second: rate, begin_p50_us: 1.0, begin_p99_us: p99, commit_p99_us: 1.0 };
        let median = Load::median(&[load(1.0, 30.0), load(3.0, 10.0), load(2.0, 20.0)]);
        assert_eq!(median, Some(load(2.0, 20.0)));
        assert_eq!(Load::median(&[load(1.0, 1.0), load(2.0, 2.0)]), Some(load(1.5, 1.5)));
        assert_eq!(Load::median(&[]), None);
    }
}
