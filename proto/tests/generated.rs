//! Compares the generated code and the descriptors with what the `.proto` files give. Users of the
//! crate then need no compiler of `.proto` files, which takes a tenth of the time of their build.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The `.proto` files that no other file imports. The remaining files are compiled because these
/// import them.
const ENTRY_FILES: [&str; 10] = [
    "gitlab/cells/topology_service/cell_service.proto",
    "gitlab/cells/topology_service/classify_service.proto",
    "gitlab/cells/topology_service/claims/v1/claim_service.proto",
    "leasehold/locks/v1/lock_service.proto",
    "leasehold/peers/v1/peer_service.proto",
    "leasehold/queues/v1/queue_service.proto",
    "leasehold/sessions/v1/session_service.proto",
    "leasehold/v1/admin_service.proto",
    "leasehold/v1/cursor.proto",
    "leasehold/v1/rejection.proto",
];
/// WebAssembly has no network, so it has neither clients nor servers.
const HAS_NETWORK: &str = "#[cfg(not(target_family = \"wasm\"))]";

/// Compiles the `.proto` files to Rust code for messages and services, and to the descriptors that
/// reflection serves.
fn generate(to: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut compiler = protox::Compiler::new([root]).unwrap();
    compiler.include_imports(true).include_source_info(true).open_files(ENTRY_FILES).unwrap();

    // prost's own descriptor types drop unknown extensions, such as the `access_control` options.
    // So protox encodes the descriptor set.
    std::fs::write(to.join("descriptor.bin"), compiler.encode_file_descriptor_set()).unwrap();

    let mut config = tonic_prost_build::Config::new();
    // See `src/claim.rs` for the reason.
    config.extern_path(".gitlab.cells.topology_service.types.v1.Claim", "crate::claim::Claim");
    config.enable_type_names().type_name_domain(["."], "type.googleapis.com");
    tonic_prost_build::configure()
        .client_mod_attribute(".", HAS_NETWORK)
        .server_mod_attribute(".", HAS_NETWORK)
        .out_dir(to)
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(compiler.file_descriptor_set(), config)
        .unwrap();
    // It has only the rules of Google's HTTP option, which no code reads by a type.
    std::fs::remove_file(to.join("google.api.rs")).unwrap();
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.file_name().unwrap().into(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn the_generated_code_is_that_of_the_contract() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated");
    if std::env::var_os("UPDATE_CONTRACT").is_some() {
        generate(&committed);
    }
    let dir = tempfile::tempdir().unwrap();
    generate(dir.path());
    let (committed, generated) = (files(&committed), files(dir.path()));
    assert!(committed.keys().eq(generated.keys()), "if meant, run again with UPDATE_CONTRACT=1");
    let differing: Vec<_> = generated.iter().filter(|(name, bytes)| committed[*name] != **bytes).collect();
    let names: Vec<_> = differing.into_iter().map(|(name, _)| name).collect();
    assert!(names.is_empty(), "{names:?}; if meant, run again with UPDATE_CONTRACT=1");
}
