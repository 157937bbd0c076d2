//! Who speaks for a cluster: one at a time, each time under a higher term.

use std::time::Duration;

use ::store::{Observation, Term};
use domain::{ClusterId, DatabaseId};
use testkit::eventually;

use super::absorb::fresh;
use super::{Try, at, observation};

const LONG: Duration = Duration::from_mins(5);

#[tokio::test]
async fn one_observer_holds_a_cluster_and_the_next_has_a_higher_term() {
    let scene = Try::new().await;
    let cluster: ClusterId = "eu-west-1".parse().unwrap();
    let take =
        async |holder: &str, duration| scene.store.observe_cluster(&cluster, holder, duration).await.unwrap();
    assert_eq!(take("a", LONG).await, Some(Term(1)));
    assert_eq!(take("b", LONG).await, None);
    assert!(scene.store.renew_observer(&cluster, "a", Term(1), LONG).await.unwrap());
    assert!(!scene.store.renew_observer(&cluster, "b", Term(1), LONG).await.unwrap());
    scene.store.release_observer(&cluster, "a", Term(1)).await.unwrap();
    assert_eq!(take("b", LONG).await, Some(Term(2)));
    assert!(!scene.store.renew_observer(&cluster, "a", Term(1), LONG).await.unwrap(), "it was lost");
    assert_eq!(scene.store.next_term(&cluster, "b", Term(2)).await.unwrap(), Some(Term(3)));
    assert_eq!(scene.store.next_term(&cluster, "b", Term(2)).await.unwrap(), None);
}

/// It sees everything anew, perhaps in a cluster that was restored, whose versions are older.
#[tokio::test]
async fn whoever_takes_its_cluster_again_has_a_higher_term_and_is_believed() {
    let scene = Try::new().await;
    let (created, cluster) = (scene.create("trades").await.id, "eu-west-1".parse::<ClusterId>().unwrap());
    let take = async || scene.store.observe_cluster(&cluster, "a", LONG).await.unwrap().unwrap();
    let renew = async |term| scene.store.renew_observer(&cluster, "a", term, LONG).await.unwrap();
    let hear = async |term: Term, resource_version, present| {
        let seen = observation(created, at(1));
        let said = Observation { term: term.0, resource_version, present, ..seen };
        scene.store.absorb(&fresh(vec![said])).await.unwrap();
    };
    let believed = async || scene.ask("select term, resource_version, present from observations").await;
    let first = take().await;
    hear(first, 100, true).await;
    hear(first, 101, false).await;
    hear(first, 50, true).await;
    assert_eq!(believed().await, "1|101|f", "under one term the newer version stays");
    let again = take().await;
    assert_eq!((first, again), (Term(1), Term(2)), "while it holds the cluster");
    assert!(!renew(first).await && renew(again).await, "of its two terms only the newer one holds");
    hear(again, 50, true).await;
    assert_eq!(believed().await, "2|50|t", "it came back");
    hear(take().await, 30, true).await;
    assert_eq!(believed().await, "3|30|t", "an older one is there");
}

#[tokio::test]
async fn a_silent_observer_loses_its_cluster() {
    let scene = Try::new().await;
    let cluster: ClusterId = "eu-west-1".parse().unwrap();
    let brief = Duration::from_millis(200);
    assert_eq!(scene.store.observe_cluster(&cluster, "a", brief).await.unwrap(), Some(Term(1)));
    let term = eventually(Duration::from_mins(2), "the term to end", async || {
        scene.store.observe_cluster(&cluster, "b", LONG).await.unwrap()
    })
    .await;
    assert_eq!(term, Term(2));
    // Even the same holder gets a new term after a silence: somebody may have spoken meanwhile.
    scene.store.release_observer(&cluster, "b", term).await.unwrap();
    assert_eq!(scene.store.observe_cluster(&cluster, "b", LONG).await.unwrap(), Some(Term(3)));
}

#[tokio::test]
async fn of_many_that_ask_at_once_one_gets_it() {
    let scene = Try::crowded().await;
    let cluster: ClusterId = "eu-west-1".parse().unwrap();
    let holders: Vec<String> = (0..8).map(|number| format!("observer-{number}")).collect();
    let asks = holders.iter().map(|holder| scene.store.observe_cluster(&cluster, holder, LONG));
    let terms: Vec<Term> =
        futures::future::join_all(asks).await.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(terms, [Term(1)]);
}

#[tokio::test]
async fn terms_that_were_lost_are_put_above_what_was_heard() {
    let scene = Try::new().await;
    let (created, cluster) = (scene.create("trades").await.id, "eu-west-1".parse::<ClusterId>().unwrap());
    let take = async || scene.store.observe_cluster(&cluster, "a", LONG).await.unwrap();
    let hear = async |database, term| {
        let said = Observation { term, ..observation(database, at(1)) };
        scene.store.absorb(&fresh(vec![said])).await.unwrap();
    };
    let believed = async || scene.ask("select term from observations").await;
    let raise = async || scene.store.raise_terms().await.unwrap();
    assert_eq!(take().await, Some(Term(1)));
    hear(created, 1).await;
    assert!(raise().await.is_empty(), "nothing was lost");
    // Six more observers spoke, and their terms were lost after they were heard.
    hear(created, 7).await;
    assert_eq!(raise().await, ["eu-west-1"]);
    assert!(raise().await.is_empty(), "once");
    assert!(!scene.store.renew_observer(&cluster, "a", Term(1), LONG).await.unwrap());
    assert_eq!(take().await, Some(Term(9)));
    hear(created, 9).await;
    assert_eq!(believed().await, "9", "what is said from now on is believed");
    hear(DatabaseId::mint(), 20).await;
    assert_eq!(raise().await, ["eu-west-1"], "what was said of strangers counts");
    assert_eq!(take().await, Some(Term(22)));
    hear(created, i64::MAX).await;
    assert!(
        raise().await.is_empty(),
        "so many nobody lost: a liar drives no cluster to where no next term is"
    );
    assert_eq!(take().await, Some(Term(23)));
}
