//! Where the sweep stands among all databases. Pure.
//!
//! A round goes over all of them, page after page. It usually takes one turn; a turn that breaks off, because something failed
//! or its time was up, leaves the rest of the round to the next one. *Invariant:* what breaks off at the same page turn after
//! turn holds up neither the pages behind it nor those before: the page is tried twice in a round and then passed over, and
//! one that cannot even be read, and not for rows of it, ends the round.

use std::collections::BTreeMap;

use domain::DatabaseId;

use super::decide::Lagging;

/// Where the next turn goes on. Whoever takes turns keeps it from each to the next.
#[derive(Debug, Default)]
pub struct Place {
    /// The last database that was dealt with; `None` at the start.
    after: Option<DatabaseId>,
    /// Whether a turn broke off in the page behind it.
    broken_off: bool,
    /// What is to be sent again of the pages before: at most all databases once.
    lagging: BTreeMap<DatabaseId, Lagging>,
}

/// Some databases that are looked at together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    /// Behind which one they begin.
    pub(super) after: Option<DatabaseId>,
    /// Whether this page was begun before, and not ended.
    again: bool,
}

impl Place {
    /// Whether a turn that begins here and comes to the end has seen everything.
    pub(super) fn is_start(&self) -> bool {
        self.after.is_none()
    }

    /// Begins the next page.
    pub(super) fn begin(&mut self) -> Page {
        let page = Page { after: self.after, again: self.broken_off };
        self.broken_off = !page.again;
        if page.again {
            // Where the next one begins is known once this one was read: until then only the start is left.
            self.after = None;
        }
        page
    }

    /// It was read, and behind it comes `next`.
    pub(super) fn read(&mut self, page: Page, next: Option<DatabaseId>) {
        if page.again {
            self.after = next;
        }
    }

    /// All of it was done.
    pub(super) fn done(&mut self, next: Option<DatabaseId>) {
        self.after = next;
        self.broken_off = false;
    }

    /// Of the databases that were judged, or cannot be read, those are to be sent again.
    pub(super) fn judged(&mut self, databases: impl Iterator<Item = DatabaseId>, lagging: Vec<Lagging>) {
        for database in databases {
            self.lagging.remove(&database);
        }
        self.lagging.extend(lagging.into_iter().map(|one| (one.at.0, one)));
    }

    /// All that is to be sent again.
    pub(super) fn lagging(&self) -> Vec<Lagging> {
        self.lagging.values().copied().collect()
    }

    /// As much of it as was allowed was sent: the rest has to wait for the next round.
    pub(super) fn resent(&mut self) {
        self.lagging.clear();
    }
}

#[cfg(test)]
mod tests {
    use domain::Position;

    use super::*;

    fn id(number: u128) -> DatabaseId {
        DatabaseId::new(uuid::Uuid::from_u128(number))
    }

    /// A turn that goes over the pages `pages` and breaks off in the one behind them, before it was read or after.
    fn broken_off(place: &mut Place, pages: &[u128], read: Option<u128>) -> Option<DatabaseId> {
        for &last in pages {
            let page = place.begin();
            place.read(page, Some(id(last)));
            place.done(Some(id(last)));
        }
        let page = place.begin();
        if let Some(last) = read {
            place.read(page, Some(id(last)));
        }
        page.after
    }

    #[test]
    fn a_turn_goes_on_where_the_last_one_broke_off() {
        let mut place = Place::default();
        assert_eq!(broken_off(&mut place, &[1, 2], Some(3)), Some(id(2)));
        assert!(!place.is_start());
        assert_eq!(broken_off(&mut place, &[3, 4], Some(5)), Some(id(4)), "it began behind the second");
        let page = place.begin();
        assert_eq!(page.after, Some(id(4)));
        place.read(page, None);
        place.done(None);
        assert!(place.is_start(), "a round begins anew when it has come to its end");
        assert_eq!(broken_off(&mut place, &[], Some(1)), None);
    }

    #[test]
    fn a_page_that_breaks_off_twice_is_passed_over_until_the_next_round() {
        let mut place = Place::default();
        broken_off(&mut place, &[1], Some(2));
        assert_eq!(broken_off(&mut place, &[], Some(2)), Some(id(1)), "it may have been chance");
        assert_eq!(broken_off(&mut place, &[3], Some(4)), Some(id(3)), "what lies behind is reached");
        assert_eq!(broken_off(&mut place, &[], Some(4)), Some(id(3)), "and is tried twice as well");
    }

    #[test]
    fn a_page_that_cannot_be_read_holds_up_none_before_it() {
        let mut place = Place::default();
        broken_off(&mut place, &[1], None);
        assert_eq!(broken_off(&mut place, &[], None), Some(id(1)));
        assert!(place.is_start());
        assert_eq!(broken_off(&mut place, &[1], None), Some(id(1)));
    }

    #[test]
    fn what_lags_is_kept_until_it_is_sent_and_once() {
        let lagging = |number, seq| {
            let at = (id(number), Position { epoch: 1, seq });
            Lagging { resent_ago: None, is_purge: false, at }
        };
        let mut place = Place::default();
        place.judged([id(1), id(2)].into_iter(), vec![lagging(1, 1), lagging(2, 1)]);
        place.judged([id(2), id(3)].into_iter(), vec![lagging(2, 2)]);
        assert_eq!(place.lagging(), [lagging(1, 1), lagging(2, 2)]);
        place.judged([id(1)].into_iter(), Vec::new());
        assert_eq!(place.lagging(), [lagging(2, 2)], "one that is well by now is not sent again");
        place.resent();
        assert!(place.lagging().is_empty());
    }
}
