//! Changes bytes in the files of the embedded store while its server is stopped, and starts the
//! server.
//!
//! After each change the server either refuses to start and names the reason, or serves intact rows
//! unchanged and answers `UNAVAILABLE` for damaged rows. A list says how many damaged rows it leaves
//! out. The server never serves a wrong row, and never reports an acknowledged row as missing.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_core::lease::Outcome::{Committed, RolledBack};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::Record;
use leasehold_tests::client::{Begun, Client, Update, name_of, reason};
use leasehold_tests::server::Server;
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tonic::{Code, Status};

use super::creates;

const CLAIMS_PER_UPDATE: u64 = 10;
const CLAIM_BYTES: usize = 8000;
/// The configuration that allows [`CLAIM_BYTES`] of attached data.
const LARGE_DATA: &str = "[limits]\nuser_data_bytes = 10_000\n";
/// The number of updates. It is large enough that fjall writes tables of claims and of leases to
/// disk.
const UPDATES: u64 = 280;
/// The number of leases that are begun after all other updates and stay outstanding.
const OUTSTANDING: u64 = 3;
/// The check reads one of this many records by its name.
const READ_EACH: usize = 40;

/// The names of the store's fjall keyspaces. Errors about damaged rows name one of them.
const KEYSPACES: [&str; 7] = ["claims", "sources", "outstanding", "settled", "settled_order", "replays", "meta"];

/// The files of a stopped server's data directory, and the rows that the server had acknowledged.
struct Copy {
    files: BTreeMap<PathBuf, Content>,
    records: BTreeMap<String, Record>,
    settled: Vec<(String, bool)>,
    outstanding: Vec<String>,
    keyed: (Update, Begun),
}

/// The content of a file. `bytes` leaves out the zeros at the end; `len` is the length with them.
struct Content {
    bytes: Vec<u8>,
    len: u64,
}

/// One change of one file: a flipped bit, a truncation, or a deletion.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip { at: u64, bit: u8 },
    Cut { to: u64 },
    Remove,
}

impl Damage {
    fn apply(self, path: &Path) {
        let open = || OpenOptions::new().read(true).write(true).open(path).unwrap();
        match self {
            Self::Flip { at, bit } => {
                let (file, mut byte) = (open(), [0]);
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ (1 << bit)], at).unwrap();
            }
            Self::Cut { to } => open().set_len(to).unwrap(),
            Self::Remove => std::fs::remove_file(path).unwrap(),
        }
    }
}

fn files_of(root: &Path, dir: &Path, into: &mut BTreeMap<PathBuf, Content>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_of(root, &path, into);
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let len = bytes.len() as u64;
        let zeros =
            bytes.chunks(4096).rev().take_while(|chunk| [0; 4096].starts_with(chunk)).map(<[u8]>::len).sum::<usize>();
        bytes.truncate(bytes.len() - zeros);
        into.insert(path.strip_prefix(root).unwrap().to_owned(), Content { bytes, len });
    }
}

impl Copy {
    async fn make() -> Self {
        let mut server = Server::builder().config(LARGE_DATA).start().unwrap();
        let mut client = Client::connect(&server, 1).await.unwrap();
        let (mut settled, mut outstanding, mut keyed) = (Vec::new(), Vec::new(), None);
        for number in 1..=UPDATES {
            let from = number * CLAIMS_PER_UPDATE;
            let key = Some(format!("key-{number}"));
            let update = Update { key, ..creates(from..from + CLAIMS_PER_UPDATE, CLAIM_BYTES) };
            let begun = client.begin(update.clone()).await.unwrap();
            let commit = number % 10 != 0;
            client.settle(&begun.lease, if commit { Committed } else { RolledBack }).await.unwrap();
            settled.push((begun.lease.clone(), commit));
            keyed.get_or_insert((update, begun));
            if number == UPDATES / 2 {
                server.terminate().unwrap();
                server.restart().unwrap();
                client = Client::connect(&server, 1).await.unwrap();
            }
        }
        for number in 1..=OUTSTANDING {
            outstanding.push(client.begin(creates(number..number + 1, CLAIM_BYTES)).await.unwrap().lease);
        }
        let records = client.records().await.unwrap().into_iter().map(|record| (key_of(&record), record)).collect();
        drop(client);
        assert!(server.terminate().unwrap().success());
        let mut files = BTreeMap::new();
        files_of(server.data(), server.data(), &mut files);
        Self { files, records, settled, outstanding, keyed: keyed.unwrap() }
    }

    fn write(&self, dir: &Path) {
        for (path, content) in &self.files {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = File::create_new(path).unwrap();
            file.write_all(&content.bytes).unwrap();
            file.set_len(content.len).unwrap();
        }
    }

    /// Applies one damage to a copy of the files, and starts a server on them. Returns `refused`,
    /// `whole` or `in part`.
    async fn damaged(&self, path: &Path, damage: Damage) -> &'static str {
        let dir = TempDir::new().unwrap();
        self.write(dir.path());
        damage.apply(&dir.path().join(path));
        let start = || Server::builder().config(LARGE_DATA).data(dir.path()).arg("--log").arg("error").start();
        let mut server = match start() {
            Ok(server) => server,
            Err(error) => {
                refused_well(&format!("{error:#}"), dir.path());
                // A service manager would start the server again, so the first refusal must not
                // have changed the files.
                let again = start().expect_err("it is refused again");
                refused_well(&format!("{again:#}"), dir.path());
                return "refused";
            }
        };
        let client = Client::connect(&server, 1).await.unwrap();
        let whole = self.check(client).await;
        server.terminate().unwrap();
        assert!(!server.stderr().contains("panicked"), "{}", server.stderr());
        if whole { "whole" } else { "in part" }
    }

    /// True if the server serves every checked row. For each other row the server must answer
    /// `UNAVAILABLE`.
    async fn check(&self, mut client: Client) -> bool {
        let mut whole = true;
        match client.records().await {
            Ok(records) => {
                let records: BTreeMap<_, _> = records.into_iter().map(|record| (key_of(&record), record)).collect();
                let left_out = (self.records.len() - records.len()) as u64;
                let are_right = records.iter().all(|(name, record)| self.records.get(name) == Some(record));
                assert!(
                    are_right && left_out == client.damaged_records,
                    "the list is another: {left_out} are left out, and {} by the server's count",
                    client.damaged_records
                );
                whole &= left_out == 0;
            }
            Err(error) => whole &= unavailable(error.downcast_ref().expect("the server answers")),
        }
        for (name, record) in self.records.iter().step_by(READ_EACH) {
            whole &= same(client.get(name).await, record);
        }
        assert_eq!(client.leases().await.unwrap(), self.outstanding);
        for (lease, committed) in self.settled.iter().step_by(READ_EACH / 4) {
            let (same_way, other) = if *committed { (Committed, RolledBack) } else { (RolledBack, Committed) };
            whole &= same(client.settle(lease, same_way).await, &());
            let refused = client.settle(lease, other).await.expect_err("it is settled");
            let expected = if *committed { "LEASE_COMMITTED" } else { "LEASE_ROLLED_BACK" };
            whole &= reason(&refused) == expected || unavailable(&refused);
        }
        whole &= same(client.begin(self.keyed.0.clone()).await, &self.keyed.1);
        // A name that is taken must not be granted again because its row is damaged.
        let number = CLAIMS_PER_UPDATE + 1;
        let taken = client.begin(creates(number..number + 1, 1)).await.expect_err("the name is taken");
        whole && (taken.code() == Code::AlreadyExists || unavailable(&taken))
    }
}

fn key_of(record: &Record) -> String {
    name_of(record.metadata.as_ref().unwrap()).to_owned()
}

fn same<T: PartialEq + std::fmt::Debug>(answer: Result<T, Status>, expected: &T) -> bool {
    match answer {
        Ok(answer) => {
            assert!(answer == *expected, "{answer:?} instead of {expected:?}");
            true
        }
        Err(status) => unavailable(&status),
    }
}

/// Returns false if the status is `UNAVAILABLE` and names a keyspace; panics for any other status.
fn unavailable(status: &Status) -> bool {
    assert_eq!((status.code(), reason(status).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"), "{status:?}");
    assert!(KEYSPACES.iter().any(|name| status.message().contains(&format!("`{name}`"))), "where? {status:?}");
    false
}

fn refused_well(output: &str, dir: &Path) {
    // A missing lock file is no damage of the data.
    let code = if dir.join("fjall/lock").exists() { 10 } else { 1 };
    assert!(output.contains(&format!("exit status: {code})")), "{output}");
    let error = output.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{output}"));
    assert!(error.contains(dir.to_str().unwrap()), "which directory? {error}");
    assert!(!output.contains("panicked"), "{output}");
}

/// Returns the damages to try on a file: a deletion, flipped bits and truncations at both ends and
/// between. For a file of less than 1,024 bytes only two of them, chosen at random.
fn damages(content: &Content, rng: &mut SmallRng) -> Vec<Damage> {
    let written = content.bytes.len() as u64;
    let mut damages = vec![Damage::Remove];
    if written > 0 {
        let places = [0, rng.random_range(0..written), rng.random_range(0..written), written - 1];
        damages.extend(places.map(|at| Damage::Flip { at, bit: rng.random_range(0..8) }));
        damages.extend([0, rng.random_range(0..written), written - 1].map(|to| Damage::Cut { to }));
    }
    if written < 1024 { damages.into_iter().sample(rng, 2) } else { damages }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupted_data_is_never_served() {
    let seed = std::env::var("SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let copy = Arc::new(Copy::make().await);
    let (mut ends, mut wrong) = (BTreeMap::<_, u32>::new(), 0);
    for (path, content) in &copy.files {
        for damage in damages(content, &mut rng) {
            let (copy, damaged) = (Arc::clone(&copy), path.clone());
            let run = move || Handle::current().block_on(copy.damaged(&damaged, damage));
            let end = spawn_blocking(run).await.unwrap_or("WRONG");
            println!("{end}: {damage:?} of {} with {} bytes", path.display(), content.bytes.len());
            *ends.entry(end).or_default() += 1;
            wrong += u32::from(end == "WRONG");
        }
    }
    println!("{ends:?}\ncounts: {{\"damages\":{}}}", ends.values().sum::<u32>());
    assert_eq!(wrong, 0, "see above");
    assert_eq!(ends.len(), 3, "the damage does not reach all that it should: {ends:?}");
}
