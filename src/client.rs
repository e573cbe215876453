//! A varlink client for programs that make a few calls and wait for each, or follow one.
//!
//! It tells apart what an administrator has to tell apart: nothing to connect to, nobody behind
//! it, no right to it, a service that refuses, and one that does not answer.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use zlink::connection::ReadConnection;
use zlink::connection::socket::{Socket, WriteHalf};
use zlink::tokio::unix::{Connection, Stream};

use crate::activation::{PathTooLong, check_length};

/// How long a client takes, from the attempt to connect to the last answer. A call waits 10 s at
/// most for a database that is locked, and starting the service comes before that.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait for a place in the queue of a socket that has none.
const BACKLOG_PAUSE: Duration = Duration::from_millis(20);

/// An error that the service answered with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ErrorReply {
    /// The error's name, with its interface.
    #[serde(rename = "error")]
    pub name: String,
    /// The error's fields.
    #[serde(default)]
    pub parameters: Value,
}

/// Why there is no answer, or no good one.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The path can't be that of a socket.
    #[error(transparent)]
    PathTooLong(#[from] PathTooLong),
    /// There is nothing at the path.
    #[error("{path}: there is no such socket", path = path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// Something else is at the path.
    #[error("{path}: this is no socket", path = path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The socket is there, but nobody listens.
    #[error("{path}: nobody listens on this socket", path = path.display())]
    Dead {
        /// The path.
        path: PathBuf,
    },
    /// The user may not use the socket, or not enter its directory.
    #[error("{path}: this user may not connect to the socket", path = path.display())]
    Forbidden {
        /// The path.
        path: PathBuf,
    },
    /// The system said no for another reason.
    #[error("{path}: {source}", path = path.display())]
    Connect {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No answer came within [`TIMEOUT`]. What was asked for may have happened.
    #[error("no answer within {seconds} seconds", seconds = .0.as_secs())]
    TimedOut(Duration),
    /// The connection ended before the answer. What was asked for may have happened.
    #[error("the connection was lost before the answer")]
    Lost,
    /// What came is no varlink reply. What was asked for may have happened.
    #[error("the answer can't be understood: {0}")]
    Broken(String),
    /// The service refused.
    #[error("{}", .0.name)]
    Refused(ErrorReply),
}

/// A connection to a varlink service.
pub struct Client {
    runtime: Runtime,
    replies: Replies,
    calls: <Stream as Socket>::WriteHalf,
    deadline: Deadline,
}

impl Client {
    /// Connects to the service at `path`. The time for the calls counts from here.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        Self::connect_within(path, TIMEOUT)
    }

    fn connect_within(path: &Path, timeout: Duration) -> Result<Self, ClientError> {
        check_length(path)?;
        let failed = |error| explain(path, error);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let deadline = Deadline { at: Instant::now() + timeout, timeout };
        let stream = runtime.block_on(deadline.limit(open(path)))?.map_err(failed)?;
        let stream = Stream::try_from(stream).map_err(not_delivered)?;
        let (replies, calls) = Connection::new(stream).split();
        Ok(Self { runtime, replies, calls: calls.into_write_half(), deadline })
    }

    /// Calls a method, given with its interface, and waits for its one reply: the object of the
    /// reply's fields.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Result<Value, ClientError> {
        self.begin(&MethodCall { method, parameters, more: false }).map(|(fields, _)| fields)
    }

    /// Calls a method that answers again and again, and hands the fields of each reply to `take`
    /// until that has had enough, or there are no more. The first reply has to come in time.
    pub fn follow<E: From<ClientError>>(
        &mut self,
        method: &str,
        parameters: &Value,
        mut take: impl FnMut(Value) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let mut next = self.begin(&MethodCall { method, parameters, more: true });
        loop {
            let (fields, continues) = next?;
            if take(fields)?.is_break() || !continues {
                return Ok(());
            }
            next = self.runtime.block_on(receive(&mut self.replies));
        }
    }

    /// Makes a call, and waits for its first reply as long as there is time.
    fn begin(&mut self, call: &MethodCall<'_>) -> Result<(Value, bool), ClientError> {
        let message = call.to_message()?;
        let answer = self.deadline.limit(async {
            // a connection that is gone is no reason not to look: a service may refuse a call
            // before it has taken all of it
            let _ = self.calls.write(&message, NO_DESCRIPTORS, None).await;
            receive(&mut self.replies).await
        });
        self.runtime.block_on(answer)?
    }
}

type Replies = ReadConnection<<Stream as Socket>::ReadHalf>;

/// The object of the next reply's fields, and whether there will be another one.
async fn receive(replies: &mut Replies) -> Result<(Value, bool), ClientError> {
    let (reply, _) = replies.receive_reply::<Value, ErrorReply>().await.map_err(not_delivered)?;
    let reply = reply.map_err(ClientError::Refused)?;
    let continues = reply.continues().unwrap_or(false);
    let fields = reply.into_parameters();
    Ok((fields.unwrap_or_else(|| Value::Object(Map::new())), continues))
}

/// Calls take no file descriptors along.
const NO_DESCRIPTORS: &[OwnedFd] = &[];

/// A call, as it goes over the wire.
#[derive(Debug, Serialize)]
struct MethodCall<'a> {
    method: &'a str,
    parameters: &'a Value,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

impl MethodCall<'_> {
    /// The message. zlink would write the call anew for every 256 bytes that it is long.
    fn to_message(&self) -> Result<Vec<u8>, ClientError> {
        let mut message =
            serde_json::to_vec(self).map_err(|error| ClientError::Broken(error.to_string()))?;
        message.push(0);
        Ok(message)
    }
}

/// The moment when the client's time is up.
#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    timeout: Duration,
}

impl Deadline {
    async fn limit<T>(self, work: impl Future<Output = T>) -> Result<T, ClientError> {
        tokio::time::timeout_at(self.at, work)
            .await
            .map_err(|_| ClientError::TimedOut(self.timeout))
    }
}

/// Connects. A socket whose queue is full refuses at once instead of letting its clients wait, so
/// that the waiting is done here.
async fn open(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(BACKLOG_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Why a connection could not be made.
fn explain(path: &Path, source: io::Error) -> ClientError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ClientError::NoSocket { path },
        io::ErrorKind::PermissionDenied => ClientError::Forbidden { path },
        io::ErrorKind::ConnectionRefused if is_socket(&path) => ClientError::Dead { path },
        io::ErrorKind::ConnectionRefused => ClientError::NotASocket { path },
        _ => ClientError::Connect { path, source },
    }
}

fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// What zlink reports instead of a reply or an error of ours. Errors that every varlink service
/// may give have a type of their own there; serialised, it is the error as it came.
fn not_delivered(error: zlink::Error) -> ClientError {
    match error {
        zlink::Error::VarlinkService(error) => serde_json::to_value(error)
            .and_then(serde_json::from_value)
            .map_or_else(|error| ClientError::Broken(error.to_string()), ClientError::Refused),
        zlink::Error::UnexpectedEof
        | zlink::Error::Io(_)
        | zlink::Error::SocketRead
        | zlink::Error::SocketWrite => ClientError::Lost,
        other => ClientError::Broken(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    /// Makes one call to a service that answers `answer` and hangs up, and gives the call as the
    /// service got it besides the outcome.
    fn exchange(parameters: &Value, answer: &[u8]) -> (Value, Result<Value, ClientError>) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        thread::scope(|scope| {
            let service = scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut call = Vec::new();
                while call.last() != Some(&0) {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    call.extend(byte);
                }
                stream.write_all(answer).unwrap();
                serde_json::from_slice(&call[..call.len() - 1]).unwrap()
            });
            let result =
                Client::connect(&path).and_then(|mut client| client.call("a.B", parameters));
            (service.join().unwrap(), result)
        })
    }

    fn outcome(answer: &Value) -> Result<Value, ClientError> {
        let mut bytes = serde_json::to_vec(answer).unwrap();
        bytes.push(0);
        exchange(&json!({}), &bytes).1
    }

    fn refusal(answer: &Value) -> ErrorReply {
        match outcome(answer) {
            Err(ClientError::Refused(reply)) => reply,
            other => panic!("{answer} came as {other:?}"),
        }
    }

    #[test]
    fn calls_and_replies_come_through_unchanged() {
        let parameters = json!({"labels": {"a \"b\"\\\n\u{7f}é🦀": "\u{1}", "": ""}, "n": 65535});
        let reply = json!({"z": 1, "a": [null, true, "\u{0}"], "é": {"x": -1}});
        let answer = format!("{}\0", json!({ "parameters": reply }));
        let (call, result) = exchange(&parameters, answer.as_bytes());
        assert_eq!(call, json!({"method": "a.B", "parameters": parameters}));
        let result = result.unwrap();
        assert_eq!(result, reply);
        assert_eq!(result.to_string(), reply.to_string(), "in the same order");
        for nothing in [json!({}), json!({"parameters": null}), json!({"parameters": {}})] {
            assert_eq!(outcome(&nothing).unwrap(), json!({}));
        }
    }

    #[test]
    fn large_replies_are_taken_whole() {
        let lines: Vec<_> =
            (0..40_000).map(|n| json!({"owner": format!("mail{n}"), "end": n})).collect();
        let large = json!({ "parameters": { "allocations": lines } });
        assert!(large.to_string().len() > 1024 * 1024);
        assert_eq!(outcome(&large).unwrap(), large["parameters"]);
    }

    #[test]
    fn error_replies_keep_their_parameters() {
        for (name, parameters) in [
            ("org.nethserver.Ports.DemandExceeded", json!({"requested": 9, "demand": 4})),
            ("org.nethserver.Ports.ShuttingDown", json!({})),
            ("org.varlink.service.InvalidParameter", json!({"parameter": "owner"})),
            ("org.varlink.service.MethodNotFound", json!({"method": "a.B"})),
            ("org.varlink.service.MethodNotImplemented", json!({"method": "a.B"})),
            ("org.varlink.service.InterfaceNotFound", json!({"interface": "a"})),
            ("org.varlink.service.Unheard", json!({"of": [1]})),
        ] {
            let reply = refusal(&json!({"error": name, "parameters": parameters}));
            assert_eq!(reply, ErrorReply { name: name.to_owned(), parameters });
        }
        for name in ["org.varlink.service.ExpectedMore", "org.nethserver.Ports.ShuttingDown"] {
            assert_eq!(refusal(&json!({ "error": name })).name, name);
            assert_eq!(refusal(&json!({"error": name, "parameters": {}})).name, name);
        }
    }

    #[test]
    fn what_is_no_reply_is_told_from_silence() {
        for broken in ["x\0", "[]\0", "\0", "{}{}\0", "{\"parameters\": 1]\0"] {
            let result = exchange(&json!({}), broken.as_bytes()).1;
            assert!(matches!(result, Err(ClientError::Broken(_))), "{broken:?}: {result:?}");
        }
        for cut in ["", "{\"parameters\": {}}", "{\"par"] {
            let result = exchange(&json!({}), cut.as_bytes()).1;
            assert!(matches!(result, Err(ClientError::Lost)), "{cut:?}: {result:?}");
        }
    }

    #[test]
    fn silence_ends_when_the_time_is_up() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("socket");
        let _never_accepts = UnixListener::bind(&path).unwrap();
        let timeout = Duration::from_millis(50);
        let mut client = Client::connect_within(&path, timeout).unwrap();
        let result = client.call("a.B", &json!({}));
        assert!(matches!(result, Err(ClientError::TimedOut(_))), "{result:?}");
    }

    #[test]
    fn a_full_queue_is_waited_for() {
        use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
        use nix::sys::socket::{bind, listen, socket};
        use std::os::fd::AsRawFd;

        let directory = TempDir::new().unwrap();
        let path = directory.path().join("socket");
        let kind = SockType::Stream;
        let fd = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(fd.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&fd, Backlog::new(0).unwrap()).unwrap();
        let listener = UnixListener::from(fd);
        let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let result = Client::connect_within(&path, Duration::from_millis(50)).map(|_| ());
        assert!(matches!(result, Err(ClientError::TimedOut(_))), "{result:?}");
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                listener.accept().unwrap();
            });
            assert!(Client::connect(&path).is_ok());
        });
    }

    #[test]
    fn each_failure_to_connect_has_its_name() {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        let fails = |path: &Path| Client::connect(path).map(|_| ()).unwrap_err();
        drop(UnixListener::bind(path("dead")).unwrap());
        fs::write(path("file"), "").unwrap();
        assert!(matches!(fails(&path("none")), ClientError::NoSocket { .. }));
        assert!(matches!(fails(&path("file/none")), ClientError::NoSocket { .. }));
        assert!(matches!(fails(&path("dead")), ClientError::Dead { .. }));
        assert!(matches!(fails(&path("file")), ClientError::NotASocket { .. }));
        assert!(matches!(fails(directory.path()), ClientError::NotASocket { .. }));
        let long = PathBuf::from("x".repeat(108));
        assert!(matches!(fails(&long), ClientError::PathTooLong(_)));
        let longest = PathBuf::from("x".repeat(107));
        assert!(matches!(fails(&longest), ClientError::NoSocket { .. }));
    }
}
