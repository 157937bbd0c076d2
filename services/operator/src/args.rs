//! What the program is told: the one page of its configuration.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use cloud::{Family, Rate};
use domain::catalogue::{self, InstanceTypes, Repository, Versions};
use plan::Settings;
use runtime::Trimmed;

use crate::neighbours::NeighbourArgs;
use crate::rates;
use crate::scope::{self, Scope};

/// Runs QuestDB databases on machines of their own: watches QuestDB resources in one cluster and acts on AWS
#[derive(Debug, clap::Parser)]
#[command(name = "slipway-operator", version)]
pub struct Args {
    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: runtime::TelemetryArgs,
    /// Operations server.
    #[command(flatten)]
    pub ops: runtime::OpsArgs,
    /// Kubeconfig of the cluster; the pod's own service account when absent
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Name of the cluster, as in every tag of AWS
    #[arg(long, env = "SLIPWAY_CLUSTER", value_parser = cluster_name, value_name = "NAME")]
    pub cluster: String,
    /// AWS region
    #[arg(long, env = "AWS_REGION", value_name = "REGION")]
    pub region: String,
    /// Another endpoint than AWS's own, for EC2 and Route 53
    #[arg(long, env = "AWS_ENDPOINT_URL", value_name = "URL")]
    pub aws_endpoint: Option<String>,
    /// Hosted zone of the databases' names
    #[arg(long, env = "SLIPWAY_HOSTED_ZONE_ID", value_name = "ID")]
    pub hosted_zone_id: String,
    /// Suffix of the databases' names
    #[arg(long, env = "SLIPWAY_DNS_SUFFIX", value_name = "DOMAIN")]
    pub dns_suffix: String,
    /// VPC of the machines
    #[arg(long, env = "SLIPWAY_VPC_ID", value_name = "ID")]
    pub vpc_id: String,
    /// Availability zones with their subnets
    #[arg(long, env = "SLIPWAY_ZONES", value_delimiter = ',', value_parser = Trimmed(zone), required = true, value_name = "ZONE=SUBNET")]
    pub zones: Vec<(String, String)>,
    /// Machine image of databases that name none
    #[arg(long, env = "SLIPWAY_NODE_IMAGE", value_parser = image, value_name = "AMI")]
    pub node_image: String,
    /// Instance profile of the machines, by its name: what their kubelets may do in AWS. None, and no rights, when absent
    #[arg(long, env = "SLIPWAY_INSTANCE_PROFILE", value_parser = profile_or_none, value_name = "NAME")]
    pub instance_profile: Option<String>,
    /// Namespace of the leader's Lease
    #[arg(long, env = "SLIPWAY_LEASE_NAMESPACE", default_value = "slipway-system", value_name = "NAMESPACE")]
    pub lease_namespace: String,
    /// Name of the operator's own pod, by which the Lease tells who leads; Kubernetes gives every container this variable
    #[arg(long, env = "HOSTNAME", value_name = "NAME")]
    pub pod_name: Option<String>,
    /// The only namespaces whose resources are looked after; all namespaces when absent
    #[arg(long, env = "SLIPWAY_WATCH_NAMESPACE", value_delimiter = ',', value_parser = Trimmed(scope::name_or_none), value_name = "NAMESPACE")]
    pub watch_namespace: Vec<String>,
    /// How long EC2 may take to show what was created: what it does not show counts as gone only so long after the last
    /// create
    #[arg(long, env = "SLIPWAY_EC2_LAG", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub ec2_lag: Duration,
    /// How long a request to a database that got no answer may take to reach it all the same: until then a checkpoint that was asked
    /// for is waited for, so that it is released
    #[arg(long, env = "SLIPWAY_QUESTDB_LAG", value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub questdb_lag: Duration,
    /// Between two looks at a database that is as it should be; what changes in Kubernetes, EC2 or Route 53 is noticed without
    #[arg(long, env = "SLIPWAY_RESYNC", value_name = "DURATION", default_value = "1h", value_parser = period)]
    pub resync: Duration,
    /// Between two lists of the whole hosted zone, by which records that somebody changed are noticed: three hundred records are
    /// one of the few requests a second that everybody in the account shares
    #[arg(long, env = "SLIPWAY_ZONE_PERIOD", value_name = "DURATION", default_value = "150s", value_parser = period)]
    pub zone_period: Duration,
    /// How long a watch of the cluster lasts before it is begun again, in whole seconds; one that stays silent for five more counts
    /// as dead
    #[arg(long, env = "SLIPWAY_WATCH_TIMEOUT", default_value_t = 290, value_parser = clap::value_parser!(u32).range(1..=290), value_name = "SECONDS")]
    pub watch_timeout: u32,
    /// QuestDB versions that databases may have, separated by commas. Those that are known when absent
    #[arg(long = "questdb-versions", env = "SLIPWAY_QUESTDB_VERSIONS", value_name = "VERSIONS")]
    pub versions: Option<Versions>,
    /// Repository of QuestDB's images, without a tag: that is the version. Nobody is restarted for another one
    #[arg(long, env = "SLIPWAY_QUESTDB_IMAGE", default_value = catalogue::QUESTDB_IMAGE, value_name = "REPOSITORY")]
    pub questdb_image: Repository,
    /// Secrets of type kubernetes.io/dockerconfigjson with which images are pulled, beside those that a database names: in the
    /// namespace of each. Nobody is restarted for another one
    #[arg(long, env = "SLIPWAY_IMAGE_PULL_SECRETS", value_delimiter = ',', value_parser = Trimmed(secret_or_none), value_name = "SECRET")]
    pub image_pull_secrets: Vec<String>,
    /// EC2 instance types that databases may have, separated by commas; one that is not known with its memory and its virtual
    /// processors. All that are known when absent
    #[arg(long, env = "SLIPWAY_INSTANCE_TYPES", value_name = "TYPE[:MIB:PROCESSORS]")]
    pub instance_types: Option<InstanceTypes>,
    /// Who else lives in the cluster.
    #[command(flatten)]
    pub neighbours: NeighbourArgs,
    /// Databases worked on at once
    #[arg(long, env = "SLIPWAY_CONCURRENCY", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1_000), value_name = "NUMBER")]
    pub concurrency: u16,
    /// Requests to AWS a second, and at once, in place of AWS's defaults for an account: of read, write (each operation of
    /// EC2), launch (launching machines) and dns (Route 53)
    #[arg(long, env = "SLIPWAY_AWS_RATES", value_delimiter = ',', value_parser = Trimmed(rates::rate), value_name = "FAMILY=RATE/BURST")]
    pub aws_rates: Vec<(Family, Rate)>,
}

impl Args {
    /// Which namespaces are looked after.
    pub fn scope(&self) -> Scope {
        Scope::of(&self.watch_namespace)
    }

    /// The part that decisions rest on.
    pub fn settings(&self) -> Settings {
        Settings {
            cluster: self.cluster.clone(),
            hosted_zone: self.hosted_zone_id.clone(),
            dns_suffix: self.dns_suffix.clone(),
            vpc: self.vpc_id.clone(),
            zones: self.zones.iter().cloned().collect::<BTreeMap<_, _>>(),
            node_image: self.node_image.clone(),
            instance_profile: self.instance_profile.clone().filter(|name| !name.is_empty()),
            versions: self.versions.clone().unwrap_or_default(),
            questdb_image: self.questdb_image.clone(),
            image_pull_secrets: named(&self.image_pull_secrets),
            instance_types: self.instance_types.clone().unwrap_or_default(),
            neighbours: self.neighbours.settings(&self.lease_namespace, &self.dns_suffix),
        }
    }
}

/// A name, whatever it is: by an empty one two clusters of an account would take each other's machines for theirs.
fn cluster_name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err(
            "the cluster needs a name: it stands in every tag by which a database is found in AWS".to_owned()
        );
    }
    Ok(text.to_owned())
}

fn zone(text: &str) -> Result<(String, String), String> {
    let (zone, subnet) = text.split_once('=').ok_or("must be ZONE=SUBNET")?;
    if zone.is_empty() || subnet.is_empty() || text.contains(char::is_whitespace) {
        return Err("neither zone nor subnet may be empty or have a blank in it".to_owned());
    }
    Ok((zone.to_owned(), subnet.to_owned()))
}

/// An image by its id: by any other name EC2 launches what it is called otherwise afterwards.
fn image(text: &str) -> Result<String, String> {
    let id = text.strip_prefix("ami-").is_some_and(|rest| !rest.is_empty());
    if id { Ok(text.to_owned()) } else { Err(format!("{text:?} is not the id of an image, such as ami-1")) }
}

/// A name that an instance profile may have, or nothing.
fn profile_or_none(text: &str) -> Result<String, String> {
    let good = |letter: char| letter.is_ascii_alphanumeric() || "_+=,.@-".contains(letter);
    if text.len() <= 128 && text.chars().all(good) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not the name of an instance profile, such as kubelet"))
    }
}

/// The names among these: an empty text is how a variable of the environment says that none is named.
fn named(names: &[String]) -> Vec<String> {
    names.iter().filter(|name| !name.is_empty()).cloned().collect()
}

/// A name that a Secret may have, or nothing.
fn secret_or_none(text: &str) -> Result<String, String> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(good) && !label.starts_with('-') && !label.ends_with('-')
    };
    if text.is_empty() || (text.len() <= 253 && text.split('.').all(is_label)) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not the name of a Secret, such as registry"))
    }
}

/// A length of time such as `500ms`, `30s` or `2m`: ten minutes at most.
fn duration(text: &str) -> Result<Duration, String> {
    let told = "0s to 10 minutes, such as 500ms, 30s or 2m";
    length(text, Duration::ZERO..=Duration::from_mins(10), told)
}

/// Between two looks: a second at least and a day at most.
fn period(text: &str) -> Result<Duration, String> {
    let told = "1 second to 1 day, such as 30s, 5m or 1h";
    length(text, Duration::from_secs(1)..=Duration::from_hours(24), told)
}

fn length(text: &str, allowed: RangeInclusive<Duration>, told: &str) -> Result<Duration, String> {
    let length = text.parse::<jiff::SignedDuration>().ok().and_then(|length| Duration::try_from(length).ok());
    let wrong = || format!("{text:?} is not a length of time of {told}");
    length.filter(|length| allowed.contains(length)).ok_or_else(wrong)
}

#[cfg(test)]
mod deployment;

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    fn least() -> Vec<&'static str> {
        "slipway-operator --cluster eu --region eu-west-1 --hosted-zone-id Z1 --dns-suffix eu.example.com --vpc-id vpc-1 \
         --zones eu-west-1a=subnet-1,eu-west-1b=subnet-2 --node-image ami-1"
            .split_whitespace()
            .collect()
    }

    #[test]
    fn the_command_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn zones_become_a_map() {
        let args = Args::try_parse_from(least()).unwrap();
        assert_eq!(args.settings().zones.get("eu-west-1b").map(String::as_str), Some("subnet-2"));
        assert_eq!(
            (args.lease_namespace.as_str(), args.ec2_lag, args.resync, args.zone_period),
            ("slipway-system", Duration::from_secs(30), Duration::from_hours(1), Duration::from_secs(150))
        );
        assert_eq!(args.questdb_lag, Duration::from_mins(5));
        assert_eq!(args.watch_timeout, 290, "a watch that is silent is given up after five more");
    }

    #[test]
    fn namespaces_are_named_at_once_or_one_by_one() {
        let check = |arguments: &[&str], expected: &[&str]| {
            let names: Vec<_> = expected.iter().map(ToString::to_string).collect();
            let args = Args::try_parse_from(least().iter().chain(arguments)).unwrap();
            assert_eq!(args.scope(), Scope::of(&names), "{arguments:?}");
        };
        check(&[], &[]);
        check(&["--watch-namespace", ""], &[]);
        check(&["--watch-namespace", "a,b"], &["a", "b"]);
        check(&["--watch-namespace", "a", "--watch-namespace", "b"], &["a", "b"]);
    }

    #[test]
    fn blanks_around_the_entries_of_a_list_change_nothing() {
        let lists = [
            ("--zones", "eu-west-1a=subnet-1,eu-west-1b=subnet-2"),
            ("--watch-namespace", "a,b"),
            ("--image-pull-secrets", "registry,mirror.eu"),
            ("--aws-rates", "launch=20/100,dns=5/10"),
            ("--operator-cidrs", "10.0.0.0/8,fd00::/8"),
            ("--cluster-cidrs", "10.0.0.0/8,fd00::/8"),
            ("--scraper-namespaces", "monitoring,metrics"),
            ("--ingress-namespaces", "traefik,edge"),
            ("--questdb-versions", "9.3.4,9.4.0"),
            ("--instance-types", "m7i.large,r8i.2xlarge:65536:8"),
        ];
        let shown = |flag: &str, list: &str| {
            let arguments = least().into_iter().chain([flag, list]).map(str::to_owned).collect::<Vec<_>>();
            format!("{:?}", Args::try_parse_from(arguments).unwrap())
        };
        for (flag, list) in lists {
            assert_eq!(shown(flag, &list.replace(',', " ,\t ")), shown(flag, list), "{flag}");
        }
        let command = Args::command();
        let has_row = |argument: &&clap::Arg| {
            let flag = format!("--{}", argument.get_long().unwrap());
            lists.iter().any(|(listed, _)| *listed == flag)
        };
        let mut arguments =
            command.get_arguments().filter(|argument| argument.get_value_delimiter().is_some());
        assert_eq!(arguments.find(|argument| !has_row(argument)).map(clap::Arg::get_id), None);
    }

    #[test]
    fn images_and_machines_are_the_well_known_ones_unless_others_are_named() {
        let settings = |more: &[&str]| Args::try_parse_from(least().iter().chain(more)).unwrap().settings();
        let usual = settings(&[]);
        assert_eq!(usual.questdb_image.image("9.3.4"), catalogue::image_of("9.3.4"));
        assert_eq!((usual.instance_types, usual.versions), (InstanceTypes::default(), Versions::default()));
        let named = settings(&[
            "--questdb-image=mirror:5000/questdb",
            "--questdb-versions=9.4.0,9.4.1",
            "--instance-types=r8i.2xlarge:65536:8",
            "--image-pull-secrets=registry,mirror.eu",
            "--instance-profile=kubelet",
        ]);
        assert_eq!((usual.instance_profile, named.instance_profile.as_deref()), (None, Some("kubelet")));
        assert_eq!(settings(&["--instance-profile", ""]).instance_profile, None);
        assert_eq!(named.image_pull_secrets, ["registry", "mirror.eu"]);
        assert!(usual.image_pull_secrets.is_empty());
        assert!(settings(&["--image-pull-secrets", ""]).image_pull_secrets.is_empty());
        assert_eq!(named.questdb_image.image("9.3.4"), "mirror:5000/questdb:9.3.4");
        let told = [named.versions.told(), named.instance_types.told()];
        assert_eq!(told, ["must be one of: 9.4.0, 9.4.1", "must be one of: r8i.2xlarge"]);
    }

    #[test]
    fn a_cluster_without_a_name_is_refused() {
        let called = |name: &'static str| {
            let arguments = least().into_iter().map(|word| if word == "eu" { name } else { word });
            Args::try_parse_from(arguments).map(|args| args.cluster)
        };
        assert_eq!(called("Western Europe").unwrap(), "Western Europe");
        for name in ["", " ", "\n"] {
            let refusal = called(name).unwrap_err().to_string();
            assert!(refusal.contains("needs a name"), "{refusal}");
        }
    }

    #[test]
    fn an_image_is_named_by_its_id() {
        assert!(image("ami-0123456789abcdef0").is_ok());
        assert!(image("resolve:ssm:/images/latest").is_err() && image("ami-").is_err() && image("").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for (flag, value) in [
            ("--zones", "eu-west-1a"),
            ("--zones", "=subnet"),
            ("--zones", "eu-west-1a=subnet-1 eu-west-1b=subnet-2"),
            ("--concurrency", "0"),
            ("--ec2-lag", "30"),
            ("--ec2-lag", "-1s"),
            ("--ec2-lag", "11m"),
            ("--resync", "0s"),
            ("--resync", "999ms"),
            ("--resync", "25h"),
            ("--zone-period", "0s"),
            ("--watch-timeout", "0"),
            ("--watch-timeout", "291"),
            ("--watch-namespace", "a,*"),
            ("--aws-rates", "launch=2"),
            ("--questdb-image", "questdb/questdb:9.3.4"),
            ("--instance-types", "r8i.2xlarge"),
            ("--questdb-versions", "9.4.0,"),
            ("--image-pull-secrets", "Registry"),
            ("--image-pull-secrets", "registry mirror"),
            ("--image-pull-secrets", "mirror..eu"),
            ("--instance-profile", "arn:aws:iam::1:instance-profile/kubelet"),
        ] {
            let arguments = least().into_iter().chain([flag, value]);
            assert!(Args::try_parse_from(arguments).is_err(), "{flag} {value}");
        }
    }
}
