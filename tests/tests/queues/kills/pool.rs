//! The workers of a run: processes of this test's own program, which are killed and started again.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use leasehold_tests::suspend::suspend;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::fronts::Shared;
use super::history::{History, QUEUES};
use super::worker::{PLAN, Plan};

/// The processes that work at present, and the logs of all that ever did.
pub(super) struct Pool {
    /// The name of the test, with which its program becomes a worker.
    test: &'static str,
    servers: Vec<String>,
    database: String,
    directory: TempDir,
    rng: SmallRng,
    processes: Vec<Child>,
    logs: Vec<PathBuf>,
    /// The number of processes that were killed.
    pub(super) kills: usize,
    /// The number of processes that have killed themselves.
    pub(super) deaths: usize,
}

impl Pool {
    /// Starts `count` workers.
    pub(super) fn start(test: &'static str, shared: &Shared, seed: u64, count: usize) -> Self {
        let (servers, database) = (shared.servers.clone(), shared.database.clone());
        let (directory, rng) = (TempDir::new().unwrap(), SmallRng::seed_from_u64(seed));
        let (processes, logs) = Default::default();
        let mut pool = Self { test, servers, database, directory, rng, processes, logs, kills: 0, deaths: 0 };
        pool.fill(count);
        pool
    }

    fn fill(&mut self, count: usize) {
        while self.processes.len() < count {
            let process = self.worker();
            self.processes.push(process);
        }
    }

    fn worker(&mut self) -> Child {
        let log = self.directory.path().join(format!("worker-{}", self.logs.len()));
        self.logs.push(log.clone());
        let server = self.servers[self.rng.random_range(0..self.servers.len())].clone();
        let calm = self.directory.path().join("calm");
        let dies_in = QUEUES[self.logs.len() % QUEUES.len()].to_owned();
        let plan = Plan { server, database: self.database.clone(), log, calm, dies_in, seed: self.rng.random() };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", self.test, "--nocapture"]).env(PLAN, serde_json::to_string(&plan).unwrap());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    /// Starts a worker for each that has killed itself.
    ///
    /// # Panics
    /// A worker has ended in another way.
    pub(super) fn look(&mut self) {
        let count = self.processes.len();
        self.processes.retain_mut(|process| match process.try_wait().unwrap() {
            Some(status) => {
                assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "a worker has failed: {status}");
                self.deaths += 1;
                false
            }
            None => true,
        });
        self.fill(count);
    }

    /// Suspends the first worker, wherever it is in its work. It sees nothing of the end of its session.
    pub(super) fn suspend_first(&self) {
        suspend(&[pid(&self.processes[0])]).unwrap();
    }

    /// Resumes the first worker, if it is suspended.
    pub(super) fn resume_first(&self) {
        kill(pid(&self.processes[0]), Signal::SIGCONT).unwrap();
    }

    /// Kills all workers but the first, and starts others.
    pub(super) fn kill_most(&mut self) {
        let count = self.processes.len();
        for mut process in self.processes.drain(1..) {
            process.kill().unwrap();
            process.wait().unwrap();
            self.kills += 1;
        }
        self.fill(count);
    }

    /// Tells the workers to only complete from now on.
    pub(super) fn calm(&self) {
        std::fs::write(self.directory.path().join("calm"), "").unwrap();
    }

    /// Returns a history of what the workers have logged so far.
    pub(super) fn history(&self) -> History {
        let mut history = History::default();
        self.add_logs(&mut history);
        history
    }

    fn add_logs(&self, history: &mut History) {
        for log in self.logs.iter().filter(|log| log.exists()) {
            history.read_log(&std::fs::read_to_string(log).unwrap());
        }
    }

    /// Ends the workers, and adds their logs to the history.
    pub(super) fn end(mut self, history: &mut History) {
        self.processes.drain(..).for_each(end);
        self.add_logs(history);
    }
}

fn pid(process: &Child) -> Pid {
    Pid::from_raw(process.id().try_into().unwrap())
}

/// A worker ends once its standard input is closed, so that it never outlives the test.
fn end(mut process: Child) {
    drop(process.stdin.take());
    process.wait().unwrap();
}
