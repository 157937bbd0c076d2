//! A look at the resource as it is now, right before something is done by its word that cannot be taken back at once. By a cache that
//! stood still it may be wished otherwise by now.

use kube::Api;
use resources::QuestDB;

use super::Pass;
use crate::error::Error;

/// An error unless what the plan was made of is still so: the wish, and of the resource what is taken out of it here. `before` ends the
/// sentence "the resource changed before …".
pub(super) async fn check<T: PartialEq>(
    pass: &Pass<'_>,
    before: &str,
    rests_on: impl Fn(&QuestDB) -> T,
) -> Result<(), Error> {
    let resources: Api<QuestDB> =
        Api::namespaced(pass.context.client.clone(), &pass.validated.subject.namespace);
    let name = &pass.validated.subject.name;
    let now = pass.context.call("read the resource anew", resources.get_opt(name)).await?;
    if now.is_some_and(|now| is_current(pass.resource, &now) && rests_on(&now) == rests_on(pass.resource)) {
        return Ok(());
    }
    Err(Error::Stale { what: format!("the resource changed before {before}") })
}

/// Whether the same is wished of the same object. Pure.
fn is_current(seen: &QuestDB, now: &QuestDB) -> bool {
    let (seen, now) = (&seen.metadata, &now.metadata);
    now.uid == seen.uid
        && now.generation == seen.generation
        && now.deletion_timestamp == seen.deletion_timestamp
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;

    type Change = fn(&mut QuestDB);

    #[test]
    fn only_another_wish_or_another_object_is_not_what_was_seen() {
        let seen: QuestDB = serde_json::from_value(json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
            "metadata": { "name": "a", "namespace": "qdb-a", "uid": "u", "generation": 2 },
            "spec": {
                "version": "9.3.4", "runState": "Paused",
                "compute": { "instanceType": "m7i.large" }, "storage": { "sizeGib": 50 },
            },
        }))
        .unwrap();
        let table: [(&str, Change, bool); 4] = [
            ("a status", |now| now.metadata.resource_version = Some("9".to_owned()), true),
            ("another wish", |now| now.metadata.generation = Some(3), false),
            ("another one of its name", |now| now.metadata.uid = Some("v".to_owned()), false),
            (
                "on its way out",
                |now| now.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)),
                false,
            ),
        ];
        for (what, change, current) in table {
            let mut now = seen.clone();
            change(&mut now);
            assert_eq!(is_current(&seen, &now), current, "{what}");
        }
    }
}
