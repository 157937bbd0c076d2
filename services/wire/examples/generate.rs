//! Writes the Rust form of `proto/` into the directory given: `cargo run -p wire --example generate -- DIRECTORY`.
//!
//! Pure Rust (protox), so that nobody needs a protoc. `cargo xtask generate` runs it and compares.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let target = std::env::args().nth(1).ok_or("usage: generate DIRECTORY")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let descriptors = protox::compile([root.join("slipway/provisioning/v1/provisioning.proto")], [&root])?;
    prost_build::Config::new().btree_map(["."]).out_dir(target).compile_fds(descriptors)?;
    Ok(())
}
