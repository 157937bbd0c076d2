//! `databases diff`: asks the operator what a change would take, and takes the question off again, however it ends.

mod patch;
mod question;
mod site;

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use uuid::Uuid;

use self::question::{Obstacle, Question, Resource, Verdict};
use self::site::Site;
use super::kubectl::Kubectl;
use super::wishes::Wishes;
use crate::error::Error;
use crate::exit;
use crate::render::diff::{difference, text};
use crate::session::{REQUEST, Session};

/// Between the first looks at the answer; the ones after them come at double the time each, up to the longest.
const LOOK: Duration = Duration::from_millis(200);
/// Longest time between two looks.
const LONGEST: Duration = Duration::from_secs(2);

/// `databases diff`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases diff trades --size-gib 200 --kubeconfig ~/.kube/eu-west-1
  slipway databases diff trades --config shared.worker.count=4 --unset-config old.key
  slipway databases diff --namespace data --resource trades --patch '{\"restartNonce\": \"monday\"}'
  slipway databases diff --namespace data --resource trades --file - -o json < patch.yaml

The operator of the database's cluster answers, and does nothing. The question stands in two
annotations of the resource until this command ends: kubectl must be allowed to get and to patch it.
What is asked for already and not done yet is shown too. Rules of the API server alone, such as what
never changes, are not asked: kubectl apply --dry-run=server asks those.

Exit codes: 0 nothing would change, 1 something would, 2 and above: it is not known, or the spec
would not be accepted (2); another question stands (5); the operator does not answer (124).")]
pub struct Diff {
    /// Name or id; the API says where its resource is
    #[arg(required_unless_present = "resource")]
    database: Option<String>,
    /// Name of the resource, where no API is asked
    #[arg(long, value_name = "NAME", requires = "namespace", conflicts_with = "database")]
    resource: Option<String>,
    /// Namespace of the resource
    #[arg(long, value_name = "NAMESPACE", requires = "resource", conflicts_with = "database")]
    namespace: Option<String>,
    /// A JSON merge patch of the resource's spec
    #[arg(long, value_name = "JSON", conflicts_with = "file")]
    patch: Option<String>,
    /// A file with a merge patch in JSON or YAML; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    wishes: Wishes,
    /// A key of server.conf to take out; may be repeated
    #[arg(long, value_name = "KEY")]
    unset_config: Vec<String>,
    /// Take the place of a question that stands, whose asker then gets no answer
    #[arg(long)]
    overwrite: bool,
    /// The configuration of kubectl; several files are joined by colons [default: kubectl's own]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the database's cluster in it [default: its current context]
    #[arg(long, value_name = "NAME")]
    kube_context: Option<String>,
    /// The kubectl to use
    #[arg(long, value_name = "PROGRAM", default_value = "kubectl")]
    kubectl: PathBuf,
}

/// Shows what a change would take.
pub(super) async fn diff(session: &Session, command: Diff) -> Result<(), Error> {
    match ask_and_show(session, command).await {
        // The code of other failures says of this command that something would change.
        Err(error) if !matches!(error, Error::WouldChange) && exit::code(&error) == exit::FAILED => {
            Err(Error::Undecided(Box::new(error)))
        }
        other => other,
    }
}

async fn ask_and_show(session: &Session, command: Diff) -> Result<(), Error> {
    let Diff { database, resource, namespace, patch, file, wishes, unset_config, .. } = &command;
    let wishes = (wishes.clone(), unset_config.as_slice());
    // Before interrupts are heeded: reading standard input would not let them through.
    let patch = wished(patch.as_deref(), file.as_deref(), wishes)?;
    let mut interrupt = std::pin::pin!(interrupts()?);
    let (place, id) = match (database, namespace, resource) {
        (Some(database), ..) => unless(interrupt.as_mut(), find(session, database)).await?,
        (None, Some(namespace), Some(resource)) => ((namespace.clone(), resource.clone()), None),
        (None, ..) => return Err(Error::usage("name a database, or --namespace and --resource")),
    };
    let kubectl = Kubectl {
        program: &command.kubectl,
        kubeconfig: command.kubeconfig.as_deref(),
        context: command.kube_context.as_deref(),
    };
    let site = Site { kubectl, namespace: place.0, resource: place.1 };
    let asker = Asker { session, site, id, overwrite: command.overwrite };
    let mut question = Question::new(&patch, Uuid::now_v7().to_string());
    let put = asker.put(&mut question, interrupt.as_mut()).await;
    let answer = match put {
        Ok(()) => unless(interrupt, asker.answer(&question)).await,
        Err(NotPut::Nothing(error)) => return Err(error),
        Err(NotPut::Perhaps(error)) => Err(error),
    };
    asker.take_off(&question).await;
    let (generation, lines) = answer?;
    let about = (asker.site.namespace.as_str(), asker.site.resource.as_str(), generation);
    let found = difference(about, lines).map_err(|wrong| Error::Usage {
        message: format!("the spec would not be accepted\n  {}", wrong.join("\n  ")),
        hint: String::new(),
    })?;
    let fields = || found.changes.iter().map(|change| change.field.clone()).collect();
    session.output.show(&found, |_| text(&found), fields)?;
    if found.would_change { Err(Error::WouldChange) } else { Ok(()) }
}

/// What is asked about: exactly one of a patch, a file, and flags.
fn wished(
    patch: Option<&str>,
    file: Option<&std::path::Path>,
    (wishes, unset): (Wishes, &[String]),
) -> Result<Value, Error> {
    let flags = wishes != Wishes::default() || !unset.is_empty();
    match (patch, file) {
        (Some(_), _) | (_, Some(_)) if flags => {
            Err(Error::usage("give a patch, or flags such as --size-gib, and not both"))
        }
        (Some(text), _) => patch::parse(text),
        (_, Some(file)) => patch::parse(&patch::read(file)?),
        (None, None) if flags => wishes.patch(unset),
        (None, None) => Err(Error::Usage {
            message: "nothing to ask".to_owned(),
            hint: "give --patch, --file, or flags such as --size-gib; --patch '{}' asks what is pending"
                .to_owned(),
        }),
    }
}

/// Namespace and name of the resource of a database, and the database's identity.
async fn find(session: &Session, database: &str) -> Result<((String, String), Option<Uuid>), Error> {
    let found = session.client(REQUEST)?.find_database(database).await?;
    let observed = found.observed.ok_or_else(|| Error::NotFound {
        what: format!("a resource of {}", found.name),
        hint: format!(
            "cluster {} has not spoken of it yet: slipway databases describe {}",
            found.cluster, found.id
        ),
    })?;
    Ok(((observed.namespace, observed.resource_name), Some(found.id)))
}

/// Why a question was not put.
enum NotPut {
    /// Nothing was written.
    Nothing(Error),
    /// It may be there all the same.
    Perhaps(Error),
}

/// Who asks where.
struct Asker<'a> {
    session: &'a Session,
    site: Site<'a>,
    /// The database that must be the resource's.
    id: Option<Uuid>,
    overwrite: bool,
}

impl Asker<'_> {
    /// Puts the question, unless another one stands.
    async fn put(
        &self,
        question: &mut Question,
        mut interrupt: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), NotPut> {
        let mut pause = LOOK;
        loop {
            let read = self.site.read(self.deadline());
            let read = unless(interrupt.as_mut(), read).await.map_err(NotPut::Nothing)?;
            self.check(&read).map_err(NotPut::Nothing)?;
            let conflict = match self.site.put(question, &read).await {
                Ok(()) => break,
                Err(conflict @ Error::Conflict { .. }) => conflict,
                Err(refused @ (Error::Forbidden { .. } | Error::NotFound { .. })) => {
                    return Err(NotPut::Nothing(refused));
                }
                Err(failed) => return Err(NotPut::Perhaps(failed)),
            };
            // The operator wrote the status meanwhile, or somebody asked: that is looked at once more.
            if Instant::now() + pause >= self.deadline() {
                return Err(NotPut::Nothing(conflict));
            }
            let sleep = async { Ok(tokio::time::sleep(pause).await) };
            unless(interrupt.as_mut(), sleep).await.map_err(NotPut::Nothing)?;
            pause = LONGEST.min(pause * 2);
        }
        self.session.output.trace(&format!("asked of {}: {}", self.site, question.patch()));
        Ok(())
    }

    /// Whether it is the right resource, and nobody else's question stands in it.
    fn check(&self, read: &Resource) -> Result<(), Error> {
        let site = &self.site;
        let meant = self.id.map(|id| id.to_string()).unwrap_or_default();
        let (message, hint) = match read.obstacle(self.id.is_some().then_some(&meant), self.overwrite) {
            None => return Ok(()),
            Some(Obstacle::OfAnother(other)) => (
                format!(
                    "the resource {site} is not of database {meant} but of {}",
                    other.unwrap_or("none that an API knows")
                ),
                "is this the cluster of the database? See --kubeconfig and --kube-context".to_owned(),
            ),
            Some(Obstacle::Stands(patch)) => (
                format!("another question stands in {site}: {patch}"),
                format!(
                    "wait until it is taken off; --overwrite takes its place, and this takes it off: {}",
                    self.by_hand()
                ),
            ),
        };
        Err(Error::Conflict { message, hint })
    }

    /// Waits for the answer; the generation that it is about, and its lines.
    async fn answer(&self, question: &Question) -> Result<(i64, Vec<domain::dry_run::Line>), Error> {
        let mut pause = LOOK;
        let mut hindrances = Vec::new();
        loop {
            match self.site.read(self.deadline()).await {
                Ok(read) => match question.verdict(&read) {
                    Verdict::Answered(lines) => return Ok((read.metadata.generation, lines)),
                    Verdict::TooOld => return Err(too_old()),
                    Verdict::Taken => return Err(self.taken()),
                    Verdict::Waits => hindrances = read.hindrances(),
                },
                Err(Error::TimedOut { .. }) => return Err(self.unanswered(&hindrances)),
                // An API server that is away for a moment may come back in time.
                Err(Error::Kubectl { reason }) => hindrances = vec![reason],
                Err(error) => return Err(error),
            }
            if Instant::now() + pause >= self.deadline() {
                return Err(self.unanswered(&hindrances));
            }
            tokio::time::sleep(pause).await;
            pause = LONGEST.min(pause * 2);
        }
    }

    /// Takes the question off; that it stands is said where that cannot be done.
    async fn take_off(&self, question: &Question) {
        if let Err(error) = self.site.take_off(question).await {
            self.session.output.warn(&format!(
                "the question may stand in {}: {}\n  take it off with: {}",
                self.site,
                error.explain(),
                self.by_hand()
            ));
        }
    }

    fn by_hand(&self) -> String {
        let Site { namespace, resource, .. } = &self.site;
        let (patch, question) = (domain::dry_run::PATCH, domain::dry_run::QUESTION);
        format!("kubectl -n {namespace} annotate questdb {resource} {patch}- {question}-")
    }

    fn deadline(&self) -> Instant {
        self.session.deadline(REQUEST)
    }

    fn taken(&self) -> Error {
        Error::Conflict {
            message: format!("the question to {} was taken off, or another one put in its place", self.site),
            hint: "somebody else asks too: run the command again".to_owned(),
        }
    }

    fn unanswered(&self, hindrances: &[String]) -> Error {
        let mut hint = "does an operator run that looks after this namespace? Its /readyz and its log say what holds it \
                        up; `kubectl -n slipway-system get lease slipway-operator` shows which one leads; a longer --timeout \
                        waits for longer"
            .to_owned();
        for hindrance in hindrances {
            hint.push_str("\n  ");
            hint.push_str(hindrance);
        }
        Error::TimedOut {
            doing: format!("the operator did not answer the question about {}", self.site),
            hint,
        }
    }
}

fn too_old() -> Error {
    Error::Kubectl {
        reason: "the operator, or its definition of QuestDB, is too old to say which question its answer is for: upgrade it \
                 (deploy/crds first)"
            .to_owned(),
    }
}

/// Does it, unless somebody interrupts.
async fn unless<T>(
    interrupt: Pin<&mut impl Future<Output = ()>>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        () = interrupt => Err(Error::Interrupted),
        done = work => done,
    }
}

/// Comes when somebody wants this program to end. From here on none of these signals ends it by itself.
fn interrupts() -> Result<impl Future<Output = ()>, Error> {
    let listen = |kind| signal(kind).map_err(Error::Start);
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        diff: Diff,
    }

    fn parsed(words: &[&str]) -> Option<Diff> {
        Line::try_parse_from([&["diff"], words].concat()).ok().map(|line| line.diff)
    }

    fn wish(words: &[&str]) -> Result<Value, String> {
        let Diff { patch, file, wishes, unset_config, .. } = parsed(words).unwrap();
        wished(patch.as_deref(), file.as_deref(), (wishes, &unset_config)).map_err(|error| error.explain())
    }

    #[test]
    fn a_resource_is_named_in_one_of_two_ways() {
        let table: [(&[&str], bool); 7] = [
            (&["trades"], true),
            (&["--namespace", "data", "--resource", "trades"], true),
            (&[], false),
            (&["--namespace", "data"], false),
            (&["--resource", "trades"], false),
            (&["trades", "--namespace", "data"], false),
            (&["trades", "--namespace", "data", "--resource", "trades"], false),
        ];
        for (words, expected) in table {
            assert_eq!(parsed(words).is_some(), expected, "{words:?}");
        }
    }

    #[test]
    fn what_is_asked_is_said_in_one_of_three_ways() {
        assert_eq!(wish(&["a", "--patch", "{\"zone\":null}"]), Ok(serde_json::json!({ "zone": null })));
        assert_eq!(wish(&["a", "--unset-config", "k"]), Ok(serde_json::json!({ "config": { "k": null } })));
        assert_eq!(wish(&["a", "--patch", "{}"]), Ok(serde_json::json!({})));
        assert!(wish(&["a"]).unwrap_err().starts_with("nothing to ask"));
        assert!(wish(&["a", "--patch", "{}", "--iops", "1"]).unwrap_err().contains("not both"));
        assert!(wish(&["a", "--file", "f", "--unset-config", "k"]).unwrap_err().contains("not both"));
        assert!(wish(&["a", "--file", "/nowhere/f"]).unwrap_err().contains("/nowhere/f"));
        assert!(parsed(&["a", "--patch", "{}", "--file", "f"]).is_none());
    }
}
