//! `make install-ns8` and what becomes of the steps when NS8's core is updated, or has its own back.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::Daemon;
use crate::support::ns8::{Node, SOURCES, make, ports, stdout};
use crate::support::redis::Redis;

const STEPS: [&str; 4] = [
    "actions/allocate-ports/50allocate",
    "actions/deallocate-ports/50deallocate",
    "actions/remove-module/60ports",
    "update-core.d/10upgrade_ports",
];

/// What NS8's core puts on a node; its steps say what they are, and that they ran.
fn install_core(directory: &Path, version: u8) {
    for name in STEPS.into_iter().chain(["actions/remove-module/50update", "update-core.d/20other"])
    {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // as the extraction of an image does it
        let _ = fs::remove_file(&path);
        fs::write(&path, format!("#!/bin/sh\necho ns8 {version} {name}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Every file below, with its mode and its contents.
fn look(directory: &Path) -> BTreeMap<PathBuf, (u32, String)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(look(&path));
        } else {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            found.insert(path.clone(), (mode, fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

/// Runs all there is in update-core.d, as NS8 does after it has installed its core.
fn run_update_scripts(node: &Node) -> String {
    let mut scripts: Vec<_> = fs::read_dir(node.directory().join("update-core.d"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    scripts.sort();
    let outputs = scripts.iter().map(|script| node.command(script).output().unwrap());
    let said: Vec<_> = outputs.map(|output| [output.stdout, output.stderr].concat()).collect();
    String::from_utf8(said.concat()).unwrap()
}

fn are_ours(node: &Node) -> bool {
    let same = |name: &&str| {
        let [ours, there] = [node.kept_steps(), node.directory()].map(|root| root.join(name));
        fs::read(ours).unwrap() == fs::read(there).unwrap()
    };
    STEPS.iter().all(same)
}

#[test]
fn a_tree_has_everything_with_its_mode() {
    let tree = crate::support::directory();
    assert!(make(tree.path(), "install-ns8").contains("no node of NS8"));
    let kept = tree.path().join("usr/share/portsd/ns8");
    let modes: Vec<_> = look(tree.path())
        .into_iter()
        .map(|(path, (mode, _))| {
            (path.strip_prefix(&kept).unwrap().to_str().unwrap().to_owned(), mode)
        })
        .collect();
    let expected = [
        (STEPS[0], 0o755),
        (STEPS[1], 0o755),
        (STEPS[2], 0o755),
        ("pypkg/node/ports_manager.py", 0o644),
        ("steps.sh", 0o755),
        ("update-core.d/10portsd_steps", 0o755),
        (STEPS[3], 0o755),
    ];
    assert_eq!(modes, expected.map(|(path, mode)| (path.to_owned(), mode)));
    for _ in 0..2 {
        make(tree.path(), "uninstall-ns8");
        assert_eq!(look(tree.path()), BTreeMap::new());
    }
}

#[test]
fn a_node_whose_ports_are_not_taken_over_yet_is_told_so_and_left_alone() {
    let daemon = Daemon::start();
    let node = Node { daemon };
    install_core(&node.directory(), 1);
    fs::create_dir(node.state()).unwrap();
    let before = look(&node.directory());
    let said = node.install();
    assert!(said.contains("systemctl stop agent@node"), "{said}");
    assert!(said.contains("update-core.d/10upgrade_ports"), "{said}");
    assert_eq!(look(&node.directory()), before);
    // what it says comes next does
    let [upgrade, steps] =
        ["update-core.d/10upgrade_ports", "steps.sh"].map(|name| node.kept_steps().join(name));
    let refused = node.command(&steps).arg("put").output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    fs::write(node.state().join("ports.sqlite"), "").unwrap();
    rusqlite::Connection::open(node.state().join("ports.sqlite"))
        .unwrap()
        .execute_batch("CREATE TABLE TCP_PORTS (start INT, end INT, module CHAR(255));")
        .unwrap();
    let redis = Redis::start();
    redis.run_lines("HSET cluster/module_node mail1 1");
    let address = format!("127.0.0.1:{}", redis.port);
    stdout(&node.command(&upgrade).env("REDIS_ADDRESS", address).output().unwrap());
    stdout(&node.command(&steps).arg("put").output().unwrap());
    assert!(are_ours(&node));
}

/// A node with NS8's core, switched to portsd; and what it was before.
fn switched() -> (Node, BTreeMap<PathBuf, (u32, String)>) {
    let node = Node { daemon: Daemon::start() };
    install_core(&node.directory(), 1);
    let before = look(&node.directory());
    node.is_taken_over();
    node.install();
    // a package has it where the script says; here the tree is elsewhere
    let script = node.directory().join("update-core.d/10portsd_steps");
    let kept = node.kept_steps().join("update-core.d/10portsd_steps");
    for path in [script, kept] {
        let text = fs::read_to_string(&path).unwrap();
        let absolute = text.replace("/usr/share/portsd/ns8", node.kept_steps().to_str().unwrap());
        assert_ne!(text, absolute);
        fs::write(&path, absolute).unwrap();
    }
    (node, before)
}

#[test]
fn an_update_of_the_core_does_not_switch_back() {
    let (node, _) = switched();
    assert!(are_ours(&node));
    for version in 2..4 {
        install_core(&node.directory(), version);
        assert!(!are_ours(&node));
        let said = run_update_scripts(&node);
        assert!(are_ours(&node));
        assert!(said.contains("taken over before"), "ours ran, in the same update: {said}");
        assert!(!said.contains("10upgrade_ports\n"), "and NS8's did not: {said}");
        assert!(said.contains(&format!("ns8 {version} update-core.d/20other")), "{said}");
    }
    // and again, with nothing to put back
    let said = run_update_scripts(&node);
    assert!(!said.contains("in place"), "{said}");
}

#[test]
fn ns8_gets_the_steps_back_that_it_had_last() {
    let (node, before) = switched();
    install_core(&node.directory(), 2);
    run_update_scripts(&node);
    // a newer version of ours is not taken for NS8's
    let ours = node.kept_steps().join(STEPS[0]);
    let newer = fs::read_to_string(&ours).unwrap() + "# newer\n";
    fs::write(&ours, newer).unwrap();
    run_update_scripts(&node);
    assert!(are_ours(&node));

    let steps = node.kept_steps().join("steps.sh");
    for _ in 0..2 {
        stdout(&node.command(&steps).arg("restore").output().unwrap());
        let state = fs::read_dir(node.state()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(state.collect::<Vec<_>>(), ["portsd-import.txt.old"]);
        let mut found = look(&node.directory());
        found.retain(|path, _| !path.starts_with(node.state()));
        let expected = before
            .clone()
            .into_iter()
            .map(|(path, (mode, text))| (path, (mode, text.replace("ns8 1", "ns8 2"))));
        assert_eq!(found, expected.collect());
    }
    // what NS8 has put or taken away since is left alone
    fs::rename(node.state().join("portsd-import.txt.old"), node.record()).unwrap();
    stdout(&node.command(&steps).arg("put").output().unwrap());
    assert!(are_ours(&node));
    install_core(&node.directory(), 3);
    fs::remove_file(node.directory().join(STEPS[2])).unwrap();
    stdout(&node.command(&steps).arg("restore").output().unwrap());
    assert!(!node.directory().join(STEPS[2]).exists());
    let step = fs::read_to_string(node.directory().join(STEPS[0])).unwrap();
    assert!(step.contains("ns8 3"), "{step}");
    // the next switch begins with an import again
    let refused = node.command(&steps).arg("put").output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let misused = Command::new(&steps).output().unwrap();
    assert_eq!(misused.status.code(), Some(2), "{misused:?}");
}

#[test]
fn many_who_put_the_steps_at_once_put_them_once() {
    let (node, before) = switched();
    let steps = node.kept_steps().join("steps.sh");
    let at_once = |verb: &str| {
        let start = |_| node.command(&steps).arg(verb).stderr(Stdio::null()).spawn().unwrap();
        let mut running: Vec<_> = (0..4).map(start).collect();
        assert!(running.iter_mut().all(|one| one.wait().unwrap().success()));
    };
    for _ in 0..5 {
        at_once("restore");
        let mut found = look(&node.directory());
        found.retain(|path, _| !path.starts_with(node.state()));
        assert_eq!(found, before);
        fs::rename(node.state().join("portsd-import.txt.old"), node.record()).unwrap();
        at_once("put");
        assert!(are_ours(&node));
    }
}

#[test]
fn a_step_that_only_speaks_of_portsd_is_kept() {
    let (node, _) = switched();
    let [step, link] = [STEPS[1], STEPS[2]].map(|name| node.directory().join(name));
    fs::write(&step, "#!/bin/sh\n# before portsd had the ports\n").unwrap();
    fs::remove_file(&link).unwrap();
    symlink("../elsewhere", &link).unwrap();
    let steps = node.kept_steps().join("steps.sh");
    stdout(&node.command(&steps).arg("put").output().unwrap());
    assert!(are_ours(&node));
    stdout(&node.command(&steps).arg("restore").output().unwrap());
    assert!(fs::read_to_string(&step).unwrap().contains("before portsd"));
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("../elsewhere"));
    assert!(!node.directory().join("pypkg/node").exists());
}

#[test]
fn a_link_that_an_unfinished_copy_has_left_is_not_followed() {
    let (node, _) = switched();
    let elsewhere = node.directory().join("elsewhere");
    fs::write(&elsewhere, "somebody's").unwrap();
    symlink(&elsewhere, node.directory().join("portsd-replaced/.new")).unwrap();
    fs::remove_file(node.directory().join(STEPS[0])).unwrap();
    let steps = node.kept_steps().join("steps.sh");
    stdout(&node.command(&steps).arg("put").output().unwrap());
    assert!(are_ours(&node));
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "somebody's");
}

#[test]
fn a_restoration_that_ends_too_soon_makes_the_next_switch_import_again() {
    let (node, _) = switched();
    // it can't be put in a directory's place
    let step = node.directory().join(STEPS[3]);
    let kept = node.directory().join("portsd-replaced").join(STEPS[3]);
    fs::remove_file(&kept).unwrap();
    fs::create_dir(&kept).unwrap();
    let steps = node.kept_steps().join("steps.sh");
    let broken = node.command(&steps).arg("restore").output().unwrap();
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    assert!(step.exists() && !node.record().exists());
    let refused = node.command(&steps).arg("put").output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
}

/// The SQL of docs/ns8.md that takes along what portsd has handed out.
fn take_along() -> String {
    let page = fs::read_to_string(Path::new(SOURCES).join("docs/ns8.md")).unwrap();
    let (_, rest) = page.split_once("node/state/ports.sqlite \"\n").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

#[test]
fn what_is_held_can_be_taken_along_on_the_way_back() {
    let node = Node::start();
    let legacy = rusqlite::Connection::open(node.state().join("ports.sqlite")).unwrap();
    legacy
        .execute_batch(
            "CREATE TABLE TCP_PORTS (start INT, end INT, module CHAR(255));
             INSERT INTO TCP_PORTS VALUES (20000, 20000, 'gone1')",
        )
        .unwrap();
    for (owner, protocol) in [("mail1", "tcp"), ("mail1", "udp"), ("mail2_rsync", "tcp")] {
        let data = ports(2, owner, protocol, false);
        assert_eq!(node.task("allocate-ports", Some(""), &data).exit_code, 0);
    }
    let sql = take_along();
    let database = node.daemon.database();
    let attached = sql.replace("/var/lib/portsd/ports.sqlite", database.to_str().unwrap());
    assert_ne!(attached, sql);
    legacy.execute_batch(&attached).unwrap();
    // NS8's dump query, on NS8's file
    let query = "SELECT *, 'tcp' FROM main.TCP_PORTS UNION SELECT *, 'udp' FROM main.UDP_PORTS";
    let mut rows = legacy.prepare(query).unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(2)?, row.get(3)?, row.get(0)?, row.get(1)?)));
    let mut rows: Vec<_> = rows.unwrap().collect::<Result<_, _>>().unwrap();
    rows.sort_by_key(|(_, protocol, start, _): &(String, String, u16, u16)| {
        (protocol.clone(), *start)
    });
    assert_eq!(rows, node.daemon.rows());
}
