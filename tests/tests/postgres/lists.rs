//! Tests of lists: a list delays no other call, stops when its caller is gone, and leaves out a
//! damaged row.

use std::time::Instant;

use leasehold_proto::gitlab::cells::topology_service::claims::v1::ListRecordsRequest;
use leasehold_tests::client::{Client, Update, reason, user};
use leasehold_tests::lists::{abandon_lists, futile_list};
use leasehold_tests::postgres::Cluster;
use leasehold_tests::wire::creates;
use tokio::runtime::Runtime;
use tonic::Code;

use crate::{NO_SYNC, client_of, create, metric, serve};

const USERS: i32 = 1;
/// The number of claims in a table that takes a while to scan.
const MANY: u32 = 300_000;

/// Copies the only claim so often that the table has [`MANY`] rows.
fn multiply(cluster: &Cluster, database: &str) {
    let copy = format!(
        "INSERT INTO claims SELECT bucket_type, bucket_value || number, NULL, gen_random_uuid(), creator_id, subject_type,
             subject_id, source_type, int8send(number), user_data, 1, NULL, NULL, created_at, updated_at, NULL
         FROM claims, generate_series(2, {MANY}) AS number"
    );
    cluster.execute(database, &copy).unwrap();
    cluster.execute(database, "ANALYZE claims").unwrap();
}

async fn saved(client: &mut Client, update: Update) {
    let begun = client.begin(update).await.unwrap();
    client.settle(&begun.lease, leasehold_core::lease::Outcome::Committed).await.unwrap();
}

/// Returns the number of statements that the database runs for lists.
fn running_lists(cluster: &Cluster) -> usize {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%claims%source_id%'
               AND application_name = 'leasehold'";
    cluster.execute("postgres", sql).unwrap()[0].parse().unwrap()
}

#[test]
fn begins_go_on_while_lists_scan_and_abandoned_lists_stop() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = serve(&cluster.url(&database), "[limits]\nconcurrent_lists = 4\n");
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    runtime.block_on(saved(&mut client, create("user")));
    multiply(&cluster, &database);
    runtime.block_on(abandon_lists(&server)).unwrap();
    crate::await_condition("no list runs for callers that are gone", || running_lists(&cluster) == 0);

    runtime.block_on(async {
        let mut claims = server.claims(None).await.unwrap();
        let (started, mut begins) = (Instant::now(), 0);
        let listing = tokio::spawn(async move { claims.list_records(futile_list()).await.map(|_| started.elapsed()) });
        while !listing.is_finished() {
            client.begin(create(format!("other-{begins}"))).await.unwrap();
            begins += 1;
        }
        // If the list delayed begins, the server would answer at most two of them during the list.
        let took = listing.await.unwrap().unwrap();
        assert!(begins >= 5, "{begins} begins were answered during a list of {took:?}");
    });
}

#[test]
fn b32_a_damaged_claim_is_told_and_the_rest_is_served() {
    let cluster = Cluster::start(NO_SYNC).unwrap();
    let database = cluster.database().unwrap();
    let server = serve(&cluster.url(&database), "");
    let runtime = Runtime::new().unwrap();
    let mut client = client_of(&runtime, &server);
    let names = ["first", "damaged", "last"];
    for (name, number) in names.into_iter().zip(1..) {
        let update = Update { creates: vec![user(name, number, vec![7; 10])], ..Update::default() };
        runtime.block_on(saved(&mut client, update));
    }
    let damage = r"UPDATE claims SET user_data = '\xffffff' WHERE bucket_value = 'damaged'";
    cluster.execute(&database, damage).unwrap();

    runtime.block_on(async {
        let refused = client.get("damaged").await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"));
        assert!(refused.message().contains("`claims`"), "{}", refused.message());
        // The name is not granted to anyone else.
        assert!(client.begin(create("damaged")).await.is_err());
        let request = ListRecordsRequest { cell_id: 1, source_type: USERS, ..ListRecordsRequest::default() };
        let answer = server.claims(None).await.unwrap().list_records(request).await.unwrap();
        assert_eq!(answer.metadata().get("leasehold-damaged-records").unwrap(), "1");
        assert_eq!(answer.get_ref().records.len(), names.len() - 1);
        client.get("last").await.unwrap();
        server.claims(None).await.unwrap().begin_update(creates(1, &["after"])).await.unwrap();
    });
    assert_eq!(metric(&runtime, &server, "leasehold_store_failed").as_deref(), Some("0"));
}
