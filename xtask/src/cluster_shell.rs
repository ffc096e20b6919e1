//! `cargo xtask cluster`: a cluster of PostgreSQL and two servers, for a person to break.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use xtask::cluster::{self, Cluster, Machine};
use xtask::{needs, process};

/// The numbers of the machines of the servers.
const SERVERS: [u8; 2] = [11, 12];

const HELP: &str = "\
status          the nodes, their roles and timelines
off N, on N     take the power of a node, and give it back
pull N, plug N  take the cable of a node out, and put it in
cut N M         lose the packets from a node to another one; mend N M ends it
stop N, cont N  suspend all processes of a node, and go on
kill N TEXT     kill the processes of a node with this text in their command lines: postgres, patroni, etcd
switch          let another node become the primary, as planned
quit            end all of it";

/// Starts the cluster and the servers, and reads commands from standard input.
///
/// # Errors
/// This process is not root, or a part does not start.
pub(crate) async fn run() -> Result<()> {
    needs::install(&[needs::FOR_CLUSTER, needs::FOR_EXTENSION].concat())?;
    cluster::prepare().await?;
    let mut cargo = process::as_a_person("cargo");
    process::run(cargo.args(["build", "-p", "leasehold-server"]).current_dir(process::root())).await?;
    let (sender, lines) = channel();
    // Ctrl-C drops this future and then waits for the shell, which gives the machines back.
    let _end = EndOnDrop(sender.clone());
    std::thread::spawn(move || read_lines(&sender));
    tokio::task::spawn_blocking(move || play(&lines)).await?
}

/// Ends the shell when it is dropped.
struct EndOnDrop(Sender<Option<String>>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        // Without a shell, there is no receiver.
        let _ = self.0.send(None);
    }
}

/// Sends the lines of standard input, and `None` at its end.
fn read_lines(sender: &Sender<Option<String>>) {
    let lines = std::io::stdin().lines().map_while(std::io::Result::ok).map(Some);
    let _ = lines.chain([None]).try_for_each(|line| sender.send(line));
}

fn play(lines: &Receiver<Option<String>>) -> Result<()> {
    // The user `postgres` must be able to enter the directory, and the build directory may be below a home.
    let directory = std::env::temp_dir().join(format!("leasehold-cluster-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755))?;
    let played = play_in(&directory, lines);
    std::fs::remove_dir_all(&directory)?;
    played
}

fn play_in(directory: &Path, lines: &Receiver<Option<String>>) -> Result<()> {
    eprintln!("starting three nodes in `{}`", directory.display());
    let mut cluster = Cluster::start(directory)?;
    let servers =
        SERVERS.iter().map(|number| Server::start(&cluster, *number, directory)).collect::<Result<Vec<_>>>()?;
    println!("the database: {}", cluster.url());
    for server in &servers {
        println!(
            "a server: leasehold bench --cell 1 --server http://{}:7171 --timeout-seconds 60",
            server.machine.address()
        );
    }
    println!("the logs of nodes and servers: {}", directory.display());
    println!("{HELP}");
    loop {
        print!("> ");
        std::io::stdout().flush()?;
        let Ok(Some(line)) = lines.recv() else { return Ok(()) };
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["quit"] => return Ok(()),
            ["help"] => println!("{HELP}"),
            _ => obey(&mut cluster, &words).unwrap_or_else(|error| println!("{error:#}")),
        }
    }
}

fn obey(cluster: &mut Cluster, words: &[&str]) -> Result<()> {
    let node = |word: &str| -> Result<usize> {
        let number: usize = word.parse().with_context(|| format!("`{word}` is no number of a node"))?;
        number.checked_sub(1).context("nodes are counted from 1")
    };
    match *words {
        [] => {}
        ["status"] => {
            for member in cluster.members() {
                println!("{:<8} {:<14} {:<10} timeline {}", member.name, member.role, member.state, member.timeline);
            }
        }
        ["off", number] => cluster.machine(node(number)?)?.power_off()?,
        ["on", number] => cluster.node(node(number)?)?.power_on()?,
        ["pull", number] => cluster.machine(node(number)?)?.unplug()?,
        ["plug", number] => cluster.machine(node(number)?)?.plug()?,
        ["cut", from, to] => cluster.machine(node(from)?)?.cut(cluster.machine(node(to)?)?)?,
        ["mend", from, to] => cluster.machine(node(from)?)?.mend(cluster.machine(node(to)?)?)?,
        ["stop", number] => cluster.machine(node(number)?)?.signal(Signal::SIGSTOP)?,
        ["cont", number] => cluster.machine(node(number)?)?.signal(Signal::SIGCONT)?,
        ["kill", number, text] => println!("killed {}", cluster.node(node(number)?)?.kill(text)?),
        ["switch"] => cluster.switch_over()?,
        _ => bail!("`help` lists the commands"),
    }
    Ok(())
}

/// A server on a machine of its own.
struct Server {
    machine: Machine,
    child: Child,
}

impl Server {
    fn start(cluster: &Cluster, number: u8, directory: &Path) -> Result<Self> {
        let machine = cluster.network().machine(number)?;
        let file = directory.join(format!("server-{number}.toml"));
        let listen = format!("{}:7171", machine.address());
        let text = format!(
            "[postgres]\nurl = \"{}\"\npatience_seconds = 40\n[[cells]]\nid = 1\nname = \"cell-1\"\naddress = \"http://cell-1\"\n",
            cluster.url()
        );
        std::fs::write(&file, text)?;
        let log = std::fs::File::create(directory.join(format!("server-{number}.log")))?;
        let mut command = machine.command(process::target_directory().join("debug/leasehold"));
        // The audit trail of a load would hide the lines that tell of a failover.
        command.args(["serve", "--create", "--insecure-plaintext", "--log", "info,audit=off", "--listen", &listen]);
        command.arg("--config").arg(&file);
        let child = command.stdout(Stdio::null()).stderr(log).spawn().context("cannot start the server")?;
        Ok(Self { machine, child })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
