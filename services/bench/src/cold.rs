//! B12, the start of an operator that knows nothing, in a cluster of ten thousand databases at rest, all paused.
//!
//! Product: from the start of the program until it has found every database as it should be; it must write nothing. Anchor:
//! a list of the same objects, and their decoding.

use std::time::{Duration, Instant};

use anyhow::ensure;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use kube::api::ListParams;
use kube::{Api, Client};
use resources::QuestDB;
use serde::de::DeserializeOwned;

use crate::herd::{Herd, found_at_rest};
use crate::meter::real;
use crate::pace::until;
use crate::process::Process;
use crate::{Results, Slice};

const MANY: usize = 10_000;
/// How long it may take at most.
const LONGEST: Duration = Duration::from_mins(3);

/// Measures a slice.
pub async fn measure(slice: Slice) -> anyhow::Result<Results> {
    let herd = Herd::new(MANY).await?;
    herd.at_rest().await?.kill().await?;
    let took = match slice {
        Slice::Product => start(&herd).await?,
        Slice::Anchor => list(&herd).await?,
    };
    Ok(Results::from([("start".to_owned(), took.as_secs_f64() * 1_000.0)]))
}

async fn start(herd: &Herd) -> anyhow::Result<Duration> {
    let (writes, began) = (herd.keeper.asked().writes, Instant::now());
    let operator = herd.operator(None).await?;
    all_found(&operator, MANY).await?;
    let took = began.elapsed();
    operator.kill().await?;
    ensure!(herd.keeper.asked().writes == writes, "a start wrote something");
    Ok(took)
}

/// Waits until an operator has found so many databases as they should be.
pub(crate) async fn all_found(operator: &Process, databases: usize) -> anyhow::Result<()> {
    until(LONGEST, "every database to be found at rest", async || {
        Ok((found_at_rest(operator).await? >= real(databases)).then_some(()))
    })
    .await
}

async fn list(herd: &Herd) -> anyhow::Result<Duration> {
    let client = herd.client().await?;
    let began = Instant::now();
    let counts = tokio::try_join!(
        all::<QuestDB>(&client),
        all::<Secret>(&client),
        all::<ConfigMap>(&client),
        all::<PersistentVolumeClaim>(&client),
        all::<PersistentVolume>(&client),
    )?;
    let took = began.elapsed();
    ensure!(counts == (MANY, MANY, MANY, MANY, MANY), "{counts:?} objects were listed");
    Ok(took)
}

async fn all<K>(client: &Client) -> anyhow::Result<usize>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    Ok(Api::<K>::all(client.clone()).list(&ListParams::default()).await?.items.len())
}
