//! Who asks: puts a question, waits for the answer to it, and takes it off again, each within its time.

use std::pin::Pin;
use std::time::Duration;

use domain::dry_run::Line;
use tokio::time::Instant;

use super::question::{Meant, Obstacle, Question, Verdict};
use super::site::{Put, Site, TAKE_OFF};
use super::unless;
use crate::error::Error;
use crate::render::text::brief;
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
    pub(super) meant: Option<Meant>,
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
        let mut waits = None;
        loop {
            let read = self.site.read(self.deadline());
            let read = unless(interrupt.as_mut(), read).await.map_err(|error| {
                // What was waited for says more than that the time is over.
                let over = matches!(error, Error::TimedOut { .. });
                NotPut::Nothing(waits.take().filter(|_| over).unwrap_or(error))
            })?;
            let conflict = match question.is_to_be_put(&read, self.meant.as_ref(), self.overwrite) {
                Ok(false) => break,
                Ok(true) => match self.site.put(question, &read).await {
                    Ok(()) => break,
                    Err(conflict @ Error::Conflict { .. }) => conflict,
                    Err(refused @ (Error::Forbidden { .. } | Error::NotFound { .. })) => {
                        return Err(NotPut::Nothing(refused));
                    }
                    Err(failed) => return Err(NotPut::Perhaps(failed)),
                },
                Err(Obstacle::Behind) => forbidden(&self.site, self.meant.as_ref(), Obstacle::Behind),
                Err(obstacle) => {
                    return Err(NotPut::Nothing(forbidden(&self.site, self.meant.as_ref(), obstacle)));
                }
            };
            // The operator wrote the status meanwhile, somebody asked, or the last change comes yet: that is looked at once more.
            if Instant::now() + pause >= self.deadline() {
                return Err(NotPut::Nothing(conflict));
            }
            let sleep = async {
                tokio::time::sleep(pause).await;
                Ok(())
            };
            unless(interrupt.as_mut(), sleep).await.map_err(NotPut::Nothing)?;
            waits = Some(conflict);
            pause = LONGEST.min(pause * 2);
        }
        self.session.output.trace(&format!("asked of {}: {}", self.site, question.patch()));
        Ok(())
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
                Err(Error::TimedOut { .. }) => return Err(unanswered(&self.site, &hindrances)),
                // An API server that is away for a moment may come back in time.
                Err(Error::Kubectl { reason }) => hindrances = vec![reason],
                Err(error) => return Err(error),
            }
            if Instant::now() + pause >= self.deadline() {
                return Err(unanswered(&self.site, &hindrances));
            }
            tokio::time::sleep(pause).await;
            pause = LONGEST.min(pause * 2);
        }
    }

    /// Takes the question off; that it stands is said where that cannot be done.
    pub(super) async fn take_off(&self, question: &Question, put: Put) {
        if let Err(error) = self.site.take_off(question, put, TAKE_OFF).await {
            self.session.output.warn(&format!(
                "the question may stand in {}: {}\n  take it off with: {}",
                self.site,
                error.explain(),
                self.site.by_hand()
            ));
        }
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
}

/// Why it is not asked.
fn forbidden(site: &Site<'_>, meant: Option<&Meant>, obstacle: Obstacle<'_>) -> Error {
    let meant = meant.map(|meant| meant.database.as_str()).unwrap_or_default();
    let (message, hint) = match obstacle {
        Obstacle::OfAnother(other) => (
            format!(
                "the resource {site} is not of database {meant} but of {}",
                other.map_or_else(|| "none that an API knows".to_owned(), brief)
            ),
            "is this the cluster of the database? See --kubeconfig and --kube-context".to_owned(),
        ),
        Obstacle::Behind => (
            format!("the cluster has not got the last change yet: {site} has an older state than the API"),
            format!(
                "slipway databases describe {meant} says how far it came; a longer --timeout waits for longer"
            ),
        ),
        Obstacle::Stands(patch) => (
            format!("another question stands in {site}: {}", brief(patch)),
            format!(
                "wait until it is taken off; --overwrite takes its place, and this takes it off: {}",
                site.by_hand()
            ),
        ),
    };
    Error::Conflict { message, hint }
}

fn unanswered(site: &Site<'_>, hindrances: &[String]) -> Error {
    let mut hint = "does an operator run that looks after this namespace? Its /readyz and its log say what holds it \
                    up; `kubectl -n slipway-system get lease slipway-operator` shows which one leads; a longer --timeout \
                    waits for longer"
        .to_owned();
    for hindrance in hindrances {
        hint.push_str("\n  ");
        hint.push_str(&brief(hindrance));
    }
    Error::TimedOut { doing: format!("the operator did not answer the question about {site}"), hint }
}

fn too_old() -> Error {
    Error::Kubectl {
        reason: "the operator, or its definition of QuestDB, is too old to say which question its answer is for: upgrade it \
                 (deploy/crds first)"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::noun::databases::diff::site::tests::Played;

    fn at(place: &Site<'_>, obstacle: Obstacle<'_>) -> String {
        let meant = Meant { database: "d".to_owned(), position: (1, 1) };
        forbidden(place, Some(&meant), obstacle).explain()
    }

    #[test]
    fn texts_of_others_are_shown_without_what_steers_a_terminal() {
        let played = Played::new(&json!({ "metadata": {} }), 0);
        let site = played.site();
        let others = format!("a\u{1b}[2Jb{}", "x".repeat(5_000));
        for said in [
            at(&site, Obstacle::Stands(&others)),
            at(&site, Obstacle::OfAnother(Some(&others))),
            unanswered(&site, std::slice::from_ref(&others)).explain(),
        ] {
            assert!(said.contains("a [2Jb") && !said.contains('\u{1b}') && said.len() < 2_000, "{said}");
        }
        assert!(at(&site, Obstacle::Stands("{}")).contains("KUBECONFIG="));
    }

    #[tokio::test]
    async fn a_cluster_without_the_last_change_is_waited_for_and_not_asked() {
        let instruction = json!({ "databaseId": "d", "epoch": 1, "seq": 6 });
        let played = Played::new(&json!({ "metadata": {}, "spec": { "instruction": instruction } }), 99);
        let session = crate::session::tests::session(&["--timeout", "2s"]);
        let meant = Some(Meant { database: "d".to_owned(), position: (1, 7) });
        let asker = Asker { session: &session, site: played.site(), meant, overwrite: true };
        let mut question = Question::new(&json!({}), "ada".to_owned());
        let put = asker.put(&mut question, std::pin::pin!(std::future::pending())).await;
        let Err(NotPut::Nothing(error)) = put else { panic!("it was put") };
        assert!(!played.folder.join("stands").exists());
        assert!(error.explain().contains("has not got the last change yet"), "{}", error.explain());
        assert_eq!(crate::exit::code(&error), crate::exit::CONFLICT);
    }
}
