//! The parts of a database's progress, and which of them need which others.

use std::fmt;

macro_rules! parts {
    ($($(#[$doc:meta])* $variant:ident => $text:literal),+ $(,)?) => {
        /// A part of a database's progress, as users see it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Part { $($(#[$doc])* $variant),+ }

        impl Part {
            /// All of them.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name in status.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}

parts!(
    /// Finalizer and identity.
    Resource => "resource",
    /// Credentials.
    Credentials => "credentials",
    /// Keys that are drawn for clients. Nothing needs them: the API server may refuse the Secrets in which they are handed out.
    Keys => "keys",
    /// Firewall.
    SecurityGroup => "security-group",
    /// Rules of the firewall beside those that stand, no more than AWS takes of everybody. Nothing needs them: it may refuse them all the
    /// same.
    Rules => "rules",
    /// Rules beyond those. Nothing needs them: AWS may refuse them for as long as they are asked for.
    FurtherRules => "further-rules",
    /// Which security groups machines are in. Nothing needs it: AWS may refuse it, and somebody change it again and again.
    MachineGroups => "machine-groups",
    /// Who may ask the metadata service of machines. Nothing needs it: AWS may refuse it, and somebody change it again and again.
    MachineMetadata => "machine-metadata",
    /// Machine.
    Instance => "instance",
    /// Disk.
    Volume => "volume",
    /// The disk is as large and as fast as asked for. Nothing needs it: AWS may refuse a change for hours.
    Tuning => "tuning",
    /// Machine within Kubernetes.
    Node => "node",
    /// server.conf, and that there are Services.
    Config => "config",
    /// The rules about who may come in.
    Isolation => "network-policy",
    /// Disk on machine.
    Attachment => "attachment",
    /// QuestDB itself.
    Pod => "pod",
    /// What a running QuestDB reads again of server.conf.
    Reload => "reload",
    /// Name.
    Dns => "dns",
    /// From one name to another: the new one is added, then the former is given back.
    Rename => "name-change",
    /// Changes of Services that are there, disruption budget, monitors and routes.
    Reach => "reach",
    /// From one version to another.
    Upgrade => "upgrade",
    /// The machine that a database is about to move to. The old one serves until this one is ready.
    Candidate => "next-machine",
    /// Machines that serve nobody any more are ended.
    Former => "former-machines",
    /// The names by which people know what is in EC2. Nothing needs them: AWS may refuse them, and somebody take them off again and again.
    Tags => "tags",
    /// Nobody is sent to the database's machine any more; unless it is only paused, its name is given back.
    DnsRelease => "dns-release",
    /// QuestDB is stopped.
    PodStop => "pod-stop",
    /// The disk leaves the machine.
    Detachment => "detachment",
    /// The machine is ended.
    InstanceStop => "instance-stop",
    /// The firewall is removed.
    SecurityGroupRemoval => "security-group-removal",
    /// What the disk holds is copied a last time.
    LastCopy => "last-copy",
    /// The disk is destroyed.
    VolumeRemoval => "volume-removal",
    /// What remains in Kubernetes is removed.
    Cleanup => "cleanup",
);

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Part {
    /// The parts without which this one is not to be touched. What waits for something to be *seen* is not among them: it
    /// is not planned before.
    const fn needs(self) -> &'static [Self] {
        match self {
            Self::Resource
            | Self::Credentials
            | Self::SecurityGroup
            | Self::MachineGroups
            | Self::MachineMetadata
            | Self::Volume
            | Self::Node
            | Self::Config
            | Self::Isolation
            | Self::Reach
            | Self::Former
            | Self::Tags
            | Self::Upgrade
            | Self::DnsRelease => &[],
            // Nobody may come in who is not allowed, not even for a moment.
            Self::Rules | Self::FurtherRules | Self::Instance | Self::Candidate => &[Self::SecurityGroup],
            Self::Keys => &[Self::Credentials],
            Self::Tuning | Self::Attachment => &[Self::Volume],
            Self::Reload => &[Self::Config, Self::Pod],
            Self::Pod => &[Self::Credentials, Self::Node, Self::Config, Self::Attachment],
            Self::Dns => &[Self::Pod],
            Self::Rename => &[Self::Dns],
            // The way back is one row: nothing is pulled from under a QuestDB that still writes.
            Self::PodStop => &[Self::DnsRelease],
            Self::Detachment => &[Self::PodStop],
            Self::InstanceStop => &[Self::Detachment],
            Self::SecurityGroupRemoval => &[Self::InstanceStop],
            Self::LastCopy => &[Self::SecurityGroupRemoval],
            Self::VolumeRemoval => &[Self::LastCopy],
            Self::Cleanup => &[Self::VolumeRemoval],
        }
    }

    /// Whether a database serves without it; those who read steps by name know it by a list of these.
    pub(crate) const fn is_beside(self) -> bool {
        matches!(
            self,
            Self::Keys
                | Self::Rules
                | Self::FurtherRules
                | Self::MachineGroups
                | Self::MachineMetadata
                | Self::Tuning
                | Self::Reload
                | Self::Rename
                | Self::Reach
                | Self::Upgrade
                | Self::Candidate
                | Self::Former
                | Self::Tags
                | Self::LastCopy
        )
    }

    /// Whether it keeps machines as they were launched. What is not so is others' doing, who may go on with it for ever.
    pub(crate) const fn keeps_machines(self) -> bool {
        matches!(self, Self::MachineGroups | Self::MachineMetadata)
    }

    /// Whether it is of the way to another machine or version.
    const fn leads_elsewhere(self) -> bool {
        matches!(self, Self::Upgrade | Self::Candidate | Self::Former)
    }

    /// Whether what is under way of it may wait for the other, without which a database serves: for a machine that is not to be had, or not
    /// to be ended, others of the same way do, and so does the start of QuestDB. A restart is put off that needs the next machine, a pod
    /// finds no place on one that is to be left, and a former one keeps pod and disk.
    pub(crate) const fn may_wait_for(self, other: Self) -> bool {
        let starts = matches!(self, Self::Credentials | Self::Attachment | Self::Pod);
        other.leads_elsewhere() && (self.leads_elsewhere() || starts)
    }

    /// Whether a failure of `other` holds this part back: it is the same, or needed on some way.
    pub fn depends_on(self, other: Self) -> bool {
        self == other || self.needs().iter().any(|needed| needed.depends_on(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last copy is of a database that goes.
    #[test]
    fn whoever_reads_steps_by_name_knows_without_which_of_them_a_database_serves() {
        let beside = Part::ALL.iter().filter(|part| part.is_beside() && **part != Part::LastCopy);
        let names: Vec<&str> = beside.map(|part| part.as_str()).collect();
        assert_eq!(names, domain::operation::BESIDE);
    }

    #[test]
    fn a_failure_holds_back_what_needs_it_and_nothing_else() {
        let check = |part: Part, failed: Part, expected: bool| {
            assert_eq!(part.depends_on(failed), expected, "{part} {failed}");
        };
        for part in [Part::Config, Part::Attachment, Part::Node, Part::Pod, Part::Dns, Part::Instance] {
            check(part, Part::Tuning, false);
            check(part, part, true);
        }
        check(Part::Tuning, Part::Volume, true);
        check(Part::Reload, Part::Config, true);
        check(Part::Dns, Part::Reload, false);
        check(Part::Rename, Part::Dns, true);
        check(Part::Dns, Part::Rename, false);
        for failed in [Part::Config, Part::Credentials, Part::Node, Part::Attachment, Part::Volume] {
            check(Part::Pod, failed, true);
            check(Part::Dns, failed, true);
        }
        check(Part::Instance, Part::SecurityGroup, true);
        check(Part::Rules, Part::SecurityGroup, true);
        check(Part::FurtherRules, Part::SecurityGroup, true);
        check(Part::Keys, Part::Credentials, true);
        check(Part::Pod, Part::Keys, false);
        for part in [Part::SecurityGroup, Part::Instance, Part::Candidate, Part::Isolation] {
            check(part, Part::Rules, false);
            check(part, Part::FurtherRules, false);
        }
        for part in [Part::SecurityGroup, Part::Rules, Part::Instance, Part::Candidate, Part::Pod, Part::Dns]
        {
            check(part, Part::MachineGroups, false);
            check(part, Part::MachineMetadata, false);
        }
        check(Part::MachineGroups, Part::SecurityGroup, false);
        check(Part::SecurityGroup, Part::Config, false);
        check(Part::Config, Part::Instance, false);
        let row = [
            Part::DnsRelease,
            Part::PodStop,
            Part::Detachment,
            Part::InstanceStop,
            Part::SecurityGroupRemoval,
            Part::LastCopy,
            Part::VolumeRemoval,
            Part::Cleanup,
        ];
        for (number, failed) in row.into_iter().enumerate() {
            for (later, part) in row.into_iter().enumerate() {
                check(part, failed, later >= number);
            }
        }
    }
}
