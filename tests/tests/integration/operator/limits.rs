//! Disks that EBS does not allow: the definition, what API and operator check a wish by, and EC2 draw the line in one place, so that
//! nobody is promised a disk that EC2 refuses for good, and nobody is denied one. EC2's part is the endpoint's, of new disks and of
//! changes.

use cloud::{ClientToken, Error, NewVolume, Owner, Role, VolumeChange, VolumeId, VolumeState};
use domain::catalogue;
use kube::Api;
use kube::api::PostParams;
use resources::QuestDB;
use serde_json::json;
use testkit::eventually;

use super::rig::{PATIENCE, Rig, patiently, refusal};

/// A disk that somebody wishes for.
struct Row {
    kind: &'static str,
    size_gib: u32,
    iops: u32,
    throughput: u32,
    /// The field that is refused, if one is.
    refused: Option<&'static str>,
}

const SIZE: Option<&str> = Some("sizeGib");
const IOPS: Option<&str> = Some("iops");
const THROUGHPUT: Option<&str> = Some("throughput");

/// On both sides of each line. Sizes that EBS has and that are not on offer are in none.
fn rows() -> Vec<Row> {
    let row = |kind, size_gib, iops, throughput, refused| Row { kind, size_gib, iops, throughput, refused };
    vec![
        row("gp3", 10, 3_000, 125, None),
        row("gp3", 10, 5_000, 1_250, None),
        row("gp3", 10, 3_000, 750, None),
        row("gp3", 160, 80_000, 2_000, None),
        row("gp3", 0, 3_000, 125, SIZE),
        row("gp3", 65_537, 3_000, 125, SIZE),
        row("gp3", 10, 2_999, 125, IOPS),
        row("gp3", 10, 5_001, 125, IOPS),
        row("gp3", 160, 80_001, 125, IOPS),
        row("gp3", 10, 3_000, 124, THROUGHPUT),
        row("gp3", 10, 3_000, 751, THROUGHPUT),
        row("gp3", 10, 5_000, 1_251, THROUGHPUT),
        row("gp3", 160, 80_000, 2_001, THROUGHPUT),
        row("io2", 10, 100, 125, None),
        row("io2", 10, 10_000, 125, None),
        row("io2", 256, 256_000, 125, None),
        row("io2", 3, 3_000, 125, SIZE),
        row("io2", 10, 99, 125, IOPS),
        row("io2", 10, 10_001, 125, IOPS),
        row("io2", 300, 256_001, 125, IOPS),
    ]
}

impl Row {
    /// The fields that the definition refuses.
    async fn by_definition(&self, rig: &Rig) -> Vec<String> {
        let mut object = rig.managed("limits", 1);
        object["spec"]["storage"] = json!({
            "type": self.kind, "sizeGib": self.size_gib, "iops": self.iops, "throughput": self.throughput,
        });
        let api: Api<QuestDB> = Api::namespaced(rig.provisioner.clone(), &rig.namespace);
        let rehearsed = PostParams { dry_run: true, ..PostParams::default() };
        let answer = api.create(&rehearsed, &serde_json::from_value(object).unwrap()).await;
        if answer.is_ok() {
            return Vec::new();
        }
        let status = refusal(answer);
        assert_eq!(status.code, 422, "{}: {status:?}", self.words());
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        let field = |field: &str| field.strip_prefix("spec.storage.").map(ToOwned::to_owned);
        causes.iter().filter_map(|cause| field(&cause.field)).collect()
    }

    /// The fields that the catalogue refuses, by which requests and resources are checked.
    fn by_catalogue(&self) -> Vec<String> {
        let (least, most) = catalogue::SIZE_GIB;
        if !(least..=most).contains(&self.size_gib) {
            return vec!["sizeGib".to_owned()];
        }
        let limits = catalogue::volume_limits(self.kind).unwrap();
        let refusals = limits.refusals(self.size_gib, self.iops, self.throughput);
        refusals.into_iter().map(|(field, _)| field.to_owned()).collect()
    }

    /// Whether EC2 refuses such a disk, and a disk of somebody to become one.
    async fn by_ec2(&self, rig: &Rig, number: u64, base: &VolumeId) -> [bool; 2] {
        let throughput = (self.kind == "gp3").then_some(self.throughput);
        let new = NewVolume {
            size_gib: self.size_gib,
            kind: self.kind.into(),
            iops: Some(self.iops),
            throughput,
            ..plain(rig)
        };
        let change = VolumeChange {
            size_gib: Some(self.size_gib),
            kind: Some(self.kind.into()),
            iops: Some(self.iops),
            throughput,
        };
        let token = token(rig, number);
        let made = patiently(|| async { unless_throttled(rig.aws.create_volume(&new, &token).await) }).await;
        let changed = patiently(|| async { unless_throttled(rig.aws.modify_volume(base, &change).await) });
        [self.is_refused(made), self.is_refused(changed.await)]
    }

    fn is_refused<T>(&self, answer: Result<T, Error>) -> bool {
        let Err(error) = answer else { return false };
        assert_eq!(error.category(), "invalid", "{}: {error:?}", self.words());
        true
    }

    fn words(&self) -> String {
        let Self { kind, size_gib, iops, throughput, .. } = self;
        format!("{kind} of {size_gib} GiB with {iops} iops and {throughput} MiB/s")
    }
}

/// An answer, or that there is none yet.
fn unless_throttled<T>(answer: Result<T, Error>) -> Result<Result<T, Error>, Error> {
    match answer {
        Err(error @ Error::Throttled { .. }) => Err(error),
        answer => Ok(answer),
    }
}

fn token(rig: &Rig, number: u64) -> ClientToken {
    ClientToken::new(&rig.cluster, "limits", Role::Volume, number)
}

/// The smallest disk on offer.
fn plain(rig: &Rig) -> NewVolume {
    NewVolume {
        zone: rig.zones().pop().unwrap(),
        size_gib: catalogue::SIZE_GIB.0,
        kind: "gp3".into(),
        iops: Some(catalogue::DEFAULT_IOPS),
        throughput: Some(catalogue::DEFAULT_THROUGHPUT),
        encrypted: true,
        snapshot: None,
        tags: Owner::new(&rig.cluster, "limits", Role::Volume).tags(),
    }
}

/// All of so many disks, once they can be changed and deleted.
async fn available(rig: &Rig, number: usize) -> Vec<VolumeId> {
    eventually(PATIENCE, &format!("{number} disks"), async || {
        let all = rig.volumes().await;
        let ready = all.iter().all(|volume| volume.state == VolumeState::Available);
        (ready && all.len() == number).then(|| all.into_iter().map(|volume| volume.id).collect())
    })
    .await
}

#[tokio::test]
async fn whoever_checks_a_disk_draws_the_line_where_ec2_draws_it() {
    let (rig, rows) = (Rig::new().await, rows());
    // One for each change that is taken: EC2 takes no other for a while. Those that are refused share one.
    let taken = rows.iter().filter(|row| row.refused.is_none()).count();
    let new = plain(&rig);
    for number in 0..=taken {
        let once = token(&rig, u64::try_from(number).unwrap());
        patiently(|| rig.aws.create_volume(&new, &once)).await;
    }
    let mut bases = available(&rig, taken + 1).await;
    let shared = bases.pop().unwrap();
    for (number, row) in (1_000..).zip(&rows) {
        let base = if row.refused.is_none() { bases.pop().unwrap() } else { shared.clone() };
        let (defined, checked) = (row.by_definition(&rig).await, row.by_catalogue());
        let wanted = row.refused.is_some();
        assert_eq!(row.by_ec2(&rig, number, &base).await, [wanted; 2], "{}", row.words());
        for fields in [defined, checked] {
            let names = row.refused.is_none_or(|field| fields.iter().any(|found| found == field));
            assert!(names && fields.is_empty() != wanted, "{}: {fields:?}", row.words());
        }
    }
    for volume in available(&rig, 2 * taken + 1).await {
        patiently(|| rig.aws.delete_volume(&volume)).await;
    }
    rig.end().await;
}
