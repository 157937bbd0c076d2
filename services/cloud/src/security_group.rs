//! Security groups: the firewall around one database's machine. Ingress only; egress stays EC2's default (everything).

use crate::word::words;
use crate::{SecurityGroupId, Tags};

words! {
    /// Transport of a rule.
    Protocol {
        /// TCP.
        Tcp = "tcp",
        /// UDP.
        Udp = "udp",
        /// Every protocol.
        All = "-1",
    } else
    /// Another, by EC2's word or number.
    Other
}

/// Who may come in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PeerRange {
    /// An IPv4 range, `10.0.0.0/8`.
    Ipv4(String),
    /// An IPv6 range.
    Ipv6(String),
    /// Members of another group (or of this one).
    Group(SecurityGroupId),
    /// A managed list of ranges, which we never write but must see.
    PrefixList(String),
}

/// One permission. EC2 groups permissions in its answers; here each peer is a rule of its own, so that sets compare.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IngressRule {
    /// Transport.
    pub protocol: Protocol,
    /// First port; 0 for protocols without ports.
    pub from_port: u16,
    /// Last port; 65535 for protocols without ports.
    pub to_port: u16,
    /// Who.
    pub peer: PeerRange,
}

impl IngressRule {
    /// One TCP port for one IPv4 or IPv6 range.
    pub fn tcp(port: u16, range: impl Into<String>) -> Self {
        let range = range.into();
        let peer = if range.contains(':') { PeerRange::Ipv6(range) } else { PeerRange::Ipv4(range) };
        Self { protocol: Protocol::Tcp, from_port: port, to_port: port, peer }
    }
}

/// A group as EC2 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityGroup {
    /// Its id.
    pub id: SecurityGroupId,
    /// Its name, unique in its VPC.
    pub name: String,
    /// Its VPC.
    pub vpc: String,
    /// What it says of itself.
    pub description: String,
    /// Who may come in, one peer each, sorted.
    pub ingress: Vec<IngressRule>,
    /// Tags.
    pub tags: Tags,
}

/// What to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSecurityGroup {
    /// Name, unique in the VPC; must not begin with `sg-`.
    pub name: String,
    /// VPC.
    pub vpc: String,
    /// What it says of itself; EC2 wants plain ASCII.
    pub description: String,
    /// Tags.
    pub tags: Tags,
}
