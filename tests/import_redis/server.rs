//! A real Redis with the users that NS8 has, and stand-ins for one that misbehaves.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;

use crate::support::{directory, wait_for};

/// Users: whoever runs a node reads without a password, a node's agent writes its own keys, a
/// module its own, and the tests everything.
const USERS: &str = "\
user default on nopass resetchannels ~cluster/* ~node/* ~module/* nocommands +@read +@connection +psync +replconf +ping
user node/1 on >n1-s3cret resetchannels ~node/1/* %R~cluster/* %R~module/* nocommands +@read +@write +@connection
user module/mail1 on >m1-s3cret resetchannels ~module/mail1/* nocommands +@read +@write +@connection
user limited on >l-s3cret resetchannels ~cluster/* ~node/* ~module/* nocommands +get +hgetall +auth
user all on >a-s3cret allchannels ~* +@all
";

pub struct Server {
    child: Child,
    directory: TempDir,
    pub port: u16,
}

impl Server {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// One that gets its data from another.
    pub fn replica_of(leader: &Self) -> Self {
        let port = leader.port.to_string();
        let options = ["--replicaof", "127.0.0.1", &port, "--masteruser", "all"];
        let replica = Self::with(&[&options[..], &["--masterauth", "a-s3cret"]].concat());
        wait_for("the replica", || {
            let info: String = replica.ask(&["INFO", "replication"]);
            info.contains("master_link_status:up").then_some(())
        });
        replica
    }

    fn with(options: &[&str]) -> Self {
        let directory = directory();
        let path = |name: &str| directory.path().join(name).display().to_string();
        fs::write(path("users.acl"), USERS).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--unixsocket", &path("redis.sock"), "--aclfile", &path("users.acl")]);
        command.args(["--dir", &path(""), "--save", "", "--repl-diskless-sync-delay", "0"]);
        command.args(options).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect("the Debian package redis-server is installed");
        let server = Self { child, directory, port };
        wait_for("Redis", || server.connect().ok());
        server
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// For whoever is on the node.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("{}?user={user}&pass={password}", self.url())
    }

    fn connect(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.url_as("all", "a-s3cret"))?.get_connection()
    }

    /// Sends a command as a user who may do everything.
    pub fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query(&mut self.connect().unwrap()).unwrap()
    }

    /// Sends commands, one a line.
    pub fn run(&self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let _: redis::Value = self.ask(&line.split(' ').collect::<Vec<_>>());
        }
    }

    pub fn has(&self, key: &str) -> bool {
        self.ask(&["EXISTS", key])
    }

    /// A number that grows with every change.
    pub fn changes(&self) -> u64 {
        let info: String = self.ask(&["INFO", "persistence"]);
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        line.unwrap().parse().unwrap()
    }

    /// The commands that were called so far, by anybody.
    pub fn commands(&self) -> Vec<String> {
        let info: String = self.ask(&["INFO", "commandstats"]);
        let name = |line: &str| Some(line.strip_prefix("cmdstat_")?.split(':').next()?.to_owned());
        info.lines().filter_map(name).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Something that answers on a Unix socket as it is told to.
pub struct Fake {
    directory: TempDir,
    /// The commands that came.
    pub heard: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Fake {
    /// `answer` gets each command and where to write what comes back; `false` hangs up.
    pub fn start(
        answer: impl Fn(&[String], &mut UnixStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let fake = Self { directory: directory(), heard: Arc::default() };
        let listener = UnixListener::bind(fake.directory.path().join("socket")).unwrap();
        let (answer, heard) = (Arc::new(answer), Arc::clone(&fake.heard));
        // ends with the test program
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, heard) = (Arc::clone(&answer), Arc::clone(&heard));
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let mut commands = BufReader::new(stream.try_clone().unwrap());
                    while let Some(command) = next_command(&mut commands) {
                        heard.lock().unwrap().push(command.clone());
                        if !answer(&command, &mut stream) {
                            break;
                        }
                    }
                });
            }
        });
        fake
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.directory.path().join("socket").display())
    }
}

fn next_command(commands: &mut impl BufRead) -> Option<Vec<String>> {
    let mut number = |sign: char| -> Option<usize> {
        let mut line = String::new();
        commands.read_line(&mut line).ok()?;
        line.strip_prefix(sign)?.trim_end().parse().ok()
    };
    let count = number('*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut line = String::new();
        commands.read_line(&mut line).ok()?;
        let length: usize = line.strip_prefix('$')?.trim_end().parse().ok()?;
        let mut word = vec![0; length + 2];
        commands.read_exact(&mut word).ok()?;
        words.push(String::from_utf8(word[..length].to_vec()).unwrap());
    }
    Some(words)
}

/// What a Redis with one module, mail1, and no counters says.
pub fn sound_answer(command: &[String], stream: &mut UnixStream) -> bool {
    let answer: &[u8] = match command[0].as_str() {
        "AUTH" | "SELECT" => b"+OK\r\n",
        "HGETALL" => b"*2\r\n$5\r\nmail1\r\n$1\r\n1\r\n",
        "HMGET" => b"*4\r\n$-1\r\n$5\r\n20000\r\n$-1\r\n$-1\r\n",
        "GET" => b"$-1\r\n",
        other => panic!("{other}"),
    };
    // whoever hangs up is heard of when the next command is read
    let _ = stream.write_all(answer);
    true
}
