//! A wire between a server and its database that can be cut at the worst moments: around what commits.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// What commits: a message, or the statement of a group that is a transaction of its own, behind the head of its message.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
const ALONE: &[u8] = b"SELECT * FROM try_write_rows($10, ";
const PARSE_HEAD_BYTES: usize = 6;
/// What ends a statement's messages.
const SYNC: &[u8] = b"S\0\0\0\x04";
/// The database has no transaction under way any more.
const IDLE: &[u8] = b"Z\0\0\0\x05I";

/// What becomes of a connection at a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It breaks before the database has heard of it.
    Before,
    /// It breaks as soon as it is sent.
    During,
    /// It breaks when the database has done it and says so.
    After,
    /// Both ends stay open, and nothing passes any more; the database has not heard of it.
    Silence,
}

#[derive(Default)]
struct Plan {
    cuts: Mutex<VecDeque<Cut>>,
    done: AtomicU64,
    // Ends of connections that have gone silent.
    silent: Mutex<Vec<(OwnedWriteHalf, OwnedReadHalf)>>,
}

/// A proxy before a database, for as long as it is held.
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

    /// Cuts the connection of the next commit.
    pub(crate) fn cut_next(&self, cut: Cut) {
        self.plan.cuts.lock().unwrap().push_back(cut);
    }

    /// How many connections were cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.plan.done.load(Ordering::SeqCst)
    }
}

async fn connection(client: TcpStream, database: TcpStream, plan: Arc<Plan>) {
    // As the ends themselves have it.
    client.set_nodelay(true).unwrap();
    database.set_nodelay(true).unwrap();
    let ((mut from_client, mut to_client), (mut from_database, mut to_database)) =
        (client.into_split(), database.into_split());
    let cut = {
        let upwards = until_cut(&mut from_client, &mut to_database, &plan);
        tokio::select! {
            cut = upwards => cut,
            _ = tokio::io::copy(&mut from_database, &mut to_client) => None,
        }
    };
    let Some(cut) = cut else { return };
    match cut {
        Cut::After => await_committed(&mut from_database).await,
        Cut::Silence => plan.silent.lock().unwrap().push((to_database, from_database)),
        Cut::Before | Cut::During => {}
    }
    plan.done.fetch_add(1, Ordering::SeqCst);
    if cut == Cut::Silence {
        // Until the client gives up.
        let _ = tokio::io::copy(&mut from_client, &mut tokio::io::sink()).await;
    }
}

fn find(pattern: &[u8], text: &[u8]) -> Option<usize> {
    text.windows(pattern.len()).position(|window| window == pattern)
}

/// Where what commits begins and ends; no end where the rest is still to come.
fn find_commit(held: &[u8]) -> Option<(usize, Option<usize>)> {
    let commit = find(COMMIT, held).map(|at| (at, Some(at + COMMIT.len())));
    let alone = find(ALONE, held).map(|at| {
        let end = find(SYNC, &held[at..]).map(|sync| at + sync + SYNC.len());
        (at.saturating_sub(PARSE_HEAD_BYTES), end)
    });
    commit.into_iter().chain(alone).min()
}

/// Passes on what the client sends, up to what commits and is to be cut.
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
        // What may be the beginning of one waits for the rest.
        let kept = match found {
            Some((at, _)) => held.len() - at,
            None => [COMMIT, ALONE].map(|pattern| beginning(pattern, &held)).into_iter().max().unwrap_or(0),
        };
        let rest = held.split_off(held.len() - kept);
        database.write_all(&held).await.ok()?;
        held = rest;
    }
}

/// How many bytes at the end of a text may be the beginning of the pattern, with the head of its message.
fn beginning(pattern: &[u8], text: &[u8]) -> usize {
    let length = (1..pattern.len()).rev().find(|length| text.ends_with(&pattern[..*length]));
    length.map_or(0, |length| (length + PARSE_HEAD_BYTES).min(text.len()))
}

async fn await_committed(database: &mut OwnedReadHalf) {
    let mut heard = Vec::new();
    while find(IDLE, &heard).is_none() {
        if !matches!(database.read_buf(&mut heard).await, Ok(1..)) {
            return;
        }
    }
}
