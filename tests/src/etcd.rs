//! Clusters of etcd for single tests: real nodes on free ports, with data in a temporary directory.
//! Dropping the value of a test ends the nodes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::certificates::Authority;
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
    // Tells in plain text if the node is healthy.
    health: u16,
}

/// The PEM files of a client of a cluster with TLS.
#[derive(Clone, Debug)]
pub struct ClientPems {
    /// The authority of all certificates.
    pub ca: PathBuf,
    /// The client's certificate.
    pub certificate: PathBuf,
    /// The key of the client's certificate.
    pub key: PathBuf,
}

/// A running cluster of etcd with its own data directories. Dropping it stops the nodes and removes the
/// data.
#[derive(Debug)]
pub struct EtcdCluster {
    // Fields are dropped in this order: the processes must end before their directory is removed.
    nodes: Vec<Node>,
    options: Vec<String>,
    scheme: &'static str,
    directory: TempDir,
}

impl EtcdCluster {
    /// Starts a cluster of `count` nodes with these options, and waits until all nodes are healthy.
    ///
    /// # Errors
    /// etcd is not installed, or does not start; the error contains its log.
    pub fn start(count: usize, options: &[&str]) -> Result<Self> {
        Self::prepare(count, options)?.run_all()
    }

    /// Starts a cluster like [`start`](Self::start), which takes encrypted connections of clients with a
    /// certificate only.
    ///
    /// # Errors
    /// The same as those of [`start`](Self::start).
    pub fn start_with_tls(count: usize, options: &[&str]) -> Result<Self> {
        let mut cluster = Self::prepare(count, options)?;
        cluster.renew_certificates()?;
        let files = [("--cert-file", "server.pem"), ("--key-file", "server.key"), ("--trusted-ca-file", "ca.pem")];
        let files = files.map(|(option, name)| format!("{option}={}", cluster.path(name).display()));
        cluster.options.extend(files.into_iter().chain(["--client-cert-auth".to_owned()]));
        cluster.scheme = "https";
        cluster.run_all()
    }

    fn prepare(count: usize, options: &[&str]) -> Result<Self> {
        let node = |_| Ok(Node { process: None, client: free_port()?, peer: free_port()?, health: free_port()? });
        let nodes = (0..count).map(node).collect::<Result<Vec<_>>>()?;
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Ok(Self { nodes, options, scheme: "http", directory: TempDir::new()? })
    }

    fn run_all(mut self) -> Result<Self> {
        (0..self.nodes.len()).try_for_each(|at| self.run(at))?;
        (0..self.nodes.len()).try_for_each(|at| self.await_health(at))?;
        Ok(self)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes certificates of a new authority, for the nodes and for a client.
    ///
    /// # Errors
    /// A file can't be written.
    pub fn renew_certificates(&self) -> Result<()> {
        let authority = Authority::new("cluster")?;
        let (server, client) = (authority.server()?, authority.client_named("leasehold")?);
        let files = [("ca.pem", authority.pem())];
        let files = files.into_iter().chain([("server.pem", server.certificate), ("server.key", server.key)]);
        let mut files = files.chain([("client.pem", client.certificate), ("client.key", client.key)]);
        files.try_for_each(|(name, text)| Ok(std::fs::write(self.path(name), text)?))
    }

    /// Returns the directory of the state files of servers.
    #[must_use]
    pub fn state_directory(&self) -> PathBuf {
        self.path("state")
    }

    /// Returns the files of a client of a cluster with TLS.
    #[must_use]
    pub fn client_pems(&self) -> ClientPems {
        let [ca, certificate, key] = ["ca.pem", "client.pem", "client.key"].map(|name| self.path(name));
        ClientPems { ca, certificate, key }
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

    /// Writes a value of this length in bytes, as another user of the cluster would.
    ///
    /// # Errors
    /// The cluster refuses the write, as it does when its quota is used up.
    pub fn put(&self, key: u64, length: usize) -> Result<()> {
        let port = self.nodes.first().context("there is no node")?.client;
        // Both texts are base64 already.
        let value = "A".repeat(length / 3 * 4);
        let answer = exchange(port, "POST", "/v3/kv/put", &format!(r#"{{"key":"{key:016x}","value":"{value}"}}"#))?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Ok(())
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

    /// Starts a node as [`restart`](Self::restart) does, with other options than those of the cluster.
    ///
    /// # Errors
    /// The node does not start; the error contains its log.
    pub fn restart_with(&mut self, at: usize, options: &[&str]) -> Result<()> {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let usual = std::mem::replace(&mut self.options, options);
        let started = self.run(at);
        self.options = usual;
        started?;
        self.await_health(at)
    }

    /// Starts a node that [`kill`](Self::kill) has ended as a cluster of its own, without data.
    ///
    /// # Errors
    /// The node does not start; the error contains its log.
    pub fn restart_alone(&mut self, at: usize) -> Result<()> {
        let names = self.names(at)?;
        std::fs::remove_dir_all(&names.data)?;
        let cluster = format!("{}={}", names.name, names.peer);
        self.run_as(at, Names { cluster, ..names })?;
        self.await_health(at)
    }

    /// Counts the rows of a store whose keys begin with these letters.
    ///
    /// # Errors
    /// `etcdctl` fails.
    pub fn count(&self, prefix: &str, letters: &str) -> Result<usize> {
        let port = self.nodes.first().context("there is no node")?.client;
        let (endpoint, keys) = (format!("--endpoints=http://127.0.0.1:{port}"), format!("{prefix}/{letters}"));
        let text = etcdctl([&*endpoint, "get", "--prefix", &*keys, "--keys-only", "--write-out=json"])?;
        let answer: serde_json::Value = serde_json::from_str(&text)?;
        Ok(answer.get("kvs").and_then(serde_json::Value::as_array).map_or(0, Vec::len))
    }

    /// Saves a snapshot of the cluster, and returns its file.
    ///
    /// # Errors
    /// `etcdctl` fails.
    pub fn snapshot(&self) -> Result<PathBuf> {
        let (path, port) = (self.path("snapshot.db"), self.nodes.first().context("there is no node")?.client);
        let endpoint = format!("--endpoints=http://127.0.0.1:{port}");
        etcdctl([&*endpoint, "snapshot", "save", &path.display().to_string()])?;
        Ok(path)
    }

    /// Ends all nodes, restores a snapshot in their place, and starts them. With another `token`, the cluster
    /// has another id.
    ///
    /// # Errors
    /// `etcdctl` fails, or a node does not start.
    pub fn restore(&mut self, snapshot: &Path, token: Option<&str>) -> Result<()> {
        for at in 0..self.nodes.len() {
            self.kill(at)?;
            let Names { name, data, peer, cluster } = self.names(at)?;
            std::fs::remove_dir_all(&data)?;
            let options = [
                format!("--name={name}"),
                format!("--data-dir={data}"),
                format!("--initial-cluster={cluster}"),
                format!("--initial-cluster-token={}", token.unwrap_or(&cluster)),
                format!("--initial-advertise-peer-urls={peer}"),
            ];
            let snapshot = snapshot.display().to_string();
            etcdctl(["snapshot", "restore", &snapshot].into_iter().chain(options.iter().map(String::as_str)))?;
        }
        (0..self.nodes.len()).try_for_each(|at| self.run(at))?;
        (0..self.nodes.len()).try_for_each(|at| self.await_health(at))
    }

    /// Returns the names of a node.
    fn names(&self, at: usize) -> Result<Names> {
        let url = |node: &Node| format!("http://127.0.0.1:{}", node.peer);
        let peers: Vec<_> = self.nodes.iter().enumerate().map(|(at, node)| format!("n{at}={}", url(node))).collect();
        Ok(Names {
            name: format!("n{at}"),
            data: self.path(&at.to_string()).display().to_string(),
            peer: self.nodes.get(at).map(url).context("there is no such node")?,
            cluster: peers.join(","),
        })
    }

    fn node(&mut self, at: usize) -> Result<&mut Node> {
        self.nodes.get_mut(at).context("there is no such node")
    }

    fn pid(&self, at: usize) -> Result<i32> {
        let process = self.nodes.get(at).and_then(|node| node.process.as_ref());
        process.context("the node does not run")?.pid_of("etcd")
    }

    fn run(&mut self, at: usize) -> Result<()> {
        let names = self.names(at)?;
        self.run_as(at, names)
    }

    fn run_as(&mut self, at: usize, Names { name, data, peer, cluster }: Names) -> Result<()> {
        let scheme = self.scheme;
        let Node { client, health, .. } = self.node(at)?;
        let (client, health) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{health}"));
        let words = [
            ("--name", &name),
            ("--data-dir", &data),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-metrics-urls", &health),
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
        let (deadline, port) = (Instant::now() + DEADLINE, self.node(at)?.health);
        while !is_healthy(port).unwrap_or(false) {
            let log = self.directory.path().join(format!("{at}.log"));
            let log = || std::fs::read_to_string(&log).unwrap_or_default();
            ensure!(Instant::now() < deadline, "etcd is not healthy within {DEADLINE:?}:\n{}", log());
            std::thread::park_timeout(POLL);
        }
        Ok(())
    }
}

/// The names of a node.
struct Names {
    name: String,
    data: String,
    peer: String,
    /// The names and addresses of all nodes.
    cluster: String,
}

/// Runs `etcdctl` with these words, and returns its output.
///
/// # Errors
/// It can't be started, or fails.
pub fn etcdctl<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let output =
        Command::new("etcdctl").env("ETCDCTL_API", "3").args(words).output().context("cannot start `etcdctl`")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
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
    Ok(exchange(port, "GET", "/health", "")?.contains(r#""health":"true""#))
}

/// Makes one request in plain HTTP, and returns the whole answer.
fn exchange(port: u16, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {length}");
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
