//! What pgbench is given: the product's own statements, word for word, with an expression in place of each parameter.

use anyhow::{Context as _, ensure};
use store::statements;

const ROUTE: &str = "'POST /v1/databases'::text";
const TENANT: &str = ":tenant::text";
const ACTOR: &str = ":actor::text";
/// Another one for every run of every client.
const KEY: &str = ":n::text || '-' || :client_id::text";
/// The same as an identity: of the database, its operation and its instruction.
const IDENTITY: &str =
    "(lpad(to_hex(:n::bigint), 12, '0') || '70008000' || lpad(to_hex(:client_id::bigint), 12, '0'))::uuid";
/// That of the first run of the first client.
const FIRST: &str = "array['00000000-0001-7000-8000-000000000000']::uuid[]";

/// What the product does in the transaction of `POST /v1/databases`.
pub(crate) fn mint() -> anyhow::Result<String> {
    let scope = [TENANT, ACTOR, ROUTE, KEY];
    let statements = [
        fill(statements::CLAIM, &scope)?,
        fill(statements::CLAIMED, &scope)?,
        fill(statements::CLUSTERS, &[])?,
        fill(statements::HOLD_OPEN, &[":cluster::text", TENANT])?,
        create()?,
        fill(statements::DATABASE, &[IDENTITY])?,
        fill(statements::OPERATION, &[IDENTITY])?,
        store_answer()?,
        audit()?,
    ];
    Ok(numbered(&format!("begin;\n{}commit;\n", statements.concat())))
}

/// How the product stores an observation that is newer than what is stored; of the database that the first mint made.
pub(crate) fn upsert() -> anyhow::Result<String> {
    let columns = [
        FIRST,
        "array[:cluster::text]",
        "array[1::bigint]",
        "array[1::bigint]",
        "array[1::bigint]",
        "array[:n::bigint]",
        "array[true]",
        "array[:hash::text]",
        "array['Provisioning'::text]",
        "array[0::bigint]",
        "array[0::bigint]",
        "array[:observed::jsonb]",
        "array[1::int]",
        "array[0::bigint]",
    ];
    Ok(numbered(&fill(statements::UPSERT, &columns)?))
}

/// A script whose every run has the next number.
pub(crate) fn numbered(script: &str) -> String {
    format!("\\set n :n + 1\n{script}")
}

/// A statement with an expression in place of each parameter. Each expression says its type: pgbench makes a parameter of
/// each use of a variable, and Postgres cannot tell everywhere what these are.
pub(crate) fn fill(statement: &str, expressions: &[&str]) -> anyhow::Result<String> {
    let mut used = vec![false; expressions.len()];
    let mut parts = statement.split('$');
    let mut script = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(digits);
        let place = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let place = place.with_context(|| format!("no parameter: ${part}"))?;
        let expression =
            expressions.get(place).with_context(|| format!("nothing for ${number}: {statement}"))?;
        used[place] = true;
        script.extend(["(", expression, ")", rest]);
    }
    ensure!(used.iter().all(|used| *used), "more than there are parameters: {statement}");
    // It would be taken for a variable.
    ensure!(!statement.replace("::", "").contains(':'), "a colon that begins no type: {statement}");
    Ok(script + ";\n")
}

/// Database, operation, event and instruction.
fn create() -> anyhow::Result<String> {
    let position = ["1::bigint", "1::bigint"];
    let state = [":desired::jsonb", "1::int", ":hash::text"];
    let asked = [IDENTITY, TENANT, "'create'::text", "'pending'::text", ACTOR, ":trace::text"];
    let terms = ["1800::float8", "'revert'::text", "null::uuid", "null::text"];
    let event = ["'state'::text", "jsonb_build_object('state', 'pending')"];
    let behind = [IDENTITY, ":cluster::text", "'b-' || :n::text || '-' || :client_id::text"];
    let parts: [&[&str]; 7] = [&[IDENTITY], &position, &state, &asked, &terms, &event, &behind];
    fill(statements::CREATE, &parts.concat())
}

fn store_answer() -> anyhow::Result<String> {
    let location = "'/v1/operations/00000000-0000-7000-8000-000000000000'::text";
    let answer = ["sha256('body')", "202::int", location, "'\"1-1\"'::text", ":answer::jsonb"];
    fill(statements::STORE_ANSWER, &[[TENANT, ACTOR, ROUTE, KEY].as_slice(), &answer].concat())
}

fn audit() -> anyhow::Result<String> {
    let who = [TENANT, ACTOR, "'sre'::text"];
    let what = ["'databases.create'::text", ":n::text", IDENTITY, ":n::text", ":detail::jsonb"];
    fill(statements::AUDIT, &[who.as_slice(), &what].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_becomes_its_expression() {
        let many: Vec<String> = (1..=11).map(|number| format!("x{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let table: [(&str, &[&str], &str); 5] = [
            ("select 1", &[], "select 1;\n"),
            ("select $1::text", &[":a::text"], "select (:a::text)::text;\n"),
            ("select $2 - $1, $2", &["1", "2"], "select (2) - (1), (2);\n"),
            ("limit $1", &["a || 'b'"], "limit (a || 'b');\n"),
            ("$11$10$9$8$7$6$5$4$3$2$1", &many, "(x11)(x10)(x9)(x8)(x7)(x6)(x5)(x4)(x3)(x2)(x1);\n"),
        ];
        for (statement, expressions, expected) in table {
            assert_eq!(fill(statement, expressions).unwrap(), expected);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let table: [(&str, &[&str], &str); 6] = [
            ("select $1, $2", &["1"], "nothing for $2"),
            ("select $2", &["1", "2"], "more than there are parameters"),
            ("select 1", &["1"], "more than there are parameters"),
            ("select $0", &["1"], "no parameter"),
            ("select $json${}$json$", &[], "no parameter"),
            ("select 'a:b', $1::text", &["1"], "a colon"),
        ];
        for (statement, expressions, expected) in table {
            let error = fill(statement, expressions).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{statement}: {error}");
        }
    }
}
