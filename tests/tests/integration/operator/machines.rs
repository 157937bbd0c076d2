//! Another hand on a machine in EC2: who changes its security groups, or opens its metadata service, is told where that goes on, and the
//! machine is put back as it was launched.

use std::sync::Arc;

use cloud::{Instance, NewSecurityGroup, SecurityGroupId, Select, Tags};
use resources::Phase;
use testkit::{ec2_by_hand, eventually, unique};

use super::fields::at_rest;
use super::firewall::{EACH, told};
use super::others::Others;
use super::rig::{PATIENCE, Rig, patiently};
use super::subject::Subject;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_changes_the_groups_of_a_machine_again_and_again_is_told_and_it_is_put_back_at_a_bounded_rate() {
    let mut subject = Subject::new(&unique("regrouped")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let way = subject.rig.rights(&lease).await;
    let operator = subject.rig.spawn((&lease, &way), &[], &[("SLIPWAY_RESYNC", "1s")]);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let rig = Arc::clone(&subject.rig);
    let machine = rig.instances().await.remove(0);
    let theirs = another_group(&rig, &machine).await;
    // One that is open to all may be added, or its own be taken away.
    let added = [machine.security_groups.as_slice(), std::slice::from_ref(&theirs)].concat();
    for groups in [added, vec![theirs.clone()]] {
        at_rest(&subject, &operator).await;
        patiently(|| rig.aws.set_security_groups(&machine.id, &groups)).await;
        put_back(&rig, &machine).await;
    }
    eventually(PATIENCE, "a correction to be counted", async || {
        (operator.metric("slipway_drift_corrections_total", "kind=\"Instance\"").await > 0.0).then_some(())
    })
    .await;

    let other = tokio::spawn(put_elsewhere(Arc::clone(&rig), machine.clone(), theirs.clone()));
    let text = told(&subject, "a word about the other", "True").await;
    assert!(text.contains(machine.id.as_str()) && text.contains("ModifyNetworkInterfaceAttribute"), "{text}");
    let done = "step=\"SetMachineGroups\",result=\"done\"";
    let repairs = eventually(PATIENCE, "repairs and what they are for to be counted", async || {
        let contended = operator.metric("slipway_contended_objects", "Instance").await;
        let repairs = operator.metric("slipway_operator_steps", done).await;
        (contended > 0.0 && repairs >= 3.0).then_some(repairs)
    })
    .await;
    // As with tags, and twice before.
    assert!(repairs <= 22.0, "{repairs} repairs");
    other.abort();
    assert!(other.await.unwrap_err().is_cancelled());
    put_back(&rig, &machine).await;
    subject.purge_with_others().await;
    patiently(|| rig.aws.delete_security_group(&theirs)).await;
}

/// A group of somebody else, beside that of a machine.
async fn another_group(rig: &Rig, machine: &Instance) -> SecurityGroupId {
    let group = NewSecurityGroup {
        name: format!("{}-theirs", rig.cluster),
        vpc: machine.vpc.clone().unwrap(),
        description: "of somebody else".to_owned(),
        tags: Tags::new().named("theirs"),
    };
    let id = patiently(|| rig.aws.create_security_group(&group)).await;
    let shown = Select::one(id.clone());
    eventually(PATIENCE, "the group of somebody else", async || {
        let found = patiently(|| rig.aws.describe_security_groups(&shown)).await;
        (!found.is_empty()).then_some(())
    })
    .await;
    id
}

/// Waits until a machine has the groups again that it had.
async fn put_back(rig: &Rig, machine: &Instance) {
    eventually(PATIENCE, "the groups of the machine to come back", async || {
        let found = rig.instances().await.into_iter().find(|found| found.id == machine.id)?;
        (found.security_groups == machine.security_groups).then_some(())
    })
    .await;
}

/// Somebody who wants a machine behind a firewall of theirs, whatever it takes.
async fn put_elsewhere(rig: Arc<Rig>, machine: Instance, theirs: SecurityGroupId) {
    let theirs = [theirs];
    loop {
        let found = rig.instances().await.into_iter().find(|found| found.id == machine.id);
        if found.is_some_and(|found| found.security_groups != theirs) {
            // What was refused, because AWS was busy, is tried again.
            let _ = rig.aws.set_security_groups(&machine.id, &theirs).await;
        }
        tokio::time::sleep(EACH).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metadata_service_that_somebody_opens_is_shut_to_others_again() {
    let mut subject = Subject::new(&unique("opened")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let way = subject.rig.rights(&lease).await;
    let operator = subject.rig.spawn((&lease, &way), &[], &[("SLIPWAY_RESYNC", "1s")]);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let rig = Arc::clone(&subject.rig);
    let machine = rig.instances().await.remove(0);
    assert_eq!(machine.metadata_guarded, Some(true), "it is launched so");
    for opening in [("HttpPutResponseHopLimit", "2"), ("HttpTokens", "optional")] {
        at_rest(&subject, &operator).await;
        eventually(PATIENCE, "an answer to who opens it", async || open(&rig, &machine, opening).await.ok())
            .await;
        shut(&rig, &machine).await;
    }
    eventually(PATIENCE, "a correction to be counted", async || {
        (operator.metric("slipway_drift_corrections_total", "kind=\"Instance\"").await > 0.0).then_some(())
    })
    .await;

    let other = tokio::spawn(keep_open(Arc::clone(&rig), machine.clone()));
    let text = told(&subject, "a word about the other", "True").await;
    assert!(text.contains(machine.id.as_str()) && text.contains("ModifyInstanceMetadataOptions"), "{text}");
    let done = "step=\"GuardMetadata\",result=\"done\"";
    let repairs = eventually(PATIENCE, "repairs and what they are for to be counted", async || {
        let contended = operator.metric("slipway_contended_objects", "Metadata").await;
        let repairs = operator.metric("slipway_operator_steps", done).await;
        (contended > 0.0 && repairs >= 3.0).then_some(repairs)
    })
    .await;
    // As with groups.
    assert!(repairs <= 22.0, "{repairs} repairs");
    other.abort();
    assert!(other.await.unwrap_err().is_cancelled());
    shut(&rig, &machine).await;
    subject.purge_with_others().await;
}

/// Whether nobody but a machine itself may ask its metadata service.
async fn is_shut(rig: &Rig, machine: &Instance) -> Option<bool> {
    let found = rig.instances().await.into_iter().find(|found| found.id == machine.id)?;
    found.metadata_guarded
}

/// Waits until it is so.
async fn shut(rig: &Rig, machine: &Instance) {
    eventually(PATIENCE, "the metadata service to be shut to others", async || {
        is_shut(rig, machine).await?.then_some(())
    })
    .await;
}

/// Somebody has the metadata service of a machine answer others as well, by hand.
async fn open(rig: &Rig, machine: &Instance, (option, value): (&str, &str)) -> anyhow::Result<String> {
    let parameters = [("InstanceId", machine.id.as_str()), (option, value)];
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ec2_by_hand(rig.region(), "ModifyInstanceMetadataOptions", &parameters).await
}

/// Somebody who wants pods to have the credentials of a machine, whatever it takes.
async fn keep_open(rig: Arc<Rig>, machine: Instance) {
    loop {
        if is_shut(&rig, &machine).await == Some(true) {
            // What was refused, because AWS was busy, is tried again.
            let _ = open(&rig, &machine, ("HttpTokens", "optional")).await;
        }
        tokio::time::sleep(EACH).await;
    }
}
