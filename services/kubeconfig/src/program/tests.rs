//! Programs for tokens: shells that give one, fail or hang.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use crate::fixture::kubeconfig;

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(20);

fn program(line: &str, more: &Value) -> Program {
    Program::of(&kubeconfig(line, more)).unwrap().unwrap()
}

fn assert_hidden(error: &NoToken, expected: &str) {
    let (told, shown) = (error.to_string(), format!("{error:?}"));
    assert!(!told.contains("swordfish") && !shown.contains("swordfish"), "{told}\n{shown}");
    assert!(told.contains(expected) && told.contains("by hand"), "{told}");
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("kubeconfig-{name}-{}", std::process::id()))
}

#[tokio::test]
async fn what_it_prints_is_the_token_of_its_user() {
    let version = r#"\"apiVersion\":\"client.authentication.k8s.io/v1\""#;
    let line = format!(r#"echo "{{{version},\"status\":{{\"token\":\"$TOKEN\"}}}}"; echo noise >&2"#);
    let mut kubeconfig = kubeconfig(&line, &json!({}));
    let credential = Program::of(&kubeconfig).unwrap().unwrap().run(LONG).await.unwrap();
    assert_eq!((credential.content(), credential.until()), (b"swordfish".to_vec(), None));
    credential.put_into(&mut kubeconfig);
    assert!(Program::of(&kubeconfig).unwrap().is_none(), "clients made of it run none");
}

#[tokio::test]
async fn it_is_told_of_the_cluster_where_it_is_to_be() {
    for (provided, expected) in [(false, Value::Null), (true, json!("https://127.0.0.1:1"))] {
        let file = scratch(&format!("asked-{provided}"));
        let line = format!(r#"printf %s "$KUBERNETES_EXEC_INFO" > '{}'"#, file.display());
        // It prints nothing, which is no credential.
        let error = program(&line, &json!({"provideClusterInfo": provided})).run(LONG).await.unwrap_err();
        assert_hidden(&error, "something else than a credential");
        let asked: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(asked["apiVersion"], "client.authentication.k8s.io/v1", "{asked}");
        assert_eq!(
            (&asked["kind"], &asked["spec"]["interactive"]),
            (&json!("ExecCredential"), &json!(false))
        );
        assert_eq!(asked["spec"]["cluster"]["server"], expected, "{asked}");
        std::fs::remove_file(&file).unwrap();
    }
}

#[tokio::test]
async fn how_it_fails_is_told_and_nothing_of_what_it_said() {
    for (line, more, expected) in [
        ("echo swordfish; echo swordfish >&2; exit 3", json!({}), "exit status: 3"),
        ("kill -9 $$", json!({}), "signal: 9"),
        ("echo swordfish", json!({}), "something else than a credential"),
        ("echo '{\"token\": \"swordfish\"'", json!({}), "something else than a credential"),
        ("", json!({"command": "/nowhere/swordfish"}), "cannot be started"),
        ("", json!({"command": null}), "has no command"),
        ("", json!({"interactiveMode": "Always"}), "asks people"),
        // More than a credential can be, without an end.
        ("exec yes swordfish", json!({}), "failed"),
    ] {
        assert_hidden(&program(line, &more).run(LONG).await.unwrap_err(), expected);
    }
}

/// Whether a process of this number is there and has not ended.
fn lives(number: &str) -> bool {
    std::fs::read(format!("/proc/{number}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[tokio::test]
async fn one_that_hangs_is_waited_for_as_long_as_was_said() {
    let hangs = program("exec tail -f /dev/null", &json!({}));
    assert_hidden(&hangs.run(Duration::from_millis(200)).await.unwrap_err(), "gave nothing within 200ms");
}

#[tokio::test]
async fn one_that_is_waited_for_no_longer_is_ended_with_all_that_it_started() {
    let file = scratch("numbers");
    let line = format!("tail -f /dev/null & echo $$ $! > '{}'; wait", file.display());
    let hangs = program(&line, &json!({}));
    let started = async {
        loop {
            match std::fs::read_to_string(&file) {
                Ok(numbers) if numbers.ends_with('\n') => break numbers,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let numbers = tokio::select! {
        ended = hangs.run(LONG) => panic!("{ended:?}"),
        numbers = started => numbers,
    };
    assert_eq!(numbers.split_whitespace().count(), 2, "{numbers}");
    let ended = async {
        while numbers.split_whitespace().any(lives) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, ended).await.expect("shell and child have ended");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn who_has_a_token_otherwise_has_no_program() {
    for user in [
        "{token: a, exec: {command: get}}",
        "{tokenFile: a, exec: {command: get}}",
        "{username: a, password: b, exec: {command: get}}",
        "{client-certificate: a}",
    ] {
        let text = format!(
            "{{current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:1'}}}}], users: [{{name: a, user: {user}}}]}}"
        );
        assert!(Program::of(&Kubeconfig::from_yaml(&text).unwrap()).unwrap().is_none(), "{user}");
        let gone = text.replace(user, "{auth-provider: {name: gcp, config: {cmd-path: swordfish}}}");
        let error = Program::of(&Kubeconfig::from_yaml(&gone).unwrap()).err().unwrap();
        assert_hidden(&error, "auth-provider");
    }
}
