//! A stream that gives no more than it may.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What Redis can be reached by.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A stream from which only so many bytes are read; then it fails. What collects a reply has no
/// bound of its own.
pub struct Bounded {
    stream: Box<dyn Stream>,
    /// How many more.
    allowance: Arc<AtomicUsize>,
}

impl Bounded {
    pub fn new(stream: Box<dyn Stream>, allowance: Arc<AtomicUsize>) -> Self {
        Self { stream, allowance }
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let allowed = self.allowance.load(Ordering::Relaxed);
        if allowed == 0 {
            return Poll::Ready(Err(io::Error::other("the reply is too long")));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = buf.filled().len().saturating_sub(before);
        self.allowance.store(allowed.saturating_sub(read), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn it_gives_no_more_than_it_may() {
        let allowance = Arc::new(AtomicUsize::new(10));
        let endless: Box<dyn Stream> =
            Box::new(tokio::io::join(tokio::io::repeat(b'x'), tokio::io::sink()));
        let mut bounded = Bounded::new(endless, Arc::clone(&allowance));
        let mut chunk = [0; 4];
        let mut total = 0;
        let error = loop {
            match bounded.read(&mut chunk).await {
                Ok(read) => total += read,
                Err(error) => break error,
            }
        };
        // what one more read takes is no matter
        assert!((10..14).contains(&total), "{total}");
        assert!(error.to_string().contains("too long"));
        allowance.store(4, Ordering::Relaxed);
        assert_eq!(bounded.read(&mut chunk).await.unwrap(), 4);
    }
}
