//! What is left of a machine for QuestDB, and for the containers beside it.

use std::fmt;

use domain::catalogue::InstanceType;
use resources::{AmountsSpec, ContainerSpec, PodOverrides};

use crate::Validated;

/// What a small machine needs beside a share of its memory, in MiB: a kubelet keeps some for each pod that there might be.
const BESIDE: u32 = 512;
/// Least that QuestDB is left with.
pub(super) const LEAST: Amounts = Amounts { millicores: 500, mebibytes: 1_024 };

/// Amounts of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amounts {
    millicores: u32,
    mebibytes: u32,
}

impl Amounts {
    /// What pods may have of a machine: there is room left for what else runs on it.
    pub(super) fn of_machine(kind: &InstanceType) -> Self {
        let share = kind.memory_mib / 100 * 85;
        Self { millicores: kind.processors * 1_000 - 500, mebibytes: share.saturating_sub(BESIDE) }
    }

    /// As it is written, which the schema bounds; nothing of what is not an amount.
    pub(super) fn read(spec: &AmountsSpec) -> Self {
        let millicores = match spec.cpu.strip_suffix('m') {
            Some(thousandths) => number(thousandths),
            None => number(&spec.cpu).saturating_mul(1_000),
        };
        Self { millicores, mebibytes: mebibytes(&spec.memory) }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            millicores: self.millicores.saturating_add(other.millicores),
            mebibytes: self.mebibytes.saturating_add(other.mebibytes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            millicores: self.millicores.saturating_sub(other.millicores),
            mebibytes: self.mebibytes.saturating_sub(other.mebibytes),
        }
    }

    fn or_least(self) -> Self {
        Self {
            millicores: self.millicores.max(LEAST.millicores),
            mebibytes: self.mebibytes.max(LEAST.mebibytes),
        }
    }

    pub(super) fn fits(self, room: Self) -> bool {
        self.millicores <= room.millicores && self.mebibytes <= room.mebibytes
    }

    /// As Kubernetes writes it back.
    pub(crate) fn cpu(self) -> String {
        let Self { millicores, .. } = self;
        if millicores.is_multiple_of(1_000) {
            (millicores / 1_000).to_string()
        } else {
            format!("{millicores}m")
        }
    }

    /// In MiB.
    pub(crate) const fn memory(self) -> u32 {
        self.mebibytes
    }
}

impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}m and {}Mi", self.millicores, self.mebibytes)
    }
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or_default()
}

/// An amount of memory in MiB, as it is written.
pub(crate) fn mebibytes(text: &str) -> u32 {
    match text.strip_suffix("Gi") {
        Some(gibibytes) => number(gibibytes).saturating_mul(1_024),
        None => number(text.trim_end_matches("Mi")),
    }
}

/// What a container beside QuestDB gets.
pub(crate) fn amounts(container: &ContainerSpec) -> Amounts {
    Amounts::read(&container.resources)
}

/// What QuestDB's container gets: what was chosen, and no more than the machine has beside the other containers.
pub(crate) fn amounts_of_questdb(validated: &Validated) -> Amounts {
    let beside = beside(&validated.overrides);
    let room = Amounts::of_machine(&validated.instance_type).minus(beside);
    match validated.overrides.resources.as_ref().map(Amounts::read) {
        Some(chosen) => Amounts {
            millicores: chosen.millicores.min(room.millicores),
            mebibytes: chosen.mebibytes.min(room.mebibytes),
        },
        None => room,
    }
    .or_least()
}

/// Whether a machine has room for QuestDB beside the other containers.
pub(crate) fn fit(overrides: &PodOverrides, kind: &InstanceType) -> bool {
    LEAST.plus(beside(overrides)).fits(Amounts::of_machine(kind))
}

pub(super) fn beside(overrides: &PodOverrides) -> Amounts {
    let nothing = Amounts { millicores: 0, mebibytes: 0 };
    overrides.containers.iter().map(amounts).fold(nothing, Amounts::plus)
}
