//! Whether a resource is seen otherwise than it was written, because the definition in the cluster, or whoever wrote it, is of
//! another version than this program. *Invariant:* what is asked for is not guessed of such a one, and it is not written to:
//! the API server stores with every write what it shows, and would forget for good what it only does not show.

use resources::{QuestDB, Readable, names};

/// Why nothing is done for an object that cannot be read in whole, and what to do about it; nothing when it can. Of a kind that has
/// no instruction nothing else is known to be lost.
pub fn unread<K: Readable>(object: &K) -> Option<String> {
    let why = resources::unread(object.meta())?;
    let kind = K::kind(&());
    Some(format!(
        "it cannot be read in whole ({why}): the definition of {kind} in this cluster, or who wrote it, is of another version than \
         this operator. Nothing is done for it, and nothing is written to it, until the definitions (deploy/crds) and the \
         operator are of one version"
    ))
}

/// What is missing of a resource, and what to do about it; nothing when it is as it was written, as far as that can be told.
pub fn misread(resource: &QuestDB) -> Option<String> {
    if let Some(what) = unread(resource) {
        return Some(what);
    }
    let knows = lost_instruction(resource)?;
    Some(format!(
        "its spec has no instruction, and {knows}: the definition of QuestDB in this cluster is older than who wrote it, and drops \
         what it does not know. Nothing is done for it, and nothing is written to it, so that nothing is lost for good: apply the \
         definitions (deploy/crds) that belong to this operator"
    ))
}

/// What knows of an instruction that the spec does not show. The fence lets nobody take one out.
fn lost_instruction(resource: &QuestDB) -> Option<String> {
    if resource.spec.instruction.is_some() {
        return None;
    }
    if let Some(done) = resource.status.as_ref().and_then(|status| status.instruction.as_ref()) {
        return Some(format!("its status tells of one at {}/{}", done.epoch, done.seq));
    }
    let manager = resource.metadata.labels.as_ref()?.get(names::LABEL_MANAGED_BY)?;
    (manager == names::PROVISIONER).then(|| {
        format!(
            "its label {} says that there is one (take it off, if nobody manages it from elsewhere)",
            names::LABEL_MANAGED_BY
        )
    })
}

#[cfg(test)]
mod tests {
    use resources::{InstructionStatus, QuestDBSnapshot, Seen};
    use serde_json::json;

    use super::*;
    use crate::fixture::{plain, resource, value};

    fn with_label(mut resource: QuestDB, manager: &str) -> QuestDB {
        let labels = resource.metadata.labels.get_or_insert_default();
        labels.insert(names::LABEL_MANAGED_BY.to_owned(), manager.to_owned());
        resource
    }

    fn carried_out(mut resource: QuestDB) -> QuestDB {
        let (id, hash) = ("i".to_owned(), "h".to_owned());
        let done = InstructionStatus { id, epoch: 3, seq: 8, render: 1, hash };
        resource.status.get_or_insert_default().instruction = Some(done);
        resource
    }

    #[test]
    fn an_instruction_that_somebody_knows_of_was_lost() {
        for fine in [
            resource(1),
            plain(),
            with_label(carried_out(resource(1)), names::PROVISIONER),
            with_label(plain(), "helm"),
        ] {
            assert_eq!(misread(&fine), None, "{fine:?}");
        }
        let told = misread(&carried_out(plain())).unwrap();
        assert!(told.contains("at 3/8") && told.contains("deploy/crds"), "{told}");
        let told = misread(&with_label(plain(), names::PROVISIONER)).unwrap();
        assert!(told.contains(names::LABEL_MANAGED_BY), "{told}");
    }

    #[test]
    fn what_cannot_be_read_in_whole_says_why() {
        let seen = |value| *serde_json::from_value::<Seen>(value).unwrap().marked();
        assert_eq!(misread(&seen(value(1))), None);
        let mut newer = value(1);
        newer["spec"]["runState"] = json!("Hibernating");
        let told = misread(&seen(newer)).unwrap();
        assert!(told.contains("Hibernating"), "{told}");
        let mut older = value(1);
        older["spec"]["instruction"].as_object_mut().unwrap().remove("seq").unwrap();
        let told = misread(&seen(older)).unwrap();
        assert!(told.contains("missing field `seq`"), "{told}");
        let copy = json!({ "metadata": { "name": "a" }, "spec": { "database": 7 } });
        let copy = *serde_json::from_value::<Seen<QuestDBSnapshot>>(copy).unwrap().marked();
        let told = unread(&copy).unwrap();
        assert!(told.contains("of QuestDBSnapshot in this cluster"), "{told}");
    }
}
