//! The rights of a relay: those of the service that it works for, by a role that may only call the outbox.

use leasehold_proto::leasehold::queues::v1 as wire;
use leasehold_proto::leasehold::queues::v1::queue_service_client::QueueServiceClient;
use leasehold_proto::leasehold::sessions::v1::OpenSessionRequest;
use leasehold_proto::leasehold::sessions::v1::session_service_client::SessionServiceClient;
use leasehold_tests::certificates::{Authority, Pair};
use leasehold_tests::server::Server;
use leasehold_tests::wire::eventually;
use tempfile::TempDir;
use tonic::transport::Channel;
use uuid::Uuid;

use super::{Database, Session};

/// A role that may call the functions of a relay, and nothing else.
const ROLE: &str = "
    CREATE ROLE relay LOGIN;
    DO $$
    DECLARE
      called record;
    BEGIN
      FOR called IN SELECT oid::regprocedure AS name FROM pg_proc WHERE proname ~ '^leasehold_outbox_' LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO relay', called.name);
      END LOOP;
    END
    $$";

/// Starts a server with TLS, whose relay works for `service/sheets`.
fn serve(authority: &Authority, files: &TempDir, database: &str) -> Server {
    let path = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let Pair { certificate, key, .. } = authority.server().unwrap();
    let (certificate, key) = (path("server.pem", &certificate), path("server.key", &key));
    let clients = path("clients.pem", &authority.pem());
    let access = |caller: &str| format!("[[locks.access]]\ncaller = {caller:?}\nnamespaces = [\"q\"]\n");
    let config = format!(
        "[[relays]]\nname = \"sheets\"\ncaller = \"service/sheets\"\nurl = {database:?}\n{}{}[tls]\n\
         certificate = {certificate:?}\nkey = {key:?}\nclient_ca = {clients:?}\n",
        access("service/sheets"),
        access("service/mails")
    );
    Server::builder().config(config).start().unwrap()
}

/// A worker of a service, with a session for an hour.
struct Worker {
    queues: QueueServiceClient<Channel>,
    session: Uuid,
}

impl Worker {
    async fn of(server: &Server, authority: &Authority, service: &str, session: u128) -> Self {
        let pair = authority.client(&[&format!("spiffe://leasehold/{service}")]).unwrap();
        let channel = server.connect(Some(authority.client_config(Some(&pair)))).await.unwrap();
        let session = Uuid::from_u128(session);
        let open = OpenSessionRequest {
            session_id: session.as_bytes().to_vec(),
            duration_micros: 3_600_000_000,
            grace_micros: 1_000_000,
        };
        SessionServiceClient::new(channel.clone()).open_session(open).await.unwrap();
        Self { queues: QueueServiceClient::new(channel), session }
    }

    /// Takes the lane that becomes ready, by a take with this number.
    async fn take(&self, take: u128) -> wire::Batch {
        let request = wire::TakeNowRequest {
            session_id: self.session.as_bytes().to_vec(),
            queue: "q".into(),
            take_id: Uuid::from_u128(self.session.as_u128() << 64 | take).as_bytes().to_vec(),
            max_requests: 0,
        };
        let queues = &self.queues;
        let taken = async || queues.clone().take_now(request.clone()).await.unwrap().into_inner().batch;
        eventually("a lane is ready", taken).await.unwrap()
    }

    async fn state(&self, id: Uuid) -> wire::RequestState {
        let request = wire::GetRequestRequest { request_id: id.as_bytes().to_vec(), with_body: false };
        self.queues.clone().get_request(request).await.unwrap().into_inner().request.unwrap().state()
    }

    /// Completes a batch in a transaction of the database.
    async fn complete(&self, database: &Session, batch: &wire::Batch) {
        let Self { session, .. } = self;
        let wire::Batch { key, fence, .. } = batch;
        database.run(&format!("SELECT leasehold_complete('{session}', 'q', '{key}', {fence})")).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q14_a_relay_has_the_rights_of_its_service_and_its_role_those_of_the_outbox() {
    let (database, authority) = (Database::new().await, Authority::new("services").unwrap());
    let front = database.connect().await;
    front.run(ROLE).await.unwrap();
    let files = TempDir::new().unwrap();
    let url = database.0.url("postgres").replace("leasehold@", "relay@");
    let server = serve(&authority, &files, &url);
    let (sheets, mails) = (
        Worker::of(&server, &authority, "service/sheets", 1).await,
        Worker::of(&server, &authority, "service/mails", 2).await,
    );
    front.run("SELECT leasehold_submit('mails', 'a')").await.unwrap();
    let first = front.get::<Uuid>("SELECT leasehold_submit('q', 'a')").await;
    let batch = sheets.take(1).await;
    sheets.complete(&front, &batch).await;
    let completed = async || (sheets.state(first).await == wire::RequestState::Complete).then_some(());
    eventually("the relay settles for its service", completed).await.unwrap();
    let refused = front.get::<String>("SELECT queue || ': ' || reason FROM leasehold_outbox_refused").await;
    assert_eq!(refused, "mails: RULE_DENIED");
    // Another service's worker has the next batch, and the relay may not settle it.
    let second = front.get::<Uuid>("SELECT leasehold_submit('q', 'b')").await;
    let batch = mails.take(1).await;
    mails.complete(&front, &batch).await;
    let third = front.get::<Uuid>("SELECT leasehold_submit('q', 'c')").await;
    let batch = sheets.take(2).await;
    assert_eq!(batch.requests[0].request_id, third.as_bytes());
    assert_eq!(sheets.state(second).await, wire::RequestState::InProgress);
}

#[tokio::test(flavor = "multi_thread")]
async fn q13_a_failure_in_a_transaction_has_the_backoff_of_any_other() {
    let (database, authority) = (Database::new().await, Authority::new("services").unwrap());
    let (front, files) = (database.connect().await, TempDir::new().unwrap());
    let server = serve(&authority, &files, &database.0.url("postgres"));
    let sheets = Worker::of(&server, &authority, "service/sheets", 1).await;
    front.run("SELECT leasehold_submit('q', 'a')").await.unwrap();
    let wire::Batch { key, fence, .. } = sheets.take(1).await;
    let session = sheets.session;
    front.run(&format!("SELECT leasehold_fail('{session}', 'q', '{key}', {fence})")).await.unwrap();
    assert_eq!(sheets.take(2).await.requests[0].attempt, 2, "the first backoff is a second");
}
