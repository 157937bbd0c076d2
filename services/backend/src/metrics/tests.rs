//! What is measured is what the document says.

use domain::{OperationId, OperationKind, OperationState};
use store::{Divergence, Ended};

use super::*;
use crate::sweep::decide::Why;

#[test]
fn the_document_has_every_metric_and_no_other() {
    let registry = runtime::Metrics::default();
    let metrics = Metrics::new(&registry);
    metrics.request("GET", "/v1/databases", 200, Duration::ZERO);
    metrics.beyond_share("rate");
    metrics.set_aside("too_large");
    metrics.unreadable("databases");
    metrics.pruned("audit", 1);
    metrics.unclaimed("ahead");
    metrics.unbelieved("other_cluster");
    metrics.lag("provisioning.gossip", [(&0, &1)]);
    metrics.diverged(&[]);
    metrics.left(Some(Divergence::Missing), Why::Young);
    metrics.listed([("eu-west-1".to_owned(), true)]);
    metrics.parked(&[("eu-west-1".to_owned(), 1)]);
    metrics.operations.reverted(OperationKind::Create);
    metrics.operations.ended(&Ended {
        operation: OperationId::mint(),
        kind: OperationKind::Create,
        state: OperationState::Succeeded,
        code: None,
        seconds: 1.0,
    });
    let document = include_str!("../../../../docs/metrics.md");
    let section = monitoring::section(document, "Backend");
    monitoring::assert_documented(section, &registry.names(), &registry.encode().unwrap());
}
