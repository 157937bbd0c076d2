//! Rules of a firewall that somebody else takes away, or adds, again and again. That is told like a field that somebody else
//! writes, but the rule is never left: without it somebody who is allowed cannot come in, and by one too many somebody comes in
//! who is not. So each is put right on, at a bounded rate. EC2 does not say who it was; the account's trail of calls does.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Instant;

use cloud::{Error as AwsError, IngressRule, PeerRange, Protocol, SecurityGroupId};
use plan::{Goal, Settings, Validated};

use super::{Contention, Object, WHILE, of};
use crate::apply::Pass;
use crate::error::Error;

/// For metrics.
const KIND: &str = "SecurityGroup";
/// Most rules that are told by name.
const TOLD: usize = 8;

/// What is done about rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::apply) enum Change {
    /// They are missing.
    LetIn,
    /// They are too many.
    KeepOut,
}

impl Change {
    const ALL: [Self; 2] = [Self::LetIn, Self::KeepOut];

    /// What is counted apart from what.
    const fn kind(self) -> &'static str {
        match self {
            Self::LetIn => "rules of the firewall that were missing",
            Self::KeepOut => "rules of the firewall that were too many",
        }
    }

    const fn call(self) -> &'static str {
        match self {
            Self::LetIn => "let somebody in",
            Self::KeepOut => "keep somebody out",
        }
    }

    /// There already, or gone already, is done; the next look tells whether all of it is.
    fn is_done(self, error: &AwsError) -> bool {
        match self {
            Self::LetIn => matches!(error, AwsError::AlreadyExists { .. }),
            Self::KeepOut => matches!(error, AwsError::NotFound { .. }),
        }
    }

    /// It holds no moving number, so that what means the same is said once.
    fn told(self, rules: &[String]) -> String {
        let named = first(rules);
        let (what, call, back) = match self {
            Self::LetIn => ("takes away", "RevokeSecurityGroupIngress", "put back"),
            Self::KeepOut => ("adds", "AuthorizeSecurityGroupIngress", "taken away"),
        };
        format!(
            "somebody else {what} again and again what the firewall lets in by: {named}; it is {back} once a minute at most. Find \
             out who it is (CloudTrail tells who calls {call}) and let only one of the two write it"
        )
    }
}

/// What is said of rules that AWS refuses, and of all of them where it refuses one.
pub(in crate::apply) fn refused(group: &SecurityGroupId, rules: &[IngressRule]) -> String {
    let names: Vec<String> = rules.iter().map(|rule| named(group, rule)).collect();
    format!(
        "nobody is let in by: {}. Ask for fewer or other ranges, or cure what AWS says: it is asked again every few minutes",
        first(&names)
    )
}

/// The first of them by name.
fn first(rules: &[String]) -> String {
    let mut named = rules.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
    if rules.len() > TOLD {
        named += " and more";
    }
    named
}

/// Changes the rules that may be changed now; an error names those that are fought over, if one of them has to wait.
pub(in crate::apply) async fn change(
    pass: &Pass<'_>,
    group: &SecurityGroupId,
    rules: &[IngressRule],
    change: Change,
) -> Result<(), Error> {
    let contention = &pass.context.contention;
    let fight = Fight::of(pass.validated, &pass.context.settings, change);
    let due = contention.due(&fight, (group, rules), Instant::now());
    if !due.is_empty() {
        let cloud = &pass.context.cloud;
        let answer = match change {
            Change::LetIn => cloud.authorize_ingress(group, &due).await,
            Change::KeepOut => cloud.revoke_ingress(group, &due).await,
        };
        match answer {
            Ok(()) => {
                if contention.put_right(&fight, (group, due.as_slice()), Instant::now()) {
                    pass.context.measures.contended(KIND);
                }
            }
            // Nobody undid anything: what was done before was not shown yet.
            Err(error) if change.is_done(&error) => {}
            Err(error) => return Err(Error::aws(change.call())(error)),
        }
    }
    if due.len() < rules.len() {
        let fought = contention.fought(&fight, Instant::now());
        return Err(Error::Contended { what: change.told(&fought) });
    }
    Ok(())
}

/// Whose rules, and under which intention.
struct Fight {
    object: Object,
    intention: String,
}

impl Fight {
    fn of(validated: &Validated, settings: &Settings, change: Change) -> Self {
        let mut hasher = DefaultHasher::new();
        plan::build::security_group_rules(validated, settings).hash(&mut hasher);
        let object = object(&validated.subject.uid, change);
        Self { object, intention: hasher.finish().to_string() }
    }
}

fn object(uid: &str, change: Change) -> Object {
    (uid.to_owned(), change.kind(), String::new())
}

/// A rule for people. A group that was made anew has a count of its own.
fn named(group: &SecurityGroupId, rule: &IngressRule) -> String {
    let IngressRule { protocol, from_port, to_port, peer } = rule;
    let ports = match protocol {
        Protocol::All => "everything".to_owned(),
        _ if from_port == to_port => format!("{protocol} {from_port}"),
        _ => format!("{protocol} {from_port}-{to_port}"),
    };
    let peer = match peer {
        PeerRange::Ipv4(range) | PeerRange::Ipv6(range) | PeerRange::PrefixList(range) => range.as_str(),
        PeerRange::Group(group) => group.as_str(),
    };
    format!("{ports} from {peer} ({group})")
}

impl Contention {
    /// Those of some rules that are put right now.
    fn due(
        &self,
        fight: &Fight,
        (group, rules): (&SecurityGroupId, &[IngressRule]),
        now: Instant,
    ) -> Vec<IngressRule> {
        let all = self.lock();
        let repairs = all.get(&fight.object).filter(|repairs| repairs.intention == fight.intention);
        let Some(repairs) = repairs.filter(|repairs| repairs.turn(now).is_some()) else {
            return rules.to_vec();
        };
        rules.iter().filter(|rule| !repairs.is_fought(&named(group, rule))).cloned().collect()
    }

    /// Rules were put right that somebody else had changed. Whether one of them turned out to be fought over by that.
    fn put_right(
        &self,
        fight: &Fight,
        (group, rules): (&SecurityGroupId, &[IngressRule]),
        now: Instant,
    ) -> bool {
        let mut all = self.recent(now);
        let repairs = of(&mut all, fight.object.clone(), &fight.intention, now);
        repairs.count(rules.iter().map(|rule| named(group, rule)), now)
    }

    /// The rules that are fought over.
    fn fought(&self, fight: &Fight, now: Instant) -> Vec<String> {
        let all = self.lock();
        let Some(repairs) = all.get(&fight.object) else { return Vec::new() };
        let counts = repairs.intention == fight.intention && now.duration_since(repairs.last) < WHILE;
        let fought = repairs.fields.keys().filter(|rule| counts && repairs.is_fought(rule));
        fought.cloned().collect()
    }

    /// What is to be said of a database's firewall, also while all of it is as it should be: the other was there a moment ago.
    pub(super) fn of_firewall(
        &self,
        validated: &Validated,
        settings: &Settings,
        now: Instant,
    ) -> Vec<String> {
        if validated.goal != Goal::Serve {
            return Vec::new();
        }
        let told = |change: Change| {
            // Who is not fought with has nothing to compare.
            self.lock().get(&object(&validated.subject.uid, change))?.paced?;
            let fought = self.fought(&Fight::of(validated, settings, change), now);
            (!fought.is_empty()).then(|| change.told(&fought))
        };
        Change::ALL.into_iter().filter_map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::OFTEN;
    use super::*;

    fn fight(change: Change, intention: &str) -> Fight {
        Fight { object: object("uid", change), intention: intention.to_owned() }
    }

    fn group() -> SecurityGroupId {
        SecurityGroupId::new("sg-1")
    }

    #[test]
    fn a_rule_that_is_undone_again_and_again_is_told_and_put_right_on_once_a_minute() {
        let (contention, began) = (Contention::default(), Instant::now());
        let rules = [IngressRule::tcp(9000, "10.0.0.0/8")];
        let (group, fight) = (group(), fight(Change::LetIn, "one"));
        let mut repairs = Vec::new();
        // Somebody takes it away each second.
        for second in 0..200 {
            let now = began + Duration::from_secs(second);
            let due = contention.due(&fight, (&group, &rules[..]), now);
            if !due.is_empty() {
                let begins = contention.put_right(&fight, (&group, due.as_slice()), now);
                assert_eq!(begins, repairs.len() == 2, "{second}");
                repairs.push(second);
            }
            let told = contention.fought(&fight, now);
            assert_eq!(told.is_empty(), second < 2, "{second}: {told:?}");
        }
        assert_eq!(repairs, [0, 1, 2, 62, 122, 182]);
        let last = began + Duration::from_secs(182);
        let waits = |seconds| contention.waits("uid", last + Duration::from_secs(seconds));
        assert_eq!((waits(45), waits(60)), (Some(Duration::from_secs(15)), None));
        let text = Change::LetIn.told(&contention.fought(&fight, last));
        assert!(text.contains("takes away") && text.contains("tcp 9000 from 10.0.0.0/8 (sg-1)"), "{text}");
        // Once nobody has undone it for a while, it is as if nothing had been.
        assert_eq!(contention.fought(&fight, last + WHILE), Vec::<String>::new());
    }

    #[test]
    fn what_nobody_fights_over_waits_for_nothing() {
        let (contention, now) = (Contention::default(), Instant::now());
        let (fought, other) = (IngressRule::tcp(9000, "10.0.0.0/8"), IngressRule::tcp(8812, "10.0.0.0/8"));
        let (group, ours) = (group(), fight(Change::KeepOut, "one"));
        for _ in 0..=OFTEN {
            contention.put_right(&ours, (&group, std::slice::from_ref(&fought)), now);
        }
        let both = [fought, other.clone()];
        let due = |fight: &Fight, group: &SecurityGroupId| contention.due(fight, (group, &both[..]), now);
        assert_eq!(due(&ours, &group), [other]);
        // Neither does what another wish asks for, what is missing where something was too many, nor a group made anew.
        assert_eq!(due(&fight(Change::KeepOut, "two"), &group), both);
        assert_eq!(due(&fight(Change::LetIn, "one"), &group), both);
        assert_eq!(due(&ours, &SecurityGroupId::new("sg-2")), both);
        assert_eq!(contention.fought(&fight(Change::KeepOut, "two"), now), Vec::<String>::new());
    }

    #[test]
    fn many_rules_are_told_by_the_first_of_them() {
        let rules: Vec<String> = (0..20).map(|number| format!("rule {number}")).collect();
        let text = Change::KeepOut.told(&rules);
        assert!(text.contains("rule 7 and more") && !text.contains("rule 8"), "{text}");
        let refused = refused(&group(), &[7, 8].map(|port| IngressRule::tcp(port, "10.0.0.0/8")));
        assert!(refused.contains("tcp 7 from 10.0.0.0/8 (sg-1), tcp 8 from 10.0.0.0/8 (sg-1)."), "{refused}");
        let all = IngressRule {
            protocol: Protocol::All,
            from_port: 0,
            to_port: 65_535,
            peer: PeerRange::Group(SecurityGroupId::new("sg-2")),
        };
        assert_eq!(named(&group(), &all), "everything from sg-2 (sg-1)");
    }
}
