//! The peer etcd: one node, or three, with default settings by which each write is synced to disk before
//! it is answered. The clients use etcd's own gRPC API.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::MissedTickBehavior;

use self::api::compare::{CompareResult, CompareTarget, TargetUnion};
use self::api::kv_client::KvClient;
use self::api::request_op::Request;
use self::api::{Compare, DeleteRangeRequest, PutRequest, RequestOp, TxnRequest};
use super::connection::Channel;
use super::load::{CLAIMS, Peer};
use super::server::{Contender, Server};

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated from `etcd_kv.proto`"
)]
pub(crate) mod api {
    tonic::include_proto!("etcdserverpb");
}

/// The time between two attempts to reach an etcd that is starting.
const POLL: Duration = Duration::from_millis(20);

/// The options that a cluster needs to be a store of Leasehold.
const STORE_OPTIONS: [&str; 2] = ["--max-txn-ops=8192", "--max-request-bytes=12582912"];

/// A running etcd server.
pub(crate) struct Etcd(Nodes);

impl Contender for Etcd {
    const NAME: &'static str = "etcd";
    type Client = Client;

    async fn start() -> Result<Self> {
        Nodes::start(1, &[]).await.map(Self)
    }

    async fn connect(&self) -> Result<Client> {
        Ok(Client { kv: KvClient::new(self.open().await?) })
    }

    fn share(client: &Client) -> Client {
        Client { kv: client.kv.clone() }
    }

    async fn stop(self) -> Result<()> {
        self.0.stop().await
    }
}

impl Etcd {
    /// Opens a new connection to the node.
    ///
    /// # Errors
    /// The node does not answer.
    pub(crate) async fn open(&self) -> Result<Channel> {
        self.0.open(0).await
    }
}

/// Three nodes of etcd, to which clients save by hand: each save is one transaction.
pub(crate) struct ByHand {
    nodes: Nodes,
    // The number of connections that were opened. They are spread over the nodes.
    opened: AtomicUsize,
}

impl Contender for ByHand {
    const NAME: &'static str = "one transaction a save";
    type Client = OneTransaction;

    async fn start() -> Result<Self> {
        Ok(Self { nodes: Nodes::of_store().await?, opened: AtomicUsize::new(0) })
    }

    async fn connect(&self) -> Result<OneTransaction> {
        let channel = self.nodes.open(self.opened.fetch_add(1, Ordering::Relaxed)).await?;
        Ok(OneTransaction(Client { kv: KvClient::new(channel) }))
    }

    fn share(client: &OneTransaction) -> OneTransaction {
        OneTransaction(Etcd::share(&client.0))
    }

    async fn stop(self) -> Result<()> {
        self.nodes.stop().await
    }
}

/// Running nodes of one cluster.
pub(crate) struct Nodes {
    servers: Vec<Server>,
    addresses: Vec<Addresses>,
}

/// The addresses of a node, for its clients and for its peers.
#[derive(Clone, Copy)]
struct Addresses {
    client: SocketAddr,
    peer: SocketAddr,
}

impl Nodes {
    /// Starts the three nodes of a cluster that can be a store.
    ///
    /// # Errors
    /// A node does not start.
    pub(crate) async fn of_store() -> Result<Self> {
        Self::start(3, &STORE_OPTIONS).await
    }

    /// Starts the nodes of a cluster, and waits until they answer.
    async fn start(count: usize, options: &[&str]) -> Result<Self> {
        let addresses = free_addresses(count)?;
        let start = |at| Server::start(Path::new("etcd"), |data| arguments(data, at, &addresses, options));
        let mut servers = (0..count).map(start).collect::<Result<Vec<_>>>()?;
        for (server, Addresses { client, .. }) in servers.iter_mut().zip(&addresses) {
            server.until(answers(&client.to_string())).await?;
        }
        Ok(Self { servers, addresses })
    }

    /// Opens a new connection to a node. The nodes are counted round and round.
    async fn open(&self, at: usize) -> Result<Channel> {
        let addresses = self.addresses.iter().cycle().nth(at).context("there is no node")?;
        Channel::open(&addresses.client.to_string()).await
    }

    /// Returns the URL of a store in this cluster.
    pub(crate) fn url(&self) -> String {
        let members: Vec<_> = self.addresses.iter().map(|addresses| addresses.client.to_string()).collect();
        format!("etcd://{}", members.join(","))
    }

    /// Stops the nodes and removes their data.
    ///
    /// # Errors
    /// A node cannot be stopped.
    pub(crate) async fn stop(self) -> Result<()> {
        for server in self.servers {
            server.stop().await?;
        }
        Ok(())
    }
}

/// Returns free addresses. etcd cannot pick free ports itself, because it must advertise its addresses.
fn free_addresses(count: usize) -> Result<Vec<Addresses>> {
    // All are held until each is known, so that no two are the same.
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free");
    let held = (0..count).map(|_| Ok((listen()?, listen()?))).collect::<Result<Vec<_>>>()?;
    held.iter().map(|(client, peer)| Ok(Addresses { client: client.local_addr()?, peer: peer.local_addr()? })).collect()
}

fn arguments(data: PathBuf, at: usize, nodes: &[Addresses], options: &[&str]) -> Result<Vec<OsString>> {
    let Addresses { client, peer } = nodes.get(at).context("there is no such node")?;
    let cluster: Vec<_> = nodes.iter().enumerate().map(|(at, node)| format!("n{at}=http://{}", node.peer)).collect();
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let words = [
        ("--name", format!("n{at}")),
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client),
        ("--listen-peer-urls", peer.clone()),
        ("--initial-advertise-peer-urls", peer),
        ("--initial-cluster", cluster.join(",")),
    ];
    let words = words.into_iter().flat_map(|(flag, value)| [flag.into(), value.into()]);
    let words = ["--data-dir".into(), data.into()].into_iter().chain(words);
    Ok(words.chain(options.iter().map(OsString::from)).collect())
}

/// Waits until etcd answers a transaction. The node has then elected itself as the leader.
async fn answers(address: &str) -> Result<()> {
    let mut poll = tokio::time::interval(POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        poll.tick().await;
        if let Ok(connection) = Channel::open(address).await
            && KvClient::new(connection).txn(TxnRequest::default()).await.is_ok()
        {
            return Ok(());
        }
    }
}

/// A client of etcd that makes the same saves as a client of Leasehold: two transactions, with the
/// same records and the same conditions.
pub(crate) struct Client {
    kv: KvClient<Channel>,
}

/// The state of a save between its begin and its commit.
pub(crate) struct Lease {
    uuid: String,
    names: [String; CLAIMS],
    /// The revision of the begin's transaction. The begin's records keep this revision until
    /// another transaction changes them.
    revision: i64,
}

impl Peer for Client {
    type Lease = Lease;

    async fn begin(&mut self, names: &[String; CLAIMS]) -> Result<Lease> {
        let uuid = format!("{:032x}", rand::random::<u128>());
        let claims = names.iter().map(|name| put(claim_key(name), record("creating", &uuid)));
        let transaction = TxnRequest {
            compare: names.iter().map(|name| is_absent(claim_key(name))).collect(),
            success: claims.chain([put(lease_key(&uuid), record("lease", &uuid))]).collect(),
        };
        let revision = self.transact(transaction).await?;
        Ok(Lease { uuid, names: names.clone(), revision })
    }

    async fn commit(&mut self, lease: Lease) -> Result<()> {
        let Lease { uuid, names, revision } = lease;
        let unchanged = names.iter().map(|name| is_unchanged(claim_key(name), revision));
        let claims = names.iter().map(|name| put(claim_key(name), record("active", "")));
        let transaction = TxnRequest {
            compare: unchanged.chain([is_present(lease_key(&uuid))]).collect(),
            success: claims.chain([delete(lease_key(&uuid))]).collect(),
        };
        self.transact(transaction).await.map(|_revision| ())
    }
}

/// A client that makes each save in one transaction, without a lease.
pub(crate) struct OneTransaction(Client);

impl Peer for OneTransaction {
    type Lease = [String; CLAIMS];

    async fn begin(&mut self, names: &[String; CLAIMS]) -> Result<[String; CLAIMS]> {
        Ok(names.clone())
    }

    async fn commit(&mut self, names: [String; CLAIMS]) -> Result<()> {
        let transaction = TxnRequest {
            compare: names.iter().map(|name| is_absent(claim_key(name))).collect(),
            success: names.iter().map(|name| put(claim_key(name), record("active", ""))).collect(),
        };
        self.0.transact(transaction).await.map(|_revision| ())
    }
}

impl Client {
    /// Executes a transaction, and returns etcd's revision of it.
    async fn transact(&mut self, transaction: TxnRequest) -> Result<i64> {
        let response = self.kv.txn(transaction).await.context("etcd failed")?.into_inner();
        ensure!(response.succeeded, "etcd refused a transaction, though its names are new");
        Ok(response.header.context("etcd answered without a header")?.revision)
    }
}

fn claim_key(name: &str) -> Vec<u8> {
    format!("claim/4/{name}").into_bytes()
}

fn lease_key(uuid: &str) -> Vec<u8> {
    format!("lease/1/{uuid}").into_bytes()
}

/// Returns a record of about 90 bytes, the size of Leasehold's: cell, status, lease, subject,
/// source and time.
fn record(status: &str, lease: &str) -> Vec<u8> {
    format!("1|{status}|{lease}|4:{:016x}|1:{:016x}|1790000000", 1, 1).into_bytes()
}

fn is_absent(key: Vec<u8>) -> Compare {
    compare(key, CompareResult::Equal, CompareTarget::Create, TargetUnion::CreateRevision(0))
}

fn is_present(key: Vec<u8>) -> Compare {
    compare(key, CompareResult::Greater, CompareTarget::Create, TargetUnion::CreateRevision(0))
}

fn is_unchanged(key: Vec<u8>, since: i64) -> Compare {
    compare(key, CompareResult::Equal, CompareTarget::Mod, TargetUnion::ModRevision(since))
}

fn compare(key: Vec<u8>, result: CompareResult, target: CompareTarget, value: TargetUnion) -> Compare {
    Compare { result: result.into(), target: target.into(), key, target_union: Some(value) }
}

fn put(key: Vec<u8>, value: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Request::RequestPut(PutRequest { key, value })) }
}

fn delete(key: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Request::RequestDeleteRange(DeleteRangeRequest { key })) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_as_long_as_agreed() {
        let lease = "0".repeat(32);
        assert!((80..=100).contains(&record("creating", &lease).len()));
    }
}
