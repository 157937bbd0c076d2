//! Keys of server.conf that are misspelt: QuestDB ends when it is started with a key that it does not know, so that key is left out, and
//! all else is carried out. Whatever becomes of a database, it is healed without the key.
//!
//! A QuestDB that runs can be asked for the keys that it has read. It takes more than those: what it has no use for any more, what is
//! for tests, and what belongs to something that is turned off, as `pg.enabled` does with nearly all that begins with `pg.`. So that
//! a key is not listed says nothing by itself.
//!
//! *Invariant:* a key is left out only where it is none of those that are listed and written almost like one of them. What is wrong
//! in another way is not noticed, and nobody is kept from a key that there is.
//! *Invariant:* what was left out of a spec stays so while nobody can be asked, as where the machine has ended: QuestDB would not start
//! on the next one.

use std::collections::BTreeSet;

use domain::{Rule, Violation, Violations};
use resources::QuestDB;
use resources::names::condition;

use crate::change::{Running, field_of};
use crate::report::conditions::KEY_UNKNOWN;
use crate::{Goal, Observed, Validated, rehearsal};

/// Most slips of who means another key. Of the 624 keys that QuestDB 9.3.4 takes, those that it does not list whatever it is started
/// with have three slips at least to those that it lists; none has one to any other, and the few that have two to each other
/// (`cairo.o3.max.lag` and `cairo.o3.min.lag`, say) have no word that is not of another key as well.
const SLIPS: usize = 2;

/// Keys that are left out of server.conf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) keys: BTreeSet<String>,
    /// What is told of them.
    pub(crate) why: String,
}

/// Whether it counts which keys QuestDB lists: it may not know one that is asked for, be it to learn what that would take.
pub fn is_to_list_keys(resource: &QuestDB, validated: &Validated, observed: &Observed) -> bool {
    let rehearsed = rehearsal::config_keys(resource);
    let mut keys = validated.config.keys().chain(&rehearsed).peekable();
    if validated.goal != Goal::Serve || keys.peek().is_none() {
        return false;
    }
    let running = Running::in_force(&observed.children);
    running.is_some_and(|running| keys.any(|key| running.may_not_know(key)))
}

/// What is left out of a wish, because QuestDB would not start again with it. It would be restarted with it also where another version is
/// asked for: that is started only after all else that needs a restart.
pub(crate) fn left_out(resource: &QuestDB, validated: &Validated, observed: &Observed) -> Option<LeftOut> {
    let running = Running::in_force(&observed.children).filter(|_| validated.goal == Goal::Serve)?;
    let new = validated.config.keys().filter(|key| running.may_not_know(key));
    let (keys, why): (BTreeSet<String>, String) = match observed.listed_keys.as_deref() {
        Some(listed) => {
            let wrong: Vec<_> = slips(new, listed).collect();
            let told = violations(&running, &wrong);
            let keys = wrong.into_iter().map(|(key, _)| key.clone()).collect();
            (keys, format!("{told}. That is left out, and all else is carried out: correct the spec"))
        }
        // Which of them are right is not known any more; those wait until it is.
        None => (new.cloned().collect(), as_told(resource)?),
    };
    (!keys.is_empty()).then_some(LeftOut { keys, why })
}

/// What is wrong with the keys of a wish.
pub(crate) fn misspelt(validated: &Validated, observed: &Observed) -> Violations {
    let listed = observed.listed_keys.as_deref().filter(|_| validated.goal == Goal::Serve);
    let found = listed.zip(Running::in_force(&observed.children));
    let wrong = found.map(|(listed, running)| {
        let new = validated.config.keys().filter(|key| running.may_not_know(key));
        violations(&running, &slips(new, listed).collect::<Vec<_>>())
    });
    wrong.unwrap_or_default()
}

/// Those of the keys that are misspelt, each with the one that is meant.
fn slips<'a>(
    keys: impl Iterator<Item = &'a String>,
    listed: &'a BTreeSet<String>,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    keys.filter_map(move |key| Some((key, meant(key, listed)?)))
}

fn violations(running: &Running, slips: &[(&String, &String)]) -> Violations {
    let version = running.version();
    let wrong = slips.iter().map(|(key, meant)| {
        let detail = format!(
            "QuestDB {version}, which runs, knows no such key and would not start with it; it knows {meant}"
        );
        Violation::new(field_of(key), Rule::Unknown, detail)
    });
    Violations(wrong.collect())
}

/// What was told of this very spec, where keys of it were left out.
fn as_told(resource: &QuestDB) -> Option<String> {
    let mut conditions = resource.status.iter().flat_map(|status| &status.conditions);
    let told = conditions.find(|found| found.type_ == condition::CONFIG_ACCEPTED)?;
    let is_of_it = told.reason == KEY_UNKNOWN && told.observed_generation == resource.metadata.generation;
    is_of_it.then(|| told.message.clone())
}

/// The key that is meant by one that is not listed.
fn meant<'a>(key: &str, listed: &'a BTreeSet<String>) -> Option<&'a String> {
    if listed.contains(key) || !has_odd_word(key, listed) {
        return None;
    }
    let nearest = |slips| listed.iter().find(|known| is_near(key.as_bytes(), known.as_bytes(), slips));
    (1..=SLIPS).find_map(nearest)
}

/// Whether a key has a word that none of these has. One of known words is another key, and none that is misspelt: `line.tcp.timestamp`
/// beside `line.udp.timestamp`, which alone is listed where `line.http.enabled` is false.
fn has_odd_word(key: &str, listed: &BTreeSet<String>) -> bool {
    let known: BTreeSet<&str> = listed.iter().flat_map(|key| key.split('.')).collect();
    key.split('.').any(|word| !known.contains(word))
}

/// Whether one text is the other but for so many letters at most that are wrong, missing, too many, or in each other's place.
fn is_near(one: &[u8], other: &[u8], slips: usize) -> bool {
    let ([first, rest @ ..], [found, after @ ..]) = (one, other) else {
        return one.len().max(other.len()) <= slips;
    };
    if first == found {
        return is_near(rest, after, slips);
    }
    let Some(left) = slips.checked_sub(1) else { return false };
    let is_swapped = || {
        let ([second, rest @ ..], [next, after @ ..]) = (rest, after) else { return false };
        (first, second) == (next, found) && is_near(rest, after, left)
    };
    is_near(rest, after, left) || is_near(rest, other, left) || is_near(one, after, left) || is_swapped()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use resources::names;
    use serde_json::json;

    use super::*;
    use crate::fixture::{resource, validated, with};
    use crate::{Children, build};

    /// A key that QuestDB runs with.
    const IN_FORCE: &str = "cairo.max.uncommitted.rows";
    const LISTED: [&str; 7] = [
        "cairo.o3.max.lag",
        "http.worker.count",
        "line.tcp.enabled",
        "line.udp.timestamp",
        "query.timeout",
        "shared.worker.count",
        "shared.worker.haltOnError",
    ];

    /// A QuestDB that was started as it is asked for, and lists these keys.
    fn observed(listed: Option<&[&str]>) -> Observed {
        let body = build::stateful_set(&validated(&resource(1)), "node", None).body;
        let metadata = body["spec"]["template"]["metadata"].clone();
        let pod: Pod = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let listed_keys = listed.map(|keys| Arc::new(keys.iter().map(|key| (*key).to_owned()).collect()));
        let children = Children { pod: Some(Arc::new(pod)), ..Children::default() };
        Observed { children, listed_keys, ..Observed::default() }
    }

    fn with_key(key: &str) -> QuestDB {
        with("/spec/config", json!({ key: "2" }))
    }

    #[test]
    fn a_key_is_refused_only_where_another_one_is_sure_to_be_meant() {
        for (key, meant) in [
            ("shared.worker.coutn", Some("shared.worker.count")),
            ("shared.worker.cont", Some("shared.worker.count")),
            ("shared.worker.countt", Some("shared.worker.count")),
            ("shard.worker.cound", Some("shared.worker.count")),
            ("shared.worker.haltonerror", Some("shared.worker.haltOnError")),
            ("cairo.o3.mxa.lag", Some("cairo.o3.max.lag")),
            ("shared.worker.count", None),
            // It is known, because QuestDB runs with it; and this one, because its version has it.
            (IN_FORCE, None),
            ("http.net.connection.limit", None),
            // What is not listed all the same may be known.
            ("line.tcp.timestamp", None),
            ("pg.worker.count", None),
            ("query.timeout.sec", None),
            ("debug.cairo.pool.segment.size", None),
            ("shared.worker.counters", None),
            ("x", None),
        ] {
            let found = misspelt(&validated(&with_key(key)), &observed(Some(&LISTED)));
            let told = found.0.iter().map(|wrong| (wrong.pointer.clone(), wrong.rule)).collect::<Vec<_>>();
            let expected = meant.map(|_| (format!("/spec/config/{key}"), Rule::Unknown));
            assert_eq!(told, expected.into_iter().collect::<Vec<_>>(), "{key}");
            for wrong in &found.0 {
                let ends = wrong.detail.ends_with(&format!("it knows {}", meant.unwrap()));
                assert!(ends && wrong.detail.starts_with("QuestDB 9.3.4, which runs,"), "{}", wrong.detail);
            }
        }
    }

    #[test]
    fn nothing_is_refused_of_a_questdb_that_was_not_asked_or_does_not_run() {
        let wish = validated(&with_key("shared.worker.coutn"));
        assert!(misspelt(&wish, &observed(None)).0.is_empty());
        assert!(misspelt(&wish, &observed(Some(&[]))).0.is_empty());
        let gone = Observed { children: Children::default(), ..observed(Some(&LISTED)) };
        assert!(misspelt(&wish, &gone).0.is_empty());
        let paused = Validated { goal: Goal::Pause, ..wish };
        assert!(misspelt(&paused, &observed(Some(&LISTED))).0.is_empty());
    }

    /// With a wrong key and a right one, of which was told under this generation that not all are known.
    fn told(generation: i64) -> QuestDB {
        let mut told =
            with("/spec/config", json!({ "shared.worker.coutn": "2", "shared.worker.count": "2" }));
        let said = json!({ "type": condition::CONFIG_ACCEPTED, "status": "False", "reason": KEY_UNKNOWN, "message": "told",
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z" });
        told.status = Some(serde_json::from_value(json!({ "conditions": [said] })).unwrap());
        told
    }

    #[test]
    fn what_is_left_out_stays_so_while_nobody_can_be_asked() {
        let keys = |resource: &QuestDB, listed: Option<&[&str]>| {
            let found = left_out(resource, &validated(resource), &observed(listed));
            found.map(|found| found.keys.into_iter().collect::<Vec<_>>()).unwrap_or_default()
        };
        assert_eq!(keys(&told(1), Some(&LISTED)), ["shared.worker.coutn"]);
        // Nobody knows any more which it was.
        assert_eq!(keys(&told(1), None), ["shared.worker.count", "shared.worker.coutn"]);
        // It was told of another spec, or nothing was.
        for resource in [told(0), with_key("shared.worker.coutn")] {
            assert_eq!(keys(&resource, None), Vec::<String>::new());
        }
        let resource = told(1);
        let gone = Observed { children: Children::default(), ..observed(None) };
        assert_eq!(left_out(&resource, &validated(&resource), &gone), None);
    }

    #[test]
    fn a_questdb_is_asked_where_it_may_not_know_a_key() {
        let check = |resource: &QuestDB, observed: &Observed, expected: bool| {
            let found = is_to_list_keys(resource, &validated(resource), observed);
            assert_eq!(found, expected, "{:?} {:?}", resource.spec.config, resource.metadata.annotations);
        };
        check(&with_key("shared.worker.count"), &observed(None), true);
        check(&with_key("shared.worker.count"), &Observed::default(), false);
        check(&with_key(IN_FORCE), &observed(None), false);
        check(&with_key("http.net.connection.limit"), &observed(None), false);
        check(&with("/spec/config", json!({})), &observed(None), false);
        let mut paused = with_key("shared.worker.count");
        paused.spec.run_state = resources::RunState::Paused;
        check(&paused, &observed(None), false);
        for (patch, expected) in [
            (r#"{"config":{"shared.worker.count":"2"}}"#, true),
            (r#"{"config":{"cairo.max.uncommitted.rows":null}}"#, false),
            (r#"{"config":null}"#, false),
            ("no json", false),
        ] {
            let mut asked = resource(1);
            let annotations = asked.metadata.annotations.get_or_insert_default();
            annotations.insert(names::DRY_RUN.to_owned(), patch.to_owned());
            check(&asked, &observed(None), expected);
        }
    }
}
