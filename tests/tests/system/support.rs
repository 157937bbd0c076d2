//! What the tests of the main job share: asking the API, kubectl, QuestDB and EC2 the way their users do.

#![cfg(test)]

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use testkit::{ClusterFacts, Console, eventually};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tests that break the stack hold this alone; those that need it whole hold it together.
static STACK: RwLock<()> = RwLock::const_new(());

/// The stack, whole for as long as the guard lives.
pub(crate) async fn whole() -> RwLockReadGuard<'static, ()> {
    STACK.read().await
}

/// The stack, for this test alone, which may break it.
pub(crate) async fn alone() -> RwLockWriteGuard<'static, ()> {
    STACK.write().await
}

/// Ends a program of the stack as a crash would (SIGKILL) and says which process it was. The supervisor starts it again.
pub(crate) async fn crash(program: &str) -> String {
    // It may just have ended by itself, as an operator does that cannot renew its lease: it is killed once it is back.
    eventually(ROAD, &format!("{program} killed"), async || {
        let pid = pid(program).ok()?;
        let killed = Command::new("kill").args(["-9", &pid]).status().await.ok()?;
        killed.success().then_some(pid)
    })
    .await
}

/// Process id of a program of the stack, by the supervisor's record.
pub(crate) fn pid(program: &str) -> anyhow::Result<String> {
    let file = testkit::stack().state_dir.join("pids").join(format!("{program}.pid"));
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// Where a program of the stack answers /healthz, /readyz and /metrics, by the supervisor's own definitions.
pub(crate) fn ops_address(program: &str) -> anyhow::Result<String> {
    let file = testkit::stack().state_dir.join("programs.json");
    let definitions: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    let programs = definitions["programs"].as_array().context("programs.json holds no programs")?;
    let found = programs
        .iter()
        .find(|found| found["name"] == program)
        .with_context(|| format!("no program {program}"))?;
    Ok(found["env"]["SLIPWAY_OPS_LISTEN"].as_str().context("it has no such address")?.to_owned())
}

/// Longest time for anything the whole road must do once, on two busy processors.
pub(crate) const ROAD: Duration = Duration::from_mins(3);

/// Creates a database and gives the API's answer.
pub(crate) async fn create(
    console: &Console,
    name: &str,
    cluster: &ClusterFacts,
    policy: &str,
) -> anyhow::Result<Value> {
    let body = json!({"name": name, "region": cluster.region, "storage": {"size_gib": 20, "deletion_policy": policy}});
    console.post("/v1/databases", &body).await
}

/// Whether the API asks to come again: it is not ready, has just started and looks too many tokens up, or is still at
/// the very same request, of which it has said before that it takes too long.
fn comes_again(answer: &Response) -> bool {
    let passing = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
    passing.contains(&answer.status()) || answer.headers().contains_key("retry-after")
}

/// Sends a request, again while the API cannot be reached or asks for that: with the same key it is the same one.
pub(crate) async fn answered(request: &RequestBuilder) -> Response {
    eventually(ROAD, "an answer of the API", async || {
        let again = request.try_clone().expect("a body that is sent whole");
        let answer = again.send().await.ok()?;
        (!comes_again(&answer)).then_some(answer)
    })
    .await
}

/// Asks for a change of what is at `path`; its operation. What may have been accepted without an answer is asked for
/// once more, over what there is by then.
pub(crate) async fn asked(console: &Console, path: &str, change: &Value) -> String {
    let accepted = eventually(ROAD, "an answer to a change", async || {
        let read = answered(&console.request(Method::GET, path)).await;
        let etag = read.headers().get("etag").unwrap().clone();
        let request = console.request(Method::PATCH, path).header("If-Match", etag).json(change);
        let answer = request.send().await.ok().filter(|answer| !comes_again(answer))?;
        let (status, accepted) = (answer.status(), answer.json::<Value>().await.ok()?);
        assert_eq!(status, StatusCode::ACCEPTED, "{accepted:#}");
        Some(accepted)
    })
    .await;
    accepted["operation"]["id"].as_str().unwrap().to_owned()
}

/// Asks for a change of what is at `path` and waits until it is carried out.
pub(crate) async fn change(console: &Console, path: &str, change: Value) {
    let operation = ended(console, &asked(console, path, &change).await).await;
    assert_eq!(operation["state"], "succeeded", "{change}: {operation:#}");
}

/// Waits until an operation has come to its end, and gives it.
pub(crate) async fn ended(console: &Console, operation: &str) -> Value {
    eventually(ROAD, &format!("the end of operation {operation}"), async || {
        let operation = console.get(&format!("/v1/operations/{operation}")).await.ok()?;
        let state = operation["state"].as_str()?;
        ["succeeded", "failed", "superseded"].contains(&state).then_some(operation)
    })
    .await
}

/// What kubectl says where it did not come so far as to ask anything: an API server that stands still greets it too
/// late, and one that was just killed is not there yet.
const UNHEARD: [&str; 2] = ["TLS handshake timeout", "was refused - did you specify the right host or port?"];

/// What comes of kubectl, which is run again while it was not heard: nothing was done then, whatever it was to do.
async fn heard<T, F>(run: F) -> anyhow::Result<T>
where
    F: AsyncFn() -> anyhow::Result<T>,
{
    eventually(ROAD, "an API server that hears kubectl", async || {
        let ended = run().await;
        let is_unheard = |error: &anyhow::Error| UNHEARD.iter().any(|word| error.to_string().contains(word));
        (!ended.as_ref().is_err_and(is_unheard)).then_some(ended)
    })
    .await
}

/// kubectl in a cluster, as its administrator.
pub(crate) async fn kubectl(cluster: &ClusterFacts, arguments: &[&str]) -> anyhow::Result<String> {
    heard(async || run_kubectl(cluster, arguments).await).await
}

async fn run_kubectl(cluster: &ClusterFacts, arguments: &[&str]) -> anyhow::Result<String> {
    let run = Command::new(&testkit::stack().kubectl)
        .arg("--kubeconfig")
        .arg(&cluster.kubeconfig)
        .args(arguments)
        .output();
    let output =
        tokio::time::timeout(Duration::from_mins(1), run).await.context("kubectl did not end in time")??;
    ensure!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Applies an object the way people do, as the cluster's administrator.
pub(crate) async fn apply(cluster: &ClusterFacts, object: &Value) -> anyhow::Result<()> {
    heard(async || run_apply(cluster, object).await).await
}

async fn run_apply(cluster: &ClusterFacts, object: &Value) -> anyhow::Result<()> {
    let mut child = Command::new(&testkit::stack().kubectl)
        .arg("--kubeconfig")
        .arg(&cluster.kubeconfig)
        .args(["apply", "--filename", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take().context("kubectl has no standard input")?;
    // Why it does not read is said by how it ends.
    let _ = input.write_all(object.to_string().as_bytes()).await;
    drop(input);
    let ended = tokio::time::timeout(Duration::from_mins(1), child.wait_with_output()).await;
    let output = ended.context("kubectl did not end in time")??;
    ensure!(output.status.success(), "not applied: {object}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Names of all objects of a kind that belong to a database; empty when there are none.
pub(crate) async fn objects(cluster: &ClusterFacts, kind: &str, id: &str) -> anyhow::Result<String> {
    let selector = format!("crd.questdb.io/database={id}");
    kubectl(cluster, &["get", kind, "--all-namespaces", "--selector", &selector, "--output", "name"]).await
}

/// A value of a Secret, decoded by kubectl itself.
pub(crate) async fn secret(
    cluster: &ClusterFacts,
    namespace: &str,
    name: &str,
    key: &str,
) -> anyhow::Result<String> {
    let template = format!("go-template={{{{index .data \"{key}\" | base64decode}}}}");
    kubectl(cluster, &["get", "secret", name, "--namespace", namespace, "--output", &template]).await
}

/// Runs SQL over QuestDB's REST API with the generated credentials.
pub(crate) async fn sql(
    endpoint: &str,
    user: &str,
    password: &str,
    statement: &str,
) -> anyhow::Result<Value> {
    let response = testkit::http()
        .get(format!("{endpoint}/exec"))
        .query(&[("query", statement)])
        .basic_auth(user, Some(password))
        .send()
        .await?;
    let status = response.status();
    let text = response.text().await?;
    ensure!(status.is_success(), "{status}: {text}");
    Ok(serde_json::from_str(&text)?)
}
