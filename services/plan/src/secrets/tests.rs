//! Tables of what a Secret may hold, and that nothing it may hold stops a decision.

use std::sync::Arc;

use k8s_openapi::ByteString;
use proptest::prelude::*;
use resources::{CredentialsSpec, IlpSpec, SecretSpec};
use serde_json::{Value, json};

use super::Credential::{Http, Psql, PsqlReadonly};
use super::choice::to_read;
use super::*;
use crate::fixture::{resource, validated};

const NAME: &str = "trades-33445566";
const X: &str = "6w2L1tE1rC2R0dQiQzbQMCq0TajjF1aiqozpZBgM1So";
const Y: &str = "STTek4Ug1b1XzcccmPkGCcr3BozE9TwgwlzC2orQ1JA";

fn content(data: &[(&str, &[u8])]) -> Content {
    let origin = Origin { name: "s".to_owned(), uid: "u".to_owned(), version: "1".to_owned() };
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), Hidden::new(value.to_vec())));
    Content { origin, data: data.collect(), hands: BTreeMap::new() }
}

fn metadata(name: &str, annotations: &Value) -> ObjectMeta {
    serde_json::from_value(json!({ "name": name, "annotations": annotations })).unwrap()
}

#[test]
fn a_secret_belongs_to_whom_it_names() {
    let check = |name: &str, annotations: Value, expected: Option<&str>| {
        assert_eq!(owner(&metadata(name, &annotations)), expected, "{name} {annotations}");
    };
    let of = |name: &str| json!({ names::SECRET_OF: name });
    check("s", of("trades"), Some("trades"));
    check("s", of(""), None);
    check("s", json!({}), None);
    check("s", json!({ "questdb.crd.questdb.io/name": "trades" }), None);
    // The one that the operator writes.
    check("trades-credentials", of("trades"), None);
    check("trades-credentials", of("other"), Some("other"));
    let said = claim(&metadata("s", &json!({ names::SECRET_OF: "a", names::secret::TYPE: "ilp" })));
    assert_eq!(said.word.as_deref(), Some("ilp"));
    for credential in Credential::ALL {
        assert_eq!(Credential::of(credential.as_str()), Some(credential));
        assert_eq!(json!(credential), json!(credential.as_str()));
    }
}

#[test]
fn for_whom_a_key_was_handed_out_its_name_and_its_mark_say() {
    let subject = validated(&resource(1)).subject;
    let name = names::drawn_key(&subject.name, "k.1");
    let told = |annotations: Value| {
        let found = metadata(&name, &annotations);
        let claims = concerned(&found).map(|_| claim(&found)).into_iter().collect();
        let told = Secrets::told(claims, &subject);
        (told.claims.len(), told.handed_out.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(told(json!({ names::RESOURCE: subject.uid })), (0, vec!["k.1".to_owned()]));
    // Of a resource that went, of nobody, and of somebody who says what it holds.
    assert_eq!(told(json!({ names::RESOURCE: "other" })), (0, Vec::new()));
    assert_eq!(told(json!({})), (0, Vec::new()));
    let given = json!({ names::RESOURCE: subject.uid, names::SECRET_OF: subject.name });
    assert_eq!(told(given), (1, Vec::new()));
    let own = metadata(&names::credentials(&subject.name), &json!({ names::RESOURCE: subject.uid }));
    assert_eq!(concerned(&own), None);
    let going = json!({
        "name": name, "annotations": { names::RESOURCE: subject.uid }, "deletionTimestamp": "2026-01-01T00:00:00Z",
    });
    let going: ObjectMeta = serde_json::from_value(going).unwrap();
    assert_eq!(concerned(&going), None, "it was revoked");
}

#[test]
fn a_login_is_one_line_each() {
    let check = |credential: Credential, data: &[(&str, &[u8])], expected: Result<[&str; 2], &str>| {
        let found = login::login(credential, &content(data));
        let found = found.map(|both| both.map(|one| String::from_utf8(one.expose().to_vec()).unwrap()));
        match expected {
            Ok(both) => assert_eq!(found.unwrap(), both),
            Err(word) => {
                let text = found.unwrap_err();
                assert!(text.starts_with("Secret s") && text.contains(word), "{text}");
            }
        }
    };
    let good: &[(&str, &[u8])] = &[("username", b" ada "), ("password", b"p:1 2\n")];
    for credential in [Http, Psql, PsqlReadonly] {
        check(credential, good, Ok(["ada", "p:1 2"]));
    }
    // QuestDB drops what is a blank in ASCII, and nothing else.
    for kept in ["\u{a0}p\u{a0}", "\u{3000}p\u{2003}", "\u{3000}"] {
        let given = format!("\t {kept} \r\n");
        check(Http, &[("username", b"ada"), ("password", given.as_bytes())], Ok(["ada", kept]));
    }
    check(Http, &[("username", b"ada"), ("password", "p\u{85}".as_bytes())], Err("password"));
    let other: &[(&str, &[u8])] = &[("QDB_PG_USER", b"ada"), ("QDB_PG_PASSWORD", b"p")];
    check(Psql, other, Ok(["ada", "p"]));
    check(Http, other, Err("no key username"));
    check(Psql, &[("username", b"ada")], Err("no key password"));
    check(Psql, &[("password", b"p")], Err("no key username"));
    check(Psql, &[], Err("no key username"));
    check(Psql, &[("username", b"a:b"), ("password", b"p")], Err("colon"));
    check(Psql, &[("username", b"a b"), ("password", b"p")], Err("blank"));
    check(Psql, &[("username", b" "), ("password", b"p")], Err("username"));
    check(Psql, &[("username", b"ada"), ("password", b"")], Err("password"));
    check(Psql, &[("username", b"ada"), ("password", b"a\nb")], Err("password"));
    check(Psql, &[("username", b"ada"), ("password", b"\xff\xfe")], Err("password is no text"));
    check(Psql, &[("username", b"ada"), ("password", &[b'a'; 1_025])], Err("password"));
}

#[test]
fn a_key_gives_its_public_half_and_nothing_wrong_passes() {
    let good = || json!({ "kty": "EC", "crv": "P-256", "kid": "k1", "d": "private", "x": X, "y": Y });
    let with = |field: &str, value: Value| {
        let mut key = good();
        key[field] = value;
        key
    };
    let check = |key: &Value, expected: Result<&str, &str>| {
        let text = key.to_string();
        let found = jwk::keys(&content(&[("auth.json", text.as_bytes())])).map(|lines| jwk::file(&lines));
        match expected {
            Ok(file) => assert_eq!(found.unwrap(), file),
            Err(word) => {
                let said = found.unwrap_err();
                assert!(
                    said.contains(word) && said.contains("auth.json") && !said.contains("private"),
                    "{said}"
                );
            }
        }
    };
    let line = format!("k1 ec-p-256-sha256 {X} {Y}\n");
    check(&good(), Ok(&line));
    check(&json!({ "keys": [good()] }), Ok(&line));
    let both = json!({ "keys": [with("kid", json!("a.b_c-D")), good()] });
    check(&both, Ok(&format!("a.b_c-D ec-p-256-sha256 {X} {Y}\n{line}")));
    check(&json!({ "keys": [good(), good()] }), Err("key 1: another key"));
    check(&json!({ "keys": [] }), Err("1 to 64"));
    check(&json!({ "keys": "x" }), Err("no list"));
    for wrong in [json!("RSA"), json!(1), Value::Null] {
        check(&with("kty", wrong.clone()), Err("kty"));
        check(&with("crv", wrong), Err("crv"));
    }
    for wrong in
        [json!(""), json!("a b"), json!("a\nb"), json!("#"), json!("é"), json!("x".repeat(65)), json!(1)]
    {
        check(&with("kid", wrong), Err("kid"));
    }
    for wrong in [json!(""), json!("AA"), json!(format!("{X}=")), json!("*"), Value::Null] {
        check(&with("x", wrong.clone()), Err("32 bytes"));
        check(&with("y", wrong), Err("32 bytes"));
    }
    check(&with("x", json!(Y)), Err("curve"));
    check(&with("y", json!("A".repeat(43))), Err("curve"));
    let no_json = jwk::keys(&content(&[("auth.json", b"{")])).unwrap_err();
    assert_eq!(no_json, "Secret s: its auth.json is no JSON");
    assert_eq!(jwk::keys(&content(&[])).unwrap_err(), "Secret s has no key auth.json");
    assert_eq!(
        jwk::read(line.as_bytes()),
        jwk::keys(&content(&[("auth.json", good().to_string().as_bytes())])).unwrap()
    );
}

#[test]
fn what_is_hidden_is_shown_to_nobody() {
    assert_eq!(format!("{:?}", Hidden::new(b"secret".to_vec())), "Hidden");
    assert!(!format!("{:?}", content(&[("a", b"secret")])).contains("secret"));
}

fn text() -> impl Strategy<Value = String> {
    let words = ["psql", "psql-readonly", "http", "ilp", "", NAME, "a", "b"].map(str::to_owned).to_vec();
    prop_oneof![prop::sample::select(words), any::<String>()]
}

fn annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    let keys = [names::SECRET_OF, names::secret::TYPE, names::secret::TAKEN_FROM, names::secret::REVISION];
    let keys = prop::sample::select(keys.map(str::to_owned).to_vec());
    let noted =
        json!({ "from": { "psql": { "name": "a", "uid": "", "version": "" } }, "drawn": ["b"] }).to_string();
    let begun = json!({ "begun": ["a"] }).to_string();
    let values = prop_oneof![text(), Just(noted), Just(begun)];
    prop::collection::btree_map(prop_oneof![3 => keys, 1 => any::<String>()], values, 0..5)
}

fn secrets() -> impl Strategy<Value = Secret> {
    let given = ["username", "password", "auth.json"];
    let own = [names::secret::ILP_KEYS, names::secret::PG_READONLY_USER, names::secret::WRITTEN];
    let keys = [given, own].concat();
    let keys = prop::sample::select(keys.into_iter().map(str::to_owned).collect::<Vec<_>>());
    let copy = json!({ "revision": "a", "values": { names::secret::PG_READONLY_USER: "YWRh", "other": "" } });
    let copy = copy.to_string().into_bytes();
    let jwk = format!("{{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"b\",\"x\":\"{X}\",\"y\":\"{Y}\"}}")
        .into_bytes();
    let keyless = b"{\"keys\":[1]}".to_vec();
    let values = prop_oneof![any::<Vec<u8>>(), Just(jwk), Just(copy), Just(b"ada".to_vec()), Just(keyless)];
    let data = prop::collection::btree_map(keys, values.prop_map(ByteString), 0..5);
    let metadata = (prop::option::of(text()), prop::option::of(annotations()), prop::option::of(text()));
    (metadata, prop::option::of(data)).prop_map(|((name, annotations, version), data)| Secret {
        metadata: ObjectMeta { name, annotations, resource_version: version, ..ObjectMeta::default() },
        data,
        ..Secret::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever there is, something is decided, and what is decided is stable: done, it is not asked for again.
    #[test]
    fn no_secret_stops_a_decision(
        own in prop::option::of(secrets()),
        others in prop::collection::vec(secrets(), 0..5),
        drawn in prop::collection::vec("[ab]", 0..3),
        named in prop::option::of(text()),
    ) {
        let mut wish = validated(&resource(1));
        let psql = named.map(|secret_name| SecretSpec { secret_name });
        wish.credentials =
            CredentialsSpec { psql, ilp: Some(IlpSpec { secret_name: None, drawn }), ..CredentialsSpec::default() };
        let own = own.map(|mut own| {
            own.metadata.name = Some(names::credentials(NAME));
            Arc::new(own)
        });
        let mut observed = Observed::default();
        observed.children.secret.clone_from(&own);
        for secret in &others {
            if owner(&secret.metadata).is_some() {
                observed.secrets.claims.push(claim(&secret.metadata));
            }
        }
        let find = |name: &String| others.iter().find(|found| found.metadata.name.as_ref() == Some(name));
        let origin = |name: &String| find(name).map(|found| Origin::of(&found.metadata));
        observed.secrets.named = super::named(&wish).into_iter().map(|name| (name.clone(), origin(&name))).collect();
        let names = to_read(&wish, &observed);
        prop_assert!(own.is_some() || names.is_empty());
        for name in names {
            let of_own = own.as_deref().filter(|own| own.metadata.name.as_ref() == Some(&name));
            let found = of_own.or_else(|| find(&name)).cloned().map(Content::of);
            observed.secrets.read.insert(name, found);
        }
        let first = choose(&wish, &observed);
        let Some(own) = &mut observed.children.secret else { return Ok(()) };
        let (Taking::Note(new) | Taking::Renewal(new) | Taking::Keep(new) | Taking::PutRight(new)) = &first.taking
        else {
            return Ok(());
        };
        let own = Arc::make_mut(own);
        new.write(own, "another");
        let content = Content::of(own.clone());
        observed.secrets.read.insert(names::credentials(NAME), Some(content));
        let again = choose(&wish, &observed);
        match &first.taking {
            Taking::Keep(_) => {
                prop_assert!(!matches!(again.taking, Taking::Keep(_)), "noted again and again");
            }
            Taking::PutRight(_) => {
                prop_assert!(!matches!(again.taking, Taking::PutRight(_)), "put right again and again");
            }
            _ => {
                prop_assert_eq!(again.taking, Taking::Nothing);
            }
        }
    }
}
