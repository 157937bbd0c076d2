//! Secrets that hold credentials: taken over, changed, withdrawn and wrong, with a QuestDB that knows only what it read when it
//! started.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::core::ObjectMeta;
use resources::names::condition;
use resources::{CredentialsSpec, IlpSpec, QuestDB, SecretSpec, names};
use serde_json::json;

use super::model::{Refusal, World};
use super::operations::change;
use super::{ENOUGH, check_serving, pass, serving, settle, troubles};
use crate::fixture::validated;
use crate::secrets::{self, NewCredentials, Origin, Secrets};
use crate::{Children, Manifest, Part, Plan, State, Step, Target};

/// The name of the resource of all these tests.
pub(super) const NAME: &str = "trades-33445566";
/// Points of the curve P-256.
pub(crate) const POINTS: [(&str, &str); 4] = [
    ("6w2L1tE1rC2R0dQiQzbQMCq0TajjF1aiqozpZBgM1So", "STTek4Ug1b1XzcccmPkGCcr3BozE9TwgwlzC2orQ1JA"),
    ("VKtqvi8nbHx72bEpYjEUiSAPrcLDq13DF2jkUFILRgY", "7ijCs9aOJuL_iao_xg5jqdSCXVHGnEOUQVspyJ_HU8I"),
    ("31Fb3exgXYGmDU3bJmH3JQag4AmbCrjk_8Y-bD-0S9I", "s75k0IGzawj-HnrFIdmJfRtmozkJb1ph5vmFGsvcvRA"),
    ("uU1V-X1HFqK97eZ5HvGe54JfJptB-n1fOoMUOu1CtZU", "vEWfzO6RtmrUDvH1Pdx91grF3cAOpeG8R6nbxv-XrZM"),
];

/// A key with its private half, as its owner keeps it.
pub(crate) fn jwk(id: &str, point: usize) -> String {
    let (x, y) = POINTS[point];
    json!({ "kty": "EC", "crv": "P-256", "kid": id, "d": "private", "x": x, "y": y }).to_string()
}

impl World {
    /// Somebody makes a Secret, or another one of it.
    pub(super) fn give(&mut self, name: &str, word: Option<&str>, data: &[(&str, &str)]) {
        let number = self.next();
        let before = self.secrets.iter().position(|found| found.metadata.name.as_deref() == Some(name));
        let uid = before
            .map_or_else(|| format!("given-{number}"), |at| self.secrets.remove(at).metadata.uid.unwrap());
        let mut annotations = json!({ names::SECRET_OF: NAME });
        if let Some(word) = word {
            annotations[names::secret::TYPE] = json!(word);
        }
        let metadata = json!({ "name": name, "uid": uid, "resourceVersion": number.to_string(),
            "annotations": annotations });
        let mut secret: Secret = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        secret.data = Some(data.collect());
        self.secrets.push(secret);
        self.secrets.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    }

    pub(super) fn login(&mut self, name: &str, word: &str, (user, password): (&str, &str)) {
        self.give(name, Some(word), &[("username", user), ("password", password)]);
    }

    pub(super) fn key(&mut self, name: &str, keys: &[String]) {
        let set = format!("{{\"keys\":[{}]}}", keys.join(","));
        self.give(name, Some("ilp"), &[("auth.json", &set)]);
    }

    pub(super) fn take_back(&mut self, name: &str) {
        self.secrets.retain(|found| found.metadata.name.as_deref() != Some(name));
    }

    /// What an operator sees of the Secrets, and reads of them live.
    pub(super) fn secrets_seen(&self, resource: &QuestDB, children: &mut Children) -> Secrets {
        let wish = validated(resource);
        super::overwritten::judge(children);
        let concerns = self.secrets.iter().map(|secret| &secret.metadata);
        let concerns = concerns.filter(|metadata| secrets::concerned(metadata) == Some(NAME));
        let mut seen = Secrets::told(concerns.map(secrets::claim).collect(), &wish.subject);
        let find =
            |name: &str| self.secrets.iter().find(|found| found.metadata.name.as_deref() == Some(name));
        let origin = |name: &String| find(name).map(|found| Origin::of(&found.metadata));
        seen.named = secrets::named(&wish).into_iter().map(|name| (name.clone(), origin(&name))).collect();
        let observed =
            crate::Observed { children: children.clone(), secrets: seen, ..crate::Observed::default() };
        let names = secrets::to_read(&wish, &observed);
        let mut seen = observed.secrets;
        for name in names {
            let own = name == names::credentials(NAME);
            if own {
                children.secret.clone_from(&self.children.secret);
                super::overwritten::judge(children);
            }
            let found = if own { self.children.secret.as_deref() } else { find(&name) };
            if self.unreadable.contains(&name) {
                seen.unreadable.insert(name, "the API server answers 403".to_owned());
            } else {
                seen.put(&wish, name, found.cloned());
            }
        }
        seen
    }

    /// A Secret in which a key was handed out goes.
    pub(super) fn delete_handed_out(&mut self, target: &Target) {
        let same = |found: &Secret| {
            found.metadata.name.as_ref() == Some(&target.name)
                && found.metadata.uid.as_ref() == Some(&target.uid)
        };
        self.secrets.retain(|found| !same(found));
    }

    /// The Secret in which a key may have been handed out goes, if it is ours.
    pub(super) fn revoke_key(&mut self, manifest: &Manifest) {
        let subject = validated(&self.resource).subject;
        let named = |found: &Secret| found.metadata.name.as_ref() == Some(&manifest.name);
        self.secrets.retain(|found| !(named(found) && subject.holds(&found.metadata)));
    }

    /// Makes the Secret, or writes over what it says of itself as a merge does.
    pub(super) fn create_secret(&mut self, manifest: &Manifest) {
        let mut body = manifest.body.clone();
        let number = self.next().to_string();
        let Some(found) = &mut self.children.secret else {
            self.secrets_drawn += 1;
            body["metadata"]["uid"] = json!(format!("secret-{}", self.secrets_drawn));
            body["metadata"]["resourceVersion"] = json!(number);
            let drawn = format!("drawn-{}", self.secrets_drawn);
            body["metadata"]["annotations"][names::secret::REVISION] = json!(drawn);
            let [user, password] = [json!("YQ=="), json!(ByteString(drawn.into_bytes()))];
            body["data"] = json!({ "pg-user": user, "pg-password": password, "http-user": user, "http-password": password });
            self.children.secret = Some(Arc::new(super::overwritten::held(body)));
            return;
        };
        let found = &mut Arc::make_mut(found).metadata;
        let before = found.clone();
        let annotations = found.annotations.get_or_insert_default();
        for (key, value) in body["metadata"]["annotations"].take().as_object().into_iter().flatten() {
            annotations.remove(key);
            annotations.extend(value.as_str().map(|value| (key.clone(), value.to_owned())));
        }
        let ours: ObjectMeta = serde_json::from_value(body["metadata"].take()).unwrap();
        found.labels.get_or_insert_default().extend(ours.labels.unwrap_or_default());
        if ours.owner_references.is_some() {
            found.owner_references = ours.owner_references.filter(|owners| !owners.is_empty());
        }
        if *found != before {
            found.resource_version = Some(number);
        }
    }

    pub(super) fn draw_key(&mut self, manifest: &Manifest, id: &str) -> Result<(), Refusal> {
        if self.secrets.iter().any(|found| found.metadata.name.as_ref() == Some(&manifest.name)) {
            return Ok(());
        }
        if self.full.secrets {
            return Err(super::keys::NO_SECRET);
        }
        *self.keys_drawn.entry(id.to_owned()).or_default() += 1;
        let mut body = manifest.body.clone();
        let number = self.next();
        body["metadata"]["uid"] = json!(format!("given-{number}"));
        body["metadata"]["resourceVersion"] = json!(number.to_string());
        let mut secret: Secret = serde_json::from_value(body).unwrap();
        let point = usize::from(id.as_bytes()[id.len() - 1]) % POINTS.len();
        let key = ByteString(jwk(id, point).into_bytes());
        secret.data = Some(BTreeMap::from([(names::secret::JWK.to_owned(), key)]));
        self.secrets.push(secret);
        Ok(())
    }

    pub(super) fn set_credentials(&mut self, new: &NewCredentials) -> Result<(), Refusal> {
        let number = self.next();
        let own = self.children.secret.as_mut().ok_or("there is no such Secret")?;
        if Origin::of(&own.metadata) != new.over {
            return Err("it is not the Secret that was read");
        }
        let mut after = (**own).clone();
        super::overwritten::write(&mut after, new);
        if own.immutable == Some(true) && after.data != own.data {
            return Err("nobody changes what is immutable");
        }
        after.metadata.resource_version = Some(number.to_string());
        *own = Arc::new(after);
        Ok(())
    }
}

/// The value of a key of the operator's Secret.
pub(super) fn written(world: &World, key: &str) -> Option<String> {
    let data = world.children.secret.as_ref()?.data.as_ref()?;
    data.get(key).map(|value| String::from_utf8(value.0.clone()).unwrap())
}

/// The same as the running QuestDB read it.
pub(super) fn in_force(world: &World, key: &str) -> Option<String> {
    let data = world.process.as_ref()?.data.as_ref()?;
    data.get(key).map(|value| String::from_utf8(value.0.clone()).unwrap())
}

pub(super) fn refusal(world: &World) -> Option<String> {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == condition::CREDENTIALS_ACCEPTED)?;
    (found.status == "False").then(|| found.message.clone())
}

pub(super) fn opens_ilp(world: &World) -> bool {
    world.groups[0].ingress.iter().any(|rule| rule.from_port == 9009)
}

/// Whether whoever comes in over the line protocol is asked for a key, or cannot come in.
pub(super) fn asks_for_keys(world: &World) -> bool {
    world.children.pod.is_none() || !opens_ilp(world) || in_force(world, "ilp-keys").is_some()
}

/// Whether a QuestDB runs that nobody has told to stop and that knows another value than is written.
pub(super) fn is_behind(world: &World, key: &str) -> bool {
    let pod = world.children.pod.as_ref();
    let lives = pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none());
    lives && written(world, key) != in_force(world, key)
}

fn listens_for_ilp(world: &World) -> bool {
    let set = world.children.stateful_set.as_ref().unwrap();
    let text = serde_json::to_string(&set.spec.as_ref().unwrap().template).unwrap();
    assert_eq!(text.contains("QDB_LINE_TCP_ENABLED"), text.contains("QDB_LINE_TCP_AUTH_DB_PATH"));
    text.contains("QDB_LINE_TCP_ENABLED")
}

/// Passes until nothing is left to do, with a look at each; how often QuestDB was stopped.
pub(super) fn watched(world: &mut World, mut look: impl FnMut(&World, &Plan)) -> usize {
    let (mut taken, mut stops) = (0, 0);
    for _ in 0..ENOUGH {
        let planned = pass(world, &mut taken, None, false);
        stops += planned.actions.iter().filter(|action| matches!(action.step, Step::Delete(_))).count();
        look(world, &planned);
        if planned.is_settled() && planned.actions.is_empty() {
            return stops;
        }
        world.tick();
    }
    panic!("not settled: {:#?}", world.resource.status);
}

#[test]
fn a_password_is_told_then_written_and_then_in_force_with_one_restart() {
    let mut world = serving();
    world.login("own", "psql", ("ada", "first"));
    let stops = watched(&mut world, |_, _| {});
    assert_eq!((stops, in_force(&world, "pg-password").as_deref()), (1, Some("first")));
    check_serving(&world, None);

    world.login("own", "psql", ("ada", "second"));
    let mut said = false;
    let stops = watched(&mut world, |world, planned| {
        let pending = &world.resource.status.as_ref().unwrap().pending;
        let writes = planned.actions.iter().any(|action| matches!(action.step, Step::SetCredentials(_)));
        assert!(said || !writes, "written before it was told");
        said |= pending.iter().any(|found| found.field == "/spec/credentials");
        let serves = in_force(world, "pg-password");
        // Whoever knows the old one and the new one comes in at every moment.
        assert!(["first", "second"].map(Some).contains(&serves.as_deref()), "{serves:?}");
    });
    assert!(said);
    assert_eq!((stops, in_force(&world, "pg-password").as_deref()), (1, Some("second")));
    assert_eq!(written(&world, "http-password").as_deref(), Some("drawn-1"), "nobody gave another");
    assert_eq!(world.resource.status.as_ref().unwrap().pending, []);
}

#[test]
fn what_changes_together_with_a_password_shares_its_restart() {
    let mut world = serving();
    world.login("own", "psql", ("ada", "new"));
    change(&mut world, |spec| spec.restart_nonce = Some("once".to_owned()));
    let (mut taken, mut stops) = (0, 0);
    for _ in 0..ENOUGH {
        let planned = pass(&mut world, &mut taken, None, false);
        stops += planned.actions.iter().filter(|action| matches!(action.step, Step::Delete(_))).count();
        // Everybody else is quick: another pod is there before the operator looks again.
        (0..3).for_each(|_| world.tick());
    }
    assert_eq!((stops, in_force(&world, "pg-password").as_deref()), (1, Some("new")));
    check_serving(&world, None);
}

#[test]
fn what_is_in_force_is_not_read_again_and_what_says_the_same_restarts_nothing() {
    let mut world = serving();
    world.login("own", "http", ("web", "first"));
    settle(&mut world, None, false);
    let names = |world: &World| secrets::to_read(&validated(&world.resource), &world.look());
    assert!(names(&world).is_empty());
    // The same values at another version, and then in another Secret.
    world.login("own", "http", ("web", "first"));
    assert_eq!(names(&world).len(), 2);
    assert_eq!(watched(&mut world, |_, _| {}), 0);
    world.take_back("own");
    world.login("other", "http", ("web", " first\n"));
    assert_eq!(watched(&mut world, |_, _| {}), 0);
    assert!(names(&world).is_empty());
    // Who takes its Secret away leaves the last password.
    world.take_back("other");
    assert_eq!(watched(&mut world, |_, _| {}), 0);
    assert_eq!(in_force(&world, "http-password").as_deref(), Some("first"));
    assert!(names(&world).is_empty());
}

#[test]
fn what_cannot_be_taken_over_is_told_and_the_last_good_stays() {
    let mut world = serving();
    world.login("a", "psql", ("ada", "good"));
    world.key("keys", &[jwk("k1", 0)]);
    settle(&mut world, None, false);
    let process = world.process.clone();
    let check = |world: &mut World, expected: &[&str]| {
        settle(world, None, false);
        let text = refusal(world).unwrap_or_default();
        assert!(expected.iter().all(|word| text.contains(word)), "{expected:?}: {text}");
        assert_eq!(world.process, process, "{text}");
        check_serving(world, None);
    };
    world.login("b", "psql", ("eve", "other"));
    check(&mut world, &["Secrets a, b", "psql"]);
    world.take_back("b");
    world.give("a", Some("psql"), &[("username", "ada")]);
    check(&mut world, &["Secret a", "password"]);
    world.give("a", Some("pqsl"), &[("username", "ada"), ("password", "x")]);
    check(&mut world, &["Secret a", "pqsl", "psql-readonly"]);
    world.give("a", None, &[]);
    check(&mut world, &["Secret a", names::secret::TYPE]);
    world.login("a", "psql", ("ada", "good"));
    let bad = jwk("k1", 0).replace(POINTS[0].1, POINTS[1].1);
    world.key("keys", &[jwk("k2", 1), bad]);
    check(&mut world, &["Secret keys", "key 1", "P-256"]);
    assert!(opens_ilp(&world) && listens_for_ilp(&world));
    world.key("keys", &[jwk("k1", 0)]);
    world.login("c", "psql-readonly", ("ada", "reads"));
    check(&mut world, &["Secret c", "only read"]);
    world.take_back("c");
    settle(&mut world, None, false);
    assert_eq!(refusal(&world), None);
}

#[test]
fn the_line_protocol_is_open_while_there_is_a_key_and_shut_without() {
    let mut world = serving();
    assert!(!opens_ilp(&world) && !listens_for_ilp(&world));
    world.key("keys", &[jwk("old", 0)]);
    watched(&mut world, |world, _| assert!(asks_for_keys(world), "open before QuestDB asks for keys"));
    assert!(opens_ilp(&world) && listens_for_ilp(&world));
    let line =
        |id: &str, point: usize| format!("{id} ec-p-256-sha256 {} {}\n", POINTS[point].0, POINTS[point].1);
    assert_eq!(in_force(&world, "ilp-keys"), Some(line("old", 0)));
    // Both for a while, then the new one alone.
    world.key("keys", &[jwk("old", 0), jwk("new", 1)]);
    settle(&mut world, None, false);
    assert_eq!(in_force(&world, "ilp-keys"), Some(line("new", 1) + &line("old", 0)));
    world.key("keys", &[jwk("new", 1)]);
    settle(&mut world, None, false);
    assert_eq!(in_force(&world, "ilp-keys"), Some(line("new", 1)));
    world.take_back("keys");
    let stops = watched(&mut world, |world, _| {
        // The doors are shut before the keys are gone from the process.
        assert!(in_force(world, "ilp-keys").is_some() || world.process.is_none() || !opens_ilp(world));
    });
    assert_eq!(stops, 1);
    assert!(!opens_ilp(&world) && !listens_for_ilp(&world));
    assert!(!format!("{:?}", world.children).contains("private"), "the private half left its Secret");
}

pub(super) fn wishing(world: &mut World, drawn: &[&str]) {
    let drawn = drawn.iter().map(|id| (*id).to_owned()).collect();
    let ilp = Some(IlpSpec { secret_name: None, drawn });
    change(world, |spec| spec.credentials = Some(CredentialsSpec { ilp, ..CredentialsSpec::default() }));
}

#[test]
fn a_key_is_drawn_and_handed_out_once() {
    let mut world = serving();
    wishing(&mut world, &["first"]);
    settle(&mut world, None, false);
    let name = names::drawn_key(NAME, "first");
    assert!(world.secrets.iter().any(|found| found.metadata.name.as_ref() == Some(&name)));
    assert!(in_force(&world, "ilp-keys").unwrap().starts_with("first ec-p-256-sha256 "));
    world.take_back(&name);
    assert_eq!(watched(&mut world, |_, _| {}), 0);
    wishing(&mut world, &["first", "second"]);
    settle(&mut world, None, false);
    assert_eq!(in_force(&world, "ilp-keys").unwrap().lines().count(), 2);
    wishing(&mut world, &["second"]);
    settle(&mut world, None, false);
    assert!(in_force(&world, "ilp-keys").unwrap().starts_with("second "));
    let drawn: Vec<_> = world.keys_drawn.clone().into_iter().collect();
    assert_eq!(drawn, [("first".to_owned(), 1), ("second".to_owned(), 1)]);
    // Whoever takes the operator's note away loses nothing that was handed out.
    world.take_back(&names::drawn_key(NAME, "second"));
    Arc::make_mut(world.children.secret.as_mut().unwrap()).metadata.annotations = None;
    assert_eq!(watched(&mut world, |_, _| {}), 0);
    assert_eq!(world.keys_drawn["second"], 1);
}

#[test]
fn a_secret_that_the_spec_names_is_taken_and_told_when_it_is_missing() {
    let mut world = serving();
    change(&mut world, |spec| {
        let psql = Some(SecretSpec { secret_name: "mine".to_owned() });
        spec.credentials = Some(CredentialsSpec { psql, ..CredentialsSpec::default() });
    });
    settle(&mut world, None, false);
    let text = refusal(&world).unwrap();
    assert!(text.contains("spec.credentials.psql") && text.contains("mine"), "{text}");
    check_serving(&world, None);
    world.give("mine", None, &[("username", "ada"), ("password", "p")]);
    // It need not say whose it is.
    world.secrets[0].metadata.annotations = None;
    settle(&mut world, None, false);
    assert_eq!((refusal(&world), in_force(&world, "pg-user").as_deref()), (None, Some("ada")));
}

#[test]
fn credentials_that_were_lost_are_drawn_anew_and_brought_into_force() {
    let mut world = serving();
    assert_eq!(in_force(&world, "pg-password").as_deref(), Some("drawn-1"));
    world.children.secret = None;
    world.secrets_lost += 1;
    assert_eq!(watched(&mut world, |_, _| {}), 1);
    assert_eq!(in_force(&world, "pg-password").as_deref(), Some("drawn-2"));
}

#[test]
fn a_pod_from_before_revisions_goes_on_with_what_it_read() {
    let mut world = serving();
    // As an operator without revisions left everything.
    let own = Arc::make_mut(world.children.secret.as_mut().unwrap());
    own.metadata.annotations = None;
    own.data.as_mut().unwrap().remove(names::secret::WRITTEN).unwrap();
    world.children.stateful_set = None;
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    let annotations = pod.metadata.annotations.as_mut().unwrap();
    let mut running: serde_json::Value = serde_json::from_str(&annotations[names::RUNNING]).unwrap();
    running.as_object_mut().unwrap().remove("credentials").unwrap();
    annotations.insert(names::RUNNING.to_owned(), running.to_string());
    let checksum = crate::build::checksum(&validated(&world.resource), "qdb-33445566-g1");
    annotations.insert(names::CHECKSUM.to_owned(), checksum);
    assert_eq!(watched(&mut world, |_, _| {}), 0);
}

#[test]
fn other_credentials_wait_where_questdb_would_not_start_again() {
    let mut world = serving();
    // It cannot go elsewhere.
    world.full.machines = vec![world.volumes[0].zone.clone()];
    let node = Arc::make_mut(&mut world.children.nodes[0]);
    node.spec.get_or_insert_default().unschedulable = Some(true);
    world.login("own", "psql", ("ada", "new"));
    for _ in 0..9 {
        let planned = pass(&mut world, &mut 0, None, false);
        let writes = planned.actions.iter().any(|action| matches!(action.step, Step::SetCredentials(_)));
        assert!(!writes, "{:?}", planned.actions);
        world.tick();
    }
    let planned = pass(&mut world, &mut 0, None, false);
    assert!(
        matches!(planned.state(Part::Credentials), Some(State::Running(text)) if text.contains("cordoned"))
    );
    assert_eq!(written(&world, "pg-password").as_deref(), Some("drawn-1"), "who reads the Secret comes in");
    world.full.machines.clear();
    Arc::make_mut(&mut world.children.nodes[0]).spec.get_or_insert_default().unschedulable = None;
    settle(&mut world, None, false);
    assert_eq!(in_force(&world, "pg-password").as_deref(), Some("new"));
}

#[test]
fn a_rotation_may_be_disturbed_at_every_step() {
    let start = || {
        let mut world = serving();
        world.login("own", "psql", ("ada", "new"));
        world.key("keys", &[jwk("k1", 0)]);
        world
    };
    let steps = settle(&mut start(), None, false);
    assert!(steps >= 4, "{steps}");
    for trouble in troubles(steps) {
        let mut world = start();
        settle(&mut world, Some(trouble), false);
        check_serving(&world, Some(trouble));
        assert_eq!(in_force(&world, "pg-password").as_deref(), Some("new"), "{trouble:?}");
        assert_eq!(written(&world, "ilp-keys"), in_force(&world, "ilp-keys"), "{trouble:?}");
        assert!(opens_ilp(&world) && listens_for_ilp(&world), "{trouble:?}");
    }
}

#[test]
fn no_value_is_shown_by_what_is_written_for_people() {
    let mut world = serving();
    world.login("own", "psql", ("ada", "canary"));
    world.key("keys", &[jwk("k1", 0)]);
    let stops = watched(&mut world, |world, planned| {
        let shown = format!("{planned:?} {:?} {:?}", world.resource, world.look().secrets);
        assert!(!shown.contains("canary") && !shown.contains("private"), "{shown}");
    });
    assert_eq!(stops, 1);
}
