//! A trial fleet on one machine: a server on loopback, and agents whose packets leave from and come to network namespaces of
//! their own, on one switch. All of it ends with this value.

use std::{
    io::{self, BufRead, BufReader},
    net::Ipv4Addr,
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
    process::{Child, ChildStderr, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use sys::{
    NetlinkError,
    child::{Ties, tie},
    ethtool::EthtoolSocket,
    netns::NetNs,
    rtnetlink::{RouteSocket, VethEnd, VethPair, flag},
};
use thiserror::Error;

use crate::{
    agent::READY,
    server::{NatsServer, ServerError},
};

/// Agents are there in less, on a busy machine too.
const READY_AT_MOST: Duration = Duration::from_secs(60);
/// The most agents of one machine: addresses are of one network.
const MOST: u32 = 1000;

/// A trial fleet.
#[derive(Debug, Clone)]
pub struct UpPlan {
    /// How many agents.
    pub agents: u32,
    /// How many of them receive.
    pub receivers: u32,
    /// nats-server.
    pub server: PathBuf,
    /// Its port; 0 is any free one.
    pub port: u16,
    /// A folder for its files.
    pub folder: PathBuf,
    /// The program whose agents are started: this one.
    pub program: PathBuf,
    /// More words for each agent.
    pub arguments: Vec<String>,
}

/// Why there is no trial fleet.
#[derive(Debug, Error)]
pub enum UpError {
    /// The server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// More agents than there is room for, or no sender, or no receiver.
    #[error(
        "{agents} agents of which {receivers} receive: expected 2 to {MOST}, with at least one sender and one receiver"
    )]
    Count {
        /// Agents.
        agents: u32,
        /// Receivers.
        receivers: u32,
    },
    /// Namespaces or processes.
    #[error("cannot {what}")]
    Io {
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Links and addresses.
    #[error("cannot {what}")]
    Link {
        /// What failed.
        what: &'static str,
        /// Why.
        source: NetlinkError,
    },
    /// An agent does not start.
    #[error("agent {name} does not start: {reason}")]
    Agent {
        /// Which.
        name: String,
        /// Its last words.
        reason: String,
    },
}

/// A running trial fleet.
#[derive(Debug)]
pub struct TrialFleet {
    agents: Vec<(String, Child)>,
    server: NatsServer,
    /// The switch and the hosts, held by descriptors.
    _namespaces: Vec<NetNs>,
}

impl TrialFleet {
    /// Makes the namespaces, starts the server and the agents, and waits until all of them are there. The calling thread must
    /// outlive the fleet.
    ///
    /// # Errors
    /// [`UpError`]; then nothing is left.
    pub fn start(plan: &UpPlan) -> Result<Self, UpError> {
        let UpPlan { agents, receivers, .. } = *plan;
        if !(2..=MOST).contains(&agents) || receivers == 0 || receivers >= agents {
            return Err(UpError::Count { agents, receivers });
        }
        let namespaces = wire_up(agents)?;
        let server = NatsServer::start(&plan.server, &plan.folder, plan.port)?;
        let mut fleet = Self { agents: Vec::new(), server, _namespaces: namespaces };
        let (said, ready) = mpsc::channel();
        for number in 1..=agents {
            let role = if number <= agents - receivers { "sender" } else { "receiver" };
            let name = format!("a{number}");
            let namespace = fleet._namespaces[number as usize].as_fd().as_raw_fd();
            let mut command = Command::new(&plan.program);
            command
                .args(["agent", "--nats", &fleet.server.url(), "--name", &name])
                .args(["--label", &format!("role={role}"), "--address", &address(number).to_string()])
                .arg("--netns")
                .arg(format!("/proc/{}/fd/{namespace}", std::process::id()))
                .args(&plan.arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            // Ctrl-C is this program's to handle.
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            tie(&mut command, Ties::default());
            let spawned = command.spawn();
            let mut child = spawned.map_err(|source| UpError::Io { what: "start an agent", source })?;
            if let Some(stderr) = child.stderr.take() {
                let (name, said) = (name.clone(), said.clone());
                let relayed = thread::Builder::new().spawn(move || relay(&name, stderr, &said));
                relayed.map_err(|source| UpError::Io { what: "listen to an agent", source })?;
            }
            fleet.agents.push((name, child));
        }
        drop(said);
        fleet.wait(&ready)?;
        Ok(fleet)
    }

    fn wait(&mut self, said: &mpsc::Receiver<(String, String)>) -> Result<(), UpError> {
        let until = Instant::now() + READY_AT_MOST;
        let mut ready = 0;
        let mut last = ("of the fleet".to_owned(), "it says nothing".to_owned());
        while ready < self.agents.len() {
            let left = until.saturating_duration_since(Instant::now());
            match said.recv_timeout(left) {
                Ok((_, words)) if words.contains(READY) => ready += 1,
                Ok((name, words)) => {
                    last = (name.clone(), words.clone());
                    if words.starts_with("error:") {
                        return Err(UpError::Agent { name, reason: words });
                    }
                }
                Err(_) => return Err(UpError::Agent { name: last.0, reason: last.1 }),
            }
        }
        Ok(())
    }

    /// Where a coordinator connects.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Agents that have ended, which is not to be.
    pub fn ended(&mut self) -> Vec<String> {
        let over = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        self.agents.iter_mut().filter_map(|(name, child)| over(child).then(|| name.clone())).collect()
    }

    /// Whether the server still runs.
    pub fn has_server(&mut self) -> bool {
        self.server.is_running()
    }

    /// The agents with the numbers of their processes.
    pub fn processes(&self) -> impl Iterator<Item = (&str, u32)> {
        self.agents.iter().map(|(name, child)| (name.as_str(), child.id()))
    }
}

impl Drop for TrialFleet {
    fn drop(&mut self) {
        for (_, child) in &mut self.agents {
            child.kill().ok();
        }
        for (_, child) in &mut self.agents {
            child.wait().ok();
        }
    }
}

/// An agent's words, each line with its name.
fn relay(name: &str, stderr: ChildStderr, said: &mpsc::Sender<(String, String)>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        // Nobody listens any more once all are ready.
        if said.send((name.into(), line.clone())).is_err() {
            eprintln!("{name}: {line}");
        }
    }
}

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + number)
}

/// A switch, first, and as many hosts on it.
fn wire_up(hosts: u32) -> Result<Vec<NetNs>, UpError> {
    let io = |source| UpError::Io { what: "make a network namespace", source };
    let mut namespaces = Vec::new();
    for _ in 0..=hosts {
        namespaces.push(NetNs::create().map_err(io)?);
    }
    let (switch, ends) = namespaces.split_first().expect("the switch is there");
    let link = |what| move |source| UpError::Link { what, source };
    let bridge = switch
        .run(|| -> Result<u32, NetlinkError> {
            let mut route = RouteSocket::open()?;
            route.create_bridge("sw")?;
            let bridge = route.link_by_name("sw")?.index;
            route.change_flags(bridge, flag::UP, flag::UP)?;
            Ok(bridge)
        })
        .map_err(io)?
        .map_err(link("make a switch"))?;
    for (number, host) in (1..).zip(ends) {
        let [_, _, high, low] = address(number).octets();
        let port = format!("p{number}");
        let plugged = switch.run(|| -> Result<(), NetlinkError> {
            let mut route = RouteSocket::open()?;
            route.create_veth(&VethPair {
                near: VethEnd { name: &port, mac: [2, 0, 0, 1, high, low] },
                far: VethEnd { name: "eth0", mac: [2, 0, 0, 0, high, low] },
                far_namespace: host.as_fd(),
                queues: 1,
                mtu: 1500,
            })?;
            let index = route.link_by_name(&port)?.index;
            route.add_to_bridge(index, bridge)?;
            route.change_flags(index, flag::UP, flag::UP)
        });
        plugged.map_err(io)?.map_err(link("plug a host into the switch"))?;
        let addressed = host.run(|| -> Result<bool, NetlinkError> {
            let mut route = RouteSocket::open()?;
            let lo = route.link_by_name("lo")?.index;
            route.change_flags(lo, flag::UP, flag::UP)?;
            let index = route.link_by_name("eth0")?.index;
            // Otherwise IPv6 would send packets of its own.
            route.disable_address_generation(index)?;
            // Each frame is one packet, as on a wire.
            let offloads = ["tx-checksum-ip-generic", "tx-generic-segmentation", "tx-udp-segmentation"];
            if let Ok(ethtool) = EthtoolSocket::open() {
                ethtool.set_features("eth0", &offloads.map(|offload| (offload, false))).ok();
            }
            route.add_address(index, address(number).into(), 16)?;
            route.change_flags(index, flag::UP, flag::UP)?;
            route.wait_until_up(index, Instant::now() + Duration::from_secs(30))
        });
        addressed.map_err(io)?.map_err(link("give a host its address"))?;
    }
    Ok(namespaces)
}
