//! What of others a pod names: Secrets and `ConfigMaps`, its service account, its priority class. It does not start without them,
//! or is not even made, and a variable that is read from one has the value of the moment when its container started. And what routes
//! name: the Secret with their certificate, of which nobody but Traefik would say that it is missing.
//!
//! They are known by their metadata alone: what is in them is nobody's business here. So a key that is missing in one is not
//! seen, and whoever writes to one, be it only a label, has written to it.
//!
//! *Invariant:* QuestDB is not stopped for a pod that would not start: what runs is worth more than the change. *Invariant:*
//! nobody is restarted because something that a spec only names was written: it is told, and takes effect with the next restart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use resources::{EnvSpec, names};

use crate::change::annotation_of_template;
use crate::few::few;
use crate::planner::World;
use crate::secrets::Origin;
use crate::{Kind, Observed, Validated};

/// Kinds of what a pod may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReferenceKind {
    /// A `ConfigMap`.
    ConfigMap,
    /// A Secret.
    Secret,
    /// A `ServiceAccount`.
    ServiceAccount,
    /// A `PriorityClass`, which lies in no namespace.
    PriorityClass,
}

/// An object that a pod or a route names: of the same namespace, where its kind lies in one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// Its kind.
    pub kind: ReferenceKind,
    /// Its name.
    pub name: String,
}

impl Reference {
    /// A Secret of this name.
    pub fn secret(name: &str) -> Self {
        Self { kind: ReferenceKind::Secret, name: name.to_owned() }
    }

    /// A `ConfigMap` of this name.
    pub fn config_map(name: &str) -> Self {
        Self { kind: ReferenceKind::ConfigMap, name: name.to_owned() }
    }

    /// A service account of this name.
    pub fn service_account(name: &str) -> Self {
        Self { kind: ReferenceKind::ServiceAccount, name: name.to_owned() }
    }

    /// A priority class of this name.
    pub fn priority_class(name: &str) -> Self {
        Self { kind: ReferenceKind::PriorityClass, name: name.to_owned() }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ReferenceKind::ConfigMap => "ConfigMap",
            ReferenceKind::Secret => "Secret",
            ReferenceKind::ServiceAccount => "ServiceAccount",
            ReferenceKind::PriorityClass => "PriorityClass",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// Those that are named, as their watches show them: `None` is not there, and what is missing is not known yet.
pub type References = BTreeMap<Reference, Option<Origin>>;

/// What is named, where the spec does it, and what for.
struct Naming {
    what: Reference,
    field: String,
    purpose: Purpose,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It is read when the container starts, which it does not without it.
    Variable,
    /// It is mounted before the container starts, and follows what is written.
    Folder,
    /// The API server takes no pod without it.
    Admission,
    /// Images are pulled with it. Where it is not there they are pulled without it, which may do.
    Pulling,
    /// Traefik has the certificate of routes from it, and answers with its default one where it is not there.
    Certificate,
}

impl Purpose {
    /// Whether no pod starts without it.
    const fn is_needed_to_start(self) -> bool {
        match self {
            Self::Variable | Self::Folder | Self::Admission => true,
            Self::Pulling | Self::Certificate => false,
        }
    }
}

/// Everything that a spec names, of its pod in its order, and then of its routes.
fn namings(validated: &Validated) -> Vec<Naming> {
    let overrides = &validated.overrides;
    let mut all = of_env("/spec/pod/env", &overrides.env);
    for (index, container) in overrides.containers.iter().enumerate() {
        all.extend(of_env(&format!("/spec/pod/containers/{index}/env"), &container.env));
    }
    for (index, volume) in overrides.volumes.iter().enumerate() {
        let field = || format!("/spec/pod/volumes/{index}");
        let map = volume.config_map.iter().map(|map| Reference::config_map(&map.name));
        let secret = volume.secret.iter().map(|secret| Reference::secret(&secret.secret_name));
        all.extend(map.chain(secret).map(|what| Naming { what, field: field(), purpose: Purpose::Folder }));
    }
    for (index, secret) in overrides.image_pull_secrets.iter().enumerate() {
        let field = format!("/spec/pod/imagePullSecrets/{index}");
        all.push(Naming { what: Reference::secret(&secret.name), field, purpose: Purpose::Pulling });
    }
    let account = overrides.service_account_name.iter().map(|name| Reference::service_account(name));
    let class = overrides.priority_class_name.iter().map(|name| Reference::priority_class(name));
    let account = account.map(|what| (what, "/spec/pod/serviceAccountName"));
    let named = account.chain(class.map(|what| (what, "/spec/pod/priorityClassName")));
    all.extend(named.map(|(what, field)| Naming {
        what,
        field: field.to_owned(),
        purpose: Purpose::Admission,
    }));
    all.extend(certificate(validated));
    all
}

/// The certificate of routes, where any is asked for.
fn certificate(validated: &Validated) -> Option<Naming> {
    let (_, ingress) = validated.reach.ingress.as_ref()?;
    let what = Reference::secret(ingress.tls.as_ref()?.secret_name.as_ref()?);
    let is_route = |kind: &Kind| matches!(kind, Kind::IngressRoute | Kind::IngressRouteTcp);
    let field = "/spec/network/ingress/tls/secretName".to_owned();
    let has_routes = validated.reach.kinds().keys().any(is_route);
    has_routes.then_some(Naming { what, field, purpose: Purpose::Certificate })
}

fn of_env(pointer: &str, env: &[EnvSpec]) -> Vec<Naming> {
    let sources = env.iter().enumerate().filter_map(|(index, variable)| {
        let from = variable.value_from.as_ref()?;
        let map = from.config_map_key_ref.as_ref().map(|key| Reference::config_map(&key.name));
        let what = map.or_else(|| Some(Reference::secret(&from.secret_key_ref.as_ref()?.name)))?;
        Some(Naming { what, field: format!("{pointer}/{index}"), purpose: Purpose::Variable })
    });
    sources.collect()
}

/// What a spec names, and what is to be watched for its sake.
pub fn references(validated: &Validated) -> BTreeSet<Reference> {
    namings(validated).into_iter().map(|naming| naming.what).collect()
}

/// Those without which a pod does not start and that are not there, and where the spec names them.
pub(crate) fn missing(validated: &Validated, observed: &Observed) -> Vec<String> {
    absent(validated, observed, Purpose::is_needed_to_start)
}

/// Those with which images are to be pulled and that are not there.
pub(crate) fn missing_to_pull(validated: &Validated, observed: &Observed) -> Vec<String> {
    absent(validated, observed, |purpose| purpose == Purpose::Pulling)
}

/// The one from which Traefik is to have a certificate, if it is not there.
pub(crate) fn missing_certificate(validated: &Validated, observed: &Observed) -> Vec<String> {
    absent(validated, observed, |purpose| purpose == Purpose::Certificate)
}

fn absent(validated: &Validated, observed: &Observed, counts: impl Fn(Purpose) -> bool) -> Vec<String> {
    let is_absent =
        |naming: &Naming| counts(naming.purpose) && observed.references.get(&naming.what) == Some(&None);
    told_once(validated, is_absent, |what, field| format!("{what}, which {field} names, is not there"))
}

/// One sentence for each of those, by the first place that names it.
fn told_once(
    validated: &Validated,
    is: impl Fn(&Naming) -> bool,
    say: impl Fn(&Reference, &str) -> String,
) -> Vec<String> {
    let mut told = BTreeSet::new();
    let all = namings(validated).into_iter();
    all.filter(|naming| is(naming) && told.insert(naming.what.clone()))
        .map(|naming| say(&naming.what, &naming.field))
        .collect()
}

/// Why a pod made now would not start, or is not known to.
pub(crate) fn obstacle(world: &World<'_>) -> Option<String> {
    let missing = missing(world.validated, world.observed);
    if !missing.is_empty() {
        return Some(format!("{}: make it, or take it out of the spec", few(&missing, "; ")));
    }
    let known = &world.observed.references;
    let is_unknown =
        |naming: &Naming| naming.purpose.is_needed_to_start() && !known.contains_key(&naming.what);
    let unknown =
        told_once(world.validated, is_unknown, |what, field| format!("{what}, which {field} names"));
    (!unknown.is_empty()).then(|| format!("it is not known yet whether there is {}", few(&unknown, "; ")))
}

/// What a pod made now would read into variables: which object, at which version. For the annotation of the template; while
/// something is not known, what stands there stays.
pub(crate) fn noted(world: &World<'_>) -> Option<String> {
    let mut versions = BTreeMap::new();
    for naming in variables(world.validated) {
        let Some(known) = world.observed.references.get(&naming.what) else {
            return annotation_of_template(world, names::READ_AT_START);
        };
        let version = known.as_ref().map(|origin| format!("{}/{}", origin.uid, origin.version));
        versions.insert(naming.what.to_string(), version.unwrap_or_default());
    }
    (!versions.is_empty()).then(|| serde_json::to_string(&versions).unwrap_or_default())
}

fn variables(validated: &Validated) -> impl Iterator<Item = Naming> {
    namings(validated).into_iter().filter(|naming| naming.purpose == Purpose::Variable)
}

/// Those of which a pod read another version than one that is made now would, by what both say of themselves, and the first
/// place that names one of them. What was not there when the pod was made was there when its container started.
pub(crate) fn written_since(validated: &Validated, pod: &str, template: &str) -> Option<(String, String)> {
    let read = |text: &str| serde_json::from_str::<BTreeMap<String, String>>(text).ok();
    let (pod, template) = (read(pod)?, read(template)?);
    let other = |what: &str| {
        let (former, now) = (pod.get(what)?, template.get(what)?);
        (!former.is_empty() && former != now).then(|| what.to_owned())
    };
    let mut all =
        variables(validated).filter_map(|naming| Some((other(&naming.what.to_string())?, naming.field)));
    let (first, field) = all.next()?;
    let mut written = vec![first];
    written.extend(all.map(|(what, _)| what));
    written.sort();
    written.dedup();
    Some((field, few(&written, ", ")))
}
