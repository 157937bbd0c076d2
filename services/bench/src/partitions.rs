//! B3, throughput and partitions: the engine is bound by keys, not by partitions.
//!
//! Product: records handled a second from 4, 16 and 64 partitions, with work of 50 ms. Anchor: from one.

use std::time::Duration;

use crate::{Results, Slice, engine};

const LATENCY: Duration = Duration::from_millis(50);
const MANY: [i32; 3] = [4, 16, 64];

/// Measures a slice; the numbers of partitions share its time.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let time = Duration::from_secs(u64::from(seconds)) / 3;
    let mut results = Results::new();
    match slice {
        Slice::Product => {
            for partitions in MANY {
                results.insert(case(partitions), engine::product(partitions, LATENCY, time).await?);
            }
        }
        Slice::Anchor => {
            let rate = engine::product(1, LATENCY, time).await?;
            results.extend(MANY.map(|partitions| (case(partitions), rate)));
        }
    }
    Ok(results)
}

fn case(partitions: i32) -> String {
    format!("{partitions}-partitions")
}
