//! The way to a Redis: a stream that gives no more than it may.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use redis::ConnectionAddr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// What Redis can be reached by.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A stream from which only so many bytes are read; then it fails. What collects a reply has no
/// bound of its own.
pub struct Bounded {
    stream: Box<dyn Stream>,
    allowance: Allowance,
}

/// How many bytes may still be read.
#[derive(Clone, Default)]
pub struct Allowance(Arc<AtomicUsize>);

impl Allowance {
    /// From now on so many.
    pub fn set(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Whether all that was allowed has been read.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// Connects, in clear. Nothing may be read before it is allowed.
pub async fn connect(address: &ConnectionAddr) -> io::Result<(Bounded, Allowance)> {
    let stream: Box<dyn Stream> = match address {
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        ConnectionAddr::Unix(path) => Box::new(UnixStream::connect(path).await?),
        // no URL of ours leads there
        _ => return Err(io::Error::other("it can only be reached in clear")),
    };
    let allowance = Allowance::default();
    Ok((Bounded { stream, allowance: allowance.clone() }, allowance))
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let allowed = self.allowance.0.load(Ordering::Relaxed);
        if allowed == 0 {
            return Poll::Ready(Err(io::Error::other("the reply is too long")));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = buf.filled().len().saturating_sub(before);
        self.allowance.set(allowed.saturating_sub(read));
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
        let allowance = Allowance::default();
        allowance.set(10);
        let endless: Box<dyn Stream> =
            Box::new(tokio::io::join(tokio::io::repeat(b'x'), tokio::io::sink()));
        let mut bounded = Bounded { stream: endless, allowance: allowance.clone() };
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
        assert!(allowance.is_used_up());
        allowance.set(4);
        assert_eq!(bounded.read(&mut chunk).await.unwrap(), 4);
    }
}
