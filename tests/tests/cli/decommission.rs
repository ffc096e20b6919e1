//! `decommission` drops claims that no list shows, or that no update can name (B26).

use leasehold_core::lease::Outcome;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::Metadata;
use leasehold_tests::client::{Client, Update, reason, user};
use leasehold_tests::server::DEVELOPMENT_CELLS;

use super::*;

const TEAMS: i32 = 1_000;
const TEAMS_CONFIG: &str = "[[bucket_types]]\nnumber = 1000\nname = \"TEAMS\"\nform = \"word\"\nfold_case = true\n";

async fn save(client: &mut Client, creates: Vec<Metadata>) {
    let begun = client.begin(Update { creates, ..Update::default() }).await.unwrap();
    client.settle(&begun.lease, Outcome::Committed).await.unwrap();
}

/// Drops the data of cell 1, after a count that finds as many claims.
async fn drop_users(world: &CliFixture, claims: u64) {
    for (line, is_dropped) in
        [("decommission --json --cell 1", false), ("decommission --json --cell 1 --drop cell-1", true)]
    {
        let answer = world.run(line).await.expect_json_lines();
        assert_eq!(answer, [json!({ "leases": 0, "claims": { "USERS": claims }, "dropped": is_dropped })]);
    }
    let left = world.run("decommission --json --cell 1").await.expect_json_lines();
    assert_eq!(left, [json!({ "leases": 0, "claims": {}, "dropped": false })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn b26_a_row_that_is_too_large_for_a_list_is_dropped() {
    let world = CliFixture::new();
    let mut client = Client::connect(&world.server, 1).await.unwrap();
    for update in 0..5 {
        let create = |number| user(format!("user-{update}-{number}"), 7, vec![0; 4_000]);
        save(&mut client, (0..1_000).map(create).collect()).await;
    }
    assert_eq!(reason(&client.page(Vec::new()).await.unwrap_err()), "LIMIT_EXCEEDED");
    drop_users(&world, 5_000).await;
    save(&mut client, vec![user("user-0-0", 8, Vec::new())]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b26_claims_of_a_type_that_is_not_configured_any_more_are_dropped() {
    let mut server = Server::builder().config(TEAMS_CONFIG).start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    let mut team = user("red", 7, Vec::new());
    team.bucket.as_mut().unwrap().r#type = TEAMS;
    save(&mut client, vec![team, user("alice", 7, Vec::new())]).await;
    drop(client);
    server.write_config(DEVELOPMENT_CELLS).unwrap();
    server.restart().unwrap();
    drop_users(&CliFixture::of(server), 2).await;
}

/// The cell may hold 300 claims and begin one update a second.
#[tokio::test(flavor = "multi_thread")]
async fn b26_the_steps_of_a_drop_keep_to_the_claims_of_the_cell_and_not_to_its_rate() {
    let mut server = Server::start().unwrap();
    let mut client = Client::connect(&server, 1).await.unwrap();
    save(&mut client, (0..800).map(|number| user(format!("user-{number}"), number + 1, Vec::new())).collect()).await;
    drop(client);
    let limits = "id = 1\nheld_claims = 300\nbegins_per_second = 1\n";
    server.write_config(&DEVELOPMENT_CELLS.replacen("id = 1\n", limits, 1)).unwrap();
    server.restart().unwrap();
    let world = CliFixture::of(server);
    drop_users(&world, 800).await;
    // A step that had to wait for the rate would be counted here.
    let (_, metrics) = get(world.server.address(), "/metrics").await.unwrap();
    let shed = metrics.lines().filter(|line| line.starts_with("leasehold_shed_total{method=\"DropClaims\"}"));
    assert!(shed.clone().all(|line| line.ends_with(" 0")), "{:?}", shed.collect::<Vec<_>>());
}
