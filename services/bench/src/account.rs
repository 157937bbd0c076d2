//! An AWS account that has a disk of every paused database and nothing else: the answers to describes, and to questions
//! for records. Whatever else is asked gets an empty answer. Keeps nothing and checks nothing.

use std::fmt::Write as _;

use crate::aws::{self, Endpoint};
use crate::fake::Request;
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
    /// Starts it with so many disks.
    pub(crate) async fn start(disks: usize) -> anyhow::Result<Self> {
        let texts: Vec<String> = (0..disks).map(disk).collect();
        let endpoint = Endpoint::start(move |request| answer(request, &texts)).await?;
        Ok(Self { endpoint })
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        self.endpoint.url.clone()
    }
}

fn answer(request: &Request, disks: &[String]) -> String {
    if aws::is_for_route53(request) {
        return aws::empty_zone(request);
    }
    let body = String::from_utf8_lossy(&request.body);
    let field = |name: &str| body.split('&').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    let action = field("Action").unwrap_or_default();
    let inner = match action {
        "DescribeVolumes" => volumes(&body, field("NextToken"), disks),
        _ => String::new(),
    };
    aws::ec2(action, &inner)
}

fn volumes(body: &str, from: Option<&str>, disks: &[String]) -> String {
    // A filter by database names every database that it is about; one by cluster alone names none.
    let asked: Vec<usize> =
        body.split('&').filter_map(named).filter(|number| *number < disks.len()).collect();
    if body.contains("questdb.io%2Fdatabase") {
        let found: String = asked.into_iter().map(|number| disks[number].as_str()).collect();
        return format!("<volumeSet>{found}</volumeSet>");
    }
    let from = from.and_then(|token| token.parse().ok()).unwrap_or(0);
    let page = &disks[disks.len().min(from)..disks.len().min(from + PAGE)];
    let next = if from + PAGE < disks.len() {
        format!("<nextToken>{}</nextToken>", from + PAGE)
    } else {
        String::new()
    };
    format!("<volumeSet>{}</volumeSet>{next}", page.concat())
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
    let mut tags = String::new();
    for (key, value) in [
        ("questdb.io/cluster", CLUSTER),
        ("questdb.io/database", &identity(number)),
        ("questdb.io/role", "volume"),
        ("questdb.io/generation", "1"),
    ] {
        // Writing to a text cannot fail.
        let _ = write!(tags, "<item><key>{key}</key><value>{value}</value></item>");
    }
    format!(
        "<item><volumeId>{}</volumeId><size>20</size><availabilityZone>{ZONE}</availabilityZone>\
         <status>available</status><createTime>2026-01-01T00:00:00.000Z</createTime><volumeType>gp3</volumeType>\
         <iops>3000</iops><throughput>125</throughput><encrypted>true</encrypted><attachmentSet/>\
         <tagSet>{tags}</tagSet></item>",
        volume(number)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(body: &str, disks: usize) -> String {
        let disks: Vec<String> = (0..disks).map(disk).collect();
        let request = Request {
            method: "POST".into(),
            path: "/".into(),
            query: String::new(),
            body: body.as_bytes().to_vec(),
        };
        answer(&request, &disks)
    }

    #[test]
    fn disks_come_in_pages_or_by_their_databases() {
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
    }
}
