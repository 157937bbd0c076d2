//! B10, an operator that has nothing to do: ten thousand databases at rest, all paused.
//!
//! Product: requests to the API server a second, and processor time a second, with all of them to look after. Anchor: the
//! same operator in the same cluster and account, told to look after a namespace in which there is nothing: what watches,
//! the Lease and the look at the whole account cost anybody.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::herd::{EMPTY, Herd};
use crate::{Results, Slice};

const MANY: usize = 10_000;
/// Four pictures of the account, and the looks that are due: from the start on they are as many a second as ever after.
const ROUND: Duration = Duration::from_mins(3);

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let herd = Herd::new(MANY).await?;
    // A fresh start on both sides: what the first reports of ten thousand databases took is not what rest costs.
    let operator = match slice {
        Slice::Product => herd.afresh().await?,
        Slice::Anchor => {
            herd.at_rest().await?.kill().await?;
            herd.operator(Some(EMPTY)).await?
        }
    };
    // What follows a start is over.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (asked, used, began) = (herd.keeper.asked(), operator.cpu()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(u64::from(seconds)).max(ROUND)).await;
    let (after, took) = (herd.keeper.asked(), began.elapsed().as_secs_f64());
    let used = (operator.cpu()? - used) / took;
    operator.kill().await?;
    ensure!(after.writes == asked.writes, "an idle operator wrote something");
    let requests = crate::meter::real(usize::try_from(after.requests - asked.requests)?) / took;
    Ok(Results::from([("requests".to_owned(), requests), ("cpu".to_owned(), used * 1_000.0)]))
}
