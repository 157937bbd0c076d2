//! The generated protobuf types. Committed; `cargo xtask generate` makes them from `proto/`.

#![expect(
    missing_docs,
    clippy::pedantic,
    clippy::large_enum_variant,
    reason = "generated: the documentation is in proto/"
)]

include!("generated/slipway.provisioning.v1.rs");
