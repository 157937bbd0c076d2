//! An AWS account that has what every paused database keeps, its disk and its firewall, and nothing else: the answers to
//! describes, and to questions for records. Whatever else is asked gets an empty answer. Keeps nothing and checks nothing.

use crate::aws::{self, Endpoint};
use crate::fake::Request;
use crate::herd::{self, NAMESPACE};
use crate::populate::identity;

/// Name of the cluster in tags.
pub(crate) const CLUSTER: &str = "bench";
/// Zone of all disks.
pub(crate) const ZONE: &str = "bench-1a";
/// Resources in a page.
const PAGE: usize = 1_000;

/// The account; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Account {
    endpoint: Endpoint,
}

impl Account {
    /// Starts it with so many databases.
    pub(crate) async fn start(databases: usize) -> anyhow::Result<Self> {
        let owned = Owned::of(databases);
        let endpoint = Endpoint::start(move |request| owned.answer(request)).await?;
        Ok(Self { endpoint })
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        self.endpoint.url.clone()
    }
}

/// What each of the databases owns, in EC2's words.
struct Owned {
    disks: Vec<String>,
    groups: Vec<String>,
}

impl Owned {
    fn of(databases: usize) -> Self {
        Self { disks: (0..databases).map(disk).collect(), groups: (0..databases).map(group).collect() }
    }

    fn answer(&self, request: &Request) -> String {
        if aws::is_for_route53(request) {
            return aws::empty_zone(request);
        }
        let body = String::from_utf8_lossy(&request.body);
        let field =
            |name: &str| body.split('&').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        let action = field("Action").unwrap_or_default();
        let page = |set: &str, all: &[String]| {
            let (found, next) = page(&body, field("NextToken"), all);
            format!("<{set}>{found}</{set}>{next}")
        };
        let inner = match action {
            "DescribeVolumes" => page("volumeSet", &self.disks),
            "DescribeSecurityGroups" => page("securityGroupInfo", &self.groups),
            _ => String::new(),
        };
        aws::ec2(action, &inner)
    }
}

/// What is asked for of all, and how to ask for the rest.
fn page(body: &str, from: Option<&str>, all: &[String]) -> (String, String) {
    if body.contains("questdb.io%2Fdatabase") {
        // A filter by database names every database that it is about; one by cluster alone names none.
        let asked = body.split('&').filter_map(named).filter_map(|number| all.get(number));
        return (asked.map(String::as_str).collect(), String::new());
    }
    let from = from.and_then(|token| token.parse().ok()).unwrap_or(0);
    let page = &all[all.len().min(from)..all.len().min(from + PAGE)];
    let is_last = from + PAGE >= all.len();
    let next = if is_last { String::new() } else { format!("<nextToken>{}</nextToken>", from + PAGE) };
    (page.concat(), next)
}

/// The number of the database that a value of a filter names.
fn named(field: &str) -> Option<usize> {
    let value = field.split_once('=')?.1;
    let digits = value.strip_prefix(identity(0).get(..24)?)?;
    usize::from_str_radix(digits, 16).ok()
}

/// The id of a database's disk.
pub(crate) fn volume(number: usize) -> String {
    format!("vol-{number:017x}")
}

fn disk(number: usize) -> String {
    format!(
        "<item><volumeId>{}</volumeId><size>20</size><availabilityZone>{ZONE}</availabilityZone>\
         <status>available</status><createTime>2026-01-01T00:00:00.000Z</createTime><volumeType>gp3</volumeType>\
         <iops>3000</iops><throughput>125</throughput><encrypted>true</encrypted><attachmentSet/>\
         <tagSet>{}{}</tagSet></item>",
        volume(number),
        tags(number, "volume"),
        tag("questdb.io/generation", "1"),
    )
}

/// The firewall of a database, which stays for its next machine.
fn group(number: usize) -> String {
    format!(
        "<item><groupId>sg-{number:017x}</groupId><groupName>questdb-{}</groupName><vpcId>vpc-bench</vpcId>\
         <groupDescription>a bench</groupDescription><ipPermissions/><tagSet>{}</tagSet></item>",
        identity(number),
        tags(number, "security-group"),
    )
}

fn tags(number: usize, role: &str) -> String {
    let all = [
        ("Name", format!("{CLUSTER}/{NAMESPACE}/{}", herd::name(number))),
        ("questdb.io/cluster", CLUSTER.to_owned()),
        ("questdb.io/database", identity(number)),
        ("questdb.io/role", role.to_owned()),
    ];
    all.iter().map(|(key, value)| tag(key, value)).collect()
}

fn tag(key: &str, value: &str) -> String {
    format!("<item><key>{key}</key><value>{value}</value></item>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(body: &str, databases: usize) -> String {
        let request = Request {
            method: "POST".into(),
            path: "/".into(),
            body: body.as_bytes().to_vec(),
            ..Request::default()
        };
        Owned::of(databases).answer(&request)
    }

    #[test]
    fn what_is_owned_comes_in_pages_or_by_their_databases() {
        let count = |answer: &str| answer.matches("<volumeId>").count();
        let first = ask("Action=DescribeVolumes&MaxResults=1000", 1_001);
        assert_eq!(count(&first), 1_000);
        assert!(first.contains("<nextToken>1000</nextToken>"));
        let last = ask("Action=DescribeVolumes&NextToken=1000", 1_001);
        assert_eq!((count(&last), last.contains("nextToken")), (1, false));
        let one = format!(
            "Action=DescribeVolumes&Filter.1.Name=tag%3Aquestdb.io%2Fdatabase&Filter.1.Value.1={}",
            identity(7)
        );
        let one = ask(&one, 10);
        assert_eq!((count(&one), one.contains(&volume(7))), (1, true));
        assert_eq!(count(&ask("Action=DescribeInstances", 10)), 0);
        assert_eq!(ask("Action=DescribeSecurityGroups", 10).matches("<groupId>").count(), 10);
    }
}
