//! The checks of a cluster at the start of a server.

use leasehold_server::store::Creation;
use leasehold_tests::etcd::{EtcdCluster, LIMITS};

use crate::open;

/// Limits that are too low for the largest update are told at the start, not met later.
#[test]
fn a_cluster_with_low_limits_is_refused() {
    for (options, flag) in [(&[][..], "`--max-txn-ops=8192`"), (&LIMITS[..1], "`--max-request-bytes=12582912`")] {
        let cluster = EtcdCluster::start(1, options).unwrap();
        let refused = open(&cluster, "p", Creation::Allowed).map(drop).unwrap_err().to_string();
        assert!(refused.contains(flag), "{refused}");
    }
}

/// A URL with a typo must not make a second store, which would give out every name again.
#[test]
fn a_store_is_made_only_if_it_is_asked_for() {
    let cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let refused = open(&cluster, "p", Creation::Refused).map(drop).unwrap_err().to_string();
    assert!(refused.contains("holds no store"), "{refused}");
    drop(open(&cluster, "p", Creation::Allowed).unwrap());
    drop(open(&cluster, "p", Creation::Refused).unwrap());
}

/// Two stores never have keys among those of the other, though they have no such rows yet.
#[test]
fn a_store_is_not_made_within_another_one() {
    let cluster = EtcdCluster::start(1, LIMITS).unwrap();
    drop(open(&cluster, "a/b", Creation::Allowed).unwrap());
    for (prefix, problem) in
        [("a/b/m", "a store has a part"), ("a/b/c", "a store has a part"), ("a", "other rows have this prefix")]
    {
        let refused = open(&cluster, prefix, Creation::Allowed).map(drop).unwrap_err().to_string();
        assert!(refused.contains(problem), "{refused}");
    }
    drop(open(&cluster, "a/c", Creation::Allowed).unwrap());
}

/// A member that can't serve keeps no server from starting with the others.
#[test]
fn one_member_with_low_limits_is_not_relied_on() {
    let mut cluster = EtcdCluster::start(3, LIMITS).unwrap();
    drop(open(&cluster, "p", Creation::Allowed).unwrap());
    cluster.kill(0).unwrap();
    cluster.restart_with(0, &[]).unwrap();
    drop(open(&cluster, "p", Creation::Refused).unwrap());
}
