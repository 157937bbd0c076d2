//! Which `ip` commands make, cut and remove a node's network. Pure: names and words only.

use std::net::Ipv4Addr;

use sha2::{Digest, Sha256};

/// The host's end of every link has this address: next hop of the nodes, source of what the host sends them.
const HOST: &str = "169.254.77.1";

/// Names of what belongs to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Network namespace.
    pub namespace: String,
    /// The host's end of the link; at most 15 bytes.
    pub link: String,
    /// Alias of the link, which tells the stack.
    pub alias: String,
}

/// One step: words for `ip`, or a switch below `/proc/sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Arguments of `ip`.
    Ip(Vec<String>),
    /// A file and what to write to it.
    Set(String, &'static str),
}

/// `sw-<stack>-<8 characters>`, and a link named by hash because link names are short.
pub fn names(stack: &str, instance: &str) -> Names {
    let digest = hex::encode(Sha256::digest(format!("{stack}/{instance}")));
    Names {
        namespace: format!("{}{}", prefix(stack), &digest[..8]),
        link: format!("sw{}", &digest[..12]),
        alias: alias(stack),
    }
}

/// What the names of a stack's namespaces begin with.
pub(super) fn prefix(stack: &str) -> String {
    format!("sw-{stack}-")
}

/// The alias of a stack's links.
pub(super) fn alias(stack: &str) -> String {
    format!("slipway:{stack}")
}

/// Makes namespace, link, addresses and routes.
pub fn create(names: &Names, private: Ipv4Addr, reach: &str) -> Vec<Step> {
    let Names { namespace, link, alias } = names;
    let inside = |words: &str| ip(&format!("-n {namespace} {words}"));
    let mut steps = vec![
        ip(&format!("netns add {namespace}")),
        ip(&format!("link add {link} type veth peer name eth0 netns {namespace}")),
        ip(&format!("link set {link} alias {alias}")),
        inside("link set lo up"),
        inside(&format!("addr add {private}/32 dev eth0")),
        inside("link set eth0 up"),
        ip(&format!("addr add {HOST}/32 dev {link}")),
    ];
    steps.extend(join(names, private));
    // Only between links of ours: the host's own forwarding stays as it is.
    steps.push(Step::Set(format!("/proc/sys/net/ipv4/conf/{link}/forwarding"), "1"));
    steps.push(inside(&format!("route add {HOST}/32 dev eth0 src {private}")));
    steps.push(inside(&format!("route add {reach} via {HOST} dev eth0 onlink src {private}")));
    steps
}

/// Raises the host's end and its route, which goes when the link goes down.
pub fn join(names: &Names, private: Ipv4Addr) -> Vec<Step> {
    let link = &names.link;
    vec![ip(&format!("link set {link} up")), ip(&format!("route replace {private}/32 dev {link} src {HOST}"))]
}

/// Lowers the host's end.
pub fn cut(names: &Names) -> Vec<Step> {
    vec![ip(&format!("link set {} down", names.link))]
}

/// Removes the namespace; the link goes with it.
pub fn remove(names: &Names) -> Vec<Step> {
    vec![ip(&format!("netns delete {}", names.namespace))]
}

fn ip(words: &str) -> Step {
    Step::Ip(words.split(' ').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_differ() {
        let one = names("a1b2", "i-0123456789abcdef0");
        assert!(one.namespace.starts_with("sw-a1b2-") && one.namespace.len() == 16);
        assert!(one.link.len() <= 15);
        assert_ne!(one, names("a1b2", "i-0123456789abcdef1"));
        assert_ne!(one.link, names("a1b3", "i-0123456789abcdef0").link);
    }

    #[test]
    fn a_node_has_no_way_out_but_to_nodes_and_host() {
        let steps = create(&names("s", "i-1"), Ipv4Addr::new(10, 250, 0, 9), "10.250.0.0/16");
        let words: Vec<String> = steps
            .iter()
            .map(|step| match step {
                Step::Ip(words) => words.join(" "),
                Step::Set(path, value) => format!("{path}={value}"),
            })
            .collect();
        assert!(!words.iter().any(|words| words.contains("default")));
        assert!(!words.iter().any(|words| words.contains("ip_forward")));
        assert!(words.iter().any(|words| words.contains("route replace 10.250.0.9/32 dev")));
        assert!(words.last().unwrap().contains("route add 10.250.0.0/16 via 169.254.77.1 dev eth0 onlink"));
    }
}
