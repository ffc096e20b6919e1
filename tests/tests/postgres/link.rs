//! A TCP proxy between a server and its database whose two directions can be cut, and heal again.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The most bytes that one read takes from a connection.
const CHUNK: usize = 64 * 1024;

/// A fault of a link, which lasts until it heals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The bytes of both directions are held. They arrive when the link heals.
    Frozen,
    /// The statements arrive at the database. The answers are held until the link heals.
    Deaf,
    /// The statements are dropped. Answers arrive. A connection that has lost bytes is closed when
    /// the link heals.
    Mute,
    /// All connections are closed, and so is each new one.
    Closed,
}

impl Fault {
    pub(crate) const ALL: [Self; 4] = [Self::Frozen, Self::Deaf, Self::Mute, Self::Closed];
}

/// The way in which bytes of one direction pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Pass,
    Hold,
    Drop,
}

fn flow_to_database(fault: Option<Fault>) -> Flow {
    match fault {
        Some(Fault::Frozen) => Flow::Hold,
        Some(Fault::Mute) => Flow::Drop,
        Some(Fault::Deaf | Fault::Closed) | None => Flow::Pass,
    }
}

fn flow_to_server(fault: Option<Fault>) -> Flow {
    match fault {
        Some(Fault::Frozen | Fault::Deaf) => Flow::Hold,
        Some(Fault::Mute | Fault::Closed) | None => Flow::Pass,
    }
}

/// A link to a database. Dropping it closes the connections.
pub(crate) struct Link {
    address: SocketAddr,
    fault: watch::Sender<Option<Fault>>,
    _runtime: Runtime,
}

impl Link {
    pub(crate) fn start(database_port: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (fault, seen) = watch::channel(None);
        runtime.spawn(async move {
            loop {
                let (server, _) = listener.accept().await.unwrap();
                tokio::spawn(connect(server, database_port, seen.clone()));
            }
        });
        Self { address, fault, _runtime: runtime }
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://leasehold@{}/{database}", self.address)
    }

    pub(crate) fn cut(&self, fault: Fault) {
        self.fault.send_replace(Some(fault));
    }

    pub(crate) fn heal(&self) {
        self.fault.send_replace(None);
    }
}

/// Passes bytes between the two ends of a connection until both directions have ended or the link
/// is closed.
async fn connect(server: TcpStream, database_port: u16, fault: watch::Receiver<Option<Fault>>) {
    let mut closed = fault.clone();
    let pass = async {
        let Ok(database) = TcpStream::connect((Ipv4Addr::LOCALHOST, database_port)).await else { return };
        // `TCP_NODELAY`: without this option, the proxy would delay small messages.
        server.set_nodelay(true).unwrap();
        database.set_nodelay(true).unwrap();
        let ((from_server, to_server), (from_database, to_database)) = (server.into_split(), database.into_split());
        let statements = pump(from_server, to_database, fault.clone(), flow_to_database);
        tokio::join!(statements, pump(from_database, to_server, fault, flow_to_server));
    };
    tokio::select! {
        biased;
        _ = closed.wait_for(|fault| *fault == Some(Fault::Closed)) => {},
        () = pass => {},
    }
}

/// Passes the bytes of one direction until its source ends, or until bytes were dropped and the
/// link has healed. Then closes the direction.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut fault: watch::Receiver<Option<Fault>>,
    flow: fn(Option<Fault>) -> Flow,
) {
    let mut bytes = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let is_dropped = flow(*fault.borrow()) == Flow::Drop;
        if fault.wait_for(|fault| flow(*fault) == Flow::Pass).await.is_err() || is_dropped {
            break;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
    // An error means that the other end has closed the connection already.
    let _ = to.shutdown().await;
}
