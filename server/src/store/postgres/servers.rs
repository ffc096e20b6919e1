//! Which other servers are at work on the database: each tells it by the advisory locks that its groups hold.

/// The first half of a lock's class, which tells groups' locks from those of anyone else: `leas` in hexadecimal, as it were.
const MARK: u32 = 0x1ea5;

/// What one look weighs beside those before it: a server at work holds a lock two times in three that one looks, so that it
/// takes several to know.
const WEIGHT: f64 = 0.2;
/// In how many of the looks a server has to be seen to count.
const OFTEN: f64 = 1.0 / 3.0;

/// One server among those on a database, until it stops.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    class: u32,
}

impl Server {
    pub(super) fn random() -> Self {
        Self { class: MARK << 16 | u32::from(rand::random::<u16>()) }
    }

    /// A number for a new group, whose advisory lock then shows whose it is.
    pub(super) fn group(self) -> i64 {
        (u64::from(self.class) << 32 | u64::from(rand::random::<u32>())).cast_signed()
    }

    /// An expression for how many other servers have a group under way.
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

/// Other servers that are at work, by what several looks have shown.
#[derive(Debug, Default)]
pub(super) struct AtWork {
    mean: f64,
}

impl AtWork {
    /// Takes up how many a look has shown.
    pub(super) fn saw(&mut self, servers: u32) {
        self.mean += WEIGHT * (f64::from(servers) - self.mean);
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean of counts, which truncates to one"
        )]
        let count = (self.mean + 1.0 - OFTEN) as usize;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_shows_whose_it_is() {
        let server = Server { class: MARK << 16 | 0xffff };
        let group = server.group();
        assert_eq!(u32::try_from(group >> 32), Ok(server.class));
        assert_ne!(group, server.group(), "each has a number of its own");
    }

    #[test]
    fn servers_count_that_are_seen_often_and_not_those_seen_now_and_then() {
        let after = |looks: &[u32]| {
            let mut at_work = AtWork::default();
            looks.iter().for_each(|servers| at_work.saw(*servers));
            at_work.count()
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
