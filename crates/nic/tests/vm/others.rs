//! Drivers with fewer features: what they lack is reported, and their counts add up.

use std::time::{Duration, Instant};

use lab::{NicModel, NicPair};
use nic::{Card, Readback, Session, SessionError, Verifier, read_counters};

use crate::guest::{flows, in_a_guest, is_guest, set, up};

#[test]
fn they_say_what_they_lack_and_e1000_counts_what_it_missed() {
    let pairs = [NicModel::E1000, NicModel::E1000e, NicModel::Vmxnet3, NicModel::Virtio].map(NicPair::of);
    if !is_guest() {
        return in_a_guest("others::they_say_what_they_lack_and_e1000_counts_what_it_missed", &pairs);
    }
    let state = tempfile::tempdir().unwrap();
    let lacks = |n: u32, texts: &[&str]| {
        let mut session = Session::begin(&format!("pair{n}a"), state.path()).unwrap();
        for text in texts {
            let Err(SessionError::Problems { problems }) = session.apply(&set(&[text])) else {
                panic!("{text}")
            };
            let name = text.split_once('=').unwrap().0;
            assert_eq!(
                problems[0].to_string(),
                format!("pair{n}a has no setting {name} that can be changed")
            );
        }
        session
    };
    let (mut e1000, via) = up(1);
    lacks(1, &["channels.combined=1", "coalesce.rx-usecs=3", "rss.table=equal:1", "rss.key=6d"]);
    lacks(2, &["channels.combined=1", "rss.table=equal:1"]);
    let (vmxnet3, _) = up(3);
    let mut session = lacks(3, &["coalesce.rx-usecs=3", "pause.rx=on"]);
    let refused = session.apply(&set(&["channels.combined=2"])).unwrap_err().to_string();
    assert!(
        refused.contains("cannot set channels.combined of pair3a to 2; all settings are unchanged"),
        "{refused}"
    );
    let applied = session.apply(&set(&["ring.rx=100"])).unwrap();
    assert_eq!(
        (applied.outcomes[0].now.as_deref(), applied.outcomes[0].verdict),
        (Some("128"), Readback::Rounded)
    );
    drop(session);
    drop(vmxnet3);
    up(4);
    let mut session = lacks(4, &["pause.rx=on"]);
    let accepted = session.apply(&set(&["coalesce.adaptive-rx=on"]));
    match accepted {
        Ok(applied) => assert_eq!(applied.outcomes[0].verdict, Readback::Ignored, "{applied:?}"),
        Err(error) => assert!(error.to_string().contains("all settings are unchanged"), "{error}"),
    }

    // Every packet that was sent was received or missed, exactly.
    let (received_before, missed_before) = (received(&mut e1000), missed(&mut e1000));
    let mut verifier = Verifier::new(&mut e1000, &via, 1).unwrap();
    let flow = flows("ports", 1)[0];
    let sent = verifier.flood(&flow, 20_000).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let (received, missed) = loop {
        let counted = (received(&mut e1000) - received_before, missed(&mut e1000) - missed_before);
        if counted.0 + counted.1 >= sent || Instant::now() > deadline {
            break counted;
        }
    };
    println!("e1000: {sent} sent, {received} received, {missed} missed");
    assert_eq!(received + missed, sent);
}

fn received(card: &mut Card) -> u64 {
    read_counters(card).unwrap()["rx_packets"]
}

/// The card's register of missed packets. The emulator does not clear it when it is read, as a real card does, so the
/// driver's counter grows by all of it at each reading: ours, and one every two seconds of the driver's own, which may
/// fall between two of ours.
fn missed(card: &mut Card) -> u64 {
    let readings = [(); 4].map(|()| read_counters(card).unwrap()["rx_missed_errors"]);
    readings.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap()
}
