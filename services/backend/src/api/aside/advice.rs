//! What to do about what was set aside, by its reason: a few words for whoever looks at a list in the night. Pure.

/// About a dead letter whose database is known; `gossip` where a cluster said it.
pub(super) fn letter(code: &str, gossip: bool) -> &'static str {
    if gossip {
        return "nothing is lost, it is said again: look at the observer's version, discard";
    }
    match code {
        "invalid" => "change the database, or mend the cluster and redrive",
        "conflict" => "change the database: its next state outranks both",
        "unknown_cluster" => "register the cluster, redrive",
        "newer_major" | "reader_too_old" => "upgrade the provisioner, redrive",
        "too_large" => "shorten the database's config, redrive",
        "wrong_partition" => "find who writes there without murmur2_random, redrive",
        "undecodable" | "bad_field" | "empty" => "find who wrote it, redrive",
        "null_key" | "key_mismatch" => "find who wrote it, discard",
        "panicked" => "keep the provisioner's log for its makers, redrive",
        _ => "describe it, then redrive or discard",
    }
}

/// About a dead letter of a database that nobody knows.
pub(super) const STRANGER: &str = "nobody knows its database: find who wrote it, discard";

/// About a parked instruction: it is carried out by itself, once this is done.
pub(super) fn parked(code: &str) -> &'static str {
    match code {
        "unreachable" => "bring the cluster's API server back",
        "unavailable" | "throttled" | "full" | "contended" => "wait: it is tried again by itself",
        "credentials" => "renew the cluster's credentials",
        "forbidden" => "give the provisioner its rights in the cluster back",
        "no_definition" | "old_definition" => "install the definition of QuestDB of this release",
        "namespace" => "look why the tenant's namespace is missing or going",
        "disabled" => "set the cluster active again",
        "newer_schema" => "upgrade the provisioner",
        "registration" => "upgrade the provisioner, or mend the cluster's row",
        _ => "describe it: its message says what is in the way",
    }
}

/// About what is unclaimed: nothing is ever deleted for standing here.
pub(super) fn unclaimed(code: &str) -> &'static str {
    match code {
        "unknown_database" => "restore its rows, or remove the resource by hand",
        "other_cluster" => "remove the resource from the cluster where it does not belong",
        "ahead" => "rows were lost: look at Postgres; the sweep mints above it",
        "content" => "change the database: its next state outranks it",
        _ => "describe the database and look at its cluster",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_advice_and_it_fits_a_column() {
        let letters = [
            "invalid",
            "conflict",
            "unknown_cluster",
            "newer_major",
            "reader_too_old",
            "too_large",
            "wrong_partition",
            "undecodable",
            "bad_field",
            "empty",
            "null_key",
            "key_mismatch",
            "panicked",
        ];
        let waiting = [
            "unreachable",
            "unavailable",
            "throttled",
            "full",
            "contended",
            "credentials",
            "forbidden",
            "no_definition",
            "old_definition",
            "namespace",
            "disabled",
            "newer_schema",
            "registration",
        ];
        let strange = ["unknown_database", "other_cluster", "ahead", "content"];
        let all = letters.map(|code| letter(code, false)).into_iter();
        let all = all.chain(waiting.map(parked)).chain(strange.map(unclaimed));
        for text in all {
            assert!(!text.contains("describe") && text.len() <= 64, "{text}");
        }
        for text in [letter("new", false), parked("new"), unclaimed("new")] {
            assert!(text.contains("describe"), "{text}");
        }
    }
}
