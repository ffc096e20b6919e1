//! The row `locks-vs-etcd`: locks that are acquired and released in a second, by Leasehold and by
//! etcd's own lock service. Each client has a session and a lock of its own.

use anyhow::{Context as _, Result, bail};
use leasehold_client::Stub;
use leasehold_proto::leasehold::locks::v1::acquire_lock_response::News;
use leasehold_proto::leasehold::locks::v1::{AcquireLockRequest, LockPath, ReleaseLockRequest, TryAcquireLockRequest};
use leasehold_proto::leasehold::sessions::v1::OpenSessionRequest;
use tonic::Code;

use self::api::lock_client::LockClient;
use self::api::{LockRequest, UnlockRequest};
use super::connection::Channel;
use super::etcd::Etcd;
use super::etcd::api::LeaseGrantRequest;
use super::etcd::api::lease_client::LeaseClient;
use super::load::{CLAIMS, Load, Peer};
use super::ours::Ours;
use super::row::{Better, Heading, Row};
use super::saves_vs_etcd::round;
use super::server::Contender;
use super::{Context, LoadArguments};
use xtask::needs;

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated from `etcd_lock.proto`"
)]
mod api {
    tonic::include_proto!("v3lockpb");
}

const HEADING: Heading = Heading { name: "locks-vs-etcd", unit: "locks/s", better: Better::Higher, target: 4.0 };

/// The duration of the sessions, longer than a measurement.
const HOUR_SECONDS: u32 = 3_600;

/// Measures the row.
///
/// # Errors
/// One of the two servers cannot be measured.
pub(crate) async fn row(context: &Context) -> Result<Row> {
    needs::install(needs::FOR_ETCD)?;
    measure::<OurLocks, EtcdLocks>(HEADING, &context.load).await
}

/// Measures two servers of locks in turn, so that a slow minute of the machine affects both.
///
/// # Errors
/// One of the two servers cannot be measured.
pub(crate) async fn measure<A: Contender, B: Contender>(heading: Heading, load: &LoadArguments) -> Result<Row> {
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for number in 1..=load.rounds {
        ours.push(round::<A>(number, load).await?);
        peer.push(round::<B>(number, load).await?);
    }
    let median = |rounds: &[Load]| Load::median(rounds).context("no round was run");
    Ok(heading.row(median(&ours)?.saves_per_second, median(&peer)?.saves_per_second))
}

/// Leasehold as a server of locks.
pub(crate) struct OurLocks(Ours);

impl OurLocks {
    /// Returns a running server as a server of locks.
    pub(crate) const fn on(server: Ours) -> Self {
        Self(server)
    }
}

impl Contender for OurLocks {
    const NAME: &'static str = "our locks";
    type Client = OurClient;

    async fn start() -> Result<Self> {
        Ours::start().await.map(Self)
    }

    async fn connect(&self) -> Result<OurClient> {
        Ok(OurClient::on(self.0.stub().await?))
    }

    fn share(client: &OurClient) -> OurClient {
        OurClient::on(client.stub.clone())
    }

    async fn stop(self) -> Result<()> {
        self.0.stop().await
    }
}

/// A client of Leasehold with a session of its own, opened by its first acquire.
pub(crate) struct OurClient {
    stub: Stub<Channel>,
    session: Vec<u8>,
    is_open: bool,
    lock: LockPath,
}

impl OurClient {
    fn on(stub: Stub<Channel>) -> Self {
        let session = rand::random::<[u8; 16]>().to_vec();
        let lock = LockPath { namespace: "bench".into(), key: format!("{:032x}", rand::random::<u128>()), slot: 0 };
        Self { stub, session, is_open: false, lock }
    }

    async fn open(&mut self) -> Result<()> {
        let micros = u64::from(HOUR_SECONDS) * 1_000_000;
        let request =
            OpenSessionRequest { session_id: self.session.clone(), duration_micros: micros, grace_micros: micros };
        self.stub.open_session(request).await.context("open failed")?;
        self.is_open = true;
        Ok(())
    }

    /// Waits for the lock, which another client holds.
    async fn wait(&mut self, ask_id: Vec<u8>) -> Result<u64> {
        let request = AcquireLockRequest {
            session_id: self.session.clone(),
            ask_id,
            lock: Some(self.lock.clone()),
            wait_micros: 60_000_000,
            ..Default::default()
        };
        let mut stream = self.stub.acquire_lock(request).await.context("acquire failed")?.into_inner();
        let mut news = stream.message().await?.and_then(|message| message.news);
        // The first message tells the place in the queue, unless the lock is free by now. The next
        // message must be the grant: no release wakes this client before its turn.
        if let Some(News::Waiting(_)) = news {
            news = stream.message().await?.and_then(|message| message.news);
        }
        match news {
            Some(News::Fence(fence)) => Ok(fence),
            other => bail!("the lock was not granted: {other:?}"),
        }
    }
}

/// A client that can ask for a lock which it shares with others, in place of a lock of its own.
pub(crate) trait NamedLock: Peer {
    /// Asks for the lock with this name from now on.
    fn ask_for(&mut self, name: &str);
}

impl NamedLock for OurClient {
    fn ask_for(&mut self, name: &str) {
        self.lock.key = name.into();
    }
}

impl NamedLock for EtcdClient {
    fn ask_for(&mut self, name: &str) {
        self.name = name.into();
    }
}

impl Peer for OurClient {
    type Lease = u64;

    async fn begin(&mut self, _: &[String; CLAIMS]) -> Result<u64> {
        if !self.is_open {
            self.open().await?;
        }
        let ask_id = rand::random::<[u8; 16]>().to_vec();
        let (session_id, lock) = (self.session.clone(), Some(self.lock.clone()));
        let request = TryAcquireLockRequest { session_id, ask_id: ask_id.clone(), lock, ..Default::default() };
        match self.stub.try_acquire_lock(request).await {
            Ok(granted) => Ok(granted.into_inner().fence),
            Err(status) if status.code() == Code::FailedPrecondition => self.wait(ask_id).await,
            Err(status) => Err(status).context("acquire failed"),
        }
    }

    async fn commit(&mut self, fence: u64) -> Result<()> {
        let request = ReleaseLockRequest {
            session_id: self.session.clone(),
            lock: Some(self.lock.clone()),
            fence,
            failed: false,
            value: Vec::new(),
        };
        self.stub.release_lock(request).await.context("release failed")?;
        Ok(())
    }
}

/// etcd as a server of locks.
pub(crate) struct EtcdLocks(Etcd);

impl Contender for EtcdLocks {
    const NAME: &'static str = "etcd's locks";
    type Client = EtcdClient;

    async fn start() -> Result<Self> {
        Etcd::start().await.map(Self)
    }

    async fn connect(&self) -> Result<EtcdClient> {
        Ok(EtcdClient::on(self.0.open().await?))
    }

    fn share(client: &EtcdClient) -> EtcdClient {
        EtcdClient::on(client.channel.clone())
    }

    async fn stop(self) -> Result<()> {
        self.0.stop().await
    }
}

/// A client of etcd's lock service with a lease of its own, granted by its first acquire.
pub(crate) struct EtcdClient {
    channel: Channel,
    locks: LockClient<Channel>,
    lease: Option<i64>,
    name: Vec<u8>,
}

impl EtcdClient {
    fn on(channel: Channel) -> Self {
        let locks = LockClient::new(channel.clone());
        Self { channel, locks, lease: None, name: format!("bench/{:032x}", rand::random::<u128>()).into_bytes() }
    }

    async fn lease(&mut self) -> Result<i64> {
        if let Some(lease) = self.lease {
            return Ok(lease);
        }
        let request = LeaseGrantRequest { ttl: HOUR_SECONDS.into() };
        let granted = LeaseClient::new(self.channel.clone()).lease_grant(request).await.context("grant failed")?;
        Ok(*self.lease.insert(granted.into_inner().id))
    }
}

impl Peer for EtcdClient {
    type Lease = Vec<u8>;

    async fn begin(&mut self, _: &[String; CLAIMS]) -> Result<Vec<u8>> {
        let request = LockRequest { name: self.name.clone(), lease: self.lease().await? };
        Ok(self.locks.lock(request).await.context("lock failed")?.into_inner().key)
    }

    async fn commit(&mut self, key: Vec<u8>) -> Result<()> {
        self.locks.unlock(UnlockRequest { key }).await.context("unlock failed")?;
        Ok(())
    }
}
