//! Places at which a program of the test's own dies or is held, as `runtime::failpoint` has them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{eventually, unique};

/// The variable in which a program is told of them.
pub(crate) const VARIABLE: &str = "SLIPWAY_FAILPOINTS";
/// How long a program may take to come to a place.
const PATIENCE: Duration = Duration::from_mins(3);

/// A place, what happens there, and the mark, or the folder of marks, by which a test knows that it did.
#[derive(Debug)]
pub struct Failpoint {
    order: String,
    mark: PathBuf,
}

impl Failpoint {
    /// The program dies when it passes the place about a subject for the first time. Marks lie in `folder`.
    pub fn abort(place: &str, subject: &str, folder: &Path) -> Self {
        Self::of(place, subject, "abort", folder)
    }

    /// The program dies when it passes the place about a subject for the `passing`th time.
    pub fn abort_at(place: &str, subject: &str, passing: u32, folder: &Path) -> Self {
        Self::of(place, subject, &format!("abort@{passing}"), folder)
    }

    /// The program dies when it passes the same place about the same subject for the `passing`th time: one that is started after
    /// the death here. Its mark lies in `folder`.
    #[must_use]
    pub fn again(&self, passing: u32, folder: &Path) -> Self {
        let (place, _) = self.order.split_once('=').unwrap_or((&self.order, ""));
        let mark = folder.join(unique("mark"));
        Self { order: format!("{place}=abort@{passing},{}", mark.display()), mark }
    }

    /// The program dies when it passes the place for the first time about each subject that begins like this: the program after it
    /// passes that subject and dies at another.
    ///
    /// # Errors
    /// When there is no room for the marks.
    pub fn abort_at_each(place: &str, beginning: &str, folder: &Path) -> std::io::Result<Self> {
        let place = Self::of(place, beginning, "each", folder);
        std::fs::create_dir_all(&place.mark)?;
        Ok(place)
    }

    /// Whoever passes the place about a subject for the first time is held there until released.
    pub fn hold(place: &str, subject: &str, folder: &Path) -> Self {
        Self::of(place, subject, "hold", folder)
    }

    fn of(place: &str, subject: &str, action: &str, folder: &Path) -> Self {
        let mark = folder.join(unique("mark"));
        Self { order: format!("{place}/{subject}={action},{}", mark.display()), mark }
    }

    /// Whether somebody came to the place. Of places at each of many subjects ask [`Self::times`].
    pub fn has_fired(&self) -> bool {
        self.mark.exists()
    }

    /// How often somebody came to the place and met what was to be there.
    pub fn times(&self) -> usize {
        std::fs::read_dir(&self.mark).map_or_else(|_| usize::from(self.mark.exists()), Iterator::count)
    }

    /// Waits until somebody is held.
    pub async fn fired(&self) {
        eventually(PATIENCE, &self.order, async || self.has_fired().then_some(())).await;
    }

    /// Lets go of whom it holds.
    ///
    /// # Errors
    /// When nobody was held.
    pub fn release(&self) -> std::io::Result<()> {
        std::fs::remove_file(&self.mark)
    }
}

/// What a program is told of places.
pub(crate) fn orders(places: &[&Failpoint]) -> String {
    let orders: Vec<&str> = places.iter().map(|place| place.order.as_str()).collect();
    orders.join(";")
}
