//! Tests of a data directory whose keys were made by older tables of Unicode.

use std::path::Path;

use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::claim::{Claim, ClaimState};
use leasehold_core::rows::{NetChanges, RowChange};
use leasehold_core::unicode_version::{UNICODE_VERSION, UnicodeVersion};
use leasehold_server::store::{Backend, Creation, EmbeddedStore};
use leasehold_tests::server::Server;
use leasehold_tests::wire::{creates, eventually, leasehold};
use tempfile::TempDir;

use super::{Scrape, begin, commit};

const OLDER: UnicodeVersion = UnicodeVersion { major: 17, minor: 0 };
/// U+A7DD is new in Unicode 18.0, whose tables fold it. Tables of 17.0 leave it as it is.
const CHANGED: &str = "x\u{a7dd}";
/// The metric of the usernames whose key is not their canonical form.
const DIFFERING: &str = "leasehold_differing_claims{bucket_type=\"4\"}";
/// More names than one part of the check reads.
const NAMES: usize = 600;

fn key(canonical: &str) -> BucketKey {
    BucketKey { bucket_type: BucketType(4), canonical: canonical.into() }
}

/// Replaces the claim on [`CHANGED`] in a data directory that no server uses.
fn replace(store: &EmbeddedStore, after: Option<Claim>) {
    let before = store.claims(&[key(CHANGED)]).unwrap().remove(0);
    let change = RowChange { key: key(CHANGED), before, after };
    store.save(&NetChanges { claims: vec![change], ..NetChanges::default() }).unwrap();
}

/// Adds the claim that a server with older tables would have made for [`CHANGED`].
fn pretend_older_tables(data: &Path) {
    let store = EmbeddedStore::open(data, Creation::Refused).unwrap();
    assert_eq!(store.identity().unicode, UNICODE_VERSION);
    let mut claim = store.claims(&[key("name-0")]).unwrap().remove(0).unwrap();
    let ClaimState::Active(record) = &mut claim.state else { panic!("{claim:?}") };
    record.spelling = CHANGED.into();
    replace(&store, Some(claim));
    store.set_unicode_version(OLDER).unwrap();
}

/// Returns what `leasehold doctor` says of Unicode.
async fn finding(data: &Path) -> String {
    let output = leasehold(["doctor", "--data", data.to_str().unwrap()]).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find(|line| line.contains("  unicode ")).unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_names_of_an_older_unicode_are_checked_before_their_version_is_raised() {
    let directory = TempDir::new().unwrap();
    let data = directory.path();
    let mut server = Server::builder().data(data).start().unwrap();
    let claims = server.claims(None).await.unwrap();
    let names: Vec<_> = (0..NAMES).map(|number| format!("name-{number}")).collect();
    let update = creates(1, &names.iter().map(String::as_str).collect::<Vec<_>>());
    commit(&claims, &begin(&claims, update).await.unwrap()).await.unwrap();
    begin(&claims, creates(1, &["held"])).await.unwrap();
    assert!(server.terminate().unwrap().success());
    assert!(finding(data).await.contains("the canonical forms are of version 18.0"));
    pretend_older_tables(data);

    let differ = format!("1 of {} names differ (bucket type 4: 1)", NAMES + 2);
    let said = finding(data).await;
    assert!(said.starts_with("warn") && said.contains(&differ) && !said.contains(CHANGED), "V09: {said}");
    server.restart().unwrap();
    let address = server.address();
    let published = async || (Scrape::of(address).await.get(DIFFERING) == 1.0).then_some(());
    eventually("the metric counts the claim", published).await.unwrap();
    begin(&server.claims(None).await.unwrap(), creates(1, &["later"])).await.unwrap();
    assert!(server.terminate().unwrap().success());
    let log = server.stderr();
    assert!(log.contains(&differ) && !log.contains(CHANGED), "V09: {log}");

    let store = EmbeddedStore::open(data, Creation::Refused).unwrap();
    assert_eq!(store.identity().unicode, OLDER, "no version is stored while a name differs");
    replace(&store, None);
    drop(store);
    server.restart().unwrap();
    let checked = format!("0 of {} names differ", NAMES + 2);
    eventually("the check ends", async || server.stderr().contains(&checked).then_some(())).await.unwrap();
    assert!(server.terminate().unwrap().success());
    let said = finding(data).await;
    assert!(said.contains("the canonical forms are of version 18.0"), "{said}");
}
