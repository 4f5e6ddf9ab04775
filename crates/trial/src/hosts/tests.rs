use std::net::IpAddr;

use lab::LabPlan;
use measure::{ClockRelation, StatisticsLevel};
use session::{Admission, KeptClock};
use sys::clock;
use traffic::{AfterReading, ReceiverPlan, RxTraffic, StatisticsPlan};

use super::*;
use crate::{
    back::{BackPlan, SendingTerms},
    reception::{Policy, Reception},
};

/// A clock other than this machine's: ahead, and gaining.
struct Skewed {
    ahead_ns: i64,
    drift_ppm: f64,
    since_ns: u64,
    kept: Option<KeptClock>,
}

impl HostClock for Skewed {
    fn now_ns(&self) -> u64 {
        let now_ns = clock::monotonic_ns();
        let gained_ns = (now_ns - self.since_ns) as f64 * self.drift_ppm / 1e6;
        now_ns.wrapping_add_signed(self.ahead_ns + gained_ns as i64)
    }

    fn wall_ahead_ns(&self) -> u64 {
        clock::wall_offset().ahead_ns.wrapping_add_signed(-self.ahead_ns)
    }

    fn kept(&self) -> Option<KeptClock> {
        self.kept.clone()
    }
}

/// Two hosts, of which the sender's clock is skewed while its packets have this machine's time: therefore their latency is
/// longer by the skew in the receiver's statistics.
#[test]
fn latency_between_hosts_is_put_on_one_clock_and_refused_if_that_is_too_uncertain() {
    let why = "two network namespaces are the hosts";
    let Some(lab) = testing::root_lab(&LabPlan::default(), why) else { return };
    let address = IpAddr::from(lab.rx().ipv4()[0]);
    let receiver = ReceiverPlan {
        engine: "udp".parse().unwrap(),
        traffic: RxTraffic {
            batch_size: 64,
            statistics: Some(StatisticsPlan { level: StatisticsLevel::Time, ..StatisticsPlan::default() }),
            ..RxTraffic::at((address, 0).into())
        },
    };
    let policy = Policy { admission: Admission::default(), ..Policy::default() };
    let mut reception = None;
    let start = || reception = Some(Reception::start(&receiver, &[], None, policy).unwrap());
    lab.rx().run(start).unwrap();
    let reception = reception.unwrap();
    let to = reception.address().unwrap();
    const DAYS: i64 = 3 * 86_400 * 1_000_000_000;
    const SHORT: i64 = 20_000_000;
    // The first sender's clock is days ahead, so that its packets seem to take as long; the other offsets matter, too.
    for (ahead_ns, drift_ppm) in [(DAYS, 0.0), (SHORT, 50.0), (0, 0.0)] {
        let asked = BackPlan { rate_pps: Some(500.0), duration_ns: 700_000_000, ..BackPlan::of_tests() };
        let plan = asked.within(to, &SendingTerms::default()).unwrap();
        testing::repeat("round trips took long on a busy machine", |_| {
            reception.readings(AfterReading::Reset).unwrap();
            let skewed = Skewed { ahead_ns, drift_ppm, since_ns: clock::monotonic_ns(), kept: None };
            let clock: Arc<dyn HostClock> = Arc::new(skewed);
            let sent =
                lab.tx().run(|| run_host_trial_by(&clock, &plan, 1, || true, |_, _| ())).unwrap().unwrap();
            let clocks = sent.trial.clocks.clone().expect("the receiver times packets");
            let comparisons = reception.comparisons();
            assert_eq!(comparisons, std::slice::from_ref(&clocks), "both ends agree");
            let readings = reception.readings(AfterReading::Continue).unwrap();
            let timed = |claim| {
                timed_reception(&readings, claim, ClockSources { comparisons: &comparisons, ptp4l: None })
            };
            let (one, two) = (timed(ClockClaim::SameHost), timed(ClockClaim::Auto));
            let timing = two.timing.unwrap();
            assert_eq!(timing.clocks, ClockRelation::Measured, "{timing:#?}");
            let bound_ns = clocks.bound_ns.expect("round trips before and after");
            // However busy the machine is, offset and drift are right within their stated bounds.
            let off_ns = (clocks.ahead_ns + ahead_ns).unsigned_abs();
            let gained_ns = (drift_ppm * 2000.0) as u64;
            assert!(off_ns <= bound_ns + gained_ns, "{clocks:?}");
            let drift = clocks.drift_ppm.unwrap() + drift_ppm;
            assert!(drift.abs() <= clocks.drift_bound_ppm.unwrap() + 0.1, "{clocks:?}");
            let exact = one.total.latency.unwrap();
            let Some(latency) = two.total.latency else {
                let refused = timing.latency_refused.expect("a reason");
                assert!(refused.contains("not below a tenth of the median latency"), "{refused}");
                return if ahead_ns == 0 { Ok(()) } else { Err(format!("{refused}: {clocks:?}")) };
            };
            assert!(bound_ns * 10 < latency.p50_ns && timing.latency_refused.is_none(), "{timing:?}");
            // Histograms are exact to a hundredth.
            let expected_ns = exact.p50_ns + ahead_ns as u64;
            let off_ns = latency.p50_ns.abs_diff(expected_ns);
            assert!(off_ns <= bound_ns + gained_ns + expected_ns / 100, "{latency:?} {exact:?} {clocks:?}");
            Ok(())
        });
    }
    reception.stop();
}
