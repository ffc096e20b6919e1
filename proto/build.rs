//! Compiles the `.proto` files to Rust code for messages and services, and to the descriptors that
//! reflection serves.

use std::path::PathBuf;

const ROOT: &str = "proto";

/// The `.proto` files that no other file imports. The remaining files are compiled because these
/// import them.
const ENTRY_FILES: [&str; 8] = [
    "gitlab/cells/topology_service/cell_service.proto",
    "gitlab/cells/topology_service/classify_service.proto",
    "gitlab/cells/topology_service/claims/v1/claim_service.proto",
    "leasehold/locks/v1/lock_service.proto",
    "leasehold/sessions/v1/session_service.proto",
    "leasehold/v1/admin_service.proto",
    "leasehold/v1/cursor.proto",
    "leasehold/v1/rejection.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={ROOT}");
    let mut compiler = protox::Compiler::new([ROOT])?;
    compiler.include_imports(true).include_source_info(true).open_files(ENTRY_FILES)?;

    // prost's own descriptor types drop unknown extensions, such as the `access_control` options.
    // So protox encodes the descriptor set.
    let out_dir = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out_dir.join("descriptor.bin"), compiler.encode_file_descriptor_set())?;

    let mut config = tonic_prost_build::Config::new();
    // See `src/claim.rs` for the reason.
    config.extern_path(".gitlab.cells.topology_service.types.v1.Claim", "crate::claim::Claim");
    config.enable_type_names().type_name_domain(["."], "type.googleapis.com");
    let has_network = std::env::var("CARGO_CFG_TARGET_FAMILY")? != "wasm";
    let generator = tonic_prost_build::configure().build_client(has_network).build_server(has_network);
    generator.compile_fds_with_config(compiler.file_descriptor_set(), config)?;
    Ok(())
}
