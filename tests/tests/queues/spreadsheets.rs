//! The example of seed 001: a front-end records requests to create and to update spreadsheets, and two
//! processes of the back-end, A and B, work on them.

use leasehold_client::{Client, LockSession, NewRequest, RequestKind, TakeTerms};
use leasehold_tests::server::Server;
use uuid::Uuid;

use super::client::{LONG, bodies, client};

const QUEUE: &str = "spreadsheets";

struct Front(Client);

impl Front {
    async fn create(&self, sheet: &str) {
        self.submit(NewRequest::create(sheet, format!("create {sheet}"))).await;
    }

    async fn update(&self, sheet: &str, number: u32) {
        self.submit(NewRequest::update(sheet, format!("{sheet} {number}"))).await;
    }

    async fn submit(&self, request: NewRequest) {
        assert!(self.0.submit(QUEUE, &[request]).await.unwrap()[0].is_new);
    }
}

/// True if a worker finds no request that it could take.
async fn finds_nothing(server: &Server, session: &LockSession) -> bool {
    let request = leasehold_proto::leasehold::queues::v1::TakeNowRequest {
        session_id: session.id().as_bytes().to_vec(),
        queue: QUEUE.into(),
        take_id: Uuid::now_v7().as_bytes().to_vec(),
        max_requests: 0,
    };
    super::Client::of(server).await.queues.take_now(request).await.unwrap().into_inner().batch.is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn q01_q02_q18_two_processes_work_on_the_spreadsheets_of_the_seed() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let front = Front(client.clone());
    let [session_a, session_b] = [client.lock_session(LONG).await.unwrap(), client.lock_session(LONG).await.unwrap()];
    let (mut a, mut b) = (session_a.take(QUEUE, TakeTerms::default()), session_b.take(QUEUE, TakeTerms::default()));
    // The create of the green sheet is complete before the picture begins.
    front.create("green").await;
    a.next().await.unwrap().complete().await.unwrap();

    // The picture: a create and two updates of the blue sheet, then updates of the green one.
    front.create("blue").await;
    front.update("blue", 1).await;
    front.update("blue", 2).await;
    let blue = a.next().await.unwrap();
    assert_eq!((blue.kind(), bodies(&blue)), (RequestKind::Create, vec!["create blue".to_owned()]));
    // B skips the updates whose create A is working on.
    assert!(finds_nothing(&server, &session_b).await);
    front.update("green", 1).await;
    let green = b.next().await.unwrap();
    assert_eq!(bodies(&green), ["green 1"]);
    // An update that comes while B works is in the next batch (Q08), with all others that wait.
    front.update("green", 2).await;
    front.update("green", 3).await;
    green.complete().await.unwrap();
    let green = b.next().await.unwrap();
    assert_eq!(bodies(&green), ["green 2", "green 3"]);
    blue.complete().await.unwrap();
    let blue = a.next().await.unwrap();
    assert_eq!((blue.kind(), bodies(&blue)), (RequestKind::Update, vec!["blue 1".to_owned(), "blue 2".to_owned()]));
    blue.complete().await.unwrap();
    green.complete().await.unwrap();

    // Both are idle now. A new request wakes one of them.
    assert!(finds_nothing(&server, &session_a).await && finds_nothing(&server, &session_b).await);
    let idle = async {
        tokio::select! { batch = a.next() => batch, batch = b.next() => batch }
    };
    let (batch, ()) = tokio::join!(idle, front.create("red"));
    let red = batch.unwrap();
    assert_eq!(bodies(&red), ["create red"]);
    assert!(finds_nothing(&server, &session_b).await && finds_nothing(&server, &session_a).await);
    red.complete().await.unwrap();
    // A second create of a sheet makes no request (Q09).
    let again = client.submit(QUEUE, &[NewRequest::create("red", "again")]).await;
    assert!(!again.unwrap()[0].is_new);
}
