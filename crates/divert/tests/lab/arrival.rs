//! Re-injected packets look as if they had come from the wire: VLAN tags, bytes and time stamps.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    thread,
};

use divert::{BEAT, Fate, FilterAt};
use lab::Lab;
use port::{XdpTx, XdpTxOptions};
use wire::{FrameSpec, MacAddr, Sizes, Template, Values, VlanTag};

use crate::support::{VALID, lab, plan, settle, start};

/// Frames without VLAN tag, with one and with two, of different sizes.
fn templates(lab: &Lab) -> Vec<Template> {
    let tag = |text: &str| text.parse::<VlanTag>().unwrap();
    [(vec![], 100), (vec![tag("7")], 300), (vec![tag("8"), tag("9")], 1000)]
        .into_iter()
        .map(|(vlan, size)| {
            let spec = FrameSpec {
                src_mac: MacAddr(lab.tx().mac()),
                dst_mac: MacAddr(lab.rx().mac()),
                vlan,
                src_addr: Values::Fixed(lab.tx().ipv4()[0].into()),
                dst_addr: Values::Fixed(lab.rx().ipv4()[0].into()),
                dst_port: Values::Fixed(VALID),
                sizes: Sizes::Frame(size.to_string().parse().unwrap()),
                ..FrameSpec::default()
            };
            Template::new(&spec).unwrap()
        })
        .collect()
}

#[test]
fn packets_that_were_given_back_are_captured_as_those_from_the_wire() {
    let Some(lab) = lab() else { return };
    let file = testing::own_folder().join("arrival.pcap");
    let templates = templates(&lab);
    let mut capture = Command::new("tcpdump");
    // Incoming ones only: the host answers with a refusal.
    capture.args([
        "-i",
        lab.rx().interface(),
        "-Q",
        "in",
        "--immediate-mode",
        "--time-stamp-precision=nano",
        "-U",
        "-c",
    ]);
    capture.arg((2 * templates.len()).to_string()).arg("-w").arg(&file).stderr(Stdio::piped());
    let mut capture = match lab.rx().run(|| capture.spawn()).unwrap() {
        Ok(capture) => capture,
        Err(error) => {
            return testing::skip(format_args!("no tcpdump to look at packets with: {error}"));
        }
    };
    let mut said = BufReader::new(capture.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("listening on")), "tcpdump does not listen");

    let send = || {
        for template in &templates {
            let send = || {
                let options = XdpTxOptions::on(lab.tx().index());
                XdpTx::open(template.recipe(), &options).unwrap().send(1, 0).unwrap();
            };
            lab.tx().run(send).unwrap();
        }
    };
    send();
    let mut diversion = start(&lab, &plan(&lab, FilterAt::User, &["pass all"]));
    let began_ns = sys::clock::realtime_ns();
    thread::scope(|scope| {
        let sending = scope.spawn(send);
        while !sending.is_finished() {
            diversion.beat().unwrap();
            thread::sleep(BEAT / 20);
        }
    });
    let status = settle(&mut diversion, 3);
    assert_eq!(status.ledger.of(Fate::Reinjected), 3, "{status:#?}");
    assert!(capture.wait().unwrap().success());
    let end_ns = sys::clock::realtime_ns();

    let mut reader = wire::PcapReader::new(File::open(&file).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        frames.push((frame.time_ns, frame.bytes.to_vec()));
    }
    let (direct, given_back) = frames.split_at(3);
    let bytes = |frames: &[(u64, Vec<u8>)]| -> Vec<Vec<u8>> {
        frames.iter().map(|(_, bytes)| bytes.clone()).collect()
    };
    assert_eq!(bytes(given_back), bytes(direct));
    let lens: Vec<usize> = direct.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lens, [96, 296, 996], "without FCS");
    assert_eq!(direct[1].1[12..16], [0x81, 0, 0, 7]);
    // Stamped on arrival: after they were sent, and in order.
    assert!(given_back.is_sorted_by_key(|(time_ns, _)| *time_ns));
    assert!(given_back[0].0 >= began_ns && given_back[2].0 <= end_ns, "{began_ns} {end_ns}");
}
