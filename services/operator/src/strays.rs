//! Objects of ours that lost the labels by which we watch them, or are called somebody else's by them. The former leave their
//! watch as if they were deleted; the plan would make them again, or, what is worse, call something ended that runs. So
//! whenever something leaves a watch or is called another's, and once after a start, what is missing is asked for by name.
//!
//! What the plan applies it finds under its name anyway; this is for what others make (pod, Node), for what says on which machine
//! a database is, and for the way back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource};
use plan::{Goal, Observed, Subject, Validated};
use resources::{QuestDB, names};
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::error::Error;
use crate::observe::is_settled;
use crate::store::{Key, Store};

/// What is known of a database's objects. Clones share it; losing it costs a look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strays(Arc<Mutex<HashMap<Key, Known>>>);

/// The same of one database.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Something is missing for all we know.
    suspected: bool,
    /// Something has left a watch, or is called another's, and no pass has begun since it was looked for. What is missing after a start
    /// alone may never have been there: another operator makes other objects.
    left: bool,
}

impl Strays {
    /// Something of this resource left a watch, or is called another's.
    pub(crate) fn suspect(&self, resource: &ObjectRef<QuestDB>) {
        self.lock().insert(Key::to(resource), Known { suspected: true, left: true });
    }

    /// What a look was for is to be looked for once more.
    fn suspect_still(&self, resource: &ObjectRef<QuestDB>) {
        self.lock().entry(Key::to(resource)).or_default().suspected = true;
    }

    /// The resource is gone.
    pub(crate) fn forget(&self, resource: &ObjectRef<QuestDB>) {
        self.lock().remove(&Key::to(resource));
    }

    /// Forgets resources that are gone, once more are known of here than there are: what was theirs goes after them, and is suspected to
    /// be missing when nobody is left who would look.
    pub(crate) fn forget_gone(&self, resources: &Store<QuestDB>) {
        let mut known = self.lock();
        if known.len() > resources.count() {
            known.retain(|key, _| resources.has(key));
        }
    }

    /// Nothing is known any more but what was lost: that is looked for in any case.
    pub(crate) fn forget_all(&self) {
        self.lock().retain(|_, known| {
            known.suspected |= known.left;
            known.suspected
        });
    }

    /// Whether something is missing for all we know; nothing is known of a resource that was not looked at since the start.
    pub(crate) fn suspected(&self, resource: &ObjectRef<QuestDB>) -> Option<bool> {
        self.lock().get(&Key::to(resource)).map(|known| known.suspected)
    }

    pub(crate) fn none_left(&self, resource: &ObjectRef<QuestDB>) {
        self.lock().entry(Key::to(resource)).or_default().suspected = false;
    }

    /// Whether something that was seen before is gone, or was when this pass began.
    pub(crate) fn has_lost(&self, resource: &ObjectRef<QuestDB>) -> bool {
        self.lock().get(&Key::to(resource)).is_some_and(|known| known.left)
    }

    /// A pass begins that need not look: what was gone before is put right.
    fn rests(&self, resource: &ObjectRef<QuestDB>) {
        if let Some(known) = self.lock().get_mut(&Key::to(resource)).filter(|known| !known.suspected) {
            known.left = false;
        }
    }

    /// A look begins. What leaves a watch meanwhile is noted for the next one.
    fn look(&self, resource: ObjectRef<QuestDB>) -> Begun {
        self.none_left(&resource);
        Begun { strays: self.clone(), resource, is_done: false }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look that has begun. One that is dropped before it is done, by an error as much as by a panic of its pass, has found nothing out:
/// what may be missing is looked for again.
pub(crate) struct Begun {
    strays: Strays,
    resource: ObjectRef<QuestDB>,
    is_done: bool,
}

impl Begun {
    /// What is missing was looked for. While nothing is done for a resource, what is lost is not put right: it is looked for until the pass
    /// that does.
    pub(crate) fn done(mut self, is_suspended: bool) {
        self.is_done = !(is_suspended && self.strays.has_lost(&self.resource));
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.is_done {
            self.strays.suspect_still(&self.resource);
        }
    }
}

/// A look for what left our watches, if a pass has to take one. To be asked before the watches' stores are read: what leaves them
/// later is noted again, for the next pass.
pub(crate) fn begin(context: &Context, resource: &QuestDB, validated: &Validated) -> Option<Begun> {
    let reference = ObjectRef::from_obj(resource);
    let status = resource.status.as_ref();
    // Of one that never served nothing can be missing, and one at rest was complete when it came to rest.
    let served = status.is_some_and(|status| status.version.is_some());
    let wanted = validated.goal == Goal::Serve;
    let looks = match context.strays.suspected(&reference) {
        Some(suspected) => suspected,
        None => served && (wanted || !is_settled(resource)),
    };
    if !looks {
        context.strays.rests(&reference);
        return None;
    }
    Some(context.strays.look(reference))
}

/// Completes what was observed by what our watches do not show any more, where a pass has to.
pub(crate) async fn find(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
    observed: &mut Observed,
) -> Result<(), Error> {
    let look = Look { context, subject: &validated.subject, resource };
    // What was found is looked for until it is seen again.
    if look.all(validated.goal, observed).await? {
        context.strays.suspect_still(&ObjectRef::from_obj(resource));
    }
    Ok(())
}

/// One look at one database. Each part says whether it found something.
struct Look<'a> {
    context: &'a Context,
    subject: &'a Subject,
    resource: &'a QuestDB,
}

impl Look<'_> {
    async fn all(&self, goal: Goal, observed: &mut Observed) -> Result<bool, Error> {
        // The claim before the pod: it may be all that says whose that is.
        let found = self.node(observed).await? | self.disk(observed).await? | self.pod(observed).await?;
        let found = found | self.controlled(&mut observed.children.stateful_set, &self.subject.name).await?;
        if goal == Goal::Serve {
            return Ok(found);
        }
        Ok(found | self.named(observed).await?)
    }

    async fn live<K>(&self, api: Api<K>, name: &str) -> Result<Option<Arc<K>>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let found = self.context.call("look for what left our watches", api.get_opt(name)).await?;
        Ok(found.map(Arc::new))
    }

    /// What goes with our resource.
    async fn controlled<K>(&self, missing: &mut Option<Arc<K>>, name: &str) -> Result<bool, Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        if missing.is_some() {
            return Ok(false);
        }
        let api = Api::namespaced(self.context.client.clone(), &self.subject.namespace);
        let found: Option<Arc<K>> = self.live(api, name).await?;
        *missing = found.filter(|found| self.subject.holds(found.meta()));
        Ok(missing.is_some())
    }

    /// The pod that has the name, if it is ours.
    async fn pod(&self, observed: &mut Observed) -> Result<bool, Error> {
        let children = &mut observed.children;
        if children.pod.is_some() {
            return Ok(false);
        }
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), &self.subject.namespace);
        let found = self.live(api, &names::pod(&self.subject.name)).await?;
        let claim = children.claim.as_deref();
        let found = found.filter(|found| self.subject.holds(&found.metadata) || mounts_ours(found, claim));
        children.pod = found;
        Ok(children.pod.is_some())
    }

    /// The Node of the machine that serves, or served last; the plan goes by its provider id.
    async fn node(&self, observed: &mut Observed) -> Result<bool, Error> {
        let status = self.resource.status.as_ref();
        let Some(name) = status.and_then(|status| status.node.as_ref()?.name.as_deref()) else {
            return Ok(false);
        };
        let known = &mut observed.children.nodes;
        if known.iter().any(|node| node.metadata.name.as_deref() == Some(name)) {
            return Ok(false);
        }
        let api: Api<Node> = Api::all(self.context.client.clone());
        let found = self.live(api, name).await?;
        known.extend(found.clone());
        Ok(found.is_some())
    }

    async fn named(&self, observed: &mut Observed) -> Result<bool, Error> {
        let name = &self.subject.name;
        let children = &mut observed.children;
        Ok(self.controlled(&mut children.config, &names::config(name)).await?
            | self.controlled(&mut children.service, name).await?
            | self.controlled(&mut children.headless, &names::headless(name)).await?
            | self.controlled(&mut children.secret, &names::credentials(name)).await?)
    }

    /// Disk and claim, which bear no mark: each leads to the other and to the volume in EC2.
    async fn disk(&self, observed: &mut Observed) -> Result<bool, Error> {
        let status = self.resource.status.as_ref().and_then(|status| status.volume.as_ref());
        let volumes = observed.account.volumes.iter().map(|volume| volume.id.as_str());
        let volumes = volumes.chain(status.map(|volume| volume.id.as_str()));
        let disks: Vec<String> = volumes.map(names::persistent_volume).collect();
        let Some(disk) = disks.first() else { return Ok(false) };
        let claim = names::claim(&self.subject.name);
        let children = &mut observed.children;
        let mut any = false;
        if children.persistent_volumes.is_empty() {
            let api: Api<PersistentVolume> = Api::all(self.context.client.clone());
            let found = self.live(api, disk).await?;
            let found = found.filter(|found| self.subject.is_claimant(found));
            any |= found.is_some();
            children.persistent_volumes.extend(found);
        }
        if children.claim.is_none() {
            let api: Api<PersistentVolumeClaim> =
                Api::namespaced(self.context.client.clone(), &self.subject.namespace);
            let found = self.live(api, &claim).await?;
            let leads = |found: &Arc<PersistentVolumeClaim>| {
                let volume = found.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
                volume.is_some_and(|volume| disks.contains(volume))
            };
            children.claim = found.filter(leads);
            any |= children.claim.is_some();
        }
        Ok(any)
    }
}

/// Whether a pod has our claim. The StatefulSet's controller disowns a pod of ours without its labels: it is known by the disk that it
/// holds. A claim that only has the name says nothing: somebody else's StatefulSet may have that of our resource, and a template for
/// claims.
fn mounts_ours(pod: &Pod, ours: Option<&PersistentVolumeClaim>) -> bool {
    ours.and_then(|claim| claim.metadata.name.as_ref()).is_some_and(|ours| mounts(pod, ours))
}

/// Whether a pod has the claim of a name.
pub(crate) fn mounts(pod: &Pod, claim: &str) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .any(|volume| volume.persistent_volume_claim.as_ref().is_some_and(|found| found.claim_name == claim))
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::*;

    #[test]
    fn a_pod_is_known_by_our_claim_and_not_by_the_name_of_one() {
        let claim = |name: &str| {
            let claim = serde_json::json!({ "metadata": { "name": name } });
            serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap()
        };
        let volume =
            serde_json::json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data-a-0" } });
        let pod = |volumes: &[serde_json::Value]| {
            let spec = serde_json::json!({ "containers": [], "volumes": volumes });
            serde_json::from_value::<Pod>(serde_json::json!({ "spec": spec })).unwrap()
        };
        let other = serde_json::json!({ "name": "config", "configMap": { "name": "data-a-0" } });
        let holds = pod(&[other.clone(), volume]);
        assert!(mounts_ours(&holds, Some(&claim("data-a-0"))));
        assert!(!mounts_ours(&holds, None), "whose claim it has nobody knows");
        assert!(!mounts_ours(&holds, Some(&claim("data-b-0"))));
        assert!(
            !mounts_ours(&pod(&[other]), Some(&claim("data-a-0"))) && !mounts_ours(&Pod::default(), None)
        );
    }

    #[test]
    fn what_left_a_watch_is_suspected_until_a_look_found_nothing() {
        let (strays, one) = (Strays::default(), ObjectRef::<QuestDB>::new("a").within("n"));
        assert_eq!(strays.suspected(&one), None);
        strays.none_left(&one);
        assert_eq!(strays.suspected(&one), Some(false));
        strays.clone().suspect(&one);
        assert_eq!(strays.suspected(&one), Some(true));
        strays.forget(&one);
        assert_eq!(strays.suspected(&one), None);
        strays.none_left(&one);
        strays.forget_all();
        assert_eq!(strays.suspected(&one), None, "what left while nobody watched was told by nobody");
        strays.suspect(&one);
        strays.forget_all();
        assert_eq!(strays.suspected(&one), Some(true));
    }

    #[test]
    fn only_what_was_seen_before_is_lost_and_only_until_it_was_put_right() {
        let (strays, one) = (Strays::default(), ObjectRef::<QuestDB>::new("a").within("n"));
        // The first look of all, or one after it that came to nothing.
        drop(strays.look(one.clone()));
        strays.look(one.clone()).done(false);
        assert!(!strays.has_lost(&one), "it may never have been there");
        strays.suspect(&one);
        drop(strays.look(one.clone()));
        strays.look(one.clone()).done(false);
        // A list ends meanwhile, after which everything is looked for once more.
        strays.forget_all();
        assert!(strays.has_lost(&one) && strays.suspected(&one) == Some(true));
        strays.look(one.clone()).done(false);
        strays.rests(&one);
        assert!(!strays.has_lost(&one), "the pass of that look has put it right");
        strays.suspect(&one);
        strays.rests(&one);
        assert!(strays.has_lost(&one) && strays.suspected(&one) == Some(true), "it left meanwhile");
    }

    #[test]
    fn what_is_lost_while_nothing_is_done_is_lost_when_something_is_done_again() {
        let (strays, one) = (Strays::default(), ObjectRef::<QuestDB>::new("a").within("n"));
        let looks = || strays.suspected(&one) == Some(true);
        strays.look(one.clone()).done(true);
        assert!(!looks(), "nothing that anybody saw is lost");
        strays.suspect(&one);
        for _ in 0..3 {
            strays.look(one.clone()).done(true);
            assert!(looks() && strays.has_lost(&one));
        }
        strays.look(one.clone()).done(false);
        assert!(strays.has_lost(&one) && !looks(), "it is being put right");
        strays.rests(&one);
        assert!(!strays.has_lost(&one));
    }

    #[test]
    fn of_resources_that_are_gone_no_more_is_kept_than_there_are_others() {
        let (resources, mut writer) = crate::store::store();
        let there = ObjectRef::<QuestDB>::new("there").within("n");
        let spec = serde_json::json!({ "storage": { "sizeGib": 20 } });
        let mut resource = QuestDB::new("there", serde_json::from_value(spec).unwrap());
        resource.metadata.namespace = Some("n".to_owned());
        writer.take_in(&Event::Apply(Box::new(resource)));
        let strays = Strays::default();
        strays.suspect(&there);
        strays.forget_gone(&resources);
        assert_eq!(strays.suspected(&there), Some(true));
        // What was theirs left its watch after they had.
        for number in 0..100 {
            strays.suspect(&ObjectRef::new(&format!("gone-{number}")).within("n"));
        }
        strays.forget_gone(&resources);
        let kept = strays.lock().len();
        assert_eq!((kept, strays.suspected(&there)), (1, Some(true)));
    }

    #[test]
    fn a_look_that_is_broken_off_has_found_nothing_out() {
        let (strays, one) = (Strays::default(), ObjectRef::<QuestDB>::new("a").within("n"));
        let look = strays.look(one.clone());
        assert_eq!(strays.suspected(&one), Some(false));
        drop(look);
        assert_eq!(strays.suspected(&one), Some(true));
        strays.look(one.clone()).done(false);
        assert_eq!(strays.suspected(&one), Some(false));
        let look = strays.look(one.clone());
        strays.suspect(&one);
        look.done(false);
        assert_eq!(strays.suspected(&one), Some(true), "something left a watch meanwhile");
    }
}
