//! Counts the other servers that write to the database. Each group of commands takes an advisory
//! lock, and the upper half of the lock's number identifies the server. The probe counts these
//! locks.

/// The upper 16 bits of the class number (`pg_locks.classid`) of a group's advisory lock. They
/// distinguish the locks of groups from the locks of other programs.
const MARK: u32 = 0x1ea5;

/// The weight of one probe in the moving average. A probe finds a lock of a busy server about two
/// times out of three, so a single probe says little.
const WEIGHT: f64 = 0.2;
/// The share of probes that must find a lock of a server, so that the server counts as active.
const MIN_SHARE: f64 = 1.0 / 3.0;

/// The identity of this server among the servers of a database, chosen at random at its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerId {
    class: u32,
    // The number under which the server is the home of sessions. Servers of all times differ in it.
    home: i64,
}

impl ServerId {
    /// Returns a random identity.
    pub(super) fn random() -> Self {
        Self { class: MARK << 16 | u32::from(rand::random::<u16>()), home: rand::random::<i64>() }
    }

    /// Returns the number under which this server is the home of sessions.
    pub(super) fn home(self) -> i64 {
        self.home
    }

    /// Returns a random number for a new group of this server. It is also the number of the group's
    /// advisory lock.
    pub(super) fn group(self) -> i64 {
        (u64::from(self.class) << 32 | u64::from(rand::random::<u32>())).cast_signed()
    }

    /// Returns an SQL expression for the number of other servers that are writing a group at this
    /// moment.
    pub(super) fn others(self) -> String {
        let (first, last) = (MARK << 16, MARK << 16 | 0xffff);
        format!(
            "(SELECT count(DISTINCT classid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND classid BETWEEN {first} AND {last} AND classid <> {})",
            self.class
        )
    }
}

/// The number of other servers that write to the database, as a moving average over probes.
#[derive(Debug, Default)]
pub(super) struct ActiveServers {
    mean: f64,
}

impl ActiveServers {
    /// Adds the number of servers that one probe found to the average.
    pub(super) fn observe(&mut self, servers: u32) {
        self.mean += WEIGHT * (f64::from(servers) - self.mean);
    }

    /// Returns the number of other active servers: the average, rounded up if its fraction is at
    /// least [`MIN_SHARE`].
    pub(super) fn count(&self) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean of counts, which truncates to one"
        )]
        let count = (self.mean + 1.0 - MIN_SHARE) as usize;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_group_names_its_server() {
        let server = ServerId { class: MARK << 16 | 0xffff, home: 0 };
        let group = server.group();
        assert_eq!(u32::try_from(group >> 32), Ok(server.class));
        assert_ne!(group, server.group(), "each group has its own number");
    }

    #[test]
    fn a_server_counts_if_it_is_seen_often() {
        let after = |looks: &[u32]| {
            let mut active = ActiveServers::default();
            looks.iter().for_each(|servers| active.observe(*servers));
            active.count()
        };
        assert_eq!(after(&[]), 0);
        assert_eq!(after(&[1]), 0, "once may be by chance");
        assert_eq!(after(&[1, 1]), 1);
        assert_eq!(after(&[1, 1, 0].repeat(10)), 1);
        assert_eq!(after(&[0, 0, 0, 0, 1].repeat(10)), 0, "seldom at work");
        assert_eq!(after(&[3; 20]), 3);
        assert_eq!(after(&[[3; 20], [0; 20]].concat()), 0, "gone again");
    }
}
