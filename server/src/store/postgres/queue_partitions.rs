//! The partitions of the tables that keep the history of queues. The function `shift_request_partitions` of the tables
//! adds and drops them.

use std::time::Duration;

use tokio_postgres::Client;

use super::failure::failed;
use crate::store::error::StoreError;

/// The shortest period of a partition. A partition costs each read of settled requests a few microseconds.
const SHORTEST_PERIOD: Duration = Duration::from_secs(60 * 60);
/// The number of periods for which a settled request is remembered. Disk space is free again one or two periods after
/// the requests are forgotten.
const PERIODS_OF_RETENTION: u32 = 4;

/// Returns the time whose requests share a partition.
fn period(retention: Duration) -> Duration {
    (retention / PERIODS_OF_RETENTION).max(SHORTEST_PERIOD)
}

/// Adds partitions for the coming requests, and drops those whose requests are all forgotten (Q16).
///
/// # Errors
/// Another session uses the tables, or the database refuses the change.
pub(super) async fn shift(client: &Client, retention: Duration) -> Result<(), StoreError> {
    // The two statements of one message are one transaction. Its isolation level must be READ COMMITTED, whatever the
    // database's default is: the function must see the rows that were written while it waited for a lock.
    let seconds = period(retention).as_secs();
    let sql = format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
         SELECT shift_request_partitions(now(), make_interval(secs => {seconds}))"
    );
    client.batch_execute(&sql).await.map_err(failed)
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
