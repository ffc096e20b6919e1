//! Runs the commands of the chapter on etcd: three nodes and two servers, of which one each is killed.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use leasehold_tests::book::{Example, Shell, blocks, document, examples};
use leasehold_tests::postgres::free_port;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::RngExt;

const CHAPTER: &str = "docs/src/deploy/etcd.md";
/// The first digits of the chapter's ports for clients and for peers. The last one is the node's number.
const PORTS: [u16; 2] = [2379, 2380];
const NODES: u16 = 3;
/// The longest time until a node or a server listens.
const START: Duration = Duration::from_secs(60);
/// The pause between two looks at the output of a server.
const LOOK: Duration = Duration::from_millis(20);

/// The directory of the processes that the shell has started, which end with the test.
struct Processes(PathBuf);

impl Drop for Processes {
    fn drop(&mut self) {
        let files = std::fs::read_dir(&self.0).into_iter().flatten().flatten().map(|entry| entry.path());
        for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "pid")) {
            let pid = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
            // A process that the chapter has killed is gone.
            pid.map(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL));
        }
    }
}

/// Returns first digits of ports, such that no node's port is used now.
fn free_digits() -> u16 {
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut digits = std::iter::repeat_with(|| rand::rng().random_range(2_000..3_200_u16));
    digits.find(|digits| (1..=NODES).all(|node| is_free(digits * 10 + node))).unwrap()
}

/// Starts a server of the chapter in the shell, and waits until it listens.
fn serve(shell: &mut Shell, command: &str, number: usize) {
    let (serve, rest) = command.split_once(" &").unwrap();
    let pid = if rest.is_empty() { format!(" echo $! > second-{number}.pid") } else { rest.to_owned() };
    shell.run(&shell.as_actual(&format!("{serve} > server-{number}.log 2>&1 &{pid}; disown -a"))).unwrap();
    let log = shell.directory().join(format!("server-{number}.log"));
    let deadline = Instant::now() + START;
    loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if text.contains("listening on") {
            return;
        }
        assert!(Instant::now() < deadline, "the server does not listen: {text}");
        std::thread::park_timeout(LOOK);
    }
}

/// Returns the text with each fence replaced, because it follows from a revision.
fn without_fences(text: &str) -> String {
    let mut words = text.split_inclusive(' ').peekable();
    let mut result = String::new();
    while let Some(word) = words.next() {
        result += word;
        if word == "fence " {
            let next = words.next().unwrap();
            result += next.trim_start_matches(|letter: char| letter.is_ascii_digit());
        }
    }
    result
}

fn compare(shell: &mut Shell, Example { command, output }: &Example) {
    let actual = shell.run(&shell.as_actual(command)).unwrap();
    let actual = shell.as_shown(&actual);
    shell.compare_output(command, &without_fences(output), &without_fences(&actual)).unwrap();
}

/// Starts the nodes of the chapter on other ports.
fn start_nodes(shell: &mut Shell, script: &str) -> Processes {
    let processes = Processes(shell.directory().to_owned());
    let mut script = script.to_owned();
    for shown in PORTS {
        let actual = free_digits();
        script = script.replace(&format!(":{shown}"), &format!(":{actual}"));
        (1..=NODES).for_each(|node| shell.replace_port(shown * 10 + node, actual * 10 + node));
    }
    shell.run(&format!("{{ {script} }} > nodes.log 2>&1; disown -a")).unwrap();
    for node in 1..=NODES {
        let (client, deadline) =
            (shell.as_actual(&format!("127.0.0.1:{}", PORTS[0] * 10 + node)), Instant::now() + START);
        while TcpStream::connect(&client).is_err() {
            assert!(Instant::now() < deadline, "node {node} does not listen");
            std::thread::park_timeout(LOOK);
        }
    }
    processes
}

#[test]
fn the_chapter_on_etcd_can_be_followed() {
    let chapter = document(CHAPTER).unwrap();
    let mut shell = Shell::start().unwrap();
    let _processes = start_nodes(&mut shell, &blocks(&chapter, "sh")[0]);
    [7171, 7172].into_iter().for_each(|port| shell.replace_port(port, free_port().unwrap()));
    let examples = examples(&chapter);
    assert!(examples.len() >= 7, "the chapter has {} examples", examples.len());
    for (number, example) in examples.iter().enumerate() {
        if example.command.starts_with("leasehold serve") {
            serve(&mut shell, &example.command, number);
        } else {
            compare(&mut shell, example);
        }
    }
}
