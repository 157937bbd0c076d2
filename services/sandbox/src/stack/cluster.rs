//! One Kubernetes cluster as programs: etcd, API server, controller manager, scheduler, node agent.
//!
//! The API server signs its own certificate on its first start; kubeconfigs name that file as their authority.

use super::{Blueprint, Check, Cluster, Program};

/// The servers of a cluster. The node agent is not among them: it needs the AWS endpoint's data.
pub(super) fn programs(blueprint: &Blueprint<'_>, cluster: &Cluster) -> Vec<Program> {
    let mut programs = vec![etcd(blueprint, cluster), api_server(blueprint, cluster)];
    if !cluster.bare {
        programs.push(controller_manager(blueprint, cluster));
        programs.push(scheduler(blueprint, cluster));
    }
    programs
}

fn etcd(blueprint: &Blueprint<'_>, cluster: &Cluster) -> Program {
    let ports = &blueprint.identity.ports;
    let port = ports.of(&format!("{}-etcd", cluster.name));
    let client = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{}", ports.of(&format!("{}-etcd-peer", cluster.name)));
    let data = blueprint.layout.data().join(&cluster.name).join("etcd");
    let mut command = vec![
        blueprint.tools.etcd_bin.join("etcd").display().to_string(),
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--log-level=warn".to_owned(),
    ];
    if !blueprint.options.durable {
        command.push("--unsafe-no-fsync".to_owned());
    }
    Program::new(format!("{}-etcd", cluster.name), command, blueprint.layout.state())
        .ready(Check::Http { port, path: "/readyz".to_owned() })
}

fn api_server(blueprint: &Blueprint<'_>, cluster: &Cluster) -> Program {
    let ports = &blueprint.identity.ports;
    let certificates = blueprint.layout.certificates(&cluster.name);
    let key = certificates.join("service-account.key").display().to_string();
    let tokens = blueprint.layout.conf().join(format!("{}.tokens", cluster.name));
    let mut command = vec![
        blueprint.tools.kubernetes_bin.join("kube-apiserver").display().to_string(),
        format!("--etcd-servers=http://127.0.0.1:{}", ports.of(&format!("{}-etcd", cluster.name))),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", ports.of(&format!("{}-apiserver", cluster.name))),
        format!("--cert-dir={}", certificates.display()),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        format!("--token-auth-file={}", tokens.display()),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={key}"),
        format!("--service-account-signing-key-file={key}"),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--profiling=false".to_owned(),
    ];
    if cluster.bare {
        // Nobody makes service accounts there, and pods shall still be accepted.
        command.push("--disable-admission-plugins=ServiceAccount".to_owned());
    }
    let check = look(blueprint, cluster, &["get", "--raw=/readyz"]);
    let mut program = Program::new(format!("{}-apiserver", cluster.name), command, blueprint.layout.state())
        .after(&[&format!("{}-etcd", cluster.name)])
        .ready(check);
    // It waits for watchers to leave; etcd stops after it.
    program.stop.grace = 15;
    program.ready_within = 120;
    program
}

fn controller_manager(blueprint: &Blueprint<'_>, cluster: &Cluster) -> Program {
    let key = blueprint.layout.certificates(&cluster.name).join("service-account.key");
    let kubeconfig = blueprint.layout.kubeconfig(&cluster.name, "controller-manager");
    let command = vec![
        blueprint.tools.kubernetes_bin.join("kube-controller-manager").display().to_string(),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--service-account-private-key-file={}", key.display()),
        "--kube-api-qps=100".to_owned(),
        "--kube-api-burst=200".to_owned(),
    ];
    // It listens nowhere; the service account it makes in every namespace shows that it works.
    let check = look(blueprint, cluster, &["get", "serviceaccount", "default", "--namespace=default"]);
    Program::new(format!("{}-controller-manager", cluster.name), command, blueprint.layout.state())
        .after(&[&format!("{}-apiserver", cluster.name)])
        .ready(check)
}

fn scheduler(blueprint: &Blueprint<'_>, cluster: &Cluster) -> Program {
    let kubeconfig = blueprint.layout.kubeconfig(&cluster.name, "scheduler");
    let command = vec![
        blueprint.tools.kubernetes_bin.join("kube-scheduler").display().to_string(),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
    ];
    Program::new(format!("{}-scheduler", cluster.name), command, blueprint.layout.state())
        .after(&[&format!("{}-apiserver", cluster.name)])
        .ready(Check::Running)
}

/// A look by kubectl, which is repeated: no request of it is waited for long.
fn look(blueprint: &Blueprint<'_>, cluster: &Cluster, arguments: &[&str]) -> Check {
    let command = kubectl(blueprint, cluster, &[&["--request-timeout=4s"], arguments].concat());
    Check::Command { command }
}

/// A kubectl command against the cluster as its administrator.
pub(crate) fn kubectl(blueprint: &Blueprint<'_>, cluster: &Cluster, arguments: &[&str]) -> Vec<String> {
    let mut command = vec![
        blueprint.tools.kubernetes_bin.join("kubectl").display().to_string(),
        format!("--kubeconfig={}", blueprint.layout.kubeconfig(&cluster.name, "admin").display()),
    ];
    command.extend(arguments.iter().map(ToString::to_string));
    command
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_blueprint;
    use super::*;
    use crate::stack::Options;

    #[test]
    fn a_bare_cluster_has_nobody_but_the_api_server() {
        with_blueprint(&Options::for_system(), |blueprint| {
            let names = |cluster: &Cluster| -> Vec<String> {
                programs(blueprint, cluster).into_iter().map(|program| program.name).collect()
            };
            assert_eq!(names(&Cluster::bare()), ["bare-etcd", "bare-apiserver"]);
            assert_eq!(names(&Cluster::full("eu-west-1")).len(), 4);
            let api = |cluster: &Cluster| api_server(blueprint, cluster).command.join(" ");
            assert!(api(&Cluster::bare()).contains("--disable-admission-plugins=ServiceAccount"));
            assert!(!api(&Cluster::full("eu-west-1")).contains("--disable-admission-plugins"));
        });
    }

    #[test]
    fn the_api_server_knows_its_users_and_refuses_the_rest() {
        with_blueprint(&Options::for_people(), |blueprint| {
            let command = api_server(blueprint, &Cluster::full("us-east-1")).command;
            for argument in [
                "--authorization-mode=Node,RBAC",
                "--token-auth-file=/checkout/.slipway/conf/us-east-1.tokens",
                "--cert-dir=/checkout/.slipway/data/us-east-1/certificates",
                "--bind-address=127.0.0.1",
            ] {
                assert!(command.contains(&argument.to_owned()), "{argument} is not in {command:?}");
            }
        });
    }

    #[test]
    fn only_tests_do_without_fsync() {
        for (options, expect) in [(Options::for_people(), false), (Options::for_system(), true)] {
            with_blueprint(&options, |blueprint| {
                let command = etcd(blueprint, &Cluster::full("eu-west-1")).command;
                assert_eq!(command.contains(&"--unsafe-no-fsync".to_owned()), expect);
            });
        }
    }
}
