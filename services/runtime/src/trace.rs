//! The trace of a request on its long way: HTTP header, outbox row, Kafka header, annotation of a custom resource.
//!
//! [`TraceContext`] is the W3C `traceparent` as a value. A trace id exists for every span even when nothing is exported,
//! so the logs of all programs can be joined by it. `tracestate` is not carried: nothing of ours reads it.

use std::fmt;
use std::str::FromStr;

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Name of the HTTP header, the Kafka header and the outbox column.
pub const TRACEPARENT: &str = "traceparent";

/// Length of a version 00 header: `00-<32 hex>-<16 hex>-<2 hex>`.
const LENGTH: usize = 55;

/// Where in which trace something happens: the content of a `traceparent` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
}

/// The text is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Too short, too long, or the dashes are elsewhere.
    #[error("traceparent has not the form 00-<trace id>-<span id>-<flags>")]
    Shape,
    /// A part has characters other than lower-case hexadecimal digits.
    #[error("traceparent has a part that is not lower-case hexadecimal")]
    Digits,
    /// Version ff, which the standard forbids.
    #[error("traceparent has the forbidden version ff")]
    Version,
    /// A trace id or span id of zeros, which stands for "none".
    #[error("traceparent has an id of zeros")]
    Zero,
}

impl TraceContext {
    /// Reads a header. Later versions are read as far as version 00 goes, as the standard asks.
    pub fn parse(header: &str) -> Result<Self, ParseError> {
        let bytes = header.as_bytes();
        let (head, rest) = bytes.split_at_checked(LENGTH).ok_or(ParseError::Shape)?;
        if [2, 35, 52].iter().any(|&at| head[at] != b'-') {
            return Err(ParseError::Shape);
        }
        let [version] = decode(&head[0..2])?;
        match (version, rest.first()) {
            (0xff, _) => return Err(ParseError::Version),
            (_, None) | (1.., Some(b'-')) => {}
            (_, Some(_)) => return Err(ParseError::Shape),
        }
        let context = Self {
            trace_id: decode(&head[3..35])?,
            span_id: decode(&head[36..52])?,
            flags: decode::<1>(&head[53..])?[0],
        };
        if context.trace_id == [0; 16] || context.span_id == [0; 8] {
            return Err(ParseError::Zero);
        }
        Ok(context)
    }

    /// Writes the header, always as version 00.
    pub fn to_header(&self) -> String {
        self.to_string()
    }

    /// Starts a trace of its own, for work that nobody asked for.
    pub fn new_root() -> Self {
        Self {
            trace_id: RandomIdGenerator::default().new_trace_id().to_bytes(),
            span_id: new_span_id(),
            flags: TraceFlags::SAMPLED.to_u8(),
        }
    }

    /// The same trace with a new span below this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span_id: new_span_id(), ..*self }
    }

    /// The context of the current tracing span, or of the nearest one around it that belongs to a trace.
    pub fn current() -> Option<Self> {
        // A span too detailed for traces has none of its own; what surrounds it is still the active context.
        Self::of(&Span::current()).or_else(|| Self::of_context(&opentelemetry::Context::current()))
    }

    /// The context of a tracing span. From now on the span's parent is settled.
    pub fn of(span: &Span) -> Option<Self> {
        Self::of_context(&span.context())
    }

    fn of_context(context: &opentelemetry::Context) -> Option<Self> {
        let span = context.span();
        let span_context = span.span_context();
        span_context.is_valid().then(|| Self {
            trace_id: span_context.trace_id().to_bytes(),
            span_id: span_context.span_id().to_bytes(),
            flags: span_context.trace_flags().to_u8(),
        })
    }

    /// Makes `span` a child of this context. Only a span that was not yet entered can be moved; answers whether it was.
    pub fn adopt(&self, span: &Span) -> bool {
        let remote = SpanContext::new(
            TraceId::from_bytes(self.trace_id),
            SpanId::from_bytes(self.span_id),
            TraceFlags::new(self.flags),
            true,
            TraceState::NONE,
        );
        span.set_parent(opentelemetry::Context::new().with_remote_span_context(remote)).is_ok()
    }

    /// The trace id in hexadecimal, as logs show it.
    pub fn trace_id(&self) -> String {
        TraceId::from_bytes(self.trace_id).to_string()
    }

    /// The span id in hexadecimal.
    pub fn span_id(&self) -> String {
        SpanId::from_bytes(self.span_id).to_string()
    }

    /// Whether whoever started the trace wants it exported.
    pub const fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id(), self.span_id(), self.flags)
    }
}

impl FromStr for TraceContext {
    type Err = ParseError;

    fn from_str(header: &str) -> Result<Self, Self::Err> {
        Self::parse(header)
    }
}

/// Makes `span` continue the trace of a `traceparent` that came from outside; call it before the span is entered.
///
/// Whatever cannot be read is as good as absent: the span then starts a trace of its own. Answers whether it continues
/// the given one.
pub fn set_parent(span: &Span, traceparent: Option<&str>) -> bool {
    traceparent.and_then(|header| TraceContext::parse(header).ok()).is_some_and(|context| context.adopt(span))
}

/// The `traceparent` to send on from the current span, if it belongs to a trace.
pub fn current_traceparent() -> Option<String> {
    TraceContext::current().map(|context| context.to_header())
}

fn new_span_id() -> [u8; 8] {
    RandomIdGenerator::default().new_span_id().to_bytes()
}

fn decode<const N: usize>(digits: &[u8]) -> Result<[u8; N], ParseError> {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Ok(bytes)
}

const fn nibble(digit: u8) -> Result<u8, ParseError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(ParseError::Digits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::test_support;
    use proptest::prelude::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn headers_are_read_or_refused() {
        let table = [
            (HEADER, Ok(())),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", Ok(())),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Ok(())),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes", Ok(())),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x", Err(ParseError::Shape)),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", Err(ParseError::Shape)),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Err(ParseError::Version)),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", Err(ParseError::Digits)),
            ("00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01", Err(ParseError::Digits)),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", Err(ParseError::Zero)),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", Err(ParseError::Zero)),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", Err(ParseError::Shape)),
            ("00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01", Err(ParseError::Shape)),
            ("", Err(ParseError::Shape)),
        ];
        for (header, expected) in table {
            assert_eq!(TraceContext::parse(header).map(drop), expected, "{header}");
        }
    }

    #[test]
    fn parts_are_told() {
        let context: TraceContext = HEADER.parse().unwrap();
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span_id(), "00f067aa0ba902b7");
        assert!(context.is_sampled());
        assert_eq!(context.to_header(), HEADER);
    }

    #[test]
    fn a_child_stays_in_the_trace() {
        let root = TraceContext::new_root();
        let child = root.child();
        assert_eq!(root.trace_id(), child.trace_id());
        assert_ne!(root.span_id(), child.span_id());
        assert_ne!(root.trace_id(), TraceContext::new_root().trace_id());
        assert!(child.is_sampled());
    }

    #[test]
    fn a_span_continues_the_trace_it_is_given() {
        test_support::with_traces(|| {
            let span = tracing::info_span!("message");
            assert!(set_parent(&span, Some(HEADER)));
            let inner =
                span.in_scope(|| tracing::info_span!("step").in_scope(|| current_traceparent().unwrap()));
            let inner = TraceContext::parse(&inner).unwrap();
            assert_eq!(inner.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
            assert_ne!(inner.span_id(), "00f067aa0ba902b7");
            assert!(
                inner.is_sampled(),
                "the wish to export is passed on even by a program that exports nothing"
            );
        });
    }

    #[test]
    fn a_span_without_a_parent_starts_a_trace() {
        test_support::with_traces(|| {
            let span = tracing::info_span!("request");
            assert!(!set_parent(&span, Some("rubbish")));
            assert!(!set_parent(&span, None));
            let first = TraceContext::of(&span).unwrap();
            let second = TraceContext::of(&tracing::info_span!("request")).unwrap();
            assert_ne!(first.trace_id(), second.trace_id());
        });
    }

    #[test]
    fn an_entered_span_cannot_be_moved() {
        test_support::with_traces(|| {
            let span = tracing::info_span!("late").entered();
            assert!(!set_parent(&span, Some(HEADER)));
        });
    }

    #[test]
    fn a_span_too_detailed_for_traces_does_not_hide_the_one_around_it() {
        test_support::logged("debug", || {
            let outer = tracing::info_span!("request").entered();
            let expected = TraceContext::of(&outer).unwrap();
            let _detail = tracing::debug_span!("detail").entered();
            assert_eq!(TraceContext::current(), Some(expected));
        });
    }

    #[test]
    fn without_a_span_there_is_no_context() {
        test_support::with_traces(|| assert_eq!(TraceContext::current(), None));
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) {
            prop_assume!(trace_id != [0; 16] && span_id != [0; 8]);
            let context = TraceContext { trace_id, span_id, flags };
            let header = context.to_header();
            prop_assert_eq!(header.len(), LENGTH);
            prop_assert_eq!(TraceContext::parse(&header), Ok(context));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = TraceContext::parse(&text);
        }

        #[test]
        fn what_is_read_is_written_again(text in "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}") {
            if let Ok(context) = TraceContext::parse(&text) {
                prop_assert_eq!(&context.to_header()[2..], &text[2..]);
            }
        }
    }
}
