//! What every integration test begins with: the stack, and something in it of its own.

use std::time::Duration;

use domain::DatabaseId;
pub(crate) use testkit::stack;

/// As programs have a store, for a test that is not about how long they wait for a connection: beside all other tests Postgres
/// may take long to open one.
pub(crate) fn patient() -> ::store::Settings {
    ::store::Settings { acquire: Duration::from_secs(30), ..::store::Settings::default() }
}

/// A migrated database of the test's own, and its URL.
pub(crate) async fn database() -> (::store::Store, String) {
    let url = testkit::fresh_database().await.expect("a fresh database");
    let store = ::store::Store::connect(&url, &patient()).expect("a store");
    store.migrate().await.expect("migrations");
    (store, url)
}

/// A statement from which on Postgres fails at what is asked for of one column of these rows, as it does where the disk is damaged: of a
/// table with this key. `sound_TABLE` is the table as it was.
pub(crate) fn damage(table: &str, (key, column): (&str, &str), ids: &[DatabaseId]) -> String {
    let ids: Vec<String> = ids.iter().map(|id| format!("'{id}'")).collect();
    format!(
        "create function damaged(id uuid, value anyelement) returns anyelement immutable language plpgsql as $$ begin \
         if id in ({}) then raise exception 'missing chunk number 0 for toast value 7' using errcode = 'data_corrupted'; \
         end if; return value; end $$; \
         alter table {table} rename to sound_{table}; \
         do $$ declare kept text; begin \
         select string_agg(case attname when '{column}' then 'damaged({key}, {column}) as {column}' else attname::text end, \
         ', ' order by attnum) into kept from pg_attribute \
         where attrelid = 'sound_{table}'::regclass and attnum > 0 and not attisdropped; \
         execute 'create view {table} as select ' || kept || ' from sound_{table}'; end $$",
        ids.join(", ")
    )
}

/// Does something until it took less than this, three times at most: a machine that stands still for a moment does so in one of
/// them.
pub(crate) async fn within(limit: Duration, mut take: impl AsyncFnMut() -> Duration) {
    let mut took: Vec<Duration> = Vec::new();
    while took.last().is_none_or(|last| *last >= limit) {
        assert!(took.len() < 3, "each time it took longer than {limit:?}: {took:?}");
        took.push(Box::pin(take()).await);
    }
}

/// What a relay is told while its topic has as many partitions as everybody thinks.
pub(crate) fn counted() -> tokio::sync::watch::Receiver<bool> {
    tokio::sync::watch::channel(true).1
}

/// Folder of the QuestDB that was installed beside the other servers of the stack.
pub(crate) fn questdb_lib() -> std::path::PathBuf {
    installed("questdb-").join("lib")
}

/// Folder of what was installed beside the servers of the stack and has a name that begins so; the newest of several.
pub(crate) fn installed(prefix: &str) -> std::path::PathBuf {
    let cache = stack().kubectl.ancestors().nth(3).expect("kubectl lies in the cache");
    let entries =
        std::fs::read_dir(cache).expect("the cache can be read").flatten().map(|entry| entry.path());
    let found = entries.filter(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
    });
    found.max().expect("it is installed")
}
