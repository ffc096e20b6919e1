//! The partitions of the tables that keep the history of queues. The function `shift_request_partitions` of the tables
//! adds and drops them.

use std::time::Duration;

use tokio_postgres::{Client, SimpleQueryMessage};

use super::failure::failed;
use super::pool::{Access, Pool};
use crate::store::error::StoreError;

/// The shortest period after which an empty partition may leave. A partition is at least six hours long, because those
/// for the ids of 48 hours are there, and each costs a read of settled requests a few microseconds.
const SHORTEST_PERIOD: Duration = Duration::from_secs(60 * 60);
/// The number of periods for which a settled request is remembered. The disk space of a request is free again once all
/// requests of its partition are forgotten. If none waits for long, that is a period later at most.
const PERIODS_OF_RETENTION: u32 = 4;
/// The most partitions that one shift adds and drops.
const MAX_CHANGES: u32 = 32;

/// Returns the time whose requests share a partition.
fn period(retention: Duration) -> Duration {
    (retention / PERIODS_OF_RETENTION).max(SHORTEST_PERIOD)
}

/// Adds partitions for the coming requests, and drops those whose requests are all forgotten (Q16). Returns true if
/// partitions are missing because the default partitions are too large.
///
/// # Errors
/// Another session uses the tables, or the database refuses the change.
pub(super) async fn shift(pool: &Pool, retention: Duration) -> Result<bool, StoreError> {
    for _ in 0..MAX_CHANGES {
        let result = pool.run(Access::Write, |client| async move { change(&client, retention).await }).await?;
        match &*result {
            "added" | "dropped" => {}
            "locked" => return Err(StoreError::Locked("another session has locked a table of the history".into())),
            result => return Ok(result == "full"),
        }
    }
    Ok(false)
}

/// Makes one change in a transaction of its own, so that groups pass between two changes. Returns the result of the
/// function.
async fn change(client: &Client, retention: Duration) -> Result<String, StoreError> {
    // The timeout bounds the time for which a search under the lock holds up groups. The function needs the isolation
    // level READ COMMITTED, which all statements of the pool have: it must see the rows that were written while it
    // waited for a lock.
    let seconds = period(retention).as_secs();
    let sql = format!(
        "SET LOCAL statement_timeout = '1s';
         SELECT shift_request_partitions(now(), '{seconds} seconds'::interval)"
    );
    let answer = client.simple_query(&sql).await.map_err(failed)?;
    let result = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    result.map(str::to_owned).ok_or_else(|| StoreError::Failed("`shift_request_partitions` returns no row".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_share_of_the_retention_and_at_least_an_hour() {
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        assert_eq!(period(hours(30 * 24)), hours(180));
        assert_eq!(period(hours(24)), hours(6));
        assert_eq!(period(Duration::from_secs(600)), hours(1));
    }
}
