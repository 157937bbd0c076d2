//! The command line, as a person uses it: what it prints, where, and with which exit code.

#![cfg(test)]

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use testkit::{cluster, eventually, stack, unique};
use tokio::process::Command;

use crate::support::{ROAD, whole};

/// The `slipway` program beside the tests' own, in the target folder.
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().nth(2).unwrap().join("slipway")
}

struct Person {
    tenant: String,
}

impl Person {
    async fn types(&self, words: &[&str]) -> Output {
        tokio::time::timeout(ROAD + Duration::from_secs(30), self.command(words).output())
            .await
            .unwrap()
            .unwrap()
    }

    fn command(&self, words: &[&str]) -> Command {
        let stack = stack();
        let mut command = Command::new(program());
        command
            .args(words)
            .env("SLIPWAY_API", stack.api_url.as_deref().unwrap())
            .env("SLIPWAY_TOKEN", stack.token.as_deref().unwrap())
            .env("SLIPWAY_TENANT", &self.tenant)
            .env("XDG_CONFIG_HOME", stack.state_dir.join("no-contexts"))
            .kill_on_drop(true);
        command
    }

    /// Types, and has somebody read what is printed who has seen enough before it is; the exit code.
    async fn loses_the_reader_of(&self, words: &[&str]) -> Option<i32> {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut run = self.command(words).stdout(writer).spawn().unwrap();
        tokio::time::timeout(ROAD, run.wait()).await.unwrap().unwrap().code()
    }

    /// Types, expects success and gives what was printed.
    async fn gets(&self, words: &[&str]) -> String {
        let output = self.types(words).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same of what kubectl is asked too, which waits no longer than ten seconds to be greeted.
    async fn gets_by_kubectl(&self, words: &[&str]) -> String {
        eventually(ROAD, &format!("what {words:?} gives"), async || {
            let output = self.types(words).await;
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        })
        .await
    }
}

#[tokio::test]
async fn a_database_by_hand() {
    let _whole = whole().await;
    let person = Person { tenant: unique("hand") };
    let home = cluster("eu-west-1");
    let made = person
        .types(&[
            "databases",
            "create",
            "ledger",
            "--region",
            "eu-west-1",
            "--size-gib",
            "20",
            "--deletion-policy",
            "delete",
            "--wait",
        ])
        .await;
    let steps = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success(), "{steps}");
    for step in ["instance", "volume", "pod", "dns"] {
        assert!(steps.contains(step), "the steps are shown live: {steps}");
    }
    let names = person.gets(&["databases", "list", "-o", "name"]).await;
    assert_eq!(names.lines().count(), 1, "{names}");
    assert_eq!(person.loses_the_reader_of(&["databases", "list"]).await, Some(0));
    assert_eq!(person.loses_the_reader_of(&["databases", "list", "--watch"]).await, Some(141));
    let described = person.gets(&["databases", "describe", "ledger"]).await;
    assert!(described.contains("Ready") && described.contains("vol-"), "{described}");
    let kubeconfig = home.kubeconfig.display().to_string();
    let kubectl = stack().kubectl.display().to_string();
    let words = [
        "databases",
        "connect",
        "ledger",
        "--by-address",
        "--kubeconfig",
        &kubeconfig,
        "--kubectl",
        &kubectl,
        "-o",
        "json",
    ];
    let connection: serde_json::Value = serde_json::from_str(&person.gets_by_kubectl(&words).await).unwrap();
    assert!(connection.to_string().contains("8812"), "{connection:#}");

    // psql with exactly what was printed.
    let uri = find_uri(&connection).expect("a PostgreSQL URI");
    assert_eq!(testkit::query(&uri, "select 41 + 1").await.unwrap(), "42");

    differs(&person, &["--kubeconfig", &kubeconfig, "--kubectl", &kubectl]).await;

    // The state that it has, once more: nothing changes, and it is seen that it went.
    let planned = person.gets(&["databases", "resend", "ledger", "--dry-run"]).await;
    assert!(planned.contains("WOULD-BE") && planned.contains("is published again"), "{planned}");
    let words = ["databases", "resend", "ledger", "--reason", "a test", "--wait", "-o", "json"];
    let resent: serde_json::Value = serde_json::from_str(&person.gets(&words).await).unwrap();
    let database = &resent["database"];
    assert!(database["published_at"].as_str() > database["resent_at"].as_str(), "{resent:#}");

    person.gets(&["databases", "delete", "ledger", "--yes", "--wait"]).await;
    assert_eq!(person.gets(&["databases", "list", "-o", "name"]).await, "");
}

/// What changes of a database would take: its operator says so, and nothing is changed.
async fn differs(person: &Person, places: &[&str]) {
    let table: [(&[&str], i32, &str); 2] = [
        (&["--instance-type", "m7i.xlarge"], 1, "/spec/compute/instanceType"),
        (&["--size-gib", "50", "--version", "0"], 2, "/spec/version"),
    ];
    // On busy processors an answer may take longer than somebody at a terminal waits.
    let patient = ["databases", "diff", "ledger", "--timeout", "180s"];
    // Other codes say that it is not known: kubectl waits no longer than ten seconds to be greeted.
    let asked = async |words: &[&str]| {
        let output = person.types(&[&patient[..], words, places].concat()).await;
        let code = output.status.code().filter(|code| (0..=2).contains(code))?;
        Some((code, [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat()))
    };
    // It serves while something beside it may still be under way.
    eventually(ROAD, "a database at rest", async || {
        let (code, said) = asked(&["--patch", "{}"]).await?;
        (code == 0 && said.contains("nothing would change")).then_some(())
    })
    .await;
    for (words, code, text) in table {
        let answer = eventually(ROAD, &format!("an answer to {words:?}"), async || asked(words).await).await;
        assert!(answer.0 == code && answer.1.contains(text), "{words:?}: {answer:?}");
    }
}

fn find_uri(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) if text.starts_with("postgres") && text.contains('@') => {
            Some(text.clone())
        }
        serde_json::Value::Array(list) => list.iter().find_map(find_uri),
        serde_json::Value::Object(map) => map.values().find_map(find_uri),
        _ => None,
    }
}

#[tokio::test]
async fn mistakes_have_their_exit_codes() {
    let _whole = whole().await;
    let person = Person { tenant: unique("oops") };
    let table: &[(&[&str], i32, &str)] = &[
        (&["databases", "get", "nothing-here"], 3, "nothing-here"),
        (&["databases", "create", "Bad_Name", "--region", "eu-west-1"], 2, "/name"),
        (&["databases", "create", "a", "--region", "mars-1"], 2, "/region"),
        (&["databases", "create"], 2, "NAME"),
        (&["--token", "slipway_wrong", "databases", "list"], 4, "token"),
        (&["databases", "resend", "nothing-here"], 2, "--reason"),
        (&["dead-letters", "describe", "9999999999"], 3, "dead letter"),
        (&["dead-letters", "describe", "twelve"], 2, "twelve"),
        (&["dead-letters", "redrive", "9999999999", "--yes"], 2, "--reason"),
        (&["dead-letters", "redrive", "9999999999", "--yes", "--reason", "a test"], 3, "dead letter"),
        (&["dead-letters", "discard", "9999999999", "--dry-run"], 3, "dead letter"),
        (&["parked", "describe", "0192f3a4-5b6c-7d8e-9f00-112233445566"], 3, "parked"),
    ];
    for (words, code, text) in table {
        let output = person.types(words).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(*code), "{words:?}: {said}");
        assert!(said.contains(text), "{words:?}: {said}");
        assert!(output.stdout.is_empty(), "errors go to stderr only");
    }
}

#[tokio::test]
async fn what_was_set_aside_is_listed_in_every_form() {
    let _whole = whole().await;
    let person = Person { tenant: unique("aside") };
    for (noun, field) in [("dead-letters", "dead_letters"), ("parked", "parked"), ("unclaimed", "unclaimed")]
    {
        let json: serde_json::Value =
            serde_json::from_str(&person.gets(&[noun, "list", "-o", "json"]).await).unwrap();
        assert!(json[field].is_array(), "{noun}: {json}");
        let nowhere = [noun, "list", "--cluster", "nowhere"];
        assert_eq!(person.gets(&nowhere).await, "", "{noun}: nothing is printed where there is nothing");
    }
}
