//! Import: what another allocator has handed out is taken over, all of it or nothing.

mod support;

use serde_json::{Value, json};
use support::{ADMIN, Client, Daemon, PORTS, Refusal, both_wires, row};

fn range(owner: &str, protocol: &str, start: i64, end: i64) -> Value {
    json!({ "owner": owner, "protocol": protocol, "start": start, "end": end })
}

fn import(
    client: &mut dyn Client,
    ranges: &[Value],
    dry_run: bool,
    skip_invalid: Option<bool>,
) -> Value {
    let parameters =
        json!({ "allocations": ranges, "dryRun": dry_run, "skipInvalid": skip_invalid });
    client.call(ADMIN, "Import", parameters).unwrap()
}

fn counts(reply: &Value) -> (u64, u64, usize) {
    let count = |name: &str| reply[name].as_u64().unwrap();
    (count("imported"), count("unchanged"), reply["problems"].as_array().unwrap().len())
}

#[test]
fn sound_ranges_are_taken_over_once_and_those_outside_the_pool_are_claims() {
    for wire in 0..2 {
        let daemon = Daemon::start();
        let client = &mut *both_wires(&daemon, true, None).into_iter().nth(wire).unwrap();
        let ranges = [
            range("mail1", "tcp", 20000, 20003),
            range("mail1", "udp", 20000, 20003),
            range("mail1_rsync", "tcp", 20004, 20004),
            range("old1", "tcp", 45000, 45002),
            range("old1", "tcp", 1, 1),
        ];
        assert_eq!(counts(&import(client, &ranges, true, None)), (5, 0, 0));
        assert_eq!(daemon.rows(), []);
        assert_eq!(counts(&import(client, &ranges, false, None)), (5, 0, 0));
        assert_eq!(daemon.rows().len(), 5);
        for dry_run in [true, false] {
            assert_eq!(counts(&import(client, &ranges, dry_run, Some(true))), (0, 5, 0));
        }
        let listed = client.call(PORTS, "List", json!({ "owner": "old1" })).unwrap();
        let claimed = listed["allocations"].as_array().unwrap();
        assert!(claimed.iter().all(|one| one["claimed"] == true), "{listed}");
        // the owner goes on with what was taken over
        let parameters = json!({ "ports": 4, "protocol": "tcp", "owner": "mail1" });
        let reply = client.call(PORTS, "Allocate", parameters).unwrap();
        assert_eq!(reply["range"], json!({ "start": 20000, "end": 20003 }));
    }
}

#[test]
fn what_cant_be_taken_over_is_a_problem_and_stops_all_unless_it_is_to_be_skipped() {
    let daemon = Daemon::start();
    for client in &mut both_wires(&daemon, true, None) {
        let held = json!({ "ports": 2, "protocol": "tcp", "owner": "host/there" });
        client.call(PORTS, "Allocate", held).unwrap();
        let before = daemon.rows();
        let not_ports = "not a range of ports from 1 to 65535";
        let (sound, other) = (range("a", "tcp", 30000, 30003), range("b", "udp", 30000, 30003));
        let faulty = [
            (range("", "tcp", 30010, 30010), r#""" is not a valid owner"#),
            (range("a/b", "tcp", 30010, 30010), r#""a/b" is not a valid owner"#),
            (range("a", "udp", 2, 0), not_ports),
            (range("a", "udp", 0, 5), not_ports),
            (range("a", "udp", 65535, 65536), not_ports),
            (range("a", "udp", -1, i64::MAX), not_ports),
            (range("a", "tcp", 20001, 20005), "overlaps tcp 20000-20001 of host/there"),
            (range("c", "tcp", 30003, 30010), "overlaps tcp 30000-30003 of a"),
            (range("a", "tcp", 30000, 30001), "overlaps tcp 30000-30003 of a"),
        ];
        let mut ranges = vec![sound.clone()];
        ranges.extend(faulty.iter().map(|(range, _)| range.clone()));
        // the same once more is no problem
        ranges.extend([sound, other]);
        let problems: Vec<Value> = faulty
            .iter()
            .map(|(range, reason)| {
                let mut problem = range.clone();
                problem["reason"] = json!(reason);
                problem
            })
            .collect();
        for dry_run in [true, false] {
            let reply = import(&mut **client, &ranges, dry_run, None);
            assert_eq!(reply, json!({ "imported": 0, "unchanged": 1, "problems": problems }));
            assert_eq!(daemon.rows(), before);
        }
        let reply = import(&mut **client, &ranges, true, Some(true));
        assert_eq!(reply, json!({ "imported": 4, "unchanged": 1, "problems": problems }));
        assert_eq!(daemon.rows(), before);
        assert_eq!(import(&mut **client, &ranges, false, Some(true)), reply);
        // of two that overlap, what nobody else has
        let taken = [
            row("a", "tcp", 20002, 20005),
            row("a", "tcp", 30000, 30003),
            row("c", "tcp", 30004, 30010),
            row("b", "udp", 30000, 30003),
        ];
        assert_eq!(daemon.rows(), [&before[..], &taken].concat());
        for (owner, protocol) in [("a", "tcp"), ("b", "udp"), ("c", "tcp"), ("host/there", "tcp")] {
            let all = json!({ "protocol": protocol, "owner": owner });
            client.call(PORTS, "Deallocate", all).unwrap();
        }
    }
}

#[test]
fn what_is_no_list_of_ranges_is_refused() {
    let daemon = Daemon::start();
    for client in &mut both_wires(&daemon, true, None) {
        let sound = range("a", "tcp", 30000, 30003);
        let mut unknown = sound.clone();
        unknown["name"] = json!("db");
        let mut text = sound.clone();
        text["start"] = json!("30000");
        let mut fraction = sound.clone();
        fraction["end"] = json!(30003.0);
        let no_protocol = json!({ "owner": "a", "start": 1, "end": 1 });
        let sctp = range("a", "sctp", 1, 1);
        for faulty in [unknown, text, fraction, no_protocol, sctp, json!(null), json!([])] {
            let parameters = json!({ "allocations": [sound, faulty], "dryRun": false });
            let refused = client.call(ADMIN, "Import", parameters).unwrap_err();
            let expected = json!({ "parameter": "allocations" });
            assert_eq!(refused, Refusal::new("InvalidParameter", expected), "{faulty}");
        }
    }
    assert_eq!(daemon.rows(), []);
}

#[test]
fn a_full_pool_of_single_ports_is_taken_over_at_once() {
    let daemon = Daemon::start();
    let mut admin = daemon.admin();
    let ranges: Vec<Value> =
        (20000..=45000).map(|port| range(&format!("m{port}"), "tcp", port, port)).collect();
    assert_eq!(counts(&import(&mut admin, &ranges, false, None)), (25001, 0, 0));
    assert_eq!(counts(&import(&mut admin, &ranges, false, None)), (0, 25001, 0));
    assert_eq!(daemon.rows().len(), 25001);
}
