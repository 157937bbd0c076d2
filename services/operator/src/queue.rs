//! Where looks at databases are asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::runtime::reflector::ObjectRef;
use resources::QuestDB;
use tokio::sync::mpsc;

use crate::store::Key;

/// Asks for looks. Bounded: a watch that is ahead of the controller waits. Before work begins nobody has to be told, and nobody
/// waits: it begins with a look at everything. Clones share it.
#[derive(Clone)]
pub(crate) struct Queue {
    asked: mpsc::Sender<ObjectRef<QuestDB>>,
    open: Arc<AtomicBool>,
}

impl Queue {
    /// One that is not open yet, for so many looks asked for and not begun, and its end.
    pub(crate) fn new(size: usize) -> (Self, mpsc::Receiver<ObjectRef<QuestDB>>) {
        let (asked, incoming) = mpsc::channel(size);
        (Self { asked, open: Arc::default() }, incoming)
    }

    /// Work begins: what is asked for counts. To be called before it is looked what there is, so that whatever changes meanwhile
    /// is either seen then or asked for.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    /// Asks for a look at one. To be called once the stores show what changed.
    pub(crate) async fn ask(&self, resource: ObjectRef<QuestDB>) {
        if self.open.load(Ordering::SeqCst) {
            // Closed only when the program ends.
            let _ = self.asked.send(resource).await;
        }
    }

    /// The same for each of several.
    pub(crate) async fn ask_all(&self, resources: Vec<Key>) {
        for resource in resources {
            // A list tells of each object that there is, before work begins as well.
            if self.open.load(Ordering::SeqCst) {
                self.ask(resource.reference()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn a_standby_holds_no_watch_up_however_much_changes_while_it_waits() {
        let (queue, mut incoming) = Queue::new(1);
        let named = |number: u32| ObjectRef::new(&number.to_string()).within("n");
        let all = futures::stream::iter(0..1_000).for_each(|number| queue.ask(named(number)));
        tokio::time::timeout(Duration::from_secs(30), all).await.unwrap();
        let all = queue.ask_all((0..1_000).map(|number| Key::to(&named(number))).collect());
        tokio::time::timeout(Duration::from_secs(30), all).await.unwrap();
        queue.open();
        queue.ask(named(1_000)).await;
        assert_eq!(incoming.recv().await, Some(named(1_000)), "the first that counts");
    }
}
