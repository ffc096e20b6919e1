//! Tests of a database whose names were made canonical by older tables of Unicode.

use leasehold_core::lease::Outcome;
use leasehold_tests::postgres::Cluster;
use tokio::runtime::Runtime;

use crate::{NO_SYNC, await_condition, client_of, create, create_all, metric, serve};

/// More names than one part of the check reads.
const NAMES: usize = 600;

/// U+A7DD is new in Unicode 18.0, whose tables fold it to U+0277. Tables of 17.0 leave it as it is.
const PRETEND_OLDER_TABLES: &str = r"
    UPDATE claims SET bucket_value = U&'x\A7DD', bucket_spelling = NULL WHERE bucket_value = 'name-0';
    UPDATE leasehold_store SET unicode_version = '17.0'";
const CORRECT: &str =
    r"UPDATE claims SET bucket_value = U&'x\0277', bucket_spelling = U&'x\A7DD' WHERE bucket_value = U&'x\A7DD'";

#[test]
fn b12_names_of_an_older_unicode_are_checked_before_their_version_is_raised() {
    let (cluster, runtime) = (Cluster::start(NO_SYNC).unwrap(), Runtime::new().unwrap());
    let database = cluster.database().unwrap();
    let version = || cluster.execute(&database, "SELECT unicode_version FROM leasehold_store").unwrap();
    let mut server = serve(&cluster.url(&database), "");
    let mut client = client_of(&runtime, &server);
    let names = (0..NAMES).map(|number| format!("name-{number}"));
    let lease = runtime.block_on(client.begin(create_all(names))).unwrap().lease;
    runtime.block_on(client.settle(&lease, Outcome::Committed)).unwrap();
    runtime.block_on(client.begin(create("held"))).unwrap();
    assert_eq!(version(), ["18.0"]);
    assert!(server.terminate().unwrap().success());

    cluster.execute(&database, PRETEND_OLDER_TABLES).unwrap();
    server.restart().unwrap();
    let differing = "leasehold_differing_claims{bucket_type=\"4\"}";
    await_condition("the metric counts the claim", || metric(&runtime, &server, differing).as_deref() == Some("1"));
    runtime.block_on(client_of(&runtime, &server).begin(create("later"))).unwrap();
    assert!(server.terminate().unwrap().success());
    let log = server.stderr();
    let differ = format!("1 of {} names differ (bucket type 4: 1)", NAMES + 1);
    assert!(log.contains(&differ) && !log.contains('\u{a7dd}'), "V09: {log}");
    assert_eq!(version(), ["17.0"], "no version is stored while a name differs");

    cluster.execute(&database, CORRECT).unwrap();
    server.restart().unwrap();
    await_condition("the version is stored", || version() == ["18.0"]);
}
