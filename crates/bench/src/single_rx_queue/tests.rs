use std::io;

use super::*;

fn row(load: FloodLoad, filter: FloodFilter, filtered_pps: f64) -> SingleRxQueueRow {
    SingleRxQueueRow {
        load,
        filter,
        asked_pps: None,
        flood_pps: 7e6,
        flood_of_path: Some(10.0),
        filtered_pps,
        valid_sent: 1010,
        valid_arrived: Some(1000),
        valid_delivered: 999,
        lost: BTreeMap::from([("receive buffer of the service full".into(), 1)]),
        diverted: None,
        transfer_bps: 1e9,
        others: None,
        cpus: Vec::new(),
    }
}

#[test]
fn a_row_is_a_point_with_its_share_of_valid_packets() {
    let point = row(FloodLoad::TenTimes, FloodFilter::DivertXdp, 6e6).point();
    assert_eq!(point.values["valid_delivered_ratio"], 999.0 / 1010.0);
    assert_eq!(point.values["valid_delivered_of_arrived_ratio"], 0.999);
    assert_eq!(point.values["lost_packets_by_place"]["receive buffer of the service full"], 1);
    assert_eq!(point.values["filtered_of_flood_ratio"], 6.0 / 7.0);
    assert_eq!(point.values["flood"], "ten-times");
    assert_eq!(point.values["filter"], "divert --where xdp");
}

#[test]
fn published_figures_are_next_to_the_full_floods() {
    let rows = [
        row(FloodLoad::TenTimes, FloodFilter::DivertXdp, 1e6),
        row(FloodLoad::Full, FloodFilter::DivertXdp, 6.5e6),
    ];
    let figures = single_rx_queue_figures(&rows);
    let pairs: Vec<(Option<f64>, Option<f64>)> =
        figures.iter().map(|figure| (figure.published, figure.measured)).collect();
    assert_eq!(pairs, [(Some(5.84), Some(6.5)), (Some(6.0), Some(6.5)), (Some(5.84), None)]);
}

#[test]
fn every_error_has_a_message() {
    let source = || io::Error::from_raw_os_error(libc_enoent());
    let error = SingleRxQueueError::Socket { what: "open the service's socket", source: source() };
    assert_eq!(error.to_string(), "cannot open the service's socket");
    let error = SingleRxQueueError::Counter { filter: FloodFilter::Nft, source: Box::new(source()) };
    assert_eq!(error.to_string(), "cannot read the drop counter of nft at ingress");
}

fn libc_enoent() -> i32 {
    2
}
