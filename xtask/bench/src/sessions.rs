//! The rows with 100,000 live sessions that renew every three seconds. On the embedded store they
//! have the server's processor time for a renewal, and for the scan of silent sessions. A renewal
//! must not write to the disk there. On PostgreSQL they have the rows that a server writes.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::stream::{self, TryStreamExt};
use leasehold_client::Stub;
use leasehold_proto::leasehold::sessions::v1::{OpenSessionRequest, RenewSessionRequest};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::connection::Channel;
use super::ours::Ours;
use super::postgres;
use super::row::{Better, Heading, Row};
use super::server::Contender;

const RENEWAL: Heading = Heading { name: "sessions-renewal", unit: "µs", better: Better::Lower, target: 1.0 };
const SCAN: Heading = Heading { name: "sessions-scan", unit: "% of a core", ..RENEWAL };
const ROWS: Heading = Heading { name: "sessions-postgres-rows", unit: "rows/s", ..RENEWAL };
/// The bounds that stand in the table in place of a peer: the processor time of a renewal, the
/// processor's share for the scan, and the rows that a server writes in a second.
const ALLOWED_MICROSECONDS: f64 = 30.0;
const ALLOWED_PERCENT: f64 = 2.0;
const ALLOWED_ROWS_PER_SECOND: f64 = 1.0;

const SESSIONS: usize = 100_000;
const CONNECTIONS: usize = 8;
/// The calls that a connection has under way at once.
const CALLS: usize = 16;
/// The time between two renewals of a session.
const RENEWED_EVERY: Duration = Duration::from_secs(3);
/// The renewals of each session that are measured.
const RENEWALS: u32 = 5;
/// The time for which a server without calls is measured.
const IDLE: Duration = Duration::from_secs(15);
/// The time after which PostgreSQL has counted the rows that a connection wrote before it fell silent.
/// It is more than ten seconds (PostgreSQL 15, src/backend/utils/activity/pgstat.c,
/// `PGSTAT_IDLE_INTERVAL`).
const COUNTED_WITHIN: Duration = Duration::from_secs(15);
/// A duration that no session outlives without a renewal while the sessions are opened.
const DURATION: Duration = Duration::from_secs(120);
/// The longest time that the server may write to the disk after the last session was opened.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// The configuration of the server, by which one caller may open all sessions.
const CONFIGURATION: &str = r#"
[limits]
sessions_per_service = 100000

[[cells]]
id = 1
name = "cell-1"
address = "127.0.0.1:3001"
"#;

/// An SQL statement that counts the rows which were written to a database.
const WRITTEN_ROWS: &str = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables";

/// The figures of a server with the embedded store.
#[derive(Debug)]
pub(crate) struct Embedded {
    renewal_us: f64,
    scan_percent: f64,
}

impl Embedded {
    pub(crate) fn renewal_row(&self) -> Row {
        RENEWAL.row(self.renewal_us, ALLOWED_MICROSECONDS)
    }

    pub(crate) fn scan_row(&self) -> Row {
        SCAN.row(self.scan_percent, ALLOWED_PERCENT)
    }
}

/// Measures a server with the embedded store.
///
/// # Errors
/// The server refuses a call, or writes to the disk while sessions only renew.
pub(crate) async fn embedded() -> Result<Embedded> {
    let server = Ours::start_on(|data| with_configuration(&data, ["--data".into(), (&data).into()])).await?;
    let sessions = Sessions::open(&server).await?;
    let written = settled(&server).await?;
    let before = server.processor_time()?;
    sessions.renew().await?;
    let renewing = server.processor_time()?.saturating_sub(before);
    tokio::time::sleep(IDLE).await;
    let idle = server.processor_time()?.saturating_sub(before + renewing);
    ensure!(server.written_bytes()? == written, "the server wrote to the disk while sessions renewed");
    server.stop().await?;
    let renewal_us = renewing.as_secs_f64() * 1e6 / sessions.renewals();
    let scan_percent = idle.as_secs_f64() * 100.0 / IDLE.as_secs_f64();
    Ok(Embedded { renewal_us, scan_percent })
}

/// Measures the row `sessions-postgres-rows`.
///
/// # Errors
/// The server refuses a call.
pub(crate) async fn on_postgres() -> Result<Row> {
    xtask::needs::install(xtask::needs::FOR_POSTGRES)?;
    let database = postgres::database().await?;
    let store = ["--store".into(), postgres::cluster().await?.url(&database).into()];
    let server = Ours::start_on(|data| with_configuration(&data, store)).await?;
    let sessions = Sessions::open(&server).await?;
    tokio::time::sleep(COUNTED_WITHIN).await;
    let (before, started) = (written_rows(&database).await?, Instant::now());
    sessions.renew().await?;
    let rows = written_rows(&database).await? - before;
    let rows_per_second = rows / started.elapsed().as_secs_f64();
    server.stop().await?;
    postgres::stop().await;
    Ok(ROWS.row(rows_per_second, ALLOWED_ROWS_PER_SECOND))
}

/// Returns the arguments of a server that reads [`CONFIGURATION`], beside those that select its store.
fn with_configuration(data: &Path, store: [OsString; 2]) -> Result<Vec<OsString>> {
    let file = data.with_extension("toml");
    std::fs::write(&file, CONFIGURATION).context("the configuration can't be written")?;
    Ok(store.into_iter().chain(["--config".into(), file.into()]).collect())
}

/// Waits until the server has written all that follows from the opening of the sessions. Returns the
/// bytes that it has written.
async fn settled(server: &Ours) -> Result<u64> {
    let until = Instant::now() + SETTLES_WITHIN;
    let mut written = server.written_bytes()?;
    loop {
        tokio::time::sleep(RENEWED_EVERY).await;
        let now = server.written_bytes()?;
        if now == written {
            return Ok(now);
        }
        ensure!(Instant::now() < until, "the server still writes to the disk after {SETTLES_WITHIN:?}");
        written = now;
    }
}

async fn written_rows(database: &str) -> Result<f64> {
    let counted = postgres::execute(database, WRITTEN_ROWS).await?;
    counted.first().and_then(|count| count.parse().ok()).context("the database counts no rows")
}

/// The open sessions of each connection.
struct Sessions(Vec<(Stub<Channel>, Vec<Vec<u8>>)>);

impl Sessions {
    async fn open(server: &Ours) -> Result<Self> {
        let mut opened = Vec::new();
        for _ in 0..CONNECTIONS {
            let ids = (0..SESSIONS / CONNECTIONS).map(|_| rand::random::<[u8; 16]>().to_vec());
            opened.push((server.stub().await?, ids.collect()));
        }
        let sessions = Self(opened);
        let started = Instant::now();
        let micros = u64::try_from(DURATION.as_micros())?;
        let open = move |mut stub: Stub<Channel>, session_id| async move {
            let request = OpenSessionRequest { session_id, duration_micros: micros, grace_micros: micros };
            stub.open_session(request).await.context("open failed").map(drop)
        };
        sessions.each(open).await?;
        eprintln!("{SESSIONS} sessions open after {:.1} s", started.elapsed().as_secs_f64());
        Ok(sessions)
    }

    /// Renews each session [`RENEWALS`] times, every three seconds. If the machine is too slow for it,
    /// the next renewals begin at once.
    async fn renew(&self) -> Result<()> {
        let mut due = tokio::time::interval(RENEWED_EVERY);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..RENEWALS {
            due.tick().await;
            let started = Instant::now();
            let renew = |mut stub: Stub<Channel>, session_id| async move {
                stub.renew_session(RenewSessionRequest { session_id }).await.context("renewal failed").map(drop)
            };
            self.each(renew).await?;
            eprintln!("{SESSIONS} sessions renewed in {:.2} s", started.elapsed().as_secs_f64());
        }
        due.tick().await;
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "the count stays far below 2^52")]
    fn renewals(&self) -> f64 {
        self.0.iter().map(|(_, ids)| ids.len()).sum::<usize>() as f64 * f64::from(RENEWALS)
    }

    /// Makes a call for each session.
    async fn each<F: Future<Output = Result<()>> + Send + 'static>(
        &self,
        call: impl Fn(Stub<Channel>, Vec<u8>) -> F + Clone + Send + 'static,
    ) -> Result<()> {
        let of_connection = |(stub, ids): &(Stub<Channel>, Vec<Vec<u8>>)| {
            let (stub, call) = (stub.clone(), call.clone());
            let calls = ids.clone().into_iter().map(move |id| Ok(call(stub.clone(), id)));
            stream::iter(calls).try_buffer_unordered(CALLS).try_collect::<()>()
        };
        let mut calls: JoinSet<Result<()>> = self.0.iter().map(of_connection).collect();
        while let Some(called) = calls.join_next().await {
            called.context("a client ended early")??;
        }
        Ok(())
    }
}
