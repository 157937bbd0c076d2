//! What is to be done, to which part of the database, and why; and how far each part is.

use resources::{LastCopyStatus, UpgradeStatus};

use crate::{Agreement, Change, Part, Step};

/// A step with its place and its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// What.
    pub step: Step,
    /// Of which part of the progress.
    pub part: Part,
    /// Why.
    pub reason: String,
    /// Whether it puts right what somebody else changed: what was intended is what was applied last.
    pub puts_right: bool,
    /// Whether what it applies has no place beside what was seen: as far as that would stay, it is written over.
    pub writes_over: bool,
}

/// How far a part came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not begun: something before it is not done.
    Pending,
    /// Under way; the text says what is waited for.
    Running(String),
    /// As intended.
    Done,
    /// Wrong in a way that does not heal by itself; the text says what to do.
    Broken(String),
    /// Somebody else has what we need.
    Conflict(String),
    /// The wish cannot be carried out while the database lives as it is.
    Refused(String),
}

/// A part and how far it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The part.
    pub part: Part,
    /// How far.
    pub state: State,
}

/// What to do now, and how far everything is.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Plan {
    /// Steps, to be done in order. One that fails takes those with it whose parts need its own ([`Part::depends_on`]).
    pub actions: Vec<Action>,
    /// Parts in order.
    pub progress: Vec<Progress>,
    /// The last upgrade, as far as it is known.
    pub upgrade: Option<UpgradeStatus>,
    /// The last copy, once it is complete.
    pub last_copy: Option<LastCopyStatus>,
    /// A copy of a disk that is gone, by the word of its order alone: nobody accepted it as the last while the disk was there.
    pub copy_reported: Option<LastCopyStatus>,
    /// Whether the disk was out of our sight since it was copied, and its number is not known to have been raised since.
    pub copies_outdated: bool,
    /// Differences between what is asked for and what runs, by field: what this plan, or a later one, does about the spec.
    pub changes: Vec<Change>,
    /// What stands against credentials that are given, and what is in force all the same; and that a way in is asked for which needs some.
    /// People have to put it right, and nothing else waits for that.
    pub problems: Option<String>,
    /// Routes whose host another database has: which, and what to do. Nothing else waits for that either.
    pub hosts_taken: Vec<String>,
    /// Machines with the tags of the database that nobody launched for it: which, and what to do. Nothing else waits for that.
    pub strangers: Vec<String>,
    /// That QuestDB has other credentials than are written, and cannot be restarted for those now: why not, and what to do.
    pub locked_out: Option<String>,
    /// Whether QuestDB answers on its machine and this plan leaves it alone.
    pub serves: bool,
    /// Where it answers, if not on the machine that it is to be on from here on; its name, if it has one, leads there still.
    pub serves_on: Option<Elsewhere>,
    /// What became of a change of the name.
    pub renamed: Option<Renamed>,
    /// The part that waits for a machine which does not join the cluster, or for the next one after such.
    pub unjoined: Option<Part>,
    /// The parts that wait for a machine whose Node has not been ready for some time.
    pub unready: Vec<Part>,
    /// The part that waits for a machine whose Node is ready and takes no pod.
    pub closed: Option<Part>,
    /// Of which objects this plan found that they are as intended, so that the next one need not compare them again.
    pub agreed: Vec<Agreement>,
}

/// Where QuestDB answers, if not where it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// On the machine that it is about to leave.
    Leaving,
    /// Where it is, and nobody can say now which machine or disk is its own: nothing is done to it.
    Untold,
}

/// A name, and the address that it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Led {
    /// Fully qualified name.
    pub name: String,
    /// Address.
    pub address: String,
}

/// What was seen of a change of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// This one is about to be added: it stands in status before anything is made.
    Begun(Led),
    /// All name servers answer to this one: it takes the place of the one in force.
    Taken(String),
    /// Nothing of ours is left under this one.
    GivenBack(String),
}

impl Plan {
    /// Whether nothing is left to do or to wait for.
    pub fn is_settled(&self) -> bool {
        self.actions.is_empty() && self.progress.iter().all(|progress| progress.state == State::Done)
    }

    /// How far a part came.
    pub fn state(&self, part: Part) -> Option<&State> {
        self.progress.iter().find(|progress| progress.part == part).map(|progress| &progress.state)
    }

    pub(crate) fn act(&mut self, part: Part, step: Step, reason: impl Into<String>) {
        self.push(step, part, reason.into(), false);
    }

    pub(crate) fn put_right(&mut self, part: Part, step: Step, reason: impl Into<String>) {
        self.push(step, part, reason.into(), true);
    }

    pub(crate) fn push(&mut self, step: Step, part: Part, reason: String, puts_right: bool) {
        self.actions.push(Action { step, part, reason, puts_right, writes_over: false });
    }

    pub(crate) fn say(&mut self, part: Part, state: State) {
        // The first word on a part stands: later ones are about more of the same.
        if self.state(part).is_none() {
            self.progress.push(Progress { part, state });
        }
    }

    /// Says what a part really waits for, once that is known.
    pub(crate) fn explain(&mut self, part: Part, what: &str) {
        let mut found = self.progress.iter_mut().filter(|progress| progress.part == part);
        if let Some(State::Running(text)) = found.next().map(|progress| &mut progress.state) {
            what.clone_into(text);
        }
    }

    /// Says that a part waits for the step just planned, or for the world.
    pub(crate) fn wait(&mut self, part: Part, what: impl Into<String>) {
        self.say(part, State::Running(what.into()));
    }
}
