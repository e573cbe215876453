//! Real Redis servers with the cluster's keys, and a false one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::Value;
use tempfile::TempDir;

use super::{directory, wait_for};

/// As on a node: anybody may read what is not secret, a module and the node's agent may write their own
/// keys and no others, the leader everything.
const ACCESS: &str = "\
user default on nopass resetchannels ~cluster/* ~node/* ~module/* -@all +@read +@connection +info
user leader on >leader-secret ~* &* +@all
user node/1 on >n1-secret resetchannels ~node/1/* %R~cluster/* %R~module/* -@all +@read +@write +@connection
user module/m1 on >m1-secret resetchannels ~module/m1/* +@all -@dangerous
masteruser leader
masterauth leader-secret
";

/// A redis-server in a directory of its own.
pub struct Redis {
    child: Child,
    directory: TempDir,
    pub port: u16,
    /// The port of its leader, if it is a replica.
    leader: Option<u16>,
    settings: &'static str,
}

impl Redis {
    pub fn start() -> Self {
        Self::with_settings("")
    }

    /// Starts with further lines of configuration.
    pub fn with_settings(settings: &'static str) -> Self {
        Self::start_in(directory(), free_port(), None, settings)
    }

    /// Starts a replica, and waits until it has what its leader has.
    pub fn replica_of(leader: &Self, settings: &'static str) -> Self {
        let replica = Self::start_in(directory(), free_port(), Some(leader.port), settings);
        replica.wait_for_leader();
        replica
    }

    fn start_in(
        directory: TempDir,
        port: u16,
        leader: Option<u16>,
        settings: &'static str,
    ) -> Self {
        let replication =
            leader.map(|port| format!("replicaof 127.0.0.1 {port}\n")).unwrap_or_default();
        let path = directory.path().display();
        let config = format!(
            "bind 127.0.0.1\nport {port}\nunixsocket {path}/redis.sock\nunixsocketperm 777\n\
             dir {path}\nlogfile {path}/redis.log\nsave \"\"\nrepl-diskless-sync-delay 0\n\
             {ACCESS}{replication}{settings}\n"
        );
        fs::write(directory.path().join("redis.conf"), config).unwrap();
        let child = spawn(directory.path());
        let server = Self { child, directory, port, leader, settings };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&self) {
        wait_for("redis-server", || {
            let mut connection = self.connection_as("leader", "leader-secret")?;
            redis::cmd("PING").query::<String>(&mut connection).ok()
        });
    }

    /// Waits until a replica is in touch with its leader.
    pub fn wait_for_leader(&self) {
        wait_for("replication", || {
            let state: String = self.ask(&["INFO", "replication"]);
            state.contains("master_link_status:up").then_some(())
        });
    }

    fn connection_as(&self, user: &str, password: &str) -> Option<redis::Connection> {
        redis::Client::open(self.url_as(user, password)).unwrap().get_connection().ok()
    }

    /// What the leader may do; the words of one command.
    pub fn run(&self, words: &[&str]) -> Value {
        self.ask(words)
    }

    /// As `run`, with a reply of that type.
    pub fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        self.run_as("leader", "leader-secret", words).unwrap()
    }

    /// Runs commands, one a line.
    pub fn run_lines(&self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.run(&line.split(' ').collect::<Vec<_>>());
        }
    }

    pub fn run_as<T: redis::FromRedisValue>(
        &self,
        user: &str,
        password: &str,
        words: &[&str],
    ) -> redis::RedisResult<T> {
        let mut connection = self.connection_as(user, password).unwrap();
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query(&mut connection)
    }

    /// Makes a module known, as the leader does when it is installed.
    pub fn module(&self, id: &str, node: &str, roles: &[&str], tcp: &str, udp: &str) {
        self.run(&["DEL", &authorizations(id)]);
        for role in roles {
            self.run(&["SADD", &authorizations(id), role]);
        }
        self.run(&["HSET", "cluster/tcp_ports_demand", id, tcp]);
        self.run(&["HSET", "cluster/udp_ports_demand", id, udp]);
        self.run(&["HSET", "cluster/module_node", id, node]);
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

    /// How often each command was carried out so far, for anybody.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let info: String = self.ask(&["INFO", "commandstats"]);
        let count = |line: &str| {
            let (name, count) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), count.split(',').next()?.parse().ok()?))
        };
        info.lines().filter_map(count).collect()
    }

    /// How often a command was carried out.
    pub fn count(&self, command: &str) -> u64 {
        self.counts().get(command).copied().unwrap_or(0)
    }

    /// Where it is, for whoever is on the node.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("{}?user={user}&pass={password}", self.url())
    }

    /// A daemon's configuration for this server.
    pub fn config(&self) -> String {
        config(&format!("redis://127.0.0.1:{}", self.port))
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// Stops it from doing anything, or lets it go on.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, with nothing in it, on the same port.
    pub fn restart(&mut self) {
        self.child = spawn(self.directory.path());
        self.wait_until_ready();
        if self.leader.is_some() && !self.settings.contains("serve-stale") {
            self.wait_for_leader();
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = fs::read_to_string(self.directory.path().join("redis.log"));
            eprintln!("--- the log of redis-server:\n{}", log.unwrap_or_default());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(directory: &Path) -> Child {
    Command::new("redis-server")
        .arg(directory.join("redis.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed")
}

pub fn authorizations(id: &str) -> String {
    format!("cluster/authorizations/module/{id}")
}

/// A daemon's configuration for a server at that address, on node 1.
pub fn config(url: &str) -> String {
    // the tests' own servers are in the pool
    let pool = "[pool]\nskip_bound = false\n";
    format!("{pool}[registry]\nsource = \"redis\"\nnode_id = 1\nredis_url = \"{url}\"\n")
}

/// A port that nobody has just now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What a false server does with a command, given in words: it writes what comes back. `false` hangs up.
pub trait Manner: Fn(&[String], &mut TcpStream) -> bool + Send + Sync + 'static {}
impl<F: Fn(&[String], &mut TcpStream) -> bool + Send + Sync + 'static> Manner for F {}

/// Always the same bytes.
pub fn says(bytes: &'static [u8]) -> impl Manner {
    move |_, stream| stream.write_all(bytes).is_ok()
}

/// The bytes once, and then it hangs up.
pub fn hangs_up_after(bytes: &'static [u8]) -> impl Manner {
    move |_, stream| {
        let _ = stream.write_all(bytes);
        false
    }
}

/// A false server, which answers as it is told.
pub struct FalseRedis {
    port: u16,
    manner: Arc<Mutex<Arc<dyn Manner>>>,
    /// The commands that came.
    pub heard: Arc<Mutex<Vec<Vec<String>>>>,
}

impl FalseRedis {
    pub fn start(manner: impl Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let manner: Arc<Mutex<Arc<dyn Manner>>> = Arc::new(Mutex::new(Arc::new(manner)));
        let server = Self { port, manner, heard: Arc::default() };
        let (manner, heard) = (Arc::clone(&server.manner), Arc::clone(&server.heard));
        // ends with the test program
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (manner, heard) = (Arc::clone(&manner), Arc::clone(&heard));
                thread::spawn(move || serve(stream.unwrap(), &manner, &heard));
            }
        });
        server
    }

    pub fn become_another(&self, manner: impl Manner) {
        *self.manner.lock().unwrap() = Arc::new(manner);
    }

    pub fn url(&self) -> String {
        self.url_with("")
    }

    /// With a user and a password, such as `u:p@`.
    pub fn url_with(&self, login: &str) -> String {
        format!("redis://{login}127.0.0.1:{}", self.port)
    }

    /// A daemon's configuration, with a user and a password.
    pub fn config_with(&self, login: &str) -> String {
        config(&self.url_with(login))
    }
}

fn serve(mut stream: TcpStream, manner: &Mutex<Arc<dyn Manner>>, heard: &Mutex<Vec<Vec<String>>>) {
    let mut commands = BufReader::new(stream.try_clone().unwrap());
    while let Some(command) = next_command(&mut commands) {
        heard.lock().unwrap().push(command.clone());
        let manner = Arc::clone(&manner.lock().unwrap());
        if !manner(&command, &mut stream) {
            break;
        }
    }
}

fn next_command(commands: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = commands.lines();
    let mut line = || lines.next()?.ok();
    let count: usize = line()?.strip_prefix('*')?.parse().ok()?;
    let word = |_| {
        line()?;
        line()
    };
    (0..count).map(word).collect()
}
