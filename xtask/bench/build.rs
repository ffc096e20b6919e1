//! Generates the client code of etcd's services from their `.proto` files. protox parses the files,
//! so no `protoc` is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["etcd_kv.proto", "etcd_lease.proto", "etcd_lock.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    Ok(())
}
