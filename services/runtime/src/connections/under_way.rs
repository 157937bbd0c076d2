//! Whether a connection has something under way that a stop must not cut off: a request whose head came whole, until the last
//! of its answer is taken.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};

/// What is under way on a connection. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct UnderWay(Arc<AtomicUsize>);

/// Something that is under way as long as this lives.
#[derive(Debug)]
pub(super) struct Mark(Arc<AtomicUsize>);

impl UnderWay {
    /// Something begins.
    pub(super) fn begin(&self) -> Mark {
        self.0.fetch_add(1, Ordering::Relaxed);
        Mark(Arc::clone(&self.0))
    }

    /// Whether anything is.
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer, which is under way until the connection has all of it.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    _mark: Mark,
}

impl Answer {
    /// The answer to what this mark was made for.
    pub(super) const fn new(body: Body, mark: Mark) -> Self {
        Self { body, _mark: mark }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
