//! The code that the Rust guide of the book shows. One test compares this code with the guide, and
//! other tests run the code against a server.

use leasehold_client::{Bucket, BucketType, Client, Error, RecordStatus};
use leasehold_tests::book::{blocks, document};
use leasehold_tests::certificates::Authority;
use leasehold_tests::server::Server;
use tempfile::TempDir;

/// The guide's first example: saves a user's row together with a claim of the username.
mod saving {
    use leasehold_client::{BucketType, Claim, Client, SourceType, SubjectType, UpdateError};
    use uuid::Uuid;

    /// Stands for a transaction of your database library.
    pub struct Transaction;

    impl Transaction {
        /// Writes the user's row, and a row for the lease beside it.
        async fn insert_user(&self, _id: u64, _username: &str, _lease: Uuid) -> std::io::Result<()> {
            Ok(())
        }

        async fn commit(self) -> std::io::Result<()> {
            Ok(())
        }
    }

    pub fn username(user: u64, name: &str) -> Claim {
        Claim::new(BucketType::Usernames, name)
            .with_subject(SubjectType::User, user.cast_signed())
            .with_source(SourceType::RailsTableUsers, user)
    }

    pub async fn save(client: &Client, user: u64, name: &str) -> Result<(), UpdateError<std::io::Error>> {
        let transaction = Transaction;
        client
            .update(1)
            .create(username(user, name))
            .run(async |lease| {
                transaction.insert_user(user, name, lease.uuid()).await?;
                lease.local_commit(transaction.commit()).await
            })
            .await
    }
}

/// The guide's example of a client's settings: TLS, timeout and retries.
mod configuration {
    use std::path::Path;
    use std::time::Duration;

    use leasehold_client::{Client, EndpointError, RetryPolicy, Tls};

    pub fn connect(server: &str, files: &Path) -> Result<Client, EndpointError> {
        let identity = (files.join("cell-1.pem"), files.join("cell-1.key"));
        Client::builder(server)
            .tls(Tls::new(files.join("ca.pem")).with_identity(identity.0, identity.1))
            .timeout(Duration::from_secs(5))
            .retry(RetryPolicy { attempts: 3, ..RetryPolicy::default() })
            .build()
    }
}

/// The guide's example of an update that begins and commits in two separate calls.
mod two_steps {
    use leasehold_client::{Claim, Client, Error};

    pub async fn rename(client: &Client, old: Claim, new: Claim, key: &str) -> Result<(), Error> {
        let lease = client.update(1).destroy(old).create(new).idempotency_key(key).begin().await?;
        // Write your rows, and the lease's, and commit your transaction here.
        client.commit(lease.cell_id, lease.uuid).await
    }
}

/// The guide's example of handling the errors of an update.
mod errors {
    use leasehold_client::{Error, RefusalKind, UpdateError};

    pub fn explain(error: &UpdateError<std::io::Error>) -> String {
        match error {
            UpdateError::Begin(Error::Refused(refusal)) => match refusal.kind() {
                RefusalKind::Taken => format!("taken: {:?}", refusal.claims()),
                RefusalKind::Busy => format!("try again in {:?}", refusal.retry_after),
                kind => format!("refused as {kind:?}: {refusal}"),
            },
            UpdateError::Begin(error) => format!("not begun: {error}"),
            UpdateError::Work { error, .. } => format!("the transaction failed: {error}"),
            UpdateError::Commit(error) => format!("saved, but the lease is outstanding: {error}"),
            error => error.to_string(),
        }
    }
}

/// The guide's example of reading lists and single records.
mod reading {
    use leasehold_client::{Bucket, BucketType, Client, Error, LeaseQuery, RecordQuery, SourceType};

    pub async fn report(client: &Client) -> Result<Vec<String>, Error> {
        let mut lines = Vec::new();
        let mut leases = client.lease_pages(1, LeaseQuery::default());
        while let Some(page) = leases.next().await? {
            lines.extend(page.leases.iter().map(|lease| format!("outstanding: {}", lease.uuid)));
        }
        let users = RecordQuery { source_type: SourceType::RailsTableUsers.into(), ..RecordQuery::default() };
        let mut records = client.record_pages(1, users);
        while let Some(page) = records.next().await? {
            lines.extend(page.records.iter().map(|record| format!("claimed: {}", record.claim.bucket.value)));
        }
        let cell = client.classify(&[Bucket::new(BucketType::Usernames, "alice")]).await?;
        lines.push(format!("alice is at {}", cell.address));
        Ok(lines)
    }
}

/// The guide's example of a reconciler.
mod reconciliation {
    use std::time::{SystemTime, UNIX_EPOCH};

    use leasehold_client::{Client, Cursor, Error, LeaseQuery, RefusalKind};
    use leasehold_core::lease::{LeaseId, Outcome};
    use leasehold_core::reconcile::{Event, LocalRow, OutOfTurn, Reconciliation, RemoteLease};
    use leasehold_core::reconcile::{Settings, Settled, Step, Summary};
    use leasehold_core::time::Timestamp;

    /// Stands for the table of leases in your database, the oldest row first.
    pub type Rows = Vec<LocalRow>;

    pub async fn reconcile(client: &Client, rows: &mut Rows, settings: Settings) -> Result<Summary, OutOfTurn> {
        let mut run = Reconciliation::new(settings);
        let mut next = None;
        loop {
            let event = match run.step() {
                Step::ListLeases { .. } => list(client, &mut next).await.unwrap_or(Event::Failed),
                Step::FindRows { leases } => {
                    let found = rows.iter().filter(|row| leases.contains(&row.lease));
                    Event::Rows { rows: found.copied().collect(), now: micros(SystemTime::now()) }
                }
                Step::ListRows { after, min_age_micros, limit } => {
                    let now = micros(SystemTime::now());
                    let is_listed =
                        |row: &&LocalRow| Some(**row) > after && row.created_at <= now.minus_micros(min_age_micros);
                    Event::Rows { rows: rows.iter().filter(is_listed).take(limit).copied().collect(), now }
                }
                Step::Settle { lease, outcome } => settle(client, lease, outcome).await,
                Step::DeleteRow { lease, .. } => {
                    rows.retain(|row| row.lease != lease);
                    Event::Deleted
                }
                Step::Done => return Ok(run.summary().clone()),
            };
            run.feed(event)?;
        }
    }

    async fn list(client: &Client, next: &mut Option<Cursor>) -> Result<Event, Error> {
        let page = client.list_leases(1, &LeaseQuery { cursor: next.take(), ..LeaseQuery::default() }).await?;
        *next = page.cursor;
        let leases = page.leases.iter();
        let leases =
            leases.map(|lease| RemoteLease { created_at: micros(lease.created_at), lease: LeaseId(lease.uuid) });
        Ok(Event::Leases {
            leases: leases.collect(),
            now: micros(page.server_time),
            cursor: next.is_some().then(|| "next".to_owned()),
        })
    }

    async fn settle(client: &Client, lease: LeaseId, outcome: Outcome) -> Event {
        let answer = match outcome {
            Outcome::Committed => client.commit(1, lease.0).await,
            Outcome::RolledBack => client.rollback(1, lease.0).await,
        };
        let kind = match answer {
            Ok(()) => return Event::Settled { answer: Settled::Done },
            Err(Error::Refused(refusal)) => refusal.kind(),
            Err(_) => return Event::Failed,
        };
        match kind {
            RefusalKind::RolledBack => Event::Settled { answer: Settled::RolledBack },
            RefusalKind::Committed => Event::Settled { answer: Settled::Committed },
            RefusalKind::NotFound => Event::Settled { answer: Settled::NotFound },
            _ => Event::Failed,
        }
    }

    pub fn micros(time: SystemTime) -> Timestamp {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

fn client_of(server: &Server) -> Client {
    Client::builder(format!("http://{}", server.address())).build().unwrap()
}

async fn status_of(client: &Client, name: &str) -> RecordStatus {
    client.get(&Bucket::new(BucketType::Usernames, name)).await.unwrap().record.status
}

/// Returns the text with leading and trailing spaces of each line removed, so that indentation does
/// not matter.
fn unindented(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn the_guide_shows_this_code() {
    let code = unindented(include_str!("rust_guide.rs"));
    let examples = blocks(&document("docs/src/guides/rust.md").unwrap(), "rust");
    assert_eq!(examples.len(), 6);
    for example in examples {
        let shown = unindented(&example);
        assert!(code.contains(&shown), "tests/tests/book/rust_guide.rs lacks this code of the guide:\n{example}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn saves_are_committed_and_refusals_explained() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    saving::save(&client, 7, "alice").await.unwrap();
    assert_eq!(status_of(&client, "alice").await, RecordStatus::Active);
    let taken = saving::save(&client, 8, "Alice").await.unwrap_err();
    assert!(errors::explain(&taken).starts_with("taken: "), "{taken}");
    two_steps::rename(&client, saving::username(7, "alice"), saving::username(7, "bob"), "k1").await.unwrap();
    assert_eq!(status_of(&client, "bob").await, RecordStatus::Active);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_records_are_listed() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    saving::save(&client, 7, "alice").await.unwrap();
    let lease = client.update(1).create(saving::username(8, "bob")).begin().await.unwrap();
    let busy = saving::save(&client, 9, "bob").await.unwrap_err();
    assert!(errors::explain(&busy).starts_with("try again in "), "{busy}");
    let mut lines = reading::report(&client).await.unwrap();
    lines.sort();
    let outstanding = format!("outstanding: {}", lease.uuid);
    assert_eq!(lines, ["alice is at 127.0.0.1:3001", "claimed: alice", "claimed: bob", &outstanding]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_commits_a_lease_with_a_row_and_rolls_back_the_others() {
    use leasehold_core::lease::LeaseId;
    use leasehold_core::reconcile::{LocalRow, Settings};

    let server = Server::start().unwrap();
    let client = client_of(&server);
    let begin = async |user, name| client.update(1).create(saving::username(user, name)).begin().await.unwrap();
    let (with_row, without_row) = (begin(7, "alice").await, begin(8, "bob").await);
    let created_at = reconciliation::micros(std::time::SystemTime::now());
    let mut rows = vec![LocalRow { created_at, lease: LeaseId(with_row.uuid) }];
    let settings = Settings { stale_after_micros: 0, rows_per_page: 1000 };
    let summary = reconciliation::reconcile(&client, &mut rows, settings).await.unwrap();
    assert_eq!((summary.leases_seen, summary.committed, summary.rolled_back), (2, 1, 1), "{summary:?}");
    assert_eq!(rows, []);
    assert_eq!(status_of(&client, "alice").await, RecordStatus::Active);
    let gone = client.commit(1, without_row.uuid).await;
    assert!(matches!(gone, Err(Error::Refused(_))), "{gone:?}");
}

#[tokio::test]
async fn a_client_with_certificates_is_built() {
    let authority = Authority::new("claims authority").unwrap();
    let cell = authority.client(&["spiffe://leasehold/cell/1"]).unwrap();
    let directory = TempDir::new().unwrap();
    for (name, text) in [("ca.pem", authority.pem()), ("cell-1.pem", cell.certificate), ("cell-1.key", cell.key)] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    configuration::connect("https://localhost:7443", directory.path()).unwrap();
}
