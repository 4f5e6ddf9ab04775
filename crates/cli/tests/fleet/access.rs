//! Access rights: the shipped server configuration under test.

use std::{fs, path::Path, process::Command};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::support::{Nats, Process, agent, fleet_run, linerate, run, server_program, whole};

/// A self-signed certificate for loopback; `None` with a loud skip.
fn certificate(folder: &Path) -> Option<(String, String)> {
    let (crt, key) = (folder.join("server.crt"), folder.join("server.key"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (crt, key) = (text(&crt), text(&key));
    let words =
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=linerate";
    let mut openssl = Command::new("openssl");
    openssl.args(words.split(' ')).args(["-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key, "-out", &crt]);
    let Ok(made) = openssl.output() else {
        testing::skip("openssl makes the certificate of this test");
        return None;
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some((crt, key))
}

fn new_key(name: &str) -> (String, String) {
    let file = testing::own_folder().join(format!("{name}.seed"));
    let file = file.to_str().unwrap().to_owned();
    let (status, public, err) = run(&["fleet", "new-key", &file]);
    assert_eq!(status, 0, "{err}");
    (file, public.trim().to_owned())
}

/// The shipped configuration, with two agents, keys and certificates of this test.
struct Shipped {
    nats: Nats,
    ca: String,
}

impl Shipped {
    fn start(keys: &[&str; 3]) -> Option<Self> {
        server_program()?;
        let (crt, key) = certificate(&testing::own_folder())?;
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/fleet/nats-server.conf");
        let text = fs::read_to_string(shipped).unwrap();
        // Settings of the test's own server.
        let own = |line: &&str| !line.starts_with("listen:");
        let text = text.lines().filter(own).collect::<Vec<_>>().join("\n");
        let (before, behind) = text.split_once("jetstream {").unwrap();
        let text = format!("{before}{}", behind.split_once('}').unwrap().1);
        let text = text.replace("/etc/nats/server.crt", &crt).replace("/etc/nats/server.key", &key);
        let start = text.find("    # An agent:").unwrap();
        let end = text.rfind("  ]").unwrap();
        let agent = text[start..end].to_owned();
        let second = agent.replace("edge-1", "edge-2").replace("AGENT", keys[2]);
        let text = format!("{}{}{}", &text[..end], second, &text[end..]);
        let text = text.replace("\"AGENT\"", &format!("\"{}\"", keys[1]));
        let text = text.replace("COORDINATOR", keys[0]);
        Some(Self { nats: Nats::start(&text)?, ca: crt })
    }

    fn url(&self) -> String {
        self.nats.url().replace("nats://", "tls://")
    }

    fn agent(&self, name: &str, role: &str, seed: &str) -> Process {
        self.agent_with(name, role, seed, &[])
    }

    fn agent_with(&self, name: &str, role: &str, seed: &str, more: &[&str]) -> Process {
        let label = format!("role={role}");
        let args =
            ["agent", "--nats", &self.url(), "--name", name, "--label", &label, "--address", "127.0.0.1"];
        Process::start(linerate(&[&args[..], &["--nkey", seed, "--ca", &self.ca], more].concat()))
    }
}

#[test]
fn the_shipped_configuration_admits_only_named_users_under_their_own_names() {
    let (coordinator, coordinator_key) = new_key("coordinator");
    let (one, one_key) = new_key("one");
    let (two, two_key) = new_key("two");
    let (stranger, _) = new_key("stranger");
    let Some(shipped) = Shipped::start(&[&coordinator_key, &one_key, &two_key]) else { return };
    let mut sender = shipped.agent("edge-1", "sender", &one);
    sender.wait_for("is ready");
    let mut receiver = shipped.agent("edge-2", "receiver", &two);
    receiver.wait_for("is ready");
    let url = shipped.url();
    let with = |seed: &str| vec!["--nkey".to_owned(), seed.to_owned(), "--ca".into(), shipped.ca.clone()];
    let run_with = |seed: &str| {
        let access = with(seed);
        let access: Vec<&str> = access.iter().map(String::as_str).collect();
        fleet_run(&url, "rate = \"1kpps\"\nduration = \"500ms\"", &access)
    };
    let (status, record, err) = run_with(&coordinator);
    assert!(status <= 1, "{err}");
    whole(&record["end"]["trials"][0], 500, &err);
    // A key that the server does not know, an agent's key, and none.
    let (status, _, err) = run_with(&stranger);
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("cannot reach the NATS server") && err.contains("uthorization"), "{err}");
    let (status, _, err) = run_with(&one);
    assert_eq!(status, 4, "an agent may not act as a coordinator: {err}");
    let (status, _, err) = run(&["fleet", "status", "--nats", &url, "--ca", &shipped.ca]);
    assert_eq!(status, 4, "{err}");
    // An authority that did not sign the server's certificate.
    let (status, _, err) = run(&["fleet", "status", "--nats", &url, "--nkey", &coordinator]);
    assert_eq!(status, 4, "{err}");
    // An agent under another one's name does not receive that one's requests.
    let mut impostor = shipped.agent("edge-2", "sender", &one);
    impostor.wait_for("ermissions");
}

#[test]
fn the_shipped_configuration_lets_rules_reach_an_agent_and_its_state_return() {
    let (coordinator, coordinator_key) = new_key("coordinator");
    let (one, one_key) = new_key("one");
    let (_, two_key) = new_key("two");
    let Some(shipped) = Shipped::start(&[&coordinator_key, &one_key, &two_key]) else { return };
    let mut agent = shipped.agent_with("edge-1", "edge", &one, &["--divert", "nope0"]);
    agent.wait_for("is ready");
    let rules = testing::own_folder().join("rules.toml");
    fs::write(&rules, "match = \"udp and dst port 9\"\nrules = [\"drop all\"]\nsettle = \"1s\"\n").unwrap();
    let access = ["--nats", &shipped.url(), "--nkey", &coordinator, "--ca", &shipped.ca];
    let (status, _, err) =
        run(&[&["fleet", "divert", "apply", rules.to_str().unwrap()][..], &access].concat());
    assert_eq!(status, 1, "{err}");
    assert!(err.contains("agent edge-1 refused the rules") && err.contains("nope0"), "{err}");
    // An agent's key reads no states and writes no rules.
    let access = ["--nats", &shipped.url(), "--nkey", &one, "--ca", &shipped.ca];
    let (status, _, err) =
        run(&[&["fleet", "divert", "apply", rules.to_str().unwrap()][..], &access].concat());
    assert_eq!(status, 4, "{err}");
}

/// A JSON web token in NATS's form, signed by `issuer`.
fn token(issuer: &KeyPair, subject: &str, expires: Option<u64>, nats: &Value) -> String {
    let encode = |text: String| BASE64_URL_SAFE_NO_PAD.encode(text);
    let mut claims = json!({
        "jti": format!("{subject}{expires:?}"), "iat": now(), "iss": issuer.public_key(), "name": subject, "sub": subject, "nats": nats
    });
    if let Some(expires) = expires {
        claims["exp"] = expires.into();
    }
    let header = encode(json!({ "typ": "JWT", "alg": "ed25519-nkey" }).to_string());
    let signed = format!("{header}.{}", encode(claims.to_string()));
    let signature = BASE64_URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn credentials_are_valid_until_they_expire() {
    let (operator, account, user) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_user());
    let any = json!(-1);
    let limits = json!({
        "subs": any, "data": any, "payload": any, "imports": any, "exports": any, "wildcards": true, "conn": any, "leaf": any
    });
    let of_operator =
        token(&operator, &operator.public_key(), None, &json!({ "type": "operator", "version": 2 }));
    let of_account = token(
        &operator,
        &account.public_key(),
        None,
        &json!({ "limits": limits, "default_permissions": { "pub": {}, "sub": {} }, "type": "account", "version": 2 }),
    );
    let config = format!(
        "operator: {of_operator}\nresolver: MEMORY\nresolver_preload: {{ {}: {of_account} }}\n",
        account.public_key()
    );
    let Some(nats) = Nats::start(&config) else { return };
    let credentials = |name: &str, expires: u64| {
        let nats = json!({
            "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2
        });
        let jwt = token(&account, &user.public_key(), Some(expires), &nats);
        let file = testing::own_folder().join(name);
        let seed = user.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (good, expired) = (credentials("good", now() + 3600), credentials("expired", now() - 3600));
    let status =
        |file: &str| run(&["fleet", "status", "--nats", &nats.url(), "--creds", file, "--wait", "200ms"]);
    let (code, out, err) = status(&good);
    assert_eq!((code, out.trim()), (1, "0 agents"), "{err}");
    let (code, _, err) = status(&expired);
    assert_eq!(code, 4, "{err}");
    assert!(err.contains("cannot reach the NATS server") && err.contains("uthorization"), "{err}");
    let (code, _, err) = status("/nonexistent");
    assert_eq!(code, 4, "{err}");
    assert!(err.contains("cannot use the credentials /nonexistent: No such file"), "{err}");
}

#[test]
fn an_agent_keeps_only_the_privileges_that_its_plan_shows() {
    let plan = |more: &[&str]| -> Value {
        let args =
            ["agent", "--nats", "nats://127.0.0.1:1", "--name", "a", "--address", "127.0.0.1", "--dry-run"];
        let (status, text, err) = run(&[&args[..], more].concat());
        assert_eq!(status, 0, "{err}");
        serde_json::from_str(&text).unwrap()
    };
    let has = |plan: &Value, list: &str, name: &str| {
        plan["privileges"][list].as_array().unwrap().contains(&name.into())
    };
    let alone = plan(&[]);
    assert_eq!((&alone["agent"], &alone["server"]), (&"a".into(), &"nats://127.0.0.1:1".into()));
    assert!(has(&alone, "capabilities", "CAP_NET_RAW") && !has(&alone, "capabilities", "CAP_SYS_ADMIN"));
    assert!(has(&alone, "refused_calls", "execve") && has(&alone, "refused_calls", "setns"));
    let inside = plan(&["--netns", "/proc/self/ns/net"]);
    // The namespace of another process opens only with that process's capabilities.
    assert_eq!(inside["privileges"]["capabilities"], json!(["all"]));
    assert!(has(&inside, "refused_calls", "execve") && !has(&inside, "refused_calls", "setns"));
    // It starts linerate divert, which changes a card.
    let diverting = plan(&["--divert", "lo"]);
    assert_eq!(diverting["privileges"]["capabilities"], json!(["all"]));
    assert!(!has(&diverting, "refused_calls", "execve") && has(&diverting, "refused_calls", "init_module"));

    let Some(nats) = Nats::start("") else { return };
    let agent = agent(&nats.url(), "a", "tx", &[]);
    let tasks = fs::read_dir(format!("/proc/{}/task", agent.child.id())).unwrap();
    let statuses: Vec<String> =
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap()).collect();
    assert!(!statuses.is_empty(), "{statuses:?}");
    // Numbers of capabilities(7): bind service, net admin, net raw, ipc lock, sys nice, syslog, perfmon, bpf.
    let kept = [10, 12, 13, 14, 23, 34, 38, 39].iter().map(|number| 1u64 << number).sum::<u64>();
    for status in statuses {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert_eq!(u64::from_str_radix(field("CapPrm:"), 16).unwrap() & !kept, 0, "{status}");
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1", "2"), "{status}");
    }
}
