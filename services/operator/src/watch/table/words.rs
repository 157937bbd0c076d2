//! What is told of watches that do not show what there is.

use std::time::Instant;

use plan::Unseen;

use super::Row;
use crate::watch::trouble::{Trouble, Watched, told};

/// What is told of watches that are begun again until they work: the same whichever they are.
pub(super) const BROKEN: &str = "the operator cannot watch everything there, and tries again until it works: its /readyz says what and why";

/// Why not all of these are seen.
pub(super) fn unseen<'a>(
    rows: impl Iterator<Item = (&'a Watched, &'a Row)>,
    rights: &str,
    now: Instant,
) -> Option<Unseen> {
    let (mut hidden, mut late, mut refused) = (false, false, Vec::new());
    for (watched, row) in rows {
        hidden |= !row.is_seen(now);
        // What may come any moment is told only when it does not.
        late |= row.is_late(now);
        // The same whichever of them is late by now.
        refused.extend(row.refusal().map(|trouble| (watched, trouble)));
    }
    if !hidden {
        return None;
    }
    let text = told(&refused, rights);
    Some(match (refused.is_empty(), late) {
        (false, _) => Unseen::Refused(text),
        (true, true) => Unseen::Broken(BROKEN.to_owned()),
        (true, false) => Unseen::Yet,
    })
}

/// What is not seen, with the errors' own words.
pub(super) fn reasons<'a>(
    rows: impl Iterator<Item = (&'a Watched, &'a Row)>,
    rights: &str,
    now: Instant,
) -> Result<(), String> {
    let hidden: Vec<_> = rows.filter(|(_, row)| !row.is_seen(now)).collect();
    let refused = hidden.iter().filter_map(|(watched, row)| Some((*watched, row.refusal()?)));
    let refused: Vec<_> = refused.collect();
    let others = hidden.iter().filter(|(_, row)| row.refusal().is_none());
    let others = others.map(|(watched, row)| match row.ill.as_ref().map(|ill| &ill.trouble) {
        Some(Trouble::Broken(text)) => format!("watch of {watched}: {text}"),
        Some(Trouble::Denied(_) | Trouble::Missing) => format!("watch of {watched}: begun a moment ago"),
        None => format!("watch of {watched}: not listed yet"),
    });
    let refused = Some(told(&refused, rights)).filter(|text| !text.is_empty());
    let texts: Vec<_> = refused.into_iter().chain(others).collect();
    if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
}
