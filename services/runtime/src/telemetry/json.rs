//! One JSON object a line, with everything a query filters by at its top level.
//!
//! `{"timestamp":…,"level":…,"service":…,"target":…,"message":…,"trace_id":…,"db.id":…,"kafka.offset":…}`: the fields
//! of the event and of all spans around it, flat, the innermost value of a name winning. It never nests and never drops
//! a field: one that is called like a key of ours appears as `field.<name>`.

use std::error::Error;
use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

use opentelemetry::trace::TraceContextExt;
use serde_json::{Map, Value};
use tracing::dispatcher::WeakDispatch;
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Subscriber, span};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use super::chain;
use crate::Service;

/// Keys whose meaning is the same in every line.
const OURS: [&str; 6] = ["timestamp", "level", "service", "target", "trace_id", "span"];

/// Writes events as JSON lines.
pub(super) struct JsonLayer<W> {
    service: Service,
    writer: W,
    /// The subscriber that this layer is part of; through it the trace id of a span is asked for.
    dispatch: OnceLock<WeakDispatch>,
}

impl<W> JsonLayer<W> {
    pub(super) const fn new(service: Service, writer: W) -> Self {
        Self { service, writer, dispatch: OnceLock::new() }
    }

    fn trace_id(&self, id: &span::Id) -> Option<String> {
        let dispatch = self.dispatch.get()?.upgrade()?;
        let context = tracing_opentelemetry::get_otel_context(id, &dispatch)?;
        let span_context = context.span().span_context().clone();
        span_context.is_valid().then(|| span_context.trace_id().to_string())
    }
}

/// Fields of a span, kept beside it until it closes.
struct SpanFields(Map<String, Value>);

impl<S, W> Layer<S> for JsonLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        // Only the first one counts: a layer is part of one subscriber.
        let _ = self.dispatch.set(dispatch.downgrade());
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut fields = Map::new();
        attributes.record(&mut Fields(&mut fields));
        if let Some(span) = context.span(id) {
            span.extensions_mut().replace(SpanFields(fields));
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(SpanFields(fields)) = span.extensions_mut().get_mut::<SpanFields>()
        {
            values.record(&mut Fields(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = context.event_scope(event).map(span_fields).unwrap_or_default();
        event.record(&mut Fields(&mut fields));
        let mut line = Line::new();
        line.add("timestamp", &Value::from(format!("{:.6}", jiff::Timestamp::now())));
        line.add("level", &Value::from(event.metadata().level().as_str()));
        line.add("service", &Value::from(self.service.name));
        line.add("target", &target(event, &mut fields));
        line.add("message", &fields.remove("message").unwrap_or_else(|| Value::from("")));
        if let Some(trace_id) =
            context.event_scope(event).and_then(|mut scope| scope.find_map(|span| self.trace_id(&span.id())))
        {
            line.add("trace_id", &Value::from(trace_id));
        }
        if let Some(span) = context.event_span(event) {
            line.add("span", &Value::from(span.name()));
        }
        for (name, value) in &fields {
            line.add_field(name, value);
        }
        // One write, so that lines of threads (and processes) do not mix. If it fails there is nowhere to say so.
        let _ = self.writer.make_writer_for(event.metadata()).write_all(&line.end());
    }
}

fn span_fields<'a, S: Subscriber + LookupSpan<'a>>(scope: Scope<'a, S>) -> Map<String, Value> {
    let mut all = Map::new();
    for span in scope.from_root() {
        if let Some(SpanFields(fields)) = span.extensions().get::<SpanFields>() {
            all.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
    }
    all
}

/// The target of an event; those of the `log` crate carry theirs (and their place in the source) as fields.
fn target(event: &Event<'_>, fields: &mut Map<String, Value>) -> Value {
    if event.metadata().target() == "log" {
        for place in ["log.module_path", "log.file", "log.line"] {
            fields.remove(place);
        }
        if let Some(target) = fields.remove("log.target") {
            return target;
        }
    }
    Value::from(event.metadata().target())
}

/// A line in the making: keys in the order they are added.
struct Line(Vec<u8>);

impl Line {
    fn new() -> Self {
        Self(Vec::with_capacity(512))
    }

    fn add(&mut self, key: &str, value: &Value) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        let pair = format!("{}:{value}", Value::from(key));
        self.0.extend_from_slice(pair.as_bytes());
    }

    fn add_field(&mut self, name: &str, value: &Value) {
        if OURS.contains(&name) { self.add(&format!("field.{name}"), value) } else { self.add(name, value) }
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"}\n");
        self.0
    }
}

/// Takes fields over with the type they have, anything else as text.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        let name = field.name();
        self.0.insert(name.strip_prefix("r#").unwrap_or(name).to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no NaN: such a value stays readable as text.
        match serde_json::Number::from_f64(value) {
            Some(number) => self.insert(field, number),
            None => self.insert(field, value.to_string()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.insert(field, chain(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}"));
    }
}
