//! Without namespaces a process sees the host's paths and shares its addresses. This translates what a container was
//! told into what is true there. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Variables that make QuestDB bind, with the port it would take.
const BINDS: [(&str, u16); 4] = [
    ("QDB_HTTP_NET_BIND_TO", 9000),
    ("QDB_HTTP_MIN_NET_BIND_TO", 9003),
    ("QDB_PG_NET_BIND_TO", 8812),
    ("QDB_LINE_TCP_NET_BIND_TO", 9009),
];
/// Older names of the same settings.
const ALIASES: [(&str, &str); 2] =
    [("QDB_HTTP_BIND_TO", "QDB_HTTP_NET_BIND_TO"), ("QDB_HTTP_MIN_BIND_TO", "QDB_HTTP_MIN_NET_BIND_TO")];

/// A path in the container and where it is on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// In the container.
    pub inside: String,
    /// On the host.
    pub outside: PathBuf,
}

/// Variables with host paths, and every server bound to the node's own address.
pub fn environment(
    env: &BTreeMap<String, String>,
    mappings: &[Mapping],
    address: &str,
) -> BTreeMap<String, String> {
    let translated = env.iter().map(|(name, value)| (name.clone(), paths(value, mappings)));
    let mut translated: BTreeMap<_, _> = translated.collect();
    for (name, port) in BINDS {
        let alias = ALIASES.iter().find(|(_, current)| *current == name).map(|(old, _)| *old);
        let told = alias.into_iter().chain([name]).find_map(|name| env.get(name));
        let port = told.and_then(|value| value.rsplit(':').next()?.parse().ok()).unwrap_or(port);
        let name = alias.filter(|old| env.contains_key(*old)).unwrap_or(name);
        translated.insert(name.to_owned(), format!("{address}:{port}"));
    }
    translated
}

/// Replaces every container path in a value, the longest that fits first.
pub fn paths(value: &str, mappings: &[Mapping]) -> String {
    let mut mappings: Vec<&Mapping> = mappings.iter().collect();
    mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.inside.len()));
    let mut result = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(character) = rest.chars().next() {
        // A path begins where it could not be the middle of another.
        let begins = result.chars().last().is_none_or(|before| !is_part_of_a_path(before) && before != '/');
        let hit = mappings.iter().filter(|_| begins).find_map(|mapping| {
            let after = rest.strip_prefix(mapping.inside.as_str())?;
            let ends = after.chars().next().is_none_or(|next| !is_part_of_a_path(next));
            ends.then_some((mapping, after))
        });
        if let Some((mapping, after)) = hit {
            result.push_str(&mapping.outside.to_string_lossy());
            rest = after;
        } else {
            result.push(character);
            rest = &rest[character.len_utf8()..];
        }
    }
    result
}

fn is_part_of_a_path(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mappings() -> Vec<Mapping> {
        vec![
            Mapping { inside: "/var/lib/questdb".into(), outside: "/d/vol-1".into() },
            Mapping {
                inside: "/var/lib/questdb/conf/server.conf".into(),
                outside: "/d/c/server.conf".into(),
            },
        ]
    }

    #[test]
    fn whole_paths_are_replaced_and_nothing_else() {
        let check = |value: &str, expected: &str| assert_eq!(paths(value, &mappings()), expected);
        check("/var/lib/questdb", "/d/vol-1");
        check("/var/lib/questdb/db", "/d/vol-1/db");
        check("/var/lib/questdb/conf/server.conf", "/d/c/server.conf");
        check("-Dout=/var/lib/questdb/conf/log.conf -x", "-Dout=/d/vol-1/conf/log.conf -x");
        check("/var/lib/questdb2", "/var/lib/questdb2");
        check("/mnt/var/lib/questdb", "/mnt/var/lib/questdb");
        check("a:/var/lib/questdb:b", "a:/d/vol-1:b");
        check("plain", "plain");
    }

    #[test]
    fn servers_bind_to_the_node() {
        let env = BTreeMap::from([
            ("QDB_HTTP_BIND_TO".to_owned(), "0.0.0.0:9001".to_owned()),
            ("QDB_PG_NET_BIND_TO".to_owned(), "8000".to_owned()),
        ]);
        let env = environment(&env, &[], "127.250.0.9");
        assert_eq!(env["QDB_HTTP_BIND_TO"], "127.250.0.9:9001");
        assert!(!env.contains_key("QDB_HTTP_NET_BIND_TO"));
        assert_eq!(env["QDB_PG_NET_BIND_TO"], "127.250.0.9:8000");
        assert_eq!(env["QDB_HTTP_MIN_NET_BIND_TO"], "127.250.0.9:9003");
        assert_eq!(env["QDB_LINE_TCP_NET_BIND_TO"], "127.250.0.9:9009");
    }
}
