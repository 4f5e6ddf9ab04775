//! virtio_net with several queues: the one emulated card whose key can be read and set.

use std::time::Instant;

use lab::{NicModel, NicPair};
use nic::{Readback, Session, Steering, read_queue_counts};
use wire::FlowKey;

use crate::guest::{assert_predicted, flows, in_a_guest, is_guest, set, up};

#[test]
fn a_key_that_is_set_is_the_one_that_flows_go_by() {
    if !is_guest() {
        let pair = NicPair { model: NicModel::Virtio, queues: Some(4) };
        return in_a_guest("virtio::a_key_that_is_set_is_the_one_that_flows_go_by", &[pair]);
    }
    let (mut card, via) = up(1);
    let state = tempfile::tempdir().unwrap();
    let mut session = Session::begin(card.name(), state.path()).unwrap();
    for channels in ["2", "4"] {
        session.apply(&set(&[&format!("channels.combined={channels}")])).unwrap();
    }
    let flows = flows("ports", 1000);
    let turned: Vec<FlowKey> =
        flows.iter().map(|flow| FlowKey::udp(flow.dst(), flow.src()).unwrap()).collect();
    let predicted = |card: &mut nic::Card, flows: &[FlowKey]| -> Vec<u32> {
        let steering = Steering::read(card).unwrap();
        flows.iter().map(|flow| steering.predict(flow).unwrap().queue.unwrap()).collect()
    };
    // Microsoft's, and one that gives both directions of a flow the same hash.
    let microsoft = "6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:\
                     6a:42:b7:3b:be:ac:01:fa";
    let symmetric = ["6d:5a"; 20].join(":");
    let mut last = predicted(&mut card, &flows);
    for (key, table) in [(microsoft, "equal:4"), (&symmetric, "weights:0,1,0,3"), (microsoft, "equal:4")] {
        let applied =
            session.apply(&set(&[&format!("rss.key={key}"), &format!("rss.table={table}")])).unwrap();
        assert!(applied.outcomes.iter().all(|outcome| outcome.verdict == Readback::Done), "{applied:?}");
        let now = predicted(&mut card, &flows);
        let moved = now.iter().zip(&last).filter(|(now, last)| now != last).count();
        let since = Instant::now();
        assert_predicted(&mut card, &via, &flows);
        let took = since.elapsed().as_secs_f64();
        println!(
            "key {:.11}.., {table}: {moved} of 1000 flows predicted elsewhere, all seen there, {took:.1} s",
            key
        );
        // With another key, three of four flows change their queue by chance.
        assert!(moved > 500, "{moved}");
        let same = predicted(&mut card, &turned) == now;
        assert_eq!(same, key == symmetric, "both directions on one queue");
        if same {
            assert_predicted(&mut card, &via, &turned[..100]);
        }
        last = now;
    }
    assert_eq!(read_queue_counts(&mut card).unwrap().source, "netdev-genl");
    let undone = session.undo().unwrap();
    assert_eq!(undone.left, []);
}
