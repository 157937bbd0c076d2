//! Idempotency keys and tokens.

use std::collections::BTreeSet;
use std::time::Duration;

use ::store::{Answer, Claim, Key, NewToken, Role};
use serde_json::json;
use uuid::Uuid;

use super::Try;

fn key(scene: &Try, text: &str) -> Key {
    Key {
        tenant: scene.tenant.clone(),
        principal: "token".to_owned(),
        route: "POST /v1/databases".to_owned(),
        key: text.to_owned(),
        body_hash: [1; 32],
    }
}

fn answer() -> Answer {
    Answer {
        status: 202,
        location: Some("/v1/operations/1".to_owned()),
        etag: None,
        body: json!({"text": "a", "number": 1}),
    }
}

#[tokio::test]
async fn a_key_is_answered_the_same_until_it_is_forgotten() {
    let scene = Try::new().await;
    let key = key(&scene, "k");
    let mut first = scene.store.begin().await.unwrap();
    assert_eq!(first.claim(&key).await.unwrap(), Claim::Fresh);
    let mut meanwhile = scene.store.begin().await.unwrap();
    assert_eq!(meanwhile.claim(&key).await.unwrap(), Claim::InFlight);
    drop(meanwhile);
    first.store_answer(&key, &answer()).await.unwrap();
    first.commit().await.unwrap();
    let mut later = scene.store.begin().await.unwrap();
    assert_eq!(later.claim(&key).await.unwrap(), Claim::Answered(answer()));
    let other = Key { body_hash: [2; 32], ..key.clone() };
    assert_eq!(later.claim(&other).await.unwrap(), Claim::OtherBody);
    drop(later);
    assert_eq!(scene.store.forget_answers(Duration::from_hours(1)).await.unwrap(), 0);
    assert_eq!(scene.store.forget_answers(Duration::ZERO).await.unwrap(), 1);
}

#[tokio::test]
async fn a_claim_that_was_rolled_back_is_fresh_again() {
    let scene = Try::new().await;
    let key = key(&scene, "k");
    let mut failed = scene.store.begin().await.unwrap();
    assert_eq!(failed.claim(&key).await.unwrap(), Claim::Fresh);
    failed.store_answer(&key, &answer()).await.unwrap();
    drop(failed);
    testkit::eventually(Duration::from_mins(2), "the rollback", async || {
        let mut again = scene.store.begin().await.unwrap();
        (again.claim(&key).await.unwrap() == Claim::Fresh).then_some(())
    })
    .await;
}

#[tokio::test]
async fn scopes_do_not_meet() {
    let scene = Try::new().await;
    let base = key(&scene, "k");
    let mut transaction = scene.store.begin().await.unwrap();
    transaction.claim(&base).await.unwrap();
    transaction.store_answer(&base, &answer()).await.unwrap();
    transaction.commit().await.unwrap();
    let others = [
        Key { tenant: "umbrella".parse().unwrap(), ..base.clone() },
        Key { principal: "other".to_owned(), ..base.clone() },
        Key { route: "POST /v1/other".to_owned(), ..base.clone() },
        Key { key: "other".to_owned(), ..base.clone() },
    ];
    for other in others {
        let mut transaction = scene.store.begin().await.unwrap();
        assert_eq!(transaction.claim(&other).await.unwrap(), Claim::Fresh, "{other:?}");
    }
}

#[tokio::test]
async fn only_valid_tokens_are_somebody() {
    let scene = Try::new().await;
    let token = |number: u8, lasts| NewToken {
        id: Uuid::now_v7(),
        hash: [number; 32],
        role: Role::Tenant,
        tenant: Some("new-tenant".parse().unwrap()),
        name: "ci".to_owned(),
        lasts,
    };
    let good = token(1, Some(Duration::from_hours(1)));
    let (expired, lasting) = (token(2, Some(Duration::ZERO)), token(3, None));
    for token in [&good, &expired, &lasting] {
        scene.store.create_token(token).await.unwrap();
    }
    let valid = async || {
        let asked = BTreeSet::from([good.id, expired.id, lasting.id, Uuid::nil()]);
        scene.store.valid_tokens(&asked).await.unwrap()
    };
    assert_eq!(valid().await, BTreeSet::from([good.id, lasting.id]));
    let principal = scene.store.authenticate(&[1; 32]).await.unwrap().unwrap();
    assert_eq!(
        (principal.token, principal.role, principal.tenant),
        (good.id, Role::Tenant, good.tenant.clone())
    );
    assert!(scene.store.authenticate(&[2; 32]).await.unwrap().is_none(), "it ended by itself");
    assert!(scene.store.authenticate(&[9; 32]).await.unwrap().is_none(), "nobody has it");
    assert!(scene.store.authenticate(&[3; 32]).await.unwrap().is_some());
    assert!(scene.store.revoke_token(good.id).await.unwrap());
    assert!(scene.store.authenticate(&[1; 32]).await.unwrap().is_none(), "it was ended");
    assert_eq!(valid().await, BTreeSet::from([lasting.id]));
    assert!(!scene.store.revoke_token(good.id).await.unwrap());
    assert!(scene.store.create_token(&token(3, None)).await.is_err(), "a secret is given out once");
}

#[tokio::test]
async fn answers_are_forgotten_however_many_they_are() {
    let scene = Try::new().await;
    let old = "insert into idempotency_keys (tenant_id, principal, route, key, body_hash, status, body, created_at) \
               select 'acme', 'token', 'POST', 'k' || n, '\\x01', 202, '{}', now() - interval '3 days' * (n % 4) \
               from generate_series(1, 30000) n";
    testkit::query(&scene.url, old).await.unwrap();
    // Each statement notes how many it took.
    let noted = "create table taken (number bigint); \
                 create function note_taken() returns trigger language plpgsql as \
                 'begin insert into taken select count(*) from gone; return null; end'; \
                 create trigger note_taken after delete on idempotency_keys referencing old table as gone \
                 for each statement execute function note_taken()";
    testkit::query(&scene.url, noted).await.unwrap();
    assert_eq!(scene.store.forget_answers(Duration::from_hours(48)).await.unwrap(), 22_500);
    let taken = "select string_agg(number::text, ' ' order by number) from taken";
    assert_eq!(testkit::query(&scene.url, taken).await.unwrap(), "2500 10000 10000", "some at a time");
    let kept = testkit::query(&scene.url, "select count(*) from idempotency_keys").await.unwrap();
    assert_eq!(kept, "7500", "what is young enough stays");
}
