//! Tests of the Rust client against a real server: updates that commit at the end of a scope,
//! refusals as values, retries under one idempotency key, lists, and TLS.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_client::{
    Bucket, BucketType, CertificateFault, Claim, Client, Error, LeaseQuery, List, Obstacle, OtherStore, RecordQuery,
    RecordStatus, RefusalKind, RetryPolicy, SourceId, SourceType, SubjectType, Tls, UpdateError,
};
use leasehold_tests::certificates::Authority;
use leasehold_tests::postgres::Cluster;
use leasehold_tests::server::Server;
use leasehold_tests::wire::eventually;
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::net::TcpListener;

const CELL: i64 = 1;

fn client_of(server: &Server) -> Client {
    Client::builder(format!("http://{}", server.address())).build().unwrap()
}

/// Returns a claim of the username `name` by the user with this id.
fn username(name: &str, id: u64) -> Claim {
    Claim::new(BucketType::Usernames, name)
        .with_subject(SubjectType::User, id.cast_signed())
        .with_source(SourceType::RailsTableUsers, id)
}

/// Returns the status of the record of a username; `None` if no cell claims the username.
async fn status_of(client: &Client, name: &str) -> Option<RecordStatus> {
    match client.get(&Bucket::new(BucketType::Usernames, name)).await {
        Ok(found) => Some(found.record.status),
        Err(Error::Refused(refusal)) if refusal.kind() == RefusalKind::NotFound => None,
        Err(error) => panic!("{error}"),
    }
}

async fn outstanding(client: &Client) -> usize {
    client.list_leases(CELL, &LeaseQuery::default()).await.unwrap().leases.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_a_scope_that_succeeds_commits_its_lease() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    let seen = client.clone();
    let update = client.update(CELL).create(username("alice", 7));
    let saved = update.run(async move |lease| {
        assert_eq!(status_of(&seen, "alice").await, Some(RecordStatus::Creating));
        lease.local_commit(async { Ok::<_, Error>(lease.fence()) }).await
    });
    // The closure of an update can run in a spawned task, since its future is `Send`.
    let fence = tokio::spawn(saved).await.unwrap().unwrap();
    assert!(fence > 0);
    assert_eq!(status_of(&client, "alice").await, Some(RecordStatus::Active));
    assert_eq!(outstanding(&client).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b21_a_scope_that_fails_rolls_its_lease_back() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    let update = client.update(CELL).create(username("alice", 7));
    let failed = update.run(async |_| Err::<(), _>("the row is not valid")).await;
    assert!(matches!(failed, Err(UpdateError::Work { error: "the row is not valid", unsettled: None })), "{failed:?}");
    assert_eq!(status_of(&client, "alice").await, None);
    assert_eq!(outstanding(&client).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn r02_a_local_commit_of_unknown_outcome_leaves_the_lease_outstanding() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    let update = client.update(CELL).create(username("alice", 7));
    let work =
        async |lease: leasehold_client::HeldLease| lease.local_commit(async { Err::<(), _>("connection lost") }).await;
    assert!(matches!(update.run(work).await, Err(UpdateError::Work { unsettled: None, .. })));
    assert_eq!(status_of(&client, "alice").await, Some(RecordStatus::Creating));
    assert_eq!(outstanding(&client).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_that_is_cancelled_rolls_its_lease_back() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    let update = client.update(CELL).create(username("alice", 7));
    let scope = tokio::spawn(update.run(async |_| std::future::pending::<Result<(), Error>>().await));
    let begun = async || (outstanding(&client).await == 1).then_some(());
    eventually("the update is begun", begun).await.unwrap();
    scope.abort();
    let rolled_back = async || (outstanding(&client).await == 0).then_some(());
    eventually("the lease is rolled back", rolled_back).await.unwrap();
    assert_eq!(status_of(&client, "alice").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn b22_b23_a_caller_can_repeat_a_settle_but_not_reverse_it() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    let first = client.update(CELL).create(username("alice", 7)).begin().await.unwrap();
    client.commit(first.cell_id, first.uuid).await.unwrap();
    client.commit(first.cell_id, first.uuid).await.unwrap();
    let second = client.update(CELL).destroy(username("alice", 7)).begin().await.unwrap();
    assert!(second.fence > first.fence, "{first:?} {second:?}");
    client.rollback(second.cell_id, second.uuid).await.unwrap();
    let refused = client.commit(second.cell_id, second.uuid).await.unwrap_err();
    assert_eq!(refused.refusal().unwrap().kind(), RefusalKind::RolledBack, "{refused}");
    assert_eq!(status_of(&client, "alice").await, Some(RecordStatus::Active));
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_a_refusal_lists_the_offending_claims() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    let taken = client.update(CELL).create(username("alice", 7)).begin().await.unwrap();
    client.commit(CELL, taken.uuid).await.unwrap();
    let update = client.update(2).creates([username("bob", 8), username("Alice", 8)]);
    let Err(Error::Refused(refusal)) = update.begin().await else { panic!("the name is taken") };
    assert_eq!((refusal.kind(), refusal.reason.as_str()), (RefusalKind::Taken, "CLAIM_TAKEN"));
    let claims: Vec<_> = refusal.claims().into_iter().map(|claim| (claim.list, claim.position)).collect();
    assert_eq!(claims, [(List::Creates, 1)]);
    client.update(CELL).destroy(username("alice", 7)).begin().await.unwrap();
    let Err(Error::Refused(busy)) = client.update(2).create(username("alice", 8)).begin().await else {
        panic!("the name is under a lease")
    };
    assert_eq!(busy.kind(), RefusalKind::Busy);
    assert!(busy.retry_after.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn b09_a_begin_repeated_under_its_key_gets_the_same_lease() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    let begin = || client.update(CELL).create(username("alice", 7)).idempotency_key("k1").begin();
    let (first, second) = (begin().await.unwrap(), begin().await.unwrap());
    assert_eq!(first, second);
    let unusable = client.update(CELL).idempotency_key("a\nb").begin().await;
    assert!(matches!(unusable, Err(Error::Key(_))), "{unusable:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b09_a_begin_whose_answer_is_lost_is_retried_and_begins_once() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    // Open the connection before the server is suspended, so that only the later call waits.
    client.cells().await.unwrap();
    server.suspend().unwrap();
    let hasty = client.clone().with_retry(RetryPolicy {
        attempts: 1,
        attempt_timeout: Duration::from_millis(200),
        ..RetryPolicy::default()
    });
    let lost = hasty.update(CELL).create(username("alice", 7)).begin().await;
    let Err(Error::Unanswered(unanswered)) = lost else { panic!("{lost:?}") };
    assert_eq!(unanswered.refusal.kind(), RefusalKind::DeadlineExceeded);
    server.signal(Signal::SIGCONT).unwrap();
    let key = unanswered.idempotency_key.unwrap();
    client.update(CELL).create(username("alice", 7)).idempotency_key(key).begin().await.unwrap();
    assert_eq!(outstanding(&client).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b09_a_call_to_an_absent_server_is_retried_until_the_server_is_there() {
    let reserved = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = reserved.local_addr().unwrap().to_string();
    drop(reserved);
    let client = Client::builder(format!("http://{address}")).timeout(Duration::from_secs(60)).build().unwrap();
    let refused = client.clone().with_retry(RetryPolicy::default().once()).cells().await.unwrap_err();
    assert_eq!(refused.refusal().unwrap().kind(), RefusalKind::Unavailable, "{refused}");
    let begin = tokio::spawn(client.update(CELL).create(username("alice", 7)).begin());
    let server = tokio::task::spawn_blocking(|| Server::builder().listen(address).start().unwrap()).await.unwrap();
    begin.await.unwrap().unwrap();
    assert_eq!(outstanding(&client).await, 1);
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn b31_b32_lists_are_complete_across_pages() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    for id in 1..=5 {
        client.update(CELL).create(username(&format!("user-{id}"), id)).begin().await.unwrap();
    }
    let mut pages = client.lease_pages(CELL, LeaseQuery { limit: Some(2), ..LeaseQuery::default() });
    let mut leases = Vec::new();
    while let Some(page) = pages.next().await.unwrap() {
        assert!(page.leases.iter().all(|lease| lease.created_at <= page.server_time));
        leases.extend(page.leases);
    }
    assert_eq!(leases.len(), 5);
    let query = RecordQuery {
        source_type: SourceType::RailsTableUsers.into(),
        after: SourceId::from(1_u64),
        up_to: SourceId::from(4_u64),
        ..RecordQuery::default()
    };
    let mut pages = client.record_pages(CELL, query);
    let mut claims = Vec::new();
    while let Some(page) = pages.next().await.unwrap() {
        claims.extend(page.records.into_iter().map(|record| record.claim));
    }
    let expected = [2, 3, 4].map(|id| username(&format!("user-{id}"), id));
    assert_eq!(claims, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn b30_a_request_is_classified_by_claims_prefix_and_cell() {
    let server = Server::start().unwrap();
    let client = client_of(&server);
    let cells = client.cells().await.unwrap();
    assert_eq!(cells.iter().map(|cell| cell.id).collect::<Vec<_>>(), [1, 2]);
    client.update(2).create(username("alice", 7)).begin().await.unwrap();
    let names = [Bucket::new(BucketType::Usernames, "nobody"), Bucket::new(BucketType::Usernames, "alice")];
    let found = client.classify(&names).await.unwrap();
    assert_eq!((found.address.as_str(), found.matched.as_ref()), (cells[1].address.as_str(), Some(&names[1])));
    assert_eq!(client.classify_cell(2).await.unwrap().address, cells[1].address);
    assert_eq!(client.classify_session("cell-2-").await.unwrap().address, cells[1].address);
    assert_eq!(client.classify_first_cell().await.unwrap().address, cells[0].address);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_identifies_the_caller_and_a_refused_one_is_explained() {
    let authority = Authority::new("clients").unwrap();
    let directory = TempDir::new().unwrap();
    let write = |name: &str, pem: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path
    };
    let (server, cell) = (authority.server().unwrap(), authority.client(&["spiffe://leasehold/cell/1"]).unwrap());
    let expired = authority.expired(&["spiffe://leasehold/cell/1"]).unwrap();
    let ca = write("ca.pem", &authority.pem());
    let tls = format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n",
        write("server.pem", &server.certificate),
        write("server.key", &server.key),
        ca,
    );
    let server = Server::builder().config(tls).start().unwrap();
    let connect = |pair: &leasehold_tests::certificates::Pair, name: &str| {
        let (certificate, key) = (write(&format!("{name}.pem"), &pair.certificate), write("key", &pair.key));
        let tls = Tls::new(&ca).with_identity(certificate, key);
        Client::builder(format!("https://{}", server.address())).tls(tls).build().unwrap()
    };
    connect(&cell, "cell").update(CELL).create(username("alice", 7)).begin().await.unwrap();
    let denied = connect(&cell, "cell").update(2).create(username("bob", 8)).begin().await.unwrap_err();
    assert_eq!(denied.refusal().unwrap().kind(), RefusalKind::Denied, "{denied}");
    let Err(Error::Unanswered(unanswered)) = connect(&expired, "expired").cells().await else {
        panic!("the certificate is not valid")
    };
    assert_eq!(unanswered.obstacle, Some(Obstacle::ClientCertificate(CertificateFault::NotValidNow)));
}

/// Saves claims of one table, and returns their number.
async fn save(client: &Client, cell: i64, table: SourceType, ids: std::ops::Range<u64>) -> u64 {
    let count = ids.end - ids.start;
    let claim = |id: u64| {
        let claim = Claim::new(BucketType::Usernames, format!("{cell}-{}-{id}", table as i32));
        claim.with_subject(SubjectType::User, 7).with_source(table, id)
    };
    let lease = client.update(cell).creates(ids.map(claim)).begin().await.unwrap();
    client.commit(cell, lease.uuid).await.unwrap();
    count
}

async fn drop_the_data_of_a_cell(server: &Server) {
    let client = client_of(server);
    let (users, routes) = (SourceType::RailsTableUsers, SourceType::RailsTableRoutes);
    let users_saved = save(&client, 1, users, 1..1501).await + save(&client, 1, users, 1501..2001).await;
    let routes_saved = save(&client, 1, routes, 1..4).await;
    save(&client, 2, users, 1..3).await;
    // One claim is under a lease that destroys it, one under a lease that creates it in a third table.
    let destroyed = Claim::new(BucketType::Usernames, format!("1-{}-7", users as i32));
    client.update(1).destroy(destroyed).begin().await.unwrap();
    let projects = SourceType::RailsTableProjects;
    let created = Claim::new(BucketType::Usernames, "created").with_subject(SubjectType::User, 7);
    client.update(1).create(created.with_source(projects, 1_u64)).begin().await.unwrap();

    let tables = BTreeMap::from([(users as i32, users_saved), (routes as i32, routes_saved), (projects as i32, 1)]);
    assert_eq!(client.tables(1).await.unwrap(), tables.keys().copied().collect::<Vec<_>>());
    let counted = client.count_cell_data(1, |_| {}).await.unwrap();
    assert_eq!((counted.leases, &counted.claims), (2, &tables));
    assert!(counted.newest_lease_age.unwrap() < Duration::from_secs(60));

    // If a call is cancelled in the middle, a part of the data remains, and the next call drops
    // this part.
    let mut steps = 0;
    let (cut, cut_off) = tokio::sync::oneshot::channel::<()>();
    let mut cut = Some(cut);
    let part = client.drop_cell_data(1, |_| {
        steps += 1;
        if steps == 3 {
            cut.take().unwrap().send(()).unwrap();
        }
    });
    tokio::select! {
        biased;
        _ = cut_off => {}
        all = part => panic!("nothing was cut off: {all:?}"),
    }
    assert!(!client.count_cell_data(1, |_| {}).await.unwrap().is_empty());
    let dropped = client.drop_cell_data(1, |_| {}).await.unwrap();
    assert!(dropped.claims.values().sum::<u64>() < 2003, "{dropped:?}");

    assert!(client.count_cell_data(1, |_| {}).await.unwrap().is_empty());
    assert_eq!(client.tables(1).await.unwrap(), [0; 0]);
    assert_eq!(client.count_cell_data(2, |_| {}).await.unwrap().claims, BTreeMap::from([(users as i32, 2)]));
    // Other cells may take the names now.
    let taken = Claim::new(BucketType::Usernames, format!("1-{}-7", users as i32));
    let taken = taken.with_subject(SubjectType::User, 7).with_source(users, 7_u64);
    client.update(2).create(taken).begin().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn b26_an_administrator_drops_the_data_of_a_cell() {
    drop_the_data_of_a_cell(&Server::start().unwrap()).await;
    let (cluster, config) = tokio::task::spawn_blocking(|| {
        let cluster = Cluster::start(&["fsync=off"]).unwrap();
        let cells: String =
            (1..3).map(|id| format!("[[cells]]\nid = {id}\nname = \"cell-{id}\"\naddress = \"c{id}:1\"\n")).collect();
        let url = cluster.url(&cluster.database().unwrap());
        (cluster, format!("[postgres]\nurl = \"{url}\"\n{cells}"))
    })
    .await
    .unwrap();
    drop_the_data_of_a_cell(&Server::builder().config(config).start().unwrap()).await;
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn b26_the_data_of_a_cell_is_dropped_in_updates_as_small_as_its_limit() {
    let server = Server::builder().config("[limits]\nheld_claims = 20\n").start().unwrap();
    let (client, users) = (client_of(&server), SourceType::RailsTableUsers);
    for ids in [1..11, 11..21, 21..31] {
        save(&client, 1, users, ids).await;
    }
    let dropped = client.drop_cell_data(1, |_| {}).await.unwrap();
    assert_eq!(dropped.claims, BTreeMap::from([(users as i32, 30)]));
    assert!(client.count_cell_data(1, |_| {}).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_one_store_refuses_another_and_changes_nothing() {
    let server = Server::start().unwrap();
    let banner = async || Some(server.stdout()).filter(|text| text.contains("\ntry: "));
    let banner = eventually("the banner", banner).await.unwrap();
    let id = banner.split("  store     ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let client = |id| Client::builder(format!("http://{}", server.address())).store_id(id).build().unwrap();
    let own = client(id);
    own.update(CELL).create(username("alice", 7)).run(async |_| Ok::<_, Error>(())).await.unwrap();

    let expected = uuid::Uuid::nil();
    let other = client(expected);
    for error in [
        other.update(CELL).create(username("bob", 8)).begin().await.unwrap_err(),
        other.update(CELL).create(username("alice", 9)).begin().await.unwrap_err(),
        other.commit(CELL, expected).await.unwrap_err(),
        other.cells().await.unwrap_err(),
    ] {
        let Error::OtherStore(OtherStore { expected: pinned, found: Some(found) }) = error else { panic!("{error}") };
        assert_eq!((pinned, found), (expected, id));
        assert!(error.to_string().contains(&id.to_string()) && error.to_string().contains(&expected.to_string()));
        assert!(!error.outcome_is_unknown());
    }
    assert_eq!(status_of(&own, "bob").await, None);
    assert_eq!(outstanding(&own).await, 0);
}
