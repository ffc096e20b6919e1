//! Clusters of etcd for single tests: real nodes on free ports, with data in a temporary directory.
//! Dropping the value of a test ends the nodes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::guarded::Guarded;
use crate::postgres::free_port;
use crate::suspend::suspend;

/// The longest time that the start of a cluster may take before the test fails.
const DEADLINE: Duration = Duration::from_secs(60);
/// The pause between two questions if a node is healthy.
const POLL: Duration = Duration::from_millis(20);

/// The options with which a server accepts a cluster.
pub const LIMITS: &[&str] = &["--max-txn-ops=8192", "--max-request-bytes=12582912"];

/// A node of a cluster.
#[derive(Debug)]
struct Node {
    // `None` while the node is down.
    process: Option<Guarded>,
    client: u16,
    peer: u16,
}

/// A running cluster of etcd with its own data directories. Dropping it stops the nodes and removes the
/// data.
#[derive(Debug)]
pub struct EtcdCluster {
    // Fields are dropped in this order: the processes must end before their directory is removed.
    nodes: Vec<Node>,
    options: Vec<String>,
    directory: TempDir,
}

impl EtcdCluster {
    /// Starts a cluster of `count` nodes with these options, and waits until all nodes are healthy.
    ///
    /// # Errors
    /// etcd is not installed, or does not start; the error contains its log.
    pub fn start(count: usize, options: &[&str]) -> Result<Self> {
        let node = |_| Ok(Node { process: None, client: free_port()?, peer: free_port()? });
        let nodes = (0..count).map(node).collect::<Result<Vec<_>>>()?;
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut cluster = Self { nodes, options, directory: TempDir::new()? };
        (0..count).try_for_each(|at| cluster.run(at))?;
        (0..count).try_for_each(|at| cluster.await_health(at))?;
        Ok(cluster)
    }

    /// Returns the URL of the store with this prefix.
    #[must_use]
    pub fn url(&self, prefix: &str) -> String {
        let members: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.client)).collect();
        format!("etcd://{}?prefix={prefix}", members.join(","))
    }

    /// Ends a node by SIGKILL.
    ///
    /// # Errors
    /// The node does not run.
    pub fn kill(&mut self, at: usize) -> Result<()> {
        kill(Pid::from_raw(self.pid(at)?), Signal::SIGKILL).context("the node cannot be killed")?;
        self.node(at)?.process = None;
        Ok(())
    }

    /// Suspends a node until the returned guard is dropped.
    ///
    /// # Errors
    /// The node does not run.
    pub fn freeze(&self, at: usize) -> Result<FrozenNode> {
        let pid = Pid::from_raw(self.pid(at)?);
        suspend(&[pid])?;
        Ok(FrozenNode(pid))
    }

    /// Starts a node that [`kill`](Self::kill) has ended, on the same data and ports, and waits until it
    /// is healthy.
    ///
    /// # Errors
    /// The node does not start; the error contains its log.
    pub fn restart(&mut self, at: usize) -> Result<()> {
        self.run(at)?;
        self.await_health(at)
    }

    fn node(&mut self, at: usize) -> Result<&mut Node> {
        self.nodes.get_mut(at).context("there is no such node")
    }

    fn pid(&self, at: usize) -> Result<i32> {
        let process = self.nodes.get(at).and_then(|node| node.process.as_ref());
        process.context("the node does not run")?.pid_of("etcd")
    }

    fn run(&mut self, at: usize) -> Result<()> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let peers: Vec<_> =
            self.nodes.iter().enumerate().map(|(at, node)| format!("n{at}={}", url(node.peer))).collect();
        let (client, peer) = self.node(at).map(|node| (url(node.client), url(node.peer)))?;
        let data = self.directory.path().join(at.to_string()).display().to_string();
        let cluster = peers.join(",");
        let words = [
            ("--name", &format!("n{at}")),
            ("--data-dir", &data),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &cluster),
            ("--initial-cluster-token", &cluster),
        ];
        let words = words.into_iter().flat_map(|(name, value)| [name.to_owned(), value.clone()]);
        let words: Vec<_> = ["etcd".to_owned()].into_iter().chain(words).chain(self.options.iter().cloned()).collect();
        let log = self.directory.path().join(format!("{at}.log"));
        let process = Guarded::start(&words, &log)?;
        self.node(at)?.process = Some(process);
        Ok(())
    }

    fn await_health(&mut self, at: usize) -> Result<()> {
        let (deadline, port) = (Instant::now() + DEADLINE, self.node(at)?.client);
        while !is_healthy(port).unwrap_or(false) {
            let log = self.directory.path().join(format!("{at}.log"));
            let log = || std::fs::read_to_string(&log).unwrap_or_default();
            ensure!(Instant::now() < deadline, "etcd is not healthy within {DEADLINE:?}:\n{}", log());
            std::thread::park_timeout(POLL);
        }
        Ok(())
    }
}

/// A suspended node. Dropping the value resumes it.
#[derive(Debug)]
pub struct FrozenNode(Pid);

impl Drop for FrozenNode {
    fn drop(&mut self) {
        // An error is ignored: the signal fails only if the node has ended in the meantime.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// True if a node says that its cluster has a leader and takes writes.
fn is_healthy(port: u16) -> Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.contains(r#""health":"true""#))
}
