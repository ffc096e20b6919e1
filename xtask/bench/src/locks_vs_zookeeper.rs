//! The row `locks-vs-zookeeper`: locks that are acquired and released in a second, by Leasehold and
//! by the lock recipe of ZooKeeper. The server is one node with its default settings, by which each
//! write is synced to disk before it is answered.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::MissedTickBehavior;
use tokio_zookeeper::{Acl, CreateMode, ZooKeeper, ZooKeeperBuilder};
use xtask::needs;

use super::load::{CLAIMS, Peer};
use super::locks_vs_etcd::{OurLocks, measure};
use super::row::{Better, Heading, Row};
use super::server::{Contender, Server};
use super::{Context, LoadArguments};

const HEADING: Heading = Heading { name: "locks-vs-zookeeper", unit: "locks/s", better: Better::Higher, target: 4.0 };

/// The time between two attempts to reach a server that is starting.
const POLL: Duration = Duration::from_millis(50);
/// The time after which an attempt to reach a server that is starting counts as failed.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The text in the status of a server that serves requests.
const SERVING: &str = "Mode: standalone";
/// The longest session that a server with the default tick allows.
const SESSION: Duration = Duration::from_secs(40);

/// Measures the row.
///
/// # Errors
/// One of the two servers cannot be measured.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    needs::install(needs::FOR_ZOOKEEPER)?;
    let load: &LoadArguments = &context.load;
    measure::<OurLocks, ZooKeeperLocks>(HEADING, load).await
}

/// ZooKeeper as a server of locks.
struct ZooKeeperLocks {
    server: Server,
    address: SocketAddr,
}

impl Contender for ZooKeeperLocks {
    const NAME: &'static str = "ZooKeeper's locks";
    type Client = Client;

    async fn start() -> Result<Self> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?.local_addr()?;
        let mut server = Server::start(Path::new("java"), |data| {
            let (file, arguments) = arguments(&data);
            configure(&file, &data, address)?;
            Ok(arguments)
        })?;
        server.until(serves(address)).await?;
        Ok(Self { server, address })
    }

    async fn connect(&self) -> Result<Client> {
        Ok(Client::on(connect(self.address).await?))
    }

    fn share(client: &Client) -> Client {
        Client::on(client.keeper.clone())
    }

    async fn stop(self) -> Result<()> {
        self.server.stop().await
    }
}

/// Returns the path of the configuration file, and the arguments of Java.
fn arguments(data: &Path) -> (PathBuf, Vec<OsString>) {
    let file = data.with_extension("cfg");
    let words = ["-cp", "/usr/share/java/zookeeper.jar", "org.apache.zookeeper.server.ZooKeeperServerMain"];
    let arguments = words.into_iter().map(OsString::from).chain([file.clone().into()]).collect();
    (file, arguments)
}

fn configure(file: &Path, data: &Path, address: SocketAddr) -> Result<()> {
    let (data, ip, port) = (data.display(), address.ip(), address.port());
    let settings = format!(
        "dataDir={data}\nclientPortAddress={ip}\nclientPort={port}\nmaxClientCnxns=0\nadmin.enableServer=false\n"
    );
    std::fs::write(file, settings).context("the configuration of ZooKeeper can't be written")
}

async fn connect(address: SocketAddr) -> Result<ZooKeeper> {
    let mut builder = ZooKeeperBuilder::default();
    builder.set_timeout(SESSION);
    let (keeper, _events) = builder.connect(&address).await.context("no session with ZooKeeper")?;
    Ok(keeper)
}

/// Waits until a server serves requests. A session that is asked for earlier may never be answered.
async fn serves(address: SocketAddr) -> Result<()> {
    let mut poll = tokio::time::interval(POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        poll.tick().await;
        if let Ok(Ok(status)) = tokio::time::timeout(ATTEMPT, status(address)).await
            && status.contains(SERVING)
        {
            return Ok(());
        }
    }
}

/// Returns the status of a server, by ZooKeeper's command `srvr`.
async fn status(address: SocketAddr) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    connection.write_all(b"srvr").await?;
    let mut status = String::new();
    connection.read_to_string(&mut status).await?;
    Ok(status)
}

/// A client of ZooKeeper with a lock of its own. The clients of a connection share its session.
struct Client {
    keeper: ZooKeeper,
    directory: String,
    is_made: bool,
}

impl Client {
    fn on(keeper: ZooKeeper) -> Self {
        Self { keeper, directory: format!("/bench-{:032x}", rand::random::<u128>()), is_made: false }
    }

    async fn create(&self, path: &str, mode: CreateMode) -> Result<String> {
        let created = self.keeper.create(path, &b""[..], Acl::open_unsafe(), mode).await?;
        created.with_context(|| format!("`{path}` can't be created"))
    }
}

impl Peer for Client {
    type Lease = String;

    /// Acquires the lock: makes a node with the next number, and holds the lock because no node has
    /// a lower one. The list of the nodes is asked for at once, since a session's requests are
    /// served in their order.
    async fn begin(&mut self, _: &[String; CLAIMS]) -> Result<String> {
        if !self.is_made {
            self.create(&self.directory, CreateMode::Persistent).await?;
            self.is_made = true;
        }
        let path = format!("{}/lock-", self.directory);
        let created = self.create(&path, CreateMode::EphemeralSequential);
        let listed = async { Ok(self.keeper.get_children(&self.directory).await?) };
        let (node, nodes) = tokio::try_join!(biased; created, listed)?;
        let lowest = nodes.and_then(|nodes| nodes.into_iter().min());
        ensure!(lowest.as_deref() == node.rsplit('/').next(), "another client holds the lock: {lowest:?}");
        Ok(node)
    }

    async fn commit(&mut self, node: String) -> Result<()> {
        self.keeper.delete(&node, None).await?.with_context(|| format!("`{node}` can't be deleted"))
    }
}
