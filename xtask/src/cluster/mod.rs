//! A cluster of three machines with PostgreSQL under Patroni and etcd, on this machine. The tests break it in every way
//! that the book names, and `cargo xtask cluster` lets a person do so.

mod false_clock;
mod machine;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde_json::json;

pub use self::false_clock::faketime_library;
use self::false_clock::{FalseClock, LAUNCHER};
pub use self::machine::{Machine, Network};
use crate::process::root;
use crate::python::Environment;

/// The number of machines with PostgreSQL.
pub const NODES: u8 = 3;
/// The configuration of Patroni, with the addresses of a first node.
const PATRONI: &str = "deploy/patroni/patroni.yml";
/// The user and the password of the API in Patroni's configuration, `patroni:secret`, as RFC 7617 has them.
const REST: &str = "Basic cGF0cm9uaTpzZWNyZXQ=";
/// Debian's Python, which every user may run.
const PYTHON: &str = "/usr/bin/python3";
/// The directory of Patroni's modules beside those of the nodes.
const MODULES: &str = "patroni";
/// The configuration of HAProxy, with the addresses of three nodes.
const PROXY: &str = "deploy/patroni/haproxy.cfg";
/// The longest time in which a cluster starts, or reaches another state that it is waited for.
const DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
/// The longest time in which a member of etcd accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A node: a machine with etcd, Patroni and PostgreSQL.
#[derive(Debug)]
pub struct Node {
    name: String,
    machine: Machine,
    directory: PathBuf,
    clock: Option<FalseClock>,
    members: Vec<Child>,
}

/// The answer of Patroni's path `/cluster`.
#[derive(Deserialize)]
struct Members {
    members: Vec<Member>,
}

/// A node as Patroni describes it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Member {
    /// The name of the node.
    pub name: String,
    /// The role of the node: `leader`, `sync_standby` or `replica`.
    pub role: String,
    /// The state of its PostgreSQL, such as `running` or, of a standby, `streaming`.
    pub state: String,
    /// Its timeline; 0 if it is unknown.
    #[serde(default)]
    pub timeline: u64,
}

/// Installs Patroni into the build directory, unless it is there.
///
/// # Errors
/// Python is absent, or a package can't be installed.
pub async fn prepare() -> Result<()> {
    patroni().prepare().await
}

fn patroni() -> Environment {
    Environment::new("patroni", root().join("deploy/patroni"), "requirements.txt").made_by(PYTHON)
}

/// Copies Patroni's modules into a directory that every user may enter: the build directory may be below a home.
fn copy_modules(directory: &Path) -> Result<()> {
    let libraries = patroni().path("../lib");
    let version = std::fs::read_dir(&libraries).with_context(|| format!("no `{}`", libraries.display()))?.next();
    let modules = version.context("Patroni is not installed")??.path().join("site-packages");
    let copied = Command::new("cp").arg("--recursive").arg(modules).arg(directory.join(MODULES)).status()?;
    ensure!(copied.success(), "Patroni's modules can't be copied to `{}`", directory.display());
    Ok(())
}

/// A cluster of PostgreSQL under Patroni. Dropping it ends all its processes.
#[derive(Debug)]
pub struct Cluster {
    // The machines leave before their network.
    nodes: Vec<Node>,
    network: Network,
}

impl Cluster {
    /// Returns the last `count` lines of each node's log.
    #[must_use]
    pub fn logs(&self, count: usize) -> String {
        self.nodes.iter().map(|node| node.log(count)).collect::<Vec<_>>().join("\n")
    }

    /// Starts a cluster whose data is below `directory`, which every user may enter, with the Patroni that [`prepare`] has
    /// installed. Waits until it has a primary and a synchronous standby, and makes the role and the database `leasehold`.
    ///
    /// # Errors
    /// The process is not root, a program is absent, or the cluster does not start; the error shows the logs.
    pub fn start(directory: &Path) -> Result<Self> {
        Self::start_at(directory, [0; NODES as usize])
    }

    /// Starts a cluster as [`start`](Self::start) does, whose nodes' wall clocks are so many seconds ahead of this machine's.
    ///
    /// # Errors
    /// See [`start`](Self::start).
    pub fn start_at(directory: &Path, ahead_seconds: [i64; NODES as usize]) -> Result<Self> {
        copy_modules(directory)?;
        let network = Network::start()?;
        let node = |(number, ahead)| Node::new(&network, number, directory, ahead);
        let nodes = (1..=NODES).zip(ahead_seconds).map(node).collect::<Result<_>>()?;
        let mut cluster = Self { nodes, network };
        for index in 0..cluster.nodes.len() {
            cluster.node(index)?.run()?;
        }
        cluster.wait_until("a primary has a synchronous standby", |cluster| {
            cluster.members().iter().any(|member| member.role == "sync_standby")
        })?;
        cluster.execute("postgres", "CREATE ROLE leasehold LOGIN PASSWORD 'secret'")?;
        cluster.execute("postgres", "CREATE DATABASE leasehold OWNER leasehold")?;
        Ok(cluster)
    }

    /// Returns the network of the cluster, to which other machines may be added.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the URL of the database, which names every node.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_from(0)
    }

    /// Returns the URL of the database, which names every node, beginning with that of this index.
    #[must_use]
    pub fn url_from(&self, first: usize) -> String {
        let nodes = self.nodes.iter().cycle().skip(first).take(self.nodes.len());
        let hosts: Vec<_> = nodes.map(|node| format!("{}:5432", node.machine.address())).collect();
        format!("postgres://leasehold:secret@{}/leasehold?sslmode=disable", hosts.join(","))
    }

    /// Starts HAProxy on a machine, with its files in `directory`. It leads to the primary until the machine is dropped.
    /// Returns the URL of the database for programs on that machine.
    ///
    /// # Errors
    /// The configuration can't be written, or the program can't be started.
    pub fn run_proxy(&self, machine: &Machine, directory: &Path) -> Result<String> {
        let mut text =
            std::fs::read_to_string(root().join(PROXY)).with_context(|| format!("`{PROXY}` can't be read"))?;
        for (index, node) in self.nodes.iter().enumerate() {
            text = text.replace(&format!("10.0.0.{}:", index + 1), &format!("{}:", node.machine.address()));
        }
        let file = directory.join("haproxy.cfg");
        std::fs::write(&file, text)?;
        let log = directory.join("haproxy.log");
        machine.start(&["/usr/sbin/haproxy", "-db", "-f", &file.display().to_string()], directory, &log)?;
        let url = "postgres://leasehold:secret@127.0.0.1:5432/leasehold?sslmode=disable";
        // Until its first checks, HAProxy takes each node for the primary.
        self.wait_until("the proxy leads to the primary alone", |_| {
            let primary = ["-At", url, "-c", "SHOW transaction_read_only"];
            (0..NODES)
                .all(|_| machine.command("psql").args(primary).output().is_ok_and(|answer| answer.stdout == b"off\n"))
        })?;
        Ok(url.to_owned())
    }

    /// Returns a node by its index, from 0.
    ///
    /// # Errors
    /// There is no such node.
    pub fn node(&mut self, index: usize) -> Result<&mut Node> {
        self.nodes.get_mut(index).with_context(|| format!("there is no node {}", index + 1))
    }

    /// Returns the machine of a node.
    ///
    /// # Errors
    /// There is no such node.
    pub fn machine(&self, index: usize) -> Result<&Machine> {
        Ok(&self.nodes.get(index).with_context(|| format!("there is no node {}", index + 1))?.machine)
    }

    /// Returns what the nodes say of all nodes; nothing if none answers. A node that was suspended says what was true before,
    /// so the account with the highest timeline counts.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let accounts = self.nodes.iter().filter_map(|node| node.members().ok());
        let newest = |members: &Vec<Member>| members.iter().map(|member| member.timeline).max();
        accounts.max_by_key(newest).unwrap_or_default()
    }

    /// Returns the highest timeline of all nodes.
    #[must_use]
    pub fn timeline(&self) -> u64 {
        self.members().iter().map(|member| member.timeline).max().unwrap_or_default()
    }

    /// Returns the index of the node that the newest account calls the leader.
    #[must_use]
    pub fn primary(&self) -> Option<usize> {
        let leader = self.members().into_iter().filter(|member| member.role == "leader");
        let leader = leader.max_by_key(|member| member.timeline)?;
        self.index(&leader.name)
    }

    /// Returns the index of a node by its name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// True if all nodes say the same: all are there with their members of etcd, on one timeline, and one is the synchronous
    /// standby of the primary if Patroni shall have one.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let members = self.members();
        if self.nodes.iter().any(|node| node.members().ok().as_ref() != Some(&members)) {
            return false;
        }
        let has = |role: &str| members.iter().any(|member| member.role == role);
        let timeline = members.first().map_or(0, |member| member.timeline);
        let are_running = members.iter().all(|member| {
            member.timeline == timeline && member.state == if member.role == "leader" { "running" } else { "streaming" }
        });
        members.len() == self.nodes.len()
            && self.nodes.iter().all(Node::has_etcd)
            && are_running
            && has("leader")
            && (has("sync_standby") || !self.is_synchronous())
    }

    /// True if Patroni makes COMMITs wait for a standby.
    fn is_synchronous(&self) -> bool {
        let answers = self.nodes.iter().filter_map(|node| http(&node.rest(), "GET", "/config", "").ok());
        let settings = answers.filter_map(|(_, text)| serde_json::from_str::<serde_json::Value>(&text).ok()).next();
        settings.is_some_and(|settings| settings.get("synchronous_mode") == Some(&serde_json::Value::Bool(true)))
    }

    /// Lets another node become the primary without a fault.
    ///
    /// # Errors
    /// There is no primary, or no standby that can take its place.
    pub fn switch_over(&self) -> Result<()> {
        let primary = self.primary().context("there is no primary")?;
        let node = self.nodes.get(primary).context("there is no primary")?;
        let answer = http(&node.rest(), "POST", "/switchover", &json!({ "leader": node.name }).to_string())?;
        ensure!(answer.0 == 200, "no switchover: {}", answer.1);
        Ok(())
    }

    /// Changes Patroni's configuration of the cluster by a JSON object; `null` removes a setting.
    ///
    /// # Errors
    /// There is no primary, or it refuses the change.
    pub fn configure(&self, change: &str) -> Result<()> {
        let primary = self.primary().context("there is no primary")?;
        let node = self.nodes.get(primary).context("there is no primary")?;
        let answer = http(&node.rest(), "PATCH", "/config", change)?;
        ensure!(answer.0 == 200, "not changed: {}", answer.1);
        Ok(())
    }

    /// Executes SQL as the superuser at the primary. Returns the unaligned output of psql.
    ///
    /// # Errors
    /// There is no primary, or it refuses a statement.
    pub fn execute(&self, database: &str, sql: &str) -> Result<String> {
        let primary = self.primary().context("there is no primary")?;
        self.execute_at(primary, database, sql)
    }

    /// Executes SQL as the superuser at a node. Returns the unaligned output of psql.
    ///
    /// # Errors
    /// There is no such node, or it refuses a statement.
    pub fn execute_at(&self, index: usize, database: &str, sql: &str) -> Result<String> {
        let address = self.machine(index)?.address().to_owned();
        let url = format!("postgres://postgres:secret@{address}:5432/{database}?connect_timeout=5");
        let output = Command::new("psql")
            .args(["--no-psqlrc", "--quiet", "-At", "-v", "ON_ERROR_STOP=1", &url, "-c", sql])
            .output();
        let output = output.context("cannot start `psql`")?;
        ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    /// Polls until a condition holds.
    ///
    /// # Errors
    /// It does not hold within two minutes.
    pub fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        while !holds(self) {
            if Instant::now() > deadline {
                bail!("not true within {} s: {what}; the logs end so:\n{}", DEADLINE.as_secs(), self.logs(10));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Node {
    fn new(network: &Network, number: u8, directory: &Path, ahead_seconds: i64) -> Result<Self> {
        let (name, machine) = (format!("node-{number}"), network.machine(number)?);
        let directory = directory.join(&name);
        std::fs::create_dir_all(&directory)?;
        machine.mount_disk(&directory)?;
        let text =
            std::fs::read_to_string(root().join(PATRONI)).with_context(|| format!("`{PATRONI}` can't be read"))?;
        let settings = place(&text, network, number, &directory);
        let file = directory.join("patroni.yml");
        std::fs::write(&file, settings)?;
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700))?;
        let user =
            nix::unistd::User::from_name("postgres")?.context("there is no user `postgres`: install PostgreSQL")?;
        for path in [&directory, &file] {
            nix::unistd::chown(path, Some(user.uid), Some(user.gid))?;
        }
        let clock = if ahead_seconds == 0 { None } else { Some(FalseClock::new(ahead_seconds)?) };
        Ok(Self { name, machine, directory, clock, members: Vec::new() })
    }

    /// Returns the machine of the node.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Starts etcd and Patroni, which starts PostgreSQL.
    ///
    /// # Errors
    /// A program can't be started.
    pub fn run(&mut self) -> Result<()> {
        self.run_etcd()?;
        self.run_patroni()
    }

    /// Starts the node's member of etcd.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn run_etcd(&mut self) -> Result<()> {
        let address = self.machine.address().to_owned();
        let network = address.rsplit_once('.').map_or(&*address, |(network, _)| network);
        let members: Vec<_> =
            (1..=NODES).map(|number| format!("node-{number}=http://{network}.{number}:2380")).collect();
        let (peers, clients) = (format!("http://{address}:2380"), format!("http://{address}:2379"));
        let name = self.name.clone();
        let words = ["etcd", "--name", &name, "--data-dir", "etcd", "--initial-cluster", &members.join(",")];
        let addresses = [
            "--initial-advertise-peer-urls",
            &peers,
            "--listen-peer-urls",
            &peers,
            "--advertise-client-urls",
            &clients,
            "--listen-client-urls",
            &clients,
        ];
        self.start(&[&words[..], &addresses].concat(), "etcd.log")
    }

    /// Starts Patroni, which starts PostgreSQL.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn run_patroni(&mut self) -> Result<()> {
        let modules = self.directory.with_file_name(MODULES);
        let modules = format!("PYTHONPATH={}", modules.display());
        let settings: Vec<_> = self.clock.iter().flat_map(FalseClock::settings).collect();
        let mut words = vec!["env", &modules, PYTHON, "-c", LAUNCHER, "patroni", "patroni.yml"];
        words.extend(settings.iter().map(String::as_str));
        self.start(&words, "patroni.log")
    }

    fn start(&mut self, words: &[&str], log: &str) -> Result<()> {
        let child = self.machine.start(words, &self.directory, &self.directory.join(log))?;
        self.members.push(child);
        Ok(())
    }

    /// Gives the node its power back, and starts its programs.
    ///
    /// # Errors
    /// A program can't be started.
    pub fn power_on(&mut self) -> Result<()> {
        self.machine.power_on()?;
        self.reap();
        self.run()
    }

    /// Kills the processes of the node whose command lines have this text. Returns their number.
    ///
    /// # Errors
    /// The operating system refuses it.
    pub fn kill(&mut self, text: &str) -> Result<usize> {
        let count = self.machine.signal_those(text, Signal::SIGKILL)?;
        self.reap();
        Ok(count)
    }

    /// Fills the disk of the node.
    ///
    /// # Errors
    /// The operating system refuses it.
    pub fn fill_disk(&self) -> Result<()> {
        let mut filler = std::fs::File::create(self.filler())?;
        loop {
            match filler.write(&[0; 1 << 16]) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => {
                    return Err(error).with_context(|| format!("the disk of `{}` can't be filled", self.name));
                }
            }
        }
    }

    /// Frees the disk that [`fill_disk`](Self::fill_disk) has filled. Starts etcd again, as systemd does, if it has ended for
    /// want of room.
    ///
    /// # Errors
    /// The disk was not filled.
    pub fn free_disk(&mut self) -> Result<()> {
        std::fs::remove_file(self.filler()).context("the disk was not filled")?;
        self.reap();
        if self.has_etcd() { Ok(()) } else { self.run_etcd() }
    }

    /// True if the node's member of etcd accepts connections.
    fn has_etcd(&self) -> bool {
        let address = format!("{}:2379", self.machine.address()).parse();
        address.is_ok_and(|address| TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok())
    }

    fn filler(&self) -> PathBuf {
        self.directory.join("filler")
    }

    /// Takes the exit status of the processes that have ended.
    fn reap(&mut self) {
        self.members.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
    }

    fn rest(&self) -> String {
        format!("{}:8008", self.machine.address())
    }

    fn members(&self) -> Result<Vec<Member>> {
        let (_, text) = http(&self.rest(), "GET", "/cluster", "")?;
        let cluster: Members = serde_json::from_str(&text)?;
        Ok(cluster.members)
    }

    /// Returns the last `count` lines of the node's log.
    fn log(&self, count: usize) -> String {
        let text = std::fs::read_to_string(self.directory.join("patroni.log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(count).collect();
        format!("{}:\n{}", self.name, lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The machine kills its processes when it is dropped, and then their statuses can be taken.
        let _ = self.machine.signal(Signal::SIGKILL);
        for child in &mut self.members {
            let _ = child.wait();
        }
        let _ = machine::unmount(&self.directory);
    }
}

/// Puts the addresses and directories of a node into the configuration of a first node.
fn place(text: &str, network: &Network, number: u8, directory: &Path) -> String {
    let hosts: Vec<_> = (1..=NODES).map(|number| format!("{}:2379", network.address(number))).collect();
    let directory = directory.display().to_string();
    text.replace("10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379", &hosts.join(","))
        .replace("10.0.0.0/24", &format!("{}/24", network.address(0)))
        .replace("10.0.0.1", &network.address(number))
        .replace("name: node-1", &format!("name: node-{number}"))
        .replace("/var/lib/postgresql/15/leasehold", &format!("{directory}/data"))
        .replace("/var/lib/postgresql/leasehold.pgpass", &format!("{directory}/pgpass"))
        .replace("/var/run/postgresql", &directory)
}

/// Calls Patroni's REST API, which answers in HTTP 1.0. Returns the status and the body.
fn http(address: &str, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let address: SocketAddr = address.parse()?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    // A switchover takes seconds.
    stream.set_read_timeout(Some(Duration::from_secs(if method == "GET" { 2 } else { 60 })))?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nAuthorization: {REST}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no head")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}
