//! The verb `queue`.

use std::process::{Output, Stdio};

use leasehold_client::{Client as TypedClient, NewRequest};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{command, eventually, leasehold};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use uuid::Uuid;

use super::QUEUE;

/// A server, and the commands that call it.
struct Commands {
    server: Server,
    url: String,
}

impl Commands {
    fn new() -> Self {
        let server = Server::start().unwrap();
        let url = format!("http://{}", server.address());
        Self { server, url }
    }

    async fn output(&self, arguments: &[&str]) -> Output {
        let all = [&["queue"], arguments.get(..1).unwrap(), &["--server", &self.url], &arguments[1..]].concat();
        leasehold(all).await.unwrap()
    }

    /// Runs a verb that must succeed, and returns what it prints.
    async fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments).await;
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    async fn submit(&self, arguments: &[&str]) -> String {
        self.run(&[&["submit", QUEUE], arguments].concat()).await.trim().to_owned()
    }

    async fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let lines = self.run(&[arguments, &["--json"]].concat()).await;
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Takes one batch, and runs a script of the shell for it.
    async fn take(&self, options: &[&str], script: &str) -> Output {
        self.output(&[&["take", QUEUE, "--once"], options, &["--", "sh", "-c", script]].concat()).await
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn q01_a_command_reads_the_body_and_its_exit_code_settles_the_request() {
    let commands = Commands::new();
    let id = commands.submit(&["7", "column C"]).await;
    let script = "cat; echo \" of $LEASEHOLD_QUEUE $LEASEHOLD_REQUEST_KEY, $LEASEHOLD_REQUESTS, $LEASEHOLD_ATTEMPT\"";
    let output = commands.take(&[], script).await;
    assert_eq!(text(&output.stdout), format!("column C of {QUEUE} 7, {id}, 1\n"));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(commands.json(&["show", &id]).await[0]["state"], "COMPLETE");
    assert_eq!(commands.run(&["show", &id, "--body"]).await, "column C");
    // The exit code is the command's own, and the request is tried again (Q13).
    let id = commands.submit(&["7", "--max-attempts", "2"]).await;
    for (attempt, state) in [("1", "NEW"), ("2", "ERROR")] {
        let output = commands.take(&["--retry-seconds", "0"], "exit 1$LEASEHOLD_ATTEMPT").await;
        assert_eq!(output.status.code(), Some(format!("1{attempt}").parse().unwrap()));
        assert_eq!(commands.json(&["show", &id]).await[0]["state"], state);
    }
    let history = commands.run(&["history", QUEUE]).await;
    assert!(history.contains(&id) && history.contains("error") && history.contains("2/2"), "{history}");
    commands.run(&["resubmit", &id]).await;
    assert_eq!(commands.json(&["show", &id]).await[0]["state"], "NEW");
}

#[tokio::test(flavor = "multi_thread")]
async fn q02_updates_come_as_lines_of_json_behind_their_create() {
    let commands = Commands::new();
    let create = commands.submit(&["7", "--create", "new"]).await;
    let ids = [commands.submit(&["7", "B"]).await, commands.submit(&["7", "C"]).await];
    let output = commands.take(&["--max-requests", "100"], "cat").await;
    assert_eq!(text(&output.stdout), format!("{{\"attempt\":1,\"body\":\"bmV3\",\"requestId\":\"{create}\"}}\n"));
    let output = commands.take(&["--max-requests", "100"], "cat").await;
    let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| line["requestId"].as_str().unwrap()).collect::<Vec<_>>(), ids);
    // A second create of the resource, and a repeated id, make no second request (Q09).
    assert_eq!(commands.submit(&["7", "--create", "again"]).await, create);
    let id = Uuid::from_u128(7).to_string();
    for is_new in [true, false] {
        let told = commands.json(&["submit", QUEUE, "8", "--id", &id]).await;
        assert_eq!((&told[0]["requestId"], &told[0]["isNew"]), (&Value::from(id.as_str()), &Value::from(is_new)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q19_a_queue_is_shown_paused_limited_and_resumed() {
    let commands = Commands::new();
    let waiting = commands.submit(&["7", "B"]).await;
    let delayed = commands.submit(&["8", "--delay-seconds", "3600", "--priority", "9"]).await;
    let list = commands.run(&["list", QUEUE]).await;
    let states: Vec<_> = list.lines().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>()).collect();
    assert_eq!(states, [["KEY", "STATE", "WAITING"], ["7", "ready", "1"], ["8", "delayed", "1"]]);
    commands.run(&["pause", QUEUE, "7"]).await;
    assert!(commands.run(&["list", QUEUE, "--state", "paused"]).await.contains('7'));
    assert_eq!(commands.run(&["list", QUEUE, "--state", "ready"]).await, "");
    commands.run(&["resume", QUEUE, "7"]).await;
    commands.run(&["pause", QUEUE]).await;
    commands.run(&["limit", QUEUE, "2"]).await;
    let status = commands.json(&["status", QUEUE]).await;
    assert_eq!((&status[0]["isPaused"], &status[0]["limit"]), (&Value::from(true), &Value::from(2)));
    assert!(commands.run(&["requests", QUEUE, "7"]).await.contains(&waiting));
    commands.run(&["withdraw", &waiting]).await;
    for verb in ["withdraw", "resubmit", "show"] {
        let gone = commands.output(&[verb, &waiting]).await;
        assert_eq!(gone.status.code(), Some(3), "{verb}");
        assert!(text(&gone.stderr).contains("there is no request"), "{}", text(&gone.stderr));
    }
    let kept = commands.output(&["resubmit", &delayed]).await;
    assert!(text(&kept.stderr).contains("is new, not error"), "{}", text(&kept.stderr));
}

/// A stop while the command runs reaches the command. What it did not complete is given back.
#[tokio::test(flavor = "multi_thread")]
async fn q11_a_stopped_worker_gives_its_batch_back() {
    let commands = Commands::new();
    let id = commands.submit(&["7", "B"]).await;
    let mut worker = command().unwrap();
    worker.args(["queue", "take", QUEUE, "--server", &commands.url, "--", "sh", "-c", "echo begun; sleep 1000"]);
    let worker = worker.stdout(Stdio::piped()).spawn().unwrap();
    let taken = async || {
        let shown = commands.json(&["show", &id]).await;
        (shown[0]["state"] == "IN_PROGRESS").then_some(())
    };
    eventually("the request is taken", taken).await.unwrap();
    let pid = Pid::from_raw(worker.id().unwrap().try_into().unwrap());
    // A signal before the start of the command would end the wait alone, so it is sent until it has an effect.
    let stopped = async || {
        kill(pid, Signal::SIGTERM).ok();
        let shown = commands.json(&["show", &id]).await;
        (shown[0]["state"] == "NEW" && shown[0].get("attempts").is_none()).then_some(())
    };
    eventually("the request is given back, and no attempt is counted", stopped).await.unwrap();
    let output = worker.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// The command of a worker may be mistyped, or not be installed yet. No request loses its attempts by that.
#[tokio::test(flavor = "multi_thread")]
async fn q11_a_command_that_cannot_be_started_ends_the_worker_and_counts_no_attempt() {
    let commands = Commands::new();
    let id = commands.submit(&["7", "B", "--max-attempts", "1"]).await;
    for (options, command, code) in [(vec![], "/nowhere/at/all", 127), (vec!["--once"], "/", 126)] {
        let output = commands.output(&[&["take", QUEUE], options.as_slice(), &["--", command]].concat()).await;
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("can't be started"), "{}", text(&output.stderr));
        let shown = commands.json(&["show", &id]).await;
        assert!(shown[0]["state"] == "NEW" && shown[0].get("attempts").is_none(), "{shown:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q10_a_worker_waits_for_a_server_that_is_away() {
    let server = Server::restartable().unwrap();
    let mut commands = Commands { url: format!("http://{}", server.address()), server };
    let first = commands.submit(&["first", "B"]).await;
    let mut worker = command().unwrap();
    let short = ["--timeout-seconds", "1", "--duration-seconds", "1", "--grace-seconds", "1"];
    let script = "test \"$LEASEHOLD_REQUEST_KEY\" = last && kill -TERM $PPID; exit 0";
    worker.args(["queue", "take", QUEUE, "--server", &commands.url]).args(short).args(["--", "sh", "-c", script]);
    let mut worker = worker.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(worker.stderr.take().unwrap()).lines();
    let is_done = async || (commands.json(&["show", &first]).await[0]["state"] == "COMPLETE").then_some(());
    eventually("the worker works", is_done).await.unwrap();
    // The session of the worker is lost first. The worker then calls in vain for a new one.
    commands.server.kill_9().unwrap();
    while !told.next_line().await.unwrap().unwrap().contains("the worker tries again: ") {}
    commands.server.restart().unwrap();
    commands.submit(&["last", "B"]).await;
    assert_eq!(worker.wait().await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn q22_a_worker_that_fails_tells_no_key_and_no_body() {
    let commands = Commands::new();
    let client = TypedClient::builder(&commands.url).build().unwrap();
    let secret = NewRequest::update("secret key", "secret body").with_max_attempts(1);
    client.submit(QUEUE, std::slice::from_ref(&secret)).await.unwrap();
    let other = commands.submit(&["8", "--delay-seconds", "1"]).await;
    let mut worker = command().unwrap();
    let script = "test \"$LEASEHOLD_REQUEST_KEY\" = 8 && kill -TERM $PPID; exit 1";
    worker.args(["queue", "take", QUEUE, "--server", &commands.url, "--", "sh", "-c", script]);
    let output = worker.output().await.unwrap();
    let told = text(&output.stderr);
    assert!(told.contains(&secret.id().to_string()) && !told.contains("secret"), "{told}");
    assert_eq!(commands.json(&["show", &other]).await[0]["state"], "NEW");
    assert!(commands.server.stderr().lines().all(|line| !line.contains("secret")));
}
