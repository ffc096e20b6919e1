//! The verbs `lock`, `locks` and `force-lock`.

use std::num::NonZeroU32;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use leasehold_client::WorkOutcome;
use leasehold_tests::server::Server;
use leasehold_tests::wire::{command, eventually, leasehold};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::interval_at;
use uuid::Uuid;

use super::{LONG, NOW, PATIENT, get, session, take, wait_for_waiters};

fn address(server: &Server) -> String {
    format!("http://{}", server.address())
}

fn run_under(server: &Server, options: &[&str], script: &str) -> Vec<String> {
    let url = address(server);
    let head = ["lock", "user.update/q", "--server", &url];
    [&head[..], options, &["--", "sh", "-c", script]].concat().into_iter().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_under_the_lock_with_its_fence_and_gives_its_exit_code() {
    let server = Server::start().unwrap();
    let output = leasehold(run_under(&server, &[], "echo $LEASEHOLD_LOCK $LEASEHOLD_FENCE")).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lock = get(&server, "q").await;
    let last = lock.last.unwrap();
    assert_eq!(text, format!("user.update/q {}\n", last.fence));
    assert_eq!((output.status.code(), last.end().as_str_name()), (Some(0), "SUCCEEDED"));
    for (script, code) in [("exit 3", 3), ("kill -TERM $$", 143)] {
        let output = leasehold(run_under(&server, &[], script)).await.unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(code), &b""[..]), "{script}");
        assert_eq!(get(&server, "q").await.last.unwrap().end().as_str_name(), "FAILED");
    }
    let missing = ["lock", "a/b", "--server", &address(&server), "--", "/no/such/program"];
    assert_eq!(leasehold(missing).await.unwrap().status.code(), Some(127));
    let url = address(&server);
    for (name, code) in [("no-slash", 2), ("a..b/c", 3)] {
        let arguments = ["lock", name, "--server", &url, "--", "true"];
        assert_eq!(leasehold(arguments).await.unwrap().status.code(), Some(code), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k13_commands_share_a_lock_or_hold_permits_of_it() {
    let server = Server::start().unwrap();
    let holder = session(&server, LONG).await;
    let held = holder.lock_permit("user.update", "q", NonZeroU32::new(2).unwrap(), NOW).await.unwrap().unwrap();
    let permit = ["--permits", "2", "--wait-seconds", "0"];
    let output = leasehold(run_under(&server, &permit, "echo $LEASEHOLD_SLOT $LEASEHOLD_LOCK")).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "2 user.update/q\n");
    let url = address(&server);
    let shown = leasehold(["locks", "--server", &url]).await.unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("1 of 2") && text.lines().count() == 3, "{text}");
    let shared = leasehold(run_under(&server, &["--shared", "--wait-seconds", "0"], "true")).await.unwrap();
    assert_eq!(shared.status.code(), Some(4));
    let both = leasehold(run_under(&server, &["--shared", "--permits", "2"], "true")).await.unwrap();
    assert_eq!(both.status.code(), Some(2));
    let fence = held.fence().to_string();
    let without_slot = ["force-lock", "user.update/q", "--fence", &fence, "--server", &url];
    let refused = leasehold(without_slot).await.unwrap();
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("--slot of a shared lock"));
    let slot = ["force-lock", "user.update/q", "--slot", "1", "--at-once", "--fence", &fence, "--server", &url];
    assert!(leasehold(slot).await.unwrap().status.success());
    assert_eq!(get(&server, "q").await.state().as_str_name(), "FREE");
}

#[tokio::test(flavor = "multi_thread")]
async fn k14_a_command_runs_under_several_locks_or_not_at_all() {
    let server = Server::start().unwrap();
    let holder = session(&server, LONG).await;
    let held = take(&holder, "r", NOW).await.unwrap();
    let both = ["--and", "user.update/r", "--wait-seconds", "0"];
    let refused = leasehold(run_under(&server, &both, "true")).await.unwrap();
    assert_eq!((refused.status.code(), get(&server, "q").await.state().as_str_name()), (Some(4), "FREE"));
    holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    let output = leasehold(run_under(&server, &both, "echo \"$LEASEHOLD_LOCK\"; echo \"$LEASEHOLD_FENCE\"; exit 3"));
    let output = output.await.unwrap();
    let locks = [get(&server, "q").await, get(&server, "r").await].map(|lock| lock.last.unwrap());
    let text = format!("user.update/q\nuser.update/r\n{}\n{}\n", locks[0].fence, locks[1].fence);
    assert_eq!((output.status.code(), String::from_utf8(output.stdout).unwrap()), (Some(3), text));
    assert!(locks.iter().all(|last| last.end().as_str_name() == "FAILED"));
    let permits = leasehold(run_under(&server, &["--and", "user.update/r", "--permits", "2"], "true")).await.unwrap();
    assert_eq!(permits.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_is_waited_for_or_refused_and_shown() {
    let server = Server::start().unwrap();
    let holder = session(&server, LONG).await;
    let held = take(&holder, "q", NOW).await.unwrap();
    let refused = leasehold(run_under(&server, &["--wait-seconds", "0"], "true")).await.unwrap();
    assert_eq!(refused.status.code(), Some(4));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("leasehold locks"));
    let url = address(&server);
    let shown = leasehold(["locks", "user", "--server", &url]).await.unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("user.update/q") && text.contains(&holder.id().to_string()), "{text}");
    let other = take(&holder, "q2", NOW).await.unwrap();
    for (of, count) in [("user.update", 3), ("user.update/q", 2), ("user/q", 0), ("user.update/none", 0)] {
        let shown = leasehold(["locks", of, "--server", &url]).await.unwrap();
        assert_eq!(String::from_utf8(shown.stdout).unwrap().lines().count(), count, "{of}");
    }
    holder.release(&other, WorkOutcome::Succeeded, b"").await.unwrap();
    let json = leasehold(["--json", "locks", "--server", &url]).await.unwrap();
    let lock: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&lock["state"], &lock["path"]["key"]), (&"HELD".into(), &"q".into()), "{lock}");
    let waiting = tokio::spawn(leasehold(run_under(&server, &[], "true")));
    super::wait_for_waiters(&server, "q", 1).await;
    holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    assert!(waiting.await.unwrap().unwrap().status.success());
    let held = take(&holder, "q", NOW).await.unwrap();
    let fence = held.fence().to_string();
    let forced = leasehold(["force-lock", "user.update/q", "--fence", &fence, "--server", &url]).await.unwrap();
    assert!(forced.status.success(), "{forced:?}");
    assert_eq!(get(&server, "q").await.state().as_str_name(), "WITHHELD");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_asks_for_a_lock_around_it_is_warned_and_finds_its_own_alone() {
    let server = Server::start().unwrap();
    let program = command().unwrap().as_std().get_program().to_string_lossy().into_owned();
    let url = address(&server);
    let inner = format!("{program} lock user.update/q --wait-seconds 1 --server {url} -- true");
    let middle = format!("{program} lock user.update/r --server {url} -- sh -c 'env; exec {inner}'");
    let output = leasehold(run_under(&server, &["--permits", "2"], &middle)).await.unwrap();
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("this runs under the lock user.update/q already"), "{text}");
    let own = String::from_utf8(output.stdout).unwrap();
    let value = |name: &str| own.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    assert_eq!((value("LEASEHOLD_LOCK="), value("LEASEHOLD_SLOT=")), (Some("user.update/r".to_owned()), None));
    assert!(Uuid::parse_str(&value("LEASEHOLD_SESSION=").unwrap()).is_ok());
    let shared = ["--permits", "2", "--wait-seconds", "1"];
    let beside = format!("{program} lock user.update/q --permits 2 --server {url} -- true");
    let output = leasehold(run_under(&server, &shared, &beside)).await.unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// A shell with job control on a terminal of its own.
struct Shell {
    child: Child,
    folder: TempDir,
}

impl Shell {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let mut script = Command::new("script");
        script.args(["--quiet", "--command", "bash --norc --noprofile -i", "/dev/null"]).current_dir(folder.path());
        let child = script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        Self { child: child.spawn().unwrap(), folder }
    }

    /// Types a text on the terminal.
    async fn types(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).await.unwrap();
    }

    /// Waits until a file of the shell has a whole line, and returns the line.
    async fn line(&self, file: &str) -> String {
        let path = self.folder.path().join(file);
        let line = async || std::fs::read_to_string(&path).ok()?.strip_suffix('\n').map(str::to_owned);
        eventually(&format!("the file `{file}` has a line"), line).await.unwrap()
    }

    /// Types a control character once this process of the command has the foreground of the terminal.
    async fn types_to(&mut self, process: &str, character: &str) {
        let has_terminal = async || has_terminal(process).then_some(());
        eventually("the command has the terminal", has_terminal).await.unwrap();
        self.types(character).await;
    }

    /// Types Ctrl-Z, and waits until this process of the command and its `leasehold lock` are stopped.
    async fn suspend(&mut self, process: &str) {
        let keeper = stat(process).unwrap()[1].clone();
        let is_stopped = async || [process, &keeper].iter().all(|id| state(id) == Some('T')).then_some(());
        self.types_to(process, "\x1a").await;
        // `leasehold lock` lets the command go on once it has the terminal. If it does so right after this
        // character, the user types another one.
        let mut again = interval_at((Instant::now() + Duration::from_secs(2)).into(), Duration::from_secs(2));
        let mut stopped = Box::pin(eventually("the command and its lock are stopped", is_stopped));
        loop {
            tokio::select! {
                _ = again.tick() => self.types("\x1a").await,
                stopped = &mut stopped => return stopped.unwrap(),
            }
        }
    }

    /// Types a `leasehold lock` of a script, whose session has this duration.
    async fn lock(&mut self, server: &Server, seconds: u64, script: &str) {
        let program = command().unwrap().as_std().get_program().to_string_lossy().into_owned();
        let terms = format!("--duration-seconds {seconds} --grace-seconds 1");
        self.types(&format!("{program} lock user.update/q {terms} --server {} -- {script}\n", address(server))).await;
    }
}

/// Returns what Linux tells of a process after its name; `None` if the process has ended.
fn stat(process: &str) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Returns the state of a process as `ps` shows it; `None` if the process has ended.
fn state(process: &str) -> Option<char> {
    stat(process)?.first()?.chars().next()
}

/// True if the group of a process has the foreground of its terminal.
fn has_terminal(process: &str) -> bool {
    stat(process).is_some_and(|stat| stat[2] == stat[5])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reads_its_terminal_and_gets_its_signals() {
    let server = Server::start().unwrap();
    let mut shell = Shell::start();
    shell.lock(&server, 60, "sh -c 'echo > asked; read x; echo $x > answer'").await;
    shell.line("asked").await;
    shell.types("bob\n").await;
    assert_eq!(shell.line("answer").await, "bob");
    shell.types("echo $? > first\n").await;
    assert_eq!(shell.line("first").await, "0");
    // Ctrl-\ ends the command. A terminal drops what was typed before such a character.
    shell.lock(&server, 60, "sh -c 'echo $$ > runs; while :; do sleep 0.02; done'").await;
    let process = shell.line("runs").await;
    shell.types_to(&process, "\x1c").await;
    let has_ended = async || state(&process).is_none().then_some(());
    eventually("the command has ended", has_ended).await.unwrap();
    shell.types("echo $? > second\n").await;
    assert_eq!(shell.line("second").await, "131");
    assert_eq!(get(&server, "q").await.state().as_str_name(), "FREE");
}

/// K06, K11: a command that was suspended does not go on once its lock may have passed on.
#[tokio::test(flavor = "multi_thread")]
async fn k06_k11_a_suspended_command_does_not_go_on_after_its_lock_has_passed_on() {
    let server = Server::start().unwrap();
    let mut shell = Shell::start();
    // The process that writes has left the group of the terminal.
    let script = "sh -c 'setsid sh -c \"echo \\$\\$ > writes; while :; do echo > beat; sleep 0.02; done\" & echo $$ > runs; wait'";
    shell.lock(&server, 5, script).await;
    let (process, writer) = (shell.line("runs").await, shell.line("writes").await);
    shell.suspend(&process).await;
    let is_stopped = async || (state(&writer) == Some('T')).then_some(());
    eventually("the writer is stopped", is_stopped).await.unwrap();
    let other = session(&server, LONG).await;
    let next = take(&other, "q", PATIENT).await.unwrap();
    let beat = shell.folder.path().join("beat");
    let last = beat.metadata().unwrap().modified().unwrap();
    shell.types("fg\necho $? > code\n").await;
    assert_eq!(shell.line("code").await, "9");
    assert_eq!((beat.metadata().unwrap().modified().unwrap(), state(&process)), (last, None));
    assert_eq!(state(&writer), None);
    other.release(&next, WorkOutcome::Succeeded, b"").await.unwrap();
    // A command that goes on in time has lost nothing.
    shell.lock(&server, 60, "sh -c 'echo $$ > again; read x; echo $x > done'").await;
    let process = shell.line("again").await;
    shell.suspend(&process).await;
    shell.types("fg\n").await;
    let goes_on = async || (state(&process) != Some('T')).then_some(());
    eventually("the command goes on", goes_on).await.unwrap();
    shell.types("bob\n").await;
    assert_eq!(shell.line("done").await, "bob");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_released_after_every_process_of_the_command_has_ended() {
    let server = Server::start().unwrap();
    let scratch = TempDir::new().unwrap();
    let (started, go_on) = (scratch.path().join("started"), scratch.path().join("go-on"));
    // The command ends at once. It leaves a process of another session behind, which waits.
    let script = format!(
        "setsid sh -c 'echo > {}; while [ ! -e {} ]; do sleep 0.05; done' & exit 0",
        started.display(),
        go_on.display()
    );
    let running = tokio::spawn(leasehold(run_under(&server, &[], &script)));
    eventually("the process runs", async || started.exists().then_some(())).await.unwrap();
    let other = session(&server, LONG).await;
    assert_eq!(take(&other, "q", Duration::from_secs(1)).await, None);
    std::fs::write(&go_on, "").unwrap();
    assert!(running.await.unwrap().unwrap().status.success());
    assert!(take(&other, "q", NOW).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn k11_a_command_whose_server_is_gone_is_ended_before_the_lock_can_pass_on() {
    let (mut server, scratch) = (Server::start().unwrap(), TempDir::new().unwrap());
    let terms = ["--duration-seconds", "2", "--grace-seconds", "14"];
    let beat = scratch.path().join("beat");
    let mut child = command().unwrap();
    // The script ignores SIGTERM, so that only SIGKILL ends it.
    let script = format!("trap '' TERM; echo up; while :; do echo > {}; sleep 0.02; done", beat.display());
    child.args(run_under(&server, &terms, &script));
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 3];
    tokio::io::AsyncReadExt::read_exact(child.stdout.as_mut().unwrap(), &mut first).await.unwrap();
    let killed_at = SystemTime::now();
    server.kill_9().unwrap();
    let output = child.wait_with_output().await.unwrap();
    // The release can't be told to anybody.
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("in jeopardy") && text.contains("about to be lost"), "{text}");
    // The last renewal was sent before the kill, and the lock passes on sixteen seconds after it.
    let last_beat = beat.metadata().unwrap().modified().unwrap();
    assert!(last_beat.duration_since(killed_at).unwrap() < Duration::from_secs(16));
}

#[tokio::test(flavor = "multi_thread")]
async fn k11_a_command_that_was_ended_has_not_done_its_work_whatever_its_own_exit_code() {
    let server = Server::start().unwrap();
    let terms = ["--duration-seconds", "1", "--grace-seconds", "3"];
    let mut child = command().unwrap();
    child.args(run_under(&server, &terms, "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"));
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 3];
    tokio::io::AsyncReadExt::read_exact(child.stdout.as_mut().unwrap(), &mut first).await.unwrap();
    let suspended_at = Instant::now();
    // The server takes calls, and answers none.
    server.suspend().unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("check what the command has done"));
    // The duration, half of the grace, and a last call each for the lock and for the session.
    assert!(suspended_at.elapsed() < Duration::from_secs(8), "{:?}", suspended_at.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn k01_a_wait_ends_in_its_time_although_the_server_is_silent() {
    let server = Server::start().unwrap();
    let holder = session(&server, LONG).await;
    take(&holder, "q", NOW).await.unwrap();
    let options = ["--wait-seconds", "10", "--timeout-seconds", "1", "--duration-seconds", "300"];
    let waiting = tokio::spawn(leasehold(run_under(&server, &options, "true")));
    wait_for_waiters(&server, "q", 1).await;
    let suspended_at = Instant::now();
    server.suspend().unwrap();
    let output = waiting.await.unwrap().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    // Nobody knows if the lock is held.
    assert!(output.status.code() == Some(4) && text.contains("no answer within 11 s"), "{text}");
    // The wait, the time of its answer, and that of the close.
    assert!(suspended_at.elapsed() < Duration::from_secs(20), "{:?}", suspended_at.elapsed());
    server.signal(Signal::SIGCONT).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_goes_to_the_command_and_the_lock_is_released() {
    let server = Server::start().unwrap();
    let mut child = command().unwrap();
    child.args(run_under(&server, &[], "trap 'exit 5' INT; echo up; while :; do sleep 0.05; done"));
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 3];
    tokio::io::AsyncReadExt::read_exact(child.stdout.as_mut().unwrap(), &mut first).await.unwrap();
    kill(Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(5));
    assert_eq!(get(&server, "q").await.state().as_str_name(), "FREE");
}

/// K20: the holder is told, and its command has ended before the lock passes on.
#[tokio::test(flavor = "multi_thread")]
async fn k20_a_command_whose_lock_an_operator_takes_is_ended_before_the_lock_passes_on() {
    let (server, scratch) = (Server::start().unwrap(), TempDir::new().unwrap());
    let files = ["own", "timeout", "setsid"].map(|name| scratch.path().join(name));
    // The processes leave SIGTERM alone, and write for as long as they run. Two have left the process group.
    let [own, under_timeout, under_setsid] = files
        .each_ref()
        .map(|file| format!("sh -c \"trap '' TERM; while :; do date +%s%N > {}; done\"", file.display()));
    let script = format!("setsid {under_setsid} & timeout 60 {under_timeout} & {own}");
    let terms = ["--duration-seconds", "3", "--grace-seconds", "9"];
    let command = command().unwrap().args(run_under(&server, &terms, &script)).stderr(Stdio::piped()).spawn().unwrap();
    let held = || async { Some(get(&server, "q").await.fence).filter(|_| files.iter().all(|file| file.exists())) };
    let fence = eventually("the command runs", held).await.unwrap();
    let other = session(&server, LONG).await;
    let url = address(&server);
    let force = ["force-lock", "user.update/q", "--fence", &fence.to_string(), "--server", &url];
    assert!(leasehold(force).await.unwrap().status.success());
    let next = take(&other, "q", PATIENT).await.unwrap();
    let passed_on = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(next.fence() > fence);
    let output = command.wait_with_output().await.unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("an operator has taken the lock"));
    assert_eq!(output.status.code(), Some(9));
    for file in files {
        let last: u128 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap_or(0);
        let too_long = last.saturating_sub(passed_on.as_nanos());
        assert_eq!(too_long, 0, "{} ran {too_long} ns too long", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k11_a_command_is_not_started_under_a_session_that_was_lost_while_it_waited() {
    let (server, scratch) = (Server::start().unwrap(), TempDir::new().unwrap());
    let holder = session(&server, LONG).await;
    let held = take(&holder, "q", NOW).await.unwrap();
    let ran = scratch.path().join("ran");
    let terms = ["--duration-seconds", "1", "--grace-seconds", "1"];
    let waiting = tokio::spawn(leasehold(run_under(&server, &terms, &format!("echo > {}", ran.display()))));
    wait_for_waiters(&server, "q", 1).await;
    server.suspend().unwrap();
    let output = waiting.await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("the command has not run"));
    server.signal(Signal::SIGCONT).unwrap();
    holder.release(&held, WorkOutcome::Succeeded, b"").await.unwrap();
    assert!(!ran.exists());
}
