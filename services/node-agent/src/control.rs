//! The control API of the sandbox's AWS endpoint, as far as it tells what EC2 does not: which instances are cut off from
//! the network, and which are dead although they are called running. Reads only.

use std::time::Duration;

use cloud::InstanceId;
use serde::Deserialize;

use crate::fleet::Ailments;

/// Longest wait for an answer.
const DEADLINE: Duration = Duration::from_secs(3);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request failed.
    #[error("cannot ask the control API")]
    Request(#[source] reqwest::Error),
    /// The answer is no list of instances.
    #[error("cannot read the control API's answer")]
    Parse(#[source] serde_json::Error),
}

#[derive(Deserialize)]
struct Answer {
    instances: Vec<Machine>,
}

#[derive(Deserialize)]
struct Machine {
    instance_id: String,
    #[serde(default)]
    isolated: bool,
    #[serde(default)]
    impaired: bool,
}

/// What ails the instances of a region.
pub async fn ailments(http: &reqwest::Client, url: &str, region: &str) -> Result<Ailments, Error> {
    let url = format!("{}/instances?region={region}", url.trim_end_matches('/'));
    let answer = http.get(url).timeout(DEADLINE).send().await.and_then(reqwest::Response::error_for_status);
    let body = answer.map_err(Error::Request)?.bytes().await.map_err(Error::Request)?;
    parse(&body)
}

fn parse(body: &[u8]) -> Result<Ailments, Error> {
    let answer: Answer = serde_json::from_slice(body).map_err(Error::Parse)?;
    let with = |ails: fn(&Machine) -> bool| {
        let ailing = answer.instances.iter().filter(|machine| ails(machine));
        ailing.map(|machine| InstanceId::from(machine.instance_id.as_str())).collect()
    };
    Ok(Ailments { isolated: with(|machine| machine.isolated), impaired: with(|machine| machine.impaired) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let body = br#"{"instances": [{"instance_id": "i-1", "isolated": true, "impaired": false, "more": 1},
            {"instance_id": "i-2", "impaired": true}, {"instance_id": "i-3"}]}"#;
        let ailments = parse(body).unwrap();
        assert_eq!(ailments.isolated, [InstanceId::from("i-1")].into());
        assert_eq!(ailments.impaired, [InstanceId::from("i-2")].into());
        assert!(matches!(parse(b"<html>"), Err(Error::Parse(_))));
    }
}
