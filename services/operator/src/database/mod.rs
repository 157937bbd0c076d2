//! QuestDB itself, asked over its HTTP port: whether a checkpoint holds it, to make one, to release it, to read its server.conf
//! again, which keys of that it lists, and which tables it has suspended. Nothing else is ever said to a database from here.
//!
//! The pod is reached at its own address, so the operator must have a way there: as a pod of the same network, or from
//! an address that `--operator-cidrs` names. The API server's proxy is no way: it keeps the header with the credentials.

mod answer;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use plan::snapshot::Held;
use plan::{Setting, Subject, SuspendedTables};
use resources::names::{self, port};

use crate::context::Context;

/// How long a question may take.
const QUESTION: Duration = Duration::from_secs(5);
/// How long it may take to read its settings.
const RELOAD: Duration = Duration::from_secs(10);
/// How long it may take to go on.
const RELEASE: Duration = Duration::from_secs(30);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);
/// No answer of what is asked here is longer.
const LONGEST: usize = 64 * 1024;
/// How many tables that are suspended are told by name.
const NAMED: usize = 3;

/// What did not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No answer, or none in time. Whether it was done is unknown.
    #[error("QuestDB at {address} does not answer")]
    Silent {
        /// Where it was asked.
        address: IpAddr,
        /// Why not.
        #[source]
        source: reqwest::Error,
    },
    /// The credentials of the Secret are not those of the process.
    #[error("QuestDB at {address} does not accept the credentials of its Secret")]
    Denied {
        /// Where it was asked.
        address: IpAddr,
    },
    /// It answered, and refused.
    #[error("QuestDB refused: {message}")]
    Refused {
        /// Its words.
        message: String,
    },
    /// It answered something else than expected.
    #[error("QuestDB's answer cannot be read (HTTP {status})")]
    Unreadable {
        /// Status of the answer.
        status: u16,
    },
}

/// A process and how to enter.
pub(crate) struct Door {
    pub(crate) address: IpAddr,
    user: String,
    password: String,
    /// The version of the Secret that says so.
    pub(crate) version: Option<String>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Door {
    /// To the process of a database at an address; none while its Secret has no user and password of its HTTP port.
    pub(crate) async fn of(
        context: &Context,
        subject: &Subject,
        address: IpAddr,
    ) -> Result<Option<Self>, crate::error::Error> {
        let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &subject.namespace);
        let name = names::credentials(&subject.name);
        let secret = context.call("read the credentials", secrets.get_opt(&name)).await?;
        let found = secret.and_then(|secret| Some((credentials(subject, &secret)?, secret.metadata)));
        Ok(found.map(|((user, password), metadata)| Self {
            address,
            user,
            password,
            version: metadata.resource_version,
        }))
    }
}

/// User and password of the HTTP port, by the Secret of a database. Should somebody have taken its labels off, it is known by its mark:
/// of a database for which nothing is done they are not put back, and it may be held.
fn credentials(subject: &Subject, secret: &Secret) -> Option<(String, String)> {
    let data = secret.data.as_ref().filter(|_| subject.holds(&secret.metadata))?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    text(names::secret::HTTP_USER).zip(text(names::secret::HTTP_PASSWORD))
}

/// Where a pod's process is reached.
pub(crate) fn address(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

/// The same, if it is the one of this uid: another one that has taken its place by now is not the one that was seen.
pub(crate) fn address_of(pod: &Pod, uid: &str) -> Option<IpAddr> {
    address(pod).filter(|_| pod.metadata.uid.as_deref() == Some(uid))
}

/// Where the pod of this uid is reached, as the API server has it now: what is kept of it may be of before, and somebody else may have its
/// address since. None where it is there no more.
pub(crate) async fn address_now(
    context: &Context,
    subject: &Subject,
    uid: &str,
) -> Result<Option<IpAddr>, crate::error::Error> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &subject.namespace);
    let pod = context.call("look at the pod", pods.get_opt(&names::pod(&subject.name))).await?;
    Ok(pod.and_then(|pod| address_of(&pod, uid)))
}

/// A text in SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Asks databases.
#[derive(Clone, Debug)]
pub(crate) struct Databases(reqwest::Client);

impl Databases {
    /// Nothing is sent yet.
    pub(crate) fn new() -> Result<Self, reqwest::Error> {
        // Credentials go to that address and to no other: no proxy, no redirection.
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        client.connect_timeout(CONNECT).build().map(Self)
    }

    /// The checkpoint that holds it, if one does.
    pub(crate) async fn held(&self, door: &Door) -> Result<Option<Held>, Error> {
        let question = "SELECT in_progress, started_at, now() FROM checkpoint_status()";
        let (status, body) = self.ask(door, question, QUESTION).await?;
        answer::checkpoint(status, &body)
    }

    /// CHECKPOINT CREATE. Refused while there is one, and given up by QuestDB itself where it does not come to a stand within its
    /// `query.timeout`, which is a minute unless `spec.config` says otherwise.
    pub(crate) async fn hold(&self, door: &Door, limit: Duration) -> Result<(), Error> {
        let (status, body) = self.ask(door, "CHECKPOINT CREATE", limit).await?;
        answer::done(status, &body)
    }

    /// CHECKPOINT RELEASE. Repeating it is harmless.
    pub(crate) async fn release(&self, door: &Door) -> Result<(), Error> {
        let (status, body) = self.ask(door, "CHECKPOINT RELEASE", RELEASE).await?;
        answer::done(status, &body)
    }

    /// Has it read its server.conf again, and returns the keys among these that it does not have at the value that they are to
    /// have: because it was not shown the file yet, or because it did not accept it.
    pub(crate) async fn reload(&self, door: &Door, settings: &[Setting]) -> Result<Vec<String>, Error> {
        let (status, body) = self.ask(door, "SELECT reload_config()", RELOAD).await?;
        // Whether the file was another one than before: of one that was read before, the look below tells.
        answer::told(status, &body)?;
        let keys: Vec<String> = settings.iter().map(|setting| quoted(&setting.key)).collect();
        let question = format!(
            "SELECT property_path, value, value_source FROM (SHOW PARAMETERS) WHERE property_path IN ({})",
            keys.join(", ")
        );
        let (status, body) = self.ask(door, &question, QUESTION).await?;
        answer::missing(status, &body, settings)
    }

    /// The keys of server.conf that it lists: those that it has read, whether the file has them or not.
    pub(crate) async fn keys(&self, door: &Door) -> Result<BTreeSet<String>, Error> {
        let (status, body) = self.ask(door, "SELECT property_path FROM (SHOW PARAMETERS)", QUESTION).await?;
        answer::keys(status, &body)
    }

    /// Which WAL tables it has suspended: the first by name, and how many more.
    pub(crate) async fn suspended(&self, door: &Door) -> Result<SuspendedTables, Error> {
        let all = "FROM wal_tables() WHERE suspended";
        let question = format!(
            "SELECT name, total FROM (SELECT name {all} ORDER BY name LIMIT {NAMED}) CROSS JOIN (SELECT count() total {all})"
        );
        let (status, body) = self.ask(door, &question, QUESTION).await?;
        answer::suspended(status, &body)
    }

    /// QuestDB is not told how long a statement may take: it keeps the first `Statement-Timeout` that it hears on a connection, and has
    /// later connections begin with it, so that it would give up what clients ask by ours (9.3.2, 9.3.4).
    async fn ask(&self, door: &Door, statement: &str, limit: Duration) -> Result<(u16, Vec<u8>), Error> {
        let Door { address, user, password, .. } = door;
        let silent = |source| Error::Silent { address: *address, source };
        let host = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let request = self.0.get(format!("http://{host}:{}/exec", port::HTTP)).query(&[("query", statement)]);
        // One that has gone without a word is noticed before: the client has the other side asked whether it is alive (keep-alive).
        let sent = request.basic_auth(user, Some(password)).timeout(limit).send();
        let mut response = sent.await.map_err(|error| silent(error.without_url()))?;
        let status = response.status().as_u16();
        let denied = || Error::Denied { address: *address };
        if status == 401 {
            return Err(denied());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| silent(error.without_url()))? {
            if body.len() + chunk.len() > LONGEST {
                return Err(Error::Unreadable { status });
            }
            body.extend_from_slice(&chunk);
        }
        // Whoever is known and may not do what it asks for, as where `http.security.readonly` is set, is told so in words.
        if status == 403 && !answer::has_words(&body) {
            return Err(denied());
        }
        Ok((status, body))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use resources::names::{LABEL_DATABASE, LABEL_NAME, LABEL_NAMESPACE};
    use serde_json::{Value, json};

    use super::*;

    impl Door {
        /// One that leads to nobody, by the first version of a Secret.
        pub(crate) fn played(password: &str) -> Self {
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            Self {
                address,
                user: String::new(),
                password: password.to_owned(),
                version: Some("1".to_owned()),
            }
        }
    }

    #[test]
    fn the_secret_of_a_database_opens_it_without_its_labels_and_that_of_others_does_not() {
        let subject = Subject {
            cluster: "eu".to_owned(),
            namespace: "ns".to_owned(),
            name: "trades".to_owned(),
            uid: "u".to_owned(),
            database: "db".to_owned(),
        };
        let labelled = |of: &str| json!({ LABEL_NAME: "trades", LABEL_NAMESPACE: "ns", LABEL_DATABASE: of });
        let marked = |uid: &str| json!({ names::RESOURCE: uid });
        let both = json!({ names::secret::HTTP_USER: "YQ==", names::secret::HTTP_PASSWORD: "Yg==" });
        for (labels, annotations, data, opens) in [
            (labelled("db"), marked("u"), &both, true),
            // Kept beside its disk.
            (labelled("db"), Value::Null, &both, true),
            (Value::Null, marked("u"), &both, true),
            (labelled("other"), marked("other"), &both, false),
            (Value::Null, Value::Null, &both, false),
            (labelled("db"), marked("u"), &json!({ names::secret::HTTP_USER: "YQ==" }), false),
        ] {
            let metadata = json!({ "labels": labels, "annotations": annotations });
            let secret = serde_json::from_value(json!({ "metadata": metadata, "data": data })).unwrap();
            let found = credentials(&subject, &secret);
            assert_eq!(found, opens.then(|| ("a".to_owned(), "b".to_owned())), "{metadata} {data}");
        }
    }

    #[test]
    fn only_the_pod_that_was_seen_is_asked() {
        for (found, at, is_asked) in [
            (Some("one"), Some("10.0.0.1"), true),
            (Some("one"), None, false),
            (Some("other"), Some("10.0.0.1"), false),
            (None, Some("10.0.0.1"), false),
        ] {
            let pod = json!({ "metadata": { "uid": found }, "status": { "podIP": at } });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(address_of(&pod, "one").is_some(), is_asked, "{found:?} {at:?}");
        }
    }
}
