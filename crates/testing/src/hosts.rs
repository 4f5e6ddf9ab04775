//! Two hosts with a switch between them, each a network namespace.

use std::{
    os::fd::AsFd,
    process::Command,
    time::{Duration, Instant},
};

use sys::{
    child::{Ties, tie},
    ethtool::EthtoolSocket,
    netns::NetNs,
    rtnetlink::{RouteSocket, VethEnd, VethPair, flag},
};

/// Two hosts on a switch. Host A is 198.18.0.1 and fd18::1 on the interface `va`, host B 198.18.0.2 and fd18::2 on `vb`; the
/// switch's ports are `sa` and `sb`, of the bridge `sw`.
#[derive(Debug)]
pub struct Hosts {
    /// One host.
    pub a: NetNs,
    /// The switch.
    pub switch: NetNs,
    /// The other host.
    pub b: NetNs,
}

impl Hosts {
    /// The hosts, without neighbour entries. Only root gets them; `None` otherwise.
    ///
    /// # Panics
    /// When root cannot create them.
    #[track_caller]
    pub fn join() -> Option<Self> {
        if !matches!(lab::gain_access(), Ok(lab::Access::Privileged)) {
            crate::skip("two hosts in namespaces need root");
            return None;
        }
        let namespace = || NetNs::create().expect("root gets a namespace");
        let hosts = Self { a: namespace(), switch: namespace(), b: namespace() };
        for (near, far, host, last) in [("sa", "va", &hosts.a, 1), ("sb", "vb", &hosts.b, 2)] {
            let pair = VethPair {
                near: VethEnd { name: near, mac: [2, 0, 0, 0, 1, last] },
                far: VethEnd { name: far, mac: [2, 0, 0, 0, 0, last] },
                far_namespace: host.as_fd(),
                queues: 2,
                mtu: 1500,
            };
            hosts.switch.run(|| RouteSocket::open().unwrap().create_veth(&pair).unwrap()).unwrap();
        }
        let switch = &hosts.switch;
        switch.run(|| RouteSocket::open().unwrap().create_bridge("sw").unwrap()).unwrap();
        for port in ["sa", "sb"] {
            hosts.ip(switch, &format!("link set {port} master sw"));
            hosts.ip(switch, &format!("link set {port} up"));
        }
        hosts.ip(switch, "link set sw up");
        for (host, name, last) in [(&hosts.a, "va", 1), (&hosts.b, "vb", 2)] {
            hosts.ip(host, "link set lo up");
            hosts.ip(host, &format!("address add 198.18.0.{last}/24 dev {name}"));
            hosts.ip(host, &format!("link set {name} up"));
            hosts.ip(host, &format!("address add fd18::{last}/64 dev {name} nodad"));
            // Each frame is one packet, as on a wire.
            let offloads = ["tx-checksum-ip-generic", "tx-generic-segmentation", "tx-udp-segmentation"];
            host.run(|| {
                let ethtool = EthtoolSocket::open().unwrap();
                ethtool.set_features(name, &offloads.map(|offload| (offload, false))).ok();
            })
            .unwrap();
        }
        hosts.wait_until_up();
        Some(hosts)
    }

    /// Gives the switch's ports their own rings, which XDP frames need.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn give_switch_rings(&self) {
        for port in ["sa", "sb"] {
            let on = [("rx-gro", true)];
            self.switch.run(|| EthtoolSocket::open().unwrap().set_features(port, &on).unwrap()).unwrap();
        }
        self.wait_until_up();
    }

    /// Runs `ip` with these arguments in a namespace.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn ip(&self, namespace: &NetNs, words: &str) {
        self.run(namespace, "ip", words);
    }

    /// Runs a program with these arguments in a namespace.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn run(&self, namespace: &NetNs, program: &str, words: &str) {
        let mut command = Command::new(program);
        command.args(words.split(' '));
        let output = in_namespace(&mut command, namespace).output().expect("the program starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {words}: {told}");
    }

    fn wait_until_up(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        for (namespace, names) in
            [(&self.switch, &["sa", "sb", "sw"][..]), (&self.a, &["va"]), (&self.b, &["vb"])]
        {
            for name in names {
                let is_up = namespace.run(|| {
                    let mut route = RouteSocket::open().unwrap();
                    let link = route.link_by_name(name).unwrap();
                    assert!(link.flags & flag::UP != 0);
                    route.wait_until_up(link.index, deadline).unwrap()
                });
                assert!(is_up.unwrap(), "{name} is up");
            }
        }
    }
}

/// Makes a command start in a network namespace and end with the thread that starts it.
///
/// # Panics
/// When no descriptor is left.
pub fn in_namespace<'c>(command: &'c mut Command, namespace: &NetNs) -> &'c mut Command {
    let namespace = namespace.try_clone().expect("a descriptor");
    tie(command, Ties { namespace: Some(namespace), descriptors: Vec::new() });
    command
}
