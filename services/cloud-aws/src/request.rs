//! Every request that we send, with its rate and with what it is about: the whole of what we ask of AWS, on one page
//! (the operator's policy, `deploy/operator/aws-policy.json`, allows those of them that it sends); and how describes are cut into
//! requests.

use std::collections::BTreeSet;

use aws_sdk_ec2::types::Filter;
use cloud::{Call, Error, Family, ResourceKind, Select};

/// One kind of request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// AWS's name of it.
    pub(crate) operation: &'static str,
    /// Whose rate it takes.
    pub(crate) family: Family,
    /// What an unspecific "not found" means.
    pub(crate) subject: ResourceKind,
}

macro_rules! requests {
    ($($name:ident = $operation:literal, $family:ident, $subject:ident;)+) => {
        $(pub(crate) const $name: Request = Request {
            operation: $operation,
            family: Family::$family,
            subject: ResourceKind::$subject,
        };)+

        #[cfg(test)]
        const ALL: &[Request] = &[$($name),+];
    };
}

requests! {
    RUN_INSTANCES = "RunInstances", Launch, Instance;
    DESCRIBE_INSTANCES = "DescribeInstances", Read, Instance;
    DESCRIBE_INSTANCE_ATTRIBUTE = "DescribeInstanceAttribute", Read, Instance;
    MODIFY_INSTANCE_ATTRIBUTE = "ModifyInstanceAttribute", Write, Instance;
    MODIFY_INSTANCE_METADATA_OPTIONS = "ModifyInstanceMetadataOptions", Write, Instance;
    MODIFY_NETWORK_INTERFACE_ATTRIBUTE = "ModifyNetworkInterfaceAttribute", Write, Other;
    TERMINATE_INSTANCES = "TerminateInstances", Write, Instance;
    STOP_INSTANCES = "StopInstances", Write, Instance;
    CREATE_VOLUME = "CreateVolume", Write, Volume;
    DESCRIBE_VOLUMES = "DescribeVolumes", Read, Volume;
    ATTACH_VOLUME = "AttachVolume", Write, Volume;
    DETACH_VOLUME = "DetachVolume", Write, Attachment;
    DELETE_VOLUME = "DeleteVolume", Write, Volume;
    MODIFY_VOLUME = "ModifyVolume", Write, Volume;
    DESCRIBE_VOLUMES_MODIFICATIONS = "DescribeVolumesModifications", Read, Volume;
    CREATE_SNAPSHOT = "CreateSnapshot", Write, Volume;
    DESCRIBE_SNAPSHOTS = "DescribeSnapshots", Read, Snapshot;
    DELETE_SNAPSHOT = "DeleteSnapshot", Write, Snapshot;
    CREATE_SECURITY_GROUP = "CreateSecurityGroup", Write, SecurityGroup;
    DESCRIBE_SECURITY_GROUPS = "DescribeSecurityGroups", Read, SecurityGroup;
    AUTHORIZE_INGRESS = "AuthorizeSecurityGroupIngress", Write, SecurityGroup;
    REVOKE_INGRESS = "RevokeSecurityGroupIngress", Write, Rule;
    DELETE_SECURITY_GROUP = "DeleteSecurityGroup", Write, SecurityGroup;
    CREATE_TAGS = "CreateTags", Write, Other;
    LIST_RECORDS = "ListResourceRecordSets", Dns, HostedZone;
    CHANGE_RECORDS = "ChangeResourceRecordSets", Dns, HostedZone;
    GET_CHANGE = "GetChange", Dns, Change;
}

/// How much a describe asks for at once.
pub(crate) const PAGE: i32 = 500;

/// How many ids go into one describe. EC2 takes 200 values of a filter.
const IDS: usize = 100;

/// More pages than any account can have: a bound for an endpoint that never says that it is done.
const PAGES: usize = 1000;

/// The filters of each describe that is needed for a selection. Ids are a filter, too, not the `…Ids` parameter: EC2
/// fails a whole request for one unknown id of the latter, and would let one stale id blind the callers that share a
/// batch.
pub(crate) fn filters<Id: AsRef<str>>(id: &str, select: &Select<Id>) -> Vec<Vec<Filter>> {
    match select {
        Select::Ids(ids) => {
            let ids: BTreeSet<&str> = ids.iter().map(AsRef::as_ref).collect();
            let ids: Vec<&str> = ids.into_iter().collect();
            ids.chunks(IDS).map(|chunk| vec![filter(id, chunk.iter().copied())]).collect()
        }
        Select::Tags(tags) => {
            let filters = tags.iter();
            let filters =
                filters.map(|(key, values)| filter(&format!("tag:{key}"), values.iter().map(String::as_str)));
            vec![filters.collect()]
        }
    }
}

/// One filter: any of these values.
pub(crate) fn filter<'a>(name: &str, values: impl Iterator<Item = &'a str>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.map(str::to_owned).collect())).build()
}

/// Walks the pages of a describe. Each is a request of its own, with its own turn in the rate limiter.
#[derive(Debug)]
pub(crate) struct Pages {
    request: Request,
    left: usize,
    next: Option<Page>,
}

/// Where a page begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// What the page before said; none for the first.
    pub(crate) token: Option<String>,
}

impl Pages {
    /// Before the first page.
    pub(crate) fn of(request: Request) -> Self {
        Self { request, left: PAGES, next: Some(Page { token: None }) }
    }

    /// The page to ask for; none after the last. An error when there are too many to be true.
    pub(crate) fn next(&mut self) -> Result<Option<Page>, Error> {
        let Some(page) = self.next.take() else { return Ok(None) };
        self.left = self.left.checked_sub(1).ok_or_else(|| lacks(self.request, "last page"))?;
        Ok(Some(page))
    }

    /// What the answer said of a next page. Some endpoints say an empty token for none.
    pub(crate) fn then(&mut self, token: Option<String>) {
        self.next = token.filter(|token| !token.is_empty()).map(|token| Page { token: Some(token) });
    }
}

/// The answer came, and without what it must have.
pub(crate) fn lacks(request: Request, what: &str) -> Error {
    let call = Call::new(request.operation, format!("the answer has no {what}"));
    Error::Unreadable { call: Box::new(call) }
}

#[cfg(test)]
mod tests {
    use cloud::{InstanceId, TagFilter};

    use super::*;

    /// What the operator may ask of AWS, for whoever installs it.
    const POLICY: &str = include_str!("../../../deploy/operator/aws-policy.json");
    /// What the operator never asks for: attaching disks is for their driver, whose part the node agent plays.
    const OF_OTHERS: [&str; 3] = ["StopInstances", "AttachVolume", "DetachVolume"];

    #[test]
    fn the_policy_allows_what_the_operator_asks_for_and_nothing_else() {
        let quoted = POLICY.split('"').skip(1).step_by(2);
        let allowed: Vec<&str> =
            quoted.filter(|text| text.starts_with("ec2:") || text.starts_with("route53:")).collect();
        let action = |request: &Request| match request.family {
            Family::Dns => format!("route53:{}", request.operation),
            Family::Read | Family::Write | Family::Launch => format!("ec2:{}", request.operation),
        };
        let asked = ALL.iter().filter(|request| !OF_OTHERS.contains(&request.operation));
        let asked: BTreeSet<String> = asked.map(action).collect();
        assert_eq!(allowed.len(), asked.len(), "each once");
        assert_eq!(allowed.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), asked);
    }

    fn values(filter: &Filter) -> (&str, Vec<&str>) {
        let values = filter.values().iter().map(String::as_str).collect();
        (filter.name().unwrap_or_default(), values)
    }

    #[test]
    fn ids_are_asked_for_in_hundreds_and_once_each() {
        let ids: Vec<InstanceId> = (0..250).chain(0..250).map(|n| format!("i-{n:03}").into()).collect();
        let requests = filters("instance-id", &Select::Ids(ids));
        let sizes: Vec<_> = requests.iter().map(|filters| values(&filters[0]).1.len()).collect();
        assert_eq!(sizes, [100, 100, 50]);
        assert_eq!(values(&requests[2][0]).1[49], "i-249");
    }

    #[test]
    fn no_ids_are_no_request() {
        assert!(filters("instance-id", &Select::<InstanceId>::Ids(Vec::new())).is_empty());
    }

    #[test]
    fn tags_are_one_request_and_all_must_hold() {
        let select: Select<InstanceId> = Select::Tags(TagFilter::cluster("eu").database("db1"));
        let requests = filters("instance-id", &select);
        let [request] = &requests[..] else { panic!("{requests:?}") };
        let expect = [("tag:questdb.io/cluster", vec!["eu"]), ("tag:questdb.io/database", vec!["db1"])];
        assert_eq!(request.iter().map(values).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn pages_follow_each_other_until_there_is_no_token() {
        let mut pages = Pages::of(DESCRIBE_INSTANCES);
        assert_eq!(pages.next().unwrap(), Some(Page { token: None }));
        pages.then(Some("a".to_owned()));
        assert_eq!(pages.next().unwrap(), Some(Page { token: Some("a".to_owned()) }));
        pages.then(Some(String::new()));
        assert_eq!(pages.next().unwrap(), None);
    }

    #[test]
    fn an_endpoint_that_is_never_done_is_an_error() {
        let mut pages = Pages::of(DESCRIBE_INSTANCES);
        for _ in 0..PAGES {
            assert!(pages.next().unwrap().is_some());
            pages.then(Some("again".to_owned()));
        }
        assert_eq!(pages.next().unwrap_err().category(), "unreadable");
    }
}
