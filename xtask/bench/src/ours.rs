//! Leasehold as a server under measurement: the release build of `leasehold serve`, called over the
//! wire contract.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use leasehold_client::Stub;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as claims;
use leasehold_proto::gitlab::cells::topology_service::types::v1::Uuid;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;

use self::claims::{BeginUpdateRequest, Bucket, CommitUpdateRequest, Metadata, Source, Subject};
use super::connection::Channel;
use super::load::{CLAIMS, Peer};
use super::server::{Contender, Server};

/// The text before the server's address in the banner.
const LISTENING: &str = "listening on ";

/// The address of a server whose port the system chooses.
const ANY_PORT: &str = "127.0.0.1:0";

/// The number of the cell for which the clients save. A server without a configuration file has
/// this cell.
pub(crate) const CELL_ID: i64 = 1;

/// A running server of Leasehold.
pub(crate) struct Ours {
    server: Server,
    program: PathBuf,
    address: String,
}

impl Contender for Ours {
    const NAME: &'static str = "ours";
    type Client = Client;

    async fn start() -> Result<Self> {
        Self::start_on(|data| Ok(embedded(data))).await
    }

    async fn connect(&self) -> Result<Client> {
        Ok(Client { stub: self.stub().await? })
    }

    fn share(client: &Client) -> Client {
        Client { stub: client.stub.clone() }
    }

    async fn stop(self) -> Result<()> {
        self.server.stop().await
    }
}

impl Ours {
    /// Starts a server. `store` returns the arguments that select its store, given the path of a new
    /// directory.
    ///
    /// # Errors
    /// The server does not start, or `store` fails.
    pub(crate) async fn start_on(store: impl FnOnce(PathBuf) -> Result<Vec<OsString>>) -> Result<Self> {
        Self::start_at(ANY_PORT, store).await
    }

    /// Starts a server as [`start_on`](Self::start_on) does, which listens on an address.
    ///
    /// # Errors
    /// The server does not start, or `store` fails.
    pub(crate) async fn start_at(listen: &str, store: impl FnOnce(PathBuf) -> Result<Vec<OsString>>) -> Result<Self> {
        let program = tokio::task::spawn_blocking(programs).await??.leasehold;
        let server = Server::start(&program, |data| Ok(arguments(listen, store(data)?)))?;
        let mut ours = Self { server, program, address: String::new() };
        ours.wait().await?;
        Ok(ours)
    }

    /// Opens a new connection to the server, and returns a client on it.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) async fn stub(&self) -> Result<Stub<Channel>> {
        Ok(Stub::new(Channel::open(&self.address).await?))
    }

    /// Kills the server with SIGKILL.
    ///
    /// # Errors
    /// The server cannot be killed.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.server.kill().await
    }

    /// Starts the server again on its data directory, and waits until it listens.
    ///
    /// # Errors
    /// The server does not start again.
    pub(crate) async fn start_again(&mut self) -> Result<()> {
        self.server.start_again(&self.program, |data| Ok(arguments(ANY_PORT, embedded(data))))?;
        self.wait().await
    }

    /// Returns the resident memory of the server in megabytes.
    ///
    /// # Errors
    /// The server has ended.
    pub(crate) fn resident_megabytes(&self) -> Result<f64> {
        self.server.resident_megabytes()
    }

    /// Returns the processor time that the server has used.
    ///
    /// # Errors
    /// The server has ended.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        self.server.processor_time()
    }

    /// Returns the bytes that the server has written to disks.
    ///
    /// # Errors
    /// The server has ended.
    pub(crate) fn written_bytes(&self) -> Result<u64> {
        self.server.written_bytes()
    }

    async fn wait(&mut self) -> Result<()> {
        let output = self.server.take_stdout().context("the server has no standard output")?;
        let mut lines = BufReader::new(output).lines();
        self.address = self.server.until(address(&mut lines)).await?;
        // Further output is read and dropped, so that the server never waits for a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(())
    }
}

fn arguments(listen: &str, store: Vec<OsString>) -> Vec<OsString> {
    ["serve", "--create", "--listen", listen].map(OsString::from).into_iter().chain(store).collect()
}

/// Returns the arguments that select the embedded store in a directory.
fn embedded(data: PathBuf) -> Vec<OsString> {
    vec!["--data".into(), data.into()]
}

/// The paths of the release builds that a measurement runs.
pub(crate) struct Programs {
    pub(crate) leasehold: PathBuf,
    pub(crate) bench: PathBuf,
}

/// Builds the server and this program in release mode, with one call of cargo, so that common
/// dependencies are built once. Returns their paths. If both are built already, this is quick.
pub(crate) fn programs() -> Result<Programs> {
    let packages = ["--package", "leasehold-server", "--package", "leasehold-bench", "--bins"];
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--message-format", "json-render-diagnostics"]).args(packages);
    let output = build.stderr(Stdio::inherit()).output().context("cannot start `cargo`")?;
    ensure!(output.status.success(), "the release build failed");
    let messages = || output.stdout.split(|byte| *byte == b'\n');
    let program = |name| messages().find_map(|message| executable(message, name));
    Ok(Programs {
        leasehold: program("leasehold").context("`cargo build` names no program `leasehold`")?,
        bench: program("leasehold-bench").context("`cargo build` names no program `leasehold-bench`")?,
    })
}

/// Returns the path of the program `name` if this message of cargo has it; `None` otherwise.
fn executable(message: &[u8], name: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_slice(message).ok()?;
    let path = Path::new(message.get("executable")?.as_str()?);
    path.ends_with(name).then(|| path.to_owned())
}

/// Reads the server's output up to the line with its address, and returns the address.
async fn address(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<String> {
    while let Some(line) = lines.next_line().await? {
        if let Some(address) = listening(&line) {
            return Ok(address.to_owned());
        }
    }
    bail!("the server printed no line with `{LISTENING}ADDRESS:PORT`")
}

fn listening(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(LISTENING)?;
    rest.split_whitespace().next()
}

/// A client of Leasehold.
pub(crate) struct Client {
    stub: Stub<Channel>,
}

impl Peer for Client {
    type Lease = Uuid;

    async fn begin(&mut self, names: &[String; CLAIMS]) -> Result<Uuid> {
        let user_id = next_id();
        let request = BeginUpdateRequest {
            create_records: names.iter().map(|name| metadata(name, user_id)).collect(),
            destroy_records: Vec::new(),
            cell_id: CELL_ID,
            organization_id: 0,
        };
        let response = self.stub.begin(request, None).await.context("begin failed")?.into_inner();
        response.lease_uuid.context("begin answered without a lease")
    }

    async fn commit(&mut self, lease: Uuid) -> Result<()> {
        let request = CommitUpdateRequest { cell_id: CELL_ID, lease_uuid: Some(lease) };
        self.stub.commit(request).await.context("commit failed")?;
        Ok(())
    }
}

/// Returns a new primary key, like a sequence of a database.
pub(crate) fn next_id() -> i64 {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the claim of a username for the user `user_id`.
pub(crate) fn metadata(name: &str, user_id: i64) -> Metadata {
    Metadata {
        bucket: Some(Bucket { r#type: claims::bucket::Type::Usernames.into(), value: name.to_owned() }),
        subject: Some(Subject { r#type: claims::subject::Type::User.into(), id: user_id }),
        source: Some(Source {
            r#type: claims::source::Type::RailsTableUsers.into(),
            rails_primary_key_id: user_id.to_be_bytes().into(),
        }),
        user_data: None,
        claim: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_line_that_has_it() {
        assert_eq!(listening("leasehold 0.1.0 listening on 127.0.0.1:4711 (no TLS)"), Some("127.0.0.1:4711"));
        assert_eq!(listening("data in /tmp"), None);
    }

    #[test]
    fn the_program_is_read_from_the_message_that_has_it() {
        let message = br#"{"reason":"compiler-artifact","executable":"/x/release/leasehold"}"#;
        assert_eq!(executable(message, "leasehold"), Some("/x/release/leasehold".into()));
        assert_eq!(executable(message, "leasehold-bench"), None);
        assert_eq!(executable(br#"{"reason":"compiler-artifact","executable":null}"#, "leasehold"), None);
    }
}
