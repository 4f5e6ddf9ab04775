//! The engines that a sender may request from a receiver.

use std::net::SocketAddr;

use session::Wanted;
use sys::{ethtool::rx_queues, rtnetlink::RouteSocket};
use traffic::{ReceiverPlan, RxLayer, RxOptions, RxSpec, RxTraffic, RxWorkers};

use crate::stream_watch::interface_towards;

/// The most threads that a sender may request.
const MOST_THREADS: u16 = 64;

/// The engines that a receiver opens for senders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineChoice {
    /// Names of engines, without switches; `None` is every one.
    pub allowed: Option<Vec<String>>,
    /// Whether programs may be attached to an interface's XDP hook.
    pub may_attach: bool,
    /// Why only the receiver's own engine is available, if so.
    pub fixed_by: Option<&'static str>,
    /// Options of sockets.
    pub options: RxOptions,
}

impl EngineChoice {
    /// The plan for a sender that requests an engine.
    ///
    /// # Errors
    /// The reason of a refusal, for the sender's user.
    pub(super) fn plan(
        &self,
        wanted: &Wanted,
        base: &ReceiverPlan,
        sender: SocketAddr,
    ) -> Result<ReceiverPlan, String> {
        let engine: RxSpec = wanted.engine.parse().map_err(|error| format!("{error}"))?;
        let engine = engine.configured(&self.options);
        if engine == base.engine && usize::from(wanted.threads) == base.traffic.workers {
            return Ok(base.clone());
        }
        let name = engine.name();
        if let Some(option) = self.fixed_by {
            return Err(format!("this receiver only offers {}: it was started with {option}", base.engine));
        }
        if self.allowed.as_ref().is_some_and(|allowed| allowed.iter().all(|other| other != name)) {
            return Err(format!("this receiver does not allow the engine {name} (recv --allow-engines)"));
        }
        let facts = engine.facts();
        if matches!(facts.reads, RxLayer::Stream | RxLayer::Card) {
            return Err(format!("the engine {name} receives only in the lab"));
        }
        let attaches = matches!(facts.reads, RxLayer::XdpSocket | RxLayer::XdpProgram);
        if attaches && !self.may_attach {
            return Err(format!(
                "this receiver does not allow {name} to attach a program to its interface (recv --allow-attach)"
            ));
        }
        let interface = if facts.needs_interface {
            let own = base.traffic.interface.clone().or_else(|| interface_towards(sender));
            Some(own.ok_or_else(|| {
                format!("{name} needs an interface, but no route to {} has one", sender.ip())
            })?)
        } else {
            base.traffic.interface.clone()
        };
        let workers = match facts.workers {
            RxWorkers::One => 1,
            RxWorkers::PerQueue => queues(interface.as_deref().unwrap_or_default()),
            RxWorkers::Asked => wanted.threads.clamp(1, MOST_THREADS).into(),
        };
        Ok(ReceiverPlan { engine, traffic: RxTraffic { interface, workers, ..base.traffic.clone() } })
    }
}

fn queues(interface: &str) -> usize {
    let link = RouteSocket::open().and_then(|mut route| route.link_by_name(interface));
    link.map_or(1, |link| rx_queues(&link) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> ReceiverPlan {
        ReceiverPlan {
            engine: "udp".parse().unwrap(),
            traffic: RxTraffic {
                local: "0.0.0.0:4321".parse().unwrap(),
                interface: Some("lo".into()),
                workers: 1,
                spin: false,
                batch_size: 64,
                statistics: None,
                reflect: false,
                work_ns: 0,
            },
        }
    }

    fn plan(choice: &EngineChoice, engine: &str, threads: u16) -> Result<ReceiverPlan, String> {
        choice.plan(&Wanted { engine: engine.into(), threads }, &base(), "127.0.0.1:9".parse().unwrap())
    }

    #[test]
    fn a_refusal_names_the_option_that_would_allow_it() {
        let all = EngineChoice { may_attach: true, ..EngineChoice::default() };
        for (choice, engine, said) in [
            (
                EngineChoice::default(),
                "xdp",
                "does not allow xdp to attach a program to its interface (recv --allow-attach)",
            ),
            (
                EngineChoice::default(),
                "xsk",
                "does not allow xsk to attach a program to its interface (recv --allow-attach)",
            ),
            (
                EngineChoice { allowed: Some(vec!["packet".into()]), ..EngineChoice::default() },
                "uring",
                "this receiver does not allow the engine uring (recv --allow-engines)",
            ),
            (
                EngineChoice { fixed_by: Some("--stats"), ..EngineChoice::default() },
                "packet",
                "this receiver only offers udp: it was started with --stats",
            ),
            (all.clone(), "tcp", "the engine tcp receives only in the lab"),
            (all.clone(), "dpdk", "unknown receiving engine 'dpdk'"),
        ] {
            let error = plan(&choice, engine, 1).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn an_allowed_engine_is_planned_on_the_receiver_s_port_and_interface() {
        let choice = EngineChoice { may_attach: true, ..EngineChoice::default() };
        assert_eq!(plan(&choice, "udp", 1).unwrap(), base());
        let reuseport = plan(&choice, "udp+reuseport", 3).unwrap();
        assert_eq!((reuseport.engine.to_string().as_str(), reuseport.traffic.workers), ("udp+reuseport", 3));
        assert_eq!(plan(&choice, "packet", 1000).unwrap().traffic.workers, 64);
        let xdp = plan(&choice, "xdp+generic", 7).unwrap();
        assert_eq!((xdp.traffic.workers, xdp.traffic.interface.as_deref()), (1, Some("lo")));
        assert_eq!(xdp.traffic.local, base().traffic.local);
    }

    #[test]
    fn the_receiver_s_own_engine_is_always_allowed() {
        let narrow =
            EngineChoice { fixed_by: Some("--stats"), allowed: Some(Vec::new()), ..EngineChoice::default() };
        assert_eq!(plan(&narrow, "udp", 1).unwrap(), base());
    }
}
