//! `databases diff`: asks the operator what a change would take, and takes the question off again, however it ends.

mod asker;
mod patch;
mod question;
mod site;

use std::path::PathBuf;
use std::pin::Pin;

use clap::Args;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

use self::asker::{Asker, NotPut};
use self::question::{Meant, Question};
use self::site::{Put, Site};
use super::kubectl::Kubectl;
use super::wishes::Wishes;
use crate::error::Error;
use crate::exit;
use crate::render::diff::{difference, text};
use crate::session::{REQUEST, Session};

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

Exit codes: 0 nothing would change and nothing is under way, 1 something would, is, or is asked for
otherwise; 2 and above: it is not known, or the spec would not be accepted (2); another question
stands, or the cluster has not got the last change yet (5); the operator does not answer (124).")]
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
    let session = &session.anew();
    let mut interrupt = std::pin::pin!(interrupts()?);
    let (place, meant) = match (database, namespace, resource) {
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
    let asker = Asker { session, site, meant, overwrite: command.overwrite };
    let mut question = Question::new(&patch, Uuid::now_v7().to_string());
    let put = asker.put(&mut question, interrupt.as_mut()).await;
    let (answer, put) = match put {
        Ok(()) => (unless(interrupt, asker.answer(&question)).await, Put::Surely),
        Err(NotPut::Nothing(error)) => return Err(error),
        Err(NotPut::Perhaps(error)) => (Err(error), Put::Perhaps),
    };
    asker.take_off(&question, put).await;
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

/// Namespace and name of the resource of a database, and the database as the API has it.
async fn find(session: &Session, database: &str) -> Result<((String, String), Option<Meant>), Error> {
    let found = session.client(REQUEST)?.find_database(database).await?;
    let observed = found.observed.ok_or_else(|| Error::NotFound {
        what: format!("a resource of {}", found.name),
        hint: format!(
            "cluster {} has not spoken of it yet: slipway databases describe {}",
            found.cluster, found.id
        ),
    })?;
    let meant = Meant { database: found.id.to_string(), position: (found.epoch, found.seq) };
    Ok(((observed.namespace, observed.resource_name), Some(meant)))
}

/// Does it, unless somebody interrupts.
async fn unless<T>(
    interrupt: Pin<&mut impl Future<Output = ()>>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        () = interrupt => Err(Error::interrupted()),
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
