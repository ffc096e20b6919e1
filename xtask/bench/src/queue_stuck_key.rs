//! The row `queue-stuck-key`: requests in a second on the embedded store, while the worker of one key does not end its
//! work and many requests of this key wait. The peer is a queue without such a key.

use anyhow::{Context as _, Result};

use super::Context;
use super::load::{Load, median};
use super::ours::Ours;
use super::queues::{OnEmbedded, Worker, submit_to};
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::round;
use super::server::Contender;

const HEADING: Heading = Heading { name: "queue-stuck-key", unit: "requests/s", better: Better::Higher, target: 0.97 };

const KEY: &str = "stuck";
/// The requests of the stuck key, and those that one call submits.
const WAITING: usize = 10_000;
const EACH_CALL: usize = 1_000;

/// Measures both in turn.
///
/// # Errors
/// The server cannot be measured.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    let (mut stuck, mut free) = (Vec::new(), Vec::new());
    for number in 1..=context.load.rounds {
        stuck.push(round::<WithStuckKey>(number, &context.load).await?);
        free.push(round::<OnEmbedded<1>>(number, &context.load).await?);
    }
    let rate = |rounds: &[Load]| median(rounds, |load| load.saves_per_second).context("no round was run");
    Ok(HEADING.row(rate(&stuck)?, rate(&free)?))
}

/// A server on the embedded store, in which one key is stuck.
struct WithStuckKey(OnEmbedded<1>);

impl Contender for WithStuckKey {
    const NAME: &'static str = "our queue with a stuck key";
    type Client = Worker<1>;

    async fn start() -> Result<Self> {
        let server = Ours::start().await?;
        let mut stub = server.stub().await?;
        submit_to(&mut stub, KEY, EACH_CALL).await?;
        Worker::<1>::on(stub.clone()).take_now(1).await?;
        for _ in 1..WAITING / EACH_CALL {
            submit_to(&mut stub, KEY, EACH_CALL).await?;
        }
        Ok(Self(OnEmbedded(server)))
    }

    async fn connect(&self) -> Result<Self::Client> {
        self.0.connect().await
    }

    fn share(client: &Self::Client) -> Self::Client {
        OnEmbedded::<1>::share(client)
    }

    async fn stop(self) -> Result<()> {
        self.0.stop().await
    }
}
