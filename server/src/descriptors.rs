//! File descriptors: every connection takes one, and the store needs some. If fjall can't open a
//! file, it fails until a restart. So connections never take the last descriptors.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Config;

/// The descriptors for everything but connections and the store's cached files: journals, files
/// that are written, logs, listeners, the runtime.
const RESERVED: u64 = 128;

/// Raises the limit of open files as far as the operating system allows, and returns the limit.
///
/// systemd starts services with a soft limit of 1,024, because `select` can't handle more, and a
/// far higher hard limit. This program does not call `select`.
fn raised_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    if raised { hard } else { soft }
}

/// The most files of the embedded store that may stay open between two reads. The default of fjall
/// is 900.
pub fn cached_files() -> usize {
    usize::try_from(cached_files_of(raised_limit())).unwrap_or(usize::MAX)
}

fn cached_files_of(limit: u64) -> u64 {
    (limit / 8).clamp(16, 900)
}

/// The most connections that clients may have open: `limits.connections`, or fewer if the limit of
/// open files leaves no room for so many. The second value is the limit of open files if it lowered
/// the number, else `None`.
pub fn max_connections(config: &Config) -> (usize, Option<u64>) {
    let database = config.postgres.as_ref().map_or(0, |it| it.write_connections + it.read_connections + 1);
    let members = config.etcd.as_ref().and_then(|etcd| etcd.place().ok()).map_or(0, |place| place.members.len());
    bounded(config.limits.connections, raised_limit(), (database + members) as u64)
}

fn bounded(connections: usize, limit: u64, database: u64) -> (usize, Option<u64>) {
    let others = RESERVED.saturating_add(cached_files_of(limit)).saturating_add(database);
    // Even if the limit is so low that no descriptor is left, a quarter of it is for clients.
    let left = usize::try_from(limit.saturating_sub(others).max(limit / 4)).unwrap_or(usize::MAX);
    if left < connections { (left, Some(limit)) } else { (connections, None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_the_store() {
        assert_eq!(bounded(10_000, 1024, 0), (768, Some(1024)));
        assert_eq!(bounded(10_000, 1024, 11), (757, Some(1024)));
        assert_eq!(bounded(500, 1024, 0), (500, None));
        assert_eq!(bounded(10_000, 524_288, 0), (10_000, None));
        assert_eq!(bounded(10_000, 128, 0), (32, Some(128)));
    }
}
