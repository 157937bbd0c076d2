//! Security groups: one by a name, rules that compare.

use cloud::{IngressRule, InstanceState, Launch, NewSecurityGroup, ResourceKind, Role, Select};
use testkit::eventually;

use super::{Corner, DEADLINE, once_visible};

#[tokio::test]
async fn a_group_is_made_once_and_its_rules_compare() {
    let corner = Corner::new().await;
    let group = NewSecurityGroup {
        name: format!("qdb-{}", corner.cluster),
        vpc: corner.vpc.clone(),
        description: "one database".into(),
        tags: corner.tags("db1", Role::SecurityGroup),
    };
    let id = corner.aws.create_security_group(&group).await.unwrap();
    assert_eq!(corner.aws.create_security_group(&group).await.unwrap_err().category(), "already_exists");
    let found = eventually(DEADLINE, "the group visible", async || {
        corner.aws.find_security_group(&corner.vpc, &group.name).await.unwrap()
    });
    let found = found.await;
    assert_eq!((&found.id, &found.tags, found.ingress.len()), (&id, &group.tags, 0));

    let mut rules = vec![IngressRule::tcp(9000, "10.0.0.0/8"), IngressRule::tcp(8812, "fd00::/8")];
    once_visible(async || corner.aws.authorize_ingress(&id, &rules).await).await.unwrap();
    let error = corner.aws.authorize_ingress(&id, &rules[..1]).await.unwrap_err();
    assert_eq!(error.category(), "already_exists", "{error:?}");
    let seen = corner.aws.describe_security_groups(&Select::one(id.clone())).await.unwrap().remove(0);
    rules.sort();
    assert_eq!(seen.ingress, rules);

    corner.aws.revoke_ingress(&id, &rules[..1]).await.unwrap();
    let error = corner.aws.revoke_ingress(&id, &rules[..1]).await.unwrap_err();
    assert!(error.is_not_found(ResourceKind::Rule), "{error:?}");
    let seen =
        corner.aws.describe_security_groups(&Select::cluster(&corner.cluster)).await.unwrap().remove(0);
    assert_eq!(seen.ingress, rules[1..]);

    let launch = Launch { security_groups: vec![id.clone()], ..corner.launch() };
    let instance = corner.aws.run_instance(&launch, &corner.token(Role::Instance, 1)).await.unwrap().id;
    corner.until_state(&instance, InstanceState::Running).await;
    assert_eq!(corner.instance(&instance).await.unwrap().security_groups, std::slice::from_ref(&id));
    assert_eq!(corner.aws.delete_security_group(&id).await.unwrap_err().category(), "in_use");
    corner.end(&instance).await;
    corner.aws.delete_security_group(&id).await.unwrap();
    assert!(corner.aws.describe_security_groups(&Select::one(id)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_machine_is_put_into_other_groups_and_leaves_the_ones_before() {
    let corner = Corner::new().await;
    let make = async |name: &str| {
        let group = NewSecurityGroup {
            name: format!("qdb-{}-{name}", corner.cluster),
            vpc: corner.vpc.clone(),
            description: "one database".into(),
            tags: corner.tags("db1", Role::SecurityGroup),
        };
        corner.aws.create_security_group(&group).await.unwrap()
    };
    let (before, after, beside) = (make("before").await, make("after").await, make("beside").await);
    let launch = Launch { security_groups: vec![before.clone()], ..corner.launch() };
    let token = corner.token(Role::Instance, 1);
    let machine = once_visible(async || corner.aws.run_instance(&launch, &token).await).await.unwrap().id;
    corner.until_state(&machine, InstanceState::Running).await;
    for groups in [vec![after.clone(), beside.clone()], vec![after.clone()]] {
        let put = async || corner.aws.set_security_groups(&machine, &groups).await;
        once_visible(put).await.unwrap();
        assert_eq!(corner.instance(&machine).await.unwrap().security_groups, groups);
    }
    // Nothing is in them any more.
    for left in [&before, &beside] {
        corner.aws.delete_security_group(left).await.unwrap();
    }
    let gone = corner.aws.set_security_groups(&machine, std::slice::from_ref(&before)).await.unwrap_err();
    assert!(gone.is_not_found(ResourceKind::SecurityGroup), "{gone:?}");
    corner.end(&machine).await;
    let ended = corner.aws.set_security_groups(&machine, std::slice::from_ref(&after)).await.unwrap_err();
    assert_eq!(ended.category(), "unreadable", "it has no interface: {ended:?}");
    corner.aws.delete_security_group(&after).await.unwrap();
}
