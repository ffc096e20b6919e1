//! A TCP relay between a client and a server, which can keep back the server's answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The state of a relay, which its connections follow.
#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    /// True if the server's bytes are kept back.
    is_closed: bool,
    /// The number of times that all connections were cut.
    cuts: u64,
}

/// A relay for connections to a server.
pub(crate) struct Relay {
    address: SocketAddr,
    gate: watch::Sender<Gate>,
    /// The number of bytes that clients have sent.
    sent: Arc<AtomicU64>,
}

impl Relay {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, gate) = (listener.local_addr().unwrap(), watch::Sender::new(Gate::default()));
        let (followed, sent) = (gate.clone(), Arc::new(AtomicU64::new(0)));
        let counter = sent.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                if let Ok(server) = TcpStream::connect(server).await {
                    tokio::spawn(connection(client, server, followed.subscribe(), counter.clone()));
                }
            }
        });
        Self { address, gate, sent }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Keeps back what the server sends from now on. Requests still pass.
    pub(crate) fn keep_answers_back(&self) {
        self.gate.send_modify(|gate| gate.is_closed = true);
    }

    /// Breaks all connections, with the answers that were kept back. New connections pass.
    pub(crate) fn cut(&self) {
        self.gate.send_modify(|gate| *gate = Gate { is_closed: false, cuts: gate.cuts + 1 });
    }

    /// Returns the number of bytes that clients have sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

async fn connection(client: TcpStream, server: TcpStream, mut gate: watch::Receiver<Gate>, sent: Arc<AtomicU64>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let (open, cuts) = (gate.clone(), gate.borrow().cuts);
    tokio::select! {
        // The cut comes first: after it, no answer that was kept back may pass.
        biased;
        _ = gate.wait_for(|gate| gate.cuts > cuts) => {}
        _ = pass_requests(from_client, to_server, &sent) => {}
        _ = pass_answers(from_server, to_client, open) => {}
    }
}

async fn pass_requests(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    sent: &AtomicU64,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    while from.read_buf(&mut bytes).await? > 0 {
        to.write_all(&bytes).await?;
        sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        bytes.clear();
    }
    Ok(())
}

async fn pass_answers(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut gate: watch::Receiver<Gate>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    while from.read_buf(&mut bytes).await? > 0 {
        // An error means that the relay is gone.
        if gate.wait_for(|gate| !gate.is_closed).await.is_err() {
            return Ok(());
        }
        to.write_all(&bytes).await?;
        bytes.clear();
    }
    Ok(())
}
