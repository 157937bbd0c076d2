//! Who asks: puts a question, waits for the answer to it, and takes it off again, each within its time.

use std::pin::Pin;
use std::time::Duration;

use domain::dry_run::Line;
use tokio::time::Instant;
use uuid::Uuid;

use super::question::{Obstacle, Question, Resource, Verdict};
use super::site::Site;
use super::unless;
use crate::error::Error;
use crate::session::{REQUEST, Session};

/// Between the first looks at the answer; the ones after them come at double the time each, up to the longest.
const LOOK: Duration = Duration::from_millis(200);
/// Longest time between two looks.
const LONGEST: Duration = Duration::from_secs(2);

/// Why a question was not put.
pub(super) enum NotPut {
    /// Nothing was written.
    Nothing(Error),
    /// It may be there all the same.
    Perhaps(Error),
}

/// Who asks where.
pub(super) struct Asker<'a> {
    pub(super) session: &'a Session,
    pub(super) site: Site<'a>,
    /// The database that must be the resource's.
    pub(super) id: Option<Uuid>,
    /// Whether it takes the place of a question that stands.
    pub(super) overwrite: bool,
}

impl Asker<'_> {
    /// Puts the question, unless another one stands.
    pub(super) async fn put(
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
            let sleep = async {
                tokio::time::sleep(pause).await;
                Ok(())
            };
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
    pub(super) async fn answer(&self, question: &Question) -> Result<(i64, Vec<Line>), Error> {
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
    pub(super) async fn take_off(&self, question: &Question) {
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
