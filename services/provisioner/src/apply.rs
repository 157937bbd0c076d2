//! The only place that writes to a cluster: one forced server-side apply of the custom resource, and the namespace before
//! it where it is missing. What a resource may become is decided by the API server's rules, not here.

use std::time::Duration;

use domain::Cluster;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use resources::{QuestDB, names};

use crate::classify::{Trouble, Verdict, answer, classify, code};
use crate::decide::Job;
use crate::fleet::Member;
use crate::fleet::breaker::{Answer, Refusal};

/// What an apply came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// The resource holds the instruction.
    Yes,
    /// It does not, for this reason.
    No(Verdict),
    /// The cluster is not to be called now.
    NotTried(Refusal),
}

/// Applies an instruction in its cluster.
pub async fn apply(member: &Member, job: &Job, limit: Duration) -> Applied {
    let client = match member.clients() {
        Ok(clients) => clients.calls,
        Err(trouble) => return Applied::No(Verdict::Park(trouble)),
    };
    let object = render(&member.cluster, job);
    let first = patch(member, &client, job, &object, limit).await;
    if first != Applied::No(Verdict::NoNamespace) {
        return first;
    }
    if let Err(failed) = create_namespace(member, &client, job, limit).await {
        return failed;
    }
    match patch(member, &client, job, &object, limit).await {
        Applied::No(Verdict::NoNamespace) => {
            let message = "the namespace is gone again as soon as it is created";
            Applied::No(Verdict::Park(Trouble::of_resource(code::NAMESPACE, message)))
        }
        second => second,
    }
}

/// The resource that an instruction becomes in a cluster.
pub fn render(cluster: &Cluster, job: &Job) -> QuestDB {
    let instruction = &job.instruction;
    let namespace = cluster.namespace(&instruction.tenant);
    let stamp = resources::render::Instruction {
        id: instruction.id,
        database: instruction.database,
        position: instruction.position,
        hash: instruction.content_hash(),
    };
    // The request's own context and not our span's: applying the record again must not change the resource.
    resources::object(
        &instruction.desired,
        &stamp,
        &instruction.tenant,
        &namespace,
        job.traceparent.as_deref(),
    )
}

async fn patch(
    member: &Member,
    client: &kube::Client,
    job: &Job,
    object: &QuestDB,
    limit: Duration,
) -> Applied {
    let (Some(name), Some(namespace)) = (&object.metadata.name, &object.metadata.namespace) else {
        return Applied::No(Verdict::Refused("the resource has no name".to_owned()));
    };
    let api: Api<QuestDB> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams::apply(names::PROVISIONER).force();
    // The answer's metadata is enough, and is read whatever version of the schema the cluster has.
    let body = Patch::Apply(object);
    match call_within(member, limit, api.patch_metadata(name, &params, &body)).await {
        Ok(answer) if is_of(&answer.metadata, name) => Applied::Yes,
        // Whatever stands before an API server may be content with anything.
        Ok(_) => {
            let message = "what answers is no API server: it does not name the resource";
            let trouble = Trouble::of_cluster(code::UNAVAILABLE, message);
            Applied::No(Verdict::Busy { trouble, after: None })
        }
        Err(Failed::NotTried(refusal)) => Applied::NotTried(refusal),
        // Its time is used up: whoever else waits for this key has waited long enough.
        Err(Failed::Late(trouble)) => Applied::No(Verdict::Park(trouble)),
        Err(Failed::Call(error)) => {
            let instruction = &job.instruction;
            Applied::No(classify(&error, instruction.position, &instruction.content_hash()))
        }
    }
}

/// Whether an answer shows the resource of this name as it is kept. Any document at all can be read as one that shows nothing.
fn is_of(metadata: &ObjectMeta, name: &str) -> bool {
    metadata.name.as_deref() == Some(name) && metadata.resource_version.is_some()
}

async fn create_namespace(
    member: &Member,
    client: &kube::Client,
    job: &Job,
    limit: Duration,
) -> Result<(), Applied> {
    let name = member.cluster.namespace(&job.instruction.tenant);
    let labels = [
        (names::LABEL_TENANT.to_owned(), job.instruction.tenant.to_string()),
        (names::LABEL_MANAGED_BY.to_owned(), names::PROVISIONER.to_owned()),
    ];
    let metadata =
        ObjectMeta { name: Some(name.clone()), labels: Some(labels.into()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let api: Api<Namespace> = Api::all(client.clone());
    let params = PostParams::default();
    match call_within(member, limit, api.create(&params, &namespace)).await {
        Ok(_) => {
            tracing::info!(cluster.name = %member.cluster.id, k8s.namespace = name, "namespace created");
            Ok(())
        }
        // Somebody else was quicker.
        Err(Failed::Call(kube::Error::Api(status))) if status.is_already_exists() => Ok(()),
        Err(Failed::Call(error)) => Err(Applied::No(classify(&error, job.instruction.position, ""))),
        Err(Failed::Late(trouble)) => Err(Applied::No(Verdict::Park(trouble))),
        Err(Failed::NotTried(refusal)) => Err(Applied::NotTried(refusal)),
    }
}

/// Why a call has no result.
pub(crate) enum Failed {
    /// The cluster is not to be called now.
    NotTried(Refusal),
    /// There was no answer in time.
    Late(Trouble),
    /// The API server, or the way to it, says no.
    Call(kube::Error),
}

/// One call within its time, if the cluster's guard lets it through; what came of it moves the breaker.
pub(crate) async fn call_within<T>(
    member: &Member,
    limit: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failed> {
    let entered = member.guard.enter(limit).await.map_err(Failed::NotTried)?;
    match runtime::deadline(limit, "the API server", call).await {
        Ok(Ok(done)) => {
            entered.ended(&Answer::Well);
            Ok(done)
        }
        Ok(Err(error)) => {
            entered.ended(&answer(&error));
            Err(Failed::Call(error))
        }
        Err(late) => {
            let trouble = Trouble::of_cluster(code::UNREACHABLE, late.to_string());
            entered.ended(&Answer::Late(trouble.clone()));
            Err(Failed::Late(trouble))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use domain::ClusterState;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::decide::tests::{RULES, record};
    use crate::decide::{Work, decide};

    pub(crate) fn cluster() -> Cluster {
        Cluster {
            id: "eu-west-1".parse().unwrap(),
            region: "eu-west-1".to_owned(),
            account: "000000000000".to_owned(),
            zones: std::collections::BTreeMap::new(),
            hosted_zone_id: "Z1".to_owned(),
            dns_suffix: "example.com".to_owned(),
            namespace_template: "qdb-{tenant}".to_owned(),
            state: ClusterState::Active,
            credentials: "file:eu-west-1.kubeconfig".to_owned(),
        }
    }

    pub(crate) fn member() -> Member {
        Member::new(cluster(), 4)
    }

    /// Of a server that says the same to everything.
    fn client(says: &Value) -> kube::Client {
        let says = says.to_string();
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let says = says.clone();
            async move { http::Response::builder().status(200).body(Body::from(says.into_bytes())) }
        });
        kube::Client::new(service, "default")
    }

    #[tokio::test]
    async fn only_an_answer_that_names_the_resource_says_that_it_is_applied() {
        let Work::Carry(job) = decide(record(), &RULES) else { panic!("it was not taken") };
        let member = member();
        let object = render(&member.cluster, &job);
        let name = object.metadata.name.clone().unwrap();
        let kept = json!({"metadata": {"name": name, "resourceVersion": "5"}});
        for (says, applied) in [
            (kept, true),
            (json!({"metadata": {"name": "other", "resourceVersion": "5"}}), false),
            (json!({"metadata": {"name": name}}), false),
            (json!({"status": "ok"}), false),
            (json!({}), false),
        ] {
            let limit = Duration::from_secs(20);
            let came = patch(&member, &client(&says), &job, &object, limit).await;
            assert_eq!(came == Applied::Yes, applied, "{says}: {came:?}");
            assert_eq!(matches!(came, Applied::No(Verdict::Busy { .. })), !applied, "{says}: {came:?}");
        }
    }
}
