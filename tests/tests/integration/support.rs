//! What every integration test begins with: the stack, and something in it of its own.

pub(crate) use testkit::stack;

/// A migrated database of the test's own, and its URL.
pub(crate) async fn database() -> (::store::Store, String) {
    let url = testkit::fresh_database().await.expect("a fresh database");
    let store = ::store::Store::connect(&url, &::store::Settings::default()).expect("a store");
    store.migrate().await.expect("migrations");
    (store, url)
}
