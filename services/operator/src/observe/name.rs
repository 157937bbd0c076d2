//! What Route 53 says of the names of a database.

use std::time::{Duration, Instant};

use cloud::{ChangeId, DnsChange, DnsChangeState, DnsRecord, InstanceState, ResourceKind};
use jiff::Timestamp;
use plan::{Dns, DnsQuestion, Goal, Observed, Validated, Withheld};
use resources::QuestDB;
use runtime::backoff::random_share;

use crate::context::Context;
use crate::error::Error;
use crate::memory::looks::Question;

/// How old the picture of the zone may be for a database that is let go for good: nobody looks at its names afterwards.
const AT_THE_END: Duration = Duration::from_mins(5);

/// Asks what the next decision about names needs, and nothing more.
pub(super) async fn dns(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
    observed: &Observed,
    settled: bool,
) -> Result<Dns, Error> {
    let untold = match if settled { at_rest(context, resource, validated).await? } else { AtRest::AsNoted } {
        AtRest::Otherwise(found) => return Ok(found),
        AtRest::AsNoted => false,
        AtRest::Untold => true,
    };
    let found = match asked(context, resource, validated, observed, settled).await {
        Ok(found) => found,
        Err(error) => {
            let why = withheld(&error, &context.settings.hosted_zone);
            Dns { withheld: Some(why.ok_or(error)?), ..Dns::default() }
        }
    };
    Ok(Dns { untold, ..found })
}

/// Why the zone is withheld, and what to do, where only people cure it. Whatever else went wrong is asked again; credentials that are
/// of no use at all hold EC2 up as well.
fn withheld(error: &Error, zone: &str) -> Option<Withheld> {
    let Error::Aws { source, .. } = error else { return None };
    let is_forbidden = matches!(**source, cloud::Error::Denied { .. })
        && source.call().code.as_deref().is_some_and(|code| code.starts_with("AccessDenied"));
    let is_gone = source.is_not_found(ResourceKind::HostedZone);
    let cure = if is_gone {
        format!(
            "with its credentials the operator finds no hosted zone {zone}: put SLIPWAY_HOSTED_ZONE_ID and credentials right or, where \
             the zone was deleted, make another one for the same names and give its id"
        )
    } else if is_forbidden {
        format!(
            "grant the operator ListResourceRecordSets and ChangeResourceRecordSets on hosted zone {zone}, and GetChange"
        )
    } else {
        return None;
    };
    Some(Withheld { why: format!("{}; {cure}", error.stable()), is_gone })
}

async fn asked(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
    observed: &Observed,
    settled: bool,
) -> Result<Dns, Error> {
    if !plan::is_named(validated, &observed.children) {
        // What is settled was released; what was never given a name in status may still have one in the zone.
        if settled || plan::is_name_known_released(resource, validated, &observed.children) {
            return Ok(Dns::default());
        }
        let mut all = Vec::new();
        for name in names_to_release(context, resource, validated).await {
            all.extend(records(context, &name).await?);
        }
        return Ok(Dns { records: Some(all), ..Dns::default() });
    }
    let serving =
        plan::serving(resource, observed).filter(|instance| instance.state == InstanceState::Running);
    let address = serving.filter(|_| plan::pod_is_ready(observed)).and_then(|instance| instance.private_ip);
    let question = plan::dns_question(resource, validated, (address, observed.at));
    let is_of_another = matches!(question, DnsQuestion::Next { .. } | DnsQuestion::Back { .. });
    match answer(context, validated, question).await {
        Err(error) if is_of_another => {
            // The database has a name that leads to it: nothing else has to wait for this one.
            tracing::warn!(error = %runtime::telemetry::chain(&error), "another name could not be looked at");
            Ok(Dns::default())
        }
        answer => answer,
    }
}

async fn answer(context: &Context, validated: &Validated, question: DnsQuestion) -> Result<Dns, Error> {
    match question {
        DnsQuestion::Nothing => Ok(Dns::default()),
        DnsQuestion::InForce { name, change } => {
            let change = came(context, change).await?;
            let records = if change.is_some() { None } else { Some(records(context, &name).await?) };
            Ok(Dns { records, change, ..Dns::default() })
        }
        DnsQuestion::Next { name, change } => {
            let change = came_beside(context, validated, change).await?;
            let is_under_way = change.as_ref().is_some_and(|change| change.state != DnsChangeState::InSync);
            let beside = if is_under_way { None } else { Some(held(context, validated, &name).await?) };
            Ok(Dns { beside, change, ..Dns::default() })
        }
        DnsQuestion::Back { in_force, name } => {
            let (leads, beside) = (records(context, &in_force).await?, records(context, &name).await?);
            Ok(Dns { records: Some(leads), beside: Some(beside), ..Dns::default() })
        }
    }
}

/// How far a change came; none, if nobody knows of it any more.
async fn came(context: &Context, change: Option<ChangeId>) -> Result<Option<DnsChange>, Error> {
    let Some(id) = change else { return Ok(None) };
    context.zone_writer.state(&id).await.map_err(Error::aws("ask how far a DNS change came"))
}

/// The same of a name beside the one in force, by which the database serves meanwhile: asked ever more seldom.
async fn came_beside(
    context: &Context,
    validated: &Validated,
    change: Option<ChangeId>,
) -> Result<Option<DnsChange>, Error> {
    let (looks, uid) = (&context.memories.under_way, &validated.subject.uid);
    let Some(id) = change else { return Ok(None) };
    let question = Question::Change(id.to_string());
    if let Some(standing) = looks.standing(uid, &question, Instant::now()) {
        return Ok(Some(standing));
    }
    let found = came(context, Some(id)).await?;
    match &found {
        Some(change) if change.state != DnsChangeState::InSync => {
            looks.stands(uid, question, change.clone(), (Instant::now(), random_share()));
        }
        _ => looks.forget(uid),
    }
    Ok(found)
}

/// What a name holds that is asked for beside the one in force. One that somebody else has is looked at ever more seldom.
async fn held(context: &Context, validated: &Validated, name: &str) -> Result<Vec<DnsRecord>, Error> {
    let (looks, uid) = (&context.memories.taken, &validated.subject.uid);
    let question = Question::Records(name.to_owned(), validated.generation);
    if let Some(standing) = looks.standing(uid, &question, Instant::now()) {
        return Ok(standing);
    }
    let found = records(context, name).await?;
    if plan::is_taken(&found, &validated.subject) {
        looks.stands(uid, question, found.clone(), (Instant::now(), random_share()));
    } else {
        looks.forget(uid);
    }
    Ok(found)
}

/// The names that a database gives back. One that is let go for good also gives back what status does not tell of: nobody
/// looks at its names afterwards.
async fn names_to_release(context: &Context, resource: &QuestDB, validated: &Validated) -> Vec<String> {
    let mut names: Vec<String> =
        plan::names_to_release(resource, validated).into_iter().map(str::to_owned).collect();
    if !validated.removing {
        return names;
    }
    match context.zone_view.at_most(context.zone_period.min(AT_THE_END)).await {
        Ok(picture) => {
            let left = picture.with_text(&plan::owner_text(&validated.subject)).iter();
            names.extend(left.filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>());
        }
        // What status tells of is given back; an end does not wait for a list of everybody's names.
        Err(error) => unlisted(&error),
    }
    names
}

/// What the picture of the zone tells of a database at rest.
enum AtRest {
    AsNoted,
    /// It was found so when it was listed now.
    Otherwise(Dns),
    /// Nothing: there is none, or it is older than what was noted. It has to be looked at again soon.
    Untold,
}

/// What the picture of the zone shows to be otherwise than a database at rest left it, listed now: its name's records when
/// somebody changed them, else those of a name that is its own and that nobody knows of any more.
async fn at_rest(context: &Context, resource: &QuestDB, validated: &Validated) -> Result<AtRest, Error> {
    // Another is taken as often as the period says (`pictures::watch_zone`): while that one takes its time nobody waits.
    let picture = match context.zone_view.at_most(context.zone_period * 2).await {
        Ok(picture) => picture,
        Err(error) => {
            // Nothing has to be done now for a database at rest.
            unlisted(&error);
            return Ok(AtRest::Untold);
        }
    };
    let now = context.clock.now();
    let taken = now.checked_sub(picture.age()).unwrap_or_default();
    // Of a name that was noted later, by whosever clock, the picture tells nothing.
    let untold = plan::name_at_rest(resource, taken) != plan::name_at_rest(resource, Timestamp::MAX);
    if let Some(name) = plan::name_at_rest(resource, taken)
        && !plan::are_as_noted(resource, validated, picture.of(name))
    {
        let found = records(context, name).await?;
        if !plan::are_as_noted(resource, validated, &found) {
            return Ok(AtRest::Otherwise(Dns { records: Some(found), ..Dns::default() }));
        }
    }
    let text = plan::owner_text(&validated.subject);
    for name in plan::names_left(resource, picture.with_text(&text)) {
        if !plan::has_records(validated, picture.of(name)) {
            continue;
        }
        let left = records(context, name).await?;
        if plan::has_records(validated, &left) {
            let in_force = plan::name_at_rest(resource, now);
            let records = match in_force.filter(|_| validated.goal == Goal::Serve) {
                Some(name) => Some(records(context, name).await?),
                None => None,
            };
            return Ok(AtRest::Otherwise(Dns { records, left, ..Dns::default() }));
        }
    }
    Ok(if untold { AtRest::Untold } else { AtRest::AsNoted })
}

/// Told aloud once for all, by who lists the zone as often as the period says (`pictures::watch_zone`), and not by each database.
fn unlisted(error: &cloud::Error) {
    tracing::debug!(error = %runtime::telemetry::chain(error), "the zone could not be listed");
}

async fn records(context: &Context, name: &str) -> Result<Vec<DnsRecord>, Error> {
    let found = context.cloud.list_records(&context.zone(), name).await;
    found.map_err(Error::aws("list the records of the name"))
}

#[cfg(test)]
mod tests {
    use cloud::Call;

    use super::*;

    #[test]
    fn only_a_zone_that_is_gone_or_forbidden_is_withheld() {
        let call = |code: &str| Box::new(Call::new("ListResourceRecordSets", "words").with_code(code));
        let check = |source: cloud::Error, cure: Option<&str>| {
            let is_gone = source.is_not_found(ResourceKind::HostedZone);
            let found = withheld(&Error::aws("list the records of the name")(source), "Z1");
            assert_eq!(found.is_some(), cure.is_some(), "{found:?}");
            assert!(found.is_none_or(|found| found.why.contains(cure.unwrap()) && found.is_gone == is_gone));
        };
        let not_found = |kind| cloud::Error::NotFound { kind, call: call("NoSuchHostedZone") };
        check(not_found(ResourceKind::HostedZone), Some("no hosted zone Z1: put SLIPWAY_HOSTED_ZONE_ID"));
        check(not_found(ResourceKind::Change), None);
        check(cloud::Error::Denied { call: call("AccessDenied") }, Some("grant the operator"));
        check(cloud::Error::Denied { call: call("ExpiredToken") }, None);
        check(cloud::Error::Throttled { retry_after: None, call: call("Throttling") }, None);
        check(cloud::Error::Timeout { call: call("") }, None);
        assert_eq!(withheld(&Error::Lease, "Z1"), None);
    }
}
