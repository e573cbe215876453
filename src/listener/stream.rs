//! A connection that does not wait for ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Instant, Sleep};

use crate::config::Limits;

/// A connection on which reading and writing fail as timed out when the peer
/// - is silent between messages for longer than `idle_connection`, unless it may be,
/// - takes longer than `unfinished_message` from a message's first byte to its last, or
/// - takes nothing of a reply for `unread_reply`.
pub struct TimedStream {
    inner: UnixStream,
    limits: Limits,
    received: Received,
    is_receiving: bool,
    may_be_silent: bool,
    read_timer: Pin<Box<Sleep>>,
    write_timer: Option<Pin<Box<Sleep>>>,
}

/// How long a connection that the peer has closed may be kept before that is noticed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How a front end says that a message is complete; the connection itself can't know.
#[derive(Clone, Default)]
pub struct Received(Arc<AtomicU8>);

/// Nothing new.
const NOTHING: u8 = 0;
/// A message is complete.
const COMPLETE: u8 = 1;
/// A message is complete, and another has begun with it.
const BEGUN: u8 = 2;
/// The peer need not send anything.
const SILENT: u8 = 3;

impl Received {
    /// A message is complete: from now on the connection is between messages, or in the next one
    /// if that `has_begun`.
    pub fn message(&self, has_begun: bool) {
        self.0.store(if has_begun { BEGUN } else { COMPLETE }, Ordering::Release);
    }

    /// The peer is being told things, and may be silent for as long as it likes before its next
    /// message.
    pub fn may_be_silent(&self) {
        self.0.store(SILENT, Ordering::Release);
    }
}

impl TimedStream {
    /// Wraps a connection that has just been accepted.
    pub fn new(inner: UnixStream, limits: Limits) -> (Self, Received) {
        let received = Received::default();
        let read_timer = Box::pin(tokio::time::sleep(limits.idle_connection));
        let stream = Self {
            inner,
            limits,
            received: received.clone(),
            is_receiving: false,
            may_be_silent: false,
            read_timer,
            write_timer: None,
        };
        (stream, received)
    }

    /// Returns when the peer has closed the connection, not only its sending side. There is no
    /// notice of that alone, so that it is looked for now and then.
    pub async fn closed(&self) -> io::Result<()> {
        while !self.inner.ready(Interest::WRITABLE).await?.is_write_closed() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    fn allow_read(&mut self, time: Duration) {
        self.read_timer.as_mut().reset(Instant::now() + time);
    }

    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut UnixStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = write(Pin::new(&mut self.inner), cx) {
            self.write_timer = None;
            return Poll::Ready(result);
        }
        let unread_reply = self.limits.unread_reply;
        let timer =
            self.write_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(unread_reply)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.received.0.swap(NOTHING, Ordering::Acquire) {
            NOTHING => {}
            news => {
                self.is_receiving = news == BEGUN;
                self.may_be_silent = news == SILENT;
                let Limits { unfinished_message, idle_connection, .. } = self.limits;
                self.allow_read(if news == BEGUN { unfinished_message } else { idle_connection });
            }
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.inner).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                if !self.is_receiving {
                    self.is_receiving = true;
                    self.may_be_silent = false;
                    let unfinished = self.limits.unfinished_message;
                    self.allow_read(unfinished);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Pending if self.may_be_silent => Poll::Pending,
            Poll::Pending => {
                ready!(self.read_timer.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            ready @ Poll::Ready(_) => ready,
        }
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |inner, cx| inner.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |inner, cx| inner.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
