//! Rebuilds the embedded migrations when their folder changes, which the macro alone does not notice.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
