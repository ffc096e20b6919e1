//! A TCP proxy between a server and its database. It can break a connection just before, during or
//! just after a commit.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// The PostgreSQL protocol message `Query` with the text COMMIT. It ends a group's transaction of several
/// statements. The periodic tasks end theirs by END.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
/// The beginning, within a message `Parse`, of the one statement that is a whole transaction.
const SINGLE_STATEMENT: &[u8] = b"SELECT * FROM try_write_group(at_epoch($11, $10), ";
/// The number of bytes before the statement's text in a message `Parse`: type, length, and an empty
/// statement name.
const PARSE_HEAD_BYTES: usize = 6;
/// The protocol message `Sync`, which ends the messages of one statement.
const SYNC: &[u8] = b"S\0\0\0\x04";
/// The protocol message `ReadyForQuery` with which the database reports that no transaction is
/// open.
const IDLE: &[u8] = b"Z\0\0\0\x05I";

/// The way in which the proxy cuts a connection at a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The connection breaks before the proxy has passed the commit to the database.
    Before,
    /// The connection breaks as soon as the proxy has passed the commit to the database.
    During,
    /// The connection breaks after the database has committed, but before the answer reaches the
    /// server.
    After,
    /// The connection stays open at both ends, but the proxy passes no further byte. The commit
    /// never reaches the database.
    Silence,
    /// The connection stays open at both ends. The database has committed, but neither the answer nor
    /// any further byte passes.
    SilenceAfter,
}

#[derive(Default)]
struct Plan {
    // The cuts to make at the next commits, in order.
    cuts: Mutex<VecDeque<Cut>>,
    cuts_done: AtomicU64,
    // The database's ends of the silent connections. Dropping them would close the connections.
    silent: Mutex<Vec<(OwnedWriteHalf, OwnedReadHalf)>>,
}

/// A proxy for connections to a database. Dropping it closes the connections.
pub(crate) struct Proxy {
    address: SocketAddr,
    plan: Arc<Plan>,
    _runtime: Runtime,
}

impl Proxy {
    pub(crate) fn start(database_port: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let (address, plan) = (listener.local_addr().unwrap(), Arc::new(Plan::default()));
        let connections = plan.clone();
        runtime.spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                if let Ok(database) = TcpStream::connect((Ipv4Addr::LOCALHOST, database_port)).await {
                    tokio::spawn(connection(client, database, connections.clone()));
                }
            }
        });
        Self { address, plan, _runtime: runtime }
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://leasehold@{}/{database}", self.address)
    }

    /// Plans a cut for the next commit that has none yet.
    pub(crate) fn cut_next(&self, cut: Cut) {
        self.plan.cuts.lock().unwrap().push_back(cut);
    }

    /// Returns the number of connections that the proxy has cut so far.
    pub(crate) fn cuts(&self) -> u64 {
        self.plan.cuts_done.load(Ordering::SeqCst)
    }
}

async fn connection(client: TcpStream, database: TcpStream, plan: Arc<Plan>) {
    // `TCP_NODELAY`: without this option, the proxy would delay small messages.
    client.set_nodelay(true).unwrap();
    database.set_nodelay(true).unwrap();
    let ((mut from_client, mut to_client), (mut from_database, mut to_database)) =
        (client.into_split(), database.into_split());
    let cut = {
        let upstream = until_cut(&mut from_client, &mut to_database, &plan);
        tokio::select! {
            cut = upstream => cut,
            _ = tokio::io::copy(&mut from_database, &mut to_client) => None,
        }
    };
    let Some(cut) = cut else { return };
    match cut {
        Cut::After => await_committed(&mut from_database).await,
        Cut::Silence => plan.silent.lock().unwrap().push((to_database, from_database)),
        Cut::SilenceAfter => {
            await_committed(&mut from_database).await;
            plan.silent.lock().unwrap().push((to_database, from_database));
        }
        Cut::Before | Cut::During => {}
    }
    plan.cuts_done.fetch_add(1, Ordering::SeqCst);
    if matches!(cut, Cut::Silence | Cut::SilenceAfter) {
        // Read and discard all further bytes of the client until it closes its end.
        let _ = tokio::io::copy(&mut from_client, &mut tokio::io::sink()).await;
    }
}

fn find(pattern: &[u8], text: &[u8]) -> Option<usize> {
    text.windows(pattern.len()).position(|window| window == pattern)
}

/// Returns the position in the bytes at which the first commit begins, and where it ends; the end
/// is `None` if it has not arrived yet.
fn find_commit(held: &[u8]) -> Option<(usize, Option<usize>)> {
    let commit = find(COMMIT, held).map(|at| (at, Some(at + COMMIT.len())));
    let single = find(SINGLE_STATEMENT, held).map(|at| {
        let end = find(SYNC, &held[at..]).map(|sync| at + sync + SYNC.len());
        (at.saturating_sub(PARSE_HEAD_BYTES), end)
    });
    commit.into_iter().chain(single).min()
}

/// Passes the client's bytes to the database until a commit for which a cut is planned. Returns
/// that cut; `None` if a connection ends first.
async fn until_cut(client: &mut OwnedReadHalf, database: &mut OwnedWriteHalf, plan: &Plan) -> Option<Cut> {
    let mut held = Vec::new();
    loop {
        if client.read_buf(&mut held).await.ok()? == 0 {
            return None;
        }
        let mut found = find_commit(&held);
        while let Some((at, Some(end))) = found {
            let cut = plan.cuts.lock().unwrap().pop_front();
            let end = if matches!(cut, Some(Cut::Before | Cut::Silence)) { at } else { end };
            database.write_all(&held[..end]).await.ok()?;
            held.drain(..end);
            if cut.is_some() {
                return cut;
            }
            found = find_commit(&held);
        }
        // Bytes that may be the beginning of a commit are held back until the rest has arrived.
        let kept = match found {
            Some((at, _)) => held.len() - at,
            None => {
                [COMMIT, SINGLE_STATEMENT].map(|pattern| prefix_length(pattern, &held)).into_iter().max().unwrap_or(0)
            }
        };
        let rest = held.split_off(held.len() - kept);
        database.write_all(&held).await.ok()?;
        held = rest;
    }
}

/// Returns how many bytes at the end of `text` may belong to a commit message: a beginning of
/// `pattern`, and the message head before the pattern.
fn prefix_length(pattern: &[u8], text: &[u8]) -> usize {
    let length = (1..pattern.len()).rev().find(|length| text.ends_with(&pattern[..*length]));
    length.map_or(0, |length| (length + PARSE_HEAD_BYTES).min(text.len()))
}

/// Reads the database's answers until one reports that the transaction has ended, or until the
/// connection ends.
async fn await_committed(database: &mut OwnedReadHalf) {
    let mut received = Vec::new();
    while find(IDLE, &received).is_none() {
        if !matches!(database.read_buf(&mut received).await, Ok(1..)) {
            return;
        }
    }
}
