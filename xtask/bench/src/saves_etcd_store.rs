//! The row `saves-etcd-store`: saves a second of a server whose store is in three nodes of etcd, and of
//! clients that make one transaction a save on three such nodes.

use anyhow::{Context as _, Result};
use xtask::needs;

use super::Context;
use super::etcd::{ByHand, Nodes};
use super::load::median;
use super::ours::{Client, Ours};
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::round;
use super::server::Contender;

const HEADING: Heading = Heading { name: "saves-etcd-store", unit: "saves/s", better: Better::Higher, target: 2.0 };

/// A server on three nodes.
struct OnEtcd {
    server: Ours,
    nodes: Nodes,
}

impl Contender for OnEtcd {
    const NAME: &'static str = "ours on etcd";
    type Client = Client;

    async fn start() -> Result<Self> {
        let nodes = Nodes::of_store().await?;
        let server = Ours::start_on(|data| {
            let (config, state) = (data.with_extension("toml"), data.with_extension("state"));
            let text = format!("[etcd]\nurl = \"{}\"\nstate_directory = \"{}\"\n", nodes.url(), state.display());
            std::fs::write(&config, text).context("cannot write the server's settings")?;
            Ok(vec!["--config".into(), config.into()])
        })
        .await?;
        Ok(Self { server, nodes })
    }

    async fn connect(&self) -> Result<Client> {
        self.server.connect().await
    }

    fn share(client: &Client) -> Client {
        Ours::share(client)
    }

    async fn stop(self) -> Result<()> {
        self.server.stop().await?;
        self.nodes.stop().await
    }
}

/// Measures both contenders in turn, so that a slow minute of the machine affects both.
///
/// # Errors
/// A contender cannot be started, or refuses a save.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    needs::install(needs::FOR_ETCD)?;
    let mut rounds = Vec::new();
    for number in 1..=context.load.rounds {
        let ours = round::<OnEtcd>(number, &context.load).await?.saves_per_second;
        let by_hand = round::<ByHand>(number, &context.load).await?.saves_per_second;
        rounds.push([ours, by_hand]);
    }
    let of = |figure: fn(&[f64; 2]) -> f64| median(&rounds, figure).context("no round was run");
    Ok(HEADING.row(of(|[ours, _]| *ours)?, of(|[_, by_hand]| *by_hand)?))
}
