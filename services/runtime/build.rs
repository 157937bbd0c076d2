//! Tells the crate whether its profile is that of a release, or inherits from it. What a profile turns on does not say that:
//! a release may have debug assertions.

#[expect(clippy::disallowed_methods, reason = "not configuration: cargo tells it so")]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(for_release)");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo:rustc-cfg=for_release");
    }
}
