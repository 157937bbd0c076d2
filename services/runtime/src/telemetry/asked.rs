//! A filter of one layer that is asked anew about every line, and not at all about lines that nobody may see.

use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, span};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Filter};

use super::SHOWS_ANSWERS;

/// Passes on what the filter inside says, but never lets "always" be remembered for a line of code.
///
/// Where layers have filters of their own, the answer to each question is kept for the thread until the line comes that it
/// was asked for. Libraries also ask whether they should say something and then say nothing (`enabled!`, `log_enabled!`;
/// rdkafka does for every client, sqlx for every statement). The answer, usually "no", is still there when the next
/// line comes; a line that needs no question is then taken for the one that was asked about, and is lost.
#[derive(Debug)]
pub(super) struct Asked<F>(pub(super) F);

impl<S: Subscriber, F: Filter<S>> Filter<S> for Asked<F> {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        metadata.target() != SHOWS_ANSWERS && self.0.enabled(metadata, context)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target() == SHOWS_ANSWERS {
            return Interest::never();
        }
        let interest = self.0.callsite_enabled(metadata);
        if interest.is_always() { Interest::sometimes() } else { interest }
    }

    fn event_enabled(&self, event: &Event<'_>, context: &Context<'_, S>) -> bool {
        self.0.event_enabled(event, context)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.0.max_level_hint()
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        self.0.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        self.0.on_record(id, values, context);
    }

    fn on_enter(&self, id: &span::Id, context: Context<'_, S>) {
        self.0.on_enter(id, context);
    }

    fn on_exit(&self, id: &span::Id, context: Context<'_, S>) {
        self.0.on_exit(id, context);
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        self.0.on_close(id, context);
    }
}
