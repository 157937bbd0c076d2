//! Machines: launch, tokens, lost answers, refusals, protection.

use ::cloud_aws::Settings;
use cloud::{InstanceState, Launch, Owner, Protection, Role, Select};
use serde_json::json;

use super::{Corner, Fault};

#[tokio::test]
async fn a_machine_is_launched_found_and_ended() {
    let corner = Corner::new().await;
    let launched = corner.run(1).await;
    assert_eq!((launched.zone.as_str(), launched.subnet.as_deref()), (&*corner.zone, Some(&*corner.subnet)));
    corner.until_state(&launched.id, InstanceState::Running).await;

    let by_tags = corner.aws.describe_instances(&Select::database(&corner.cluster, "db1")).await.unwrap();
    let [seen] = &by_tags[..] else { panic!("{by_tags:?}") };
    let owner = Owner::parse(&seen.tags).unwrap().unwrap();
    assert_eq!((owner.role, owner.generation, owner.seq), (Role::Instance, Some(1), Some(1)));
    assert_eq!((&*seen.instance_type, &*seen.image), ("m5.large", &*corner.image));
    assert!(
        seen.private_ip.is_some() && seen.launched_at.is_some() && seen.vpc.as_deref() == Some(&*corner.vpc)
    );

    assert!(corner.aws.terminate_instance(&launched.id).await.unwrap().is_ending());
    corner.until_state(&launched.id, InstanceState::Terminated).await;
    assert!(corner.aws.terminate_instance(&launched.id).await.unwrap().is_ending(), "again is harmless");
}

#[tokio::test]
async fn user_data_comes_back_as_it_was() {
    let corner = Corner::new().await;
    let id = corner.run_until_running(1).await;
    let told = corner.aws.describe_user_data(&id).await.unwrap();
    assert_eq!(told, Some(corner.launch().user_data));
    corner.end(&id).await;
}

#[tokio::test]
async fn a_token_makes_one_machine_and_only_ever_that() {
    let corner = Corner::new().await;
    let token = corner.token(Role::Instance, 1);
    let first = corner.run_until_running(1).await;
    assert_eq!(corner.run(1).await.id, first);

    let mut other = corner.launch();
    other.tags = other.tags.with("questdb.io/seq", "2");
    assert_ne!(other.fingerprint(), corner.launch().fingerprint());
    let error = corner.aws.run_instance(&other, &token).await.unwrap_err();
    assert_eq!(error.category(), "parameter_mismatch", "{error:?}");

    corner.end(&first).await;
    let again = corner.run(1).await;
    assert_eq!(
        (again.id, again.state),
        (first.clone(), InstanceState::Terminated),
        "a token outlives its machine"
    );
    let next = corner.run(2).await.id;
    assert_ne!(next, first);
    corner.end(&next).await;
}

#[tokio::test]
async fn a_lost_answer_makes_no_second_machine() {
    // Once with the retry of the SDK, once with our own after an unknown outcome.
    for attempts in [3, 1] {
        let corner = Corner::with(|settings| Settings { attempts, ..settings }).await;
        let launch = corner.launch();
        let contains = corner.token(Role::Instance, 1).to_string();
        let fault = json!({"kind": "drop_reply", "action": "RunInstances", "contains": contains, "times": 1});
        let fault = Fault::new(fault).await;
        let mut launched = corner.aws.run_instance(&launch, &corner.token(Role::Instance, 1)).await;
        if attempts == 1 {
            assert!(launched.unwrap_err().outcome_unknown());
            launched = corner.aws.run_instance(&launch, &corner.token(Role::Instance, 1)).await;
        }
        fault.end().await;
        let id = launched.unwrap().id;
        corner.until_state(&id, InstanceState::Running).await;
        let all = corner.aws.describe_instances(&Select::cluster(&corner.cluster)).await.unwrap();
        assert_eq!(all.iter().map(|one| &one.id).collect::<Vec<_>>(), [&id], "{attempts} attempts");
        corner.end(&id).await;
    }
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let corner = Corner::with(|settings| Settings { attempts: 1, ..settings }).await;
    for (code, category, unknown) in [
        ("InsufficientInstanceCapacity", "capacity", false),
        ("VcpuLimitExceeded", "quota", false),
        ("RequestLimitExceeded", "throttled", false),
        ("UnauthorizedOperation", "denied", false),
        ("InternalError", "unavailable", true),
    ] {
        let contains = corner.token(Role::Instance, 1).to_string();
        let fault =
            json!({"kind": "fail", "action": "RunInstances", "code": code, "contains": contains, "times": 1});
        let fault = Fault::new(fault).await;
        let error =
            corner.aws.run_instance(&corner.launch(), &corner.token(Role::Instance, 1)).await.unwrap_err();
        fault.end().await;
        assert_eq!((error.category(), error.outcome_unknown()), (category, unknown), "{error:?}");
        assert_eq!(error.call().code.as_deref(), Some(code));
        assert!(error.call().request_id.is_some(), "{error:?}");
    }
    assert!(corner.aws.describe_instances(&Select::cluster(&corner.cluster)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_machine_whose_metadata_service_was_opened_answers_itself_alone_again() {
    let corner = Corner::new().await;
    let id = corner.run_until_running(1).await;
    let guarded = async || corner.instance(&id).await.unwrap().metadata_guarded;
    assert_eq!(guarded().await, Some(true), "it is launched so");
    for (option, value) in [("HttpPutResponseHopLimit", "2"), ("HttpTokens", "optional")] {
        let change = [("InstanceId", id.as_str()), (option, value)];
        let change = change.map(|(name, value)| (name.to_owned(), value.to_owned()));
        testkit::ec2_by_hand(corner.region, "ModifyInstanceMetadataOptions", &change).await.unwrap();
        assert_eq!(guarded().await, Some(false), "{option}");
        corner.aws.guard_metadata(&id).await.unwrap();
        assert_eq!(guarded().await, Some(true), "{option}");
    }
    corner.end(&id).await;
    let ended = corner.aws.guard_metadata(&id).await.unwrap_err();
    assert_eq!(ended.category(), "incorrect_state", "{ended:?}");
}

#[tokio::test]
async fn protection_is_a_fence_until_it_is_taken_off() {
    let corner = Corner::new().await;
    let launch = Launch { protection: Protection::ON, ..corner.launch() };
    let id = corner.aws.run_instance(&launch, &corner.token(Role::Instance, 1)).await.unwrap().id;
    corner.until_state(&id, InstanceState::Running).await;
    assert_eq!(corner.aws.describe_protection(&id).await.unwrap(), Protection::ON);
    let refused = [corner.aws.terminate_instance(&id).await, corner.aws.stop_instance(&id).await];
    for refused in refused {
        assert_eq!(refused.unwrap_err().category(), "not_permitted");
    }

    let only_termination = Protection { termination: true, stop: false };
    corner.aws.set_protection(&id, only_termination).await.unwrap();
    assert_eq!(corner.aws.describe_protection(&id).await.unwrap(), only_termination);
    corner.aws.stop_instance(&id).await.unwrap();
    corner.until_state(&id, InstanceState::Stopped).await;
    assert_eq!(corner.aws.terminate_instance(&id).await.unwrap_err().category(), "not_permitted");
    corner.aws.set_protection(&id, Protection::OFF).await.unwrap();
    assert_eq!(corner.aws.describe_protection(&id).await.unwrap(), Protection::OFF);
    corner.end(&id).await;
}
