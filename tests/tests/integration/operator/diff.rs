//! `slipway databases diff`, the program itself through kubectl: what it says, how it ends, and that it leaves nothing behind.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use kube::api::{Patch, PatchParams};
use resources::{Phase, QuestDB, names};
use serde_json::{Value, json};
use testkit::{eventually, unique};
use tokio::process::{Child, Command};

use super::rig::PATIENCE;
use super::rights::person;
use super::subject::Subject;
use crate::support::stack;

/// Exit code, and what it printed.
type Ended = (Option<i32>, String, String);

/// What it says where kubectl takes longer with a write than it waits for one, as on busy processors it may.
const UNREACHED: &str = "got no answer from the cluster in time";

/// Somebody who may get and patch databases of the subject's namespace, and nothing else.
struct Person<'a> {
    subject: &'a Subject,
    kubeconfig: PathBuf,
    resource: String,
}

impl<'a> Person<'a> {
    async fn new(subject: &'a Subject, verbs: &[&str]) -> Self {
        let kubeconfig = person(&subject.rig.admin, &subject.rig.namespace, verbs).await;
        Self { subject, kubeconfig, resource: subject.name.clone() }
    }

    fn asking(&self, words: &[&str]) -> Child {
        // On busy processors an answer may take longer than somebody at a terminal waits.
        let patience: &[&str] = if words.contains(&"--timeout") { &[] } else { &["--timeout", "180s"] };
        Command::new(stack().programs.join("slipway"))
            .args(["databases", "diff", "--namespace", &self.subject.rig.namespace])
            .args(["--resource", &self.resource])
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--kubectl")
            .arg(&stack().kubectl)
            .args(words)
            .args(patience)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            // As at a terminal, where a signal goes to all that the command started.
            .process_group(0)
            .spawn()
            .unwrap()
    }

    /// Asks, again where the cluster was not reached: nobody learns anything of that.
    async fn asks(&self, words: &[&str]) -> Ended {
        eventually(PATIENCE, "an answer of the cluster", async || {
            Some(ended(self.asking(words)).await).filter(|ended| !is_unreached(ended))
        })
        .await
    }

    /// Asks what is pending, where no operator runs, and does something as soon as the question stands; how that ended. Again where it
    /// had given up by then, or did before it heard that the question stands.
    async fn asks_until(&self, act: impl AsyncFn(&Child)) -> Ended {
        eventually(2 * PATIENCE, "a question that stands", async || {
            let mut child = self.asking(&["--patch", "{}"]);
            if is_asked(self.subject, &mut child).await {
                act(&child).await;
            }
            let ended = ended(child).await;
            if !is_unreached(&ended) {
                return Some(ended);
            }
            annotate(self.subject, json!({ names::DRY_RUN: null, names::DRY_RUN_QUESTION: null })).await;
            plan(self.subject, &Value::Null).await;
            None
        })
        .await
    }

    /// Asks until nothing would change any more: a database may serve while something beside it is still under way.
    async fn settled(&self) {
        eventually(PATIENCE, "nothing to change", async || {
            let (code, stdout, stderr) = self.asks(&["--patch", "{}"]).await;
            // While it is still written to, it may be another one at each try.
            assert!(matches!(code, Some(0 | 1 | 5)), "{code:?} {stdout}{stderr}");
            (code == Some(0) && stdout == "nothing would change\n").then_some(())
        })
        .await;
    }

    /// Asks, and must get an answer about the spec as it stands; with exit code and fields.
    async fn learns(&self, patch: &str) -> (Option<i32>, Value) {
        let (code, stdout, stderr) = self.asks(&["--patch", patch, "--output=json"]).await;
        let answer = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{patch}: {stdout}{stderr}"));
        (code, answer)
    }
}

fn is_unreached((code, _, stderr): &Ended) -> bool {
    *code == Some(124) && stderr.contains(UNREACHED)
}

async fn ended(child: Child) -> Ended {
    let Output { status, stdout, stderr } =
        tokio::time::timeout(2 * PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

async fn read(subject: &Subject) -> QuestDB {
    subject.rig.as_admin().get(&subject.name).await.unwrap()
}

/// The patch and the name of the question that stands.
async fn standing(subject: &Subject) -> [Option<String>; 2] {
    let annotations = read(subject).await.metadata.annotations.unwrap_or_default();
    [names::DRY_RUN, names::DRY_RUN_QUESTION].map(|name| annotations.get(name).cloned())
}

async fn annotate(subject: &Subject, annotations: Value) {
    let patch = json!({ "metadata": { "annotations": annotations } });
    let api = subject.rig.as_admin();
    api.patch(&subject.name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// Says what an operator says that answers.
async fn plan(subject: &Subject, lines: &Value) {
    let status = Patch::Merge(json!({ "status": { "plan": lines } }));
    subject.rig.as_admin().patch_status(&subject.name, &PatchParams::default(), &status).await.unwrap();
}

/// Whether a question stands, once it does or who was to put it has ended.
async fn is_asked(subject: &Subject, asking: &mut Child) -> bool {
    eventually(PATIENCE, "the question", async || {
        if standing(subject).await[1].is_some() {
            return Some(true);
        }
        asking.try_wait().unwrap().map(|_| false)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_told_of_and_not_made() {
    let mut subject = Subject::new(&unique("diff")).await;
    let _operator = subject.rig.start().await;
    subject.serving().await;
    let person = Person::new(&subject, &["get", "patch"]).await;
    person.settled().await;
    let before = read(&subject).await;

    let (code, answer) = person.learns(r#"{"restartNonce":"monday"}"#).await;
    assert_eq!((code, &answer["would_change"]), (Some(1), &json!(true)), "{answer:#}");
    assert_eq!(answer["changes"][0]["field"], "/spec/restartNonce", "{answer:#}");
    assert_eq!(answer["changes"][0]["means"], "restart", "{answer:#}");
    assert_eq!(answer["generation"], before.metadata.generation.unwrap());
    let (code, stdout, _) =
        person.asks(&["--size-gib", "30", "--config", "http.net.connection.limit=99"]).await;
    assert_eq!(code, Some(1));
    for text in ["/spec/storage/sizeGib", "/spec/config/http.net.connection.limit", "ModifyVolume"] {
        assert!(stdout.contains(text), "{text}: {stdout}");
    }
    for (patch, text) in [
        (r#"{"version":"0"}"#, "/spec/version"),
        (r#"{"storage":{"sizeGb":30}}"#, "/spec/storage/sizeGb is no field"),
        (r#"{"storage":null}"#, "would not be accepted"),
    ] {
        let (code, stdout, stderr) = person.asks(&["--patch", patch]).await;
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{patch}: {stderr}");
        assert!(stderr.contains(text), "{patch}: {stderr}");
    }

    assert_eq!(standing(&subject).await, [None, None]);
    let after = eventually(PATIENCE, "the answer to go", async || {
        let after = read(&subject).await;
        let status = after.status.as_ref().unwrap();
        (status.plan.is_empty() && status.plan_for.is_none()).then_some(after)
    })
    .await;
    assert_eq!((after.spec, after.metadata.generation), (before.spec, before.metadata.generation));
    assert_eq!(subject.volume().await.size_gib, 20);
    subject.purge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_gets_the_answer_to_their_own_question_or_none() {
    let mut subject = Subject::new(&unique("asked")).await;
    let _operator = subject.rig.start().await;
    subject.serving().await;
    let someone = Person::new(&subject, &["get", "patch"]).await;
    someone.settled().await;

    // Of many at once each gets its own answer, or is told of another who was there first.
    let patches: Vec<String> = (0..6).map(|key| format!(r#"{{"config":{{"key.{key}":"1"}}}}"#)).collect();
    let asking: Vec<_> =
        patches.iter().map(|patch| someone.asking(&["--patch", patch, "--output=json"])).collect();
    let mut answers = 0;
    for (key, (child, patch)) in asking.into_iter().zip(&patches).enumerate() {
        let (code, stdout, stderr) = ended(child).await;
        match code {
            Some(1) => {
                let answer: Value = serde_json::from_str(&stdout).unwrap();
                assert_eq!(answer["changes"].as_array().unwrap().len(), 1, "{answer:#}");
                assert_eq!(answer["changes"][0]["field"], format!("/spec/config/key.{key}"), "{answer:#}");
                answers += 1;
            }
            // Another one stands or was put meanwhile, or the resource was changed again and again.
            Some(5) => {}
            Some(124) if stderr.contains(UNREACHED) => {}
            _ => panic!("{patch}: {code:?} {stdout}{stderr}"),
        }
    }
    assert!(answers > 0, "nobody was answered");
    assert_eq!(standing(&subject).await, [None, None]);

    // A question that was put by hand stays.
    let theirs = r#"{"restartNonce":"theirs"}"#;
    annotate(&subject, json!({ names::DRY_RUN: theirs })).await;
    let (code, _, stderr) = someone.asks(&["--patch", "{}"]).await;
    assert_eq!(code, Some(5), "{stderr}");
    assert!(stderr.contains(theirs) && stderr.contains("--overwrite"), "{stderr}");
    assert_eq!(standing(&subject).await, [Some(theirs.to_owned()), None]);
    let (code, stdout, stderr) = someone.asks(&["--patch", "{}", "--overwrite"]).await;
    assert_eq!((code, stdout.as_str()), (Some(0), "nothing would change\n"), "{stderr}");
    assert_eq!(standing(&subject).await, [None, None]);

    // Who may not put a question, or asks of what is not there, is told so.
    let reader = Person::new(&subject, &["get"]).await;
    let (code, _, stderr) = reader.asks(&["--patch", "{}"]).await;
    assert!(code == Some(4) && stderr.contains("Forbidden"), "{code:?} {stderr}");
    let (code, _, stderr) = Person { resource: "nobody".to_owned(), ..reader }.asks(&["--patch", "{}"]).await;
    assert!(code == Some(3) && stderr.contains("/nobody is not there"), "{code:?} {stderr}");
    subject.purge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_is_away_leaves_no_question_behind() {
    let mut subject = Subject::new(&unique("away")).await;
    let operator = subject.rig.start().await;
    subject.serving().await;
    drop(operator);
    let someone = Person::new(&subject, &["get", "patch"]).await;

    // Where the time is over before the question is put, something else is said.
    eventually(PATIENCE, "a question that nobody answers", async || {
        let (code, _, stderr) = ended(someone.asking(&["--patch", "{}", "--timeout", "15s"])).await;
        assert_eq!(code, Some(124), "{stderr}");
        assert_eq!(standing(&subject).await, [None, None]);
        (stderr.contains("the operator did not answer") && stderr.contains("/readyz")).then_some(())
    })
    .await;

    for signal in ["INT", "TERM", "HUP"] {
        let interrupt = async |child: &Child| {
            let group = format!("-{}", child.id().unwrap());
            assert!(
                Command::new("kill").args(["-s", signal, "--", &group]).status().await.unwrap().success()
            );
        };
        let (code, _, stderr) = someone.asks_until(interrupt).await;
        assert!(code == Some(130) && stderr.contains("interrupted"), "{signal}: {code:?} {stderr}");
        assert_eq!(standing(&subject).await, [None, None], "{signal}");
    }

    // Somebody takes its place: their question stays, and what is left of ours goes.
    let theirs = r#"{"zone":"theirs"}"#;
    let take = async |_: &Child| annotate(&subject, json!({ names::DRY_RUN: theirs })).await;
    let (code, _, stderr) = someone.asks_until(take).await;
    assert!(code == Some(5) && stderr.contains("another one put in its place"), "{code:?} {stderr}");
    assert_eq!(standing(&subject).await, [Some(theirs.to_owned()), None]);
    annotate(&subject, json!({ names::DRY_RUN: null })).await;

    // An operator of before answers, and does not say what.
    let answer = async |_: &Child| plan(&subject, &json!(["nothing would change"])).await;
    let (code, stdout, stderr) = someone.asks_until(answer).await;
    assert_eq!((code, stdout.as_str()), (Some(6), ""), "{stderr}");
    assert!(stderr.contains("too old"), "{stderr}");
    assert_eq!(standing(&subject).await, [None, None]);

    let _operator = subject.rig.start().await;
    subject.carried_out(Phase::Ready).await;
    subject.purge().await;
}
