//! Route 53. A zone takes one change after the other, and the account ten requests a second: changes go in batches.

use std::error::Error as StdError;
use std::sync::Arc;

use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::SdkError;
use aws_sdk_route53::error::BuildError;
use aws_sdk_route53::operation::change_resource_record_sets::ChangeResourceRecordSetsError;
use aws_sdk_route53::types as r53;
use cloud::{
    Call, ChangeId, DnsChange, DnsRecord, Error, HostedZoneId, RecordChange, RecordKind, normalise_name,
};

use crate::client::Aws;
use crate::failure::{Failure, Seen};
use crate::request::{CHANGE_RECORDS, GET_CHANGE, LIST_RECORDS, lacks};

/// Records of one name that a page may hold; a name has a handful of kinds.
const PAGE: i32 = 50;
/// Records of a whole zone that a page may hold: as many as Route 53 gives.
const WHOLE_PAGE: i32 = 300;

impl Aws {
    /// Route 53 lists in the order of names, from a name on: those wanted come first.
    pub(crate) async fn records(&self, zone: &HostedZoneId, name: &str) -> Result<Vec<DnsRecord>, Error> {
        let wanted = normalise_name(name);
        let mut found = Vec::new();
        let mut from: Option<(r53::RrType, Option<String>)> = None;
        loop {
            let sent = self.route53.list_resource_record_sets().hosted_zone_id(zone.as_str()).max_items(PAGE);
            let (kind, identifier) = from.take().unzip();
            let sent = sent.start_record_name(&wanted).set_start_record_type(kind);
            let sent = sent.set_start_record_identifier(identifier.flatten());
            let answer = self.call(LIST_RECORDS, sent.send()).await?;
            let seen = answer.resource_record_sets.into_iter().map(record);
            found.extend(seen.filter(|record| record.name == wanted));
            let next = answer.next_record_name.as_deref().map(normalise_name);
            if !answer.is_truncated || next.as_deref() != Some(&wanted) {
                return Ok(found);
            }
            let kind = answer.next_record_type.ok_or_else(|| lacks(LIST_RECORDS, "type to go on from"))?;
            let next = (kind, answer.next_record_identifier);
            if found.len() > MOST_RECORDS {
                return Err(lacks(LIST_RECORDS, "last page"));
            }
            from = Some(next);
        }
    }

    /// The whole zone, page by page.
    pub(crate) async fn all_records(&self, zone: &HostedZoneId) -> Result<Vec<DnsRecord>, Error> {
        let mut found = Vec::new();
        let mut from: Option<(String, r53::RrType, Option<String>)> = None;
        loop {
            let sent =
                self.route53.list_resource_record_sets().hosted_zone_id(zone.as_str()).max_items(WHOLE_PAGE);
            let sent = match from.take() {
                Some((name, kind, identifier)) => sent
                    .start_record_name(name)
                    .start_record_type(kind)
                    .set_start_record_identifier(identifier),
                None => sent,
            };
            let answer = self.call(LIST_RECORDS, sent.send()).await?;
            let before = found.len();
            found.extend(answer.resource_record_sets.into_iter().map(record));
            if !answer.is_truncated {
                return Ok(found);
            }
            if found.len() == before {
                return Err(lacks(LIST_RECORDS, "last page"));
            }
            let name = answer.next_record_name.ok_or_else(|| lacks(LIST_RECORDS, "name to go on from"))?;
            let kind = answer.next_record_type.ok_or_else(|| lacks(LIST_RECORDS, "type to go on from"))?;
            from = Some((name, kind, answer.next_record_identifier));
        }
    }

    pub(crate) async fn change(
        &self,
        zone: &HostedZoneId,
        changes: &[RecordChange],
    ) -> Result<DnsChange, Error> {
        let batch = changes
            .iter()
            .map(sdk_change)
            .collect::<Result<Vec<_>, _>>()
            .and_then(|changes| r53::ChangeBatch::builder().set_changes(Some(changes)).build());
        let batch = batch.map_err(|error| Error::Invalid {
            call: Box::new(Call::new(CHANGE_RECORDS.operation, error.to_string())),
        })?;
        let sent = self.route53.change_resource_record_sets().hosted_zone_id(zone.as_str());
        let sent = sent.change_batch(batch).send();
        let answer = Box::pin(self.call(CHANGE_RECORDS, async { sent.await.map_err(BatchFailure) })).await?;
        let change = answer.change_info.ok_or_else(|| lacks(CHANGE_RECORDS, "change"))?;
        Ok(dns_change(&change))
    }

    pub(crate) async fn change_state(&self, change: &ChangeId) -> Result<DnsChange, Error> {
        let answer = self.call(GET_CHANGE, self.route53.get_change().id(change.as_str()).send()).await?;
        let change = answer.change_info.ok_or_else(|| lacks(GET_CHANGE, "change"))?;
        Ok(dns_change(&change))
    }
}

/// Weighted sets of one name and kind can be many; this many are a loop.
const MOST_RECORDS: usize = 10_000;

/// Route 53 words what is wrong with a batch in two forms: as any error, with the list in the message; or as a document
/// of its own, in which the SDK finds no code.
struct BatchFailure(SdkError<ChangeResourceRecordSetsError, HttpResponse>);

impl Failure for BatchFailure {
    fn describe(&self) -> Seen {
        let mut seen = self.0.describe();
        if let Seen::Refused(refusal) = &mut seen
            && refusal.code.is_empty()
            && let Some(words) = self.0.raw_response().and_then(batch_words)
        {
            "InvalidChangeBatch".clone_into(&mut refusal.code);
            refusal.message = words;
        }
        seen
    }

    fn cause(self) -> Option<Arc<dyn StdError + Send + Sync>> {
        self.0.cause()
    }
}

/// The text of an `InvalidChangeBatch` document, its tags taken out.
fn batch_words(response: &HttpResponse) -> Option<String> {
    let body = std::str::from_utf8(response.body().bytes()?).ok()?;
    let (_, list) = body.split_once("<InvalidChangeBatch")?;
    let texts = list.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text.trim());
    Some(texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; "))
}

fn record(seen: r53::ResourceRecordSet) -> DnsRecord {
    let plain = seen.alias_target.is_none()
        && seen.set_identifier.is_none()
        && seen.traffic_policy_instance_id.is_none()
        && seen.health_check_id.is_none();
    let values = seen.resource_records.unwrap_or_default();
    DnsRecord {
        name: normalise_name(&seen.name),
        kind: seen.r#type.as_str().into(),
        ttl: seen.ttl.and_then(|ttl| u32::try_from(ttl).ok()).unwrap_or_default(),
        values: values.into_iter().map(|one| one.value).collect(),
        plain,
    }
}

fn sdk_change(change: &RecordChange) -> Result<r53::Change, BuildError> {
    let action = match change {
        RecordChange::Create(_) => r53::ChangeAction::Create,
        RecordChange::Upsert(_) => r53::ChangeAction::Upsert,
        RecordChange::Delete(_) => r53::ChangeAction::Delete,
    };
    let DnsRecord { name, kind, ttl, values, plain } = change.record();
    if !plain || matches!(kind, RecordKind::Other(_)) {
        let field = "only plain A, CNAME and TXT records are written";
        return Err(BuildError::other(field));
    }
    let values = values.iter().map(|value| r53::ResourceRecord::builder().value(value).build());
    let set = r53::ResourceRecordSet::builder()
        .name(name)
        .r#type(kind.as_str().into())
        .ttl(i64::from(*ttl))
        .set_resource_records(Some(values.collect::<Result<_, _>>()?))
        .build()?;
    r53::Change::builder().action(action).resource_record_set(set).build()
}

fn dns_change(seen: &r53::ChangeInfo) -> DnsChange {
    let id = seen.id.strip_prefix("/change/").unwrap_or(&seen.id);
    DnsChange { id: id.into(), state: seen.status.as_str().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_records_are_seen_and_never_written() {
        let alias = r53::AliasTarget::builder()
            .hosted_zone_id("Z")
            .dns_name("lb.example.com.")
            .evaluate_target_health(false)
            .build()
            .unwrap();
        let seen = r53::ResourceRecordSet::builder().name("Db1.Example.com.").r#type(r53::RrType::A);
        let seen = record(seen.alias_target(alias).build().unwrap());
        assert_eq!((seen.name.as_str(), seen.plain, seen.values.len()), ("db1.example.com", false, 0));
        assert!(sdk_change(&RecordChange::Delete(seen)).is_err());
        let mx = DnsRecord { kind: "MX".into(), ..DnsRecord::txt("a", 60, "b") };
        assert!(sdk_change(&RecordChange::Upsert(mx)).is_err());
    }

    #[test]
    fn a_record_that_was_listed_can_be_deleted_as_it_is() {
        let listed = record(
            r53::ResourceRecordSet::builder()
                .name("\\052.example.com.")
                .r#type(r53::RrType::Txt)
                .ttl(300)
                .resource_records(r53::ResourceRecord::builder().value("\"a\" \"b\"").build().unwrap())
                .build()
                .unwrap(),
        );
        let change = sdk_change(&RecordChange::Delete(listed)).unwrap();
        let set = change.resource_record_set().unwrap();
        assert_eq!(
            (set.name(), set.ttl(), set.resource_records()[0].value()),
            ("*.example.com", Some(300), "\"a\" \"b\"")
        );
    }

    #[test]
    fn change_ids_lose_their_prefix() {
        let info = |id: &str| {
            r53::ChangeInfo::builder()
                .id(id)
                .status(r53::ChangeStatus::Insync)
                .submitted_at(aws_sdk_route53::primitives::DateTime::from_secs(0))
                .build()
                .unwrap()
        };
        assert_eq!(dns_change(&info("/change/C1")).id, ChangeId::new("C1"));
        assert_eq!(dns_change(&info("C1")).id, ChangeId::new("C1"));
    }
}
