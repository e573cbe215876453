//! Where listening sockets come from: inherited from the service manager, told apart by name, or
//! bound here.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, OFlag, fcntl, open};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockname, getsockopt,
    listen, socket, sockopt,
};
use nix::sys::stat::{Mode, fchmod, umask};

use crate::listener::Endpoint;
use crate::peer::Scope;

/// The longest path of a Unix socket, in bytes.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A socket to bind here: `NAME=PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// What it is for.
    pub endpoint: Endpoint,
    /// Where it is.
    pub path: PathBuf,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = text.split_once('=').ok_or("expected NAME=PATH")?;
        if path.is_empty() {
            return Err("the path is empty".to_owned());
        }
        let endpoint = name.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { endpoint, path: PathBuf::from(path) })
    }
}

/// The path is too long for a socket.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path}: the path of a Unix socket has at most {SOCKET_PATH_BYTES_MAX} bytes, this one has \
     {length}", path = path.display()
)]
pub struct PathTooLong {
    path: PathBuf,
    /// In bytes.
    length: usize,
}

/// Whether a socket can have that path. The system would only say that an argument is invalid.
pub fn check_length(path: &Path) -> Result<(), PathTooLong> {
    let length = path.as_os_str().len();
    if length > SOCKET_PATH_BYTES_MAX {
        return Err(PathTooLong { path: path.to_owned(), length });
    }
    Ok(())
}

/// Why a socket can't be had.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// The service manager's sockets can't be taken over.
    #[error("inherited sockets: {0}")]
    Inherited(String),
    /// The path is too long.
    #[error(transparent)]
    PathTooLong(#[from] PathTooLong),
    /// Somebody listens there.
    #[error("{path}: another process listens on this socket", path = path.display())]
    Live {
        /// The path.
        path: PathBuf,
    },
    /// Something else than a socket is there.
    #[error("{path} is in the way: it is no socket, and is left untouched", path = path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system said no.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A socket that listens, and what it is for.
pub struct Socket {
    /// What it is for.
    pub endpoint: Endpoint,
    /// The socket, non-blocking.
    pub listener: UnixListener,
}

/// The sockets that the service manager passed, if it passed any to this process. Those that
/// can't be used are closed, with a line in the journal each.
pub fn inherited() -> Result<Vec<Socket>, ActivationError> {
    let passed = systemd::daemon::listen_fds_with_names()
        .map_err(|error| ActivationError::Inherited(error.to_string()))?;
    let mut sockets = Vec::new();
    for (fd, name) in passed.iter() {
        if let Err(error) = is_open(fd) {
            return Err(ActivationError::Inherited(format!("descriptor {fd}: {error}")));
        }
        let fd = adopt(fd);
        match judge(&fd, name) {
            Ok(endpoint) => sockets.push(Socket { endpoint, listener: UnixListener::from(fd) }),
            Err(reason) => tracing::error!(fd = fd.as_raw_fd(), ?name, "socket closed: {reason}"),
        }
    }
    Ok(sockets)
}

/// Whether there is such a descriptor. Adopting one that is not open would close somebody else's.
#[expect(unsafe_code, reason = "a descriptor that was passed by number belongs to nobody yet")]
fn is_open(fd: i32) -> nix::Result<()> {
    // SAFETY: the descriptor is only looked at; if it is not open, the system says so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(borrowed, FcntlArg::F_GETFD).map(|_| ())
}

/// Takes over a descriptor that the service manager left open for this process.
#[expect(unsafe_code, reason = "a descriptor that was passed by number belongs to nobody yet")]
fn adopt(fd: i32) -> OwnedFd {
    // SAFETY: the service manager opened it for this process, and this is the only place that
    // takes it over, once, at the start.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// What an inherited descriptor is for, made ready for use, or why it can't be used.
fn judge(fd: &OwnedFd, name: &CStr) -> Result<Endpoint, String> {
    let refuse = |error: Errno| error.to_string();
    let name = name.to_str().map_err(|_| "its name is no text".to_owned())?;
    let endpoint = name.parse::<Endpoint>().map_err(|error| error.to_string())?;
    let raw = fd.as_raw_fd();
    let address: UnixAddr = getsockname(raw).map_err(|_| "it is no Unix socket".to_owned())?;
    if address.path().is_none() {
        // every network namespace reaches an abstract socket, and no file mode guards it
        return Err("it has no path in the file system".to_owned());
    }
    let kind = getsockopt(fd, sockopt::SockType).map_err(refuse)?;
    let listens = getsockopt(fd, sockopt::AcceptConn).map_err(refuse)?;
    if kind != SockType::Stream || !listens {
        return Err("it is no listening stream socket".to_owned());
    }
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(refuse)?;
    let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL).map_err(refuse)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map_err(refuse)?;
    Ok(endpoint)
}

/// A socket that was bound here, and whose file goes when it is dropped, if it is still this one.
pub struct BoundSocket {
    path: PathBuf,
    /// The device and the inode of the file; none if it could not be looked at.
    file: Option<(u64, u64)>,
}

impl BoundSocket {
    fn new(path: PathBuf) -> Self {
        let file = identity(&path);
        Self { path, file }
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if self.file.is_some() && identity(&self.path) == self.file {
            // it may be taken away at this moment, and there is nobody left to tell
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Binds a socket. The file has its final mode from the first moment. A socket that nobody
/// listens on is replaced; whatever else is there stays untouched.
///
/// For the start only, before anybody makes files: the process's umask is changed for a moment.
pub fn bind_socket(listen: &Listen) -> Result<(Socket, BoundSocket), ActivationError> {
    let Listen { endpoint, path } = listen;
    check_length(path)?;
    let io = |error: Errno| ActivationError::Io { path: path.clone(), source: error.into() };
    let _turn = turn(path).map_err(io)?;
    clear_the_way(path)?;
    let listener = bind_with_mode(path, socket_mode(endpoint.scope)).map_err(io)?;
    Ok((Socket { endpoint: *endpoint, listener }, BoundSocket::new(path.clone())))
}

/// Has daemons that start at the same time look at a path and take it one after the other: what one
/// finds dead, another may just have made.
fn turn(path: &Path) -> nix::Result<Flock<OwnedFd>> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
    Flock::lock(directory, FlockArg::LockExclusive).map_err(|(_, error)| error)
}

const fn socket_mode(scope: Scope) -> Mode {
    match scope {
        Scope::Module => Mode::from_bits_truncate(0o666),
        Scope::Admin => Mode::from_bits_truncate(0o600),
    }
}

/// Removes the socket file of a process that is gone.
fn clear_the_way(path: &Path) -> Result<(), ActivationError> {
    let io = |source| ActivationError::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ActivationError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match is_live(path) {
        Ok(true) => Err(ActivationError::Live { path: path.to_owned() }),
        Ok(false) => fs::remove_file(path).map_err(io),
        Err(error) => Err(io(error.into())),
    }
}

/// Whether anybody listens, asked without waiting: a full queue is somebody's, too.
fn is_live(path: &Path) -> nix::Result<bool> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match connect(fd.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) | Err(Errno::EAGAIN) => Ok(true),
        Err(Errno::ECONNREFUSED) => Ok(false),
        Err(error) => Err(error),
    }
}

fn bind_with_mode(path: &Path, mode: Mode) -> nix::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // the file gets the mode of the unbound socket, less the umask
    fchmod(&fd, mode)?;
    let address = UnixAddr::new(path)?;
    let restore = umask(Mode::empty());
    let bound = bind(fd.as_raw_fd(), &address);
    umask(restore);
    bound?;
    listen(&fd, Backlog::MAXCONN)?;
    Ok(UnixListener::from(fd))
}
