//! An AWS region in which everything that is asked for is there at once: machines, disks and firewalls, found again by their
//! tags. For what the operator does by itself: real machines take half a minute, and AWS launches two a second.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::aws::{self, Endpoint};
use crate::fake::Request;

/// Zone of everything.
pub(crate) const ZONE: &str = "bench-1a";

/// A machine that was launched.
#[derive(Debug)]
pub(crate) struct Launched {
    /// Its id.
    pub(crate) id: String,
    /// Its tags.
    pub(crate) tags: BTreeMap<String, String>,
}

/// The region; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Region {
    endpoint: Endpoint,
}

impl Region {
    /// Starts it, empty; machines are told as they are launched.
    pub(crate) async fn start(launched: mpsc::UnboundedSender<Launched>) -> anyhow::Result<Self> {
        let state = State::new(launched);
        let endpoint = Endpoint::start(move |request| state.answer(request)).await?;
        Ok(Self { endpoint })
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        self.endpoint.url.clone()
    }
}

/// What somebody asked for: its fields as they were asked for, and its tags.
#[derive(Debug, Clone)]
struct Thing {
    kind: &'static str,
    id: String,
    fields: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
    /// When: a machine that was launched long ago, and is no Node, would be given up.
    made: String,
    /// How it is told, put together once: it is told some hundred times, and this region is to take no time.
    item: String,
}

#[derive(Debug)]
struct State {
    /// Begins all ids: what an earlier region left in Kubernetes is of another one.
    prefix: String,
    things: Mutex<Vec<Thing>>,
    launched: mpsc::UnboundedSender<Launched>,
}

impl State {
    fn new(launched: mpsc::UnboundedSender<Launched>) -> Self {
        let mut prefix = uuid::Uuid::now_v7().simple().to_string();
        // Its end is left to chance.
        let prefix = prefix.split_off(24);
        Self { prefix, things: Mutex::default(), launched }
    }

    fn answer(&self, request: &Request) -> String {
        if aws::is_for_route53(request) {
            return aws::empty_zone(request);
        }
        let fields = fields(&String::from_utf8_lossy(&request.body));
        let action = fields.get("Action").cloned().unwrap_or_default();
        let inner = match action.as_str() {
            "RunInstances" => {
                let item = self.make("i", fields).item;
                format!("<reservationId>r-1</reservationId><instancesSet>{item}</instancesSet>")
            }
            "CreateVolume" => self.make("vol", fields).inner(),
            "CreateSecurityGroup" => format!("<groupId>{}</groupId>", self.make("sg", fields).id),
            "CreateTags" => {
                self.tag(&fields);
                "<return>true</return>".to_owned()
            }
            "DescribeInstances" => {
                let all = self.found("i", &fields);
                let one = |item: String| {
                    format!(
                        "<item><reservationId>r-1</reservationId><instancesSet>{item}</instancesSet></item>"
                    )
                };
                format!("<reservationSet>{}</reservationSet>", all.into_iter().map(one).collect::<String>())
            }
            "DescribeVolumes" => format!("<volumeSet>{}</volumeSet>", self.found("vol", &fields).concat()),
            "DescribeSecurityGroups" => {
                format!("<securityGroupInfo>{}</securityGroupInfo>", self.found("sg", &fields).concat())
            }
            "DescribeInstanceAttribute" => {
                let attribute = fields.get("Attribute").cloned().unwrap_or_default();
                format!("<{attribute}><value>true</value></{attribute}>")
            }
            _ => "<return>true</return>".to_owned(),
        };
        aws::ec2(&action, &inner)
    }

    fn things(&self) -> std::sync::MutexGuard<'_, Vec<Thing>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it, or finds what was made by the same token.
    fn make(&self, kind: &'static str, fields: BTreeMap<String, String>) -> Thing {
        let mut things = self.things();
        let token = fields.get("ClientToken");
        let same =
            |one: &&Thing| one.kind == kind && token.is_some() && one.fields.get("ClientToken") == token;
        if let Some(found) = things.iter().find(same) {
            return found.clone();
        }
        let id = format!("{kind}-{}{:09x}", self.prefix, things.len() + 1);
        let made = format!("{:.3}", jiff::Timestamp::now());
        let tags = pairs(&fields, "TagSpecification.1.Tag");
        let mut thing = Thing { kind, id, fields, tags, made, item: String::new() };
        thing.put_together();
        things.push(thing.clone());
        if kind == "i" {
            // Nobody listens any more once the slice is over.
            let _ = self.launched.send(Launched { id: thing.id.clone(), tags: thing.tags.clone() });
        }
        thing
    }

    fn tag(&self, fields: &BTreeMap<String, String>) {
        let ids: Vec<&String> = numbered(fields, "ResourceId").collect();
        for thing in self.things().iter_mut().filter(|thing| ids.contains(&&thing.id)) {
            thing.tags.extend(pairs(fields, "Tag"));
            thing.put_together();
        }
    }

    fn found(&self, kind: &str, fields: &BTreeMap<String, String>) -> Vec<String> {
        let filters: Vec<(&str, Vec<&String>)> = (1..)
            .map_while(|number| {
                let name = fields.get(&format!("Filter.{number}.Name"))?;
                Some((name.as_str(), numbered(fields, &format!("Filter.{number}.Value")).collect()))
            })
            .collect();
        let is = |thing: &Thing, (name, values): &(&str, Vec<&String>)| {
            let value = match name.strip_prefix("tag:") {
                Some(key) => thing.tags.get(key),
                None if name.ends_with("-id") && *name != "vpc-id" => Some(&thing.id),
                None if *name == "group-name" => thing.fields.get("GroupName"),
                // Everything is in the one network that there is.
                None => return true,
            };
            value.is_some_and(|value| values.contains(&value))
        };
        let all = self.things();
        let wanted =
            all.iter().filter(|one| one.kind == kind && filters.iter().all(|filter| is(one, filter)));
        wanted.map(|one| one.item.clone()).collect()
    }
}

impl Thing {
    /// To be called whenever anything of it changed.
    fn put_together(&mut self) {
        self.item = format!("<item>{}</item>", self.inner());
    }

    fn inner(&self) -> String {
        let Self { kind, id, fields, tags, made, item: _ } = self;
        let field = |name: &str| fields.get(name).map_or("", String::as_str);
        let mut tag_set = String::new();
        for (key, value) in tags {
            // Writing to a text cannot fail.
            let _ = write!(tag_set, "<item><key>{key}</key><value>{value}</value></item>");
        }
        let of_kind = match *kind {
            "i" => format!(
                "<instanceId>{id}</instanceId><imageId>{}</imageId><instanceState><code>16</code><name>running</name>\
                 </instanceState><instanceType>{}</instanceType><placement><availabilityZone>{ZONE}</availabilityZone>\
                 </placement><privateIpAddress>10.0.0.1</privateIpAddress><subnetId>{}</subnetId><vpcId>vpc-bench</vpcId>\
                 <clientToken>{}</clientToken><launchTime>{made}</launchTime><groupSet><item><groupId>{}</groupId></item>\
                 </groupSet>",
                field("ImageId"),
                field("InstanceType"),
                field("SubnetId"),
                field("ClientToken"),
                field("SecurityGroupId.1"),
            ),
            "vol" => format!(
                "<volumeId>{id}</volumeId><size>{}</size><availabilityZone>{ZONE}</availabilityZone>\
                 <status>available</status><createTime>{made}</createTime><volumeType>{}</volumeType><iops>{}</iops>\
                 <throughput>{}</throughput><encrypted>true</encrypted><attachmentSet/>",
                field("Size"),
                field("VolumeType"),
                field("Iops"),
                field("Throughput"),
            ),
            _ => format!(
                "<groupId>{id}</groupId><groupName>{}</groupName><vpcId>vpc-bench</vpcId><groupDescription>{}\
                 </groupDescription>{}",
                field("GroupName"),
                field("GroupDescription"),
                "<ipPermissions/>",
            ),
        };
        format!("{of_kind}<tagSet>{tag_set}</tagSet>")
    }
}

/// The fields of a form.
fn fields(body: &str) -> BTreeMap<String, String> {
    let parts = body.split('&').filter_map(|part| part.split_once('='));
    parts.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        let code = (*first == b'%').then(|| tail.get(..2)).flatten();
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        let (byte, taken) = match (code, *first) {
            (Some(byte), _) => (byte, 2),
            (None, b'+') => (b' ', 0),
            (None, byte) => (byte, 0),
        };
        bytes.push(byte);
        rest = &tail[taken..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The values `NAME.1`, `NAME.2` and so on.
fn numbered<'a>(fields: &'a BTreeMap<String, String>, name: &str) -> impl Iterator<Item = &'a String> {
    (1..).map_while(move |number| fields.get(&format!("{name}.{number}")))
}

/// The pairs `NAME.1.Key` and `NAME.1.Value`, and so on.
fn pairs(fields: &BTreeMap<String, String>, name: &str) -> BTreeMap<String, String> {
    (1..)
        .map_while(|number| {
            let part = |part: &str| fields.get(&format!("{name}.{number}.{part}")).cloned();
            Some((part("Key")?, part("Value").unwrap_or_default()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(state: &State, body: &str) -> String {
        let request =
            Request { method: "POST".into(), path: "/".into(), body: body.into(), ..Request::default() };
        state.answer(&request)
    }

    #[test]
    fn what_is_made_is_made_once_and_found_by_its_tags() {
        let (launched, mut heard) = mpsc::unbounded_channel();
        let state = State::new(launched);
        let run = "Action=RunInstances&ClientToken=t&InstanceType=m7i.large&TagSpecification.1.Tag.1.Key=questdb.io%2Fdatabase\
                   &TagSpecification.1.Tag.1.Value=a";
        let first = ask(&state, run);
        assert_eq!(ask(&state, run), first, "the same token is the same machine");
        let told = heard.try_recv().unwrap();
        assert!(heard.try_recv().is_err(), "it was launched once");
        assert_eq!(told.tags["questdb.io/database"], "a");
        let find = |value: &str| {
            let filter = "Filter.1.Name=tag%3Aquestdb.io%2Fdatabase&Filter.1.Value.1=x";
            ask(&state, &format!("Action=DescribeInstances&{filter}&Filter.1.Value.2={value}"))
        };
        assert!(find("a").contains("m7i.large") && !find("b").contains("instanceId"));
        let tag = "Tag.1.Key=questdb.io%2Fdatabase&Tag.1.Value=b";
        ask(&state, &format!("Action=CreateTags&ResourceId.1={}&{tag}", told.id));
        assert!(find("b").contains("m7i.large") && !find("a").contains("instanceId"));
        assert!(find("b").contains("<value>b</value>"), "it is told with the tags that it has");
        assert!(!ask(&state, "Action=DescribeVolumes").contains("volumeId"), "a machine is no disk");
    }

    #[test]
    fn forms_are_read() {
        assert_eq!(decoded("a%2Fb+c%"), "a/b c%");
        assert_eq!(fields("a=1&b=%3D")["b"], "=");
    }
}
