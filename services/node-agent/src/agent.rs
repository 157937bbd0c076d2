//! Wires everything together: the watches, the attacher, the look at EC2, and a task per machine.

use std::sync::Arc;
use std::time::Duration;

use cloud::Cloud;
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use runtime::health::Component;
use runtime::{CancellationToken, Program, backoff};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::api::{call, chain};
use crate::attach::Attacher;
use crate::context::{Caches, Clients, Context};
use crate::growth;
use crate::keeper::Keeper;
use crate::metrics::Counts;
use crate::pod::index::PodIndex;
use crate::settings::{Mode, Settings};

/// Longest wait for a list of instances before the program counts as stuck.
const STUCK: Duration = Duration::from_mins(2);
/// Time between two questions to the API server whether it is there.
const CHECK: Duration = Duration::from_secs(5);

/// Starts all tasks of the agent below a program.
pub fn spawn(
    program: &Program,
    settings: Settings,
    client: Client,
    cloud: Arc<dyn Cloud>,
) -> Result<(), reqwest::Error> {
    // Probes go to addresses of this machine, never through a proxy, and each opens a connection of its own.
    let http = reqwest::Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(0)
        .redirect(reqwest::redirect::Policy::none())
        .build()?;
    let index = PodIndex::default();
    let changed = Arc::new(Notify::new());
    let caches = caches(program, &settings, &client, &changed);
    follow_pods(program, &client, &index);
    let clients = Clients { client, cloud, http };
    let counts = Counts::register(&program.metrics);
    let context = Arc::new(Context::new(settings, clients, caches, counts));
    let attacher = Attacher::new(Arc::clone(&context));
    program.tasks.spawn("attacher", attacher.run(changed, program.stop()));
    program.tasks.spawn("file systems", growth::run(Arc::clone(&context), program.stop()));
    let component = |name: &str| {
        let component = program.health.readiness.component(name);
        component.set_failing("not asked yet");
        component
    };
    let check = check_kubernetes(context.client.clone(), component("kubernetes"), program.stop());
    program.tasks.spawn("kubernetes", check);
    let heartbeat = program.health.liveness.heartbeat("instances", STUCK);
    let keeper = Keeper::new(context, index, program.stop());
    program.tasks.spawn("instances", keeper.run(component("ec2"), move || heartbeat.beat()));
    Ok(())
}

/// Readiness follows the API server's own answers, whether or not there is a machine that needs it.
async fn check_kubernetes(client: Client, component: Component, stop: CancellationToken) {
    loop {
        match call("tell its version", client.apiserver_version()).await {
            Ok(_) => component.set_ok(),
            Err(error) => component.set_failing(chain(&error)),
        }
        if !backoff::sleep(CHECK, &stop).await {
            return;
        }
    }
}

fn caches(program: &Program, settings: &Settings, client: &Client, changed: &Arc<Notify>) -> Caches {
    let changed = Arc::clone(changed);
    let attachments =
        cache::<VolumeAttachment>(program, Api::all(client.clone()), move || changed.notify_one());
    // Without processes nobody reads them.
    let needed = settings.mode == Mode::Process;
    Caches {
        config_maps: if needed {
            cache(program, Api::<ConfigMap>::all(client.clone()), || ())
        } else {
            reflector::store().0
        },
        secrets: if needed {
            cache(program, Api::<Secret>::all(client.clone()), || ())
        } else {
            reflector::store().0
        },
        attachments,
        volumes: cache(program, Api::<PersistentVolume>::all(client.clone()), || ()),
        claims: cache(program, Api::<PersistentVolumeClaim>::all(client.clone()), || ()),
    }
}

fn cache<K>(program: &Program, api: Api<K>, changed: impl Fn() + Send + 'static) -> Store<K>
where
    K: Resource<DynamicType = ()>
        + Lookup<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let stream = slim(watcher(api, watcher::Config::default())).reflect(writer);
    let stop = program.stop();
    let kind = <K as Resource>::kind(&()).into_owned();
    program.tasks.spawn(format!("watch {kind}"), async move {
        let mut stream = std::pin::pin!(stream);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = stream.next() => event,
            };
            match event {
                Some(Ok(_)) => changed(),
                Some(Err(error)) => tracing::warn!(kind, "a watch failed: {}", chain(&error)),
                None => return,
            }
        }
    });
    store
}

fn follow_pods(program: &Program, client: &Client, index: &PodIndex) {
    let (index, stop) = (index.clone(), program.stop());
    let config = watcher::Config::default().fields("spec.nodeName!=");
    let pods = slim(watcher(Api::<Pod>::all(client.clone()), config));
    program.tasks.spawn("watch Pod", async move {
        let pods = pods.inspect_err(|error| tracing::warn!(kind = "Pod", "a watch failed: {}", chain(error)));
        // The watch goes on after an error by itself.
        let events = pods.filter_map(|event| std::future::ready(event.ok().map(Ok)));
        tokio::select! {
            () = stop.cancelled() => {}
            _ = index.follow(events) => {}
        }
    });
}

/// Without the fields nobody here reads, and with pauses after errors.
fn slim<K: Resource + Send>(
    stream: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send {
    stream.modify(|object| object.managed_fields_mut().clear()).default_backoff()
}
