//! The rows that a run leaves: in the user's database, in the lists of a server, and in the tables of the shared store.

use std::collections::BTreeSet;

use leasehold_proto::leasehold::queues::v1 as wire;
use tokio_postgres::{NoTls, Row};
use uuid::Uuid;
use wire::list_lanes_request::List as Lanes;
use wire::list_requests_request::List as Requests;

use super::history::{Effect, End, LaneChange, Outcome, QUEUES, Settled};
use crate::Client;

/// Notes each begin and end of a hold, in the transaction that writes it. The transactions of one lane, and those of a
/// queue with a limit, wait for each other before they draw a number. So numbers have the order of commits there.
pub(super) const AUDIT: &str = "
    CREATE SCHEMA audit;
    CREATE TABLE audit.changes (
        number bigserial PRIMARY KEY, transaction text NOT NULL DEFAULT pg_current_xact_id()::text,
        queue text, key text, fence bigint, last_fence bigint, last_end smallint
    );
    CREATE FUNCTION audit.note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO audit.changes (queue, key, fence, last_fence, last_end)
            VALUES (NEW.queue, NEW.key, NEW.fence, NEW.last_fence, NEW.last_end);
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_made AFTER INSERT ON request_lanes FOR EACH ROW EXECUTE FUNCTION audit.note();
    CREATE TRIGGER note_changed AFTER UPDATE ON request_lanes FOR EACH ROW
        WHEN ((OLD.fence, OLD.last_fence) IS DISTINCT FROM (NEW.fence, NEW.last_fence)) EXECUTE FUNCTION audit.note()";

async fn query(url: &str, sql: &str) -> Vec<Row> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.query(sql, &[]).await.unwrap()
}

fn lane(row: &Row) -> (String, String) {
    (row.get("queue"), row.get("key"))
}

fn fence(row: &Row, column: &str) -> Option<u64> {
    row.get::<_, Option<i64>>(column).map(|fence| u64::try_from(fence).unwrap())
}

/// Returns the ids in the user's own table.
pub(super) async fn orders(url: &str) -> BTreeSet<Uuid> {
    query(url, "SELECT id FROM orders").await.iter().map(|row| row.get("id")).collect()
}

/// Returns the work that was done.
pub(super) async fn effects(url: &str) -> Vec<Effect> {
    let effect = |row: &Row| Effect {
        number: row.get("number"),
        id: row.get("request_id"),
        lane: lane(row),
        fence: fence(row, "fence").unwrap(),
    };
    query(url, "SELECT * FROM effects").await.iter().map(effect).collect()
}

/// Returns the changes of lanes that [`AUDIT`] has noted.
pub(super) async fn changes(url: &str) -> Vec<LaneChange> {
    let end = |row: &Row| match row.get::<_, i16>("last_end") {
        1 => End::Settled(Outcome::Completed),
        2 => End::Settled(Outcome::Failed),
        3 => End::Settled(Outcome::GivenBack),
        _ => End::Lost,
    };
    let change = |row: &Row| LaneChange {
        transaction: row.get("transaction"),
        lane: lane(row),
        fence: fence(row, "fence"),
        last: fence(row, "last_fence").map(|last| (last, end(row))),
    };
    query(url, "SELECT * FROM audit.changes ORDER BY number").await.iter().map(change).collect()
}

/// Returns the number of rows of the outbox that the server has refused for good.
pub(super) async fn refused(url: &str) -> i64 {
    query(url, "SELECT count(*) FROM leasehold_outbox_refused").await[0].get(0)
}

/// Returns true if no request waits or is taken. A lane may become ready while the lists are read, when the session of its
/// holder ends, so those that are taken are read before and after.
pub(super) async fn is_idle(client: &Client) -> bool {
    for list in [Lanes::Taken, Lanes::Ready, Lanes::Delayed, Lanes::Taken] {
        for queue in QUEUES {
            let request = wire::ListLanesRequest { queue: queue.into(), list: list.into(), limit: 1, after: None };
            let page = client.queues.clone().list_lanes(request).await.unwrap().into_inner();
            if !page.lanes.is_empty() || page.next.is_some() {
                return false;
            }
        }
    }
    true
}

/// Returns the settled requests of all queues.
pub(super) async fn settled(client: &Client) -> Vec<Settled> {
    let (mut settled, mut after) = (Vec::new(), None);
    loop {
        let (queue, key, list) = (String::new(), String::new(), Requests::Settled.into());
        let request = wire::ListRequestsRequest { queue, key, list, limit: 1_000, after };
        let page = client.queues.clone().list_requests(request).await.unwrap().into_inner();
        settled.extend(page.requests.into_iter().map(settled_of));
        after = page.next;
        if after.is_none() {
            return settled;
        }
    }
}

fn settled_of(request: wire::Request) -> Settled {
    Settled {
        id: Uuid::from_slice(&request.request_id).unwrap(),
        number: request.number,
        is_create: request.kind() == wire::RequestKind::Create,
        is_complete: request.state() == wire::RequestState::Complete,
        attempts: request.attempts,
        max_attempts: request.max_attempts,
        lane: (request.queue, request.key),
    }
}
