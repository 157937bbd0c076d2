//! All pods of the cluster that are bound to a node, by node: what a watch tells, handed to whoever runs that node.
//! Holds what was last seen; decides nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use tokio::sync::watch;

/// Pods of one node, by uid.
pub type NodePods = Arc<BTreeMap<String, Arc<Pod>>>;

/// The index. Cheap to clone; clones share one content.
#[derive(Clone, Debug)]
pub struct PodIndex {
    nodes: Arc<Mutex<HashMap<String, watch::Sender<NodePods>>>>,
    complete: watch::Sender<bool>,
}

impl Default for PodIndex {
    fn default() -> Self {
        Self { nodes: Arc::default(), complete: watch::Sender::new(false) }
    }
}

impl PodIndex {
    /// The pods of a node, now and whenever they change.
    pub fn subscribe(&self, node: &str) -> watch::Receiver<NodePods> {
        self.with(|nodes| sender(nodes, node).subscribe())
    }

    /// Becomes true with the first whole list: before it, absence means nothing.
    pub fn complete(&self) -> watch::Receiver<bool> {
        self.complete.subscribe()
    }

    /// Takes in a watch until it ends.
    pub async fn follow(
        &self,
        events: impl Stream<Item = watcher::Result<watcher::Event<Pod>>> + Send,
    ) -> Result<(), watcher::Error> {
        let mut events = std::pin::pin!(events);
        let mut list = Vec::new();
        while let Some(event) = events.try_next().await? {
            match event {
                watcher::Event::Init => list.clear(),
                watcher::Event::InitApply(pod) => list.push(pod),
                watcher::Event::InitDone => self.replace(std::mem::take(&mut list)),
                watcher::Event::Apply(pod) => self.apply(pod),
                watcher::Event::Delete(pod) => self.delete(&pod),
            }
        }
        Ok(())
    }

    /// A pod is there, or changed.
    pub fn apply(&self, pod: Pod) {
        let (Some(node), Some(uid)) = (node_of(&pod), pod.metadata.uid.clone()) else { return };
        self.with(|nodes| {
            sender(nodes, &node).send_modify(|pods| {
                Arc::make_mut(pods).insert(uid, Arc::new(pod));
            });
        });
    }

    /// A pod is gone.
    pub fn delete(&self, pod: &Pod) {
        let (Some(node), Some(uid)) = (node_of(pod), pod.metadata.uid.as_ref()) else { return };
        self.with(|nodes| {
            sender(nodes, &node).send_if_modified(|pods| Arc::make_mut(pods).remove(uid).is_some());
        });
    }

    /// These are all pods there are.
    pub fn replace(&self, all: Vec<Pod>) {
        let mut by_node: HashMap<String, BTreeMap<String, Arc<Pod>>> = HashMap::new();
        for pod in all {
            if let (Some(node), Some(uid)) = (node_of(&pod), pod.metadata.uid.clone()) {
                by_node.entry(node).or_default().insert(uid, Arc::new(pod));
            }
        }
        self.with(|nodes| {
            for (node, sender) in nodes.iter() {
                let pods = by_node.remove(node).unwrap_or_default();
                sender.send_replace(Arc::new(pods));
            }
            for (node, pods) in by_node {
                sender(nodes, &node).send_replace(Arc::new(pods));
            }
        });
        self.complete.send_replace(true);
    }

    fn with<T>(&self, body: impl FnOnce(&mut HashMap<String, watch::Sender<NodePods>>) -> T) -> T {
        body(&mut self.nodes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn sender<'a>(
    nodes: &'a mut HashMap<String, watch::Sender<NodePods>>,
    node: &str,
) -> &'a watch::Sender<NodePods> {
    nodes.entry(node.to_owned()).or_insert_with(|| watch::Sender::new(NodePods::default()))
}

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn pod(uid: &str, node: Option<&str>) -> Pod {
        let mut pod = fixture::pod();
        pod.metadata.uid = Some(uid.into());
        pod.spec.as_mut().unwrap().node_name = node.map(str::to_owned);
        pod
    }

    fn uids(pods: &watch::Receiver<NodePods>) -> Vec<String> {
        pods.borrow().keys().cloned().collect()
    }

    #[tokio::test]
    async fn a_node_sees_its_pods_and_no_others() {
        let index = PodIndex::default();
        let one = index.subscribe("one");
        assert!(!*index.complete().borrow());
        let events = [
            watcher::Event::Init,
            watcher::Event::InitApply(pod("a", Some("one"))),
            watcher::Event::InitApply(pod("b", Some("two"))),
            watcher::Event::InitApply(pod("c", None)),
            watcher::Event::InitDone,
            watcher::Event::Apply(pod("d", Some("one"))),
            watcher::Event::Delete(pod("a", Some("one"))),
        ];
        Box::pin(index.follow(futures::stream::iter(events.map(Ok)))).await.unwrap();
        assert_eq!(uids(&one), ["d"]);
        assert_eq!(uids(&index.subscribe("two")), ["b"]);
        assert!(*index.complete().borrow());
    }

    #[test]
    fn a_new_list_replaces_what_was_missed() {
        let index = PodIndex::default();
        index.apply(pod("a", Some("one")));
        let one = index.subscribe("one");
        index.replace(vec![pod("b", Some("two"))]);
        assert!(uids(&one).is_empty());
        assert_eq!(uids(&index.subscribe("two")), ["b"]);
    }
}
