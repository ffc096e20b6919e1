//! A cell that begins updates and never settles them leaves room for every other cell.

use std::time::Instant;

use leasehold_tests::client::{Client, Update, user};
use leasehold_tests::server::Server;
use leasehold_tests::wire::Refusal;
use tempfile::TempDir;
use tokio::task::JoinSet;

const LIMITS: &str = "[limits]\nheld_claims = 100\n";

/// Begins updates of one claim until the server refuses one. Returns the number that were begun,
/// and the refusal.
async fn begin_all(client: &mut Client, prefix: &str) -> (u64, Refusal) {
    for number in 0.. {
        let creates = vec![user(format!("{prefix}-{number}"), 1 + number, Vec::new())];
        if let Err(status) = client.begin(Update { creates, ..Update::default() }).await {
            return (number, Refusal::of(&status));
        }
    }
    unreachable!("numbers do not run out")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_never_settles_leaves_room_for_others() {
    let data = TempDir::new().unwrap();
    let mut server = Server::builder().data(data.path()).config(LIMITS).start().unwrap();
    let (begun, refusal) = begin_all(&mut Client::connect(&server, 1).await.unwrap(), "first").await;
    assert_eq!(begun, 75, "a quarter of the limit is kept for the other cell");
    assert_eq!(refusal.reason, "OVERLOADED");
    let expected = "the cell has used up its share of `limits.held_claims` = 100";
    assert!(refusal.message.starts_with(expected), "{}", refusal.message);
    assert_eq!(["limit", "max"].map(|name| refusal.figure(name)), ["limits.held_claims", "100"].map(Some));

    // After a restart the cell still has its share, and the others theirs.
    server.restart().unwrap();
    assert_eq!(begin_all(&mut Client::connect(&server, 1).await.unwrap(), "again").await.0, 0);
    let (begun, refusal) = begin_all(&mut Client::connect(&server, 2).await.unwrap(), "second").await;
    assert_eq!(begun, 25);
    assert_eq!(refusal.message, "the server is overloaded: `limits.held_claims` = 100 is reached: try again");
}

fn cell(id: i64, limits: &str) -> String {
    format!("[[cells]]\nid = {id}\nname = \"c{id}\"\naddress = \"c{id}.example\"\n{limits}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_holds_as_many_claims_as_its_limit_allows() {
    let config = format!("[limits]\ncell_held_claims = 3\n{}{}", cell(1, ""), cell(2, "held_claims = 5"));
    let server = Server::builder().config(config).start().unwrap();
    for (id, limit) in [(1, "3"), (2, "5")] {
        let mut client = Client::connect(&server, id).await.unwrap();
        let large = (0..6).map(|number| user(format!("large-{number}"), 1 + number, Vec::new())).collect();
        let status = client.begin(Update { creates: large, ..Update::default() }).await.unwrap_err();
        assert_eq!(Refusal::of(&status).reason, "LIMIT_EXCEEDED", "it can never pass");
        let (begun, refusal) = begin_all(&mut client, &format!("held-{id}")).await;
        assert_eq!((begun.to_string().as_str(), refusal.reason.as_str()), (limit, "OVERLOADED"));
        assert_eq!(["limit", "max"].map(|name| refusal.figure(name)), ["cells.held_claims", limit].map(Some));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_begins_as_many_updates_a_second_as_its_limit_allows() {
    let config = cell(1, "begins_per_second = 2") + &cell(2, "");
    let server = Server::builder().config(config).start().unwrap();
    let started = Instant::now();
    let (begun, refusal) = begin_all(&mut Client::connect(&server, 1).await.unwrap(), "fast").await;
    let may_begin = 2 + started.elapsed().as_millis() as u64 * 2 / 1000;
    assert!((2..=may_begin).contains(&begun), "{begun} of {may_begin}");
    assert_eq!(["limit", "max"].map(|name| refusal.figure(name)), ["cells.begins_per_second", "2"].map(Some));
    let mut other = Client::connect(&server, 2).await.unwrap();
    for number in 0..20 {
        let creates = vec![user(format!("other-{number}"), 1 + number, Vec::new())];
        other.begin(Update { creates, ..Update::default() }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_floods_the_queue_leaves_places_to_others() {
    let server = Server::builder().config("[limits]\nqueued_begins = 8\n").start().unwrap();
    let (flooder, mut other) = (Client::connect(&server, 1).await.unwrap(), Client::connect(&server, 2).await.unwrap());
    let mut flood = JoinSet::new();
    for number in 0..800 {
        let mut flooder = flooder.clone();
        flood.spawn(async move {
            let creates = vec![user(format!("flood-{number}"), 1 + number, Vec::new())];
            flooder.begin(Update { creates, ..Update::default() }).await
        });
    }
    for number in 0..20 {
        let creates = vec![user(format!("other-{number}"), 1 + number, Vec::new())];
        other.begin(Update { creates, ..Update::default() }).await.unwrap();
    }
    let refused: Vec<_> = flood.join_all().await.into_iter().filter_map(Result::err).collect();
    assert!(!refused.is_empty());
    for status in refused {
        let refusal = Refusal::of(&status);
        assert_eq!((refusal.reason.as_str(), refusal.figure("limit")), ("OVERLOADED", Some("limits.queued_begins")));
    }
}
