//! The standbys that COMMITs wait for.

use tokio_postgres::{Client, Error};

/// Two SQL expressions: if COMMITs wait for a standby, and if standbys are connected. Backups and subscribers of logical
/// replication are connected like standbys. A role without the rights of `pg_monitor` tells backups by their names only.
pub(super) const STANDBYS: &str = "current_setting('synchronous_standby_names') <> '', EXISTS (
    SELECT FROM pg_stat_replication r WHERE (r.state IS NULL OR r.replay_lsn IS NOT NULL)
        AND coalesce(r.application_name NOT IN ('pg_basebackup', 'pg_receivewal'), true)
        AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical'))";

/// A query for COMMITs that wait for a standby, and longer than a standby on the network takes.
const WAITING: &str = "
    SELECT EXISTS (
        SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'
            AND clock_timestamp() - state_change > interval '200 ms')";

/// True if COMMITs of the database wait for a standby.
///
/// # Errors
/// The database can't be read.
pub(super) async fn commits_wait(client: &Client) -> Result<bool, Error> {
    client.query_typed_one(WAITING, &[]).await?.try_get(0)
}

/// If COMMITs wait for a standby, as the probes have seen.
#[derive(Debug, Default)]
pub(super) struct Standbys {
    had_one: bool,
    lacks_one: bool,
}

impl Standbys {
    /// Notes what a probe has seen. Without `synchronous_mode_strict`, Patroni lets COMMITs wait for no standby while none is
    /// there.
    pub(super) fn observe(&mut self, waits: bool, are_connected: bool) {
        let lacks_one = !waits && (self.had_one || are_connected);
        self.had_one |= waits;
        match (std::mem::replace(&mut self.lacks_one, lacks_one), lacks_one) {
            (false, true) if self.had_one => tracing::warn!(
                "COMMITs of the database wait for no standby any more: a failover loses answered changes from now on; set \
                 `synchronous_mode_strict` of Patroni to prevent it"
            ),
            (true, false) if waits => tracing::info!("COMMITs of the database wait for a standby again"),
            _ => {}
        }
    }

    /// True if COMMITs wait for no standby, although there was one or is one.
    pub(super) fn lacks_one(&self) -> bool {
        self.lacks_one
    }
}
