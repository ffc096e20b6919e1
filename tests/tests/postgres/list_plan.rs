//! A list reads claims in the order of an index, however many names one source id has.

use leasehold_proto::gitlab::cells::topology_service::claims::v1::ListRecordsRequest;
use leasehold_tests::postgres::Cluster;
use tokio::runtime::Runtime;

use crate::{await_condition, serve};

/// The number of names on one source id. The server reads so many rows of a list in several parts.
const NAMES: usize = 12_000;

/// Returns the plans in PostgreSQL's log of the statements that list records.
fn plans(log: &str) -> Vec<&str> {
    log.split("duration: ").filter(|entry| entry.contains("looked_at") && entry.contains("Query Text")).collect()
}

#[test]
fn b32_a_list_of_one_source_id_with_many_names_sorts_nothing() {
    let explain = ["fsync=off", "shared_preload_libraries=auto_explain", "auto_explain.log_min_duration=0"];
    let cluster = Cluster::start(&explain).unwrap();
    let database = cluster.database().unwrap();
    let server = serve(&cluster.url(&database), "");
    let claims = format!(
        "INSERT INTO claims (bucket_type, bucket_value, uuid, creator_id, subject_type, subject_id, source_type, source_id,
             status, created_at, updated_at)
         SELECT 4, 'name-' || number, gen_random_uuid(), 1, 4, 7, 1, int8send(7), 1, now(), now()
         FROM generate_series(1, {NAMES}) AS number;
         ANALYZE claims"
    );
    cluster.execute(&database, &claims).unwrap();
    let listed = Runtime::new().unwrap().block_on(async {
        let request = ListRecordsRequest { cell_id: 1, source_type: 1, ..Default::default() };
        let claims = server.claims(None).await.unwrap().max_decoding_message_size(1 << 26);
        claims.clone().list_records(request).await.unwrap().into_inner().records.len()
    });
    assert_eq!(listed, NAMES);
    await_condition("the plans are logged", || plans(&cluster.log().unwrap()).len() > 1);
    for plan in plans(&cluster.log().unwrap()) {
        assert!(plan.contains("Index Scan using claims_listed") && !plan.contains("Sort"), "{plan}");
    }
}
