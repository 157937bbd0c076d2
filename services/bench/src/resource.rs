//! The bare API server: one apply, one status patch, and how long until a watch tells. In a namespace that the product
//! does not use, with resources that it does not speak of.

use std::time::Instant;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use resources::{QuestDB, names};
use serde_json::json;
use testkit::{Out, Server};

use crate::ground::Ground;
use crate::pace;
use crate::samples::Samples;
use crate::specimen::Specimen;
use crate::watch::Watch;

const NAMESPACE: &str = "bench-floor";

/// The bare API server, given resources that are like one of the product's.
pub(crate) struct Floor<'a> {
    ground: &'a Ground,
    specimen: &'a Specimen,
    /// As the provisioner, whose rights are checked in the product too.
    api: Api<QuestDB>,
    /// While it stands still, resources may carry an instruction: nobody tells of them.
    stands: Option<Out>,
}

impl<'a> Floor<'a> {
    /// Makes the namespace, empty; its resources are strangers, as the product goes on beside it.
    pub(crate) async fn prepare(ground: &'a Ground, specimen: &'a Specimen) -> anyhow::Result<Self> {
        let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        match Api::all(ground.admin.clone()).create(&PostParams::default(), &namespace).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error).context("making a namespace"),
        }
        let provisioner = testkit::client(&ground.cluster.provisioner_kubeconfig).await?;
        let api = Api::namespaced(provisioner, NAMESPACE);
        let floor = Self { ground, specimen, api, stands: None };
        floor.clear().await?;
        Ok(floor)
    }

    /// The same without the product: its provisioner is stopped meanwhile, and the bodies are the product's to the last field.
    pub(crate) async fn bare(ground: &'a Ground, specimen: &'a Specimen) -> anyhow::Result<Self> {
        let floor = Self::prepare(ground, specimen).await?;
        Ok(Self { stands: Some(Server::named("provisioner").hold().await?), ..floor })
    }

    /// Applies a new resource each round and takes the time until the answer.
    pub(crate) async fn applies(&self, rounds: u32) -> anyhow::Result<Samples> {
        for round in 0..pace::WARM_UP {
            self.apply(&format!("warm-up-{round}")).await?;
        }
        let mut samples = Samples::default();
        let mut beat = pace::stage();
        for round in 0..rounds {
            beat.tick().await;
            let start = Instant::now();
            self.apply(&format!("round-{round}")).await?;
            samples.push(start.elapsed());
        }
        Ok(samples)
    }

    /// Applies so many new resources, this many at once; when a watch told of each.
    pub(crate) async fn saturate(&self, count: usize, in_flight: usize) -> anyhow::Result<Vec<Instant>> {
        let mut watch = Watch::start(&self.ground.admin, NAMESPACE).await?;
        let names = (0..count).map(|number| format!("number-{number}"));
        let applies = futures::stream::iter(names)
            .map(|name| async move { self.apply(&name).await })
            .buffer_unordered(in_flight)
            .try_collect::<()>();
        let seen = async {
            let mut times = Vec::with_capacity(count);
            while times.len() < count {
                times.push(watch.find("the next resource", |_| true).await?.at);
            }
            anyhow::Ok(times)
        };
        let ((), times) = tokio::try_join!(applies, seen)?;
        Ok(times)
    }

    /// Patches the status of one resource each round and takes the time until a watch tells of it.
    pub(crate) async fn status_events(&self, rounds: u32) -> anyhow::Result<Samples> {
        self.apply("subject").await?;
        let api: Api<QuestDB> = Api::namespaced(self.ground.admin.clone(), NAMESPACE);
        let mut watch = Watch::start(&self.ground.admin, NAMESPACE).await?;
        let mut samples = Samples::default();
        let mut beat = pace::stage();
        for round in 0..pace::WARM_UP + rounds {
            beat.tick().await;
            let start = Instant::now();
            let version = report(&api, "subject", &format!("round-{round}")).await?;
            let seen = watch.find("a status", |sighting| sighting.version == version).await?;
            if round >= pace::WARM_UP {
                samples.push(seen.at.duration_since(start));
            }
        }
        Ok(samples)
    }

    /// Removes everything in the namespace.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        self.ground.clear(&Api::namespaced(self.ground.admin.clone(), NAMESPACE)).await
    }

    async fn apply(&self, name: &str) -> anyhow::Result<()> {
        let body = if self.stands.is_some() {
            self.specimen.twin(name, NAMESPACE)
        } else {
            self.specimen.stranger(name, NAMESPACE)
        };
        let body = Patch::Apply(body);
        self.api
            .patch_metadata(name, &PatchParams::apply(names::PROVISIONER).force(), &body)
            .await
            .context("applying")?;
        Ok(())
    }
}

/// Reports a status as an operator would; what changes is the name of the node. Gives the version that has it.
pub(crate) async fn report(api: &Api<QuestDB>, name: &str, node: &str) -> anyhow::Result<String> {
    let status = json!({"status": {"phase": "Provisioning", "node": {"name": node, "ready": false}}});
    let patched =
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.context("reporting")?;
    patched.metadata.resource_version.context("a patched resource has a version")
}
