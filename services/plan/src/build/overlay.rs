//! What people chose of the pod, merged into the one that the operator intends, as Kubernetes merges patches: elements of
//! lists by their key. Validation saw to it that none of ours is among them.

use resources::{ContainerSpec, PodOverrides, ProbeSpec, VolumeSpec};
use serde_json::{Value, json};

use crate::Validated;
use crate::overrides::{Amounts, amounts, mebibytes};

/// What no container may do.
pub(super) fn security() -> Value {
    json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } })
}

/// Requests equal to limits (quality of service Guaranteed).
pub(super) fn guaranteed(amounts: Amounts) -> Value {
    let amounts = json!({ "cpu": amounts.cpu(), "memory": super::mebibytes(amounts.memory()) });
    json!({ "requests": amounts, "limits": amounts })
}

/// Merges into the metadata of a template.
pub(super) fn metadata(metadata: &mut Value, overrides: &PodOverrides) {
    for (field, chosen) in [("labels", &overrides.labels), ("annotations", &overrides.annotations)] {
        for (key, value) in chosen {
            metadata[field][key] = json!(value);
        }
    }
}

/// Merges into the spec of a pod, whose first container is QuestDB's; a restore is given all the time it needs.
pub(super) fn pod(pod: &mut Value, validated: &Validated, restores: bool) {
    let overrides = &validated.overrides;
    let questdb = &mut pod["containers"][0];
    extend(&mut questdb["env"], &overrides.env);
    extend(&mut questdb["volumeMounts"], &overrides.volume_mounts);
    if let Some(probes) = &overrides.probes {
        if !restores {
            patience(&mut questdb["startupProbe"], probes.startup.as_ref());
        }
        patience(&mut questdb["readinessProbe"], probes.readiness.as_ref());
        patience(&mut questdb["livenessProbe"], probes.liveness.as_ref());
    }
    let volumes: Vec<_> = overrides.volumes.iter().map(volume).collect();
    extend(&mut pod["volumes"], &volumes);
    let beside: Vec<_> = overrides.containers.iter().map(container).collect();
    extend(&mut pod["containers"], &beside);
    tolerations(&mut pod["tolerations"], overrides);
    let pull_secrets: Vec<_> =
        validated.pull_secrets().into_iter().map(|name| json!({ "name": name })).collect();
    if !pull_secrets.is_empty() {
        pod["imagePullSecrets"] = json!(pull_secrets);
    }
    let names = [
        ("serviceAccountName", &overrides.service_account_name),
        // Its older name, which the API server fills in: what is not ours would stay when the other is taken back.
        ("serviceAccount", &overrides.service_account_name),
        ("priorityClassName", &overrides.priority_class_name),
    ];
    for (field, name) in names {
        if let Some(name) = name {
            pod[field] = json!(name);
        }
    }
    if let Some(seconds) = overrides.termination_grace_period_seconds {
        pod["terminationGracePeriodSeconds"] = json!(seconds);
    }
}

/// Adds what people chose.
pub(super) fn tolerations(all: &mut Value, overrides: &PodOverrides) {
    let chosen: Vec<_> = overrides
        .tolerations
        .iter()
        .map(|chosen| {
            let operator = if chosen.value.is_some() { "Equal" } else { "Exists" };
            let mut toleration = json!(chosen);
            toleration["operator"] = json!(operator);
            toleration
        })
        .collect();
    extend(all, &chosen);
}

fn extend<T: serde::Serialize>(list: &mut Value, chosen: &[T]) {
    if let Value::Array(list) = list {
        list.extend(chosen.iter().map(|element| json!(element)));
    }
}

/// Sizes as Kubernetes writes them back: any other spelling would look edited.
fn volume(chosen: &VolumeSpec) -> Value {
    let mut volume = json!(chosen);
    if let Some(folder) = &chosen.empty_dir {
        volume["emptyDir"]["sizeLimit"] = json!(super::mebibytes(mebibytes(&folder.size_limit)));
    }
    volume
}

fn patience(probe: &mut Value, chosen: Option<&ProbeSpec>) {
    let Some(chosen) = chosen else { return };
    probe["periodSeconds"] = json!(chosen.period_seconds);
    probe["failureThreshold"] = json!(chosen.failure_threshold);
    probe["timeoutSeconds"] = json!(chosen.timeout_seconds.unwrap_or(3).min(chosen.period_seconds));
}

fn container(chosen: &ContainerSpec) -> Value {
    let mut container = json!(chosen);
    container["imagePullPolicy"] = json!("IfNotPresent");
    container["resources"] = guaranteed(amounts(chosen));
    container["securityContext"] = security();
    if let Some(ports) = container.get_mut("ports").and_then(Value::as_array_mut) {
        for port in ports {
            port["protocol"] = json!("TCP");
        }
    }
    container
}
