//! `cloud-aws` against the endpoint of the stack: what EC2 and Route 53 do with our requests, and what we make of their
//! answers. Every test works under tags and names of its own, so that all run at once on one endpoint; faults are
//! narrowed to the test that asks for them.

#![cfg(test)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::cloud_aws::{Aws, Credentials, Settings};
use cloud::{
    ClientToken, Cloud, Error, Instance, InstanceId, InstanceState, Launch, NewVolume, Owner, Protection,
    Role, Select, Tags, UserData, Volume, VolumeId, VolumeKind, VolumeState,
};
use serde_json::{Value, json};
use testkit::eventually;

use crate::endpoint;
use crate::support::stack;

mod groups;
mod instances;
mod records;
mod sharing;
mod snapshots;
mod volumes;

/// How long anything may take, on processors that are busy with other tests. Whoever waits goes on as soon as it is so.
const DEADLINE: Duration = Duration::from_mins(2);

/// One test's corner of a region: a cluster name that nobody else has, and the network of a real one.
struct Corner {
    aws: Arc<dyn Cloud>,
    region: &'static str,
    cluster: String,
    vpc: String,
    zone: String,
    subnet: String,
    image: String,
    hosted_zone: cloud::HostedZoneId,
    dns_suffix: String,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Corner {
    async fn new() -> Self {
        Self::with(|settings| settings).await
    }

    async fn with(change: impl FnOnce(Settings) -> Settings) -> Self {
        // Every cluster has a network of its region, one without controllers too.
        let place = stack().clusters.first().expect("a cluster with a network");
        let (zone, subnet) = place.zones.iter().next().expect("a zone");
        let calls = Arc::<Mutex<Vec<&'static str>>>::default();
        let heard = Arc::clone(&calls);
        let settings = Settings {
            endpoint: Some(stack().aws_endpoint_url.clone()),
            credentials: Credentials::Fixed { key_id: "test".into(), secret: "test".into() },
            on_call: Some(Arc::new(move |report| heard.lock().unwrap().push(report.operation))),
            ..Settings::new(place.region.as_str())
        };
        Self {
            aws: Arc::new(Aws::connect(change(settings)).await),
            region: &place.region,
            cluster: testkit::unique("t"),
            vpc: place.vpc_id.clone(),
            zone: zone.clone(),
            subnet: subnet.clone(),
            image: place.node_image.clone(),
            hosted_zone: place.hosted_zone_id.as_str().into(),
            dns_suffix: place.dns_suffix.clone(),
            calls,
        }
    }

    fn tags(&self, database: &str, role: Role) -> Tags {
        Owner { generation: Some(1), seq: Some(1), ..Owner::new(&self.cluster, database, role) }
            .tags()
            .named(format!("{}-{database}", self.cluster))
    }

    fn token(&self, role: Role, generation: u64) -> ClientToken {
        ClientToken::new(&self.cluster, "db1", role, generation)
    }

    fn launch(&self) -> Launch {
        Launch {
            image: self.image.clone(),
            instance_type: "m5.large".into(),
            subnet: self.subnet.clone(),
            security_groups: Vec::new(),
            user_data: UserData::new(json!({"cluster": self.cluster, "nodeName": "qdb-ä-g1"}).to_string()),
            instance_profile: None,
            protection: Protection::OFF,
            tags: self.tags("db1", Role::Instance),
        }
    }

    async fn run(&self, generation: u64) -> Instance {
        self.aws.run_instance(&self.launch(), &self.token(Role::Instance, generation)).await.unwrap()
    }

    async fn run_until_running(&self, generation: u64) -> InstanceId {
        let id = self.run(generation).await.id;
        self.until_state(&id, InstanceState::Running).await;
        id
    }

    async fn until_state(&self, id: &InstanceId, state: InstanceState) {
        eventually(DEADLINE, &format!("{id} {state}"), async || {
            self.instance(id).await?.state.eq(&state).then_some(())
        })
        .await;
    }

    async fn instance(&self, id: &InstanceId) -> Option<Instance> {
        self.aws.describe_instances(&Select::one(id.clone())).await.unwrap().pop()
    }

    fn new_volume(&self) -> NewVolume {
        NewVolume {
            zone: self.zone.clone(),
            size_gib: 10,
            kind: VolumeKind::Gp3,
            iops: Some(3000),
            throughput: Some(125),
            encrypted: true,
            snapshot: None,
            tags: self.tags("db1", Role::Volume),
        }
    }

    async fn create_volume(&self) -> VolumeId {
        let token = self.token(Role::Volume, 1);
        let id = self.aws.create_volume(&self.new_volume(), &token).await.unwrap().id;
        self.until_volume(&id, |volume| volume.state == VolumeState::Available).await;
        id
    }

    async fn volume(&self, id: &VolumeId) -> Option<Volume> {
        self.aws.describe_volumes(&Select::one(id.clone())).await.unwrap().pop()
    }

    async fn until_volume(&self, id: &VolumeId, holds: impl Fn(&Volume) -> bool) -> Volume {
        eventually(DEADLINE, &format!("{id}"), async || self.volume(id).await.filter(&holds)).await
    }

    async fn end(&self, id: &InstanceId) {
        once_visible(async || self.aws.set_protection(id, Protection::OFF).await).await.unwrap();
        self.aws.terminate_instance(id).await.unwrap();
        self.until_state(id, InstanceState::Terminated).await;
    }

    fn name(&self, label: &str) -> String {
        format!("{label}.{}.{}", self.cluster, self.dns_suffix)
    }

    fn called(&self, operation: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|&&called| called == operation).count()
    }
}

/// A new id is not visible at once: what is refused for that is said again.
async fn once_visible<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
    let until = Instant::now() + DEADLINE;
    loop {
        match call().await {
            Err(Error::NotFound { .. }) if Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            other => return other,
        }
    }
}

/// A fault of the endpoint, switched off when dropped out of use by [`Fault::end`].
struct Fault(String);

impl Fault {
    async fn new(fault: Value) -> Self {
        Self(endpoint::fault(&fault).await)
    }

    async fn end(self) {
        endpoint::end_fault(&self.0).await;
    }
}

/// A zone takes one change after the other, and this suite makes many: a throttled change is said again.
async fn once_unthrottled<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
    let until = Instant::now() + DEADLINE;
    loop {
        match call().await {
            Err(Error::Throttled { .. }) if Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            other => return other,
        }
    }
}
