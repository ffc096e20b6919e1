//! The bodies of the fuzz targets in `fuzz/fuzz_targets`: functions that take arbitrary bytes, and
//! panic if a property does not hold. The test `fuzz_corpora` runs them on the committed corpora.
//!
//! Only builds with the feature `fuzzing` have this module.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};
use leasehold_core::bucket::BucketType;
use leasehold_core::catalogue::{BucketRule, Catalogue, Form};
use leasehold_core::rules::Rules;
use tempfile::TempDir;

pub use crate::grpc::fuzzing::{claim_fields, cursor, wire};
pub use crate::store::fuzzing::{journals, stored_rows};

use crate::config::Config;
use crate::identity::Caller;
use crate::subject::{SubjectConfig, identify};
use crate::transfer::{export, import};

/// A fuzz target: its name, which is also the name of its file and its corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 9] = [
    ("claim_fields", claim_fields),
    ("configuration", configuration),
    ("cursor", cursor),
    ("import_lines", import_lines),
    ("journals", journals),
    ("stored_rows", stored_rows),
    ("subject", subject),
    ("values", values),
    ("wire", wire),
];

/// Reads a configuration file, checks it, and makes the rules of a server from it.
pub fn configuration(bytes: &[u8]) {
    let Ok(dir) = TempDir::new() else { return };
    let path = dir.path().join("leasehold.toml");
    if std::fs::write(&path, bytes).is_err() {
        return;
    }
    match Config::read(&path).and_then(Config::checked) {
        Ok(config) => assert!(config.rules().cells.len() == config.cells.len()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Imports lines into a new store and exports it. If the import accepts the lines, a second import
/// and export must give the same lines as the first export.
pub fn import_lines(bytes: &[u8]) {
    let Ok(dir) = TempDir::new() else { return };
    let Some(first) = imported(&dir.path().join("first"), bytes) else { return };
    let second = imported(&dir.path().join("second"), &first);
    assert_eq!(second, Some(first), "an export that is not imported unchanged");
}

/// Imports the lines into a new store and returns the store's export; `None` if the import was
/// refused. A refused import must leave no files.
fn imported(data: &Path, lines: &[u8]) -> Option<Vec<u8>> {
    if import(&data.into(), lines, Rules::default()).is_err() {
        assert!(!data.exists(), "a refused import left a store");
        return None;
    }
    let mut exported = Vec::new();
    let done = export(&data.into(), false, &mut exported);
    assert!(done.is_ok(), "{:?}", done.err());
    Some(exported)
}

/// Reads the header in which a balancer names its client. Tries the bytes themselves as the
/// header's value, then their base64.
pub fn subject(bytes: &[u8]) {
    let name = |text: &str| Some(text.to_owned());
    let balancers = vec!["balancer.example".to_owned()];
    let subjects = SubjectConfig {
        cell: name("CELL-{id}"),
        router: name("router.example"),
        admin: name("admin.example"),
        balancers,
        loopback_balancer: true,
    };
    for value in [bytes.to_vec(), STANDARD.encode(bytes).into_bytes()] {
        let Ok(value) = HeaderValue::from_bytes(&value) else { continue };
        for caller in [Caller::Balancer, Caller::Anonymous] {
            let mut headers = HeaderMap::new();
            headers.append("x-client-runway-cc-subject-dn", value.clone());
            let identified = identify(caller.clone(), &mut headers, &subjects);
            assert!(headers.is_empty());
            assert!(identified.caller != Caller::Trusted, "a header made its sender trusted");
            let is_promoted = identified.caller == Caller::Balancer && caller != Caller::Balancer;
            assert!(!is_promoted, "a header made its sender a balancer");
            assert!(caller == Caller::Balancer || identified.has_removed && identified.caller == caller);
        }
    }
}

/// Checks the canonical form of a value under each form of bucket types. The canonical form must be
/// its own canonical form, and have no character that the form refuses.
pub fn values(bytes: &[u8]) {
    let Ok(value) = std::str::from_utf8(bytes) else { return };
    let number = BucketType(100);
    for (form, fold_case) in Form::ALL.into_iter().flat_map(|form| [(form, false), (form, true)]) {
        let rule = BucketRule { number, name: "T".into(), form, fold_case, refuse_confusables: true };
        let catalogue = Catalogue::new([rule]);
        let Ok(bucket) = catalogue.bucket(number, value.into()) else { continue };
        assert!(form.check(&bucket.key.canonical).is_ok(), "{form}: {:?}", bucket.key.canonical);
        let again = catalogue.bucket(number, bucket.key.canonical.clone()).map(|again| again.key);
        assert_eq!(again.as_ref(), Ok(&bucket.key), "{form}");
    }
}
