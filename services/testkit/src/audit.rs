//! Triggers in a test's database that write down what must never happen to its rows, whoever does it and however briefly.
//!
//! They only watch: no statement is changed or refused by them.

use anyhow::ensure;

use crate::query;

/// What is watched: a table, a condition over `old` and `new`, and what it means.
const RULES: [(&str, &str, &str); 7] = [
    ("databases", "(new.epoch, new.seq) < (old.epoch, old.seq)", "the position fell"),
    (
        "databases",
        // To be sent again is another matter: that is counted.
        "(new.published_epoch, new.published_seq) < (old.published_epoch, old.published_seq) and new.resends = old.resends",
        "the published position fell",
    ),
    ("databases", "old.deleted_at is not null and new.deleted_at is null", "what was deleted came back"),
    (
        "observations",
        "(new.epoch, new.seq, new.term, new.resource_version) < (old.epoch, old.seq, old.term, old.resource_version)",
        "an older observation won",
    ),
    (
        "observations",
        "(new.carried_epoch, new.carried_seq) < (old.carried_epoch, old.carried_seq)",
        "what was carried out fell",
    ),
    (
        "operations",
        "old.ended_at is not null and (new.state, new.ended_at) is distinct from (old.state, old.ended_at)",
        "an operation moved after its end",
    ),
    ("operations", "new.last_event < old.last_event", "events were taken back"),
];

/// Tables of which no row may go. States that nothing can begin with any more do, but not before they are a day old: no test that is
/// watched lasts as long.
const KEPT: [&str; 3] = ["databases", "operations", "instructions"];

/// Begins to watch a migrated database.
///
/// # Errors
/// When Postgres refuses.
pub async fn begin(database_url: &str) -> anyhow::Result<()> {
    query(database_url, &script()).await?;
    Ok(())
}

/// What happened that must not; the watching itself is checked too.
///
/// # Errors
/// When Postgres does not answer, or nothing is watched any more.
pub async fn wrong(database_url: &str) -> anyhow::Result<Vec<String>> {
    let triggers =
        query(database_url, "select count(*) from pg_trigger where tgname like 'test_audit_%'").await?;
    let expected = RULES.len() + KEPT.len();
    ensure!(triggers == expected.to_string(), "{triggers} of {expected} rules are watched");
    let found = query(database_url, "select distinct what || ': ' || id from test_audit order by 1").await?;
    Ok(found.lines().map(ToOwned::to_owned).collect())
}

fn script() -> String {
    let table = "create table test_audit (what text not null, id text not null, at timestamptz not null default clock_timestamp());
        create function test_audit() returns trigger language plpgsql as $$ begin
        insert into test_audit (what, id) values (tg_argv[0], coalesce(to_jsonb(old)->>'id', to_jsonb(old)->>'database_id'));
        return null; end $$;";
    let changes = RULES.iter().enumerate().map(|(number, (table, condition, what))| {
        format!(
            "create trigger test_audit_{number} after update on {table} for each row when ({condition}) \
             execute function test_audit('{table}: {what}');"
        )
    });
    let deletions = KEPT.iter().map(|table| {
        format!(
            "create trigger test_audit_{table} after delete on {table} for each row \
             execute function test_audit('{table}: a row was deleted');"
        )
    });
    let statements: Vec<String> = [table.to_owned()].into_iter().chain(changes).chain(deletions).collect();
    statements.join("\n")
}
