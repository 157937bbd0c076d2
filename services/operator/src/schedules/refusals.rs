//! What is refused of several requests of which none needs another. Pure.

use crate::error::Error;

/// Most of them that may go wrong in the API server, or in a webhook that it asks, before the rest is left to the next pass: each may
/// take long.
const FAILURES: usize = 3;

/// What an error says of the requests that come after it.
#[derive(Debug, PartialEq, Eq)]
enum Weight {
    /// Nothing: a policy, a webhook or a precondition is against this object.
    One,
    /// That they may go wrong as well, and take as long.
    Slow,
    /// That nobody would do them either.
    All,
}

/// What was refused so far.
#[derive(Default)]
pub(super) struct Refusals {
    told: Option<Error>,
    failures: usize,
}

impl Refusals {
    /// Notes an error. What is to be told is given back at once where the rest is not to be tried.
    pub(super) fn note(&mut self, error: Error) -> Result<(), Error> {
        let weight = weight(&error);
        self.failures += usize::from(weight == Weight::Slow);
        // That somebody was quicker is told by nobody, and does not stand for what people have to cure.
        if self.told.as_ref().is_none_or(Error::is_conflict) {
            self.told = Some(error);
        }
        let goes_on = weight == Weight::One || (weight == Weight::Slow && self.failures < FAILURES);
        if goes_on { Ok(()) } else { self.take() }
    }

    /// What is to be told of all that was refused: the first, if anything was.
    pub(super) fn take(&mut self) -> Result<(), Error> {
        self.told.take().map_or(Ok(()), Err)
    }
}

fn weight(error: &Error) -> Weight {
    let Error::Kubernetes { source, .. } = error else { return Weight::All };
    let kube::Error::Api(status) = source.as_ref() else { return Weight::All };
    match status.code {
        400 | 402..=428 | 430..=499 => Weight::One,
        500 => Weight::Slow,
        // Who asks (401) and how often (429) has nothing to do with the object, nor has it that nobody answers.
        _ => Weight::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16) -> Error {
        let status = kube::core::Status::failure("no", "No").with_code(code).boxed();
        Error::kubernetes("remove a snapshot")(kube::Error::Api(status))
    }

    /// After how many of these nothing more is tried, of ten.
    fn ends_after(error: impl Fn() -> Error) -> Option<usize> {
        let mut refusals = Refusals::default();
        let end = (1..=10).find(|_| refusals.note(error()).is_err());
        assert_eq!(refusals.take().is_err(), end.is_none(), "it is told once");
        end
    }

    #[test]
    fn what_is_refused_of_one_is_told_and_keeps_no_other() {
        for code in [400, 403, 409, 422] {
            assert_eq!(ends_after(|| answer(code)), None, "{code}");
        }
        for code in [401, 429, 502, 503, 504] {
            assert_eq!(ends_after(|| answer(code)), Some(1), "{code}");
        }
        assert_eq!(ends_after(|| answer(500)), Some(FAILURES), "a webhook that does not answer");
        assert_eq!(ends_after(|| Error::Lease), Some(1));
        let what = "delete questdbsnapshots.crd.questdb.io".to_owned();
        let denied = || Error::Denied { call: "remove a snapshot", what: what.clone() };
        assert_eq!(ends_after(denied), Some(1), "none may be removed");
    }

    #[test]
    fn what_people_have_to_cure_is_told_before_what_is_decided_anew_anyway() {
        let told = |codes: [u16; 2]| {
            let mut refusals = Refusals::default();
            for code in codes {
                refusals.note(answer(code)).unwrap();
            }
            refusals.take().unwrap_err().is_conflict()
        };
        assert_eq!([told([409, 403]), told([403, 409]), told([409, 409])], [false, false, true]);
        assert!(Refusals::default().take().is_ok());
    }
}
