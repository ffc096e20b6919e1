//! Three machines, each with a node of etcd.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_tests::etcd::{LIMITS, etcdctl};
use nix::sys::signal::Signal;
use xtask::cluster::{Machine, Network};

/// The number of nodes.
pub(super) const NODES: u8 = 3;
/// The longest time in which the nodes reach a state that is waited for.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// The longest time in which a node answers a question.
const PATIENCE: Duration = Duration::from_secs(1);

/// A machine with a node.
struct Node {
    machine: Machine,
    directory: PathBuf,
    processes: Vec<Child>,
    // True once the node has taken the place of another one, and asks the others for the data.
    joins: bool,
}

/// The nodes of a cluster on machines of their own. Dropping it ends all processes.
pub(super) struct Nodes {
    // The machines leave before their network.
    nodes: Vec<Node>,
    network: Network,
}

/// The answer of a node about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    member: u64,
    leader: u64,
}

impl Nodes {
    /// Starts a cluster whose data is below `directory`, which every user may enter.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let network = Network::start()?;
        let node = |number: u8| {
            let directory = directory.join(number.to_string());
            std::fs::create_dir(&directory)?;
            std::os::unix::fs::chown(&directory, Some(id_of("postgres")?), None)?;
            Ok(Node { machine: network.machine(number)?, directory, processes: Vec::new(), joins: false })
        };
        let nodes = (1..=NODES).map(node).collect::<Result<Vec<_>>>()?;
        let mut all = Self { nodes, network };
        (0..all.nodes.len()).try_for_each(|at| all.run(at))?;
        all.wait_until("all nodes answer", Self::is_whole)?;
        Ok(all)
    }

    pub(super) fn network(&self) -> &Network {
        &self.network
    }

    pub(super) fn url(&self) -> String {
        let members: Vec<_> = self.nodes.iter().map(|node| format!("{}:2379", node.machine.address())).collect();
        format!("etcd://{}?prefix=fight&tls=off", members.join(","))
    }

    pub(super) fn machine(&self, at: usize) -> Result<&Machine> {
        Ok(&self.node(at)?.machine)
    }

    /// Starts the node of a machine.
    pub(super) fn run(&mut self, at: usize) -> Result<()> {
        let url = |node: &Node, port| format!("http://{}:{port}", node.machine.address());
        let cluster: Vec<_> =
            self.nodes.iter().enumerate().map(|(at, node)| format!("n{at}={}", url(node, 2380))).collect();
        let node = self.nodes.get_mut(at).context("there is no such node")?;
        let (client, peer) = (url(node, 2379), url(node, 2380));
        let (name, cluster) = (format!("n{at}"), cluster.join(","));
        let state = if node.joins { "existing" } else { "new" };
        let words: [&[&str]; 5] = [
            &["etcd", "--name", &name, "--data-dir", "data", "--initial-cluster", &cluster],
            &["--listen-client-urls", &client, "--advertise-client-urls", &client],
            &["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer],
            &["--initial-cluster-state", state],
            LIMITS,
        ];
        // A process that was killed has its ports until it has ended.
        node.processes.drain(..).try_for_each(|mut process| process.wait().map(drop))?;
        let log = node.directory.join("log");
        node.processes.push(node.machine.start(&words.concat(), &node.directory, &log)?);
        Ok(())
    }

    /// Kills the node of a machine.
    pub(super) fn kill(&self, at: usize) -> Result<()> {
        self.machine(at)?.signal_those("etcd --name", Signal::SIGKILL).map(drop)
    }

    /// Kills the node of a machine, and has another node remove it from the cluster. Its data is gone.
    pub(super) fn remove(&mut self, at: usize, by: usize) -> Result<()> {
        let member = self.node(at)?.status()?.member;
        self.kill(at)?;
        self.ask(by, &["member", "remove", &format!("{member:x}")])?;
        let node = self.nodes.get_mut(at).context("there is no such node")?;
        node.processes.drain(..).try_for_each(|mut process| process.wait().map(drop))?;
        Ok(std::fs::remove_dir_all(node.directory.join("data"))?)
    }

    /// Adds a new node to the cluster by way of another one, and starts it.
    pub(super) fn add(&mut self, at: usize, by: usize) -> Result<()> {
        let peer = format!("--peer-urls=http://{}:2380", self.machine(at)?.address());
        self.ask(by, &["member", "add", &format!("n{at}"), &peer])?;
        self.nodes.get_mut(at).context("there is no such node")?.joins = true;
        self.run(at)
    }

    /// Asks a node for a change of the members, until it makes the change: it refuses while it is not sure of a majority.
    fn ask(&self, by: usize, words: &[&str]) -> Result<()> {
        let node = format!("--endpoints=http://{}:2379", self.machine(by)?.address());
        let words = [&[&*node], words].concat();
        self.wait_until(&words.join(" "), |_| etcdctl(words.iter().copied()).is_ok())
    }

    fn node(&self, at: usize) -> Result<&Node> {
        self.nodes.get(at).context("there is no such node")
    }

    /// Gives a machine its power back, and starts its node.
    pub(super) fn power_on(&mut self, at: usize) -> Result<()> {
        self.machine(at)?.power_on()?;
        self.run(at)
    }

    /// Returns the index of the node that says that it leads, and is believed by another one.
    pub(super) fn leader(&self) -> Option<usize> {
        let said: Vec<_> = self.nodes.iter().map(|node| node.status().ok()).collect();
        let believed = |member| said.iter().flatten().filter(|status| status.leader == member).count() > 1;
        said.iter().position(|status| status.is_some_and(|it| it.member == it.leader && believed(it.member)))
    }

    /// True if all nodes follow one leader.
    pub(super) fn is_whole(&self) -> bool {
        let said: Vec<_> = self.nodes.iter().filter_map(|node| node.status().ok()).collect();
        said.len() == self.nodes.len()
            && said.iter().all(|status| status.leader != 0 && status.leader == said[0].leader)
    }

    /// Polls until a condition holds.
    pub(super) fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        while !holds(self) {
            let log = || self.nodes.iter().map(|node| std::fs::read_to_string(node.directory.join("log")));
            ensure!(Instant::now() < deadline, "not true: {what}\n{:?}", log().collect::<Vec<_>>());
            std::thread::park_timeout(POLL);
        }
        Ok(())
    }
}

impl Node {
    /// Asks the node for its state. It answers without the others.
    fn status(&self) -> Result<Status> {
        let address: SocketAddr = format!("{}:2379", self.machine.address()).parse()?;
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head = "POST /v3/maintenance/status HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: 2";
        stream.write_all(format!("{head}\r\n\r\n{{}}").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("the answer has no body")?;
        let status: serde_json::Value = serde_json::from_str(body)?;
        // JSON has numbers of 64 bits as text, and leaves out what is zero.
        let number = |value: &serde_json::Value| value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
        Ok(Status { member: number(&status["header"]["member_id"]), leader: number(&status["leader"]) })
    }
}

fn id_of(user: &str) -> Result<u32> {
    Ok(nix::unistd::User::from_name(user)?.with_context(|| format!("there is no user `{user}`"))?.uid.as_raw())
}
