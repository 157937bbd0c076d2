//! One shared picture of a hosted zone: all its records, listed in one go now and then, so that a record that somebody
//! changed by hand is noticed although nothing is asked about the thousands of names that are as they should be.
//!
//! Like the picture of EC2 it is for noticing only: what is to be changed is listed again, by name.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::shared::Shared;
use crate::{Call, Cloud, DnsRecord, Error, HostedZoneId, RecordKind};

/// What a zone held at one moment.
#[derive(Debug)]
pub struct ZonePicture {
    as_of: Instant,
    records: HashMap<String, Vec<DnsRecord>>,
    /// Names by the texts that their records hold.
    texts: HashMap<String, Vec<String>>,
}

impl ZonePicture {
    /// Sorts records by name.
    pub fn new(as_of: Instant, records: Vec<DnsRecord>) -> Self {
        let mut sorted: HashMap<String, Vec<DnsRecord>> = HashMap::new();
        let mut by_text: HashMap<String, Vec<String>> = HashMap::new();
        for record in records {
            for text in texts(&record) {
                by_text.entry(text).or_default().push(record.name.clone());
            }
            sorted.entry(record.name.clone()).or_default().push(record);
        }
        Self { as_of, records: sorted, texts: by_text }
    }

    /// How old it is.
    pub fn age(&self) -> Duration {
        self.as_of.elapsed()
    }

    /// The texts, now and before, of names that hold something else than in an earlier picture. An answer may have another
    /// order.
    pub fn changed_since(&self, before: &Self) -> BTreeSet<String> {
        let names = self.records.keys().chain(before.records.keys());
        let changed = names.filter(|name| !same(self.of(name), before.of(name)));
        changed.flat_map(|name| self.of(name).iter().chain(before.of(name))).flat_map(texts).collect()
    }

    /// Every record of a name, which is lower case and without the last dot.
    pub fn of(&self, name: &str) -> &[DnsRecord] {
        self.records.get(name).map_or(&[], Vec::as_slice)
    }

    /// Every name with a record of this text.
    pub fn with_text(&self, text: &str) -> &[String] {
        self.texts.get(text).map_or(&[], Vec::as_slice)
    }
}

fn texts(record: &DnsRecord) -> Vec<String> {
    if record.kind == RecordKind::Txt { record.texts() } else { Vec::new() }
}

fn same(one: &[DnsRecord], other: &[DnsRecord]) -> bool {
    one.len() == other.len() && one.iter().all(|record| other.contains(record))
}

/// Takes the picture when somebody needs it, once for all who need it at that time.
pub struct ZoneView {
    cloud: Arc<dyn Cloud>,
    zone: HostedZoneId,
    deadline: Duration,
    shared: Shared<ZonePicture>,
}

impl fmt::Debug for ZoneView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZoneView").field("zone", &self.zone).finish_non_exhaustive()
    }
}

impl ZoneView {
    /// `deadline` bounds one listing of the whole zone.
    pub fn new(cloud: Arc<dyn Cloud>, zone: HostedZoneId, deadline: Duration) -> Self {
        Self { cloud, zone, deadline, shared: Shared::default() }
    }

    /// A picture at most this old. After a failure nobody tries again for a tenth of that time.
    pub async fn at_most(&self, age: Duration) -> Result<Arc<ZonePicture>, Error> {
        let serves = |picture: &ZonePicture| picture.as_of.elapsed() <= age;
        self.shared.get(serves, |failed| failed.elapsed() <= age / 10, || self.take()).await
    }

    async fn take(&self) -> Result<ZonePicture, Error> {
        let as_of = Instant::now();
        let late = |_| Error::Timeout {
            call: Box::new(Call::new("ListZone", format!("no whole zone within {:?}", self.deadline))),
        };
        let records =
            tokio::time::timeout(self.deadline, self.cloud.list_zone(&self.zone)).await.map_err(late)??;
        Ok(ZonePicture::new(as_of, records))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn records_are_found_by_their_name() {
        let (one, other) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let records = vec![
            DnsRecord::a("a.example.com", 30, one),
            DnsRecord::a("B.example.com.", 30, other),
            DnsRecord::txt("a.example.com", 30, "x"),
        ];
        let picture = ZonePicture::new(Instant::now(), records.clone());
        assert_eq!(picture.of("a.example.com"), [records[0].clone(), records[2].clone()]);
        assert_eq!(picture.of("b.example.com"), [records[1].clone()]);
        assert_eq!(picture.of("c.example.com"), []);
    }

    #[test]
    fn names_are_found_by_their_texts() {
        let records = vec![
            DnsRecord::txt("a.example.com", 30, "x"),
            DnsRecord::txt("b.example.com", 30, "y"),
            DnsRecord::txt("c.example.com", 30, "x"),
            DnsRecord::cname("d.example.com", 30, "x"),
        ];
        let picture = ZonePicture::new(Instant::now(), records);
        assert_eq!(picture.with_text("x"), ["a.example.com", "c.example.com"]);
        assert_eq!(picture.with_text("y"), ["b.example.com"]);
        assert_eq!(picture.with_text("z"), [""; 0]);
    }

    #[test]
    fn what_changed_is_told_by_the_texts_of_its_name() {
        let at = |last| DnsRecord::a("a.example.com", 30, Ipv4Addr::new(10, 0, 0, last));
        let text = |text| DnsRecord::txt("a.example.com", 30, text);
        let check = |before: &[DnsRecord], now: &[DnsRecord], expected: &[&str]| {
            let other = [DnsRecord::txt("b.example.com", 30, "other")];
            let [before, now] =
                [before, now].map(|records| ZonePicture::new(Instant::now(), [records, &other].concat()));
            let changed = now.changed_since(&before);
            assert_eq!(changed.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        };
        check(&[at(1), text("x")], &[text("x"), at(1)], &[]);
        check(&[at(1), text("x")], &[at(2), text("x")], &["x"]);
        check(&[at(1), text("x")], &[at(1), at(2), text("x")], &["x"]);
        check(&[at(1), text("x")], &[at(1)], &["x"]);
        check(&[at(1), text("x")], &[at(1), text("y")], &["x", "y"]);
        check(&[at(1), text("x")], &[], &["x"]);
        check(&[], &[at(1), text("x")], &["x"]);
        check(&[at(1)], &[at(2)], &[]);
    }
}
