//! A connection that gives up on a peer who takes nothing of what is written for too long. Reading is not bounded here: how long
//! nothing may come depends on what is waited for.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::under_way::{Mark, UnderWay};

/// A connection with patience.
#[derive(Debug)]
pub(super) struct Patient {
    stream: TcpStream,
    silence: Duration,
    under_way: UnderWay,
    /// While the peer takes nothing.
    waits: Option<Waits>,
}

/// Something is to be written that the peer does not take.
#[derive(Debug)]
struct Waits {
    /// The end of patience.
    end: Pin<Box<Sleep>>,
    _mark: Mark,
}

impl Patient {
    /// A connection whose peer may take nothing for so long; what it is to take counts among what is under way.
    pub(super) const fn new(stream: TcpStream, silence: Duration, under_way: UnderWay) -> Self {
        Self { stream, silence, under_way, waits: None }
    }

    /// What a write came to, which is over if it waits for too long.
    fn within<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let (silence, under_way) = (self.silence, &self.under_way);
        let waits = self.waits.get_or_insert_with(|| Waits {
            end: Box::pin(tokio::time::sleep(silence)),
            _mark: under_way.begin(),
        });
        waits.end.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, buffer);
        this.within(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, buffers);
        this.within(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
