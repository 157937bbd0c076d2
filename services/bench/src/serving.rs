//! B11s, what the operator keeps in memory of a thousand databases that are to serve; of those that are paused B11 has it.
//!
//! `memory`: what an operator takes a little after its start, as a part of what is promised: 60 MB and two and a half times the bytes of
//! the objects that it looks after. All that a database needs was made by another operator on the real API server, as in B8r: its resource,
//! StatefulSet, Services, `ConfigMap`, Secret, claim, `PersistentVolume`, `NetworkPolicy`, `PodDisruptionBudget` and Node. Only its pod is
//! missing, which nobody makes in that cluster. As in B8r the second operator may write nothing. Anchor: what is promised, 1.

use crate::creations::make;
use crate::ground::Ground;
use crate::{Results, Slice};

const MANY: usize = 1_000;

/// Measures a slice.
pub async fn measure(slice: Slice) -> anyhow::Result<Results> {
    let memory = match slice {
        Slice::Product => make(&Ground::prepare().await?, MANY).await?.memory,
        Slice::Anchor => 1.0,
    };
    Ok(Results::from([("memory".to_owned(), memory)]))
}
