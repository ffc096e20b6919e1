//! The peer etcd: one node with its default settings, by which each write is synced to disk before
//! it is answered. The clients use etcd's own gRPC API.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
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

/// A running etcd server.
pub(crate) struct Etcd {
    server: Server,
    address: String,
}

impl Contender for Etcd {
    const NAME: &'static str = "etcd";
    type Client = Client;

    async fn start() -> Result<Self> {
        let (client, peer) = free_addresses()?;
        let address = client.to_string();
        let mut server = Server::start(Path::new("etcd"), |data| Ok(arguments(data, client, peer)))?;
        server.until(answers(&address)).await?;
        Ok(Self { server, address })
    }

    async fn connect(&self) -> Result<Client> {
        Ok(Client { kv: KvClient::new(self.open().await?) })
    }

    fn share(client: &Client) -> Client {
        Client { kv: client.kv.clone() }
    }

    async fn stop(self) -> Result<()> {
        self.server.stop().await
    }
}

impl Etcd {
    /// Opens a new connection to the node.
    ///
    /// # Errors
    /// The node does not answer.
    pub(crate) async fn open(&self) -> Result<Channel> {
        Channel::open(&self.address).await
    }
}

/// Returns two free addresses, for etcd's clients and for its peers. etcd cannot pick free ports
/// itself, because it must advertise its addresses.
fn free_addresses() -> Result<(SocketAddr, SocketAddr)> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free");
    let (client, peer) = (listen()?, listen()?);
    Ok((client.local_addr()?, peer.local_addr()?))
}

fn arguments(data: PathBuf, client: SocketAddr, peer: SocketAddr) -> Vec<OsString> {
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let urls = [
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client),
        ("--listen-peer-urls", peer.clone()),
        ("--initial-advertise-peer-urls", peer.clone()),
        ("--initial-cluster", format!("default={peer}")),
    ];
    let urls = urls.into_iter().flat_map(|(flag, value)| [flag.into(), value.into()]);
    ["--data-dir".into(), data.into()].into_iter().chain(urls).collect()
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
