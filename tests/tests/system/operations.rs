//! What the guide says of a database beside the edits of its spec, by kubectl alone, while it is written to and read from by its name: it
//! is held still with an edit pending, copied by the clock, deleted with a last copy, deleted with its disk kept and made again, and its
//! disk is given to another one. Every acknowledged row is in whatever comes of it.

#![cfg(test)]

use std::time::Duration;

use cloud::{Cloud as _, Error, Select, SnapshotId, SnapshotState, Tags, VolumeSnapshot, key};
use resources::names::condition;
use serde_json::{Value, json};
use testkit::{ClusterFacts, ec2_by_hand, eventually, unique};

use crate::change::Client;
use crate::edits::GUIDE;
use crate::main_job::{Ready, aws, disks, ready_resource, volumes};
use crate::restore::remove;
use crate::states::told;
use crate::support::{ROAD, apply, kubectl, whole};
use crate::upgrade::{NEWER, Used, get};

/// What the guide says of copies.
const SNAPSHOTS: &str = include_str!("../../../deploy/operator/snapshots.md");
/// Between two looks at what comes by the minute: each is a process of kubectl's, and others are at work.
const BEAT: Duration = Duration::from_secs(1);

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether a snapshot is whole, and is to stay.
fn is_kept(snapshot: &Value) -> bool {
    snapshot["status"]["phase"] == "Succeeded" && snapshot["metadata"]["deletionTimestamp"].is_null()
}

/// Takes a tag off, as people do by `aws ec2 delete-tags`.
async fn take_tag_off(home: &ClusterFacts, resource: &str, tag: &str) -> anyhow::Result<String> {
    let parameters = [("ResourceId.1", resource), ("Tag.1.Key", tag)];
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ec2_by_hand(&home.region, "DeleteTags", &parameters).await
}

/// A volume is destroyed; EC2 shows what is gone for a moment longer.
async fn is_gone(home: &ClusterFacts, volume: &str) {
    eventually(ROAD, "no volume left at EC2", async || volumes(home, volume).await.is_empty().then_some(()))
        .await;
}

/// What EC2 shows of a copy.
async fn shown(home: &ClusterFacts, copy: SnapshotId) -> Option<VolumeSnapshot> {
    let (aws, one) = (aws(home).await, Select::one(copy));
    let found = async || aws.describe_snapshots(&one).await.ok();
    eventually(ROAD, "the copy at EC2", found).await.into_iter().next()
}

/// Destroys a copy. It may be done by a request that nobody answered, and that is sent again.
async fn destroy(home: &ClusterFacts, copy: &SnapshotId) {
    let aws = aws(home).await;
    eventually(ROAD, "the end of a copy", async || match aws.delete_snapshot(copy).await {
        Ok(()) | Err(Error::NotFound { .. }) => Some(()),
        Err(_) => None,
    })
    .await;
}

/// A resource goes, and its disk with it, as its policy says.
async fn ends(home: &ClusterFacts, database: &Ready) {
    remove(home, &database.namespace, "questdb", &database.resource).await;
    is_gone(home, &database.volume).await;
}

impl Used {
    /// Gives its resource an annotation, or takes one off, as the guide does.
    async fn annotate(&self, word: &str) {
        let command = format!("kubectl -n data annotate qdb trades {word}\n");
        assert!(GUIDE.contains(&command), "the guide has no such command: {command}");
        let Ready { namespace, resource, .. } = &self.database;
        kubectl(self.home, &["annotate", "qdb", resource, "--namespace", namespace, word]).await.unwrap();
    }

    /// The operator has seen the spec, says that this field of it waits, and that nothing is done.
    async fn waits_with(&self, field: &str) {
        eventually(ROAD, &format!("word that {field} waits"), async || {
            let found = self.read().await;
            let status = &found["status"];
            let is_seen = status["observedGeneration"] == found["metadata"]["generation"];
            let is_pending = status["pending"].as_array()?.iter().any(|change| change["field"] == field);
            let (held, _) = told(self.home, &self.database, condition::RECONCILE_PAUSED).await?;
            (is_seen && is_pending && held == "True").then_some(())
        })
        .await;
    }

    /// A snapshot is asked for each minute, and one of them is kept.
    async fn is_copied_by(&self, schedule: &str) {
        let Ready { namespace, resource, .. } = &self.database;
        let clock = json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDBSnapshotSchedule",
            "metadata": { "name": schedule, "namespace": namespace },
            "spec": { "database": resource, "schedule": "* * * * *", "retention": { "keepLast": 1 } },
        });
        apply(self.home, &clock).await.unwrap();
    }

    /// The snapshots that a schedule made and that are there, as far as the API server answers.
    async fn made_by(&self, schedule: &str) -> Option<Vec<Value>> {
        let namespace = &self.database.namespace;
        let words = ["get", "questdbsnapshots", "--namespace", namespace, "--output", "json"];
        let listed: Value = serde_json::from_str(&kubectl(self.home, &words).await.ok()?).ok()?;
        let begin = format!("{schedule}-");
        let its = listed["items"].as_array()?.iter().filter(|one| name_of(one).starts_with(&begin));
        Some(its.cloned().collect())
    }

    /// The first one that is found whole, with its copy.
    async fn first_copy(&self, schedule: &str) -> Value {
        let mut beat = tokio::time::interval(BEAT);
        let (first, copy) = eventually(ROAD, "a snapshot by the clock", async || {
            beat.tick().await;
            let first = self.made_by(schedule).await?.into_iter().find(is_kept)?;
            // Where all is slow that of the next minute is whole by now, and has taken the place of this one.
            let copy = self.copy_of(&first).await?;
            Some((first, copy))
        })
        .await;
        self.is_whole(&copy);
        first
    }

    /// Others take the place of the first, whose copy goes with it; at no time there is none that is whole.
    async fn next_copy(&self, schedule: &str, first: &Value) {
        let mut beat = tokio::time::interval(BEAT);
        let copy = eventually(ROAD, "another snapshot in place of the first", async || {
            beat.tick().await;
            let made = self.made_by(schedule).await?;
            assert!(made.iter().any(is_kept), "none is left: {made:#?}");
            if made.iter().any(|one| name_of(one) == name_of(first)) {
                return None;
            }
            // Where all is slow that of the next minute is begun by now, and one that takes the place of this one soon.
            self.copy_of(made.iter().rfind(|one| is_kept(one))?).await
        })
        .await;
        self.is_whole(&copy);
        eventually(ROAD, "no copy of the first left at EC2", async || {
            self.copy_of(first).await.is_none().then_some(())
        })
        .await;
    }

    /// The schedule goes, and what it made stays; the names of that.
    async fn is_copied_no_more_by(&self, schedule: &str) -> Vec<String> {
        remove(self.home, &self.database.namespace, "questdbsnapshotschedule", schedule).await;
        let left = eventually(ROAD, "what it made", async || self.made_by(schedule).await).await;
        assert!(left.iter().any(is_kept), "none is left: {left:#?}");
        left.iter().map(|one| name_of(one).to_owned()).collect()
    }

    /// What EC2 shows of the copy that a snapshot stands for.
    async fn copy_of(&self, snapshot: &Value) -> Option<VolumeSnapshot> {
        shown(self.home, SnapshotId::new(snapshot["status"]["snapshotId"].as_str().unwrap())).await
    }

    /// A snapshot that is whole stands for a copy of the disk that is whole.
    async fn has_its_copy(&self, snapshot: &Value) -> VolumeSnapshot {
        let copy = self.copy_of(snapshot).await.unwrap_or_else(|| panic!("no copy: {snapshot:#}"));
        self.is_whole(&copy);
        copy
    }

    /// It is a copy of its disk, and EC2 has finished it.
    fn is_whole(&self, copy: &VolumeSnapshot) {
        let shown = (&copy.state, copy.volume.as_str());
        assert_eq!(shown, (&SnapshotState::Completed, self.database.volume.as_str()), "{copy:?}");
    }

    /// Its resource goes while it is written to, its disk is destroyed, and the last copy of that stays: the name of the snapshot, and
    /// the copy.
    async fn leaves_a_last_copy(&self) -> (String, VolumeSnapshot) {
        self.carry_out("storage: {deletionPolicy: Snapshot}").await;
        self.seen.wrote(20, "before it is deleted with a last copy").await;
        let Ready { id, namespace, resource, volume, .. } = &self.database;
        remove(self.home, namespace, "questdb", resource).await;
        is_gone(self.home, volume).await;

        let shown = "source: { snapshot: trades-33445566-last }";
        assert!(SNAPSHOTS.contains(shown), "the guide calls last copies otherwise");
        let name = format!("{resource}-{}-last", &id[28..]);
        let found = async || get(self.home, "questdbsnapshot", namespace, &name).await;
        let last = eventually(ROAD, "its last copy", found).await;
        assert!(is_kept(&last) && last["spec"]["deletionPolicy"] == "Retain", "{last:#}");
        let copy = self.has_its_copy(&last).await;
        (name, copy)
    }

    /// Its resource goes, and its disk is there and on no machine. Its name leads nowhere.
    async fn leaves_its_disk(&self) {
        let Ready { namespace, resource, volume, .. } = &self.database;
        remove(self.home, namespace, "questdb", resource).await;
        let kept = volumes(self.home, volume).await;
        assert!(kept.len() == 1 && kept[0].attachments.is_empty(), "{kept:?}");
        assert_eq!(self.records(&self.host).await, [], "it keeps its name");
    }

    /// The same resource is made again, by hand: it is the same database, on the disk that it left, and whoever came in does so again.
    async fn is_made_again(&mut self, wished: &Value) {
        apply(self.home, wished).await.unwrap();
        let before = &self.database;
        let again = ready_resource(self.home, &before.namespace, &before.resource).await;
        assert_eq!((&again.id, &again.volume), (&before.id, &before.volume));
        assert_eq!(again.password, before.password, "whoever came in before does not any more");
        let disks = disks(self.home, &again.id).await;
        assert_eq!(disks.len(), 1, "{disks:#?}");
        self.database = again;
        self.seen.wrote(20, "after its resource was made again").await;
    }

    /// Somebody who may write tags in AWS gives its disk to another resource, as the guide does.
    async fn gives_its_disk_to(&self, heir: &str) {
        let given = format!("--tags Key={},Value=eu-west-1/data/adopted\n", key::FOR);
        let taken =
            format!("aws ec2 delete-tags --resources vol-0123456789abcdef0 --tags Key={}\n", key::DATABASE);
        assert!(GUIDE.contains(&given) && GUIDE.contains(&taken), "the guide gives disks away otherwise");
        let Ready { namespace, volume, .. } = &self.database;
        let named = Tags::new().with(key::FOR, format!("{}/{namespace}/{heir}", self.home.name));
        let aws = aws(self.home).await;
        eventually(ROAD, "the tag of the heir", async || {
            aws.create_tags(&[volume.as_str()], &named).await.ok()
        })
        .await;
        eventually(ROAD, "its own tag off", async || {
            take_tag_off(self.home, volume, key::DATABASE).await.ok()
        })
        .await;
        let disk = volumes(self.home, volume).await.remove(0);
        assert_eq!(disk.tags.get(key::DATABASE), None, "{disk:?}");
    }

    /// Another database beside it, whose disk comes from there, has every row that was acknowledged, once.
    async fn goes_on_as(&self, name: &str, source: &Value) -> Ready {
        let namespace = &self.database.namespace;
        let wished = json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "storage": { "sizeGib": 20, "deletionPolicy": "Delete", "source": source } },
        });
        apply(self.home, &wished).await.unwrap();
        let other = ready_resource(self.home, namespace, name).await;
        assert_ne!(other.id, self.database.id, "it is the same database");
        assert_ne!(other.password, self.database.password, "it has no credentials of its own");
        let host = format!("{name}.{}", self.home.dns_suffix);
        self.seen.all_there(Client::of(self.home, &other, &host).await).await;
        other
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_is_held_still_copied_by_the_clock_and_deleted_with_a_last_copy_that_has_every_row() {
    let _whole = whole().await;
    let mut used = Used::begin(NEWER).await;
    let before = used.pod().await;
    used.annotate("crd.questdb.io/pause-reconcile=true").await;
    used.patch(&json!({ "restartNonce": "monday" })).await;
    used.waits_with("/spec/restartNonce").await;
    // Schedules go on meanwhile, and until a snapshot is whole the operator has time enough for what it is not to do.
    let schedule = unique("clock");
    used.is_copied_by(&schedule).await;
    let first = used.first_copy(&schedule).await;
    used.waits_with("/spec/restartNonce").await;
    assert_eq!(used.pod().await, before, "it was restarted");
    used.seen.wrote(20, "while nothing was done for it").await;

    used.annotate("crd.questdb.io/pause-reconcile-").await;
    // It is written already, and only waited for.
    used.edit("restartNonce: monday").await;
    assert_ne!(used.pod().await, before, "it was not restarted");
    eventually(ROAD, "word that it is looked after", async || {
        told(used.home, &used.database, condition::RECONCILE_PAUSED).await.filter(|(held, _)| held == "False")
    })
    .await;
    used.next_copy(&schedule, &first).await;
    let mut copies = used.is_copied_no_more_by(&schedule).await;

    let (last, copy) = used.leaves_a_last_copy().await;
    used.is_left_alone().await;
    let other = used.goes_on_as(&unique("restored"), &json!({ "snapshot": last })).await;
    let disk = volumes(used.home, &other.volume).await.remove(0);
    assert_eq!(disk.snapshot.as_deref(), Some(copy.id.as_str()));
    ends(used.home, &other).await;
    copies.push(last);
    used.goes(&copies).await;
    assert!(shown(used.home, copy.id.clone()).await.is_some(), "it went with its object");
    destroy(used.home, &copy.id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_a_deletion_kept_comes_back_with_its_resource_and_then_goes_to_another_with_every_row() {
    let _whole = whole().await;
    let mut used = Used::begin(NEWER).await;
    used.carry_out("storage: {deletionPolicy: Retain}").await;
    let found = used.read().await;
    let wished = json!({
        "apiVersion": found["apiVersion"], "kind": found["kind"],
        "metadata": { "name": used.database.resource, "namespace": used.database.namespace },
        "spec": found["spec"],
    });
    used.seen.wrote(20, "before it is deleted").await;
    used.leaves_its_disk().await;
    used.is_made_again(&wished).await;

    used.comes_to_rest().await;
    used.leaves_its_disk().await;
    let heir = unique("adopted");
    used.gives_its_disk_to(&heir).await;
    let other = used.goes_on_as(&heir, &json!({ "volumeId": used.database.volume })).await;
    assert_eq!(other.volume, used.database.volume);
    // It is the heir's own now.
    ends(used.home, &other).await;
    used.goes(&[]).await;
}
