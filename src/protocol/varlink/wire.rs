//! A varlink connection: messages in and out.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::listener::{Received, TimedStream};

/// A connection, with what has come on it.
pub(super) struct Wire {
    stream: TimedStream,
    received: Received,
    messages: Messages,
    /// What came while events were told, and has to wait.
    waiting: Option<Next>,
}

impl Wire {
    pub(super) const fn new(
        stream: TimedStream,
        received: Received,
        message_bytes_max: usize,
    ) -> Self {
        Self { stream, received, messages: Messages::new(message_bytes_max), waiting: None }
    }

    /// The next message. Loses nothing if it is dropped while waiting.
    pub(super) async fn next(&mut self) -> io::Result<Next> {
        if let Some(next) = self.waiting.take() {
            return Ok(next);
        }
        let next = self.messages.next(&mut self.stream).await?;
        if matches!(next, Next::Message(_)) {
            self.received.message(self.messages.has_begun());
        }
        Ok(next)
    }

    /// Returns when the peer has hung up. What it sends meanwhile waits; that it will send nothing
    /// more does not mean that it no longer reads.
    pub(super) async fn hung_up(&mut self) -> io::Result<()> {
        if self.waiting.is_none() {
            self.waiting = Some(self.messages.next(&mut self.stream).await?);
        }
        self.stream.closed().await
    }

    /// Until the next message the peer may be silent for as long as it likes.
    pub(super) fn may_be_silent(&self) {
        self.received.may_be_silent();
    }

    /// From now on, silence is limited again.
    pub(super) fn silence_ends(&self) {
        self.received.message(self.messages.has_begun());
    }

    /// Sends a message.
    pub(super) async fn write(&mut self, message: &Value) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(message)?;
        bytes.push(0);
        self.stream.write_all(&bytes).await
    }
}

/// Cuts a stream of bytes into messages.
struct Messages {
    buffer: Vec<u8>,
    /// Where the next message begins: what stands before it has been given.
    start: usize,
    /// Up to here no NUL follows the start.
    scanned: usize,
    message_bytes_max: usize,
}

pub(super) enum Next {
    /// A message, without its NUL.
    Message(Vec<u8>),
    /// The message that has begun is longer than allowed.
    TooLong,
    /// The peer will send nothing more.
    End,
}

impl Messages {
    const fn new(message_bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, scanned: 0, message_bytes_max }
    }

    /// Whether there are bytes of a further message.
    const fn has_begun(&self) -> bool {
        self.start < self.buffer.len()
    }

    /// The next message. Loses nothing if it is dropped while waiting.
    async fn next(&mut self, stream: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Next> {
        const READ_BYTES: usize = 8 * 1024;
        loop {
            if let Some(offset) = self.buffer[self.scanned..].iter().position(|byte| *byte == 0) {
                let end = self.scanned + offset;
                let message = self.buffer[self.start..end].to_vec();
                (self.start, self.scanned) = (end + 1, end + 1);
                let fits = message.len() <= self.message_bytes_max;
                return Ok(if fits { Next::Message(message) } else { Next::TooLong });
            }
            // what was given goes, once for all the messages that one read has brought
            self.buffer.drain(..self.start);
            self.start = 0;
            self.scanned = self.buffer.len();
            if self.scanned > self.message_bytes_max {
                return Ok(Next::TooLong);
            }
            if self.buffer.is_empty() {
                // a large message is no reason to hold as much for ever
                self.buffer.shrink_to(READ_BYTES);
            }
            self.buffer.reserve(READ_BYTES);
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(Next::End);
            }
        }
    }
}
