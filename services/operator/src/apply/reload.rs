//! Telling a running QuestDB to read its server.conf again. *Invariant:* its pod says that it runs under other settings only
//! after the process itself has said so.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use plan::{Reload, pod_serves};
use resources::names;
use serde_json::{Value, json};

use super::Pass;
use crate::database::{Door, address};
use crate::error::Error;
use crate::write;

/// Shows the pod the file, has QuestDB read it, asks for what it read, and writes that on the pod. All of it can be done again.
pub(super) async fn reload(pass: &Pass<'_>, reload: &Reload) -> Result<(), Error> {
    let (context, subject) = (pass.context, &pass.validated.subject);
    let stale = |what: String| Error::Stale { what };
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &subject.namespace);
    let name = &reload.pod.name;
    let pod = context.call("look at the pod", pods.get_opt(name)).await?;
    let pod = pod.filter(|pod| pod.metadata.uid.as_ref() == Some(&reload.pod.uid) && pod_serves(pod));
    let pod = pod.ok_or_else(|| stale(format!("the pod {name} does not serve any more")))?;
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let note = async |what, annotations: Value| {
        let body = json!({ "metadata": { "uid": reload.pod.uid, "annotations": annotations } });
        write::merge(context, &pods, name, what, &body).await.map(drop)
    };
    if reload.meanwhile.iter().any(|(key, value)| annotations.get(key) != Some(value)) {
        // The kubelet brings a pod's files up to date when the pod changes, and else about once a minute.
        note("have the pod shown its server.conf", json!(reload.meanwhile)).await?;
    }
    let address = address(&pod).ok_or_else(|| stale(format!("the pod {name} has no address")))?;
    let Some(door) = Door::of(context, subject, address).await? else {
        return Err(stale(format!(
            "Secret {} has no credentials for HTTP, with which QuestDB is told to read server.conf again",
            names::credentials(&subject.name)
        )));
    };
    let missing = context.databases.reload(&door, &reload.settings).await;
    let missing = missing.map_err(Error::database("have QuestDB read server.conf again"))?;
    if missing.is_empty() {
        return note("note what QuestDB has read", json!(reload.annotations)).await;
    }
    if reload.refused.is_some() && annotations.get(names::CONFIG_REFUSED) != reload.refused.as_ref() {
        let refused = json!({ names::CONFIG_REFUSED: reload.refused });
        note("note that QuestDB has not taken its settings over", refused).await?;
    }
    Err(stale(format!(
        "QuestDB has not taken over {}: the file reaches its pod within two minutes; if this stays, QuestDB does not accept a \
         value (kubectl -n {} logs {name} --container questdb says which): correct it before the next start, which would fail on \
         it",
        missing.join(", "),
        subject.namespace
    )))
}
